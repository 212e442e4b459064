"""Which preparation, kernel, width and C: closed-form leave-one-out on a sample that grows.

1. `FIRST` rows: every preparation, kernel and width; one eigendecomposition gives every C of the path.
2. More rows: the best of each family (preparation and kernel), walked uphill in width and C; beside them scales for the
   columns, learned from gradients and then one column at a time, and logarithms of a skewed target.
3. As many rows as time allows: the best few again, a few steps each, since more rows can tell finer detail.
4. The average of some of these, weighted by how often a greedy choice takes each, where that lowers the loss.

Widths are relative to the spread of the prepared columns, so that one list serves any table. Every evaluation after the
first stage is one Cholesky factorisation with leave-one-out scores (`gramless.tables.exact`).

Reference: Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models", 2004.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import lapack

from gramless.calibration.leave_one_out import path_scores
from gramless.kernels import RBF, Exponential, Kernel, Laplacian, Matern52, ScaledColumns
from gramless.tables.columns import Encoded
from gramless.tables.exact import Solution, solve_exact
from gramless.tables.metric import column_scales
from gramless.tables.preparation import Preparation

FIRST = 500
"""Rows of the first stage."""

SECOND = 1500
"""The most rows of the second stage."""

CS = tuple(float(c) for c in np.logspace(-1, 4, 11))
KERNELS = ("rbf", "matern52", "exponential", "laplacian")
WIDTHS = {
    "rbf": (0.15, 0.3, 0.6, 1.2),
    "matern52": (0.1, 0.3, 1.0),
    "exponential": (0.05, 0.2, 0.8),
    "laplacian": (0.1, 0.4, 1.6),
}
WIDTH_STEP = 2.0
C_STEP = 10**0.5
_SMALLEST_C, _LARGEST_C = 1e-3, 1e6
# Families, then settings, that go on to the next stage; evaluations for each.
_FAMILIES, _WALK = 5, 6
_FINALISTS, _STEPS = 4, 4
_METRIC_ROUNDS = 2
# One column's scale at a time, by this factor up or down; the most evaluations for that.
_SCALE_STEP = 4.0
_COORDINATES = 40
_GREEDY_ROUNDS = 8
# Shares of the time for the second and third stage, and for the fit.
SHARES = {"second": 0.2, "third": 0.3, "fit": 0.4}


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


def make_kernel(setting: Setting, spread: float) -> Kernel:
    """The kernel of a setting for columns whose variances add up to `spread`."""
    kernel: Kernel
    if setting.kernel == "rbf":
        kernel = RBF(setting.width**2 / spread)
    elif setting.kernel == "laplacian":
        kernel = Laplacian(setting.width / spread)
    else:
        cls = {"matern52": Matern52, "exponential": Exponential}[setting.kernel]
        kernel = cls(setting.width / spread**0.5)
    return kernel if setting.scales is None else ScaledColumns(kernel, np.array(setting.scales))


@dataclass
class Record:
    """A setting, its loss, and the leave-one-out predictions on the first `n` rows of the sample."""

    setting: Setting
    loss: float
    n: int
    predictions: np.ndarray


@cache
def factor_rate(single: bool = False) -> float:
    """Operations per second of a factorisation with leave-one-out, as a power of two: about the same from run to run."""
    n = 768
    A = np.asfortranarray(np.eye(n) * n + 1.0, dtype=np.float32 if single else np.float64)
    potrf, trtri = (lapack.spotrf, lapack.strtri) if single else (lapack.dpotrf, lapack.dtrtri)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        factor, _ = potrf(A, lower=1)
        trtri(factor, lower=1)
        seconds.append(time.perf_counter() - began)
    return float(2.0 ** np.round(np.log2(2 / 3 * n**3 / min(seconds))))


def rows_within(seconds: float, evaluations: int) -> int:
    """Rows of a matrix that can be factored so many times in so many seconds."""
    return int((1.5 * seconds * factor_rate() / evaluations) ** (1 / 3))


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
        self.X = {way: prepare(encoded) for way, prepare in preparations.items()}
        self.spread = {way: max(float(X.var(axis=0).sum()), 1e-12) for way, X in self.X.items()}
        self.tried: dict[tuple[Setting, int], Record] = {}
        firsts = sum(len(WIDTHS[kernel]) for kernel in kernels) * len([way for way in self.X if way != "log"]) + 2
        self._most = firsts * len(CS) + (_FAMILIES + 3) * _WALK + _COORDINATES + _FINALISTS * max(_STEPS, _WALK)

    def tell(self, doing: str) -> None:
        """Say what is being done, how many settings were tried, and the best of those on as many rows."""
        self._doing = doing
        best = f", best so far {self._best.setting.describe()}" if np.isfinite(self._best.loss) else ""
        self._tell(f"{doing}: {self._count:,} of at most {self._most:,} settings{best}")

    def _tried(self, record: Record, count: int = 1) -> Record:
        self._count += count
        if record.n > self._best.n or (record.n == self._best.n and record.loss < self._best.loss):
            self._best = record
        return record

    def _weights(self, n: int) -> np.ndarray | None:
        return None if self.weights is None else self.weights[self.rows[:n]]

    def solve(self, setting: Setting, n: int) -> Solution | None:
        """Fit one setting to the first `n` rows."""
        w = self._weights(n)
        ridge = np.full(n, 1.0 / setting.C) if w is None else 1.0 / (setting.C * w)
        kernel = make_kernel(setting, self.spread[setting.way])
        return solve_exact(self.X[setting.way][:n], kernel, self.loss.targets(self.rows[:n], setting.log), ridge)

    def evaluate(self, setting: Setting, n: int) -> Record:
        """Leave-one-out on the first `n` rows."""
        key = (setting, n)
        if key not in self.tried:
            solution = self.solve(setting, n)
            rows = self.rows[:n]
            if solution is None:
                self.tried[key] = Record(setting, np.inf, n, np.empty(0))
            else:
                predictions = self.loss.predictions(solution.scores, rows, setting.log)
                self.tried[key] = Record(setting, self.loss(predictions, rows), n, predictions)
            self._tried(self.tried[key])
            self.tell(self._doing)
        return self.tried[key]

    def path(self, way: str, kernel: str, width: float, n: int) -> Record:
        """The best C of the path for the first `n` rows."""
        base = Setting(way, kernel, width, 1.0)
        K = make_kernel(base, self.spread[way])(self.X[way][:n], self.X[way][:n])
        rows = self.rows[:n]
        found = []
        for C, scores in zip(
            CS, path_scores(K, self.loss.targets(rows, False), np.array(CS), self._weights(n))[0], strict=True
        ):
            predictions = self.loss.predictions(scores, rows, False)
            found.append(Record(replace(base, C=C), self.loss(predictions, rows), n, predictions))
        return self._tried(min(found, key=lambda one: one.loss), len(CS))

    def walk(self, start: Setting, n: int, evaluations: int) -> Record:
        """Uphill in C and width by the first move that helps, the last one that did first."""
        here = self.evaluate(start, n)
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
                found = self.evaluate(there, n)
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
        found: list[Record] = []
        ways = [way for way in self.X if way != "log"]
        for way in ways:
            for kernel in self.kernels:
                self.tell(f"trying the {kernel} kernel on {way} columns, {n:,} rows")
                found += [self.path(way, kernel, width, n) for width in WIDTHS[kernel]]
        if "log" in self.X:
            for best in _families(found)[:2]:
                self.tell(f"trying the {best.setting.kernel} kernel on logarithms, {n:,} rows")
                found.append(self.path("log", best.setting.kernel, best.setting.width, n))
        return _families(found)

    def learn_scales(self, start: Setting, n: int) -> tuple[float, ...]:
        """Scales from the gradients of an exponential kernel's function, fitted again with each new scales."""
        way = start.way
        X = self.X[way][:n]
        scales = np.ones(X.shape[1])
        for _ in range(_METRIC_ROUNDS):
            setting = replace(start, scales=tuple(scales.tolist()))
            solution = self.solve(setting, n)
            if solution is None:
                break
            gamma = setting.width / self.spread[way] ** 0.5
            scales = column_scales(X, scales, solution.coef, gamma, self.groups)
        return tuple(np.round(scales, 6).tolist())

    def refine_scales(self, start: Record, evaluations: int) -> Record:
        """One column at a time: its scale four times as large, or a quarter, is kept where the loss falls.

        Gradients tell which columns matter, not how fast the function varies along them: a coordinate of a map matters at a
        far smaller scale than the others.
        """
        here, n = start, start.n
        width = self.X[start.setting.way].shape[1]
        scales = np.ones(width) if start.setting.scales is None else np.array(start.setting.scales)
        spent = 0
        for _ in range(2):
            before = here.loss
            for group in np.unique(self.groups)[np.argsort(-_group_means(scales, self.groups), kind="stable")]:
                for factor in (_SCALE_STEP, 1 / _SCALE_STEP):
                    if spent == evaluations:
                        return here
                    new = np.where(self.groups == group, factor * scales, scales)
                    found = self.evaluate(replace(here.setting, scales=tuple(new.tolist())), n)
                    spent += 1
                    if found.loss < here.loss:
                        here, scales = found, new
                        break
            if here.loss >= before:
                break
        return here

    def run(self) -> list[tuple[Record, float]]:
        """Records of the settings to fit, with their weights."""
        most = len(self.rows)
        families = self.first(min(most, FIRST))
        walks = _FAMILIES + 3
        evaluations = walks * _WALK + _COORDINATES
        n = min(most, SECOND, max(FIRST, rows_within(SHARES["second"] * self.seconds, evaluations)))
        found: list[Record] = []
        for one in families[:_FAMILIES]:
            self.tell(f"walking uphill with the {one.setting.kernel} kernel on {one.setting.way} columns, {n:,} rows")
            found.append(self.walk(one.setting, n, _WALK))
        if self.loss.can_log:
            best = min(found, key=lambda one: one.loss).setting
            self.tell(f"trying the target's logarithm, {n:,} rows")
            found.append(self.walk(replace(best, log=True), n, _WALK))
        if self.metric == "learned" and self.X[families[0].setting.way].shape[1] > 1:
            found += self._with_learned_scales(found, n)
        n_first = n
        n = min(most, max(n, rows_within(SHARES["third"] * self.seconds, _FINALISTS * _STEPS)))
        finalists = []
        for one in _families(found)[:_FINALISTS]:
            self.tell(f"choosing among the best, {n:,} rows")
            finalists.append(self.walk(one.setting, n, _STEPS if n > n_first else _WALK))
        return choose(finalists, self.loss, self.rows[:n])

    def _with_learned_scales(self, found: list[Record], n: int) -> list[Record]:
        order = sorted(found, key=lambda one: one.loss)
        best = order[0].setting
        rough = next(
            (one.setting for one in order if one.setting.kernel == "exponential" and one.setting.log == best.log), None
        )
        start = rough if rough is not None else replace(best, kernel="exponential", width=0.2)
        self.tell(f"learning a scale for each column, {n:,} rows")
        scales = self.learn_scales(start, n)
        kernels = dict.fromkeys([start.kernel, best.kernel])
        starts = [start if kernel == start.kernel else replace(best, way=start.way) for kernel in kernels]
        learned = [self.walk(replace(one, scales=scales), n, _WALK) for one in starts]
        self.tell(f"learning the scale of one column at a time, {n:,} rows")
        best_so_far = min([*order, *learned], key=lambda one: one.loss)
        refined = self.refine_scales(best_so_far, min(_COORDINATES, 4 * len(np.unique(self.groups))))
        return [*learned, self.walk(refined.setting, n, _STEPS)]


def _group_means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return np.bincount(groups, weights=values) / np.bincount(groups)


def _families(found: list[Record]) -> list[Record]:
    """The best of each family, best first."""
    best: dict[tuple[Any, ...], Record] = {}
    for one in found:
        family = one.setting.family
        if np.isfinite(one.loss) and (family not in best or one.loss < best[family].loss):
            best[family] = one
    return sorted(best.values(), key=lambda one: one.loss)


def choose(finalists: list[Record], loss: Any, rows: np.ndarray, most: int = 3) -> list[tuple[Record, float]]:
    """The weights of an average: greedily, the one that lowers the loss most, again and again, some more than once."""
    finalists = sorted((one for one in finalists if np.isfinite(one.loss)), key=lambda one: one.loss)
    if not finalists:
        raise ValueError("no setting could be fitted: the kernel matrix is singular whatever C")
    counts = {0: 2}
    total, value = 2 * finalists[0].predictions, finalists[0].loss
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
