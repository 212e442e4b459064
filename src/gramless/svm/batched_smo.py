"""Sequential minimal optimisation of many dual problems side by side, on a graphics card.

The method is that of `gramless.svm.smo`: in each round a working set of every problem that is left is solved alone, half of
it the worst violators of the moment, the other half kept from the rounds before, and then the slopes of all variables are
brought up to date. A set is one program on the card with its variables in registers; all problems of a machine run at once.
See `gramless.svm.device_values` for where kernel values are. Where they are not held, a set is large, so that few rounds
compute the rows of all points, and is itself solved by this method, on its own Gram matrix.

Cost, with P problems of n points and working sets of q: a round takes O(P q^2) kernel values for the sets, O(q) for each
pair moved and O(P q n) additions; all kernel values once, or O(P q n d) operations a round where they are not held.

Reference: Wen, Shi, Li, He and Chen (2018), ThunderSVM: a fast SVM library on GPUs and CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.memory import format_bytes
from gramless._core.threads import slices
from gramless.kernels.base import Kernel
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.device_values import ComputedValues, HeldValues, least_bytes, solve_sets, values_on
from gramless.svm.gram_rows import Part, as_indices
from gramless.svm.watch import Watch

# The registers of one multiprocessor hold the variables of a set of this size.
_LARGEST_SET = 1024
_SMALLEST_SET = 64
# Finite, so that a variable that may not move is still taken before one that was taken already (minus infinity).
_MASKED = 1e300
# A set is solved until its violation has fallen by this factor.
_ACCURACY = 0.1
# A set comes back after so many moves, about a fifth of a second, so that Ctrl-C is heard.
_MOST_MOVES = 100_000
# Numbers of eight bytes that a variable takes: its state, and the temporaries of a selection.
_NUMBERS_PER_VARIABLE = 16
_SHARE_OF_STATE = 0.25
# Of the budget, what the Gram matrices of large sets may take, and of a round's kernel values, what such a matrix may cost.
_SHARE_OF_SETS = 0.25
_LARGEST_SHARE = 1 / 64


class BatchedSMO(BaseEstimator):
    """Dual solver for support vector machines on a device.

    Parameters
    ----------
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the decision function.
    working_set : int, default=1024
        Variables of a problem that are optimised together, a power of two; fewer where memory is scarce.
    max_iter : int, default=10_000_000
        Cap on the number of pairs moved.
    """

    def __init__(self, *, tol: float = 1e-3, working_set: int = _LARGEST_SET, max_iter: int = 10_000_000):
        self.tol = tol
        self.working_set = working_set
        self.max_iter = max_iter

    def maximise(
        self,
        problems: Sequence[BoxQP],
        parts: Sequence[Sequence[Part]],
        kernel: Kernel,
        X: Any,
        budget: float,
        seed: int = 0,
        watch: Watch | None = None,
    ) -> list[DualSolution]:
        """Solve problems whose points are parts of `X`, rows on a device, within `budget` bytes beside `X`."""
        watch = Watch(len(problems)) if watch is None else watch
        working_set, for_state = self._shares(problems, kernel, X, budget)
        values = values_on(kernel, X, budget - for_state)
        solutions: list[DualSolution] = [None] * len(problems)  # type: ignore[list-item]
        for group in _groups(problems, working_set, X.element_size(), for_state):
            state = State.of([problems[p] for p in group], [parts[p] for p in group], values.device, working_set)
            largest = self._largest_set(state, values, budget, working_set)
            sizes = largest, working_set
            Ascents(state, values, [parts[p] for p in group], *sizes, self.tol, self.max_iter, seed).solve(watch)
            host = (xa.to_numpy(x) for x in (state.beta, state.K_beta, state.moves))
            for p, beta, K_beta, moves in zip(group, *host, strict=True):
                size = problems[p].size
                solutions[p] = DualSolution.at(problems[p], beta[:size], K_beta[:size], int(moves), self.tol)
        return solutions

    def _largest_set(self, state: State, values: HeldValues | ComputedValues, budget: float, working_set: int) -> int:
        """Variables in a set: more where rows are not held, as far as its Gram matrix fits and costs little beside them."""
        n_problems, n = state.beta.shape
        if isinstance(values, HeldValues):
            return min(working_set, n)
        fits = int((_SHARE_OF_SETS * budget / (2 * n_problems * values.X.element_size())) ** 0.5)
        wanted = min(int(_LARGEST_SHARE * n), fits)
        return wanted if wanted > working_set else min(working_set, n)

    def _shares(self, problems: Sequence[BoxQP], kernel: Kernel, X: Any, budget: float) -> tuple[int, float]:
        """The largest working set that fits, and what of the budget is for the state of the problems."""
        q, largest = self.working_set, max(qp.size for qp in problems)
        while True:
            one, values = _state_bytes(largest, q, X.element_size()), least_bytes(kernel, X, q)
            if one + values <= budget:
                everything = sum(_state_bytes(qp.size, q, X.element_size()) for qp in problems)
                return q, max(one, min(everything, _SHARE_OF_STATE * budget, budget - values))
            if q <= _SMALLEST_SET:
                raise MemoryError(
                    f"a dual problem of {largest} points takes {format_bytes(one + values)} beside the points, and "
                    f"memory_budget leaves {format_bytes(int(budget))} for it; allow more"
                )
            q //= 2


def _set_size(n: int, working_set: int) -> int:
    """Variables in a set of a problem with `n`: all of them where they are few, filled up to a power of two."""
    return max(_SMALLEST_SET, min(working_set, 1 << max(0, n - 1).bit_length()))


def _state_bytes(n: int, working_set: int, itemsize: int) -> int:
    """What a problem of `n` variables takes beside kernel rows; the Gram matrix of its set, and one more to gather it."""
    q = _set_size(n, working_set)
    return 8 * _NUMBERS_PER_VARIABLE * max(q, n) + 2 * itemsize * q**2


def _groups(problems: Sequence[BoxQP], working_set: int, itemsize: int, budget: float) -> list[list[int]]:
    """Problems that are solved together: of like size, so that little is padding, and as many as fit."""
    groups: list[list[int]] = []
    room = 0
    for p in sorted(range(len(problems)), key=lambda p: -problems[p].size):
        if room < 1:
            room = int(budget // _state_bytes(problems[p].size, working_set, itemsize))
            groups.append([])
        groups[-1].append(p)
        room -= 1
    return groups


@dataclass
class State:
    """Problems on their way to the optimum, one a row of every tensor; what fills a row up can never move."""

    linear: Any
    lower: Any
    upper: Any
    epsilon: Any
    beta: Any
    K_beta: Any
    moves: Any
    rows: Any
    """Where the variables stand among the rows of the kernel values, and `columns` among their columns."""
    columns: Any
    begun: bool

    @classmethod
    def of(cls, problems: Sequence[BoxQP], parts: Sequence[Sequence[Part]], device: Any, working_set: int) -> State:
        """The state before the first round; the slopes of a starting point are still to be added."""
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
            begun=any(qp.start is not None and qp.start.any() for qp in problems),
        )


class Ascents:
    """Rounds over problems: their working sets, solved alone, and the slopes of all variables after it."""

    def __init__(
        self,
        state: State,
        values: HeldValues | ComputedValues,
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

    def solve(self, watch: Watch, *, inner: bool = False) -> None:
        """Rounds until every problem is solved or cannot move; those of an inner problem are not reported."""
        torch = xa.import_torch()
        state = self.state
        if state.begun and not inner:
            self._add_start()
        active = torch.arange(len(state.beta), device=state.beta.device)
        n_moved = 0
        for number in count():
            slope = state.linear[active] - state.K_beta[active]
            rising, falling = self._gains(active, slope)
            violation = rising.amax(1) - falling.amin(1)
            going = (violation > self.tol[active]) & (state.moves[active] < self.max_iter[active]) & ~self.stalled[active]
            n_going, moved, worst = torch.stack([going.sum(), state.moves.sum(), violation.amax()]).tolist()
            if not inner:
                watch.advance(int(moved) - n_moved, violation=worst, solved=len(active) - int(n_going))
            n_moved = int(moved)
            if not n_going or watch.stopped:
                return
            if n_going < len(active):
                active, slope, violation = active[going], slope[going], violation[going]
                rising, falling = rising[going], falling[going]
            chosen = self._select(number, active, rising, falling)
            self._improve(number, active, chosen, slope, violation, watch)

    def _add_start(self) -> None:
        """The slopes of a starting point."""
        state = self.state
        everything = xa.import_torch().arange(len(state.beta), device=state.beta.device)
        for part in slices(self.n, self.q):
            rows, weights = state.rows[:, part].contiguous(), state.beta[:, part].contiguous()
            self.values.add(state.K_beta, everything, rows, weights, state.columns, self.parts)

    def _gains(self, active: Any, slope: Any) -> tuple[Any, Any]:
        """What raising each variable gains and lowering it costs, as in `gramless.svm.box_qp`."""
        torch = xa.import_torch()
        beta, epsilon = self.state.beta[active], self.state.epsilon[active, None]
        lower, upper = self.state.lower[active], self.state.upper[active]
        rising = torch.where(beta < upper, slope + torch.where(beta < 0, epsilon, -epsilon), -_MASKED)
        falling = torch.where(beta > lower, slope + torch.where(beta > 0, -epsilon, epsilon), _MASKED)
        return rising, falling

    def _select(self, number: int, active: Any, rising: Any, falling: Any) -> Any:
        """The next working sets: violators of both sides, then those inside their box that were chosen last, then others."""
        torch = xa.import_torch()
        state = self.state
        if number == 0 and not state.begun:
            # Slopes tie at the start: a random sample of both sides says more than the first rows.
            noise = torch.rand(rising.shape, generator=self.random, device=rising.device, dtype=torch.float64)
            rising = torch.where(rising > -_MASKED, noise, -_MASKED)
            falling = torch.where(falling < _MASKED, noise, _MASKED)
        taken = torch.zeros_like(rising, dtype=torch.bool)

        def take(score: Any, size: int) -> Any:
            places = torch.topk(score.masked_fill(taken, -torch.inf), size, dim=1, sorted=False).indices
            taken.scatter_(1, places, True)
            return places

        violators = torch.cat([take(rising, self.q // 4), take(-falling, self.q // 4)], 1)
        self.last_chosen[active[:, None], violators] = float(number)
        beta, epsilon = state.beta[active], state.epsilon[active, None]
        inside = (beta > state.lower[active]) & (beta < state.upper[active]) & ((beta != 0) | (epsilon == 0))
        kept = take(self.last_chosen[active] + inside * float(number + 2), self.q - 2 * (self.q // 4))
        return torch.cat([violators, kept], 1)

    def _improve(self, number: int, active: Any, chosen: Any, slope: Any, violation: Any, watch: Watch) -> None:
        """Solve over the working sets, and bring the slopes up to date."""
        torch = xa.import_torch()
        state = self.state
        whole = (state.rows, state.columns, state.beta, state.lower, state.upper)
        rows, columns, before, lower, upper = (x[active].gather(1, chosen) for x in whole)
        slope, epsilon = slope.gather(1, chosen), state.epsilon[active]
        # A set that is the whole problem is solved to the end.
        accuracy = _ACCURACY if self.q < self.n else 0.0
        goal = torch.maximum(accuracy * violation, 0.5 * self.tol[active])
        most = torch.clamp(self.max_iter[active] - state.moves[active], max=_MOST_MOVES)
        gram = self.values.gram(rows, columns)
        if self.q <= self.solved_directly:
            after = before.clone()
            moves = solve_sets(gram, slope, after, lower, upper, epsilon, goal, most)
        else:
            part = _state_of_sets(slope, lower, upper, epsilon, before)
            inside = HeldValues(gram.reshape(-1, self.q))
            sizes = self.solved_directly, self.solved_directly
            Ascents(part, inside, [], *sizes, goal, most, self.seed).solve(watch, inner=True)
            after, moves = part.beta, part.moves
        state.moves[active] += moves
        state.beta[active[:, None], chosen] = after
        # A set not drawn at random holds a violating pair: where nothing moved, the step was below the rounding of beta.
        self.stalled[active] = (moves == 0) & (number > 0)
        self.values.add(state.K_beta, active, rows, after - before, state.columns, self.parts)


def _state_of_sets(slope: Any, lower: Any, upper: Any, epsilon: Any, beta: Any) -> State:
    """Large working sets as problems of their own, on their Gram matrices one below the other."""
    torch = xa.import_torch()
    n_sets, q = slope.shape
    columns = torch.arange(q, device=slope.device).expand(n_sets, q).contiguous()
    rows = columns + q * torch.arange(n_sets, device=slope.device)[:, None]
    moves = torch.zeros(n_sets, dtype=torch.int64, device=slope.device)
    return State(slope, lower, upper, epsilon, beta.clone(), torch.zeros_like(beta), moves, rows, columns, begun=True)
