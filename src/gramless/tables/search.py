"""Which preparation, kernel, width and C: closed-form leave-one-out on a sample that grows.

1. `FIRST` rows: every preparation, kernel and width, and the best C of each.
2. More rows: the best of each family (preparation and kernel), walked uphill in width and C; beside them scales for the
   columns, learned by the slopes of the leave-one-out loss, and logarithms of a skewed target.
3. All rows where time allows, or else some neighbourhoods of the whole table: the best few again, a few steps each. A
   neighbourhood is as dense as the table, where a sample is not, and dense rows can tell finer detail.
4. The average of some of these, weighted by how often a greedy choice takes each, where that lowers the loss.

Widths are relative to the spread of the prepared columns, so that one list serves any table. Every evaluation is one
Cholesky factorisation with leave-one-out scores (`gramless.tables.exact`). A leave-one-out loss flatters scales that were
learned from the same rows: they are learned twice, from one half of a sample each, and every row of a half is predicted with
the scales of the other half; the model itself takes the geometric mean of both.

Reference: Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models", 2004.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gramless._core.threads import blas_threads, one_blas_thread, run_round_robin
from gramless.inference.leave_one_out import inverse_factor, solve_dense
from gramless.kernels import RBF, Exponential, Kernel, Laplacian, Matern52, ScaledColumns
from gramless.tables.columns import Encoded
from gramless.tables.exact import Kept, Solution, Spare, solve_exact, upper_kernel_matrix
from gramless.tables.metric import learn_scales
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation

T = TypeVar("T")

FIRST = 400
"""Rows of the first stage."""

SECOND = 1500
"""The most rows of the second stage."""

KERNELS = ("rbf", "matern52", "exponential", "laplacian")
# The best C of one is where the next begins.
WIDTHS = {
    "rbf": (0.3, 0.15, 0.6, 1.2, 4.0),
    "matern52": (0.3, 0.1, 1.0, 4.0),
    "exponential": (0.2, 0.05, 0.8, 3.2),
    "laplacian": (0.4, 0.1, 1.6, 6.4),
}
WIDTH_STEP = 2.0
C_STEP = 10**0.5
_START_C, _FIRST_C_STEP = 10.0, 10.0
_SMALLEST_C, _LARGEST_C = 1e-3, 1e6
# Families, then settings, that go on to the next stage; evaluations for each. It is a long way from a sample to
# neighbourhoods.
_FAMILIES, _WALK = 5, 5
FINALISTS, _STEPS = 6, 3
_NEARBY, _LONG_WALK = 5, 8
_NEIGHBOURHOODS = 4
# Kernels for which scales are learned, steps of L-BFGS for each half of the rows, and factorisations that a step is worth.
_LEARNED, _LEARNING_STEPS, _SLOPE_COST = 3, 8, 5
# Scales learned from a smaller share of the rows than this are compared as if they had been learned from others.
_NEGLIGIBLE = 0.25
MEMBERS = 6
"""The most settings of an average."""
_GREEDY_ROUNDS = 12
# Rows of the matrix whose factorisation is timed.
_RATED_ROWS = 1024
_ALMOST = 0.75
# The most settings that are fitted at the same time, each by one thread: matrices of a sample are too small to share.
WORKERS = 4
# Shares of the time for the second stage, for learning scales, for the third stage, and for the fit.
SHARES = {"second": 0.15, "learn": 0.2, "third": 0.2, "fit": 0.45}


@dataclass(frozen=True)
class Setting:
    """One point of the search."""

    way: str
    kernel: str
    width: float
    C: float
    log: bool = False
    scales: tuple[float, ...] | None = None

    @property
    def family(self) -> tuple[Any, ...]:
        """What a walk does not change."""
        return self.way, self.kernel, self.log, self.scales is not None

    def describe(self) -> str:
        """In words."""
        extra = ", learned column scales" if self.scales is not None else ""
        return f"{self.kernel} kernel on {self.way} columns, width {self.width:.3g}, C {self.C:.3g}{extra}" + (
            ", logarithm of the target" if self.log else ""
        )


def kernel_gamma(setting: Setting, spread: float) -> float:
    """The kernel's own gamma for columns whose variances add up to `spread`."""
    if setting.kernel == "rbf":
        return setting.width**2 / spread
    return setting.width / (spread if setting.kernel == "laplacian" else spread**0.5)


