"""Least squares on a shrinking set of active rows: the iteration, and the two linear systems that it solves.

`shrink` fits to the active rows, determines which rows stay active, discards the others, and repeats until no row is
discarded. The rows are in memory or on distributed workers; both implement `ActiveRows`.

On a fixed basis `G`, the sums of the discarded rows are subtracted from the normal equations. The sums are recomputed from
the active rows if these are fewer, or if the rounding errors of the subtracted rows are not negligible beside the ridge.
On the active set itself (`G = S`), each step solves a least-squares support vector machine on the active rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.progress import Progress
from gramless._core.targets.columns import scores_to_labels, split_bias
from gramless._core.threads import slices
from gramless.approximation.features.landmark_map import Whitening
from gramless.kernels.base import Kernel
from gramless.linalg.operators import KernelOperator, cross, evaluate, expand
from gramless.linalg.solvers import Cholesky, solve
from gramless.streaming.learners.ridge_sums import RidgeSums


@dataclass(frozen=True)
class ActiveRule:
    """Bounds of the margins between which a row stays active, by rule (7) of the paper."""

    gamma_l: float
    gamma_u: float
    zeta_l: float
    zeta_u: float
    check_inclusion: bool = False
    """Whether discarded rows are scored too, and counted if they satisfy the rule."""

    def stays(self, margins: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that stay active by their margins (targets times scores)."""
        k = margins.shape[1]
        own = margins[np.arange(len(codes)), codes] if k > 1 else margins[:, 0]
        others = (margins.sum(axis=1) - own) / (k - 1) if k > 1 else own
        return ((self.gamma_l < own) & (own < self.gamma_u)) | ((self.zeta_l < others) & (others < self.zeta_u))


def signed_targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return target columns with +1 for the own class and -1 for the others; one column for two classes."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return 2 * np.eye(n_classes)[codes] - 1


@dataclass(frozen=True)
class RowStates:
    """Class codes of rows, and masks of the rows in each state."""

    codes: np.ndarray
    used: np.ndarray
    """Rows of positive weight."""
    active: np.ndarray
    stays: np.ndarray
    """Rows that the last fit would keep active."""
    wrong: np.ndarray
    """Rows misclassified by their most recent score."""
    violations: np.ndarray
    """Discarded rows that satisfied the rule for active rows later."""

    @classmethod
    def start(cls, codes: np.ndarray, weights: np.ndarray | None) -> RowStates:
        """Return the states in which all rows of positive weight are active."""
        used = np.ones(len(codes), dtype=bool) if weights is None else weights > 0
        none = np.zeros(len(codes), dtype=bool)
        return cls(codes, used, used, used, none, none)

    def scored(self, rule: ActiveRule) -> np.ndarray:
        """Return the mask of the rows that are scored after a fit."""
        return self.used if rule.check_inclusion else self.active

    def after(self, scores: np.ndarray, rule: ActiveRule) -> RowStates:
        """Return the states after a fit, from the scores of the rows `scored(rule)`."""
        seen, k = self.scored(rule), max(2, scores.shape[1])
        codes, stays, wrong = self.codes[seen], np.zeros_like(self.active), self.wrong.copy()
        stays[seen] = rule.stays(signed_targets(codes, k).astype(scores.dtype) * scores, codes)
        wrong[seen] = scores_to_labels(np.arange(k), scores) != codes
        outside = self.used & ~self.active
        return replace(self, stays=stays, wrong=wrong, violations=self.violations | (outside & stays))

    def without_discarded(self) -> RowStates:
        """Return the states in which only the rows that stay are active."""
        active = self.active & self.stays
        return replace(self, active=active, stays=active)

    def counts(self, n_classes: int) -> dict[str, Any]:
        """Return the numbers of rows in each state, which are summed over partitions; `kept` has one number per class."""
        return {
            "used": int(self.used.sum()),
            "active": int(self.active.sum()),
            "kept": np.bincount(self.codes[self.active & self.stays], minlength=n_classes),
            "wrong": int(self.wrong[self.used].sum()),
            "violations": int((self.stays & ~self.active).sum()),
        }


@dataclass
class ActiveStep:
    """Numbers of rows after a fit to the active rows, how its sums were computed, and its condition number."""

    counts: dict[str, Any]
    """Sums of `RowStates.counts`."""
    updated_by: str
    """How the sums were computed: "summation" over the active rows, or "removal" of the discarded rows."""
    condition: float
    """Condition number of the system."""


@dataclass(frozen=True)
class ActiveModel:
    """Kernel expansion fitted to the active rows."""

    points: Any
    support: Any
    """Row numbers of the points; None if the points are no rows of the data."""
    coef: Array
    bias: Array
    jitter: float
    """Number added to the diagonal of the kernel matrix of the points."""
    condition: float
    added_jitter: float
    """Number added to the diagonal of the normal equations."""


