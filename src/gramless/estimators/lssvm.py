"""Least-squares support vector machines for classification and regression.

    min_f  1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i) - b)^2

The solution is one linear system with one unknown for each row, shared by all classes or outputs. An exact solution costs
O(n^3) time and the memory of n^2 numbers; conjugate gradients with kernel values computed on demand cost O(n^2 d) time for
each iteration and a few megabytes of memory. `fit` validates the rows, encodes the targets (classes as -1 and +1 or as
indicator columns, values standardised), solves the system (`gramless.linalg.least_squares`) and stores the model.

References: Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999; Suykens et al., "Weighted least
squares support vector machines", 2002, for weights.
"""

from __future__ import annotations

from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import CLASS_WEIGHT, COMPUTE, KERNEL, POSITIVE, POSITIVE_INTEGER
from gramless._core.dask_dispatch import dispatch_fit, dispatch_prediction
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.memory import parse_budget
from gramless._core.targets.columns import Standardised, class_targets, scores_to_labels
from gramless._core.validation import (
    atomic_fit,
    check_indicator,
    check_labels,
    check_outputs,
    check_weights,
    is_indicator,
)
from gramless.callbacks import read_callbacks
from gramless.estimators.expansion import (
    BaseKernelExpansion,
    LeastSquaresClassifier,
    LeastSquaresRegressor,
    check_kernel_input,
)
from gramless.inference.leave_one_out import leave_one_out_on_demand, leave_one_out_scores
from gramless.inference.probabilities import (
    LEAVE_ONE_OUT_METHODS,
    METHODS,
    calibrate,
    has_probabilities,
    label_probabilities,
    probability_constraint,
)
from gramless.kernels import Kernel
from gramless.linalg.least_squares import ExpansionFit, LeastSquaresSettings, fit_expansion
from gramless.linalg.planning.plan import SolverPlan
from gramless.linalg.solvers import SOLVERS, Solver

_CONSTRAINTS: dict[str, Any] = {
    **KERNEL,
    **COMPUTE,
    "gamma": [Interval(Real, 0, None, closed="left"), StrOptions({"scale", "auto", "weighted_scale"})],
    "C": [POSITIVE],
    "solver": [StrOptions({"auto", *SOLVERS}), Solver],
    "tol": [POSITIVE, StrOptions({"auto"})],
    "max_iter": [POSITIVE_INTEGER, Options(Integral, {-1}), None],
    "warm_start": ["boolean"],
}


class _LeastSquares(BaseKernelExpansion):
    """Base class of `LSSVC` and `LSSVR`: the part of the fit from the target columns to the stored model."""

    C: float
    solver: str | Solver
    tol: float | str
    max_iter: int | None
    warm_start: bool
    device: Device
    memory_budget: str | float | None
    callback: Any
    verbose: int
    random_state: Any

    def _settings(self) -> LeastSquaresSettings:
        """Return the settings of the linear system and of its solver."""
        return LeastSquaresSettings(
            estimator_name=type(self).__name__,
            C=self.C,
            solver=self.solver,
            tol=self.tol,
            auto_tol=self._tuning.label_tol if isinstance(self, LeastSquaresClassifier) else self._tuning.value_tol,
            max_iter=self.max_iter,
            fit_intercept=getattr(self, "fit_intercept", True),
            device=self.device,
            memory_budget=self.memory_budget,
            verbose=self.verbose,
            random_state=self.random_state,
            callbacks=read_callbacks(self.callback),
            leave_one_out=getattr(self, "probability", False) in LEAVE_ONE_OUT_METHODS,
            tuning=self._tuning,
        )

    def _resolve_kernel(self, X: Array, weights: np.ndarray | None) -> Kernel:
        kernel = self._kernel()
        check_kernel_input(X, kernel)
        return kernel.resolve(X, weights)

    def _solve(self, X: Array, Z: np.ndarray, weights: np.ndarray | None, kernel: Kernel, **options: Any) -> ExpansionFit:
        """Solve for the targets `Z` and store the model; callbacks get this estimator with the solution so far."""
        settings = self._settings()

        def report(fit: ExpansionFit, record: dict[str, Any]) -> bool:
            self._store(fit)
            return settings.callbacks(self, record)

        start = vars(self).get("_solution") if self.warm_start else None
        fit = fit_expansion(X, Z, weights, kernel, settings, start=start, callback=report, **options)
        self._store(fit)
        return fit

    def _store(self, fit: ExpansionFit) -> None:
        self._set_points(fit.kernel, fit.points, fit.device_points, fit.support)
        self.dual_coef_, self.intercept_, self.device_ = fit.coef, fit.intercept, fit.device
        self.solver_, self.solver_reason_ = fit.solver, fit.plan.reason
        if fit.result is not None:
            self.history_, self.n_iter_, self.residual_ = fit.result.history, fit.result.n_iter, fit.result.residual
            if self.warm_start:
                self._solution = xa.to_numpy(fit.result.W)

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> SolverPlan:
        """Return the solver and the memory of a fit of the given size.

        Parameters
        ----------
        n, d, n_outputs : int
            Number of rows, of features, and of target columns.
        dtype : dtype
            Floating-point precision of the data.
        device : str
            Device of the computation.

        Returns
        -------
        SolverPlan
            With `solver`, `reason` and `memory`; a `MemoryError` is raised if no solver fits the memory budget.
        """
        return self._settings().plan(self._kernel(), (n, d), n_outputs, dtype, device)


