"""Least squares on a shrinking set of active rows: the iteration, and two linear systems for the fits of the iteration.

`shrink` fits a model to the active rows, determines from the scores which rows stay active, discards the other rows, and
repeats until no row is discarded. The rows are in memory or on distributed workers.

With a fixed set of landmarks (`BasisRows`), the sums of the discarded rows are subtracted from the normal equations. The
sums are recomputed if fewer rows stay active than are discarded, or if the rounding errors of the subtraction are not
negligible relative to the ridge. With the active rows as landmarks (`ActiveSetRows`), each step fits a least-squares support
vector machine to the active rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter, is_not
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.progress import Progress
from gramless._core.targets.columns import scores_to_labels, split_bias
from gramless._core.threads import slices
from gramless.approximation.features.landmark_map import Whitening
from gramless.approximation.landmarks import as_points
from gramless.kernels.base import Kernel
from gramless.linalg.operators import KernelOperator, cross, evaluate, expand
from gramless.linalg.solvers import Cholesky, solve
from gramless.streaming.learners.ridge_sums import RidgeSums


@dataclass(frozen=True)
class ActiveRule:
    """Ridge of the fits, and bounds of the margins of rows that stay active, as in the paper cited in `RiSVOClassifier`."""

    gamma_l: float
    gamma_u: float
    zeta_l: float
    zeta_u: float
    check_inclusion: bool = False
    """Whether discarded rows are also scored, and counted as violations if they satisfy the rule again."""
    rho: float = 1e-3
    reduction: str = "sum"
    """Whether `rho` is the ridge for the sum of the squared errors (`"sum"`) or for their mean (`"mean"`)."""

    def ridge_on_sum(self, weight: float) -> float:
        """Return the ridge for the sum of the squared errors, given the total weight of the rows."""
        return self.rho * weight if self.reduction == "mean" else self.rho

    def stays(self, margins: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that stay active, given the margins (targets times scores) and class codes of rows."""
        k = margins.shape[1]
        own = margins[np.arange(len(codes)), codes] if k > 1 else margins[:, 0]
        others = (margins.sum(axis=1) - own) / (k - 1) if k > 1 else own
        return ((self.gamma_l < own) & (own < self.gamma_u)) | ((self.zeta_l < others) & (others < self.zeta_u))


def signed_targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return one target column per class, +1 for rows of the class and -1 for other rows; two classes have one column."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return 2 * np.eye(n_classes)[codes] - 1


@dataclass(frozen=True)
class RowStates:
    """Class codes of rows, and masks of the rows in each state."""

    codes: np.ndarray
    n_classes: int
    used: np.ndarray
    """Rows of positive weight."""
    active: np.ndarray
    stays: np.ndarray
    """Rows that satisfied the rule for active rows in the last fit."""
    wrong: np.ndarray
    """Rows misclassified by their most recent score."""
    violations: np.ndarray
    """Discarded rows that satisfied the rule for active rows in a later fit."""

    @classmethod
    def start(cls, codes: np.ndarray, n_classes: int, weights: np.ndarray | None) -> RowStates:
        """Return the initial states, in which all rows of positive weight are active."""
        used = np.ones(len(codes), dtype=bool) if weights is None else weights > 0
        none = np.zeros(len(codes), dtype=bool)
        return cls(codes, n_classes, used, used, used, none, none)

    def scored(self, rule: ActiveRule) -> np.ndarray:
        """Return the indices of the rows that are scored after a fit."""
        return np.flatnonzero(self.used if rule.check_inclusion else self.active)

    def after(self, scores: np.ndarray, rule: ActiveRule) -> RowStates:
        """Return the states after a fit, from the scores of the rows `scored(rule)`."""
        seen = self.scored(rule)
        codes, stays, wrong = self.codes[seen], np.zeros_like(self.active), self.wrong.copy()
        stays[seen] = rule.stays(signed_targets(codes, self.n_classes).astype(scores.dtype) * scores, codes)
        wrong[seen] = scores_to_labels(np.arange(self.n_classes), scores) != codes
        outside = self.used & ~self.active
        return replace(self, stays=stays, wrong=wrong, violations=self.violations | (outside & stays))

    def without_discarded(self) -> RowStates:
        """Return the states after the rows that do not stay active were discarded."""
        active = self.active & self.stays
        return replace(self, active=active, stays=active)

    def counts(self) -> dict[str, Any]:
        """Return the number of rows in each state, for sums over partitions; `kept` has one number per class."""
        return {
            "used": int(self.used.sum()),
            "active": int(self.active.sum()),
            "kept": np.bincount(self.codes[self.active & self.stays], minlength=self.n_classes),
            "wrong": int(self.wrong[self.used].sum()),
            "violations": int((self.stays & ~self.active).sum()),
        }


