"""Simplified sequential minimal optimisation: one violating variable and one random partner at a time.

Sweep over the variables; for each that violates its optimality condition by more than the tolerance, draw partners at random
until one improves the objective, maximise over the two variables in closed form, and update the bias. Stop after ten sweeps
without a move. In signed variables `beta_i = y_i alpha_i` with error `E_i = (K beta)_i + b - linear_i`:

    violated   E_i < -tol and beta_i < upper_i, or E_i > tol and beta_i > lower_i
    step       beta_j += s, beta_i -= s,  s = (E_i - E_j) / (K_ii + K_jj - 2 K_ij), clipped to both boxes

This solver is the readable reference for the fast solver: it costs O(n) for each step and n^2 memory, and needs many more
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramSource
from gramless.svm.progress import SolverProgress

# Steps below this fraction of the width of the box are rounding errors.
SMALLEST_STEP = 1e-12


@dataclass(frozen=True)
class SimpleSMO:
    """Reference dual solver for small problems; it stops after `patience` sweeps without a move."""

    tol: float = 1e-3
    patience: int = 10
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
        beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        K_beta = beta @ K
        bias, quiet, n_iter = 0.0, 0, 0
        tol = self.tol / 2  # if each slope is within tol / 2 of the bias, no two slopes differ by more than tol
        while quiet < self.patience and n_iter < self.max_iter and not progress.stopped:
            moved = 0
            for i in range(qp.size):
                error = K_beta[i] + bias - qp.linear[i]
                if not is_violated(qp, beta, i, error, tol):
                    continue
                for j in rng.permutation(qp.size):
                    step = _step(qp, K, beta, K_beta, i, j)
                    if step:
                        break
                else:
                    continue
                beta[j] = min(max(beta[j] + step, qp.lower[j]), qp.upper[j])
                beta[i] = min(max(beta[i] - step, qp.lower[i]), qp.upper[i])
                K_beta += step * (K[j] - K[i])
                bias = pair_bias(qp, beta, (i, j), [float(qp.linear[k] - K_beta[k]) for k in (i, j)])
                moved += 1
            n_iter += moved
            quiet = 0 if moved else quiet + 1
            if moved:
                progress.advance(moved, violation=qp.violation(beta, qp.slope(K_beta)))
        solution = DualSolution.at(qp, beta, K_beta, n_iter, self.tol)
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


def is_violated(qp: BoxQP, beta: np.ndarray, i: int, error: float, tol: float) -> bool:
    """Return whether variable `i` violates its optimality condition by more than `tol`."""
    return bool((error < -tol and beta[i] < qp.upper[i]) or (error > tol and beta[i] > qp.lower[i]))


def pair_bias(qp: BoxQP, beta: np.ndarray, pair: tuple[int, int], slopes: list[float]) -> float:
    """Return the slope of the first free variable of a pair, or the mean of both slopes if neither is free."""
    for slope, k in zip(slopes, pair, strict=True):
        if qp.lower[k] < beta[k] < qp.upper[k]:
            return slope
    return 0.5 * (slopes[0] + slopes[1])


def _step(qp: BoxQP, K: np.ndarray, beta: np.ndarray, K_beta: np.ndarray, i: int, j: int) -> float:
    """Return the increase of `beta_j` (and decrease of `beta_i`) that maximises over the pair; zero if it gains nothing."""
    curvature = K[i, i] + K[j, j] - 2 * K[i, j]
    if curvature <= 0:
        return 0.0
    low = max(qp.lower[j] - beta[j], beta[i] - qp.upper[i])
    high = min(qp.upper[j] - beta[j], beta[i] - qp.lower[i])
    errors = K_beta[i] - qp.linear[i] - K_beta[j] + qp.linear[j]  # the bias cancels
    step = float(min(max(errors / curvature, low), high))
    return step if abs(step) > SMALLEST_STEP * (qp.upper[j] - qp.lower[j]) else 0.0
