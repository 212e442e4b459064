"""Sequential minimal optimisation with large working sets.

Each round solves the dual problem over a working set of variables, with a compiled second-order SMO on their Gram matrix,
and then updates the slopes (gradients) of all variables with the kernel rows of the variables that moved.

- Half of a working set are the worst violators; the other half are variables of the previous round, free variables first.
  Only the rows and columns of new variables are computed in the Gram matrix of the set.
- The accuracy to which a set is solved balances the cost of moves against the cost of kernel rows.
- If more variables are free (between their bounds) than a set has, sets grow. Large sets are solved by rounds over subsets.

A round with a working set of q variables costs O(q^2) for new kernel values, O(q) for each pair moved and O(n) for each
kernel row, plus O(n d) for a row that is not cached. Problems on the same points advance together and share kernel rows.

Reference: Joachims (1999), Making large-scale SVM learning practical; Fan, Chen and Lin (2005); ThunderSVM (2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gramless._core.threads import parallel_for
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows, GramSource, StoredGram, Update
from gramless.svm.progress import SolverProgress
from gramless.svm.tuning import TUNING, SVMTuning


@dataclass(frozen=True)
class SMO:
    """Fast dual solver; `tol` bounds the violation of the optimality conditions, `max_iter` the number of pairs moved."""

    tol: float = 1e-3
    # Number of variables of a working set; None is twice the number of free variables, or all variables of a small problem.
    working_set: int | None = None
    max_iter: int = 10_000_000
    tuning: SVMTuning = TUNING

    def maximise(
        self,
        problems: Sequence[BoxQP],
        rows: GramSource,
        rng: np.random.Generator | None = None,
        progress: SolverProgress | None = None,
    ) -> list[DualSolution]:
        """Solve problems on the same points; each round is reported to `progress`, which may stop the solver."""
        rng = np.random.default_rng(0) if rng is None else rng
        progress = SolverProgress(len(problems)) if progress is None else progress
        matrix = rows
        is_small = self.working_set is None and rows.size <= self.tuning.solved_whole
        if is_small and rows.fits_memory(len(problems)) and not progress.stopped:
            matrix = StoredGram(rows.matrix(), workers=rows.workers)
        if isinstance(matrix, GramRows):
            largest = max(max(-qp.lower.min(initial=0), qp.upper.max(initial=0)) for qp in problems)
            matrix.recompute_cheap_rows(float(largest), self.tol)
        # Each problem stores the Gram matrix of its working set, so the problems share the memory for these matrices.
        largest = max(self.tuning.smallest_set, int(matrix.largest_set / len(problems) ** 0.5))
        streams = rng.spawn(len(problems))
        ascents = [
            WorkingSetAscent(self, qp, matrix, stream, largest, progress)
            for qp, stream in zip(problems, streams, strict=True)
        ]
        matrix.add([ascent.initial() for ascent in ascents])
        n_iter, n_active = 0, len(ascents)
        while not progress.stopped:
            active = [ascent for ascent in ascents if ascent.select()]
            moved, solved = sum(ascent.n_iter for ascent in ascents) - n_iter, n_active - len(active)
            n_iter, n_active = n_iter + moved, len(active)
            progress.advance(moved, violation=max(ascent.violation for ascent in ascents), solved=solved)
            if not active or progress.stopped:
                break
            parallel_for(active, WorkingSetAscent.improve, rows.workers)
            matrix.add([ascent.update for ascent in active])
        return [ascent.solution() for ascent in ascents]


class WorkingSetAscent:
    """State of one problem between the rounds of `SMO`; working sets have at most `largest` variables."""

    def __init__(
        self, solver: SMO, qp: BoxQP, rows: GramSource, rng: np.random.Generator, largest: int, progress: SolverProgress
    ):
        self.solver, self.qp, self.rows, self.rng, self.largest, self.progress = solver, qp, rows, rng, largest, progress
        self.beta = np.zeros(qp.size) if qp.start is None else qp.start.astype(np.float64)
        self.K_beta = np.zeros(rows.size) if qp.K_start is None else qp.K_start.astype(np.float64)
        # The working set, its Gram matrix of at most `capacity` rows, and the positions of new variables in it.
        self.set, self.fresh = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        self.gram: np.ndarray | None = None
        self.capacity = 0
        self.last_chosen = np.zeros(qp.size, dtype=np.int32)
        self.n_iter = self.n_rounds = 0
        self.stalled = False
        self.violation = np.inf
        self.update: Update

    def initial(self) -> Update:
        """Return the update that adds the starting point to `K beta`: row indices, weights and the sums `K beta`."""
        nonzero = np.flatnonzero(self.beta if self.qp.K_start is None else [])
        return nonzero, self.beta[nonzero], self.K_beta

    def solution(self) -> DualSolution:
        """Return the solution at the current point."""
        return DualSolution.at(self.qp, self.beta, self.K_beta, self.n_iter, self.solver.tol)

    def select(self) -> bool:
        """Choose the next working set; return False if the problem is solved or cannot be improved."""
        qp, beta, tol = self.qp, self.beta, self.solver.tol
        self.slope = qp.slope(self.K_beta)
        gains, costs = qp.gains(beta, self.slope), qp.costs(beta, self.slope)
        top, bottom = gains.max(initial=-np.inf), costs.min(initial=np.inf)
        self.violation = top - bottom
        if not self.violation > tol or self.n_iter >= self.solver.max_iter or self.stalled:
            return False
        free = qp.is_free(beta)
        size = max(self._size(int(np.count_nonzero(free))), self.set.size)
        if qp.size <= size:
            self._replace(np.setdiff1d(np.arange(qp.size), self.set, assume_unique=True), size)
        elif self.n_rounds == 0 and not beta.any():
            # For `beta = 0` many slopes are equal, so a random sample of variables that may rise and of variables that may
            # fall represents the data better than the first rows.
            up, down = self.rng.permutation(qp.size), self.rng.permutation(qp.size)
            up, down = up[np.isfinite(gains[up])][: size // 2], down[np.isfinite(costs[down])][: size // 2]
            self._replace(np.union1d(up, down), size)
        else:
            up = _largest(np.flatnonzero(gains > bottom + tol / 2), gains, size // 4)
            down = _largest(np.flatnonzero(costs < top - tol / 2), -costs, size // 4)
            self.last_chosen[up] = self.last_chosen[down] = self.n_rounds
            new = np.union1d(up, down)
            self._replace(new[~np.isin(new, self.set)], size, free)
        return True

    def _replace(self, new: np.ndarray, size: int, free: np.ndarray | None = None) -> None:
        """Add `new` variables to the set; in a full set they replace others in place, so the Gram matrix is not copied.

        Variables chosen in this round have priority to stay, then free variables, then the most recently chosen variables.
        """
        n_leaving = max(0, self.set.size + new.size - size)
        leaving = np.empty(0, dtype=np.intp)
        if n_leaving:
            assert free is not None
            chosen = self.last_chosen[self.set]
            leaving = np.lexsort((chosen, free[self.set], chosen == self.n_rounds))[:n_leaving]
        added = np.arange(self.set.size, self.set.size + new.size - n_leaving)
        self.fresh = np.sort(np.concatenate([leaving, added]))
        self.set = np.concatenate([self.set, np.empty(added.size, dtype=np.intp)])
        self.set[self.fresh] = new
        self.capacity = max(size, self.set.size)

    def improve(self) -> None:
        """Solve the problem over the working set, and store the moved variables with their changes as `update`."""
        self._fill_gram()
        qp, chosen = self.qp, self.set
        before = self.beta[chosen]
        after, moves = self._solve(qp.restricted(chosen, self.slope, before))
        self.n_iter += moves
        self.n_rounds += 1
        self.beta[chosen] = after
        moved = np.flatnonzero(after != before)
        # After the first round a set contains a violating pair: if no variable moved, the step was below rounding of beta.
        self.stalled = moved.size == 0 and self.n_rounds > 1
        self.update = chosen[moved], (after - before)[moved], self.K_beta

    def _fill_gram(self) -> None:
        """Compute the rows and columns of the set's Gram matrix that belong to new variables."""
        if isinstance(self.rows, StoredGram) and self.set.size == self.rows.size:
            self.set, self.gram = np.arange(self.rows.size), self.rows.K
            return
        gram = self.gram
        if gram is None or len(gram) < self.capacity:
            larger = np.empty((self.capacity, self.capacity + self.solver.tuning.gram_padding), dtype=self.rows.dtype)
            if gram is not None:
                larger[: len(gram), : len(gram)] = gram[:, : len(gram)]
            self.gram = gram = larger
        if self.fresh.size:
            self.rows.fill(gram, self.set, self.fresh)

    def _size(self, n_free: int) -> int:
        """Return the size of the next set: twice the number of free variables, within limits of cost and memory."""
        if self.solver.working_set is not None:
            return self.solver.working_set
        tuning = self.solver.tuning
        if self.qp.size <= tuning.solved_whole:
            return self.qp.size
        wanted = max(tuning.small_set, min(2 * n_free, int(tuning.largest_set_fraction * self.qp.size)))
        return min(wanted, self.largest)

    def _solve(self, part: BoxQP) -> tuple[np.ndarray, int]:
        """Solve the problem over the working set; return its variables and the number of pairs moved."""
        assert self.gram is not None
        solver, tuning, q = self.solver, self.solver.tuning, part.size
        goal, max_moves = 0.5 * solver.tol, solver.max_iter - self.n_iter
        if q < self.qp.size:
            width = q if q <= tuning.largest_direct else tuning.small_set
            moves_per_row = int(0.5 * q * self.rows.size * self.rows.entry_cost / width)
            goal = max(goal, tuning.set_accuracy * self.violation)
            max_moves = max(1, min(max_moves, max(q, int(tuning.moves_per_row_cost * moves_per_row))))
        return _solve_stored(self.gram, part, replace(solver, tol=goal, max_iter=max_moves), self.rng, self.progress)