@dataclass(frozen=True)
class ActiveModel:
    """Kernel expansion fitted to the active rows."""

    points: Any
    support: Any
    """Row indices of the points in the training data; None if the points are not training rows."""
    coef: Array
    bias: Array
    jitter: float
    """Number added to the diagonal of the kernel matrix of the points."""
    condition: float
    added_jitter: float
    """Number added to the diagonal of the normal equations."""


def shrink(
    rows: ActiveRows,
    *,
    max_iter: int,
    present: np.ndarray,
    check_inclusion: bool = False,
    callback: Callable[[dict[str, Any]], bool] | None = None,
    verbose: int = 0,
    label: str = "",
) -> tuple[list[dict[str, Any]], str]:
    """Fit and discard rows until the active set is stable; return one record for each fit and the reason for the end.

    `present` is a mask of the classes that have rows; the iteration ends before such a class loses its last active row. The
    recorded time excludes `callback`, and the iteration ends if `callback` returns True. `label` is shown with the progress.
    """
    history: list[dict[str, Any]] = []
    elapsed = 0.0
    with Progress(verbose, max_iter, label) as progress:
        for n_iter in range(1, max_iter + 1):
            clock = time.perf_counter()
            if n_iter > 1:
                rows.discard()
            counts, updated_by, condition = rows.fit()
            elapsed += time.perf_counter() - clock
            record: dict[str, Any] = {
                "n_iter": n_iter,
                "seconds": elapsed,
                "active": counts["active"],
                "discarded": counts["active"] - int(counts["kept"].sum()),
                "training_error": counts["wrong"] / counts["used"],
                "updated_by": updated_by,
                "condition": condition,
            }
            if check_inclusion:
                record["violations"] = counts["violations"]
            history.append(record)
            stopped = callback is not None and callback(record)
            progress.update(record)
            if stopped:
                return history, f"stopped by the callback after {n_iter} steps"
            if record["discarded"] == 0:
                return history, f"the active set is stable after {n_iter} steps"
            if (counts["kept"][present] == 0).any():
                return history, f"after {n_iter} steps a class would have no active row"
    return history, f"reached max_iter={max_iter}"


def should_sum_again(sums: RidgeSums, ridge: float, *, tolerance: float = 1e-3, min_decrease: float = 10.0) -> bool:
    """Return whether the rounding errors of subtractions exceed `tolerance * ridge` and a new summation has smaller errors.

    A new summation has smaller errors if the sums were at least `min_decrease` times larger before the subtractions.
    """
    return sums.rounding > tolerance * ridge and sums.largest > min_decrease * sums.trace


@dataclass(frozen=True)
class Basis:
    """Landmarks, and the Cholesky factor that whitens kernel values with the landmarks."""

    kernel: Kernel
    points: Any
    """The landmarks, or the full kernel matrix if the kernel is precomputed."""
    support: Any
    """Row indices of the landmarks in the training data; None if the landmarks are not training rows."""
    whitening: Whitening

    @classmethod
    def of(cls, kernel: Kernel, X: Array, landmarks: Array, dtype: Any) -> Basis:
        """Return the basis of `landmarks` (row indices of `X`, or points), with jitter for kernel values of type `dtype`."""
        support = landmarks if landmarks.ndim == 1 else None
        if not kernel.uses_points:
            return cls(kernel, X, support, Whitening(cross(kernel, X, landmarks, landmarks, np.float64), dtype))
        points = as_points(landmarks, X)
        double = xa.astype(points, np.float64)
        return cls(kernel, points, support, Whitening(evaluate(kernel, double, double), dtype))

    def values(self, X: Array, rows: Any) -> Array:
        """Return the kernel values of the given rows of `X` with the landmarks."""
        if not self.kernel.uses_points:
            return cross(self.kernel, X, rows, self.support)
        return evaluate(self.kernel, xa.take_rows(X, rows), self.points)


@dataclass(frozen=True)
class TrainingRows:
    """Training rows, of all data or of one partition, for a fit on a basis."""

    X: Array
    weights: Array | None
    rows_at_a_time: int
    values: Array | None = None
    """Kernel values of all rows with the landmarks, if they are stored."""


