"""Selection of C and the kernel of a least-squares model by closed-form leave-one-out, without refits.

For each kernel of the grid one eigendecomposition gives the leave-one-out scores and the fitted model of every `C`
(see `gramless.inference.leave_one_out`). Cost: O(n^3) for each kernel, O(n^2) for each `C`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, mean_absolute_error, mean_squared_error, r2_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils._param_validation import StrOptions

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import CLASS_WEIGHT, COMPUTE
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.progress import Progress
from gramless._core.targets.columns import class_targets, scores_to_labels
from gramless._core.validation import atomic_fit, check_labels, check_outputs, check_positive, check_weights
from gramless.callbacks import read_functions
from gramless.estimators.expansion import (
    BaseKernelExpansion,
    LeastSquaresClassifier,
    LeastSquaresRegressor,
    check_kernel_input,
)
from gramless.estimators.lssvm import check_two_classes
from gramless.inference.leave_one_out import LeaveOneOut, leave_one_out_path, optimism
from gramless.inference.probabilities import METHODS, calibrate, probability_constraint
from gramless.kernels import Kernel, as_kernel
from gramless.linalg.operators import KernelOperator
from gramless.linalg.planning.plan import SolverPlan, double_points_bytes

_DEFAULT_CS = tuple(float(c) for c in np.logspace(-2, 5, 15))
_CLASS_METRICS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy_score,
    "balanced_accuracy": balanced_accuracy_score,
}
_VALUE_METRICS: dict[str, Callable[..., float]] = {
    "neg_mean_squared_error": lambda *args, **kwargs: -mean_squared_error(*args, **kwargs),
    "neg_mean_absolute_error": lambda *args, **kwargs: -mean_absolute_error(*args, **kwargs),
    "r2": r2_score,
}
_CONSTRAINTS: dict[str, Any] = {
    "kernel": "no_validation",
    "Cs": ["array-like"],
    "param_grid": [dict, None],
    **{name: constraint for name, constraint in COMPUTE.items() if name != "random_state"},
}


def _scoring_constraint(metrics: dict[str, Callable[..., float]]) -> list[Any]:
    return [StrOptions(set(metrics)), callable, None]


def kernel_candidates(kernel: Any, param_grid: dict[str, Sequence[Any]] | None) -> list[tuple[dict[str, Any], Kernel]]:
    """Return every kernel of the grid together with its parameters."""
    kernels = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    if not kernels:
        raise ValueError("kernel is an empty list: give at least one kernel")
    found = []
    for one in kernels:
        for parameters in ParameterGrid(param_grid or {}):
            if isinstance(one, str):
                candidate = as_kernel(one, **parameters)
                unknown = set(parameters) - set(candidate.get_params())
                if unknown:
                    raise ValueError(f"kernel {one!r} has no parameter {sorted(unknown)}; it has {candidate.get_params()}")
            else:
                candidate = clone(as_kernel(one)).set_params(**parameters)
            found.append(({"kernel": one, **parameters}, candidate))
    return found


class _LeaveOneOutSearch(BaseKernelExpansion):
    """Base class of `LSSVCCV` and `LSSVRCV`: the search over leave-one-out scores of every kernel and every C."""

    Cs: Sequence[float]
    param_grid: dict[str, Sequence[Any]] | None
    device: Device
    memory_budget: str | float | None
    callback: Any
    verbose: int

    def _search(
        self,
        X: Array,
        Z: np.ndarray,
        weights: np.ndarray | None,
        score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
    ) -> None:
        """Score every candidate and store the best model; `score(loo, rows, weights)` is larger for better models."""
        Cs = np.atleast_1d(np.asarray(self.Cs, dtype=float))
        if Cs.size == 0:
            raise ValueError("Cs is empty: give at least one C")
        for C in Cs:
            check_positive("every C in Cs", float(C))
        candidates = kernel_candidates(self.kernel, self.param_grid)
        check_kernel_input(X, *(kernel for _, kernel in candidates))
        callbacks = read_functions(self)
        rows = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        n, dtype = len(rows), xa.numpy_dtype(X)
        if n < 2:
            raise ValueError(f"leave-one-out needs at least 2 samples of positive weight, got n_samples = {n}")
        used = None if weights is None else weights[rows]
        device = self.device_ = xa.resolve_device(self.device, X)
        self.plan(n, X.shape[1], Z.shape[1], dtype, device)
        self.scores_ = np.full((len(candidates), len(Cs)), np.nan)
        self.params_ = [parameters for parameters, _ in candidates]
        self.history_: list[dict[str, Any]] = []
        best, elapsed = -np.inf, 0.0
        with Progress(self.verbose, len(candidates), type(self).__name__) as progress:
            for i, (parameters, kernel) in enumerate(candidates):
                clock = time.perf_counter()
                resolved = kernel.resolve(X, weights)
                points = X
                if n < X.shape[0]:
                    points = xa.take_rows(X, rows) if kernel.uses_points else xa.submatrix(X, rows, rows)
                on_device = xa.to_device(points, device)
                fits = leave_one_out_path(KernelOperator(on_device, resolved).dense(np.float64), Z[rows], Cs, used)
                for j, (C, fit) in enumerate(zip(Cs, fits, strict=True)):
                    value = self.scores_[i, j] = score(fit.scores, rows, used)
                    if value > best:
                        best = value
                        self.best_params_ = {**parameters, "C": float(C)}
                        self.best_score_, self.C_ = float(value), float(C)
                        self.dual_coef_, self.intercept_ = fit.coef.astype(dtype), fit.bias.astype(dtype)
                        self.loo_decision_ = fit.scores[:, 0] if fit.scores.shape[1] == 1 else fit.scores
                        self._set_points(resolved, points, on_device, rows)
                elapsed += time.perf_counter() - clock
                record = {
                    "n_iter": i + 1,
                    "seconds": elapsed,
                    "score": float(self.scores_[i].max()),
                    "best_score": float(best),
                }
                self.history_.append(record)
                progress.update(record)
                if callbacks(self, record):
                    break

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> SolverPlan:
        """Return the memory of a search of the given size.

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
            With `memory`; a `MemoryError` is raised if it exceeds the memory budget.
        """
        parts = {
            "kernel matrix and eigenvectors": 3 * n * n * 8,
            "path": 3 * np.size(self.Cs) * n * (n_outputs + 1) * 8,
            "data": n * d * np.dtype(dtype).itemsize,
            "points in float64": double_points_bytes(n, d, dtype, device),
        }
        memory = MemoryEstimate(parts, device, "eigenvectors")
        memory.check(
            parse_budget(self.memory_budget, device),
            "leave-one-out needs the full kernel matrix: search on a subset, or use LSSVC with an EarlyStopping callback",
        )
        return SolverPlan("eigenvectors", False, 0, False, memory, "one eigendecomposition gives the models of all C")


@link_documentation
class LSSVCCV(LeastSquaresClassifier, _LeaveOneOutSearch):
    """Least-squares support vector classifier that selects C and the kernel by closed-form leave-one-out.

    Prefer it to `sklearn.model_selection.GridSearchCV` over an `LSSVC` or `SVC` for up to about ten thousand rows: a kernel
    costs one eigendecomposition for all values of C, without refits.

    Parameters
    ----------
    kernel : str, Kernel, callable or a list of them, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
        The members of a list are compared.
    Cs : sequence of float, default=1e-2 to 1e5 in half decades
        Values of `C` tried by leave-one-out.
    param_grid : dict, optional
        Values of kernel parameters to compare, such as `{"gamma": [0.01, 0.1, 1.0]}`.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        Metric maximised over the leave-one-out predictions. For classes `"accuracy"` (the default) or `"balanced_accuracy"`;
        for values `"neg_mean_squared_error"` (the default), `"neg_mean_absolute_error"` or `"r2"`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"auto", "softmax", "sigmoid", "temperature", False}, default="auto"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"softmax"` is
        the softmax of the scores, `"sigmoid"` Platt's sigmoid of each score, normalised, and `"temperature"` the softmax of
        the scores divided by a temperature. Sigmoids and temperature are fitted to closed-form leave-one-out scores, without
        a refit; `predict_set` needs them. The Notes describe `"auto"`.
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

    Attributes
    ----------
    best_params_ : dict
        Kernel, kernel parameters and `C` of the selected model.
    best_score_ : float
        Leave-one-out score of the selected model.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of all candidates, with rows as in `params_`; NaN for kernels that a callback skipped.
    params_ : list of dict
        Kernels and kernel parameters of the grid.
    history_ : list of dict
        One record for each kernel: `n_iter`, `seconds` (without callbacks), `score` (best of all `C`), `best_score` (so
        far), and values added by callbacks.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows of positive weight under the selected model.
    temperature_ : float
        Temperature, with `probability="temperature"` or `"auto"`.
    sigmoids_ : ndarray of shape (n_outputs, 2)
        Slope and offset of each sigmoid, with `probability="sigmoid"`.
    calibration_scores_ : ndarray of shape (m,)
        Adaptive score of the true class of each training row, by the model without the row; see `predict_set`.
    calibration_codes_ : ndarray of int of shape (m,)
        Classes of these rows, as positions in `classes_`.
    C_ : float
        Selected value of `C`.
    kernel_ : Kernel
        The selected kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.
    classes_ : ndarray
        Class labels.

    See Also
    --------
    LSSVC : Fits one kernel and one C.
    LSSVRCV : The regressor.

    Notes
    -----
    `callback` is called after each kernel with the best model so far. `probability="auto"` is `"temperature"`, and the
    leave-one-out scores are those of the search.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from gramless import LSSVCCV
    >>> X, y = load_wine(return_X_y=True)
    >>> search = LSSVCCV(param_grid={"gamma": [0.01, 0.1]}).fit(StandardScaler().fit_transform(X), y)
    >>> search.best_score_ > 0.97
    True
    """

    _parameter_constraints = {
        **_CONSTRAINTS,
        **CLASS_WEIGHT,
        "scoring": _scoring_constraint(_CLASS_METRICS),
        "probability": probability_constraint(*METHODS),
    }

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        Cs: Sequence[float] = _DEFAULT_CS,
        param_grid: dict[str, Sequence[Any]] | None = None,
        scoring: Any = None,
        class_weight: Any = None,
        probability: str | bool = "auto",
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.Cs = Cs
        self.param_grid = param_grid
        self.scoring = scoring
        self.class_weight = class_weight
        self.probability = probability
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVCCV:
        """Select and fit the best model.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,)
            Labels.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._validate_params()
        X = self._check_rows(X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        check_two_classes(codes, weights)
        metric = self.scoring if callable(self.scoring) else _CLASS_METRICS[self.scoring or "accuracy"]

        def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
            return metric(self.classes_[codes[rows]], scores_to_labels(self.classes_, loo), sample_weight=used)

        for name in ("sigmoids_", "temperature_", "calibration_scores_", "calibration_codes_"):
            self.__dict__.pop(name, None)
        tempered = self.probability in ("temperature", "auto")
        if tempered:
            self.temperature_ = 1.0  # used by callbacks until the temperature is fitted
        self._search(X, class_targets(codes, len(self.classes_)), weights, score)
        if self.probability is False:
            return self
        truth, used = codes[self.support_], None if weights is None else weights[self.support_]
        scores = self._scores_without_one_copy(truth, used)
        # A fixed seed makes fits reproducible, because the search has no parameter random_state.
        found = calibrate(scores, truth, len(self.classes_), self.probability, used, np.random.RandomState(0))
        if found.sigmoids is not None:
            self.sigmoids_ = found.sigmoids
        if tempered:
            self.temperature_ = found.temperature
        assert found.true_scores is not None
        self.calibration_scores_, self.calibration_codes_ = found.true_scores, truth
        return self

    def _scores_without_one_copy(self, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return leave-one-out scores in which one of the w copies of a row of weight w is left out instead of all."""
        scores = self.loo_decision_.reshape(len(codes), -1)
        if weights is None:
            return scores
        Z = class_targets(codes, len(self.classes_))
        residuals = Z - scores
        largest = np.abs(residuals).argmax(axis=1)[:, None]
        # A leave-one-out residual is a coefficient divided by an entry of the diagonal of the inverse, which all columns
        # share.
        coef = np.take_along_axis(self.dual_coef_.astype(np.float64), largest, 1)
        diagonal = coef / np.take_along_axis(residuals, largest, 1)
        return Z - LeaveOneOut.from_solution(residuals * diagonal, diagonal[:, 0], 1.0 / self.C_, weights).residuals


@link_documentation
class LSSVRCV(LeastSquaresRegressor, _LeaveOneOutSearch):
    """Least-squares support vector regressor that selects C and the kernel by closed-form leave-one-out.

    Prefer it to `sklearn.model_selection.GridSearchCV` over a `KernelRidge` or `LSSVR` for up to about ten thousand rows: a
    kernel costs one eigendecomposition for all values of C, without refits.

    Parameters
    ----------
    kernel : str, Kernel, callable or a list of them, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
        The members of a list are compared.
    Cs : sequence of float, default=1e-2 to 1e5 in half decades
        Values of `C` tried by leave-one-out.
    param_grid : dict, optional
        Values of kernel parameters to compare, such as `{"gamma": [0.01, 0.1, 1.0]}`.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        Metric maximised over the leave-one-out predictions. For classes `"accuracy"` (the default) or `"balanced_accuracy"`;
        for values `"neg_mean_squared_error"` (the default), `"neg_mean_absolute_error"` or `"r2"`.
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

    Attributes
    ----------
    best_params_ : dict
        Kernel, kernel parameters and `C` of the selected model.
    best_score_ : float
        Leave-one-out score of the selected model.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of all candidates, with rows as in `params_`; NaN for kernels that a callback skipped.
    params_ : list of dict
        Kernels and kernel parameters of the grid.
    history_ : list of dict
        One record for each kernel: `n_iter`, `seconds` (without callbacks), `score` (best of all `C`), `best_score` (so
        far), and values added by callbacks.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows of positive weight under the selected model.
    optimism_ : float
        Factor, at least 1, by which errors on new rows are expected to exceed the leave-one-out errors, because the setting
        with the smallest errors was selected; estimated by bootstrap. `predict_interval` multiplies residuals by it.
    C_ : float
        Selected value of `C`.
    kernel_ : Kernel
        The selected kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.

    See Also
    --------
    LSSVR : Fits one kernel and one C.
    LSSVCCV : The classifier.

    Notes
    -----
    `callback` is called after each kernel with the best model so far.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVRCV
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> LSSVRCV(param_grid={"gamma": [0.1, 1.0]}).fit(X, np.sin(X[:, 0])).best_score_ > -1e-4
    True
    """

    _parameter_constraints = {**_CONSTRAINTS, "scoring": _scoring_constraint(_VALUE_METRICS)}

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        Cs: Sequence[float] = _DEFAULT_CS,
        param_grid: dict[str, Sequence[Any]] | None = None,
        scoring: Any = None,
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.Cs = Cs
        self.param_grid = param_grid
        self.scoring = scoring
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVRCV:
        """Select and fit the best model.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
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
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        weights = check_weights(sample_weight, X)
        metric = self.scoring if callable(self.scoring) else _VALUE_METRICS[self.scoring or "neg_mean_squared_error"]
        columns = targets.reshape(X.shape[0], -1)
        squares: list[np.ndarray] = []

        def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
            squares.append(np.sum((columns[rows] - loo) ** 2, axis=1))
            return metric(targets[rows], loo.reshape(targets[rows].shape), sample_weight=used)

        self._weights = None if weights is None else weights[weights > 0]
        self._search(X, columns, weights, score)
        self.optimism_ = optimism(np.column_stack(squares), self._weights)
        return self
