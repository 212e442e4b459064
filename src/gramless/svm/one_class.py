"""One class: the smallest part of the space that holds a share `1 - nu` of the rows.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is inside where `sum_j alpha_j K(x_j, x)` exceeds the value rho that the free multipliers agree on. It is the dual
problem of every support vector machine with no linear term and another sum, so the same solver takes it from any point with
that sum.

The start decides what a large fit costs. A share nu of all rows end at their bound, whatever the solver does; the start puts
the likely ones there. They are found by fitting an eighth of the rows and scoring all: what the solver then moves are the
few on which the two disagree. The product of the kernel with the start is computed once, streamed: O(nu n^2 d), no rows
kept. Of many rows it is taken in float32, and its error is measured on a sample of them. Where that exceeds the tolerance,
only rows near rho can notice: those are computed again in float64, and after the solution it is checked that all others are
farther from rho than the error. On a device the solver sums the product itself, in double precision.

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001), Estimating the support of a high-dimensional
distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.device_rows import rows_on_device
from gramless._core.threads import slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators import byte_rows, expand
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows
from gramless.svm.nu_qp import filled
from gramless.svm.problems import DualSolver, Resources, maximise_together
from gramless.svm.smo import SOLVED_WHOLE
from gramless.svm.watch import Watch

# The part of the rows whose machine says where all rows are likely to end: a 64th of the kernel values.
_SHARE_TO_START = 8
# Products in float32 are summed over so many points, and their sums in float64.
_POINTS_AT_A_TIME = 2048
# Kernel values from which float32 is worth a second, checked way: fewer take less than a second in float64.
_MANY_VALUES = 1e8
_CHECKED_ROWS = 256
# The largest error of all rows is taken to be within this factor of the largest in the sample.
_LARGER_THAN_THE_SAMPLE = 4.0
# The part of the rows whose scores are computed again in float64 where float32 is too coarse: those nearest to the level.
_SHARE_TO_REFINE = 50


def solve_one_class(
    kernel: Kernel,
    X: Any,
    weights: np.ndarray,
    nu: float,
    solver: DualSolver,
    resources: Resources,
    watch: Watch | None = None,
) -> DualSolution:
    """Fit to rows with weights (the upper bounds of their multipliers); `watch` may stop it."""
    watch = Watch() if watch is None else watch
    rng = np.random.default_rng(resources.seed)
    n = weights.size
    order = rng.permutation(n)
    if n > SOLVED_WHOLE:
        order = np.argsort(_first_scores(kernel, X, weights, nu, solver, resources, watch, order), kind="stable")
    start = np.empty(n)
    start[order] = filled(weights[order], nu * weights.sum())
    problem = BoxQP(np.zeros(n), np.zeros(n), weights, start=start)
    if resources.device != "cpu":
        [solution] = maximise_together([problem], [[slice(0, n)]], kernel, X, solver, resources, watch)
        return solution
    points = byte_rows(kernel, X, n // 2)
    rows = GramRows(kernel, points, [slice(0, n)], budget=resources.budget, workers=resources.workers)
    if n <= SOLVED_WHOLE or watch.stopped:
        [solution] = solver.maximise([problem], rows, rng, watch)
        return solution
    scores = _StartingScores.of(kernel, X, weights, start, solver.tol / 4)
    [solution] = solver.maximise([replace(problem, K_start=scores.values)], rows, rng, watch)
    if not watch.stopped and not scores.decide(kernel, X, solution, start):
        exact = _StartingScores.of(kernel, X, weights, solution.beta, 0.0)
        [solution] = solver.maximise([replace(problem, start=solution.beta, K_start=exact.values)], rows, rng, watch)
    return solution


@dataclass(frozen=True)
class _StartingScores:
    """`K @ start`: in float64 near the level that decides, elsewhere to `error`."""

    values: np.ndarray
    error: float
    is_exact: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, X: Any, weights: np.ndarray, start: np.ndarray, error: float) -> _StartingScores:
        """Scores as precise as they must be for conditions that hold to four times `error`; all of them where it is 0."""
        n, idx = X.shape[0], np.flatnonzero(start)
        values, off = _product(kernel, X, idx, start[idx]) if error else (_exact(kernel, X, idx, start[idx]), 0.0)
        is_exact = np.full(n, off <= error)
        if off > error:
            # The start has the multipliers of the lowest scores at their bounds.
            order = np.argsort(values, kind="stable")
            level = values[order[np.searchsorted(np.cumsum(weights[order]), start.sum()).clip(max=n - 1)]]
            near = np.argsort(np.abs(values - level), kind="stable")[: n // _SHARE_TO_REFINE]
            values[near] = _sum(kernel, X[near], X[idx], start[idx])
            is_exact[near] = True
        return cls(values, off, is_exact)

    def decide(self, kernel: Kernel, X: Any, solution: DualSolution, start: np.ndarray) -> bool:
        """Whether no condition of the solution hangs on a score that is known to `error` only."""
        if self.is_exact.all():
            return True
        change = solution.beta - start
        idx = np.flatnonzero(change)
        now = self.values + _product(kernel, X, idx, change[idx])[0]
        near = np.abs(now + solution.bias) <= 2 * self.error + solution.violation
        return not np.any(near & ~self.is_exact)


def _first_scores(
    kernel: Kernel,
    X: Any,
    weights: np.ndarray,
    nu: float,
    solver: DualSolver,
    resources: Resources,
    watch: Watch,
    order: np.ndarray,
) -> np.ndarray:
    """How far inside each row is, by a machine of some rows; those without weight take no part."""
    some = np.sort(order[weights[order] > 0][: max(SOLVED_WHOLE, order.size // _SHARE_TO_START)])
    part = X[some] if kernel.uses_points else X[np.ix_(some, some)]
    solution = solve_one_class(kernel, part, weights[some], nu, solver, resources, watch)
    support = np.flatnonzero(solution.beta)
    idx, beta = some[support], solution.beta[support]
    if resources.device != "cpu":
        return _product_on_device(kernel, X, idx, beta, resources)
    return _product(kernel, X, idx, beta)[0]  # only their order counts


def _product_on_device(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray, resources: Resources) -> np.ndarray:
    """`K[:, idx] @ weights` in the precision of the rows."""
    rows = rows_on_device(X, resources.device, resources.budget / 2)
    index = xa.indices(idx, rows[:0])
    coef = xa.like(weights[:, None], rows[:0])
    if not kernel.uses_points:
        return xa.to_numpy(rows[:, index] @ coef)[:, 0]
    parts = slices(len(rows), max(idx.size, _POINTS_AT_A_TIME))
    return np.concatenate([xa.to_numpy(expand(kernel, rows[part], rows[index], coef))[:, 0] for part in parts])


def _product(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """`K[:, idx] @ weights`, summed in float64, and its error; kernel values in float32 where they are many.

    The error is measured: some rows are computed in both precisions.
    """
    n = X.shape[0]
    if not (isinstance(X, np.ndarray) and X.dtype == np.float64 and kernel.uses_points and n * idx.size >= _MANY_VALUES):
        return _exact(kernel, X, idx, weights), 0.0
    single = _sum(kernel, X.astype(np.float32), X[idx].astype(np.float32), weights)
    rows = np.linspace(0, n - 1, min(n, _CHECKED_ROWS)).astype(np.intp)
    exact = _sum(kernel, X[rows], X[idx], weights)
    return single, _LARGER_THAN_THE_SAMPLE * float(np.abs(single[rows] - exact).max())


def _exact(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`K[:, idx] @ weights` in the precision of the rows."""
    return _sum(kernel, X if kernel.uses_points else X[:, idx], X[idx], weights)


def _sum(kernel: Kernel, X: Any, points: Any, weights: np.ndarray) -> np.ndarray:
    total = np.zeros(X.shape[0])
    coef = weights.astype(xa.numpy_dtype(X))[:, None]
    for part in slices(weights.size, _POINTS_AT_A_TIME):
        total += xa.to_numpy(expand(kernel, X if kernel.uses_points else X[:, part], points[part], coef[part]))[:, 0]
    return total