@link_documentation
class LSSVC(LeastSquaresClassifier, _LeastSquares):
    """Least-squares support vector classifier.

    Prefer it to `sklearn.svm.SVC` if there are many classes, which share one linear system, if calibrated probabilities are
    needed, or if the kernel matrix does not fit the memory; prefer SVC if a model with few support vectors is needed.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    solver : str or Solver, default="auto"
        Algorithm that solves the optimisation problem. `"cholesky"` is exact; `"cg"` is block conjugate gradients with a
        Nyström preconditioner; `"sketch_project"` reaches a loose `tol` before `"cg"` on very large streamed data; the
        randomised `"matching_pursuit"`, `"kaczmarz"`, `"kaczmarz_mp"` and `"nystrom_committee"` read one block of rows at a
        time. `"auto"` chooses from the sizes, `tol`, the memory and the device; see `solver_`. An object of
        `gramless.linalg.solvers` has its own settings, for instance `CG(n_landmarks=2000)`.
    tol : float or "auto", default="auto"
        Tolerance at which the solver stops. It is the relative residual `||Z - A W|| / ||Z||` of a solver given by name; a
        solver object has its own. `"auto"` stops conjugate gradients when the residual norm, an upper bound on the error of
        the training scores, is below 5 % of the training error for every output, or relative to the targets below 5e-3 for
        classes and 1e-3 for values; for other solvers it is 1e-3.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"auto", "softmax", "sigmoid", "temperature", False}, default="auto"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"softmax"` is
        the softmax of the scores, `"sigmoid"` Platt's sigmoid of each score, normalised, and `"temperature"` the softmax of
        the scores divided by a temperature. Sigmoids and temperature are fitted to closed-form leave-one-out scores, without
        a refit; `predict_set` needs them. The Notes describe `"auto"`.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of the output of `decision_function`: one column per class (`"ovr"`) or per pair of classes (`"ovo"`). The
        Notes describe exceptions.
    warm_start : bool, default=False
        Whether to start from the coefficients of the previous fit if the shapes agree.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. It is called after each iteration of the solver. `gramless.callbacks` has checkpoints
        and early stopping on held-out rows.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Class labels; for an indicator matrix, the numbers of its columns.
    multilabel_ : bool
        Whether `y` was an indicator matrix, so that each row may have several labels or none.
    sigmoids_ : ndarray of shape (n_outputs, 2)
        Slope and offset of each sigmoid, with `probability="sigmoid"`.
    temperature_ : float, or ndarray of shape (n_labels,) for an indicator matrix
        Temperature, with `probability="temperature"` or `"auto"`.
    calibration_scores_ : ndarray of shape (m,)
        Adaptive score of the true class of each training row, by the model without the row; see `predict_set`.
    calibration_codes_ : ndarray of int of shape (m,)
        Classes of these rows, as positions in `classes_`.
    kernel_ : Kernel
        The kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points: one column for two classes, else one for each class.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    solver_ : str
        Name of the solver that was used.
    solver_reason_ : str
        Why this solver was chosen, and whether the kernel matrix was cached.
    history_ : list of dict
        One record for each iteration: `n_iter`, `seconds` (without callbacks), `residual`, and values added by callbacks.
    n_iter_ : int
        Number of iterations.
    residual_ : float
        Relative residual at the end of the solve.

    See Also
    --------
    LSSVR : The regressor.
    LSSVCCV : Selects C and the kernel by closed-form leave-one-out.
    NystromLSSVC : The same model on landmarks, in one pass over the data.

    Notes
    -----
    The ridge on the diagonal of the kernel matrix is `1 / (C w)` for a row of weight `w`, so weight 2 equals two copies.

    `max_iter` applies to a solver given by name, and counts the iterations of that solver or the members of
    `"nystrom_committee"`; None and -1 are the solver's default.

    `probability="auto"` is `"temperature"`, fitted at the first request, for models of up to 10,000 points, and `"softmax"`
    for larger ones, for kernels that are precomputed or functions, and for models from a cluster. With
    `decision_function_shape="ovo"`, columns of pairs are differences of scores, in the order and with the signs of
    `sklearn.svm.SVC`; the parameter is ignored for two classes.

    References
    ----------
    Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> LSSVC(C=10.0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    _parameter_constraints = {
        **_CONSTRAINTS,
        **CLASS_WEIGHT,
        "probability": probability_constraint(*METHODS),
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
    }
    multilabel_: bool = False

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float | str = "auto",
        max_iter: int | None = None,
        class_weight: Any = None,
        probability: str | bool = "auto",
        decision_function_shape: str = "ovr",
        warm_start: bool = False,
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.probability = probability
        self.decision_function_shape = decision_function_shape
        self.warm_start = warm_start
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
        """Fit the model to labels.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,), or indicator matrix of shape (n_samples, n_labels)
            Labels. A dense or sparse matrix of zeros and ones has one column for each of several labels; all columns are
            solved for together.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._validate_params()
        X = self._check_rows(X)
        self.multilabel_ = is_indicator(y)
        if self.multilabel_:
            codes = check_indicator(y, X.shape[0], self.class_weight)
            self.classes_, weights = np.arange(codes.shape[1]), check_weights(sample_weight, X)
        else:
            self.classes_, codes = check_labels(y, X.shape[0])
            weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
            check_two_classes(codes, weights)
        Z = self._targets(codes)
        kernel = self._resolve_kernel(X, weights)
        for name in ("sigmoids_", "_calibration", "_codes", "_weights"):
            self.__dict__.pop(name, None)  # a callback must not combine the calibration of an earlier fit with new scores
        classes, error = (None, _label_error) if self.multilabel_ else (codes, _class_error)
        fit = self._solve(X, Z, weights, kernel, validation_error=error, classes=classes)
        rows = fit.support
        self._codes = codes[rows].astype(np.min_scalar_type(len(self.classes_)), copy=False)
        self._weights = None if weights is None else weights[rows]
        self._calibration: dict[str, Any] = {}  # computed below, or at the first request of probabilities
        if self.probability in LEAVE_ONE_OUT_METHODS:
            rng = self._settings().generator(X, Z)
            scores = leave_one_out_scores(fit.op, Z[rows], fit.coef, fit.plan.probes, random_state=rng)
            self._calibrate(scores, rng)
        return self

    def _targets(self, codes: np.ndarray) -> np.ndarray:
        return np.where(codes, 1.0, -1.0) if self.multilabel_ else class_targets(codes, len(self.classes_))

    def _calibrate(self, scores: np.ndarray, rng: np.random.RandomState) -> None:
        """Fit sigmoids or a temperature to leave-one-out scores, and store the calibration scores of `predict_set`."""
        found = calibrate(scores, self._codes, len(self.classes_), self.probability, self._weights, rng)
        if found.sigmoids is not None:
            self.sigmoids_ = found.sigmoids
        else:
            self._calibration["temperature"] = found.temperature
        if found.true_scores is not None:
            self._calibration["scores"] = found.true_scores

    def _calibrated(self) -> dict[str, Any]:
        """Return the calibration; `probability="auto"` computes it here if it costs no more than the fit."""
        check_is_fitted(self)
        found: dict[str, Any] = vars(self).get("_calibration", {})
        if self.probability == "auto" and "_calibration" in vars(self) and not found:
            budget = parse_budget(self.memory_budget, self.device_)
            model = self.kernel_, self.points_, self.dual_coef_, self._targets(self._codes), self.C, self._weights
            scores = leave_one_out_on_demand(*model, self.device_, budget)
            if scores is None:
                found["temperature"] = self._no_temperature()
            else:
                self._calibrate(scores, check_random_state(self.random_state))
        return found

    def _no_temperature(self) -> Any:
        return np.ones(len(self.classes_)) if self.multilabel_ else 1.0

    @property
    def temperature_(self) -> Any:
        """Divisor of the scores before their softmax; one for each label of an indicator matrix."""
        if self.probability not in ("temperature", "auto"):
            raise AttributeError(f"probability={self.probability!r} has no temperature")
        # A callback may read this attribute before the temperature is fitted.
        return self._calibrated().get("temperature", self._no_temperature())

    @property
    def calibration_scores_(self) -> np.ndarray:  # type: ignore[override]
        """Adaptive score of the true class of each training row, by the model without the row."""
        if self.multilabel_:
            raise AttributeError(
                "rows with several labels have no true class: prediction sets of classes do not exist for them"
            )
        try:
            return self._calibrated()["scores"]
        except KeyError:
            raise AttributeError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid' "
                "('auto' has them for up to 10,000 points, within the memory budget)"
            ) from None

    @property
    def calibration_codes_(self) -> np.ndarray:  # type: ignore[override]
        """Classes of the rows of `calibration_scores_`, as positions in `classes_`."""
        return self._codes.astype(np.intp)

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Return the class scores, or with `decision_function_shape="ovo"` their differences for each pair of classes.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
            One column for two classes, positive for `classes_[1]`; otherwise one column for each class, or for each
            pair of classes, positive for the first class of the pair. After a fit to an indicator matrix, one column for
            each label, positive if the row has the label.
        """
        scores = self._scores(X)
        if self.multilabel_:
            return scores
        if len(self.classes_) == 2:
            return scores[:, 0]
        if self.decision_function_shape == "ovr":
            return scores
        first, second = map(list, zip(*combinations(range(len(self.classes_)), 2), strict=True))
        return scores[:, first] - scores[:, second]

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, or its labels.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_labels) after a fit to an indicator matrix
            Always NumPy, since labels may be strings; zeros and ones after a fit to an indicator matrix.
        """
        scores = xa.to_numpy(self._scores(X))
        return (scores > 0).astype(np.int64) if self.multilabel_ else scores_to_labels(self.classes_, scores)

    @available_if(has_probabilities)
    @dispatch_prediction
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class or label, by the method that the parameter `probability` selects.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples, n_labels) after a fit to an indicator matrix
            Columns in the order of `classes_`; the probabilities of labels are independent and need not sum to one.
        """
        return self._probabilities(xa.to_numpy(self._scores(X)))

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        if not self.multilabel_:
            return super()._probabilities(scores)
        if self.probability == "sigmoid":
            return label_probabilities(scores, sigmoids=self.sigmoids_)
        return label_probabilities(scores, temperature=1.0 if self.probability == "softmax" else self.temperature_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def check_two_classes(codes: np.ndarray, weights: np.ndarray | None) -> None:
    """Raise a `ValueError` if all rows of positive weight have the same class."""
    if weights is not None and len(np.unique(codes[weights > 0])) < 2:
        raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")


def _class_error(scores: np.ndarray, Z: np.ndarray) -> float:
    """Return the fraction of rows with a wrong predicted class."""
    labels = np.arange(max(2, Z.shape[1]))
    return float(np.mean(scores_to_labels(labels, scores) != scores_to_labels(labels, Z)))


def _label_error(scores: np.ndarray, Z: np.ndarray) -> float:
    """Return the fraction of wrong labels of a multilabel problem."""
    return float(np.mean((scores > 0) != (Z > 0)))


@link_documentation
class LSSVR(LeastSquaresRegressor, _LeastSquares):
    """Least-squares support vector regressor: kernel ridge regression with an unpenalised bias.

    Prefer it to `sklearn.kernel_ridge.KernelRidge` if the kernel matrix does not fit the memory, or if standard deviations
    and prediction intervals are needed; many outputs share one linear system.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    solver : str or Solver, default="auto"
        Algorithm that solves the optimisation problem. `"cholesky"` is exact; `"cg"` is block conjugate gradients with a
        Nyström preconditioner; `"sketch_project"` reaches a loose `tol` before `"cg"` on very large streamed data; the
        randomised `"matching_pursuit"`, `"kaczmarz"`, `"kaczmarz_mp"` and `"nystrom_committee"` read one block of rows at a
        time. `"auto"` chooses from the sizes, `tol`, the memory and the device; see `solver_`. An object of
        `gramless.linalg.solvers` has its own settings, for instance `CG(n_landmarks=2000)`.
    tol : float or "auto", default="auto"
        Tolerance at which the solver stops. It is the relative residual `||Z - A W|| / ||Z||` of a solver given by name; a
        solver object has its own. `"auto"` stops conjugate gradients when the residual norm, an upper bound on the error of
        the training scores, is below 5 % of the training error for every output, or relative to the targets below 5e-3 for
        classes and 1e-3 for values; for other solvers it is 1e-3.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    warm_start : bool, default=False
        Whether to start from the coefficients of the previous fit if the shapes agree.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. It is called after each iteration of the solver. `gramless.callbacks` has checkpoints
        and early stopping on held-out rows.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    solver_ : str
        Name of the solver that was used.
    solver_reason_ : str
        Why this solver was chosen, and whether the kernel matrix was cached.
    history_ : list of dict
        One record for each iteration: `n_iter`, `seconds` (without callbacks), `residual`, and values added by callbacks.
    n_iter_ : int
        Number of iterations.
    residual_ : float
        Relative residual at the end of the solve.

    See Also
    --------
    LSSVC : The classifier.
    LSSVRCV : Selects C and the kernel by closed-form leave-one-out.
    NystromLSSVR : The same model on landmarks, in one pass over the data.

    Notes
    -----
    The ridge on the diagonal of the kernel matrix is `1 / (C w)` for a row of weight `w`, so weight 2 equals two copies;
    `1 / C` is the parameter `alpha` of KernelRidge. Without an intercept the model is kernel ridge regression.

    `max_iter` applies to a solver given by name, and counts the iterations of that solver or the members of
    `"nystrom_committee"`; None and -1 are the solver's default.

    References
    ----------
    Suykens et al., "Weighted least squares support vector machines: robustness and sparse approximation", 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> LSSVR(C=100.0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    """

    _parameter_constraints = {**_CONSTRAINTS, "fit_intercept": ["boolean"]}

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float | str = "auto",
        max_iter: int | None = None,
        fit_intercept: bool = True,
        warm_start: bool = False,
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit the model to values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Values.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._validate_params()
        X = self._check_rows(X)
        y = check_outputs(y, X.shape[0])
        self._single_output = y.ndim == 1
        weights = check_weights(sample_weight, X)
        self._weights = None if weights is None else weights[weights > 0]
        targets = Standardised.of(y.reshape(X.shape[0], -1), weights, shifted=self.fit_intercept)
        kernel = self._resolve_kernel(X, weights)
        fit = self._solve(X, targets.Z, weights, kernel, validation_error=_mean_squared_error, rescale=targets.model)
        if weights is not None:
            self._weights = weights[fit.support]
        return self

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Log likelihood of the training values under the Gaussian process, for each output if there are several.

        It is exact if the factor of the kernel matrix fits the memory budget; else it is estimated by Lanczos' method with
        random sign vectors, with the standard error `log_marginal_likelihood_error_`.
        """
        values = self._posterior().log_likelihood[0]
        return float(values[0]) if self._single_output else values

    @property
    def log_marginal_likelihood_error_(self) -> float:
        """Standard error of `log_marginal_likelihood_`; 0 if the likelihood is exact."""
        return self._posterior().log_likelihood[1]


def _mean_squared_error(scores: np.ndarray, Z: np.ndarray) -> float:
    return float(np.mean((scores - Z) ** 2))
