"""Transformers to features whose inner products approximate a kernel; a linear model on the features is a kernel model.

Landmark features, for m landmarks `G`:

    phi(x) = L^-1 k(G, x),   K(G, G) = L L^T,     phi(x) . phi(y) = k(x, G) K(G, G)^-1 k(G, y)

give the Nyström approximation of the kernel, which is exact between landmarks. Cost: O(m d + m^2) for each row, O(m^3) once.

Random Fourier features, for D frequencies `W` drawn from the spectrum of a stationary kernel:

    phi(x) = [cos(W x), sin(W x)] / sqrt(D),     E[phi(x) . phi(y)] = k(x, y)

depend on the data only if `gamma="scale"`. Cost: O(d D) for each row, O(D log d) with structured frequencies.

References: Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001; Rahimi and Recht, "Random
features for large-scale kernel machines", 2007; Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, "Orthogonal random
features", 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import estimator
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_host_X, working_dtype
from gramless.approximation.features.base import SampledRows
from gramless.approximation.features.fourier_map import DRAWS, FourierMap
from gramless.approximation.features.landmark_map import LandmarkMap, Whitening, landmark_gram, whiten_rows
from gramless.approximation.landmarks import as_points, select
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.linalg.operators import evaluate
from gramless.linalg.planning.plan import FitPlan
from gramless.streaming.tuning import TUNING

_ROWS_PER_BLOCK = 4096  # rows transformed at a time: 16 MB of kernel values in float64 for 500 landmarks


@estimator
class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of kernel feature maps; subclasses define `_begin`, `_features`, `_dtype` and `_n_features_out`.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    kernel_ : Kernel
        Kernel with numeric parameters.
    n_features_in_ : int
        Number of columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if `X` had names.
    """

    kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf"
    gamma: float | str = "scale"
    dtype: Any = None
    random_state: Any = None

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        """Determine the features: select the landmarks and factor their kernel matrix, or draw the frequencies.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        self
            The fitted transformer.
        """
        kernel, dtype = kernel_from_parameters(vars(self)), working_dtype(X, self.dtype)
        X = check_host_X(self, X, dtype=dtype, reset=True, accept_sparse=kernel.accepts_sparse)
        self._begin(X, kernel, check_random_state(self.random_state))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Determine the features from the rows of the first call; later calls only validate their rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows. The first call selects the landmarks, so it needs at least `n_landmarks` rows. Pass gamma as a number if
            the variance of later rows differs from the variance of the first rows.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        self
            The fitted transformer.
        """
        if not hasattr(self, "kernel_"):
            return self.fit(X)
        self._check_rows(X)
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
            Features: one column for each landmark; or the cosines, then the sines, for all frequencies.
        """
        check_is_fitted(self, "kernel_")
        return self._features(self._check_rows(X))

    def _check_rows(self, X: Any) -> Any:
        return check_host_X(self, X, dtype=np.dtype(self._dtype), reset=False, accept_sparse=self.kernel_.accepts_sparse)

    def _begin(self, X: Any, kernel: Kernel, rng: np.random.RandomState) -> None:
        """Set `kernel_` and the attributes that define the features."""
        raise NotImplementedError

    def _features(self, X: Any) -> np.ndarray:
        """Return the features of validated rows."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@estimator
class NystromFeatures(KernelFeatures):
    """Features whose inner products approximate a kernel, computed from kernel values with landmarks.

    Prefer `NystromFeatures` to scikit-learn's `Nystroem` for landmark rules other than uniform sampling, kernels of
    `gramless.kernels`, and features that do not depend on the batch in which a row is transformed.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    n_landmarks : int or float, default=500
        Number of landmarks. A float at most 1 is a fraction of the rows; `partial_fit` needs an int.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. A rule selects from a uniform sample of at most 50,000 rows; if a generator yields the rows, the rule
        selects from the first rows (four for each landmark).

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

    See Also
    --------
    FourierFeatures : Random features instead of landmarks.
    NystromLSSVC : Classifier on landmark features, fitted in one pass.
    NystromNovelty : Novelty detection on landmark features.

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

    degree: int = 3
    coef0: float = 0.0
    n_landmarks: float = 500
    landmarks: Any = "uniform"

    def _begin(self, X: Any, kernel: Kernel, rng: np.random.RandomState) -> None:
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

    def _features(self, X: Any) -> np.ndarray:
        out = np.empty((X.shape[0], self._n_features_out), dtype=self._dtype)
        for rows in slices(X.shape[0], _ROWS_PER_BLOCK):
            values = xa.to_numpy(evaluate(self.kernel_, X[rows], self.points_))
            out[rows] = whiten_rows(self.factor_, values.astype(np.float64, copy=False))
        return out

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
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
    def _dtype(self) -> Any:
        return self.points_.dtype

    @property
    def _n_features_out(self) -> int:
        return int(self.points_.shape[0])


@estimator
class FourierFeatures(KernelFeatures):
    """Random features whose inner products have a stationary kernel as their expected value.

    Prefer `FourierFeatures` to scikit-learn's `RBFSampler` for orthogonal frequencies, which approximate the kernel
    with smaller variance, and for Laplacian and Matern kernels.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "exponential", "matern32", "matern52"} or Kernel, default="rbf"
        Kernel function. The kernel must be stationary; inner products of the features approximate the kernel.
    n_components : int, default=500
        Number of features. The number is rounded up to an even number: one half are cosines, the other half are sines.
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        Distribution of the random frequencies. `"plain"`: independent; `"orthogonal"`: orthogonal to each other, with
        smaller variance; `"structured"`: products of Hadamard matrices, faster for many columns. `"auto"` is `"plain"` for
        the Laplacian kernel of the city-block norm, `"structured"` for at least 2048 columns, and `"orthogonal"` otherwise.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features, n_components / 2)
        Frequencies `W`.

    See Also
    --------
    NystromFeatures : Features from landmarks, for any kernel.
    FourierLSSVC : Classifier on random Fourier features, fitted in one pass.

    References
    ----------
    A. Rahimi and B. Recht, "Random features for large-scale kernel machines", 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> phi = FourierFeatures(gamma=0.5, n_components=20_000, random_state=0).fit_transform(X)
    >>> distances = ((X[:, None] - X) ** 2).sum(axis=2)
    >>> bool(np.abs(phi @ phi.T - np.exp(-0.5 * distances)).max() < 0.02)
    True
    """

    n_components: int = 500
    draw: str = "auto"

    _parameter_constraints: ClassVar[dict[str, Any]] = {"draw": [StrOptions(set(DRAWS))]}

    def _begin(self, X: Any, kernel: Kernel, rng: np.random.RandomState) -> None:
        self._map = FourierMap(kernel, self.n_components, draw=self.draw).begin(SampledRows(X), rng)
        self._dtype = X.dtype.name
        self.kernel_ = self._map.kernel

    def _features(self, X: Any) -> np.ndarray:
        return np.asarray(self._map(X))

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        itemsize = np.dtype(dtype).itemsize
        frequencies = int(self.n_components) * d * 8 * 2  # one copy in float64, one in the precision of the data
        return FitPlan(MemoryEstimate({"data": n * d * itemsize, "frequencies": frequencies}, device))

    @property
    def frequencies_(self) -> np.ndarray:
        """Frequencies `W`, with one column for each frequency."""
        check_is_fitted(self, "kernel_")
        return self._map.frequencies()

    @property
    def _n_features_out(self) -> int:
        return self._map.n_features
