"""Support vector regression: errors below epsilon cost nothing, larger ones linearly.

    maximise    sum_i y_i beta_i - epsilon sum_i |beta_i| - sum_ij beta_i beta_j K(x_i, x_j) / 2
    subject to  |beta_i| <= C_i,  sum_i beta_i = 0

It is the dual problem of the classifiers with another linear term and a price `epsilon` on every multiplier.

Reference: Smola and Schölkopf (2004), A tutorial on support vector regression.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from gramless._runtime.device import Device
from gramless._runtime.validation import all_or_nothing, check_choice, check_outputs, check_weights
from gramless.dual.box_qp import BoxQP
from gramless.dual.problems import (
    DUAL_SOLVERS,
    Machine,
    machine_scores,
    make_solver,
    maximise_together,
    warn_unless_converged,
)
from gramless.dual.watch import Watch
from gramless.kernels import Kernel
from gramless.models.expansion import kernel_from_settings, set_input_tags
from gramless.models.support_machine import (
    bounds,
    check_dual_settings,
    check_machine_device,
    check_solutions,
    functions_to_call,
    iteration_cap,
    keep_machine,
    kept_machine,
    primal_coef,
    resources_for,
    rows_to_compute_with,
    scoring_pair,
    training_points,
)
from gramless.operators import byte_rows


class KernelSVR(RegressorMixin, BaseEstimator):
    """Epsilon-insensitive support vector regression for any kernel of the library.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        A name ("rbf", "poly", "linear", "sigmoid", "precomputed", ...), a kernel or sum or product of kernels, or a
        function `f(X, Y) -> matrix`. A function also sees sparse rows, and sequences of objects such as texts, as they are.
    C : float, default=1.0
        Upper bound of the multipliers: larger fits the training data more closely, infinity forbids errors beyond the tube.
    gamma : float, "scale" or "auto", default="scale"
        Width of a kernel given by name: `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of `kernel="poly"`.
    coef0 : float, default=0.0
        Constant of `kernel="poly"` and `"sigmoid"`.
    epsilon : float, default=0.1
        Half width of the tube in which errors cost nothing, in units of `y`.
    solver : {"smo", "simple_smo"}, default="smo"
        Large working sets on cached kernel rows, or the textbook algorithm (small data only).
    tol : float, default=1e-3
        Largest violation of the optimality conditions.
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
        Where to compute; None means the CPU. On a graphics card all problems run at once, and `memory_budget` is of its
        memory; kernel functions and `solver="simple_smo"` run on the CPU only.
    callback : callable(estimator, record) -> bool, or list of them, optional
        Called between rounds of the solver with a record of `n_iter` (pairs of multipliers moved so far), `violation`,
        `solved`, `n_problems` and `seconds`. A true answer ends the fit with the multipliers of that moment.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws the first working set.

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
        The bias.
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
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where `X` had names.

    See Also
    --------
    KernelSVC : The same for classification.
    LSSVR : Squared errors instead of the tube: every point is a support vector.

    References
    ----------
    .. [1] A. J. Smola and B. Schölkopf, "A tutorial on support vector regression", Statistics and Computing, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelSVR
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = KernelSVR(C=10.0, gamma=0.5, epsilon=0.01).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.02)
    True
    """

    n_features_in_: int
    support_vectors_: Any
    device_: str

    def __init__(
        self,
        kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
        *,
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        epsilon: float = 0.1,
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
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.epsilon = epsilon
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

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelSVR:
        """Fit to points and values.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training points; with a precomputed kernel, the square matrix of kernel values.
        y : array-like of shape (n_samples,)
            Their values.
        sample_weight : array-like of shape (n_samples,), optional
            Multiplies `C` sample by sample.

        Returns
        -------
        KernelSVR
            This estimator, fitted.
        """
        self._check_settings()
        kernel = kernel_from_settings(self)
        self.device_ = check_machine_device(self, kernel)
        X, self.kernel_ = training_points(self, X, kernel, sample_weight)
        n = X.shape[0]
        y = column_or_1d(check_outputs(y, n), warn=True)
        weights = check_weights(sample_weight, X)
        C = bounds(self.C, np.ones(n) if weights is None else weights)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        points = rows_to_compute_with(X)
        resources = resources_for(self, self.kernel_, points, seed)

        if self.device_ == "cpu":
            points = byte_rows(self.kernel_, points, n // 2)
        problem = BoxQP.regression(y, C, self.epsilon)
        solver = make_solver(self.solver, self.tol, iteration_cap(self))
        with Watch(callback=functions_to_call(self), verbose=self.verbose, label=type(self).__name__) as watch:
            [solution] = maximise_together([problem], [[slice(0, n)]], self.kernel_, points, solver, resources, watch)
        check_solutions([solution])
        if not watch.by_callback:
            warn_unless_converged([solution], self.tol)
        beta = solution.beta
        support = np.flatnonzero(beta)
        keep_machine(
            self, X, Machine(support, np.array([support.size]), beta[None, support], np.array([solution.bias]), [solution])
        )
        self.fit_status_ = int(not solution.converged)
        self.dual_objective_ = solution.objective
        self.kkt_violation_ = solution.violation
        self.n_iter_ = solution.n_iter
        return self

    @property
    def coef_(self) -> Any:
        """Weights of the features; with a linear kernel only."""
        return primal_coef(self)

    def predict(self, X: Any) -> np.ndarray:
        """Predicted values.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Points; with a precomputed kernel, their kernel values with all training points.

        Returns
        -------
        ndarray of shape (n,)
            A value for each row.
        """
        columns, vectors = scoring_pair(self, X)
        return machine_scores(self.kernel_, columns, vectors, kept_machine(self))[:, 0]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_moved"}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)

    def _check_settings(self) -> None:
        check_dual_settings(self)
        check_choice("solver", self.solver, DUAL_SOLVERS)
        if not isinstance(self.epsilon, Real) or not 0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon must be a finite number of at least 0, got {self.epsilon!r}")
