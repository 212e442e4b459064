"""Least squares on a shrinking set of rows: the iteration, and the two systems that it solves again and again.

`shrink` is the iteration: fit to the active rows, see who stays, let the others leave, until nobody does. The rows are here
or on many machines; it knows them by what they answer (`ActiveRows`).

On a basis `G` that stays, the normal equations of the rows' features are kept up to date by taking away the contribution
of the rows that leave; they are built anew when that is cheaper, or when so much has been taken away that rounding of what
was there before would show in what is left. On the active set itself (`G = S`), each step is a least-squares support vector
machine on the rows that are left, and shrinks with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.progress import Progress
from gramless._core.targets.columns import split_bias
from gramless._core.threads import slices
from gramless.approximation.features.landmark_map import Whitening
from gramless.approximation.landmarks.rule import cross
from gramless.kernels.base import Kernel
from gramless.linalg.operators import KernelOperator, evaluate, expand
from gramless.linalg.solvers import Cholesky, solve
from gramless.streaming.learners.ridge_sums import RidgeSums


@dataclass
class ActiveStep:
    """What one fit to the active rows came to."""

    active: int
    """Rows that it was fitted to."""
    kept: np.ndarray
    """Of each class, the rows among them that stay."""
    training_error: float
    """Share of all rows that are wrong by the last score each got."""
    updated_by: str
    """How the system was made: "summation", or "removal" of the rows that had left."""
    condition: float
    """Condition number of the system."""
    violations: int | None = None
    """Rows that had left and would come back, where that was looked at."""


class ActiveRows(Protocol):
    """Rows of which some are active."""

    def fit(self) -> ActiveStep:
        """Fit to the active rows, and see who stays."""

    def leave(self) -> None:
        """Let those go that do not stay."""


def shrink(
    rows: ActiveRows,
    *,
    max_iter: int,
    present: np.ndarray,
    callback: Callable[[dict[str, Any]], bool] | None = None,
    verbose: int = 0,
    label: str = "",
) -> tuple[list[dict[str, Any]], str]:
    """Fit to ever fewer rows until the active set is stable.

    Parameters
    ----------
    rows : ActiveRows
        Ends with the rows of the last fit active.
    max_iter : int
        Fits at most.
    present : ndarray of bool
        Which classes have rows at all: none of them may lose its last.
    callback : callable(record) -> bool, optional
        Called after each fit; its time is not counted, and a true answer ends the iteration.
    verbose : int, default=0
        1 shows progress, under the name `label`.
    label : str, default=""
        What progress is called.

    Returns
    -------
    history : list of dict
        A record for each fit.
    message : str
        Why the iteration ended.
    """
    history: list[dict[str, Any]] = []
    elapsed = 0.0
    with Progress(verbose, max_iter, label) as progress:
        for n_iter in range(1, max_iter + 1):
            clock = time.perf_counter()
            if n_iter > 1:
                rows.leave()
            step = rows.fit()
            elapsed += time.perf_counter() - clock
            record: dict[str, Any] = {
                "n_iter": n_iter,
                "seconds": elapsed,
                "active": step.active,
                "discarded": step.active - int(step.kept.sum()),
                "training_error": step.training_error,
                "updated_by": step.updated_by,
                "condition": step.condition,
            }
            if step.violations is not None:
                record["violations"] = step.violations
            history.append(record)
            stopped = callback is not None and callback(record)
            progress.update(record)
            if stopped:
                return history, f"stopped by the callback after {n_iter} steps"
            if record["discarded"] == 0:
                return history, f"the active set is stable after {n_iter} steps"
            if (step.kept[present] == 0).any():
                return history, f"after {n_iter} steps a class would have no active pattern left"
    return history, f"reached max_iter={max_iter}"


def worth_summing_again(sums: RidgeSums, ridge: float, *, tolerated: float = 1e-3, larger: float = 10.0) -> bool:
    """Whether rounding of rows that have left shows, beside this ridge, and summing again would be rid of it.

    Parameters
    ----------
    sums : RidgeSums
        Of the rows that are left.
    ridge : float
        What is added to their diagonal.
    tolerated : float, default=1e-3
        The share of the ridge that inherited rounding may reach.
    larger : float, default=10.0
        How many times larger the sums must have been: else rounding of their own is as large.
    """
    return sums.rounding > tolerated * ridge and sums.largest > larger * sums.trace


class OnBasis:
    """Ridge regression on the features of landmarks, over rows that leave.

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
    landmarks : ndarray of int, or array of points
    Z : array of shape (n, k)
    weights : array of shape (n,) or None
    ridge : float
    rows_at_a_time : int
    hold : bool
        Keep `K(X, landmarks)` (`n m` numbers) instead of computing its rows at each use.
    removes : bool, default=True
        Whether rows that leave may be subtracted from the sums; without, what is left is summed again each time.
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
        hold: bool,
        removes: bool = True,
    ):
        self.X, self.kernel, self.landmarks = X, kernel, landmarks
        self.Z, self.weights, self.ridge = Z, weights, ridge
        self.rows_at_a_time, self.removes = rows_at_a_time, removes
        dtype = xa.numpy_dtype(Z)
        self._map = Whitening(self._gram(), dtype)
        self.jitter = self._map.jitter
        self._held = self._values(slice(0, X.shape[0])) if hold else None
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
        if len(rows) == 0:
            raise ValueError("no rows to fit")
        total = RidgeSums(int(self._map.L.shape[0]), int(self.Z.shape[1]), self.Z)
        for part in slices(len(rows), self.rows_at_a_time):
            idx = rows[part]
            values = self._values(idx) if self._held is None else xa.take_rows(self._held, idx)
            weights = None if self.weights is None else xa.take_rows(self.weights, idx)
            total.add(self._map.features(values), xa.take_rows(self.Z, idx), weights)
        return total

    def _update(self, rows: np.ndarray) -> RidgeSums:
        left = np.setdiff1d(self._rows, rows, assume_unique=True)
        if self._sums is not None and len(left) == 0:
            return self._sums
        if self._sums is not None and self.removes and len(left) < len(rows):
            self._sums.subtract(self._sums_over(left))
            if not worth_summing_again(self._sums, self.ridge):
                self.updated_by = "removal"
                return self._sums
        self.updated_by = "summation"
        return self._sums_over(rows)

    def solve(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Coefficients and bias of the fit to `rows`, a subset of the last call's rows."""
        self._sums = self._update(rows)
        self._rows = rows
        solution = self._sums.solve(self.ridge)
        self.condition, self.added_jitter = solution.condition, solution.cut
        dtype = xa.numpy_dtype(self.Z)
        self._coef = xa.astype(self._map.coefficients(solution.A), dtype)
        self._bias = xa.astype(solution.bias, dtype)
        return self._coef, self._bias

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """`f` at some rows of `X`."""
        if self._held is not None:
            parts = [xa.take_rows(self._held, rows[part]) @ self._coef for part in slices(len(rows), self.rows_at_a_time)]
            scores = xa.namespace(self._coef).concat(parts)
        elif self.landmarks.ndim == 1 and not self.kernel.uses_points:
            scores = self._values(rows) @ self._coef
        else:
            points = self.landmarks if self.landmarks.ndim == 2 else xa.take_rows(self.X, self.landmarks)
            scores = expand(self.kernel, xa.take_rows(self.X, rows), points, self._coef)
        return xa.to_numpy(scores + self._bias)


class OnActiveSet:
    """A least-squares support vector machine on the rows that are left: `(K_S + ridge I) A + b = Z_S`, `sum A = 0`."""

    jitter = 0.0
    added_jitter = 0.0
    updated_by = "summation"

    def __init__(self, X: Array, kernel: Kernel, Z: Array, weights: Array | None, ridge: float):
        self.X, self.kernel, self.Z = X, kernel, Z
        n = X.shape[0]
        self._ridge = (
            np.full(n, ridge) if weights is None else ridge / np.maximum(xa.to_numpy(weights), np.finfo(float).tiny)
        )
        self.condition = np.nan

    def solve(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Coefficients and bias of the fit to `rows`."""
        points = xa.take_rows(self.X, rows) if self.kernel.uses_points else self.X[np.ix_(rows, rows)]
        op = KernelOperator(points, self.kernel, self._ridge[rows])
        ones = xa.zeros((len(rows), 1), self.Z) + 1
        Z = xa.namespace(self.Z).concat([xa.take_rows(self.Z, rows), ones], axis=1)
        coef, bias = split_bias(xa.to_numpy(solve(op, Z, Cholesky()).W))
        self._rows, self._coef, self._bias = rows, coef, bias
        return xa.like(coef, self.Z), xa.like(bias, self.Z)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """`f` at some rows of `X`; at the rows of the fit, from the equations they satisfy."""
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