def sum_rows(rows: TrainingRows, state: RowStates, basis: Basis, leaving: bool) -> RidgeSums:
    """Return the normal equations of the rows that stay active, or with `leaving` of the rows that will be discarded."""
    numbers = np.flatnonzero(state.active & ~state.stays if leaving else state.active & state.stays)
    L = basis.whitening.L
    total = RidgeSums(int(L.shape[0]), 1 if state.n_classes == 2 else state.n_classes, L)
    for block in slices(len(numbers), rows.rows_at_a_time):
        idx = numbers[block]
        values = basis.values(rows.X, idx) if rows.values is None else xa.take_rows(rows.values, idx)
        features = basis.whitening.features(values)
        weights = None if rows.weights is None else xa.take_rows(rows.weights, idx)
        total.add(features, xa.like(signed_targets(state.codes[idx], state.n_classes), features), weights)
    return total


def subtract(total: RidgeSums, part: RidgeSums, rule: ActiveRule) -> RidgeSums | None:
    """Return `total - part`, or None if the rounding errors of the difference are too large."""
    left = total.copy().subtract(part)
    return None if should_sum_again(left, rule.ridge_on_sum(left.weight)) else left


def solve_sums(total: RidgeSums, basis: Basis, rule: ActiveRule, dtype: Any) -> ActiveModel:
    """Return the solution of the normal equations as a model with coefficients in `dtype`."""
    solution = total.solve(rule.ridge_on_sum(total.weight))
    coef = xa.astype(basis.whitening.coefficients(solution.A), dtype)
    bias, condition = xa.astype(solution.bias, dtype), float(solution.condition)
    return ActiveModel(basis.points, basis.support, coef, bias, basis.whitening.jitter, condition, solution.cut)


def score_rows(rows: TrainingRows, state: RowStates, basis: Basis, model: ActiveModel, rule: ActiveRule) -> RowStates:
    """Score the active rows, or with `check_inclusion` all rows, and return the states after the fit."""
    numbers = state.scored(rule)
    if rows.values is not None:
        blocks = [numbers[block] for block in slices(len(numbers), rows.rows_at_a_time)]
        scores = xa.namespace(model.coef).concat([xa.take_rows(rows.values, idx) @ model.coef for idx in blocks])
    elif basis.kernel.uses_points:
        scores = expand(basis.kernel, xa.take_rows(rows.X, numbers), basis.points, model.coef)
    else:
        scores = basis.values(rows.X, numbers) @ model.coef
    return state.after(xa.to_numpy(scores + model.bias), rule)


