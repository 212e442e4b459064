"""Sequential minimal optimisation with large working sets.

Each round takes a few hundred variables that violate the optimality conditions most, together with the free ones of
the round before, solves the dual problem over them alone with a compiled second-order SMO on their small Gram matrix,
and then brings the slope of all variables up to date with the kernel rows of the multipliers that changed. Kernel
rows come many at a time from one matrix product, so almost all time is spent at the rate of BLAS; the row of a
multiplier that never moves is never computed.

Variables at a bound that cannot move stay out of the working set, and within it those that settle are set aside
(shrinking). Small problems are one working set.

A round costs O(q^2 + r n) beside r new kernel rows at O(n d) each, with q the working set and r the multipliers that
changed. Several problems on the same points advance together and share their rows.

Reference: Joachims (1999), Making large-scale SVM learning practical; Fan, Chen and Lin (2005), Working set selection
using second order information.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator

from gramless._runtime.threads import share
from gramless.dual.box_qp import BoxQP, DualSolution
from gramless.dual.gram_rows import GramRows, Update
from gramless.dual.shrinking import solve_shrinking
from gramless.dual.watch import Watch

_SUBPROBLEM_ACCURACY = 0.1
_PAIRS_PER_VARIABLE = 200
_LARGEST = 1024
SOLVED_WHOLE = 2048
"""Problems up to this size are one working set: below it, rounds cost more than the kernel values they save."""


class SMO(BaseEstimator):
    """Fast dual solver for support vector machines.

    Parameters
    ----------
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the decision function.
    working_set : int or None, default=None
        Variables optimised together; by default a quarter of the problem, at least 256 and at most 1024, and all of a
        problem with no more than 2048.
    max_iter : int, default=10_000_000
        Cap on the number of pairs moved.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.dual.box_qp import BoxQP
    >>> from gramless.dual.gram_rows import GramRows
    >>> from gramless.dual.smo import SMO
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([-1, -1, 1, 1])
    >>> qp = BoxQP.classification(y, np.full(4, 10.0))
    >>> [solution] = SMO().maximise([qp], GramRows(Linear(), X, [slice(0, 4)]))
    >>> solution.beta
    array([ 0. , -0.5,  0.5,  0. ])
    """

    def __init__(self, *, tol: float = 1e-3, working_set: int | None = None, max_iter: int = 10_000_000):
        self.tol = tol
        self.working_set = working_set
        self.max_iter = max_iter

    def maximise(
        self,
        problems: Sequence[BoxQP],
        rows: GramRows,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
    ) -> list[DualSolution]:
        """Solve problems that live on the same points; `watch` is told after each round and may end it."""
        rng = np.random.default_rng(0) if rng is None else rng
        watch = Watch(len(problems)) if watch is None else watch
        ascents = [Ascent(qp, rows.size, self, rng) for qp in problems]
        if any(ascent.whole for ascent in ascents) and not watch.stopped:
            rows.whole()  # before threads ask for it
        rows.add([ascent.initial(rows) for ascent in ascents])
        n_iter, n_active = 0, len(ascents)
        while not watch.stopped:
            active = [ascent for ascent in ascents if ascent.select()]
            moved, solved = sum(ascent.n_iter for ascent in ascents) - n_iter, n_active - len(active)
            n_iter, n_active = n_iter + moved, len(active)
            watch.advance(moved, violation=max(ascent.violation for ascent in ascents), solved=solved)
            if not active or watch.stopped:
                break
            share(active, lambda ascent: ascent.improve(rows), rows.workers)
            rows.add([ascent.update for ascent in active])
        return [ascent.solution() for ascent in ascents]


class Ascent:
    """One problem on its way to the optimum."""

    def __init__(self, qp: BoxQP, n_samples: int, settings: SMO, rng: np.random.Generator):
        self.qp = qp
        self.beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        self.K_beta = np.zeros(n_samples)
        self.tol = settings.tol
        self.max_iter = settings.max_iter
        self.size = settings.working_set or int(np.clip(qp.size // 4, 256, _LARGEST))
        self.whole = settings.working_set is None and qp.size <= SOLVED_WHOLE
        self.rng = rng
        self.n_iter = 0
        self.n_rounds = 0
        self.stalled = False
        self.violation = np.inf
        self.set = np.empty(0, dtype=np.intp)
        self.update: Update

    def initial(self, rows: GramRows) -> Update:
        """The rows that turn a starting point into its slopes."""
        return self._after(np.flatnonzero(self.beta), self.beta, rows)

    def solution(self) -> DualSolution:
        return DualSolution.at(self.qp, self.beta, self.K_beta, self.n_iter, self.tol)

    def select(self) -> bool:
        """Choose the next working set; false when there is nothing left to do."""
        qp, beta = self.qp, self.beta
        self.slope = qp.slope(self.K_beta)
        top, bottom = qp.extremes(beta, self.slope)
        self.violation = top - bottom
        if not self.violation > self.tol or self.n_iter >= self.max_iter or self.stalled:
            return False
        if self.whole:
            self.set = np.arange(qp.size)
            return True
        half = self.size // 2
        if self.n_rounds == 0 and not beta.any():
            # All slopes tie at the start: a random sample of both sides says more than the first rows.
            half = max(1, half // 2)
            up, down = self.rng.permutation(qp.size), self.rng.permutation(qp.size)
            up, down = up[(beta < qp.upper)[up]][:half], down[(beta > qp.lower)[down]][:half]
        else:
            up = np.flatnonzero((beta < qp.upper) & (self.slope > bottom + self.tol / 2))
            down = np.flatnonzero((beta > qp.lower) & (self.slope < top - self.tol / 2))
            up, down = _largest(up, self.slope, half), _largest(down, -self.slope, half)
        chosen = np.union1d(up, down)
        kept = self.set[(beta[self.set] > qp.lower[self.set]) & (beta[self.set] < qp.upper[self.set])]
        kept = np.setdiff1d(kept, chosen, assume_unique=True)
        room = self.size - chosen.size
        if kept.size > room:
            kept = self.rng.choice(kept, max(room, 0), replace=False)
        self.set = np.union1d(chosen, kept)
        return True

    def improve(self, rows: GramRows) -> None:
        """Solve over the working set and record which multipliers moved."""
        qp, chosen = self.qp, self.set
        K = self._gram(rows)
        before = self.beta[chosen]
        after, slope = before.copy(), self.slope[chosen]
        solve_well = self.n_rounds == 0 or self.whole
        tol = max(0.5 * self.tol, 0.0 if solve_well else _SUBPROBLEM_ACCURACY * self.violation)
        cap = min(self.max_iter - self.n_iter, _PAIRS_PER_VARIABLE * chosen.size)
        moves = solve_shrinking(K, slope, after, qp.lower[chosen], qp.upper[chosen], tol, cap)
        self.n_iter += moves
        self.n_rounds += 1
        self.beta[chosen] = after
        moved = np.flatnonzero(after != before)
        # A chosen set always holds a violating pair: if nothing moved, the step is below the rounding of the multipliers.
        self.stalled = moved.size == 0 and self.n_rounds > 1
        change = np.zeros(qp.size)
        change[chosen] = after - before
        self.update = self._after(chosen[moved], change, rows)

    def _after(self, moved: np.ndarray, change: np.ndarray, rows: GramRows) -> Update:
        """What brings `K_beta` up to date; nothing where all of the matrix is here and it is done at once."""
        samples, weights = self.qp.rows_of(moved), change[moved]
        if self.whole:
            self.K_beta += weights @ rows.whole()[samples]
            samples, weights = samples[:0], weights[:0]
        return samples, weights, self.K_beta

    def _gram(self, rows: GramRows) -> np.ndarray:
        sample = self.qp.sample
        if self.whole:
            return rows.whole() if sample is None else rows.whole()[np.ix_(sample, sample)]
        if sample is None:
            return rows.gram(self.set)
        samples, position = np.unique(sample[self.set], return_inverse=True)
        return rows.gram(samples)[np.ix_(position, position)]


def _largest(candidates: np.ndarray, score: np.ndarray, count: int) -> np.ndarray:
    if candidates.size <= count:
        return candidates
    return candidates[np.argpartition(-score[candidates], count)[:count]]
