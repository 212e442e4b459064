"""Model selection for the least-squares machine by closed-form leave-one-out: no refits.

For each kernel of the grid one eigendecomposition gives the leave-one-out scores, and the fitted model, of every `C`
(see `gramless.inference.leave_one_out`). O(n^3) for each kernel, O(n^2) for each further `C`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, mean_absolute_error, mean_squared_error, r2_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.progress import Progress
from gramless._core.targets.columns import class_targets
from gramless._core.validation import (
    atomic_fit,
    check_choice,
    check_labels,
    check_outputs,
    check_positive,
    check_square,
    check_weights,
    check_X,
    working_dtype,
)
from gramless.callbacks import read_functions
from gramless.inference.jackknife import LeftOut
from gramless.inference.leave_one_out import double_points_bytes, path_scores
from gramless.inference.optimism import optimism
from gramless.inference.platt import fit_sigmoids
from gramless.inference.prediction_sets import adaptive_scores, prediction_sets
from gramless.inference.regression import prediction_intervals, standard_deviations
from gramless.inference.temperature import fit_temperature
from gramless.kernels import Kernel, as_kernel
from gramless.linalg.operators import KernelOperator
from gramless.linalg.planning.plan import Plan
from gramless.models.expansion import (
    ExpansionClassifier,
    ExpansionRegressor,
    scores_to_labels,
    scores_to_probabilities,
    set_training_points,
)

_DEFAULT_CS = tuple(float(c) for c in np.logspace(-2, 5, 15))


def _negative(metric: Callable[..., float]) -> Callable[..., float]:
    return lambda *args, **kwargs: -metric(*args, **kwargs)


_CLASSIFICATION_SCORES: dict[str, Callable[..., float]] = {
    "accuracy": accuracy_score,
    "balanced_accuracy": balanced_accuracy_score,
}
_REGRESSION_SCORES: dict[str, Callable[..., float]] = {
    "neg_mean_squared_error": _negative(mean_squared_error),
    "neg_mean_absolute_error": _negative(mean_absolute_error),
    "r2": r2_score,
}


def candidates(kernel: Any, param_grid: dict[str, Sequence[Any]] | None) -> list[tuple[dict[str, Any], Kernel]]:
    """Every kernel to try, with the settings that made it."""
    kernels = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    if not kernels:
        raise ValueError("kernel is an empty list: give at least one kernel")
    found = []
    for one in kernels:
        for settings in ParameterGrid(param_grid or {}):
            if isinstance(one, str):
                made = as_kernel(one, **settings)
                unknown = set(settings) - set(made.get_params())
                if unknown:
                    raise ValueError(f"kernel {one!r} has no setting {sorted(unknown)}; it has {made.get_params()}")
            else:
                made = clone(as_kernel(one)).set_params(**settings)
            found.append(({"kernel": one, **settings}, made))
    return found


def check_search(search: LSSVCCV | LSSVRCV, X: Any) -> Array:
    """The settings of a search, then its rows."""
    if np.size(search.Cs) == 0:
        raise ValueError("Cs is empty: give at least one C")
    for C in np.atleast_1d(np.asarray(search.Cs, dtype=float)):
        check_positive("every C in Cs", float(C))
    kernels = [kernel for _, kernel in candidates(search.kernel, search.param_grid)]
    sparse = all(kernel.accepts_sparse for kernel in kernels)
    checked = check_X(search, X, dtype=working_dtype(X, search.dtype), reset=True, accept_sparse=sparse)
    look_up = {not kernel.uses_points for kernel in kernels}
    if len(look_up) > 1:
        raise ValueError("a precomputed kernel cannot be compared with kernels of points: their X differ")
    if look_up == {True}:
        check_square(checked)
    return checked


def plan_search(search: LSSVCCV | LSSVRCV, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
    """What a search of this size holds, or a `MemoryError` where that is too much."""
    parts = {
        "kernel matrix and eigenvectors": 3 * n * n * 8,
        "path": 3 * np.size(search.Cs) * n * (n_outputs + 1) * 8,
        "data": n * d * np.dtype(dtype).itemsize,
        "points in float64": double_points_bytes(n, d, dtype, device),
    }
    memory = MemoryEstimate(parts, device, "eigenvectors")
    memory.check(
        parse_budget(search.memory_budget, device),
        "leave-one-out needs the whole kernel matrix: search on a subset, or use LSSVC with an EarlyStopping callback",
    )
    return Plan("eigenvectors", False, 0, False, memory, "one eigendecomposition gives the whole path of C")


def fit_path(
    search: LSSVCCV | LSSVRCV,
    X: Array,
    Z: np.ndarray,
    weights: np.ndarray | None,
    score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
) -> None:
    """Score every kernel and `C`, and make `search` the model of the best.

    `score(loo, rows, weights)` says how good leave-one-out scores of these rows are; larger is better.
    """
    callbacks = read_functions(search)
    device = search.device_ = xa.resolve_device(search.device, X)
    Cs = np.atleast_1d(np.asarray(search.Cs, dtype=float))
    kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    n, dtype = len(kept), xa.numpy_dtype(X)
    if n < 2:
        raise ValueError(f"leave-one-out needs at least 2 samples of positive weight, got n_samples = {n}")
    used = None if weights is None else weights[kept]
    plan_search(search, n, X.shape[1], Z.shape[1], dtype, device)
    tried = candidates(search.kernel, search.param_grid)
    search.scores_ = np.full((len(tried), len(Cs)), np.nan)
    search.params_ = [settings for settings, _ in tried]
    search.history_ = []
    best, elapsed = -np.inf, 0.0
    with Progress(search.verbose, len(tried), type(search).__name__) as progress:
        for i, (settings, kernel) in enumerate(tried):
            clock = time.perf_counter()
            resolved = kernel.resolve(X, weights)
            points = X if n == X.shape[0] else (xa.take_rows(X, kept) if kernel.uses_points else xa.submatrix(X, kept, kept))
            on_device = xa.to_device(points, device)
            op = KernelOperator(on_device, resolved)
            loo, coefs, biases = path_scores(op.dense(np.float64), Z[kept], Cs, used)
            for j, C in enumerate(Cs):
                value = search.scores_[i, j] = score(loo[j], kept, used)
                if value > best:
                    best = value
                    search.best_params_ = {**settings, "C": float(C)}
                    search.best_score_, search.C_, search.kernel_ = float(value), float(C), resolved
                    search.dual_coef_, search.intercept_ = coefs[j].astype(dtype), biases[j].astype(dtype)
                    search.loo_decision_ = loo[j][:, 0] if loo.shape[2] == 1 else loo[j]
            set_training_points(search, points, on_device, kept)
            elapsed += time.perf_counter() - clock
            score_of_kernel = float(search.scores_[i].max())
            record = {"n_iter": i + 1, "seconds": elapsed, "score": score_of_kernel, "best_score": float(best)}
            search.history_.append(record)
            progress.update(record)
            if callbacks(search, record):
                break


def metric_of(scoring: Any, known: dict[str, Callable[..., float]], default: str) -> Callable[..., float]:
    """The function that `scoring=` means."""
    if callable(scoring):
        return scoring
    return known[check_choice("scoring", default if scoring is None else scoring, known)]


def _one_copy_left_out(scores: np.ndarray, Z: np.ndarray, coef: np.ndarray, C: float, weights: np.ndarray) -> np.ndarray:
    """Scores of rows without one of the copies that a weight stands for, from those without the whole row."""
    residuals = Z - scores
    largest = np.abs(residuals).argmax(axis=1)[:, None]
    # A residual is a coefficient over an entry of the inverse's diagonal, the same in every column.
    diagonal = np.take_along_axis(coef.astype(np.float64), largest, 1) / np.take_along_axis(residuals, largest, 1)
    return Z - LeftOut.from_solution(residuals * diagonal, diagonal[:, 0], 1.0 / C, weights).residuals


@link_documentation
class LSSVCCV(ExpansionClassifier):
    """Least-squares support vector classifier that chooses C and the kernel by closed-form leave-one-out.

    Parameters
    ----------
    kernel : str, Kernel, callable or a list of them, default="rbf"
        What to try.
    Cs : sequence of float
        The path of regularisation; fifteen values from 1e-2 to 1e5 by default.
    param_grid : dict, optional
        Settings of the kernel to try, such as `{"gamma": [0.01, 0.1, 1.0]}`.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        What to maximise over leave-one-out predictions: `"accuracy"` (by default) or `"balanced_accuracy"`.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight`.
    probability : {"temperature", "softmax", "sigmoid", False}, default="temperature"
        What `predict_proba` is, as in `LSSVC`; the leave-one-out scores that calibrate it are there anyway.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64; leave-one-out is always in float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None follows the data.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates; None is 70 % of what is free.
    callback : callable(estimator, record) -> bool, or a list of them, optional
        Called after each kernel with the best model so far and the kernel's record of `history_`; a true answer stops the
        search, which keeps that model.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    best_params_ : dict
        The kernel, its settings and `C` of the model that was kept.
    best_score_ : float
        Its score.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of the whole grid; rows as in `params_`. NaN for kernels that a callback left untried.
    params_ : list of dict
        The kernels of the grid.
    history_ : list of dict
        One record for each kernel that was tried: n_iter, seconds (callbacks excluded), score (the best of its path),
        best_score (so far), and what the callback added.
    temperature_ : float
        With `probability="temperature"`.
    sigmoids_ : ndarray of shape (n_outputs, 2)
        With `probability="sigmoid"`.
    calibration_scores_ : ndarray of shape (m,)
        The score of each row's true class in `predict_set`, by the model without the row.
    calibration_codes_ : ndarray of int of shape (m,)
        The classes of those rows, as positions in `classes_`.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows (those of positive weight) under the model that was kept.
    C_ : float
        The regularisation that was kept.
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
        The rows that carry the model, numbered in `support_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Their coefficients.
    intercept_ : ndarray of shape (n_outputs,)
        The bias.
    classes_ : ndarray
        The labels.

    See Also
    --------
    LSSVC : For one kernel and one C.
    LSSVRCV : The regressor.

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

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        Cs: Sequence[float] = _DEFAULT_CS,
        param_grid: dict[str, Sequence[Any]] | None = None,
        scoring: Any = None,
        class_weight: Any = None,
        probability: str | bool = "temperature",
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
        """Search and keep the best model.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,)
            Labels.
        sample_weight : array of shape (n_samples,), optional
            Rows of weight zero do not take part.

        Returns
        -------
        self
            Fitted.
        """
        if self.probability is not False:
            check_choice("probability", self.probability, {"temperature", "softmax", "sigmoid"})
        X = check_search(self, X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        if weights is not None and len(np.unique(codes[weights > 0])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        metric = metric_of(self.scoring, _CLASSIFICATION_SCORES, "accuracy")

        def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
            return metric(self.classes_[codes[rows]], scores_to_labels(self.classes_, loo), sample_weight=used)

        for name in ("sigmoids_", "temperature_", "calibration_scores_", "calibration_codes_"):
            self.__dict__.pop(name, None)
        if self.probability == "temperature":
            self.temperature_ = 1.0  # as long as the search is under way and a callback may ask
        fit_path(self, X, class_targets(codes, len(self.classes_)), weights, score)
        rows, scores = self.support_, self.loo_decision_.reshape(len(self.support_), -1)
        truth, used = codes[rows], None if weights is None else weights[rows]
        if used is not None:
            scores = _one_copy_left_out(scores, class_targets(truth, len(self.classes_)), self.dual_coef_, self.C_, used)
        if self.probability == "sigmoid":
            self.sigmoids_ = fit_sigmoids(scores, truth, len(self.classes_), used)
        elif self.probability == "temperature":
            self.temperature_ = fit_temperature(scores, truth, used)
        if self.probability is not False:
            share = np.random.RandomState(0).random_sample(len(truth))
            own = adaptive_scores(scores_to_probabilities(self, scores), share)
            self.calibration_scores_, self.calibration_codes_ = own[np.arange(len(truth)), truth], truth
        return self

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Sets of classes that contain the true one with a chosen probability.

        Adaptive prediction sets on leave-one-out probabilities: rows that are hard get large sets. A set may be empty where
        the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Between 0 and 1.
        per_class : bool, default=False
            Whether the rows of every class are to be covered so often, or all rows together.
        random_state : int, RandomState or None, default=None
            Draws the random share of a class's own probability that makes the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. Sets for a larger coverage contain those for a smaller one, at the same
            `random_state`.
        """
        check_is_fitted(self)
        chances = np.asarray(self.predict_proba(X))
        own, codes = self.calibration_scores_, self.calibration_codes_
        return prediction_sets(chances, own, codes, coverage, per_class=per_class, random_state=random_state)

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """What a search of this size holds.

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
        Plan
            Or a `MemoryError` where that is too much.
        """
        return plan_search(self, n, d, n_outputs, dtype, device)


@link_documentation
class LSSVRCV(ExpansionRegressor):
    """Least-squares support vector regressor that chooses C and the kernel by closed-form leave-one-out.

    Parameters
    ----------
    kernel : str, Kernel, callable or a list of them, default="rbf"
        What to try.
    Cs : sequence of float
        The path of regularisation; fifteen values from 1e-2 to 1e5 by default.
    param_grid : dict, optional
        Settings of the kernel to try, such as `{"gamma": [0.01, 0.1, 1.0]}`.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        What to maximise over leave-one-out predictions: `"neg_mean_squared_error"` (by
        default), `"neg_mean_absolute_error"` or `"r2"`.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64; leave-one-out is always in float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None follows the data.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates; None is 70 % of what is free.
    callback : callable(estimator, record) -> bool, or a list of them, optional
        Called after each kernel with the best model so far and the kernel's record of `history_`; a true answer stops the
        search, which keeps that model.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    best_params_ : dict
        The kernel, its settings and `C` of the model that was kept.
    best_score_ : float
        Its score.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of the whole grid; rows as in `params_`. NaN for kernels that a callback left untried.
    params_ : list of dict
        The kernels of the grid.
    history_ : list of dict
        One record for each kernel that was tried: n_iter, seconds (callbacks excluded), score (the best of its path),
        best_score (so far), and what the callback added.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows (those of positive weight) under the model that was kept.
    optimism_ : float
        How much larger errors on new rows are expected to be than the leave-one-out errors, because the setting with the
        smallest was chosen; at least 1, by bootstrap.
    C_ : float
        The regularisation that was kept.
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
        The rows that carry the model, numbered in `support_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Their coefficients.
    intercept_ : ndarray of shape (n_outputs,)
        The bias.

    See Also
    --------
    LSSVR : For one kernel and one C.
    LSSVCCV : The classifier.

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
        """Search and keep the best model.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Values.
        sample_weight : array of shape (n_samples,), optional
            Rows of weight zero do not take part.

        Returns
        -------
        self
            Fitted.
        """
        X = check_search(self, X)
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        weights = check_weights(sample_weight, X)
        metric = metric_of(self.scoring, _REGRESSION_SCORES, "neg_mean_squared_error")

        columns = targets.reshape(X.shape[0], -1)
        squares: list[np.ndarray] = []

        def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
            squares.append(np.sum((columns[rows] - loo) ** 2, axis=1))
            return metric(targets[rows], loo.reshape(targets[rows].shape), sample_weight=used)

        self._weights = None if weights is None else weights[weights > 0]
        fit_path(self, X, columns, weights, score)
        self.optimism_ = optimism(np.column_stack(squares), self._weights)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted values, and how sure the machine is of the function behind them.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.
        return_std : bool, default=False
            Whether to return the standard deviation of the Gaussian process too, as in `LSSVR.predict`.

        Returns
        -------
        values : array of shape (n_samples,) or (n_samples, n_outputs)
            As `y` was at fit.
        deviations : ndarray of the same shape
            With `return_std` only.
        """
        values = super().predict(X)
        if not return_std:
            return values
        deviations = standard_deviations(self, X)
        return values, deviations[:, 0] if self._single_output else deviations

    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Intervals that contain the value of a new row with a chosen probability, by the jackknife+.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.
        coverage : float, default=0.9
            Between 0 and 1, as in `LSSVR.predict_interval`. The settings were chosen on the same residuals, which are
            therefore too small where many were tried on few rows: they count `optimism_` times.
        local : bool, default=False
            Whether intervals are wider where the machine is less sure.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)
            Lower and upper ends. Infinite where there are too few training rows for the coverage.
        """
        ends = prediction_intervals(self, X, coverage, local=local)
        return ends[:, 0] if self._single_output else ends

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """What a search of this size holds.

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
        Plan
            Or a `MemoryError` where that is too much.
        """
        return plan_search(self, n, d, n_outputs, dtype, device)
