"""Sequential minimal optimisation with large working sets.

Each round solves the dual problem over some hundred or thousand variables alone, with a compiled second-order SMO on their
own Gram matrix, and then brings the slopes of all variables up to date with the kernel rows of those that moved. Three
things keep the number of rounds small and a round cheap:

- half of a working set are the worst violators of the moment, the other half stays from the round before: variables inside
  their box first, because they have to agree with each other. Of its Gram matrix only what belongs to newcomers is computed.
- a set is solved as deeply as the rows it makes necessary are worth: moves are counted against kernel entries.
- where more variables are inside their box than a set holds, sets grow with them. A large set is a problem of its own, on a
  matrix that is held, and is solved by the same method with small sets.

Rows come many at a time from one matrix product, on every core, and are computed once as long as they fit the memory; the
row of a variable that never moves is never computed. With q the working set, a round costs O(q^2) for the newcomers' kernel
values, O(q) for each pair moved and O(n) for each row, beside O(n d) for a row that is new. Several problems on the same
points advance together and share their rows.

Reference: Joachims (1999), Making large-scale SVM learning practical; Fan, Chen and Lin (2005), Working set selection
using second order information; Wen, Shi, Li, He and Chen (2018), ThunderSVM: a fast SVM library on GPUs and CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.threads import parallel_for
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows, HeldRows, Update
from gramless.svm.watch import Watch

SOLVED_WHOLE = 2048
"""Problems up to this size are one working set: below it, rounds cost more than the kernel values they save."""

# A set whose Gram matrix and slopes stay in the cache of one core.
_SMALL_SET = 1024
_LARGEST_DIRECT = 1280
# Whatever the budget, a set has some variables.
_SMALLEST_SET = 64
_PADDING = 16
# A set is solved until its violation has fallen by this factor.
_ACCURACY = 0.1
# Moves that a set may cost, in units of what its rows cost.
_MOST_MOVES = 4.0
# Where a set may be large, its Gram matrix costs at most this share of its rows.
_LARGEST_SHARE = 0.25
# Compiled code comes back after so many variables looked at, about a fifth of a second, so that Ctrl-C is heard.
_AT_A_TIME = 150_000_000


class Rows(Protocol):
    """What the method asks of a Gram matrix."""

    size: int
    workers: int
    largest_set: int
    dtype: np.dtype

    @property
    def entry_cost(self) -> float: ...

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None: ...

    def add(self, updates: Sequence[Update]) -> None: ...


class SMO(BaseEstimator):
    """Fast dual solver for support vector machines.

    Parameters
    ----------
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the decision function.
    working_set : int or None, default=None
        Variables optimised together; by default 1024 or twice as many as are inside their box, and all of a problem with no
        more than 2048.
    max_iter : int, default=10_000_000
        Cap on the number of pairs moved.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.svm.box_qp import BoxQP
    >>> from gramless.svm.gram_rows import GramRows
    >>> from gramless.svm.smo import SMO
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
        import_module("gramless._core.compiled.gaussian_tiles")  # kernels use it for small blocks too once it is loaded
        matrix: Rows = rows
        if self.working_set is None and rows.size <= SOLVED_WHOLE and not watch.stopped:
            matrix = HeldRows(rows.whole(), workers=rows.workers)
        # Every problem keeps the Gram matrix of its set.
        largest = max(_SMALLEST_SET, int(matrix.largest_set / len(problems) ** 0.5))
        settings = (self.tol, self.max_iter, self.working_set, largest, watch)
        ascents = [Ascent(qp, matrix, own, *settings) for qp, own in zip(problems, rng.spawn(len(problems)), strict=True)]
        matrix.add([ascent.initial() for ascent in ascents])
        n_iter, n_active = 0, len(ascents)
        while not watch.stopped:
            active = [ascent for ascent in ascents if ascent.select()]
            moved, solved = sum(ascent.n_iter for ascent in ascents) - n_iter, n_active - len(active)
            n_iter, n_active = n_iter + moved, len(active)
            watch.advance(moved, violation=max(ascent.violation for ascent in ascents), solved=solved)
            if not active or watch.stopped:
                break
            parallel_for(active, Ascent.improve, rows.workers)
            matrix.add([ascent.update for ascent in active])
        return [ascent.solution() for ascent in ascents]


