"""Landmark features as a scikit-learn transformer.

    phi(x) = L^-1 k(G, x),   K(G, G) = L L^T,     phi(x) . phi(y) = k(x, G) K(G, G)^-1 k(G, y)

for landmarks `G`: inner products of the features are the Nyström approximation of the kernel, which is exact between
landmarks. A linear model on these features is a kernel model whose size does not grow with the data.

Cost: O(m d + m^2) for each row, O(m^3) once.

Reference: Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import estimator
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.approximation.features.landmark_map import LandmarkMap, Whitening, landmark_gram, whiten_rows
from gramless.approximation.landmarks import as_points, select
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.linalg.operators import evaluate
from gramless.linalg.planning.plan import FitPlan
from gramless.streaming.tuning import TUNING

_ROWS_PER_BLOCK = 4096  # rows of kernel values: 16 MB in float64 for 500 landmarks


@estimator
class NystromFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features whose inner products approximate a kernel, computed from kernel values with landmarks.

    Prefer it to scikit-learn's `Nystroem` for landmark rules other than uniform sampling, kernels of `gramless.kernels`, and
    features that do not depend on the batch in which a row is transformed.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    n_landmarks : int or float, default=500
        Number of landmarks. A float at most 1 is a fraction of the rows; `partial_fit` needs an int.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. A rule selects from a uniform sample of at most 50,000 rows, or from the first rows of a generator (four
        rows for each landmark).
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        Landmarks.
    support_ : ndarray of shape (m,) or None
        Indices of the training rows that are landmarks; None if the landmarks are not training rows.
    factor_ : ndarray of shape (m, m)
        Lower triangular Cholesky factor `L`.
    jitter_ : float
        Number added to the diagonal of `K(G, G)`.
    kernel_ : Kernel
        Kernel with numeric parameters.
    n_features_in_ : int
        Number of columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if `X` had names.

    See Also
    --------
    FourierFeatures : Random features instead of landmarks.
    NystromLSSVC : A classifier on these features, fitted in one pass.
    NystromNovelty : Novelty detection on these features.

    References
    ----------
    C. Williams and M. Seeger, "Using the Nyström method to speed up kernel machines", 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from gramless import NystromFeatures
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(NystromFeatures(n_landmarks=200, random_state=0), LogisticRegression(C=100.0))
    >>> model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.9
    True
    """

    kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    n_landmarks: float = 500
    landmarks: Any = "uniform"
    dtype: Any = None
    random_state: Any = None

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> NystromFeatures:
        """Select the landmarks and factor their kernel matrix.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        NystromFeatures
            Fitted transformer.
        """
        self._validate_params()
        kernel = kernel_from_parameters(vars(self))
        rng = check_random_state(self.random_state)
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True, accept_sparse=kernel.accepts_sparse)
        X = X if xa.is_sparse(X) else xa.to_numpy(X)
        feature_map, n = LandmarkMap(kernel, self.n_landmarks, self.landmarks), X.shape[0]
        if not kernel.uses_points:
            raise ValueError("a precomputed kernel has no rows to evaluate: pass the data and a kernel")
        self.kernel_ = kernel.resolve(X)
        rows = feature_map.named_rows(n)
        self.support_: np.ndarray | None = rows
        if rows is not None:
            self.points_ = X[rows]
        else:
            candidates = max(feature_map.rows_needed(n), TUNING.candidate_rows)
            sample = np.arange(n) if n <= candidates else np.sort(rng.choice(n, candidates, replace=False))
            examined = X if n <= candidates else X[sample]
            chosen = select(self.landmarks, examined, self.kernel_, feature_map.n_features(n), rng)
            self.support_, self.points_ = sample[chosen] if chosen.ndim == 1 else None, as_points(chosen, examined)
        whitening = Whitening(landmark_gram(self.kernel_, self.points_, "cpu"), self.points_.dtype)
        self.factor_, self.jitter_ = xa.to_numpy(whitening.L), whitening.jitter
        return self

    def partial_fit(self, X: Any, y: Any = None) -> NystromFeatures:
        """Select the landmarks from the rows of the first call; later calls only validate their rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows; the first call needs at least `n_landmarks` rows for that number of landmarks.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        NystromFeatures
            Fitted transformer.
        """
        if not hasattr(self, "points_"):
            return self.fit(X)
        check_X(self, X, dtype=self.points_.dtype, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, m)
            Features, one column for each landmark.
        """
        check_is_fitted(self, "points_")
        dtype = self.points_.dtype
        X = check_X(self, X, dtype=dtype, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        X = X if xa.is_sparse(X) else xa.to_numpy(X)
        out = np.empty((X.shape[0], self._n_features_out), dtype=dtype)
        for rows in slices(X.shape[0], _ROWS_PER_BLOCK):
            values = xa.to_numpy(evaluate(self.kernel_, X[rows], self.points_))
            out[rows] = whiten_rows(self.factor_, values.astype(np.float64, copy=False))
        return out

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if it exceeds the budget."""
        m = LandmarkMap(kernel_from_parameters(vars(self)), self.n_landmarks, self.landmarks).n_features(n)
        itemsize = np.dtype(dtype).itemsize
        uniform = isinstance(self.landmarks, str) and self.landmarks == "uniform"
        parts = {
            "data": n * d * itemsize,
            "landmarks": m * d * (itemsize + 8),
            "kernel matrix and factor": 4 * m * m * 8,
            # Rules other than uniform sampling may store a factor of the kernel matrix and blocks of kernel values.
            "selection": 0 if uniform else min(n, TUNING.candidate_rows) * m * itemsize + _ROWS_PER_BLOCK * m * 32,
        }
        return FitPlan(MemoryEstimate(parts, device))

    @property
    def _n_features_out(self) -> int:
        return int(self.points_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
