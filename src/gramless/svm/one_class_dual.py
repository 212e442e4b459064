"""The dual problem of the one-class support vector machine, with a starting point for many rows.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is an inlier if `sum_j alpha_j K(x_j, x)` exceeds rho, the common value of this sum for all free multipliers. This is a
`BoxQP` without a linear term.

The starting point determines the cost of a large fit: about a fraction nu of the multipliers end at their upper bounds, and
each must be moved there unless it starts there. A model of an eighth of the rows is fitted first and scores all rows. The
multipliers of the rows with the lowest scores start at their bounds, and the solver moves only the few multipliers that
differ in the solution. `K @ start` is computed once in tiles, O(nu n^2 d). For many rows this product is in float32, with an
error estimate from a sample. If the error exceeds the tolerance, scores close to rho are recomputed in float64, and the
solution is checked: all other scores must differ from rho by more than the error.

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gramless._core import arrays as xa
from gramless._core.device_rows import rows_on_device
from gramless._core.threads import slices
from gramless.linalg.operators import byte_rows, expand
from gramless.svm.box_qp import BoxQP, DualSolution, fill_to_sum
from gramless.svm.multiclass import gram_rows, solve_jointly
from gramless.svm.resources import DualFit


def solve_one_class(fit: DualFit, weights: np.ndarray, nu: float) -> DualSolution:
    """Solve the one-class problem; `weights` are the upper bounds of the multipliers."""
    rng, n = np.random.default_rng(fit.seed), weights.size
    order = rng.permutation(n)
    if n > fit.tuning.solved_whole:
        order = np.argsort(_first_scores(fit, weights, nu, order), kind="stable")
    start = np.empty(n)
    start[order] = fill_to_sum(weights[order], nu * weights.sum())
    problem = BoxQP(np.zeros(n), np.zeros(n), weights, start=start)
    if fit.device != "cpu":
        [solution] = solve_jointly(fit, [problem], [[slice(0, n)]])
        return solution
    rows = gram_rows(replace(fit, X=byte_rows(fit.kernel, fit.X, n // 2)), [slice(0, n)])
    if n <= fit.tuning.solved_whole or fit.progress.stopped:
        [solution] = fit.solver.maximise([problem], rows, rng, fit.progress)
        return solution
    values, error, is_exact = _start_scores(fit, weights, start)
    [solution] = fit.solver.maximise([replace(problem, K_start=values)], rows, rng, fit.progress)
    if fit.progress.stopped or is_exact.all():
        return solution
    scores = values + _product(fit, solution.beta - start)[0]
    near = np.abs(scores + solution.bias) <= 2 * error + solution.violation
    if np.any(near & ~is_exact):  # an optimality condition of the solution depends on an inexact score
        again = replace(problem, start=solution.beta, K_start=_exact_product(fit, solution.beta))
        [solution] = fit.solver.maximise([again], rows, rng, fit.progress)
    return solution


def _start_scores(fit: DualFit, weights: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Return `K @ start`, the largest error of its values, and a mask of the exact values: all, or those close to rho."""
    n = start.size
    values, error = _product(fit, start)
    is_exact = np.full(n, error <= fit.solver.tol / 4)
    if not is_exact.all():
        # At the starting point the multipliers of rows with the lowest scores are at their bounds: `level` estimates rho.
        order = np.argsort(values, kind="stable")
        level = values[order[np.searchsorted(np.cumsum(weights[order]), start.sum()).clip(max=n - 1)]]
        near = np.argsort(np.abs(values - level), kind="stable")[: n // fit.tuning.refined_divisor]
        values[near] = _exact_product(fit, start, near)
        is_exact[near] = True
    return values, error, is_exact


def _first_scores(fit: DualFit, weights: np.ndarray, nu: float, order: np.ndarray) -> np.ndarray:
    """Return the scores of all rows by a model fitted to a subset of the rows with positive weight."""
    n_subset = max(fit.tuning.solved_whole, order.size // fit.tuning.start_divisor)
    subset = np.sort(order[weights[order] > 0][:n_subset])
    part = fit.X[subset] if fit.kernel.uses_points else fit.X[np.ix_(subset, subset)]
    beta = np.zeros(order.size)
    beta[subset] = solve_one_class(replace(fit, X=part), weights[subset], nu).beta
    return _product(fit, beta)[0] if fit.device == "cpu" else _product_on_device(fit, beta)


def _product_on_device(fit: DualFit, beta: np.ndarray) -> np.ndarray:
    """Return `K @ beta` in the precision of the rows."""
    rows = rows_on_device(fit.X, fit.device, fit.budget / 2)
    idx = np.flatnonzero(beta)
    index, coef = xa.indices(idx, rows[:0]), xa.like(beta[idx, None], rows[:0])
    if not fit.kernel.uses_points:
        return xa.to_numpy(rows[:, index] @ coef)[:, 0]
    parts = slices(len(rows), max(idx.size, fit.tuning.points_per_sum))
    return np.concatenate([xa.to_numpy(expand(fit.kernel, rows[part], rows[index], coef))[:, 0] for part in parts])


def _product(fit: DualFit, beta: np.ndarray) -> tuple[np.ndarray, float]:
    """Return `K @ beta` and its error; many kernel values are computed in float32, with a measured error."""
    X, tuning, n = fit.X, fit.tuning, beta.size
    is_float64 = isinstance(X, np.ndarray) and X.dtype == np.float64
    n_values = n * np.count_nonzero(beta)
    if not (is_float64 and fit.kernel.uses_points and n_values >= tuning.values_for_float32):
        return _exact_product(fit, beta), 0.0
    single = _exact_product(replace(fit, X=X.astype(np.float32)), beta)
    rows = np.linspace(0, n - 1, min(n, tuning.checked_rows)).astype(np.intp)
    exact = _exact_product(fit, beta, rows)
    return single, tuning.checked_error_factor * float(np.abs(single[rows] - exact).max())


def _exact_product(fit: DualFit, beta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return `K[rows] @ beta` with kernel values in the precision of the rows, summed in float64 over blocks of points."""
    kernel, X = fit.kernel, fit.X
    left = X if rows is None else X[rows]
    total = np.zeros(left.shape[0])
    idx = np.flatnonzero(beta)
    for part in slices(idx.size, fit.tuning.points_per_sum):
        points, coef = idx[part], beta[idx[part], None].astype(xa.numpy_dtype(X))
        total += xa.to_numpy(expand(kernel, left if kernel.uses_points else left[:, points], X[points], coef))[:, 0]
    return total