def make_kernel(setting: Setting, spread: float) -> Kernel:
    """The kernel of a setting for columns whose variances add up to `spread`."""
    classes = {"rbf": RBF, "laplacian": Laplacian, "matern52": Matern52, "exponential": Exponential}
    kernel = classes[setting.kernel](kernel_gamma(setting, spread))
    return kernel if setting.scales is None else ScaledColumns(kernel, np.array(setting.scales))


@dataclass
class Record:
    """A setting, its loss, and the leave-one-out predictions on the first `n` rows of the sample."""

    setting: Setting
    loss: float
    n: int
    predictions: np.ndarray


@dataclass
class Halves:
    """Scales that were learned from the even and from the odd ones of the first `rows` rows."""

    even: tuple[float, ...]
    odd: tuple[float, ...]
    rows: int


@cache
def factor_rate(single: bool = False) -> float:
    """Operations per second of a factorisation with leave-one-out by one thread, rounded down to a power of two.

    From the thread's processor time, so that neither a busy machine nor chance makes another model. Rounded down, because
    seconds that were promised are to suffice.
    """
    n = _RATED_ROWS
    A = (np.eye(n) * n + 1.0).astype(np.float32 if single else np.float64)
    seconds = []
    with one_blas_thread():
        for _ in range(3):
            copy = A.copy()
            began = time.thread_time()
            inverse_factor(copy)
            seconds.append(time.thread_time() - began)
    return float(2.0 ** np.floor(np.log2(2 / 3 * n**3 / max(min(seconds), 1e-6))))


def workers() -> int:
    """How many settings are evaluated at the same time."""
    return min(WORKERS, blas_threads())


def rows_within(seconds: float, evaluations: int) -> int:
    """Rows of a matrix that can be factored so many times in so many seconds, `workers` of them at the same time."""
    return int((1.5 * seconds * workers() * factor_rate() / evaluations) ** (1 / 3))


Steps: TypeAlias = Generator[None, None, Record]
"""A search for one record that rests after every evaluation, where another thread may take it over."""


def _step(do: Callable[..., T], *arguments: Any) -> Generator[None, None, T]:
    """One that does not rest."""
    return do(*arguments)
    yield


