"""The dual problem of the one-class support vector machine, with a starting point for many rows.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is an inlier if `sum_j alpha_j K(x_j, x)` exceeds rho, the common value of this sum for all free multipliers. This is a
`BoxQP` without a linear term.

The starting point determines the cost of a large fit, because the multipliers of a fraction nu of the rows end at their
bounds. A model of an eighth of the rows is fitted first and scores all rows; the multipliers of the rows with the lowest
scores start at their bounds, and the solver moves only the few multipliers on which the two models disagree. `K @ start` is
computed once in tiles, O(nu n^2 d). For many rows it is computed in float32 with an error estimate from a sample; if the
error exceeds the tolerance, rows close to rho are recomputed in float64, and the solution is checked: all other rows must be
farther from rho than the error.

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001).
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
from gramless.svm.multiclass import gram_rows, solve_jointly
from gramless.svm.nu_qp import fill_to_sum
from gramless.svm.resources import DualFit
from gramless.svm.tuning import TUNING, SVMTuning


def solve_one_class(fit: DualFit, weights: np.ndarray, nu: float, tuning: SVMTuning = TUNING) -> DualSolution:
    """Solve the one-class problem; `weights` are the upper bounds of the multipliers."""
    kernel, X, resources, progress = fit.kernel, fit.X, fit.resources, fit.progress
    rng = np.random.default_rng(resources.seed)
    n = weights.size
    order = rng.permutation(n)
    if n > tuning.solved_whole:
        order = np.argsort(_first_scores(fit, weights, nu, order, tuning), kind="stable")
    start = np.empty(n)
    start[order] = fill_to_sum(weights[order], nu * weights.sum())
    problem = BoxQP(np.zeros(n), np.zeros(n), weights, start=start)
    if resources.device != "cpu":
        [solution] = solve_jointly(fit, [problem], [[slice(0, n)]])
        return solution
    points = byte_rows(kernel, X, n // 2)
    rows = gram_rows(replace(fit, X=points), [slice(0, n)])
    if n <= tuning.solved_whole or progress.stopped:
        [solution] = fit.solver.maximise([problem], rows, rng, progress)
        return solution
    scores = _StartScores.of(kernel, X, weights, start, fit.solver.tol / 4, tuning)
    [solution] = fit.solver.maximise([replace(problem, K_start=scores.values)], rows, rng, progress)
    if not progress.stopped and not scores.confirm(kernel, X, solution, start, tuning):
        exact = _StartScores.of(kernel, X, weights, solution.beta, 0.0, tuning)
        again = replace(problem, start=solution.beta, K_start=exact.values)
        [solution] = fit.solver.maximise([again], rows, rng, progress)
    return solution


@dataclass(frozen=True)
class _StartScores:
    """`K @ start`: exact to float64 where `is_exact`, elsewhere with an absolute error of at most `error`."""

    values: np.ndarray
    error: float
    is_exact: np.ndarray

    @classmethod
    def of(
        cls, kernel: Kernel, X: Any, weights: np.ndarray, start: np.ndarray, error: float, tuning: SVMTuning
    ) -> _StartScores:
        """Compute scores to `error` (0: exactly), or to a larger error with exact values for rows close to rho."""
        n, idx = X.shape[0], np.flatnonzero(start)
        if error:
            values, reached = _product(kernel, X, idx, start[idx], tuning)
        else:
            values, reached = _exact_product(kernel, X, idx, start[idx], tuning), 0.0
        is_exact = np.full(n, reached <= error)
        if reached > error:
            # At the starting point the multipliers of the rows with the lowest scores are at their bounds.
            order = np.argsort(values, kind="stable")
            level = values[order[np.searchsorted(np.cumsum(weights[order]), start.sum()).clip(max=n - 1)]]
            near = np.argsort(np.abs(values - level), kind="stable")[: n // tuning.refined_divisor]
            values[near] = _sum(kernel, X[near], X[idx], start[idx], tuning)
            is_exact[near] = True
        return cls(values, reached, is_exact)

    def confirm(self, kernel: Kernel, X: Any, solution: DualSolution, start: np.ndarray, tuning: SVMTuning) -> bool:
        """Return whether no optimality condition of the solution depends on an inexact score."""
        if self.is_exact.all():
            return True
        change = solution.beta - start
        idx = np.flatnonzero(change)
        scores = self.values + _product(kernel, X, idx, change[idx], tuning)[0]
        near = np.abs(scores + solution.bias) <= 2 * self.error + solution.violation
        return not np.any(near & ~self.is_exact)


def _first_scores(fit: DualFit, weights: np.ndarray, nu: float, order: np.ndarray, tuning: SVMTuning) -> np.ndarray:
    """Return the scores of all rows by a model fitted to a subset of the rows with positive weight."""
    kernel, X = fit.kernel, fit.X
    n_subset = max(tuning.solved_whole, order.size // tuning.start_divisor)
    subset = np.sort(order[weights[order] > 0][:n_subset])
    part = X[subset] if kernel.uses_points else X[np.ix_(subset, subset)]
    solution = solve_one_class(replace(fit, X=part), weights[subset], nu, tuning)
    support = np.flatnonzero(solution.beta)
    idx, beta = subset[support], solution.beta[support]
    if fit.resources.device != "cpu":
        return _product_on_device(fit, idx, beta, tuning)
    return _product(kernel, X, idx, beta, tuning)[0]  # only the order of the scores is used


def _product_on_device(fit: DualFit, idx: np.ndarray, weights: np.ndarray, tuning: SVMTuning) -> np.ndarray:
    """Return `K[:, idx] @ weights` in the precision of the rows."""
    rows = rows_on_device(fit.X, fit.resources.device, fit.resources.budget / 2)
    index = xa.indices(idx, rows[:0])
    coef = xa.like(weights[:, None], rows[:0])
    if not fit.kernel.uses_points:
        return xa.to_numpy(rows[:, index] @ coef)[:, 0]
    parts = slices(len(rows), max(idx.size, tuning.points_per_sum))
    return np.concatenate([xa.to_numpy(expand(fit.kernel, rows[part], rows[index], coef))[:, 0] for part in parts])


def _product(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray, tuning: SVMTuning) -> tuple[np.ndarray, float]:
    """Return `K[:, idx] @ weights` and its error; many kernel values are computed in float32, with a measured error."""
    n = X.shape[0]
    is_float64 = isinstance(X, np.ndarray) and X.dtype == np.float64
    if not (is_float64 and kernel.uses_points and n * idx.size >= tuning.values_for_float32):
        return _exact_product(kernel, X, idx, weights, tuning), 0.0
    single = _sum(kernel, X.astype(np.float32), X[idx].astype(np.float32), weights, tuning)
    rows = np.linspace(0, n - 1, min(n, tuning.checked_rows)).astype(np.intp)
    exact = _sum(kernel, X[rows], X[idx], weights, tuning)
    return single, tuning.checked_error_factor * float(np.abs(single[rows] - exact).max())


def _exact_product(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray, tuning: SVMTuning) -> np.ndarray:
    """Return `K[:, idx] @ weights` with kernel values in the precision of the rows."""
    return _sum(kernel, X if kernel.uses_points else X[:, idx], X[idx], weights, tuning)


def _sum(kernel: Kernel, X: Any, points: Any, weights: np.ndarray, tuning: SVMTuning) -> np.ndarray:
    """Return `K(X, points) @ weights`, summed in float64 over blocks of points."""
    total = np.zeros(X.shape[0])
    coef = weights.astype(xa.numpy_dtype(X))[:, None]
    for part in slices(weights.size, tuning.points_per_sum):
        total += xa.to_numpy(expand(kernel, X if kernel.uses_points else X[:, part], points[part], coef[part]))[:, 0]
    return total
