"""The fitted parts of a table model: each member is one setting, fitted to all rows exactly, whole or in neighbourhoods.

Leave-one-out predictions of all rows come with the fit, and everything after it (calibration, how sure the model is) rests
on them. Where one factorisation of all rows would take more than its share of the time or the memory, the rows are cut into
neighbourhoods (`gramless.tables.partition`) that are as large as both allow: every row still carries the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.memory import MemoryEstimate, format_bytes
from gramless._core.threads import blas_threads, parallel_for
from gramless.kernels import Kernel
from gramless.linalg.operators import expand
from gramless.tables.columns import Encoded
from gramless.tables.exact import Solution, solve_exact
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation, has_skewed_numbers
from gramless.tables.search import (
    FINALISTS,
    FIRST,
    MEMBERS,
    SHARES,
    WORKERS,
    Record,
    Search,
    Setting,
    choose,
    factor_rate,
    make_kernel,
    nearby_rows,
)

# A matrix that cannot be factored is tried again with a larger ridge, so many times, each ten times as large.
_RETRIES = 6
_AT_A_TIME = 100_000
_SMALLEST_PART = 500
# Matrices of the size of the kernel's that the search holds at once: a kernel's for each setting that is walked uphill from,
# and a factor for each thread.
_MATRICES = FINALISTS + WORKERS
# Numbers of the table: encoded, with gaps filled, shaped, prepared in up to three ways for the search, and put in order.
_COPIES_OF_THE_TABLE = 8
# What a search keeps of its settings, in columns of targets, and of all rows the targets, scores and predictions that the
# members have at a time.
_SETTINGS = 250
_COLUMNS_OF_SCORES = 8


class Member(BaseEstimator):
    """One fitted setting.

    Parameters
    ----------
    preparation : Preparation
    kernel : Kernel
    partition : Partition or None
    points, coefs, biases : list of ndarray
        Of each part.
    log : bool
        Whether its scores are standardised logarithms.
    factor : float
        What makes means of the exponentials of its scores.
    about : str
    """

    def __init__(
        self,
        preparation: Preparation,
        kernel: Kernel,
        partition: Partition | None,
        points: list[np.ndarray],
        coefs: list[np.ndarray],
        biases: list[np.ndarray],
        log: bool = False,
        factor: float = 1.0,
        about: str = "",
    ):
        self.preparation = preparation
        self.kernel = kernel
        self.partition = partition
        self.points = points
        self.coefs = coefs
        self.biases = biases
        self.log = log
        self.factor = factor
        self.about = about

    def scores(self, encoded: Encoded) -> np.ndarray:
        """Scores of shape (n, k), a bounded number of rows at a time."""
        out = np.empty((len(encoded), self.coefs[0].shape[1]))
        for start in range(0, len(encoded), _AT_A_TIME):
            rows = slice(start, start + _AT_A_TIME)
            some = encoded if len(encoded) <= _AT_A_TIME else encoded.take(rows)
            X = some.prepared(self.preparation)
            parts = np.zeros(len(X), dtype=np.intp) if self.partition is None else self.partition.parts(X)
            here = out[rows]
            for part in np.unique(parts):
                inside = parts == part
                points = self.points[part]
                block = expand(self.kernel, X[inside].astype(points.dtype), points, self.coefs[part].astype(points.dtype))
                here[inside] = block + self.biases[part]
        return out


@dataclass
class Fitted:
    """Members, their weights, leave-one-out predictions of all rows, and what was given up for time or memory."""

    members: list[Member]
    weights: np.ndarray
    predictions: np.ndarray
    search_loss: float
    gave_up: list[str] = field(default_factory=list)


def column_groups(preparation: Preparation, encoded: Encoded) -> np.ndarray:
    """Which prepared columns share a learned scale: a number and its indicator are alone, levels of a category together."""
    counts = preparation.n_levels or []
    alone = encoded.numbers.shape[1] + len(preparation.with_gaps_)
    together = [np.full(count, alone + k) for k, count in enumerate(counts)]
    return np.concatenate([np.arange(alone), *together]).astype(np.intp)


def sample_order(n: int, codes: np.ndarray | None, first: int, rng: np.random.RandomState) -> np.ndarray:
    """A random order, with two rows in front of each class that the first rows would show fewer than two of."""
    order = rng.permutation(n)
    if codes is None:
        return order
    shown = codes[order]
    classes = np.unique(shown)
    few = [c for c in classes if np.count_nonzero(shown[:first] == c) < 2]
    front = np.concatenate([np.flatnonzero(shown == c)[:2] for c in few] or [np.empty(0, dtype=int)]).astype(int)
    return np.concatenate([order[front], np.delete(order, front)])


def fit_members(
    encoded: Encoded,
    loss: Any,
    weights: np.ndarray | None,
    *,
    n_levels: list[int],
    kernels: tuple[str, ...],
    metric: str,
    seconds: float,
    memory: int,
    most_rows: int,
    seed: int,
    tell: Callable[[str], None],
) -> Fitted:
    """Search on a sample, then fit what was chosen to all rows."""
    rng = np.random.RandomState(seed)
    n = len(encoded)
    plan = plan_table(n, encoded.numbers.shape[1] + sum(n_levels), loss.targets(np.arange(1), False).shape[1], memory)
    most_rows, memory = min(most_rows, plan.most_rows), plan.for_matrices
    codes = getattr(loss, "codes", None)
    order = sample_order(n, codes, FIRST, rng)[:most_rows]
    ways = ["standard"]
    if encoded.numbers.shape[1]:
        ways += ["quantile"] + (["log"] if has_skewed_numbers(encoded) else [])
    tell("preparing the columns")
    preparations = {way: Preparation(way, n_levels, seed).fit(encoded) for way in ways}
    if "quantile" in ways and preparations["quantile"].two_valued_.all():
        preparations = {"standard": preparations["standard"]}
    groups = column_groups(preparations["standard"], encoded)

    def searching(rows: np.ndarray) -> Search:
        some = encoded.take(rows)
        how = (some, rows, preparations, loss, weights, groups)
        return Search(*how, kernels=kernels, metric=metric, seconds=seconds, tell=tell)

    search = searching(order)
    finalists = search.run()
    if finalists and finalists[0].n < n:
        best = finalists[0].setting
        X = preparations[best.way](encoded)
        near = nearby_rows(X if best.scales is None else X * np.array(best.scales), seconds, most_rows, rng)
        spread, search = search.spread, searching(near)
        finalists = search.run_nearby(finalists, spread)
    searched = finalists[0].n if finalists else 0
    sample = search.rows[:searched]
    chosen = choose(finalists, loss, sample)
    gave_up: list[str] = []
    affordable = MEMBERS if searched == n else members_within(n, SHARES["fit"] * seconds)
    if len(chosen) > affordable:
        gave_up.append(f"the average of {len(chosen)} settings: there is time for {affordable} on all rows")
        chosen = choose(finalists, loss, sample, affordable)
    candidates = [record for record, _ in chosen]
    # Time that is left goes to the next best: all rows tell better than some neighbourhoods which of them is right.
    candidates += [one for one in finalists if all(one is not taken for taken in candidates)]
    candidates = candidates[: len(chosen) if searched == n else affordable]
    size = part_size(n, len(candidates), SHARES["fit"] * seconds, memory, searched)
    if size < n:
        why = "memory" if size < part_size(n, 1, SHARES["fit"] * seconds, 1 << 62) else "time"
        gave_up.append(
            f"one exact solution of all {n:,} rows ({format_bytes(8 * n * n)}): for {why}, every row carries the model "
            f"of its own neighbourhood of at most {size:,} rows"
        )
    if searched < n:
        gave_up.append(f"settings from all rows: they were chosen on {searched:,}")
    rows = np.arange(n)
    fitted: dict[Setting, Member] = {}
    records = []
    for record in candidates:
        setting = record.setting
        member, scores = _fit_member(record, search, preparations, encoded, loss, weights, size, memory, tell)
        member.factor = getattr(loss, "factor", lambda *_: 1.0)(scores, rows, setting.log)
        fitted[setting] = member
        if searched == n:
            predictions = np.empty_like(record.predictions)
            predictions[order] = record.predictions
        else:
            predictions = loss.predictions(scores, rows, setting.log)
        records.append(Record(setting, loss(predictions, rows), n, predictions))
    # All rows are there now: their weights are better than those of the sample.
    averaged = choose(records, loss, rows)
    members = [fitted[record.setting] for record, _ in averaged]
    total = np.sum([weight * record.predictions for record, weight in averaged], axis=0)
    return Fitted(members, np.array([weight for _, weight in averaged]), total, averaged[0][0].loss, gave_up)


@dataclass
class TablePlan:
    """The peak memory of a fit, the rows on which settings can be compared, and what is left for kernel matrices."""

    memory: MemoryEstimate
    most_rows: int
    for_matrices: int


def plan_table(n: int, d: int, k: int, budget: int) -> TablePlan:
    """What the search and the fit hold, for `n` rows of `d` prepared columns and `k` columns of targets."""
    table = MemoryEstimate({"table": _COPIES_OF_THE_TABLE * n * d * 8, "scores": _COLUMNS_OF_SCORES * n * k * 8})
    left = max(0, budget - table.nbytes)

    def searching(rows: int) -> int:
        """Kernel matrices, and the predictions of every setting that was tried."""
        return 8 * _MATRICES * rows**2 + 8 * _SETTINGS * rows * k

    rows = min(n, int(np.sqrt(left / (8 * _MATRICES))))
    while rows > 0 and searching(rows) > left:
        rows = int(0.95 * rows)
    if rows < min(n, FIRST):
        table.parts["kernel matrices"] = searching(min(n, FIRST))
        table.check(budget, "raise memory_budget, or use NystromLSSVC or NystromLSSVR, which see rows once")
    table.parts["kernel matrices"] = min(left, max(searching(rows), 2 * 8 * n * n))
    return TablePlan(table, rows, left)


def members_within(n: int, seconds: float) -> int:
    """How many settings can be fitted to all rows in so many seconds; one at least."""
    return max(1, min(MEMBERS, int(1.5 * seconds * blas_threads() * factor_rate(single=True) / n**3)))


def part_size(n: int, n_members: int, seconds: float, memory: int, searched: int = 0) -> int:
    """Rows of a neighbourhood: all of them, or as many as `2/3 size^2 n` operations and one float64 matrix allow.

    Where the search has fitted its settings to all rows already, `searched`, there is nothing left to save.
    """
    if searched == n:
        return n
    by_time = int(np.sqrt(1.5 * seconds * blas_threads() * factor_rate(single=True) / (n * n_members)))
    by_memory = int(np.sqrt(memory / 2 / 8))
    size = max(min(by_time, by_memory), min(n, _SMALLEST_PART))
    return n if size >= n else -(-n // -(-n // size))


def _fit_member(
    record: Record,
    search: Search,
    preparations: dict[str, Preparation],
    encoded: Encoded,
    loss: Any,
    weights: np.ndarray | None,
    size: int,
    memory: int,
    tell: Callable[[str], None],
) -> tuple[Member, np.ndarray]:
    setting = record.setting
    preparation = preparations[setting.way]
    X = preparation(encoded)
    n = len(X)
    kernel = make_kernel(setting, search.spread[setting.way])
    scales = np.ones(X.shape[1]) if setting.scales is None else np.array(setting.scales)
    partition = None
    parts = np.zeros(n, dtype=np.intp)
    if size < n:
        tell(f"cutting {n:,} rows into neighbourhoods of at most {size:,}")
        partition = Partition(size).fit(X * scales)
        parts = partition.parts(X * scales)
        partition.directions_ = [direction * scales for direction in partition.directions_]
    Z = loss.targets(np.arange(n), setting.log)
    scores = np.empty_like(Z)
    count = int(parts.max()) + 1
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(count + 1))
    solutions: dict[int, Solution] = {}

    def solve(part: int) -> None:
        rows = order[bounds[part] : bounds[part + 1]]
        known = search.solutions.get(setting) if count == 1 and len(search.rows) == n else None
        if known is not None:
            rows = search.rows
        solution = known or _solve_part(X[rows], kernel, Z[rows], setting.C, None if weights is None else weights[rows])
        scores[rows] = solution.scores
        with telling:
            solutions[part] = solution
            say()

    def say() -> None:
        done = f": {len(solutions)} of {count} neighbourhoods" if count > 1 else ""
        tell(f"fitting the {setting.kernel} kernel to {n:,} rows{done}")

    telling = Lock()
    say()
    # As many parts at a time as there are threads, one each, which need not wait for each other; the rest by all threads.
    workers = parts_at_once(count, size, memory)
    together = count - count % workers if workers > 1 else 0
    parallel_for(range(together), solve, workers)
    for part in range(together, count):
        solve(part)
    found = [solutions[part] for part in range(count)]
    pieces = [one.points for one in found], [one.coef for one in found], [one.bias for one in found]
    return Member(preparation, kernel, partition, *pieces, setting.log, about=setting.describe()), scores


def parts_at_once(count: int, size: int, memory: int) -> int:
    """How many of so many neighbourhoods are solved at the same time: a thread each, and the memory of two matrices."""
    return max(1, min(blas_threads(), count, memory // (2 * 8 * size**2)))


def _solve_part(X: np.ndarray, kernel: Kernel, Z: np.ndarray, C: float, weights: np.ndarray | None) -> Solution:
    for _ in range(_RETRIES):
        ridge = np.full(len(X), 1.0 / C) if weights is None else 1.0 / (C * weights)
        solution = solve_exact(X, kernel, Z, ridge)
        if solution is not None:
            return solution
        C /= 10
    raise np.linalg.LinAlgError(f"the kernel matrix of {len(X):,} rows could not be factored with C = {C:g}")