class Ascent:
    """One problem on its way to the optimum."""

    def __init__(
        self,
        qp: BoxQP,
        rows: Rows,
        rng: np.random.Generator,
        tol: float,
        max_iter: int,
        size: int | None,
        largest: int,
        watch: Watch,
    ):
        self.qp = qp
        self.rows = rows
        self.rng = rng
        self.tol = tol
        self.max_iter = max_iter
        self.watch = watch
        self.beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        self.K_beta = np.zeros(rows.size) if qp.K_start is None else qp.K_start.astype(np.float64)
        self.fixed_size = size
        self.largest = largest
        self.set = np.empty(0, dtype=np.intp)
        self.gram: np.ndarray | None = None
        self.fresh = np.empty(0, dtype=np.intp)
        self.capacity = 0
        self.last_chosen = np.zeros(qp.size, dtype=np.int32)
        self.n_iter = 0
        self.n_rounds = 0
        self.stalled = False
        self.violation = np.inf
        self.update: Update

    def initial(self) -> Update:
        """The rows that turn a starting point into its slopes."""
        started = np.flatnonzero(self.beta if self.qp.K_start is None else [])
        return started, self.beta[started], self.K_beta

    def solution(self) -> DualSolution:
        return DualSolution.at(self.qp, self.beta, self.K_beta, self.n_iter, self.tol)

    def select(self) -> bool:
        """Choose the next working set; false when there is nothing left to do."""
        qp, beta = self.qp, self.beta
        self.slope = qp.slope(self.K_beta)
        rising, falling = qp.rising(beta, self.slope), qp.falling(beta, self.slope)
        top, bottom = rising.max(initial=-np.inf), falling.min(initial=np.inf)
        self.violation = top - bottom
        if not self.violation > self.tol or self.n_iter >= self.max_iter or self.stalled:
            return False
        inside = qp.inside(beta)
        size = max(self._size(int(np.count_nonzero(inside))), self.set.size)
        if qp.size <= size:
            self._replace(np.setdiff1d(np.arange(qp.size), self.set, assume_unique=True), size)
        elif self.n_rounds == 0 and not beta.any():
            # Slopes tie at the start: a random sample of both sides says more than the first rows.
            up, down = self.rng.permutation(qp.size), self.rng.permutation(qp.size)
            up, down = up[np.isfinite(rising[up])][: size // 2], down[np.isfinite(falling[down])][: size // 2]
            self._replace(np.union1d(up, down), size)
        else:
            up = _largest(np.flatnonzero(rising > bottom + self.tol / 2), rising, size // 4)
            down = _largest(np.flatnonzero(falling < top - self.tol / 2), -falling, size // 4)
            self.last_chosen[up] = self.last_chosen[down] = self.n_rounds
            new = np.union1d(up, down)
            self._replace(new[~np.isin(new, self.set)], size, inside)
        return True

    def _replace(self, new: np.ndarray, size: int, inside: np.ndarray | None = None) -> None:
        """Let `new` variables into the set, in the places of others where it is full: its Gram matrix stays where it is.

        Those chosen in this round stay, then those inside their box, then those that were chosen last.
        """
        n_leaving = max(0, self.set.size + new.size - size)
        leaving = np.empty(0, dtype=np.intp)
        if n_leaving:
            assert inside is not None
            chosen = self.last_chosen[self.set]
            leaving = np.lexsort((chosen, inside[self.set], chosen == self.n_rounds))[:n_leaving]
        added = np.arange(self.set.size, self.set.size + new.size - n_leaving)
        self.fresh = np.sort(np.concatenate([leaving, added]))
        self.set = np.concatenate([self.set, np.empty(added.size, dtype=np.intp)])
        self.set[self.fresh] = new
        self.capacity = max(size, self.set.size)

    def improve(self) -> None:
        """Solve over the working set and record which multipliers moved."""
        self._fill_gram()
        qp, chosen = self.qp, self.set
        before = self.beta[chosen]
        after, moves = self._solve(qp.part(chosen, self.slope, before))
        self.n_iter += moves
        self.n_rounds += 1
        self.beta[chosen] = after
        moved = np.flatnonzero(after != before)
        # A set not drawn at random holds a violating pair: where nothing moved, the step was below the rounding of beta.
        self.stalled = moved.size == 0 and self.n_rounds > 1
        self.update = chosen[moved], (after - before)[moved], self.K_beta

    def _fill_gram(self) -> None:
        """Bring the set's Gram matrix up to date where variables came in."""
        if isinstance(self.rows, HeldRows) and self.set.size == self.rows.size:
            self.set, self.gram = np.arange(self.rows.size), self.rows.K
            return
        gram = self.gram
        if gram is None or len(gram) < self.capacity:
            # Rows that are not a power of two apart do not compete for the same places of the cache.
            larger = np.empty((self.capacity, self.capacity + _PADDING), dtype=self.rows.dtype)
            if gram is not None:
                larger[: len(gram), : len(gram)] = gram[:, : len(gram)]
            self.gram = gram = larger
        if self.fresh.size:
            self.rows.fill(gram, self.set, self.fresh)

    def _size(self, n_inside: int) -> int:
        """Variables in the next set: enough for those inside their box, as far as its Gram matrix is worth it and fits."""
        if self.fixed_size is not None:
            return self.fixed_size
        if self.qp.size <= SOLVED_WHOLE:
            return self.qp.size
        wanted = max(_SMALL_SET, min(2 * n_inside, int(_LARGEST_SHARE * self.qp.size)))
        return min(wanted, self.largest)

    def _solve(self, part: BoxQP) -> tuple[np.ndarray, int]:
        """The variables of a set after its problem was solved, and the pairs moved."""
        assert self.gram is not None
        q = part.size
        width = q if q <= _LARGEST_DIRECT else _SMALL_SET
        if q == self.qp.size:
            return solve_held(self.gram, part, 0.5 * self.tol, self.max_iter - self.n_iter, self.rng, self.watch)
        worth = int(0.5 * q * self.rows.size * self.rows.entry_cost / width)
        goal = max(0.5 * self.tol, _ACCURACY * self.violation)
        most = max(1, min(self.max_iter - self.n_iter, max(q, int(_MOST_MOVES * worth))))
        return solve_held(self.gram, part, goal, most, self.rng, self.watch)


def solve_held(
    K: np.ndarray, qp: BoxQP, tol: float, max_iter: int, rng: np.random.Generator, watch: Watch
) -> tuple[np.ndarray, int]:
    """Solve a problem whose linear term is the slope at its starting point; gives the variables and the pairs moved."""
    assert qp.start is not None
    if qp.size > _LARGEST_DIRECT:
        rows = HeldRows(K, qp.size)
        ascent = Ascent(qp, rows, rng, tol, max_iter, _SMALL_SET, qp.size, watch)
        while not watch.stopped and ascent.select():
            ascent.improve()
            rows.add([ascent.update])
        return ascent.beta, ascent.n_iter
    beta, slope, moves = qp.start.copy(), qp.linear.copy(), 0
    at_a_time = max(1, _AT_A_TIME // qp.size)
    while not watch.stopped:
        asked = min(at_a_time, max_iter - moves)
        done = qp.move_pairs(K, slope, beta, tol, asked)
        moves += done
        if done < asked or moves >= max_iter:
            break
    return beta, moves


def _largest(candidates: np.ndarray, score: np.ndarray, count: int) -> np.ndarray:
    if candidates.size <= count:
        return candidates
    return candidates[np.argpartition(-score[candidates], count)[:count]]
