"""Simplified sequential minimal optimisation: one violating variable and one random partner at a time.

Sweep over the variables; for each that violates its optimality condition by more than the tolerance, draw partners at random
until one improves the objective, maximise over the two variables in closed form, and update the bias. Stop after ten sweeps
without a move. In signed variables `beta_i = y_i alpha_i` with error `E_i = (K beta)_i + b - linear_i`:

    violated   E_i < -tol and beta_i < upper_i, or E_i > tol and beta_i > lower_i
    step       beta_i += s, beta_j -= s,  s = (E_j - E_i) / (K_ii + K_jj - 2 K_ij), clipped to both boxes

This solver is the readable reference for the fast solver: it costs O(n) for each step and n^2 memory, and needs many more
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramSource
from gramless.svm.progress import SolverProgress

# Steps below this fraction of the width of the box are rounding errors.
_SMALLEST_STEP = 1e-12
# Sweeps without a move after which the solver stops, because partners are drawn at random.
_PATIENCE = 10


@dataclass(frozen=True)
class SimpleSMO:
    """Reference dual solver for small problems."""

    tol: float = 1e-3
    max_iter: int = 1_000_000

    def maximise(
        self,
        problems: Sequence[BoxQP],
        rows: GramSource,
        rng: np.random.Generator | None = None,
        progress: SolverProgress | None = None,
    ) -> list[DualSolution]:
        """Solve problems on the same points one after the other; each sweep is reported to `progress`."""
        rng = np.random.default_rng(0) if rng is None else rng
        progress = SolverProgress(len(problems)) if progress is None else progress
        K = rows.matrix().astype(np.float64)
        return [self._solve(qp, K, rng, progress) for qp in problems]

    def _solve(self, qp: BoxQP, K: np.ndarray, rng: np.random.Generator, progress: SolverProgress) -> DualSolution:
        if np.any((qp.lower < 0) & (qp.upper > 0)):
            return self._solve_split(qp, K, rng, progress)
        steps = PairSteps(qp, K)
        sweep_until_quiet([steps], self.tol, self.max_iter, rng, progress)
        solution = DualSolution.at(qp, steps.beta, steps.K_beta, steps.n_iter, self.tol)
        progress.advance(0, violation=solution.violation, solved=1)
        return solution

    def _solve_split(self, qp: BoxQP, K: np.ndarray, rng: np.random.Generator, progress: SolverProgress) -> DualSolution:
        """Solve a regression in its textbook form, with one non-negative and one non-positive variable for each sample."""
        zero, start = np.zeros(qp.size), np.zeros(qp.size) if qp.start is None else qp.start
        split = BoxQP(
            np.concatenate([qp.linear - qp.epsilon, qp.linear + qp.epsilon]),
            np.concatenate([zero, qp.lower]),
            np.concatenate([qp.upper, zero]),
            start=np.concatenate([np.maximum(start, 0), np.minimum(start, 0)]),
        )
        solution = self._solve(split, np.tile(K, (2, 2)), rng, progress)
        beta = solution.beta[: qp.size] + solution.beta[qp.size :]
        return DualSolution.at(qp, beta, K @ beta, solution.n_iter, self.tol)


class PairSteps:
    """State of a dual problem: the variables, which are moved in pairs, the bias and the products `K beta`."""

    def __init__(self, qp: BoxQP, K: Any):
        self.qp, self.K = qp, K
        self.beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        self.K_beta = self.beta @ K
        self.bias, self.n_iter = 0.0, 0

    def slope(self, i: int) -> float:
        """Return the gradient of the smooth part of the objective with respect to variable `i`."""
        return float(self.qp.linear[i] - self.K_beta[i])

    def step(self, i: int, j: int, low: float, high: float) -> float:
        """Return the increase of `beta_i` and decrease of `beta_j` in `[low, high]` that maximises the objective."""
        K = self.K
        curvature = K[i, i] + K[j, j] - 2 * K[i, j]
        if curvature <= 0:
            return 0.0
        ascent = self.slope(i) + self.K_beta[j] - self.qp.linear[j]
        return float(min(max(ascent / curvature, low), high))

    def update_products(self, i: int, j: int, step: float) -> None:
        """Update the products `K beta` for a step along the pair `i, j`."""
        self.K_beta += step * (self.K[i] - self.K[j])

    def violation(self) -> float:
        """Return the violation of the optimality conditions."""
        return self.qp.violation(self.beta, self.qp.slope(self.K_beta))

    def sweep(self, tol: float, rng: np.random.Generator) -> int:
        """Move each variable once that violates its optimality condition by more than `tol`; return the number of moves."""
        qp, beta, moved = self.qp, self.beta, 0
        for i in range(qp.size):
            error = self.bias - self.slope(i)
            if not ((error < -tol and beta[i] < qp.upper[i]) or (error > tol and beta[i] > qp.lower[i])):
                continue
            for j in rng.permutation(qp.size):
                low = max(qp.lower[i] - beta[i], beta[j] - qp.upper[j])
                high = min(qp.upper[i] - beta[i], beta[j] - qp.lower[j])
                step = self.step(i, j, low, high) if j != i else 0.0
                if abs(step) > _SMALLEST_STEP * (qp.upper[i] - qp.lower[i]):
                    break
            else:
                continue
            self.update_products(i, j, step)
            beta[i] = min(max(beta[i] + step, qp.lower[i]), qp.upper[i])
            beta[j] = min(max(beta[j] - step, qp.lower[j]), qp.upper[j])
            free = [k for k in (i, j) if qp.lower[k] < beta[k] < qp.upper[k]]
            self.bias = self.slope(free[0]) if free else 0.5 * (self.slope(i) + self.slope(j))
            moved += 1
        self.n_iter += moved
        return moved


def sweep_until_quiet(
    problems: Sequence[PairSteps], tol: float, max_iter: int, rng: np.random.Generator, progress: SolverProgress
) -> None:
    """Sweep over the variables of all problems until no variable moves; each sweep is reported to `progress`."""
    quiet = n_moved = 0
    while quiet < _PATIENCE and n_moved < max_iter and not progress.stopped:
        # If each slope is within tol / 2 of the bias, no two slopes differ by more than tol.
        moved = sum(problem.sweep(tol / 2, rng) for problem in problems)
        n_moved += moved
        quiet = 0 if moved else quiet + 1
        progress.advance(moved, violation=max(problem.violation() for problem in problems))
