"""Landmark features as a transformer, so that any model can stand on them.

    phi(x) = L^-1 k(G, x),   K(G, G) = L L^T,     phi(x) . phi(y) = k(x, G) K(G, G)^-1 k(G, y)

for landmarks `G`: inner products of the features are the Nyström approximation of the kernel, and the kernel itself between
landmarks. A linear model on them is a kernel machine whose size does not grow with the data.

Cost: O(m d + m^2) for each row, O(m^3) once.

Reference: Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.approximation.features.landmark_map import LandmarkMap, Whitening, landmark_gram, whiten_rows
from gramless.approximation.landmarks import as_points, select
from gramless.kernels import Kernel
from gramless.linalg.operators import evaluate
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings
from gramless.streaming.learners.driver import CANDIDATES

# Rows whose kernel values and features are in memory at the same time.
_ROWS_AT_A_TIME = 4096


@link_documentation
class NystromFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features whose inner products approximate any kernel, from its values with some landmarks.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name, as in `sklearn.svm.SVC`.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    n_landmarks : int or float, default=500
        How many landmarks, and so features: a number, or a share of the rows above 0 and at most 1.
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves. A
        rule chooses
        from a uniform sample of at most 50,000 rows.
    dtype : {"float32", "float64"} or None, default=None
        Of the features. None is float32 for float32 and byte data, else float64.
    random_state : int, RandomState or None, default=None
        Draws the landmarks.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        The landmarks.
    support_ : ndarray of shape (m,) or None
        Which training rows they are; None where they are none.
    factor_ : ndarray of shape (m, m)
        `L`, lower triangular.
    jitter_ : float
        What was added to the diagonal of `K(G, G)`.
    kernel_ : Kernel
        With every setting a number.
    n_features_in_ : int
        Columns of `X` at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

    See Also
    --------
    FourierFeatures : Random features instead of landmarks.
    NystromLSSVC : A classifier on these features, fitted in one pass.
    NystromNovelty : How unlike the training rows a row is, on these features.

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

    n_features_in_: int
    support_: np.ndarray | None

    def __init__(
        self,
        *,
        kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: float = 500,
        landmarks: Any = "uniform",
        dtype: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.dtype = dtype
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> NystromFeatures:
        """Choose landmarks.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows to choose from.
        y : array-like of shape (n_samples,), optional
            Not used: here for the sake of pipelines.

        Returns
        -------
        NystromFeatures
            This transformer, fitted.
        """
        kernel = kernel_from_settings(self)
        rng = check_random_state(self.random_state)
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True, accept_sparse=kernel.accepts_sparse)
        X = X if xa.is_sparse(X) else xa.to_numpy(X)
        feature_map, n = LandmarkMap(kernel, self.n_landmarks, self.landmarks), X.shape[0]
        if not kernel.uses_points:
            raise ValueError("a precomputed kernel has no rows to evaluate: pass the data and a kernel")
        self.kernel_ = kernel.resolve(X)
        rows = feature_map.named_rows(n)
        if rows is not None:
            self.support_, self.points_ = rows, X[rows]
        else:
            seen = max(feature_map.rows_needed(n), CANDIDATES)
            sample = np.arange(n) if n <= seen else np.sort(rng.choice(n, seen, replace=False))
            some = X if n <= seen else X[sample]
            chosen = select(self.landmarks, some, self.kernel_, feature_map.n_features(n), rng)
            self.support_, self.points_ = sample[chosen] if chosen.ndim == 1 else None, as_points(chosen, some)
        whitening = Whitening(landmark_gram(self.kernel_, self.points_, "cpu"), self.points_.dtype)
        self.factor_, self.jitter_ = xa.to_numpy(whitening.L), whitening.jitter
        return self

    def partial_fit(self, X: Any, y: Any = None) -> NystromFeatures:
        """Choose landmarks from the first rows that come; later ones change nothing.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows; the first call needs as many as there are to be landmarks, or there are fewer.
        y : array-like of shape (n_samples,), optional
            Not used.

        Returns
        -------
        NystromFeatures
            This transformer, fitted.
        """
        if not hasattr(self, "points_"):
            return self.fit(X)
        check_X(self, X, dtype=self.points_.dtype, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features of rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, m)
            One column for each landmark.
        """
        check_is_fitted(self, "points_")
        dtype = self.points_.dtype
        X = check_X(self, X, dtype=dtype, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        X = X if xa.is_sparse(X) else xa.to_numpy(X)
        out = np.empty((X.shape[0], self._n_features_out), dtype=dtype)
        for rows in slices(X.shape[0], _ROWS_AT_A_TIME):
            values = xa.to_numpy(evaluate(self.kernel_, X[rows], self.points_))
            out[rows] = whiten_rows(self.factor_, values.astype(np.float64, copy=False))
        return out

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        FitPlan
            Or a `MemoryError` where that is too much.
        """
        m, itemsize = (
            LandmarkMap(kernel_from_settings(self), self.n_landmarks, self.landmarks).n_features(n),
            np.dtype(dtype).itemsize,
        )
        chosen = self.landmarks if isinstance(self.landmarks, str) else ""
        parts = {
            "data": n * d * itemsize,
            "landmarks": m * d * (itemsize + 8),
            "kernel matrix and factor": 4 * m * m * 8,
            # A rule may hold a factor of the kernel matrix, and works on blocks of it.
            "choosing": 0 if chosen == "uniform" else min(n, CANDIDATES) * m * itemsize + _ROWS_AT_A_TIME * m * 32,
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
