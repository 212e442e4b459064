"""One-class support vector machine: which rows are unlike the others.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is an outlier where `sum_j alpha_j K(x_j, x) < rho`. At most a share `nu` of the training rows are outliers, and at
least that share are support vectors. The cost is the kernel values between all rows and the support vectors, O(nu n^2 d),
computed once and not kept; see `gramless.svm.one_class`.

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001), Estimating the support of a high-dimensional
distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.validation import atomic_fit, check_choice, check_weights
from gramless.kernels import Kernel
from gramless.linalg.operators import expand
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings, set_input_tags
from gramless.models.support_machine import (
    check_limits,
    check_machine_device,
    check_nu,
    check_solutions,
    functions_to_call,
    iteration_cap,
    keep_machine,
    kept_machine,
    plan_machine,
    primal_coef,
    resources_for,
    rows_to_compute_with,
    scoring_pair,
    training_points,
)
from gramless.svm.one_class import solve_one_class
from gramless.svm.problems import DUAL_SOLVERS, Machine, make_solver, warn_unless_converged
from gramless.svm.watch import Watch


@link_documentation
class KernelOneClassSVM(OutlierMixin, BaseEstimator):
    """One-class support vector machine for any kernel of the library: novelty and outliers, without labels.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        A name ("rbf", "poly", "linear", "sigmoid", "precomputed", ...), a kernel or sum or product of kernels, or a
        function `f(X, Y) -> matrix`. A function also sees sparse rows, and sequences of objects such as texts, as they are.
    gamma : float, "scale" or "auto", default="scale"
        Width of a kernel given by name: `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of `kernel="poly"`.
    coef0 : float, default=0.0
        Constant of `kernel="poly"` and `"sigmoid"`.
    nu : float, default=0.5
        A number in (0, 1]: the largest share of training rows that are outliers, and the smallest share that are support
        vectors.
    solver : {"smo", "simple_smo"}, default="smo"
        Large working sets on cached kernel rows, or the textbook algorithm (small data only).
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of `decision_function`.
    max_iter : int or None, default=None
        Cap on the pairs of multipliers moved, by default (None or -1) ten million; reaching it warns.
    shrinking : bool, default=True
        Taken for the sake of code written for scikit-learn: the solver sets settled multipliers aside where that pays, and
        the machine is the same.
    cache_size : float or None, default=None
        Megabytes of kernel rows to keep, where `memory_budget` is None.
    memory_budget : str, float or None, default=None
        Memory for kernel rows: "4GB", bytes, or a fraction of what is free; 70 % of that by default.
    dtype : {"float32", "float64", None}, default=None
        Precision of kernel values; by default that of the data.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None means the CPU. On a graphics card `memory_budget` is of its memory; kernel functions and
        `solver="simple_smo"` run on the CPU only.
    callback : callable(estimator, record) -> bool, or list of them, optional
        Called between rounds of the solver with a record of `n_iter` (pairs of multipliers moved so far), `violation`,
        `solved`, `n_problems` and `seconds`. A true answer ends the fit with the multipliers of that moment.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws the rows that a large fit starts with.

    Attributes
    ----------
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors.
    support_vectors_ : array of shape (n_SV, n_features)
        With a precomputed kernel, an empty array.
    n_support_ : ndarray of shape (1,)
        How many there are.
    dual_coef_ : array of shape (1, n_SV)
        Their coefficients. Sparse after a fit to sparse rows.
    coef_ : array of shape (1, n_features)
        Weights of the features, read-only; with a linear kernel only. Sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (1,)
        Minus `offset_`.
    offset_ : float
        What `score_samples` must reach for a row to be inside.
    kernel_ : Kernel
        With every setting a number.
    device_ : str
        Where the machine was computed, and predicts.
    dual_objective_ : float
        The value of the dual problem.
    kkt_violation_ : float
        What `tol` bounds, as reached.
    n_iter_ : int
        Pairs of multipliers moved.
    fit_status_ : int
        0 where the solver converged, 1 where it did not.
    shape_fit_ : tuple
        Shape of `X` at fit.
    n_features_in_ : int
        Columns of `X` at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

    See Also
    --------
    KernelSVC : The same for classes.
    KernelSVR : The same for values.

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

    n_features_in_: int
    support_vectors_: Any
    device_: str

    def __init__(
        self,
        kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        nu: float = 0.5,
        solver: str = "smo",
        tol: float = 1e-3,
        max_iter: int | None = None,
        shrinking: bool = True,
        cache_size: float | None = None,
        memory_budget: str | float | None = None,
        dtype: str | None = None,
        device: Device = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.nu = nu
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.memory_budget = memory_budget
        self.dtype = dtype
        self.device = device
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelOneClassSVM:
        """Fit to points.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training points; with a precomputed kernel, the square matrix of kernel values.
        y : None
            Not used: here for the sake of pipelines.
        sample_weight : array-like of shape (n_samples,), optional
            The upper bound of each multiplier: a weight of 2 counts as two rows.

        Returns
        -------
        KernelOneClassSVM
            This estimator, fitted.
        """
        check_limits(self)
        check_choice("solver", self.solver, DUAL_SOLVERS)
        check_nu(self.nu)
        kernel = kernel_from_settings(self)
        self.device_ = check_machine_device(self, kernel)
        X, self.kernel_ = training_points(self, X, kernel, sample_weight)
        given = check_weights(sample_weight, X)
        weights = np.ones(X.shape[0]) if given is None else given
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        points = rows_to_compute_with(X)
        resources = resources_for(self, self.kernel_, points, seed)

        solver = make_solver(self.solver, self.tol, iteration_cap(self))
        with Watch(callback=functions_to_call(self), verbose=self.verbose, label=type(self).__name__) as watch:
            solution = solve_one_class(self.kernel_, points, weights, self.nu, solver, resources, watch)
        check_solutions([solution])
        if not watch.by_callback:
            warn_unless_converged([solution], self.tol)
        support = np.flatnonzero(solution.beta)
        beta, bias = solution.beta[None, support], np.array([solution.bias])
        keep_machine(self, X, Machine(support, np.array([support.size]), beta, bias, [solution]))
        self.offset_ = -solution.bias
        self.fit_status_ = int(not solution.converged)
        self.dual_objective_ = solution.objective
        self.kkt_violation_ = solution.violation
        self.n_iter_ = solution.n_iter
        return self

    @property
    def coef_(self) -> Any:
        """Weights of the features; with a linear kernel only."""
        return primal_coef(self)

    def score_samples(self, X: Any) -> np.ndarray:
        """How like the training rows each row is, before the offset.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Points; with a precomputed kernel, their kernel values with all training points.

        Returns
        -------
        ndarray of shape (n,)
            Larger is more like them.
        """
        columns, vectors = scoring_pair(self, X)
        coef = xa.like(np.ascontiguousarray(kept_machine(self).dual_coef.T), columns)
        return xa.to_numpy(expand(self.kernel_, columns, vectors, coef))[:, 0].astype(np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        """How far inside each row is.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            As in `score_samples`.

        Returns
        -------
        ndarray of shape (n,)
            Negative for outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Whether each row is inside.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            As in `score_samples`.

        Returns
        -------
        ndarray of shape (n,)
            1 inside, -1 for outliers.
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
        return plan_machine(self, n, d, dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_moved"}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)
