"""One class: the smallest part of the space that holds a share `1 - nu` of the rows.

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is inside where `sum_j alpha_j K(x_j, x)` exceeds the value rho that the free multipliers agree on. It is the dual
problem of every support vector machine with no linear term and another sum, so the same solver takes it from any point with
that sum.

The start decides what a large fit costs. A share nu of all rows end at their bound, whatever the solver does; the start puts
the likely ones there. They are found by fitting an eighth of the rows and scoring all: what the solver then moves are the
few on which the two disagree. The product of the kernel with the start is computed once, streamed: O(nu n^2 d), no rows
kept; of many rows in float32, where a sample of them shows that this is precise enough for the tolerance. On a device the
solver sums that product itself, in double precision.

Reference: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson (2001), Estimating the support of a high-dimensional
distribution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.device_rows import rows_on_device
from gramless._runtime.threads import slices
from gramless.dual.box_qp import BoxQP, DualSolution
from gramless.dual.gram_rows import GramRows
from gramless.dual.nu_qp import filled
from gramless.dual.problems import DualSolver, Resources, maximise_together
from gramless.dual.smo import SOLVED_WHOLE
from gramless.dual.watch import Watch
from gramless.kernels.base import Kernel
from gramless.operators import byte_rows, expand

# The part of the rows whose machine says where all rows are likely to end: a 64th of the kernel values.
_SHARE_TO_START = 8
# Products in float32 are summed over so many points, and their sums in float64.
_POINTS_AT_A_TIME = 2048
# Kernel values from which float32 is worth a second, checked way: fewer take less than a second in float64.
_MANY_VALUES = 1e8
_CHECKED_ROWS = 256


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
    if n > SOLVED_WHOLE and not watch.stopped:
        started = np.flatnonzero(start)
        problem = replace(problem, K_start=_product(kernel, X, started, start[started], solver.tol / 4))
    points = byte_rows(kernel, X, n // 2)
    rows = GramRows(kernel, points, [slice(0, n)], budget=resources.budget, workers=resources.workers)
    [solution] = solver.maximise([problem], rows, rng, watch)
    return solution


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
    return _product(kernel, X, idx, beta, np.inf)  # only their order counts


def _product_on_device(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray, resources: Resources) -> np.ndarray:
    """`K[:, idx] @ weights` in the precision of the rows."""
    rows = rows_on_device(X, resources.device, resources.budget / 2)
    index = xa.indices(idx, rows[:0])
    coef = xa.like(weights[:, None], rows[:0])
    if not kernel.uses_points:
        return xa.to_numpy(rows[:, index] @ coef)[:, 0]
    parts = slices(len(rows), max(idx.size, _POINTS_AT_A_TIME))
    return np.concatenate([xa.to_numpy(expand(kernel, rows[part], rows[index], coef))[:, 0] for part in parts])


def _product(kernel: Kernel, X: Any, idx: np.ndarray, weights: np.ndarray, error: float) -> np.ndarray:
    """`K[:, idx] @ weights`, summed in float64, to an absolute error; kernel values in float32 where they reach it.

    Whether they do is measured: some rows are computed in both precisions.
    """
    n = X.shape[0]
    if isinstance(X, np.ndarray) and X.dtype == np.float64 and kernel.uses_points and n * idx.size >= _MANY_VALUES:
        single = _sum(kernel, X.astype(np.float32), X[idx].astype(np.float32), weights)
        rows = np.linspace(0, n - 1, min(n, _CHECKED_ROWS)).astype(np.intp)
        exact = _sum(kernel, X[rows], X[idx], weights)
        if np.abs(single[rows] - exact).max() <= error:
            return single
    return _sum(kernel, X if kernel.uses_points else X[:, idx], X[idx], weights)


def _sum(kernel: Kernel, X: Any, points: Any, weights: np.ndarray) -> np.ndarray:
    total = np.zeros(X.shape[0])
    coef = weights.astype(xa.numpy_dtype(X))[:, None]
    for part in slices(weights.size, _POINTS_AT_A_TIME):
        total += xa.to_numpy(expand(kernel, X if kernel.uses_points else X[:, part], points[part], coef[part]))[:, 0]
    return total
