"""Sequential minimal optimisation of many dual problems at the same time, on a graphics card.

The method is that of `gramless.svm.smo`. Each round solves every unsolved problem over a working set of its variables: half
of the set are the worst violators, and half are variables of earlier rounds. The round then updates the slopes (gradients)
of all variables. One program instance on the card solves one working set, with the variables of the set in registers.

The full Gram matrix is stored if its n^2 values fit the budget. Otherwise the kernel rows of a round are computed in tiles
and discarded, because recomputing the rows costs less than transferring them. Working sets are then large, so that fewer
rounds compute kernel rows, and a large set is solved by the same method on the Gram matrix of the set.

Cost for P problems of n points and working sets of q variables: a round takes O(P q^2) kernel values for the sets, O(q) for
each pair moved and O(P q n) additions. All kernel values are computed once, or in O(P q n d) per round if not stored.

Reference: Wen, Shi, Li, He and Chen (2018), ThunderSVM: a fast SVM library on GPUs and CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.memory import format_bytes
from gramless._core.threads import slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators.fused import Form, can_fuse, fused_form
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import Part, as_indices, within
from gramless.svm.progress import SolverProgress
from gramless.svm.tuning import TUNING

# Score of a variable that may not move: finite, so that such a variable is selected before those already in the set (-inf).
_MASKED = 1e300


@dataclass(frozen=True)
class BatchedSMO:
    """Dual solver on a device; `working_set` is a number of variables, a power of two, and is halved if memory is scarce."""

    tol: float = 1e-3
    working_set: int = TUNING.device_set
    max_iter: int = 10_000_000

    def maximise(
        self,
        problems: Sequence[BoxQP],
        parts: Sequence[Sequence[Part]],
        kernel: Kernel,
        X: Any,
        budget: float,
        seed: int = 0,
        progress: SolverProgress | None = None,
    ) -> list[DualSolution]:
        """Solve problems on parts of the rows `X` on a device, within `budget` bytes in addition to `X`."""
        progress = SolverProgress(len(problems)) if progress is None else progress
        working_set, for_state = self._split_budget(problems, kernel, X, budget)
        values = device_gram(kernel, X, budget - for_state)
        solutions: list[DualSolution] = [None] * len(problems)  # type: ignore[list-item]
        for group in _groups(problems, working_set, X.element_size(), for_state):
            state = BatchState.of([problems[p] for p in group], [parts[p] for p in group], X.device, working_set)
            largest = self._largest_set(state, values, budget, working_set)
            sizes = largest, working_set
            BatchedAscent(state, values, [parts[p] for p in group], *sizes, self.tol, self.max_iter, seed).solve(progress)
            host = (xa.to_numpy(x) for x in (state.beta, state.K_beta, state.moves))
            for p, beta, K_beta, moves in zip(group, *host, strict=True):
                size = problems[p].size
                solutions[p] = DualSolution.at(problems[p], beta[:size], K_beta[:size], int(moves), self.tol)
        return solutions

    def _largest_set(
        self, state: BatchState, values: StoredDeviceGram | TiledDeviceGram, budget: float, working_set: int
    ) -> int:
        """Return the size of a working set, larger if kernel rows are not stored and the budget allows its Gram matrix."""
        n_problems, n = state.beta.shape
        if isinstance(values, StoredDeviceGram):
            return min(working_set, n)
        fits = int((TUNING.device_set_fraction * budget / (2 * n_problems * values.X.element_size())) ** 0.5)
        wanted = min(int(TUNING.device_largest_set_fraction * n), fits)
        return wanted if wanted > working_set else min(working_set, n)

    def _split_budget(self, problems: Sequence[BoxQP], kernel: Kernel, X: Any, budget: float) -> tuple[int, float]:
        """Return the largest working set that fits, and the bytes of the budget for the state of the problems."""
        q, largest = self.working_set, max(qp.size for qp in problems)
        while True:
            one, values = _state_bytes(largest, q, X.element_size()), least_bytes(kernel, X, q)
            if one + values <= budget:
                total = sum(_state_bytes(qp.size, q, X.element_size()) for qp in problems)
                return q, max(one, min(total, TUNING.device_state_fraction * budget, budget - values))
            if q <= TUNING.smallest_set:
                raise MemoryError(
                    f"a dual problem of {largest} points takes {format_bytes(one + values)} in addition to the points, and "
                    f"memory_budget leaves {format_bytes(int(budget))} for it; raise memory_budget"
                )
            q //= 2


def _set_size(n: int, working_set: int) -> int:
    """Return the size of a working set for `n` variables: all variables if they are few, rounded up to a power of two."""
    return max(TUNING.smallest_set, min(working_set, 1 << max(0, n - 1).bit_length()))


def _state_bytes(n: int, working_set: int, itemsize: int) -> int:
    """Return the bytes of a problem with `n` variables: state, and Gram matrix of a working set with a temporary copy."""
    q = _set_size(n, working_set)
    return 8 * TUNING.numbers_per_variable * max(q, n) + 2 * itemsize * q**2


def _groups(problems: Sequence[BoxQP], working_set: int, itemsize: int, budget: float) -> list[list[int]]:
    """Group problems of similar size, which limits the padding; a group has as many problems as fit the budget."""
    groups: list[list[int]] = []
    n_free = 0
    for p in sorted(range(len(problems)), key=lambda p: -problems[p].size):
        if n_free < 1:
            n_free = int(budget // _state_bytes(problems[p].size, working_set, itemsize))
            groups.append([])
        groups[-1].append(p)
        n_free -= 1
    return groups


@dataclass
class BatchState:
    """State of several problems, one per row of every tensor; variables that pad a row are fixed by their bounds at zero."""

    linear: Any
    lower: Any
    upper: Any
    epsilon: Any
    beta: Any
    K_beta: Any
    moves: Any
    # Row and column indices of the variables in the matrix of kernel values.
    rows: Any
    columns: Any

    @classmethod
    def of(cls, problems: Sequence[BoxQP], parts: Sequence[Sequence[Part]], device: Any, working_set: int) -> BatchState:
        """Return the state before the first round, with the products `K beta` set to zero for every starting point."""
        torch = xa.import_torch()
        largest = max(qp.size for qp in problems)
        n = max(largest, _set_size(largest, working_set))

        def stacked(rows: list[np.ndarray], dtype: Any) -> Any:
            out = np.zeros((len(rows), n), dtype=dtype)
            for target, row in zip(out, rows, strict=True):
                target[: row.size] = row
            return torch.as_tensor(out, device=device)

        beta = stacked([np.zeros(qp.size) if qp.start is None else qp.start for qp in problems], np.float64)
        rows = stacked([np.concatenate([as_indices(part) for part in own]) for own in parts], np.int64)
        return cls(
            stacked([qp.linear for qp in problems], np.float64),
            stacked([qp.lower for qp in problems], np.float64),
            stacked([qp.upper for qp in problems], np.float64),
            torch.as_tensor([float(qp.epsilon) for qp in problems], dtype=torch.float64, device=device),
            beta,
            torch.zeros_like(beta),
            torch.zeros(len(problems), dtype=torch.int64, device=device),
            rows,
            rows,
        )


class BatchedAscent:
    """Solver of a batch of problems by rounds: select and solve working sets, then update the slopes of all variables."""

    def __init__(
        self,
        state: BatchState,
        values: StoredDeviceGram | TiledDeviceGram,
        parts: Sequence[Sequence[Part]],
        set_size: int,
        solved_directly: int,
        tol: float | Any,
        max_iter: int | Any,
        seed: int,
    ):
        torch = xa.import_torch()
        self.state, self.values, self.parts = state, values, parts
        self.q, self.solved_directly = set_size, solved_directly
        n_problems, self.n = state.beta.shape
        device = state.beta.device
        self.tol = torch.as_tensor(tol, device=device, dtype=torch.float64).expand(n_problems)
        self.max_iter = torch.as_tensor(max_iter, device=device).expand(n_problems)
        self.stalled = torch.zeros(n_problems, dtype=torch.bool, device=device)
        self.last_chosen = torch.full(state.beta.shape, -1.0, dtype=torch.float32, device=device)
        self.seed = seed
        self.random = torch.Generator(device=device)
        self.random.manual_seed(seed)

    def solve(self, progress: SolverProgress, *, inner: bool = False) -> None:
        """Run rounds until every problem is solved or no variable can move; with `inner`, rounds are not reported."""
        torch = xa.import_torch()
        state = self.state
        is_started = inner or bool(state.beta.any())
        if is_started and not inner:
            self._add_start()
        active = torch.arange(len(state.beta), device=state.beta.device)
        n_moved = 0
        for number in count():
            slope = state.linear[active] - state.K_beta[active]
            gains, costs = self._gains(active, slope)
            violation = gains.amax(1) - costs.amin(1)
            unsolved = (violation > self.tol[active]) & (state.moves[active] < self.max_iter[active]) & ~self.stalled[active]
            n_unsolved, moved, worst = torch.stack([unsolved.sum(), state.moves.sum(), violation.amax()]).tolist()
            if not inner:
                progress.advance(int(moved) - n_moved, violation=worst, solved=len(active) - int(n_unsolved))
            n_moved = int(moved)
            if not n_unsolved or progress.stopped:
                return
            if n_unsolved < len(active):
                active, slope, violation = active[unsolved], slope[unsolved], violation[unsolved]
                gains, costs = gains[unsolved], costs[unsolved]
            chosen = self._select(number, active, gains, costs, sampled=number == 0 and not is_started)
            self._improve(number, active, chosen, slope, violation, progress)

    def _add_start(self) -> None:
        """Add the products `K beta` of the starting point to the state."""
        state = self.state
        all_problems = xa.import_torch().arange(len(state.beta), device=state.beta.device)
        for part in slices(self.n, self.q):
            rows, weights = state.rows[:, part].contiguous(), state.beta[:, part].contiguous()
            self.values.add(state.K_beta, all_problems, rows, weights, state.columns, self.parts)

    def _gains(self, active: Any, slope: Any) -> tuple[Any, Any]:
        """Return the gain of raising and the cost of lowering each variable, as in `gramless.svm.box_qp`."""
        torch = xa.import_torch()
        beta, epsilon = self.state.beta[active], self.state.epsilon[active, None]
        lower, upper = self.state.lower[active], self.state.upper[active]
        gains = torch.where(beta < upper, slope + torch.where(beta < 0, epsilon, -epsilon), -_MASKED)
        costs = torch.where(beta > lower, slope + torch.where(beta > 0, -epsilon, epsilon), _MASKED)
        return gains, costs

    def _select(self, number: int, active: Any, gains: Any, costs: Any, *, sampled: bool) -> Any:
        """Return the next working sets: worst violators, then free variables, then the most recently chosen variables."""
        torch = xa.import_torch()
        state = self.state
        if sampled:
            # For `beta = 0` many slopes are equal, so a random sample of variables that may rise and of variables that may
            # fall represents the data better than the first rows.
            noise = torch.rand(gains.shape, generator=self.random, device=gains.device, dtype=torch.float64)
            gains = torch.where(gains > -_MASKED, noise, -_MASKED)
            costs = torch.where(costs < _MASKED, noise, _MASKED)
        taken = torch.zeros_like(gains, dtype=torch.bool)

        def take(score: Any, size: int) -> Any:
            places = torch.topk(score.masked_fill(taken, -torch.inf), size, dim=1, sorted=False).indices
            taken.scatter_(1, places, True)
            return places

        violators = torch.cat([take(gains, self.q // 4), take(-costs, self.q // 4)], 1)
        self.last_chosen[active[:, None], violators] = float(number)
        beta, epsilon = state.beta[active], state.epsilon[active, None]
        is_free = (beta > state.lower[active]) & (beta < state.upper[active]) & ((beta != 0) | (epsilon == 0))
        kept = take(self.last_chosen[active] + is_free * float(number + 2), self.q - 2 * (self.q // 4))
        return torch.cat([violators, kept], 1)

    def _improve(self, number: int, active: Any, chosen: Any, slope: Any, violation: Any, progress: SolverProgress) -> None:
        """Solve the problems over their working sets and update the slopes of all variables."""
        torch = xa.import_torch()
        state = self.state
        full = (state.rows, state.columns, state.beta, state.lower, state.upper)
        rows, columns, before, lower, upper = (x[active].gather(1, chosen) for x in full)
        slope, epsilon = slope.gather(1, chosen), state.epsilon[active]
        # A set with all variables of its problem is solved to the tolerance.
        accuracy = TUNING.set_accuracy if self.q < self.n else 0.0
        goal = torch.maximum(accuracy * violation, 0.5 * self.tol[active])
        max_moves = torch.clamp(self.max_iter[active] - state.moves[active], max=TUNING.device_moves_per_call)
        gram = self.values.gram(rows, columns)
        if self.q <= self.solved_directly:
            after = before.clone()
            moves = solve_sets(gram, slope, after, lower, upper, epsilon, goal, max_moves)
        else:
            part = _state_of_sets(slope, lower, upper, epsilon, before)
            inner = StoredDeviceGram(gram.reshape(-1, self.q))
            sizes = self.solved_directly, self.solved_directly
            BatchedAscent(part, inner, [], *sizes, goal, max_moves, self.seed).solve(progress, inner=True)
            after, moves = part.beta, part.moves
        state.moves[active] += moves
        state.beta[active[:, None], chosen] = after
        # After the first round a set contains a violating pair: if no variable moved, the step was below rounding of beta.
        self.stalled[active] = (moves == 0) & (number > 0)
        self.values.add(state.K_beta, active, rows, after - before, state.columns, self.parts)


def _state_of_sets(slope: Any, lower: Any, upper: Any, epsilon: Any, beta: Any) -> BatchState:
    """Return the initial state of one subproblem for each large working set; their Gram matrices are stacked vertically."""
    torch = xa.import_torch()
    n_sets, q = slope.shape
    columns = torch.arange(q, device=slope.device).expand(n_sets, q).contiguous()
    rows = columns + q * torch.arange(n_sets, device=slope.device)[:, None]
    moves = torch.zeros(n_sets, dtype=torch.int64, device=slope.device)
    return BatchState(slope, lower, upper, epsilon, beta.clone(), torch.zeros_like(beta), moves, rows, columns)


@dataclass(frozen=True)
class StoredDeviceGram:
    """A Gram matrix in device memory."""

    K: Any

    def gram(self, rows: Any, columns: Any) -> Any:
        """Return the Gram matrix of each working set; row a of `rows` and `columns` has the indices of set a in `K`."""
        return self.K[rows[:, :, None], columns[:, None, :]]

    def add(self, total: Any, active: Any, rows: Any, weights: Any, columns: Any, parts: Sequence[Sequence[Part]]) -> None:
        """Compute `total[active[a]] += weights[a] @ K[rows[a]][:, columns[active[a]]]` for each a."""
        if not total.is_cuda:
            for a, p in enumerate(active.tolist()):
                total[p] += weights[a] @ self.K[rows[a]][:, columns[p]].double()
            return
        from gramless._core.compiled.smo_triton import add_rows

        torch = xa.import_torch()
        # Rows with non-zero weights come first, because the GPU kernel reads only the first `counts` rows.
        order = torch.argsort((weights == 0).to(torch.int8), dim=1, stable=True)
        counts = (weights != 0).sum(1)
        add_rows(self.K, rows.gather(1, order), weights.gather(1, order), counts, columns, active, total)


@dataclass(frozen=True)
class FusedRowSums:
    """Weighted sums of kernel rows on a CUDA device, for kernels that are functions of inner products or distances."""

    X: Any
    norms: Any
    form: Form

    @classmethod
    def of(cls, kernel: Kernel, X: Any, budget: float) -> FusedRowSums | None:
        """Return the sums for the points `X`; None if not supported, or if a padded copy exceeds the budget."""
        torch, form, width = xa.import_torch(), fused_form(kernel), -(-X.shape[1] // 16) * 16
        if form is None or not form.smooth or not can_fuse(kernel, X, "high") or 4 * len(X) * (width + 1) > budget:
            return None
        padded = torch.zeros((len(X), width), dtype=X.dtype, device=X.device)
        padded[:, : X.shape[1]] = X
        if form.of_distances:
            # The points are centred: distances computed from norms lose digits if all points are far from the origin.
            padded[:, : X.shape[1]] -= X.mean(0)
        return cls(padded, (padded**2).sum(1), form)

    def add(self, rows: Any, weights: Any, total: Any, parts: Sequence[slice]) -> None:
        """Compute `total += weights @ K[rows][:, parts]`."""
        from gramless._core.compiled.smo_triton import add_from_points

        start = 0
        for part in parts:
            size = part.stop - part.start
            if size:
                add_from_points(self.X, self.norms, rows, weights, total[start : start + size], part.start, self.form)
            start += size


@dataclass(frozen=True)
class TiledDeviceGram:
    """Kernel values computed from points on the device in tiles of at most `entries` values."""

    kernel: Kernel
    X: Any
    entries: int
    fused: FusedRowSums | None = None

    def gram(self, rows: Any, columns: Any) -> Any:
        """Return the Gram matrix of each working set; `rows` and `columns` are equal, with one set per row."""
        torch = xa.import_torch()
        out = torch.empty((*rows.shape, rows.shape[1]), dtype=self.X.dtype, device=self.X.device)
        for K, idx in zip(out, rows, strict=True):
            points = self.X[idx]
            self.kernel(points, points, out=K)
        return out

    def add(self, total: Any, active: Any, rows: Any, weights: Any, columns: Any, parts: Sequence[Sequence[Any]]) -> None:
        """Compute `total[active[a]] += weights[a] @ K[rows[a]][:, columns]` with the columns in `parts[active[a]]`."""
        torch = xa.import_torch()
        for a, p in enumerate(active.tolist()):
            moved = torch.nonzero(weights[a]).ravel()
            if not len(moved):
                continue
            idx, own, start = rows[a, moved], weights[a, moved], 0
            if self.fused is not None:
                self.fused.add(idx, own, total[p], parts[p])
                continue
            points, step = self.X[idx], max(TUNING.device_smallest_tile, self.entries // max(len(moved), self.X.shape[1]))
            for part in parts[p]:
                for columns in slices(part.stop - part.start, step):
                    values = self.kernel(points, self.X[within(part, columns)])
                    _add_weighted(values, own, total[p, start + columns.start : start + columns.stop])
                start += part.stop - part.start


def device_gram(kernel: Kernel, X: Any, budget: float) -> StoredDeviceGram | TiledDeviceGram:
    """Return the stored Gram matrix if it fits `budget` bytes, else one that is computed in tiles."""
    if not kernel.uses_points:
        return StoredDeviceGram(X)
    n, itemsize, copies = len(X), X.element_size(), 1 + kernel.temporaries
    entries = int(min(TUNING.device_tile_bytes, budget / 2) // (itemsize * copies))
    full, step = n * n * itemsize, int(min(n, max(1, TUNING.device_tile_bytes // (itemsize * max(n * copies, X.shape[1])))))
    if full + step * n * itemsize * copies <= budget:
        K = xa.import_torch().empty((n, n), dtype=X.dtype, device=X.device)
        for rows in slices(n, step):
            left = X[rows]
            for columns in slices(n, max(TUNING.device_smallest_tile, entries // max(step, X.shape[1]))):
                kernel(left, X[columns], out=K[rows, columns])
        return StoredDeviceGram(K)
    return TiledDeviceGram(kernel, X, entries, FusedRowSums.of(kernel, X, budget / 4))


def least_bytes(kernel: Kernel, X: Any, working_set: int) -> int:
    """Return the smallest memory for kernel values: the points and values of a working set, and a tile."""
    if not kernel.uses_points:
        return 0
    copies, d = 1 + kernel.temporaries, X.shape[1]
    for_set = working_set * (d + working_set * copies)
    return int(X.element_size() * (for_set + 2 * TUNING.device_smallest_tile * max(working_set * copies, d)))


def solve_sets(gram: Any, slope: Any, beta: Any, lower: Any, upper: Any, epsilon: Any, goal: Any, max_moves: Any) -> Any:
    """Maximise the dual over each working set (one per row) by changing `beta`; return the number of pairs moved per set.

    `slope` is the gradient of the smooth part at `beta`, `goal` the largest accepted violation, `max_moves` a limit per set.
    """
    torch = xa.import_torch()
    moves = torch.zeros(len(gram), dtype=torch.int64, device=gram.device)
    if gram.is_cuda:
        from gramless._core.compiled.smo_triton import solve_sets as solve_on_device

        solve_on_device(gram, slope, beta, lower, upper, epsilon, goal, max_moves, moves)
        return moves
    from gramless._core.compiled.smo_loops import solve_pairs

    host = [x.numpy() for x in (gram, slope, beta, lower, upper)]
    for p, (tube, tol, limit) in enumerate(zip(epsilon.tolist(), goal.tolist(), max_moves.tolist(), strict=True)):
        K, slopes, variables, low, high = (x[p] for x in host)
        moves[p], _ = solve_pairs(K, slopes, variables, low, high, tube, tol, limit)
    return moves


def _add_weighted(block: Any, weights: Any, target: Any) -> None:
    """Compute `target += weights @ block` in double precision."""
    if not target.is_cuda:
        target += weights @ block.double()
        return
    from gramless._core.compiled.smo_triton import add_rows

    torch = xa.import_torch()
    m, n = block.shape
    rows, columns = torch.arange(m, device=block.device)[None], torch.arange(n, device=block.device)[None]
    counts, first = torch.full_like(rows[:, 0], m), torch.zeros_like(rows[:, 0])
    add_rows(block, rows, weights[None], counts, columns, first, target)