class Search:
    """The state of one search.

    Parameters
    ----------
    encoded : Encoded
        Rows of the sample, in the order in which it grows.
    rows : ndarray of int
        Which training rows these are.
    preparations : dict of str to Preparation
        Fitted.
    loss : ClassLoss or ValueLoss
    weights : ndarray or None
        Of all training rows.
    groups : ndarray of int
        Which prepared columns share a learned scale.
    kernels : sequence of str
        Those to try.
    metric : {"plain", "learned"}
        Whether scales are learned too.
    seconds : float
        For the search and the fit together.
    tell : callable(str)
        Hears what is being done.
    """

    def __init__(
        self,
        encoded: Encoded,
        rows: np.ndarray,
        preparations: dict[str, Preparation],
        loss: Any,
        weights: np.ndarray | None,
        groups: np.ndarray,
        *,
        kernels: tuple[str, ...] = KERNELS,
        metric: str = "learned",
        seconds: float,
        tell: Callable[[str], None],
    ):
        self.rows, self.loss, self.weights, self.groups = rows, loss, weights, groups
        self.kernels, self.metric, self.seconds = kernels, metric, seconds
        self._tell, self._doing = tell, ""
        self._count, self._best = 0, Record(Setting("standard", "rbf", 1.0, 1.0), np.inf, 0, np.empty(0))
        self._most = 0
        self.X = {way: prepare(encoded) for way, prepare in preparations.items()}
        self.spread = {way: max(float(X.var(axis=0).sum()), 1e-12) for way, X in self.X.items()}
        self.tried: dict[tuple[Setting, int], Record] = {}
        self.halves: dict[tuple[float, ...], Halves] = {}
        # Of settings that were fitted to the whole sample: where that is all rows, they need not be fitted again.
        self.solutions: dict[Setting, Solution] = {}
        self._counting = Lock()
        self._spare = Spare()

    def tell(self, doing: str) -> None:
        """Say what is being done, how many settings were tried, and the best of those on as many rows."""
        self._doing = doing
        best = f", best so far {self._best.setting.describe()}" if np.isfinite(self._best.loss) else ""
        self._tell(f"{doing}: {self._count:,} of at most {self._most:,} settings{best}")

    def _expect(self, *stages: int) -> None:
        """Stages that are still to come, by how many settings each may try."""
        self._most = self._count + sum(stages)

    def _tried(self, record: Record) -> Record:
        with self._counting:
            self._count += 1
            if record.n > self._best.n or (record.n == self._best.n and record.loss < self._best.loss):
                self._best = record
            self.tell(self._doing)
        return record

    def _each(self, jobs: Iterable[Generator[None, None, T]]) -> list[T]:
        """What each job finds, some at the same time, one thread each."""
        at_once = workers()  # of as many threads as BLAS has, before it is left one
        with one_blas_thread():
            return run_round_robin(list(jobs), at_once)

    def _weights(self, n: int) -> np.ndarray | None:
        return None if self.weights is None else self.weights[self.rows[:n]]

    def _ridge(self, C: float, n: int) -> np.ndarray:
        w = self._weights(n)
        return np.full(n, 1.0 / C) if w is None else 1.0 / (C * w)

    def _record(self, setting: Setting, n: int, scores: np.ndarray | None) -> Record:
        if scores is None:
            return self._tried(Record(setting, np.inf, n, np.empty(0)))
        rows = self.rows[:n]
        predictions = self.loss.predictions(scores, rows, setting.log)
        return self._tried(Record(setting, self.loss(predictions, rows), n, predictions))

    def solve(self, setting: Setting, n: int, kept: dict[tuple[Setting, int], Kept] | None = None) -> Solution | None:
        """Fit one setting to the first `n` rows; `kept` has the kernel matrix of the setting before, or gets this one's."""
        kernel = make_kernel(setting, self.spread[setting.way])
        targets = self.loss.targets(self.rows[:n], setting.log)
        matrices: Kept | None = None
        if kept is not None:
            same_kernel = replace(setting, C=1.0, log=False), n
            matrices = kept.get(same_kernel, {})
            kept.clear()
            kept[same_kernel] = matrices
        return solve_exact(
            self.X[setting.way][:n], kernel, targets, self._ridge(setting.C, n), kept=matrices, spare=self._spare
        )

    def evaluate(self, setting: Setting, n: int, kept: dict[tuple[Setting, int], Kept] | None = None) -> Record:
        """Leave-one-out on the first `n` rows; for `kept` see `solve`."""
        key = (setting, n)
        if key not in self.tried:
            solution = self.solve(setting, n, kept)
            self.tried[key] = self._record(setting, n, None if solution is None else solution.scores)
            if solution is not None and n == len(self.rows):
                self.solutions[setting] = solution
        return self.tried[key]

    def path(self, way: str, kernel: str, width: float, n: int, C: float) -> Record:
        """The best C for the first `n` rows, uphill from `C` in steps of ten; one kernel matrix serves them all."""
        start = Setting(way, kernel, width, C)
        X = self.X[way][:n]
        K = upper_kernel_matrix(X, make_kernel(start, self.spread[way]))
        Z = self.loss.targets(self.rows[:n], False)

        def at(C: float) -> Record:
            with self._spare.copy(K) as A:
                A.flat[:: n + 1] += self._ridge(C, n)
                found = solve_dense(A, Z)
            return self._record(replace(start, C=C), n, None if found is None else found[2])

        here = at(C)
        for step in (_FIRST_C_STEP, 1 / _FIRST_C_STEP):
            moved = False
            while _SMALLEST_C <= here.setting.C * step <= _LARGEST_C:
                there = at(here.setting.C * step)
                if not there.loss < here.loss:
                    break
                here, moved = there, True
            if moved:
                break
        return here

    def walk(self, start: Setting, n: int, evaluations: int) -> Steps:
        """Uphill in C and width by the first move that helps, the last one that did first."""
        # Every other step changes C alone: one kernel matrix serves both.
        kept: dict[tuple[Setting, int], Kept] = {}
        here = self.evaluate(start, n, kept)
        yield
        moves = [(C_STEP, 1.0), (1 / C_STEP, 1.0), (1.0, WIDTH_STEP), (1.0, 1 / WIDTH_STEP)]
        spent, visited = 1, {start}
        while spent < evaluations:
            for move in list(moves):
                C, width = here.setting.C * move[0], here.setting.width * move[1]
                there = replace(here.setting, C=C, width=width)
                if there in visited or not _SMALLEST_C <= C <= _LARGEST_C:
                    continue
                visited.add(there)
                spent += 1
                found = self.evaluate(there, n, kept)
                yield
                if found.loss < here.loss:
                    here = found
                    moves.remove(move)
                    moves.insert(0, move)
                    break
                if spent >= evaluations:
                    break
            else:
                break
        return here

    def first(self, n: int) -> list[Record]:
        """Everything on few rows: the best of each family, best first."""

        def widths(way: str, kernel: str) -> Steps:
            found: list[Record] = []
            C = _START_C
            for width in WIDTHS[kernel]:
                found.append(self.path(way, kernel, width, n, C))
                yield
                C = found[-1].setting.C if np.isfinite(found[-1].loss) else _START_C
            return min(found, key=lambda one: one.loss)

        self.tell(f"trying every preparation, kernel and width, {n:,} rows")
        found = self._each(widths(way, kernel) for way in self.X if way != "log" for kernel in self.kernels)
        if "log" in self.X:
            self.tell(f"trying logarithms of skewed columns, {n:,} rows")
            best = [one.setting for one in _families(found)[:2]]
            found += self._each(_step(self.path, "log", one.kernel, one.width, n, one.C) for one in best)
        return _families(found)

    def learn(self, starts: Sequence[Setting], rows: int) -> list[Setting]:
        """Each setting with scales for its columns, learned from each half of the first rows."""

        def learned(start: Setting, first: int) -> tuple[np.ndarray, float]:
            half = slice(first, rows, 2)
            some = self.rows[half]
            w = None if self.weights is None else self.weights[some]
            X, gamma = self.X[start.way][half], kernel_gamma(start, self.spread[start.way])
            arguments = (X, self.groups, start.kernel, gamma, start.C, self.loss, some, start.log, w)
            return learn_scales(*arguments, steps=_LEARNING_STEPS)

        halves = self._each(_step(learned, start, first) for start in starts for first in (0, 1))
        return [self._joined(start, halves[2 * k : 2 * k + 2], rows) for k, start in enumerate(starts)]

    def _joined(self, start: Setting, halves: list[tuple[np.ndarray, float]], rows: int) -> Setting:
        logs, Cs = [half[0] for half in halves], [np.log(half[1]) for half in halves]
        mean = np.mean(logs, axis=0)
        # Each half's scales are of the size of their mean: the walk that follows finds one width for all three.
        even, odd, both = (self._scales(one - one.mean() + mean.mean()) for one in (*logs, mean))
        self.halves[both] = Halves(even, odd, rows)
        return replace(start, scales=both, C=float(np.clip(np.exp(np.mean(Cs)), _SMALLEST_C, _LARGEST_C)))

    def _scales(self, logs: np.ndarray) -> tuple[float, ...]:
        return tuple(float(f"{scale:.6g}") for scale in np.exp(logs)[self.groups])

    def honest_walk(self, start: Setting, n: int, evaluations: int) -> Steps:
        """A walk, and honest predictions of where it ends."""
        record = yield from self.walk(start, n, evaluations)
        return (yield from self.honest(record))

    def honest(self, record: Record) -> Steps:
        """The record with predictions whose scales were learned without the row's own half."""
        halves = self.halves.get(record.setting.scales or ())
        if halves is None or halves.rows < _NEGLIGIBLE * record.n or not np.isfinite(record.loss):
            return record
        predictions = record.predictions.copy()
        for scales, start in ((halves.odd, 0), (halves.even, 1)):
            there = self.evaluate(replace(record.setting, scales=scales), record.n)
            yield
            if not np.isfinite(there.loss):
                return there
            its = slice(start, halves.rows, 2)
            predictions[its] = there.predictions[its]
        return Record(record.setting, self.loss(predictions, self.rows[: record.n]), record.n, predictions)

    def run(self) -> list[Record]:
        """Records of the best settings of different families, on as many rows as time allows, best first."""
        most = len(self.rows)
        learns = self.metric == "learned" and len(np.unique(self.groups)) > 1
        # With learned scales, two halves of the rows are evaluated beside every walk.
        second = _FAMILIES * _WALK + (_WALK if self.loss.can_log else 0) + (_LEARNED * (_WALK + 2) if learns else 0)
        third = FINALISTS * (_STEPS + 2)
        ways, decades = len([way for way in self.X if way != "log"]), round(np.log10(_LARGEST_C / _SMALLEST_C))
        self._expect((ways * sum(len(WIDTHS[kernel]) for kernel in self.kernels) + 2) * (1 + decades), second, third)
        families = self.first(min(most, FIRST))
        if not families:
            return []
        n = min(SECOND, max(FIRST, rows_within(SHARES["second"] * self.seconds, _FAMILIES * _WALK)))
        self._expect(second, third)
        # A stage for a few rows more would cost more than it could tell.
        n = most if n > _ALMOST * most else n
        self.tell(f"walking uphill from the best settings, {n:,} rows")
        found = self._each(self.walk(one.setting, n, _WALK) for one in _diverse(families, _FAMILIES))
        if self.loss.can_log:
            best = min(found, key=lambda one: one.loss).setting
            self.tell(f"trying the target's logarithm, {n:,} rows")
            found += self._each([self.walk(replace(best, log=True), n, _WALK)])
        if learns:
            steps = 2 * _LEARNED * _LEARNING_STEPS * _SLOPE_COST
            half = min(most // 2, max(FIRST // 2, rows_within(SHARES["learn"] * self.seconds, steps)))
            # One family for each kernel: which of them is best changes with the scales.
            starts = [one.setting for one in _best_of_each(found, lambda setting: setting.kernel)[:_LEARNED]]
            self.tell(f"learning a scale for each column, {len(starts)} kernels, {2 * half:,} rows")
            learned = self.learn(starts, 2 * half)
            self.tell(f"walking uphill with the learned scales, {n:,} rows")
            found += self._each(self.honest_walk(one, n, _WALK) for one in learned)
        finalists = _diverse(_families(found), FINALISTS)
        self._expect(third)
        if n < most <= rows_within(SHARES["third"] * self.seconds, FINALISTS * _STEPS) / _ALMOST:
            self.tell(f"choosing among the best, {most:,} rows")
            finalists = self._each(self.honest_walk(one.setting, most, _STEPS) for one in finalists)
        return sorted((one for one in finalists if np.isfinite(one.loss)), key=lambda one: one.loss)

    def run_nearby(self, found: list[Record], spread: dict[str, float]) -> list[Record]:
        """The best settings of a search elsewhere, walked uphill on these rows, which are neighbourhoods of the table."""
        self.spread = spread
        n = len(self.rows)
        self._expect(_NEARBY * _LONG_WALK)
        self.tell(f"choosing among the best, {n:,} rows of {_NEIGHBOURHOODS} neighbourhoods")
        starts = [one.setting for one in _diverse(found, _NEARBY)]
        finalists = self._each(self.walk(start, n, _LONG_WALK) for start in starts)
        return sorted((one for one in finalists if np.isfinite(one.loss)), key=lambda one: one.loss)


def nearby_rows(X: np.ndarray, seconds: float, most: int, rng: np.random.RandomState) -> np.ndarray:
    """Rows of some neighbourhoods, as many as the third stage has time for."""
    count = min(most, rows_within(SHARES["third"] * seconds, _NEARBY * _LONG_WALK))
    tree = Partition(max(1, count // _NEIGHBOURHOODS)).fit(X)
    parts = tree.parts(X)
    return np.flatnonzero(np.isin(parts, rng.permutation(tree.n_parts_)[:_NEIGHBOURHOODS]))


def _families(found: list[Record]) -> list[Record]:
    """The best of each family, best first."""
    return _best_of_each(found, lambda setting: setting.family)


def _diverse(found: list[Record], most: int) -> list[Record]:
    """The best of each kernel, which of them is best changes with more rows, then the best of the others; best first."""
    first = _best_of_each(found, lambda setting: setting.kernel)
    others = [one for one in sorted(found, key=lambda one: one.loss) if all(one is not taken for taken in first)]
    return sorted([*first, *others][:most], key=lambda one: one.loss)


def _best_of_each(found: list[Record], kind: Callable[[Setting], Any]) -> list[Record]:
    best: dict[Any, Record] = {}
    for one in found:
        which = kind(one.setting)
        if np.isfinite(one.loss) and (which not in best or one.loss < best[which].loss):
            best[which] = one
    return sorted(best.values(), key=lambda one: one.loss)


def choose(finalists: list[Record], loss: Any, rows: np.ndarray, most: int = MEMBERS) -> list[tuple[Record, float]]:
    """The weights of an average: greedily, the one that lowers the loss most, again and again, some more than once."""
    finalists = sorted((one for one in finalists if np.isfinite(one.loss)), key=lambda one: one.loss)
    if not finalists:
        raise ValueError("no setting could be fitted: the kernel matrix is singular whatever C")
    counts = {0: 1}
    total, value = finalists[0].predictions.copy(), finalists[0].loss
    for _ in range(_GREEDY_ROUNDS):
        taken = sum(counts.values())
        open_to = range(len(finalists)) if len(counts) < most else list(counts)
        tries = [(loss((total + finalists[i].predictions) / (taken + 1), rows), i) for i in open_to]
        best, i = min(tries)
        if best >= value:
            break
        counts[i] = counts.get(i, 0) + 1
        total, value = total + finalists[i].predictions, best
    taken = sum(counts.values())
    return [(finalists[i], count / taken) for i, count in counts.items()]
