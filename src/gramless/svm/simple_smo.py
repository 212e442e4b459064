"""Simplified sequential minimal optimisation: one violator, one random partner at a time.

Sweep over the variables; for each that violates its optimality condition by more than the tolerance, draw partners at
random until one can gain, maximise the dual over the two in closed form, and correct the bias. Stop after ten sweeps
in which nothing moved. In signed variables `beta_i = y_i alpha_i` with error `E_i = (K beta)_i + b - linear_i`:

    violated   E_i < -tol and beta_i < upper_i, or E_i > tol and beta_i > lower_i
    step       beta_j += s, beta_i -= s,  s = (E_i - E_j) / (K_ii + K_jj - 2 K_ij), clipped to both boxes

The readable reference against which the fast solver is tested: O(n) for each step, n^2 memory, many more steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows
from gramless.svm.watch import Watch

_SMALLEST_STEP = 1e-12


class SimpleSMO(BaseEstimator):
    """Reference dual solver for small problems.

    Parameters
    ----------
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the decision function.
    patience : int, default=10
        Sweeps without a change after which the solver stops.
    max_iter : int, default=1_000_000
        Cap on the number of pairs moved.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.svm.box_qp import BoxQP
    >>> from gramless.svm.gram_rows import GramRows
    >>> from gramless.svm.simple_smo import SimpleSMO
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([-1, -1, 1, 1])
    >>> qp = BoxQP.classification(y, np.full(4, 10.0))
    >>> [solution] = SimpleSMO().maximise([qp], GramRows(Linear(), X, [slice(0, 4)]))
    >>> solution.beta.round(3)
    array([ 0. , -0.5,  0.5,  0. ])
    """

    def __init__(self, *, tol: float = 1e-3, patience: int = 10, max_iter: int = 1_000_000):
        self.tol = tol
        self.patience = patience
        self.max_iter = max_iter

    def maximise(
        self,
        problems: Sequence[BoxQP],
        rows: GramRows,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
    ) -> list[DualSolution]:
        """Solve problems that live on the same points, one after the other; `watch` is told of each sweep."""
        rng = np.random.default_rng(0) if rng is None else rng
        watch = Watch(len(problems)) if watch is None else watch
        K = rows.gram(np.arange(rows.size)).astype(np.float64)
        return [self._solve(qp, K, rng, watch) for qp in problems]

    def _solve(self, qp: BoxQP, K: np.ndarray, rng: np.random.Generator, watch: Watch) -> DualSolution:
        if np.any((qp.lower < 0) & (qp.upper > 0)):
            return self._solve_twice_as_large(qp, K, rng, watch)
        beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        K_beta = beta @ K
        bias, quiet, n_iter = 0.0, 0, 0
        tol = self.tol / 2  # each slope within tol / 2 of the bias: no two differ by more than tol
        while quiet < self.patience and n_iter < self.max_iter and not watch.stopped:
            moved = 0
            for i in range(qp.size):
                error_i = K_beta[i] + bias - qp.linear[i]
                rises = error_i < -tol and beta[i] < qp.upper[i]
                falls = error_i > tol and beta[i] > qp.lower[i]
                if not (rises or falls):
                    continue
                for j in rng.permutation(qp.size):
                    step = self._step(qp, K, beta, K_beta, i, j)
                    if step:
                        break
                else:
                    continue
                beta[j] = min(max(beta[j] + step, qp.lower[j]), qp.upper[j])
                beta[i] = min(max(beta[i] - step, qp.lower[i]), qp.upper[i])
                K_beta += step * (K[j] - K[i])
                bias = self._bias(qp, beta, K_beta, (i, j))
                moved += 1
            n_iter += moved
            quiet = 0 if moved else quiet + 1
            if moved:
                watch.advance(moved, violation=qp.violation(beta, qp.slope(K_beta)))
        solution = DualSolution.at(qp, beta, K_beta, n_iter, self.tol)
        watch.advance(0, violation=solution.violation, solved=1)
        return solution

    def _solve_twice_as_large(self, qp: BoxQP, K: np.ndarray, rng: np.random.Generator, watch: Watch) -> DualSolution:
        """Regression as the textbook writes it: for each sample a variable that pushes up and one that pushes down."""
        zero, start = np.zeros(qp.size), np.zeros(qp.size) if qp.start is None else qp.start
        pair = BoxQP(
            np.concatenate([qp.linear - qp.epsilon, qp.linear + qp.epsilon]),
            np.concatenate([zero, qp.lower]),
            np.concatenate([qp.upper, zero]),
            start=np.concatenate([np.maximum(start, 0), np.minimum(start, 0)]),
        )
        solution = self._solve(pair, np.tile(K, (2, 2)), rng, watch)
        beta = solution.beta[: qp.size] + solution.beta[qp.size :]
        return DualSolution.at(qp, beta, K @ beta, solution.n_iter, self.tol)

    @staticmethod
    def _step(qp: BoxQP, K: np.ndarray, beta: np.ndarray, K_beta: np.ndarray, i: int, j: int) -> float:
        """How far `beta_j` rises and `beta_i` falls to maximise over the two; zero where this pair cannot gain."""
        curvature = K[i, i] + K[j, j] - 2 * K[i, j]
        if curvature <= 0:
            return 0.0
        low = max(qp.lower[j] - beta[j], beta[i] - qp.upper[i])
        high = min(qp.upper[j] - beta[j], beta[i] - qp.lower[i])
        errors = K_beta[i] - qp.linear[i] - K_beta[j] + qp.linear[j]  # the bias cancels
        step = float(min(max(errors / curvature, low), high))
        return step if abs(step) > _SMALLEST_STEP * (qp.upper[j] - qp.lower[j]) else 0.0

    @staticmethod
    def _bias(qp: BoxQP, beta: np.ndarray, K_beta: np.ndarray, pair: tuple[int, int]) -> float:
        """The slope of whichever of the two variables is free, else the mean of both."""
        slopes = [float(qp.linear[k] - K_beta[k]) for k in pair]
        for slope, k in zip(slopes, pair, strict=True):
            if qp.lower[k] < beta[k] < qp.upper[k]:
                return slope
        return 0.5 * (slopes[0] + slopes[1])
