"""Novelty detection by the posterior variance of a Gaussian process on landmarks, for data of any length.

    nu(x) = k(x, x) - |phi(x)|^2 + ridge phi(x)^T (Phi^T Phi + ridge I)^-1 phi(x)

is the posterior variance at x, with landmark features `phi` (`Phi` for all training rows): near zero close to many training
rows, `k(x, x)` far from all training rows. The first two terms are the variance that the landmarks do not represent, the
last is `ridge` times the leverage. The threshold is a quantile of the leave-one-out variances of training rows, in closed
form. So the p-value of a new row of the same distribution is uniform, and the false-positive rate is `false_alarms`.

Cost: O(m d + m^2) for each row and O(m^2) memory for m landmarks; O(m^3) once.

References: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 8.3; Vovk, Gammerman and Shafer,
"Algorithmic learning in a random world", 2005, for the p-values.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import POSITIVE_INTEGER, estimator
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_host_X, working_dtype
from gramless.estimators.kernel_features import NystromFeatures
from gramless.inference.feature_process import FeatureProcess
from gramless.kernels import Kernel, kernel_from_parameters, set_input_tags
from gramless.linalg.operators import evaluate
from gramless.linalg.planning.plan import FitPlan
from gramless.streaming.learners.ridge_sums import RidgeSums

_ROWS_PER_BLOCK = 512  # rows processed at a time: 2 MB of features in float64 for 500 landmarks
# Number of m x m matrices in float64 at the peak memory: the sums, the centred sums, and their factors.
_MATRICES = 6
# Number of float64 arrays of the size of a block of features: kernel values, features, solved features, squares.
_BLOCK_COPIES = 5
# Number of training rows from which the threshold is estimated. With this number, the standard error of a false-positive
# rate of 1 % is below 0.1 %.
_CALIBRATION_ROWS = 16_384


@estimator
class NystromNovelty(OutlierMixin, BaseEstimator):
    """Novelty detector on landmarks that flags rows far from the training rows, at a chosen false-positive rate.

    Prefer `NystromNovelty` to scikit-learn's `OneClassSVM` for large data and for calibrated p-values.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    n_landmarks : int, default=500
        Number of landmarks. The Notes give an upper bound.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. A rule selects from a uniform sample of at most 50,000 rows; if a generator yields the rows, the rule
        selects from the first rows (four for each landmark).
    false_alarms : float, default=0.05
        False-positive rate: the fraction of rows of the training distribution that are flagged, between 0 and 1.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    features_ : NystromFeatures
        Landmark features.
    calibration_ : ndarray
        Novelty of training rows, for each row by the model without the row, in ascending order.
    offset_ : float
        Rows with `score_samples` below this number are flagged.
    n_features_in_ : int
        Number of columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if `X` had names.

    See Also
    --------
    KernelOneClassSVM : Outlier detector by a region that contains most rows.
    NystromFeatures : Landmark features of this detector.

    Notes
    -----
    At most half of the rows become landmarks, because the threshold is estimated from the other rows.

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams, "Gaussian processes for machine learning", 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import NystromNovelty
    >>> rng = np.random.default_rng(0)
    >>> model = NystromNovelty(random_state=0).fit(rng.normal(size=(5000, 3)))
    >>> model.predict([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    array([ 1, -1])
    >>> bool(abs((model.p_values(rng.normal(size=(5000, 3))) < 0.05).mean() - 0.05) < 0.02)
    True
    """

    kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf"
    C: float = 1.0
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    n_landmarks: int = 500
    landmarks: Any = "uniform"
    false_alarms: float = 0.05
    dtype: Any = None
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_landmarks": [POSITIVE_INTEGER],
        "false_alarms": [Interval(Real, 0, 1, closed="neither")],
    }

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> NystromNovelty:
        """Fit the Gaussian process and the threshold.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows without outliers.
        y : None
            Ignored.

        Returns
        -------
        NystromNovelty
            Fitted estimator.
        """
        kernel, rng = kernel_from_parameters(vars(self)), check_random_state(self.random_state)
        dtype, sparse = working_dtype(X, self.dtype), kernel.accepts_sparse
        X = check_host_X(self, X, dtype=dtype, reset=True, accept_sparse=sparse, ensure_min_samples=2)
        n, seed = X.shape[0], int(rng.randint(2**31 - 1))
        features = NystromFeatures(
            kernel=kernel, n_landmarks=min(int(self.n_landmarks), n // 2), landmarks=self.landmarks, random_state=seed
        ).fit(X)
        sums = RidgeSums(features.points_.shape[0], 1)  # targets of zero: variances do not depend on the targets
        for rows in slices(n, _ROWS_PER_BLOCK):
            part = X[rows]
            sums.add(features.transform(part).astype(np.float64), np.zeros((part.shape[0], 1)))
        process = FeatureProcess.from_sums(sums, 1.0 / self.C, constant=False)
        others = np.arange(n) if features.support_ is None else np.setdiff1d(np.arange(n), features.support_)
        if others.size == 0:
            raise ValueError("every row is a landmark: the threshold is estimated from rows that are no landmarks")
        if others.size > _CALIBRATION_ROWS:
            others = np.sort(rng.choice(others, _CALIBRATION_ROWS, replace=False))
        self.features_, self._process = features, process
        self.calibration_ = np.sort(_novelty(features, process.variances_without, X[others]))
        rank = min(int(np.ceil((1 - self.false_alarms) * (others.size + 1))), others.size)
        self.offset_ = -float(self.calibration_[rank - 1])
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the negative novelty of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Scores from `-k(x, x)`, for a row far from all training rows, to 0, for a row close to many training rows.
        """
        check_is_fitted(self, "features_")
        features = self.features_
        dtype, sparse = features.points_.dtype, features.kernel_.accepts_sparse
        X = check_host_X(self, X, dtype=dtype, reset=False, accept_sparse=sparse)
        return -_novelty(features, self._process.variances, X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each row relative to the threshold.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Negative for flagged rows.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return 1 for rows like the training rows and -1 for novel rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            1 for rows like the training rows, -1 for flagged rows.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        m, itemsize = min(int(self.n_landmarks), n // 2), np.dtype(dtype).itemsize
        features = NystromFeatures(n_landmarks=m, landmarks=self.landmarks, kernel=kernel_from_parameters(vars(self)))
        memory = features._fit_plan(n, d, n_outputs, dtype, device).memory
        memory.parts["sums and factors"] = _MATRICES * m * m * 8
        memory.parts["batch"] = min(n, _ROWS_PER_BLOCK) * (m * (itemsize + _BLOCK_COPIES * 8) + d * itemsize)
        return FitPlan(memory)

    def p_values(self, X: Any) -> np.ndarray:
        """Return the fraction of training rows that are at least as novel as each row.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Uniform between 0 and 1 for rows of the distribution of the training rows; small for other rows.
        """
        below = np.searchsorted(self.calibration_, -self.score_samples(X), side="left")
        n = self.calibration_.size
        return (1.0 + n - below) / (1.0 + n)

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)


def _novelty(features: NystromFeatures, variances: Callable[..., np.ndarray], X: Any) -> np.ndarray:
    """Return the posterior variance of each row, computed by `variances`, a method of a `FeatureProcess`."""
    out = np.empty(X.shape[0])
    for rows in slices(X.shape[0], _ROWS_PER_BLOCK):
        part = X[rows]
        values = xa.to_numpy(evaluate(features.kernel_, part, features.points_)).astype(np.float64, copy=False)
        # `features.transform` is not used: it pads blocks to 64 rows, so that results do not depend on the batch, and is
        # slow for one row.
        Phi = solve_triangular(features.factor_, values.T, lower=True, check_finite=False).T
        own = np.asarray(features.kernel_.diag(part), dtype=np.float64)
        out[rows] = variances(Phi, np.maximum(own - np.einsum("ij,ij->i", Phi, Phi), 0.0))
    return out
