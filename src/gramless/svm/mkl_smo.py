"""Multiple kernel learning by sequential minimal optimisation: the weights follow each step.

With `S_k = beta' K_k beta`, the problem with a squared penalty on the kernel weights,

    min over d >= 0  max over beta  linear' beta - sum_k d_k S_k / 2 + penalty ||d||^2 / 2,

has the weights `d_k = S_k / (2 penalty)` and therefore the dual `linear' beta - sum_k S_k^2 / (8 penalty)`. Along a
pair of variables that is a concave quartic; its derivative is a cubic with one root. Several problems that share
their weights are maximised together: `S_k` is then the sum over the problems.

The readable reference for the fast alternation: O(M n) for each step, the Gram matrices held.

Reference: Sun, Ampornpunt, Varma and Vishwanathan (2010), Multiple kernel learning and the SMO algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.watch import Watch

_SMALLEST_STEP = 1e-12


@dataclass
class _Problem:
    """One dual problem: its points, variables, and `K_k beta` for each kernel."""

    qp: BoxQP
    points: np.ndarray
    beta: np.ndarray = field(init=False)
    products: np.ndarray = field(init=False)
    bias: float = 0.0
    n_iter: int = 0


class MKLSMO:
    """Simplified SMO with a cubic line search and shared kernel weights.

    Parameters
    ----------
    penalty : float
        The factor of the squared weights.
    tol : float, default=1e-3
    patience : int, default=10
        Sweeps without a change after which the solver stops.
    max_iter : int, default=1_000_000
        Cap on the number of pairs moved.
    """

    def __init__(self, penalty: float, *, tol: float = 1e-3, patience: int = 10, max_iter: int = 1_000_000):
        self.penalty = penalty
        self.tol = tol
        self.patience = patience
        self.max_iter = max_iter

    def maximise(
        self,
        problems: Sequence[tuple[BoxQP, np.ndarray]],
        grams: Sequence[np.ndarray],
        rng: np.random.Generator,
        watch: Watch | None = None,
    ) -> tuple[list[DualSolution], np.ndarray]:
        """Solutions of the problems `(qp, points)` on rows `points` of the Gram matrices, and the kernel weights."""
        watch = Watch(len(problems)) if watch is None else watch
        K = np.stack([gram.astype(np.float64) for gram in grams])
        states = [_Problem(qp, points) for qp, points in problems]
        for state in states:
            state.beta = np.zeros(state.qp.size)
            state.products = np.zeros((len(K), state.qp.size))
        S = np.zeros(len(K))
        quiet = moved_in_total = 0
        while quiet < self.patience and moved_in_total < self.max_iter and not watch.stopped:
            moved = sum(self._sweep(state, K, S, rng) for state in states)
            moved_in_total += moved
            quiet = 0 if moved else quiet + 1
            watch.advance(moved, violation=max(self._violation(state, S) for state in states))
        d = S / (2 * self.penalty)
        solutions = [DualSolution.at(s.qp, s.beta, d @ s.products, s.n_iter, self.tol) for s in states]
        return solutions, d

    def _sweep(self, state: _Problem, K: np.ndarray, S: np.ndarray, rng: np.random.Generator) -> int:
        qp, beta, products, points = state.qp, state.beta, state.products, state.points
        tol, moved = self.tol / 2, 0
        for i in range(qp.size):
            slope = qp.linear[i] - S @ products[:, i] / (2 * self.penalty)
            error = state.bias - slope
            if not (error < -tol and beta[i] < qp.upper[i]) and not (error > tol and beta[i] > qp.lower[i]):
                continue
            for j in rng.permutation(qp.size):
                step = self._step(state, K, S, i, j) if j != i else 0.0
                if step:
                    break
            else:
                continue
            difference = products[:, i] - products[:, j]
            curvature = self._curvature(K, points[i], points[j])
            S += 2 * step * difference + step**2 * curvature
            beta[i] = min(max(beta[i] + step, qp.lower[i]), qp.upper[i])
            beta[j] = min(max(beta[j] - step, qp.lower[j]), qp.upper[j])
            products += step * (K[:, points[i]][:, points] - K[:, points[j]][:, points])
            state.bias = self._bias(state, S, i, j)
            moved += 1
        state.n_iter += moved
        return moved

    def _violation(self, state: _Problem, S: np.ndarray) -> float:
        return state.qp.violation(state.beta, state.qp.slope(S @ state.products / (2 * self.penalty)))

    @staticmethod
    def _curvature(K: np.ndarray, r: int, s: int) -> np.ndarray:
        return K[:, r, r] + K[:, s, s] - 2 * K[:, r, s]

    def _step(self, state: _Problem, K: np.ndarray, S: np.ndarray, i: int, j: int) -> float:
        """How far `beta_i` rises and `beta_j` falls: the root of the cubic, clipped to both boxes."""
        qp, beta = state.qp, state.beta
        low = max(qp.lower[i] - beta[i], beta[j] - qp.upper[j])
        high = min(qp.upper[i] - beta[i], beta[j] - qp.lower[j])
        smallest = _SMALLEST_STEP * (qp.upper[i] - qp.lower[i])
        if high - low <= smallest:
            return 0.0
        a = self._curvature(K, state.points[i], state.points[j])
        b = state.products[:, i] - state.products[:, j]
        cubic = np.array([a @ a, 3 * a @ b, 2 * b @ b + a @ S, b @ S]) / (2 * self.penalty)
        cubic[3] -= qp.linear[i] - qp.linear[j]
        step = _root_of_increasing(cubic, low, high)
        return step if abs(step) > smallest else 0.0

    def _bias(self, state: _Problem, S: np.ndarray, i: int, j: int) -> float:
        """The slope of whichever of the two variables is free, else the mean of both."""
        qp = state.qp
        slopes = [float(qp.linear[k] - S @ state.products[:, k] / (2 * self.penalty)) for k in (i, j)]
        for slope, k in zip(slopes, (i, j), strict=True):
            if qp.lower[k] < state.beta[k] < qp.upper[k]:
                return slope
        return 0.5 * (slopes[0] + slopes[1])


def _root_of_increasing(cubic: np.ndarray, low: float, high: float) -> float:
    """Where a cubic that increases on `[low, high]` crosses zero, or the end it does not reach past."""
    if np.polyval(cubic, low) >= 0:
        return low
    if np.polyval(cubic, high) <= 0:
        return high
    inside = [r.real for r in np.roots(cubic) if abs(r.imag) <= 1e-7 * (1 + abs(r.real)) and low <= r.real <= high]
    if inside:
        return float(inside[0])
    # Rounding put the root a hair outside or made it complex: bisection cannot fail between two signs.
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.polyval(cubic, middle) < 0 else (low, middle)
    return 0.5 * (low + high)
