"""Support vector regression: errors below epsilon cost nothing, larger ones linearly.

    maximise    sum_i y_i beta_i - epsilon sum_i |beta_i| - sum_ij beta_i beta_j K(x_i, x_j) / 2
    subject to  |beta_i| <= C_i,  sum_i beta_i = 0

It is the dual problem of the classifiers with another linear term and a price `epsilon` on every multiplier. Other losses
are other boxes:

    pinball     -(1 - quantile) C_i <= beta_i <= quantile C_i,  epsilon = 0
    huber       |beta_i| <= epsilon C_i,  no price, and 1 / C_i is added to K(x_i, x_i)

Several quantiles are several problems that share their kernel rows. Each is fitted on its own, and the values predicted for
a row are put in the order of the quantiles: curves that cross nowhere, and never farther from the true ones.

Reference: Smola and Schölkopf (2004), A tutorial on support vector regression; Takeuchi, Le, Sears and Smola (2006),
Nonparametric quantile estimation; Chernozhukov, Fernández-Val and Galichon (2010), Quantile and probability curves without
crossing; Mangasarian and Musicant (2000), Robust linear and support vector regression.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import d2_pinball_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.validation import atomic_fit, check_choice, check_outputs, check_weights
from gramless.kernels import Kernel
from gramless.linalg.operators import byte_rows
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings, set_input_tags
from gramless.models.support_machine import (
    bounds,
    check_dual_settings,
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
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows
from gramless.svm.nu_qp import NuQP, without_a_tube
from gramless.svm.problems import (
    DUAL_SOLVERS,
    Machine,
    Resources,
    machine_scores,
    make_solver,
    maximise_together,
    warn_unless_converged,
)
from gramless.svm.ridged_rows import RidgedRows
from gramless.svm.watch import Watch

LOSSES = ("epsilon_insensitive", "pinball", "huber")


@link_documentation
class KernelSVR(RegressorMixin, BaseEstimator):
    """Support vector regression for any kernel of the library: values, quantiles, or values that outliers do not move.

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
        Half width of the tube in which errors cost nothing, in units of `y`; with `loss="huber"`, the size above which an
        error costs linearly instead of by its square.
    nu : float or None, default=None
        A number in (0, 1] that stands in place of `epsilon`: the tube is made so wide that at most this share of the rows
        lie outside it, and at least this share are support vectors.
    loss : {"epsilon_insensitive", "pinball", "huber"}, default="epsilon_insensitive"
        What an error costs. "pinball" gives quantiles instead of values.
    quantile : float or list of float, default=0.5
        With `loss="pinball"`, the share of values that should lie below the prediction. With a list, `predict` gives a
        column for each, and they never cross.
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
    dual_coef_ : array of shape (n_quantiles, n_SV)
        Their coefficients, in one row where one value is predicted. Sparse after a fit to sparse rows.
    coef_ : array of shape (n_quantiles, n_features)
        Weights of the features, read-only; with a linear kernel only. Sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_quantiles,)
        The bias.
    epsilon_ : float
        Half width of the tube: `epsilon`, or what `nu` made of it; 0 with the other losses.
    kernel_ : Kernel
        With every setting a number.
    device_ : str
        Where the machine was computed, and predicts.
    dual_objective_ : float or ndarray of shape (n_quantiles,)
        The value of the dual problem; of each, with a list of quantiles.
    kkt_violation_ : float or ndarray of shape (n_quantiles,)
        What `tol` bounds, as reached.
    n_iter_ : int or ndarray of shape (n_quantiles,)
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
    KernelSVC : The same for classification.
    KernelOneClassSVM : The same for one class: which rows are unlike the others.
    LSSVR : Squared errors instead of the tube: every point is a support vector.

    References
    ----------
    .. [1] A. J. Smola and B. Schölkopf, "A tutorial on support vector regression", Statistics and Computing, 2004.
    .. [2] B. Schölkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, "New support vector algorithms", Neural
           Computation, 2000.
    .. [3] I. Takeuchi, Q. V. Le, T. D. Sears and A. J. Smola, "Nonparametric quantile estimation", Journal of Machine
           Learning Research, 2006.
    .. [4] V. Chernozhukov, I. Fernández-Val and A. Galichon, "Quantile and probability curves without crossing",
           Econometrica, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelSVR
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = KernelSVR(C=10.0, gamma=0.5, epsilon=0.01).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.02)
    True
    >>> noisy = np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=80)
    >>> low, middle, high = KernelSVR(loss="pinball", quantile=[0.1, 0.5, 0.9]).fit(X, noisy).predict([[1.5]])[0]
    >>> bool(low < middle < high)
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
        nu: float | None = None,
        loss: str = "epsilon_insensitive",
        quantile: float | list[float] = 0.5,
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
        self.nu = nu
        self.loss = loss
        self.quantile = quantile
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
        self.device_ = check_machine_device(self, kernel, "nu", *(["loss"] if self.loss == "huber" else []))
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
        problems = self._problems(y, C)
        solver = make_solver(self.solver, self.tol, iteration_cap(self))
        name, calls = type(self).__name__, functions_to_call(self)
        with Watch(len(problems), callback=calls, verbose=self.verbose, label=name) as watch:
            if self.nu is None and self.loss != "huber":
                parts: list[list[Any]] = [[slice(0, n)]] * len(problems)
                solutions = maximise_together(problems, parts, self.kernel_, points, solver, resources, watch)
            else:
                solutions = self._maximise(problems[0], points, C, solver, resources, watch)
        check_solutions(solutions)
        if not watch.by_callback:
            warn_unless_converged(solutions, self.tol)
        beta, bias = np.stack([solution.beta for solution in solutions]), np.array([solution.bias for solution in solutions])
        support = np.flatnonzero(beta.any(axis=0))
        keep_machine(self, X, Machine(support, np.array([support.size]), beta[:, support], bias, solutions))
        self.epsilon_ = max(0.0, float(solutions[0].price))
        self.fit_status_ = int(not all(solution.converged for solution in solutions))
        self.dual_objective_ = self._for_each([solution.objective for solution in solutions])
        self.kkt_violation_ = self._for_each([solution.violation for solution in solutions])
        self.n_iter_ = self._for_each([solution.n_iter for solution in solutions])
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
        ndarray of shape (n,), or (n, n_quantiles) where `quantile` is a list
            A value for each row, or a row of values that are in the order of the quantiles.
        """
        columns, vectors = scoring_pair(self, X)
        scores = machine_scores(self.kernel_, columns, vectors, kept_machine(self))
        if not self._gives_columns:
            return scores[:, 0]
        ordered = np.empty_like(scores)
        ordered[:, np.argsort(self.quantile, kind="stable")] = np.sort(scores, axis=1)
        return ordered

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """How much of the spread of the values is explained.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            As in `predict`.
        y : array-like of shape (n,)
            The true values.
        sample_weight : array-like of shape (n,), optional
            What each row counts.

        Returns
        -------
        float
            R²; where `quantile` is a list, the mean over the quantiles of the share of the pinball loss that is explained.
        """
        if not self._gives_columns:
            return super().score(X, y, sample_weight)
        columns = zip(self.predict(X).T, np.asarray(self.quantile), strict=True)
        explained = [d2_pinball_score(y, column, sample_weight=sample_weight, alpha=q) for column, q in columns]
        return float(np.mean(explained))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_moved"}

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

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)

    @property
    def _gives_columns(self) -> bool:
        """Whether `predict` gives a row of values for each row."""
        return self.loss == "pinball" and not isinstance(self.quantile, Real)

    def _for_each(self, values: list[Any]) -> Any:
        """One number, or an array of one for each quantile."""
        return np.array(values) if self._gives_columns else values[0]

    def _problems(self, y: np.ndarray, C: np.ndarray) -> list[BoxQP]:
        if self.loss == "pinball":
            linear = y.astype(np.float64)
            return [BoxQP(linear, -(1 - q) * C, q * C) for q in np.atleast_1d(self.quantile)]
        if self.loss == "huber":
            return [BoxQP.regression(y, self.epsilon * C, 0.0)]
        return [BoxQP.regression(y, C, self.epsilon) if self.nu is None else NuQP.of_values(y, C, self.nu)]

    def _maximise(
        self, problem: BoxQP, points: Any, C: np.ndarray, solver: Any, resources: Resources, watch: Watch
    ) -> list[DualSolution]:
        """Solve a problem with a ridge on its diagonal, or with `nu`; on the CPU."""
        n, rng = len(C), np.random.default_rng(resources.seed)
        rows: Any = GramRows(self.kernel_, points, [slice(0, n)], budget=resources.budget, workers=resources.workers)
        if self.loss == "huber":
            rows = RidgedRows(rows, np.divide(1.0, C, out=np.zeros(n), where=C > 0))
        solutions = solver.maximise([problem], rows, rng, watch)
        narrower = without_a_tube(problem, solutions[0])
        if narrower is not None and not watch.stopped:
            solutions = solver.maximise([narrower], rows, rng, watch)
        return solutions

    def _check_settings(self) -> None:
        check_dual_settings(self)
        check_choice("solver", self.solver, DUAL_SOLVERS)
        check_choice("loss", self.loss, LOSSES)
        if not isinstance(self.epsilon, Real) or not 0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon must be a finite number of at least 0, got {self.epsilon!r}")
        if self.loss == "huber" and self.epsilon == 0:
            raise ValueError("epsilon must be above 0 with loss='huber': it is the size from which errors cost linearly")
        if self.loss == "pinball":
            values = [self.quantile] if isinstance(self.quantile, Real) else np.asarray(self.quantile, dtype=object).tolist()
            if not isinstance(values, list) or not values or not all(isinstance(q, Real) and 0 < q < 1 for q in values):
                raise ValueError(f"quantile must be a number between 0 and 1 or a list of them, got {self.quantile!r}")
        if self.nu is not None:
            check_nu(self.nu, self.solver)
            if self.loss != "epsilon_insensitive":
                raise ValueError(f"nu is the width of a tube, and loss={self.loss!r} has none")
            if not np.isfinite(self.C):
                raise ValueError("nu is a share of C, which must then be finite")
