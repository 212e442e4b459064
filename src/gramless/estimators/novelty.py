"""How unlike the training rows a row is, for data of any length: the variance that they leave at it.

    nu(x) = k(x, x) - |phi(x)|^2 + ridge phi(x)^T (Phi^T Phi + ridge I)^-1 phi(x)

on landmark features `phi` is the variance of a Gaussian process at x after all training rows were seen. It is near zero
where many of them are close, and the kernel's own `k(x, x)` where none is: the first two terms are what the landmarks cannot
express (reconstruction), the last is the leverage. No labels are needed.

What is usual is measured on training rows, each seen from the others in closed form: a new row that comes from where they
came from has a p-value that is uniform on (0, 1), so the share of false alarms is the one that was asked for.

Cost: O(m d + m^2) for each row and O(m^2) memory for m landmarks; O(m^3) once.

Reference: Rasmussen and Williams (2006), Gaussian processes for machine learning, section 8.3; Vovk, Gammerman and Shafer
(2005), Algorithmic learning in a random world, for the p-values.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.doc_links import link_documentation
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_positive, check_X, working_dtype
from gramless.estimators.nystrom_features import NystromFeatures
from gramless.inference.feature_process import FeatureProcess
from gramless.kernels import Kernel
from gramless.linalg.operators import evaluate
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings
from gramless.streaming.learners.ridge_sums import RidgeSums

_ROWS_AT_A_TIME = 512
# Of m x m numbers in float64: the sums, their centre, and what is factored of them.
_MATRICES = 6
# Of a batch of features in float64: kernel values, features, their solution, squares.
_COPIES_OF_A_BATCH = 5
# Rows that say what is usual: a share of one in a hundred is then known to a tenth of itself.
_CALIBRATION_ROWS = 16_384


@link_documentation
class NystromNovelty(OutlierMixin, BaseEstimator):
    """Novelty detector on landmarks: flags rows far from all that was seen, at a chosen rate of false alarms.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    C : float, default=1.0
        How much one row says: the ridge is `1 / C`. With a larger `C` fewer rows make a place well known.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name, as in `sklearn.svm.SVC`. Larger tells rows apart at smaller distances.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    n_landmarks : int, default=500
        How many landmarks, at most half of the rows: the others say what is usual.
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves.
    false_alarms : float, default=0.05
        The share of rows that come from where the training rows came from and are flagged all the same.
    dtype : {"float32", "float64"} or None, default=None
        Of kernel values. None is float32 for float32 and byte data, else float64.
    random_state : int, RandomState or None, default=None
        Draws the landmarks and the rows that say what is usual.

    Attributes
    ----------
    features_ : NystromFeatures
        The landmarks.
    calibration_ : ndarray
        The novelty of training rows, each seen from the others, in ascending order.
    offset_ : float
        What `score_samples` must reach for a row to be usual.
    n_features_in_ : int
        Columns of `X` at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

    See Also
    --------
    KernelOneClassSVM : The smallest region that holds most rows.
    NystromFeatures : The features.

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

    n_features_in_: int
    features_: NystromFeatures
    calibration_: np.ndarray
    offset_: float
    _process: FeatureProcess

    def __init__(
        self,
        *,
        kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: int = 500,
        landmarks: Any = "uniform",
        false_alarms: float = 0.05,
        dtype: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.false_alarms = false_alarms
        self.dtype = dtype
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> NystromNovelty:
        """Learn what rows look like.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows that are as they should be.
        y : None
            Not used: here for the sake of pipelines.

        Returns
        -------
        NystromNovelty
            This estimator, fitted.
        """
        check_positive("C", self.C)
        check_positive("n_landmarks", self.n_landmarks, integer=True)
        if not isinstance(self.false_alarms, Real) or not 0 < self.false_alarms < 1:
            raise ValueError(f"false_alarms must be a number between 0 and 1, got {self.false_alarms!r}")
        kernel, rng = kernel_from_settings(self), check_random_state(self.random_state)
        X = check_X(
            self,
            X,
            dtype=working_dtype(X, self.dtype),
            reset=True,
            accept_sparse=kernel.accepts_sparse,
            ensure_min_samples=2,
        )
        X = X if xa.is_sparse(X) else xa.to_numpy(X)
        n, seed = X.shape[0], int(rng.randint(2**31 - 1))
        self.features_ = NystromFeatures(
            kernel=kernel, n_landmarks=min(int(self.n_landmarks), n // 2), landmarks=self.landmarks, random_state=seed
        ).fit(X)
        sums = RidgeSums(self.features_.points_.shape[0], 1)  # there are no targets
        for rows in slices(n, _ROWS_AT_A_TIME):
            part = X[rows]
            sums.add(self.features_.transform(part).astype(np.float64), np.zeros((part.shape[0], 1)))
        self._process = FeatureProcess.of(sums, 1.0 / self.C, constant=False)
        others = np.arange(n)
        if self.features_.support_ is not None:
            others = np.setdiff1d(others, self.features_.support_)
        if others.size > _CALIBRATION_ROWS:
            others = np.sort(rng.choice(others, _CALIBRATION_ROWS, replace=False))
        self.calibration_ = np.sort(self._novelty(X[others], summed=True))
        rank = min(int(np.ceil((1 - self.false_alarms) * (others.size + 1))), others.size)
        self.offset_ = -float(self.calibration_[rank - 1])
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the novelty of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Between `-k(x, x)`, like nothing that was seen, and 0.
        """
        check_is_fitted(self, "features_")
        features = self.features_
        dtype, sparse = features.points_.dtype, features.kernel_.accepts_sparse
        X = check_X(self, X, dtype=dtype, reset=False, accept_sparse=sparse)
        return -self._novelty(X if xa.is_sparse(X) else xa.to_numpy(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """How far a row is from being flagged.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Negative for rows that are flagged.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Whether a row is like the training rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            1 where it is, -1 where it is flagged.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

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
        m, itemsize = min(int(self.n_landmarks), n // 2), np.dtype(dtype).itemsize
        features = NystromFeatures(n_landmarks=m, landmarks=self.landmarks, kernel=kernel_from_settings(self))
        memory = features.plan(n, d, n_outputs, dtype, device).memory
        memory.parts["sums and their factor"] = _MATRICES * m * m * 8
        memory.parts["batch"] = min(n, _ROWS_AT_A_TIME) * (m * (itemsize + _COPIES_OF_A_BATCH * 8) + d * itemsize)
        return FitPlan(memory)

    def p_values(self, X: Any) -> np.ndarray:
        """The share of usual rows that are at least as novel as each row.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Uniform between 0 and 1 for rows that come from where the training rows came from; small for others.
        """
        below = np.searchsorted(self.calibration_, -self.score_samples(X), side="left")
        n = self.calibration_.size
        return (1.0 + n - below) / (1.0 + n)

    def _novelty(self, X: Any, summed: bool = False) -> np.ndarray:
        """The variance that the training rows leave; `summed` where `X` are some of them, each seen from the others."""
        out = np.empty(X.shape[0])
        variances = self._process.variances_without if summed else self._process.variances
        for rows in slices(X.shape[0], _ROWS_AT_A_TIME):
            part = X[rows]
            values = xa.to_numpy(evaluate(self.features_.kernel_, part, self.features_.points_)).astype(
                np.float64, copy=False
            )
            # Not `transform`, whose bits are the same in any batch and cost dozens of rows where there is one.
            Phi = solve_triangular(self.features_.factor_, values.T, lower=True, check_finite=False).T
            own = np.asarray(self.features_.kernel_.diag(part), dtype=np.float64)
            out[rows] = variances(Phi, np.maximum(own - np.einsum("ij,ij->i", Phi, Phi), 0.0))
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