class BasisRows:
    """Ridge regression on a basis, for the active rows of one or several partitions.

    A subclass for distributed workers overrides `_call`, `_call_for_each`, `_merge`, `_values` and `numbers`.
    """

    def __init__(self, partitions: list[Any], states: list[Any], basis: Any, rule: ActiveRule, dtype: Any):
        self.partitions, self.states, self.basis, self.rule, self.dtype = partitions, states, basis, rule, dtype
        self._total, self._updated_by = self._sum(leaving=False), "summation"
        self._counts: dict[str, Any] = {}
        self._model: Any = None

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function."""
        return function(*arguments)

    def _call_for_each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """Return the results of a function that is called with the rows and the states of each partition."""
        pairs = zip(self.partitions, self.states, strict=True)
        return [self._call(function, rows, state, *shared) for rows, state in pairs]

    def _merge(self, sums: list[Any]) -> Any:
        """Return the total over all partitions, given the sums of each partition."""
        return sums[0]

    def _values(self, *results: Any) -> Any:
        """Return the values of results, which are futures in the subclass for distributed workers."""
        return results

    def numbers(self, mask: str) -> Any:
        """Return the indices of the rows that are True in the mask of `RowStates` with the name `mask`."""
        return np.flatnonzero(getattr(self.states[0], mask))

    def _sum(self, *, leaving: bool) -> Any:
        return self._merge(self._call_for_each(sum_rows, self.basis, leaving))

    def fit(self) -> tuple[dict[str, Any], str, float]:
        """Fit the model to the active rows, score the rows and determine which rows stay active.

        Return the number of rows in each state, how the sums were computed, and the condition number of the linear system.
        """
        self._model = self._call(solve_sums, self._total, self.basis, self.rule, self.dtype)
        self.states = self._call_for_each(score_rows, self.basis, self._model, self.rule)
        counts = [self._call(RowStates.counts, state) for state in self.states]
        condition, *counts = self._values(self._call(attrgetter("condition"), self._model), *counts)
        self._counts = {key: sum(count[key] for count in counts) for key in counts[0]}
        return self._counts, self._updated_by, condition

    def discard(self) -> None:
        """Discard rows: subtract their sums, or sum the remaining rows if these are fewer or rounding errors are large."""
        kept = int(self._counts["kept"].sum())
        removed, usable = None, False
        if self._counts["active"] - kept < kept:
            removed = self._call(subtract, self._total, self._sum(leaving=True), self.rule)
            (usable,) = self._values(self._call(is_not, removed, None))
        self._updated_by = "removal" if usable else "summation"
        self._total = removed if usable else self._sum(leaving=False)
        self.states = [self._call(RowStates.without_discarded, state) for state in self.states]

    def model(self) -> ActiveModel:
        """Return the model of the last fit."""
        (model,) = self._values(self._model)
        return model


class ActiveSetRows:
    """Least-squares SVM on the active rows S, the solution of `(K_S + diag(ridge / weights)) A + b = Z_S`, `sum A = 0`."""

    def __init__(self, X: Array, kernel: Kernel, Z: Array, weights: Array | None, states: RowStates, rule: ActiveRule):
        self.X, self.kernel, self.Z, self.states, self.rule = X, kernel, Z, states, rule
        self._weights = np.ones(X.shape[0]) if weights is None else xa.to_numpy(weights)

    def numbers(self, mask: str) -> np.ndarray:
        """Return the indices of the rows that are True in the mask of `RowStates` with the name `mask`."""
        return np.flatnonzero(getattr(self.states, mask))

    def fit(self) -> tuple[dict[str, Any], str, float]:
        """Fit the model to the active rows, score the rows and determine which rows stay active.

        Return the number of rows in each state, `"summation"`, and NaN for the condition number, which is not computed.
        """
        rows = self.numbers("active")
        points = xa.take_rows(self.X, rows) if self.kernel.uses_points else self.X[np.ix_(rows, rows)]
        ridge = self.rule.ridge_on_sum(float(self._weights[rows].sum())) / np.maximum(self._weights, np.finfo(float).tiny)
        op = KernelOperator(points, self.kernel, ridge[rows])
        ones = xa.zeros((len(rows), 1), self.Z) + 1
        Z = xa.namespace(self.Z).concat([xa.take_rows(self.Z, rows), ones], axis=1)
        self._rows, self._coef, self._bias = rows, *split_bias(xa.to_numpy(solve(op, Z, Cholesky()).W))
        self.states = self.states.after(self._scores(self.states.scored(self.rule), ridge), self.rule)
        return self.states.counts(), "summation", np.nan

    def _scores(self, rows: np.ndarray, ridge: np.ndarray) -> np.ndarray:
        """Return the scores of the given rows; scores of active rows follow from the linear system without kernel values."""
        scores = np.empty((len(rows), self._coef.shape[1]), self._coef.dtype)
        at = np.searchsorted(self._rows, rows).clip(max=len(self._rows) - 1)
        fitted = self._rows[at] == rows
        residuals = ridge[rows[fitted], None] * self._coef[at[fitted]]
        scores[fitted] = xa.to_numpy(xa.take_rows(self.Z, rows[fitted])) - residuals
        others = rows[~fitted]
        if len(others) and self.kernel.uses_points:
            points = xa.take_rows(self.X, self._rows)
            values = expand(self.kernel, xa.take_rows(self.X, others), points, xa.like(self._coef, self.Z))
            scores[~fitted] = xa.to_numpy(values) + self._bias
        elif len(others):
            scores[~fitted] = self.X[np.ix_(others, self._rows)] @ self._coef + self._bias
        return scores

    def discard(self) -> None:
        """Remove the rows that do not stay active from the active set."""
        self.states = self.states.without_discarded()

    def model(self) -> ActiveModel:
        """Return the model of the last fit."""
        points = xa.take_rows(self.X, self._rows) if self.kernel.uses_points else self.X
        coef, bias = xa.like(self._coef, self.Z), xa.like(self._bias, self.Z)
        return ActiveModel(points, self._rows, coef, bias, jitter=0.0, condition=np.nan, added_jitter=0.0)


ActiveRows = BasisRows | ActiveSetRows
