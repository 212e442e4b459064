"""Model selection for the least-squares machine by closed-form leave-one-out: no refits.

For each kernel of the grid one eigendecomposition gives the leave-one-out scores, and the fitted model, of every `C`
(see `gramless.calibration.leave_one_out`). O(n^3) for each kernel, O(n^2) for each further `C`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, mean_absolute_error, mean_squared_error, r2_score
from sklearn.model_selection import ParameterGrid

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import MemoryEstimate, parse_budget
from gramless._runtime.validation import (
    all_or_nothing,
    check_choice,
    check_labels,
    check_outputs,
    check_positive,
    check_square,
    check_weights,
    check_X,
    working_dtype,
)
from gramless.calibration.leave_one_out import double_points_bytes, path_scores
from gramless.calibration.platt import fit_sigmoids
from gramless.kernels import Kernel, as_kernel
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, scores_to_labels, set_training_points
from gramless.operators import KernelOperator
from gramless.planning.plan import Plan
from gramless.targets.columns import class_targets

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


class LeaveOneOutSearch(BaseEstimator):
    """The search that `LSSVCCV` and `LSSVRCV` share."""

    kernel_: Kernel
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    device_: str

    def __init__(
        self,
        *,
        Cs: Sequence[float] = _DEFAULT_CS,
        kernel: Any = "rbf",
        param_grid: dict[str, Sequence[Any]] | None = None,
        scoring: Any = None,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
    ):
        self.Cs = Cs
        self.kernel = kernel
        self.param_grid = param_grid
        self.scoring = scoring
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget

    def _candidates(self) -> list[tuple[dict[str, Any], Kernel]]:
        """Every kernel to try, with the settings that made it."""
        kernels = list(self.kernel) if isinstance(self.kernel, (list, tuple)) else [self.kernel]
        if not kernels:
            raise ValueError("kernel is an empty list: give at least one kernel")
        candidates = []
        for kernel in kernels:
            for settings in ParameterGrid(self.param_grid or {}):
                if isinstance(kernel, str):
                    made = as_kernel(kernel, **settings)
                    unknown = set(settings) - set(made.get_params())
                    if unknown:
                        raise ValueError(f"kernel {kernel!r} has no setting {sorted(unknown)}; it has {made.get_params()}")
                else:
                    made = clone(as_kernel(kernel)).set_params(**settings)
                candidates.append(({"kernel": kernel, **settings}, made))
        return candidates

    def _check_X(self, X: Any) -> Array:
        if np.size(self.Cs) == 0:
            raise ValueError("Cs is empty: give at least one C")
        for C in np.atleast_1d(np.asarray(self.Cs, dtype=float)):
            check_positive("every C in Cs", float(C))
        candidates = self._candidates()
        sparse = all(kernel.accepts_sparse for _, kernel in candidates)
        checked = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True, accept_sparse=sparse)
        look_up = {not kernel.separable for _, kernel in candidates}
        if len(look_up) > 1:
            raise ValueError("a precomputed kernel cannot be compared with kernels of points: their X differ")
        if look_up == {True}:
            check_square(checked)
        return checked

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """What a search of this size holds, or a `MemoryError` where that is too much."""
        n_C = np.size(self.Cs)
        memory = MemoryEstimate(
            {
                "kernel matrix and eigenvectors": 3 * n * n * 8,
                "path": 3 * n_C * n * (n_outputs + 1) * 8,
                "data": n * d * np.dtype(dtype).itemsize,
                "points in float64": double_points_bytes(n, d, dtype, device),
            },
            device,
            "eigenvectors",
        )
        memory.check(
            parse_budget(self.memory_budget, device),
            "leave-one-out needs the whole kernel matrix: search on a subset, or use LSSVC with an EarlyStopping callback",
        )
        return Plan("eigenvectors", False, 0, False, memory, "one eigendecomposition gives the whole path of C")

    def _fit_path(self, X: Array, Z: np.ndarray, weights: np.ndarray | None, score: Callable[[np.ndarray], float]) -> None:
        self.device_ = xa.resolve_device(self.device, X)
        Cs = np.atleast_1d(np.asarray(self.Cs, dtype=float))
        kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        n = len(kept)
        if n < 2:
            raise ValueError(f"leave-one-out needs at least 2 samples of positive weight, got n_samples = {n}")
        used = None if weights is None else weights[kept]
        self.plan(n, X.shape[1], Z.shape[1], xa.numpy_dtype(X), self.device_)
        candidates = self._candidates()
        self.scores_ = np.empty((len(candidates), len(Cs)))
        self.params_ = [settings for settings, _ in candidates]
        best = -np.inf
        for i, (settings, kernel) in enumerate(candidates):
            resolved = kernel.resolve(X, weights)
            points = X if n == X.shape[0] else (xa.take_rows(X, kept) if kernel.separable else xa.submatrix(X, kept, kept))
            op = KernelOperator(xa.to_device(points, self.device_), resolved)
            loo, coefs, biases = path_scores(op.dense(np.float64), Z[kept], Cs, used)
            for j, C in enumerate(Cs):
                value = self.scores_[i, j] = score(loo[j])
                if value > best:
                    best = value
                    dtype = xa.numpy_dtype(X)
                    self.best_params_ = {**settings, "C": float(C)}
                    self.best_score_, self.C_, self.kernel_ = float(value), float(C), resolved
                    self.dual_coef_, self.intercept_ = coefs[j].astype(dtype), biases[j].astype(dtype)
                    self.loo_decision_ = loo[j][:, 0] if loo.shape[2] == 1 else loo[j]
        set_training_points(self, points, xa.to_device(points, self.device_), kept)

    def _metric(self, known: dict[str, Callable[..., float]], default: str) -> Callable[..., float]:
        if callable(self.scoring):
            return self.scoring
        return known[check_choice("scoring", default if self.scoring is None else self.scoring, known)]


_PARAMETERS = """Cs : sequence of float
        The path of regularisation; fifteen values from 1e-2 to 1e5 by default.
    kernel : str, Kernel, callable or a list of them, default="rbf"
    param_grid : dict, optional
        Settings of the kernel to try, such as `{"gamma": [0.01, 0.1, 1.0]}`.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        What to maximise over leave-one-out predictions."""

_ATTRIBUTES = """best_params_ : dict
        The kernel, its settings and `C` of the model that was kept.
    best_score_ : float
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of the whole grid; rows as in `params_`.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows (those of positive weight) under the model that was kept.
    points_, dual_coef_, intercept_, kernel_, C_
        The model."""


class LSSVCCV(ExpansionClassifier, LeaveOneOutSearch):
    __doc__ = f"""Least-squares support vector classifier that chooses C and the kernel by closed-form leave-one-out.

    Parameters
    ----------
    {_PARAMETERS}
        `"accuracy"` by default, or `"balanced_accuracy"`.
    class_weight : dict, "balanced" or None, default=None
    probability : {{"softmax", "sigmoid", False}}, default="softmax"
    dtype, device, memory_budget
        As in `LSSVC`.

    Attributes
    ----------
    {_ATTRIBUTES}
    classes_ : ndarray

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from gramless import LSSVCCV
    >>> X, y = load_wine(return_X_y=True)
    >>> search = LSSVCCV(param_grid={{"gamma": [0.01, 0.1]}}).fit(StandardScaler().fit_transform(X), y)
    >>> search.best_score_ > 0.97
    True
    """

    def __init__(
        self,
        *,
        Cs: Sequence[float] = _DEFAULT_CS,
        kernel: Any = "rbf",
        param_grid: dict[str, Sequence[Any]] | None = None,
        scoring: Any = None,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
    ):
        super().__init__(
            Cs=Cs,
            kernel=kernel,
            param_grid=param_grid,
            scoring=scoring,
            dtype=dtype,
            device=device,
            memory_budget=memory_budget,
        )
        self.class_weight = class_weight
        self.probability = probability

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVCCV:
        """Search and keep the best model."""
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid"})
        X = self._check_X(X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        if len(np.unique(codes[kept])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        used = None if weights is None else weights[kept]
        metric = self._metric(_CLASSIFICATION_SCORES, "accuracy")
        truth = self.classes_[codes[kept]]

        def score(loo: np.ndarray) -> float:
            return metric(truth, scores_to_labels(self.classes_, loo), sample_weight=used)

        self._fit_path(X, class_targets(codes, len(self.classes_)), weights, score)
        self.__dict__.pop("sigmoids_", None)
        if self.probability == "sigmoid":
            self.sigmoids_ = fit_sigmoids(self.loo_decision_, codes[kept], len(self.classes_), used)
        return self


class LSSVRCV(ExpansionRegressor, LeaveOneOutSearch):
    __doc__ = f"""Least-squares support vector regressor that chooses C and the kernel by closed-form leave-one-out.

    Parameters
    ----------
    {_PARAMETERS}
        `"neg_mean_squared_error"` by default, `"neg_mean_absolute_error"` or `"r2"`.
    dtype, device, memory_budget
        As in `LSSVR`.

    Attributes
    ----------
    {_ATTRIBUTES}

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVRCV
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> LSSVRCV(param_grid={{"gamma": [0.1, 1.0]}}).fit(X, np.sin(X[:, 0])).best_score_ > -1e-4
    True
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVRCV:
        """Search and keep the best model."""
        X = self._check_X(X)
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        Z = targets.reshape(X.shape[0], -1)
        weights = check_weights(sample_weight, X)
        kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        used = None if weights is None else weights[kept]
        metric = self._metric(_REGRESSION_SCORES, "neg_mean_squared_error")
        truth = targets[kept]
        self._fit_path(X, Z, weights, lambda loo: metric(truth, loo.reshape(truth.shape), sample_weight=used))
        return self