def _solve_stored(
    K: np.ndarray, qp: BoxQP, solver: SMO, rng: np.random.Generator, progress: SolverProgress
) -> tuple[np.ndarray, int]:
    """Solve a problem whose linear term is the slope at `qp.start`; return the variables and the number of pairs moved."""
    assert qp.start is not None
    tuning, max_iter = solver.tuning, solver.max_iter
    if qp.size > tuning.largest_direct:
        rows, inner = StoredGram(K, qp.size), replace(solver, working_set=tuning.small_set)
        ascent = WorkingSetAscent(inner, qp, rows, rng, qp.size, progress)
        while not progress.stopped and ascent.select():
            ascent.improve()
            rows.add([ascent.update])
        return ascent.beta, ascent.n_iter
    beta, slope, moves = qp.start.copy(), qp.linear.copy(), 0
    moves_per_call = max(1, tuning.variables_per_call // qp.size)
    while not progress.stopped:
        requested = min(moves_per_call, max_iter - moves)
        done = qp.move_pairs(K, slope, beta, solver.tol, requested)
        moves += done
        if done < requested or moves >= max_iter:
            break
    return beta, moves


def _largest(candidates: np.ndarray, score: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` candidates with the largest scores, in no particular order."""
    if candidates.size <= count:
        return candidates
    return candidates[np.argpartition(-score[candidates], count)[:count]]
