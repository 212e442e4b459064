"""One-class support vector machine: detection of rows that differ from the training rows.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is an outlier if `sum_j alpha_j K(x_j, x) < rho`. At most a fraction `nu` of the training rows are outliers, and at
least that fraction are support vectors. The cost is that of the kernel values between all rows and the support vectors,
O(nu n^2 d), which are computed once and not stored (`gramless.svm.one_class_dual`).

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001), Estimating the support of a high-dimensional
distribution.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import OutlierMixin

from gramless._core import arrays as xa
from gramless._core.constraints import FRACTION, estimator
from gramless.linalg.operators import expand
from gramless.models.kernel_svm import BaseKernelSVM
from gramless.svm.multiclass import SupportVectorModel
from gramless.svm.one_class_dual import solve_one_class
from gramless.svm.resources import DualFit


@estimator
class KernelOneClassSVM(OutlierMixin, BaseKernelSVM):
    """One-class support vector machine for any kernel of the library: outlier and novelty detection without labels.

    Prefer it to `sklearn.svm.OneClassSVM` for more than a few thousand rows, for kernels that scikit-learn computes in
    Python, or on a graphics card.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    nu : float, default=0.5
        Fraction in (0, 1] that replaces a penalty parameter. At most this fraction of the training rows are outliers, and at
        least this fraction are support vectors.
    solver : {"smo", "simple_smo"}, default="smo"
        Algorithm that solves the optimisation problem. `"smo"` optimises large working sets on cached kernel rows;
        `"simple_smo"` moves one pair of multipliers at a time, for small data.
    tol : float, default=1e-3
        Tolerance at which the solver stops. The Notes define the quantity that it bounds.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    shrinking : bool, default=True
        Accepted for compatibility with scikit-learn and ignored; the solver decides by itself.
    cache_size : float or None, default=None
        Size of the kernel cache in megabytes, used if `memory_budget` is None.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The Notes describe when it is called.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors.
    support_vectors_ : array of shape (n_SV, n_features)
        The support vectors; an empty array for a precomputed kernel.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    dual_coef_ : array of shape (1, n_SV)
        Coefficients of the support vectors. Sparse after a fit to sparse rows.
    coef_ : array of shape (1, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (1,)
        Minus `offset_`.
    offset_ : float
        Smallest value of `score_samples` at which a row is an inlier.
    kernel_ : Kernel
        The kernel with numeric settings.
    device_ : str
        Device of the fit and of predictions.
    dual_objective_ : float
        Objective value of the dual problem.
    kkt_violation_ : float
        Violation of the optimality conditions that the solver reached.
    n_iter_ : int
        Number of pairs of multipliers moved.
    fit_status_ : int
        0 if every problem converged, else 1.
    shape_fit_ : tuple
        Shape of `X` in `fit`.
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if `X` had column names.

    See Also
    --------
    KernelSVC : Support vector classification.
    KernelSVR : Support vector regression.

    Notes
    -----
    A kernel function also accepts sparse rows and sequences of objects such as texts. Kernel functions and
    `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved`, `n_problems` and `seconds`.

    References
    ----------
    .. [1] B. Schölkopf, J. C. Platt, J. Shawe-Taylor, A. J. Smola and R. C. Williamson, "Estimating the support of a
           high-dimensional distribution", Neural Computation, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> KernelOneClassSVM(nu=0.05).fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {**BaseKernelSVM._parameter_constraints, "nu": [FRACTION]}

    # The one-class problem has no penalty parameter.
    C: ClassVar[Any] = None  # type: ignore[misc]
    nu: float = 0.5

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the similarity of each row to the training rows, before the offset is subtracted.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            Scores; larger is more similar.
        """
        columns, vectors = self._scoring_inputs(X)
        coef = xa.like(np.ascontiguousarray(self._model.dual_coef.T), columns)
        return xa.to_numpy(expand(self.kernel_, columns, vectors, coef))[:, 0].astype(np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each row minus the offset.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            Scores; negative for outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return which rows are outliers.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            1 for inliers, -1 for outliers.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _check_settings(self) -> None:
        pass

    def _cpu_only(self) -> dict[str, Any]:
        return {}

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(0), np.ones(n) if weights is None else weights

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        solution = solve_one_class(fit, weights, self.nu)
        self.offset_ = -solution.bias
        return SupportVectorModel.of_solutions([solution])