class ActiveRows(Protocol):
    """Training rows with a subset of active rows."""

    def fit(self) -> ActiveStep:
        """Fit to the active rows and determine which of them stay active."""

    def discard(self) -> None:
        """Remove the rows that do not stay active."""

    def model(self) -> ActiveModel:
        """Return the model of the last fit."""

    def numbers(self, mask: str) -> Any:
        """Return the indices of the rows in a mask of `RowStates`."""


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

    `present` is a mask of the classes that have rows: the iteration ends before one of them has no active row. The time of
    `callback` is not counted, and the iteration ends if `callback` returns True. `label` names the progress messages.
    """
    history: list[dict[str, Any]] = []
    elapsed = 0.0
    with Progress(verbose, max_iter, label) as progress:
        for n_iter in range(1, max_iter + 1):
            clock = time.perf_counter()
            if n_iter > 1:
                rows.discard()
            step = rows.fit()
            counts = step.counts
            elapsed += time.perf_counter() - clock
            record: dict[str, Any] = {
                "n_iter": n_iter,
                "seconds": elapsed,
                "active": counts["active"],
                "discarded": counts["active"] - int(counts["kept"].sum()),
                "training_error": counts["wrong"] / counts["used"],
                "updated_by": step.updated_by,
                "condition": step.condition,
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
    """Return whether the rounding errors of subtracted rows exceed `tolerance * ridge` and a new summation avoids them.

    It avoids them if the sums were at least `min_decrease` times larger before; else a new summation rounds as much.
    """
    return sums.rounding > tolerance * ridge and sums.largest > min_decrease * sums.trace


def ridge_on_sum(ridge: float, reduction: str, weight: float) -> float:
    """Return the ridge of the sum of squared errors that equals `ridge` of their sum or mean over rows of total `weight`."""
    return ridge * weight if reduction == "mean" else ridge


def sums_over(
    rows: np.ndarray,
    whitening: Whitening,
    values: Callable[[np.ndarray], Array],
    Z: Array,
    weights: Array | None,
    rows_at_a_time: int,
) -> RidgeSums:
    """Return the normal equations of the whitened kernel values of rows; `values(idx)` returns those of some rows."""
    if len(rows) == 0:
        raise ValueError("there are no rows to fit")
    total = RidgeSums(int(whitening.L.shape[0]), int(Z.shape[1]), Z)
    for part in slices(len(rows), rows_at_a_time):
        idx = rows[part]
        own_weights = None if weights is None else xa.take_rows(weights, idx)
        total.add(whitening.features(values(idx)), xa.take_rows(Z, idx), own_weights)
    return total


def solve_sums(sums: RidgeSums, whitening: Whitening, ridge: float, dtype: Any) -> tuple[Array, Array, float, float]:
    """Return coefficients and bias of the normal equations, their condition number, and the jitter added to them."""
    solution = sums.solve(ridge)
    coef, bias = whitening.coefficients(solution.A), solution.bias
    return xa.astype(coef, dtype), xa.astype(bias, dtype), float(solution.condition), solution.cut


class BasisRidge:
    """Ridge regression on landmark features, for a set of rows that shrinks from call to call.

    `reduction` is "sum" or "mean" of the squared errors. `store_values` stores `K(X, landmarks)` (n m numbers) instead of
    computing its rows at each use. With `allow_removal=False` the sums are recomputed in each call instead of subtracting
    the discarded rows.
    """

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        landmarks: Array,
        Z: Array,
        weights: Array | None,
        ridge: float,
        *,
        rows_at_a_time: int,
        store_values: bool,
        allow_removal: bool = True,
        reduction: str = "sum",
    ):
        self.X, self.kernel, self.landmarks = X, kernel, landmarks
        self.Z, self.weights, self.ridge, self.reduction = Z, weights, ridge, reduction
        self.rows_at_a_time, self.allow_removal = rows_at_a_time, allow_removal
        dtype = xa.numpy_dtype(Z)
        self._map = Whitening(self._gram(), dtype)
        self.jitter = self._map.jitter
        self._stored_values = self._values(slice(0, X.shape[0])) if store_values else None
        self._sums: RidgeSums | None = None
        self._rows = np.empty(0, dtype=np.intp)
        self.updated_by = ""
        self.condition = np.nan
        self.added_jitter = 0.0

    def _gram(self) -> Array:
        if self.landmarks.ndim == 1:
            return cross(self.kernel, self.X, self.landmarks, self.landmarks, np.float64)
        points = xa.astype(self.landmarks, np.float64)
        return evaluate(self.kernel, points, points)

    def _values(self, rows: Any) -> Array:
        if self.landmarks.ndim == 1:
            return cross(self.kernel, self.X, rows, self.landmarks)
        return evaluate(self.kernel, xa.take_rows(self.X, rows), self.landmarks)

    def _sums_over(self, rows: np.ndarray) -> RidgeSums:
        def values(idx: np.ndarray) -> Array:
            return self._values(idx) if self._stored_values is None else xa.take_rows(self._stored_values, idx)

        return sums_over(rows, self._map, values, self.Z, self.weights, self.rows_at_a_time)

    def _update(self, rows: np.ndarray) -> RidgeSums:
        discarded = np.setdiff1d(self._rows, rows, assume_unique=True)
        if self._sums is not None and len(discarded) == 0:
            return self._sums
        if self._sums is not None and self.allow_removal and len(discarded) < len(rows):
            self._sums.subtract(self._sums_over(discarded))
            if not should_sum_again(self._sums, ridge_on_sum(self.ridge, self.reduction, self._sums.weight)):
                self.updated_by = "removal"
                return self._sums
        self.updated_by = "summation"
        return self._sums_over(rows)

    def solve(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Return coefficients and bias of the fit to `rows`, a subset of the rows of the previous call."""
        self._sums = self._update(rows)
        self._rows = rows
        ridge = ridge_on_sum(self.ridge, self.reduction, self._sums.weight)
        solved = solve_sums(self._sums, self._map, ridge, xa.numpy_dtype(self.Z))
        self._coef, self._bias, self.condition, self.added_jitter = solved
        return self._coef, self._bias

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the scores of the given rows of `X`."""
        if self._stored_values is not None:
            parts = [
                xa.take_rows(self._stored_values, rows[part]) @ self._coef for part in slices(len(rows), self.rows_at_a_time)
            ]
            scores = xa.namespace(self._coef).concat(parts)
        elif self.landmarks.ndim == 1 and not self.kernel.uses_points:
            scores = self._values(rows) @ self._coef
        else:
            points = self.landmarks if self.landmarks.ndim == 2 else xa.take_rows(self.X, self.landmarks)
            scores = expand(self.kernel, xa.take_rows(self.X, rows), points, self._coef)
        return xa.to_numpy(scores + self._bias)


class ActiveSetLSSVM:
    """A least-squares support vector machine on the active rows: `(K_S + ridge I) A + b = Z_S`, `sum A = 0`."""

    jitter = 0.0
    added_jitter = 0.0
    updated_by = "summation"

    def __init__(self, X: Array, kernel: Kernel, Z: Array, weights: Array | None, ridge: float, *, reduction: str = "sum"):
        self.X, self.kernel, self.Z, self.ridge, self.reduction = X, kernel, Z, ridge, reduction
        self._weights = np.ones(X.shape[0]) if weights is None else xa.to_numpy(weights)
        self.condition = np.nan

    def solve(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Return coefficients and bias of the fit to `rows`."""
        points = xa.take_rows(self.X, rows) if self.kernel.uses_points else self.X[np.ix_(rows, rows)]
        ridge = ridge_on_sum(self.ridge, self.reduction, float(self._weights[rows].sum()))
        self._ridge = ridge / np.maximum(self._weights, np.finfo(float).tiny)
        op = KernelOperator(points, self.kernel, self._ridge[rows])
        ones = xa.zeros((len(rows), 1), self.Z) + 1
        Z = xa.namespace(self.Z).concat([xa.take_rows(self.Z, rows), ones], axis=1)
        coef, bias = split_bias(xa.to_numpy(solve(op, Z, Cholesky()).W))
        self._rows, self._coef, self._bias = rows, coef, bias
        return xa.like(coef, self.Z), xa.like(bias, self.Z)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the scores of the given rows of `X`; scores of fitted rows follow from the linear system."""
        scores = np.empty((len(rows), self._coef.shape[1]), self._coef.dtype)
        at = np.searchsorted(self._rows, rows).clip(max=len(self._rows) - 1)
        fitted = self._rows[at] == rows
        residuals = self._ridge[rows[fitted], None] * self._coef[at[fitted]]
        scores[fitted] = xa.to_numpy(xa.take_rows(self.Z, rows[fitted])) - residuals
        others = rows[~fitted]
        if len(others) and self.kernel.uses_points:
            points = xa.take_rows(self.X, self._rows)
            values = expand(self.kernel, xa.take_rows(self.X, others), points, xa.like(self._coef, self.Z))
            scores[~fitted] = xa.to_numpy(values) + self._bias
        elif len(others):
            scores[~fitted] = self.X[np.ix_(others, self._rows)] @ self._coef + self._bias
        return scores
