"""Members of a table model: kernel models whose predictions are averaged, each with its own hyperparameters (setting).

A member is fitted to all rows and returns leave-one-out predictions, from which probabilities and intervals are calibrated.
If one factorisation of all rows would exceed the time or memory budget, the rows are partitioned into parts as large as both
budgets allow (`gramless.tables.partition`), and a member has one exact solution for each part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.memory import MemoryEstimate, format_bytes
from gramless._core.threads import blas_threads, parallel_for
from gramless.kernels import Kernel, Laplacian, ScaledColumns
from gramless.kernels.tuning import TUNING as KERNEL_TUNING
from gramless.linalg.operators import expand
from gramless.tables.column_types import Encoded
from gramless.tables.exact import ExactSolution, solve_exact
from gramless.tables.losses import ClassLoss, Loss, ValueLoss
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation, has_skewed_numbers
from gramless.tables.search import (
    WIDTHS,
    Evaluation,
    Report,
    SearchOptions,
    SettingSearch,
    TableSetting,
    choose,
    kernel_gamma,
    local_rows,
    make_kernel,
    promising,
)
from gramless.tables.tuning import TUNING, TablesTuning


@dataclass(eq=False, repr=False)
class TableMember(BaseEstimator):
    """Kernel model of one setting; `points`, `coefs` and `biases` have an item per local partition, none before the fit.

    With `log`, scores are standardised logarithms of the target, and `factor` and `powers` convert predicted medians to
    means (`ValueLoss.from_scores`). Model files of version 0.1.0 have neither `C` nor `powers`.
    """

    preparation: Preparation
    kernel: Kernel
    log: bool
    description: str
    C: float | None = None
    partition: Partition | None = None
    points: Sequence[np.ndarray] = ()
    coefs: Sequence[np.ndarray] = ()
    biases: Sequence[np.ndarray] = ()
    factor: float = 1.0
    powers: tuple[float, float] = (1.0, 0.0)

    def scores(self, encoded: Encoded) -> np.ndarray:
        """Return scores of shape (n_rows, n_targets), computed for a bounded number of rows at a time."""
        out = np.empty((len(encoded), self.coefs[0].shape[1]))
        for start in range(0, len(encoded), TUNING.scored_rows):
            rows = slice(start, start + TUNING.scored_rows)
            block = encoded if len(encoded) <= TUNING.scored_rows else encoded.take(rows)
            X = block.prepared(self.preparation)
            parts = np.zeros(len(X), dtype=np.intp) if self.partition is None else self.partition.parts(X)
            scores = out[rows]
            for part in np.unique(parts):
                inside = parts == part
                points = self.points[part]
                values = _expansion(
                    self.kernel, X[inside].astype(points.dtype), points, self.coefs[part].astype(points.dtype)
                )
                scores[inside] = values + self.biases[part]
        return out


def _expansion(kernel: Kernel, X: np.ndarray, points: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """Return `kernel(X, points) @ coef`; columns are scaled only once, and large Laplacian kernels use compiled code."""
    if isinstance(kernel, ScaledColumns):
        scales = np.asarray(kernel.scales, dtype=points.dtype)
        X, points, kernel = X * scales, points * scales, kernel.kernel
    n_values, least = len(X) * len(points), KERNEL_TUNING.compiled_values
    if not isinstance(kernel, Laplacian) or n_values < least:
        return expand(kernel, X, points, coef)
    out = np.empty((len(X), coef.shape[1]), coef.dtype)
    # Every block has at least `least` kernel values, so that the kernel uses compiled code, and few enough for the cache.
    blocks = np.array_split(np.arange(len(X)), min(len(X), max(1, n_values // (4 * least))))

    def fill(rows: np.ndarray) -> None:
        out[rows] = kernel(X[rows], points) @ coef

    parallel_for(blocks, fill, blas_threads())
    return out


@dataclass
class FittedMembers:
    """Result of `fit_members`; `reductions` describes how the fit was simplified to stay within the budgets."""

    members: list[TableMember]
    weights: np.ndarray
    predictions: np.ndarray
    timings: dict[str, float]
    reductions: list[str] = field(default_factory=list)


def sample_order(n: int, codes: np.ndarray | None, first: int, rng: np.random.RandomState) -> np.ndarray:
    """Return a random order of the rows with at least two rows of each class among the first `first` rows, if possible."""
    order = rng.permutation(n)
    if codes is None:
        return order
    shown = codes[order]
    classes = np.unique(shown)
    few = [c for c in classes if np.count_nonzero(shown[:first] == c) < 2]
    front = np.concatenate([np.flatnonzero(shown == c)[:2] for c in few] or [np.empty(0, dtype=int)]).astype(int)
    return np.concatenate([order[front], np.delete(order, front)])


def fit_scalings(encoded: Encoded, options: SearchOptions) -> dict[str, Preparation]:
    """Return fitted scalings for every encoding of the categories; omit scalings that give the columns of "standard"."""
    fitted: dict[str, Preparation] = {}
    for ending, (n_levels, effects) in options.encodings.items():
        scalings = ["standard"]
        if encoded.numbers.shape[1] or effects:
            scalings += ["quantile"] + (["log"] if not ending and has_skewed_numbers(encoded) else [])
        found = {scaling: Preparation(scaling, n_levels, options.seed, effects).fit(encoded) for scaling in scalings}
        if "quantile" in found and found["quantile"].two_valued_.all():
            found = {"standard": found["standard"]}
        fitted |= {scaling + ending: preparation for scaling, preparation in found.items()}
    return fitted


def fit_members(encoded: Encoded, loss: ClassLoss | ValueLoss, options: SearchOptions) -> FittedMembers:
    """Select settings on a sample of the rows, then fit a member with each selected setting to all rows."""
    began = time.perf_counter()
    rng, tuning, report = np.random.RandomState(options.seed), options.tuning, options.report
    n = len(encoded)
    plan = plan_table(
        n, encoded.numbers.shape[1] + encoded.effects.shape[1] + sum(options.encodings[""][0]), loss.n_targets, options
    )
    most_rows = min(tuning.most_rows, plan.most_rows)
    order = sample_order(n, loss.codes, tuning.first_rows, rng)[:most_rows]
    report("columns", "preparing the columns")
    preparations = fit_scalings(encoded, options)

    def new_search(rows: np.ndarray) -> SettingSearch:
        return SettingSearch(encoded.take(rows), rows, preparations, loss, options)

    search = new_search(order)
    finalists = search.run()
    if finalists and finalists[0].n < n:
        best = finalists[0]
        scales = best.setting.scales
        X = preparations[best.setting.scaling](encoded) * (1.0 if scales is None else np.array(scales))
        losses = search.loss.by_row(best.predictions, order[: best.n])
        nearby = local_rows(X, order[: best.n], losses, options, most_rows, rng)
        loss, spread, search = search.loss, search.spread, new_search(nearby)
        finalists = search.run_local(finalists, spread)
    loss = search.loss
    candidates, size, reductions = _affordable(finalists, search, n, plan)
    tuned = time.perf_counter()
    evaluations, fitted = [], dict[TableSetting, TableMember]()
    for candidate in candidates:
        if fitted and report("fit", f"{len(fitted)} of {len(candidates)} settings fitted"):
            break
        setting = candidate.setting
        found = search.solutions.get(setting) if size == len(search.rows) == n else None
        known = None if found is None else (found, search.rows)
        kernel = make_kernel(setting, search.spread[setting.scaling])
        unfitted = TableMember(preparations[setting.scaling], kernel, setting.log, setting.describe(), setting.C)
        member, scores = _fit_member(unfitted, encoded, loss, size, plan.for_matrices, report, known)
        fitted[setting] = member
        evaluations.append(_on_all_rows(candidate, scores, order, loss))
    # Select the weights of the average again by the leave-one-out predictions of all rows.
    averaged = choose(evaluations, loss, np.arange(n), tuning.members)
    total = np.sum([weight * evaluation.predictions for evaluation, weight in averaged], axis=0)
    members, shares = [fitted[one.setting] for one, _ in averaged], np.array([weight for _, weight in averaged])
    timings = {"tune": tuned - began, "fit": time.perf_counter() - tuned}
    return FittedMembers(members, shares, total, timings, reductions)


def _affordable(
    finalists: list[Evaluation], search: SettingSearch, n: int, plan: TablePlan
) -> tuple[list[Evaluation], int, list[str]]:
    """Return evaluations of the settings to fit, the rows per local partition, and messages about budget reductions."""
    searched = finalists[0].n if finalists else 0
    tuning, memory, loss = search.tuning, plan.for_matrices, search.loss
    sample, fit_seconds = search.rows[:searched], tuning.shares["fit"] * search.options.seconds
    chosen, reductions = choose(finalists, loss, sample, tuning.members), list(plan.reductions)
    if searched == n:
        return [evaluation for evaluation, _ in chosen], n, reductions
    is_divided = part_size(n, 1, fit_seconds, memory, tuning) < n
    within_time = int(1.5 * fit_seconds * tuning.single_operations_per_second / n**3)
    affordable = tuning.partitioned_members if is_divided else max(1, min(tuning.members, within_time))
    if len(chosen) > affordable:
        reductions.append(f"the average has {affordable} of {len(chosen)} settings, to stay within the time budget")
        chosen = choose(finalists, loss, sample, affordable)
    candidates = [evaluation for evaluation, _ in chosen]
    # Fit further settings in the remaining time, because losses on all rows are more accurate than losses on the sample.
    further = promising(finalists, loss, sample, tuning)
    candidates += [one for one in further if all(one is not taken for taken in candidates)]
    candidates = candidates[:affordable]
    size = part_size(n, len(candidates), fit_seconds, memory, tuning)
    if size < n:
        why = "memory" if size < part_size(n, 1, fit_seconds, 1 << 62, tuning) else "time"
        reductions.append(
            f"no exact solution of all {n:,} rows ({format_bytes(8 * n * n)}), for {why}: the rows are divided into "
            f"local partitions of at most {size:,} rows"
        )
    reductions.append(f"settings were chosen on {searched:,} of {n:,} rows")
    return candidates, size, reductions


def _on_all_rows(candidate: Evaluation, scores: np.ndarray, order: np.ndarray, loss: ClassLoss | ValueLoss) -> Evaluation:
    """Return the evaluation of a fitted setting on all rows; if the search used all rows, its predictions are reused."""
    n, setting = len(scores), candidate.setting
    if candidate.n == n and not loss.is_robust:
        predictions = np.empty_like(candidate.predictions)
        predictions[order] = candidate.predictions
    else:
        predictions = loss.predictions(scores, np.arange(n), setting.log)
    return Evaluation(setting, loss(predictions, np.arange(n)), n, predictions)


@dataclass
class TablePlan:
    """Peak memory of a fit, largest number of rows for comparing settings, and bytes available for kernel matrices.

    `reductions` has a message if no memory budget is given and the free memory of the computer limits the kernel matrices.
    """

    memory: MemoryEstimate
    most_rows: int
    for_matrices: int
    reductions: list[str]


def plan_table(n: int, d: int, k: int, options: SearchOptions) -> TablePlan:
    """Return the memory plan for `n` rows, `d` scaled columns and `k` columns of targets."""
    tuning, budget = options.tuning, int(options.memory)
    table = MemoryEstimate({"table": tuning.table_copies * n * d * 8, "scores": tuning.score_columns * n * k * 8})
    free = max(0, budget - table.nbytes)
    left = int(min(free, options.most_for_matrices))

    def search_bytes(rows: int) -> int:
        """Return the bytes of kernel matrices and of the predictions of every evaluated setting, for a number of rows."""
        return 8 * tuning.matrices * rows**2 + 8 * tuning.stored_settings * rows * k

    rows = min(n, int(np.sqrt(left / (8 * tuning.matrices))))
    while rows > 0 and search_bytes(rows) > left:
        rows = int(0.95 * rows)
    if rows < min(n, tuning.first_rows):
        table.parts["kernel matrices"] = search_bytes(min(n, tuning.first_rows))
        table.check(budget, "raise memory_budget, or use NystromLSSVC or NystromLSSVR, which read the rows once")
    table.parts["kernel matrices"] = min(left, max(search_bytes(rows), 2 * 8 * n * n))
    reductions = []
    if left < options.most_for_matrices < np.inf and rows < min(n, tuning.most_rows):
        reductions.append(f"kernel matrices take at most {format_bytes(left)}, the free memory of this computer")
    return TablePlan(table, rows, left, reductions)


def part_size(n: int, n_members: int, seconds: float, memory: int, tuning: TablesTuning = TUNING) -> int:
    """Return the number of rows per local partition: all `n` rows, or as many as the time and memory budgets allow.

    Partitions of `size` rows take `2/3 size^2 n` operations in total, and memory for two float64 matrices of `size` rows.
    """
    by_time = int(min(n, np.sqrt(1.5 * seconds * tuning.single_operations_per_second / (n * n_members))))
    by_memory = int(np.sqrt(memory / 2 / 8))
    size = max(min(by_time, by_memory), min(n, tuning.smallest_part))
    return n if size >= n else -(-n // -(-n // size))


def refit_members(
    members: list[TableMember], weights: np.ndarray, encoded: Encoded, loss: ClassLoss | ValueLoss, options: SearchOptions
) -> FittedMembers:
    """Fit members to other rows, with the settings, preparations and weights of the given members."""
    began, n = time.perf_counter(), len(encoded)
    plan = plan_table(n, members[0].preparation.n_columns, loss.n_targets, options)
    # If the members have no partition, the time budget is ignored, because a few additional rows may exceed it.
    seconds = np.inf if members[0].partition is None else options.tuning.shares["fit"] * options.seconds
    size = part_size(n, len(members), seconds, plan.for_matrices, options.tuning)
    total, fitted = 0.0, []
    for member, weight in zip(members, weights, strict=True):
        one, scores = _fit_member(member, encoded, loss, size, plan.for_matrices, options.report)
        fitted.append(one)
        total = total + weight * loss.predictions(scores, np.arange(n), member.log)
    timings = {"tune": 0.0, "fit": time.perf_counter() - began}
    return FittedMembers(fitted, weights, np.asarray(total), timings, list(plan.reductions))


def _fit_member(
    unfitted: TableMember,
    encoded: Encoded,
    loss: ClassLoss | ValueLoss,
    size: int,
    memory: int,
    report: Report,
    known: tuple[ExactSolution, np.ndarray] | None = None,
) -> tuple[TableMember, np.ndarray]:
    """Return a member fitted to all rows in local partitions of at most `size` rows, and its leave-one-out scores.

    If the search has solved the same setting on all rows, `known` has the solution and the order of the rows in it.
    """
    preparation, kernel, C = unfitted.preparation, unfitted.kernel, unfitted.C
    if C is None:
        raise ValueError("the model was fitted by version 0.1.0, which did not store C: call fit")
    X = preparation(encoded)
    n = len(X)
    scales = kernel.scales if isinstance(kernel, ScaledColumns) else np.ones(X.shape[1])
    partition = None
    parts = np.zeros(n, dtype=np.intp)
    if size < n:
        report("fit", f"dividing {n:,} rows into local partitions of at most {size:,}")
        partition = Partition(size).fit(X * scales)
        parts = partition.parts(X * scales)
        partition.directions_ = [direction * scales for direction in partition.directions_]
    Z = loss.targets(np.arange(n), unfitted.log)
    scores = np.empty_like(Z)
    count = int(parts.max()) + 1
    found, order = known or (None, np.argsort(parts, kind="stable"))
    bounds = np.searchsorted(parts[order], np.arange(count + 1))
    solutions: dict[int, ExactSolution] = {}

    def solve(part: int) -> None:
        rows = order[bounds[part] : bounds[part + 1]]
        solution = found or _solve_part(X[rows], kernel, Z[rows], C, loss.weights_of(rows, unfitted.log))
        for _ in range(TUNING.reweightings if loss.is_robust else 0):
            factors = loss.row_factors(Z[rows, 0] - solution.scores[:, 0])
            solution = _solve_part(X[rows], kernel, Z[rows], C, Loss.weights_of(loss, rows) * factors)
        scores[rows] = solution.scores
        with reporting:
            solutions[part] = solution
            report_part()

    def report_part() -> None:
        done = f": {len(solutions)} of {count} local partitions" if count > 1 else ""
        report("fit", f"fitting the {unfitted.description.partition(' on ')[0]} to {n:,} rows{done}")

    reporting = Lock()
    report_part()
    # Solve local partitions in parallel, one thread each; the last few are solved one after another with all threads.
    workers = parts_at_once(count, size, memory)
    together = count - count % workers if workers > 1 else 0
    parallel_for(range(together), solve, workers)
    for part in range(together, count):
        solve(part)
    in_order = [solutions[part] for part in range(count)]
    points, coefs, biases = ([getattr(one, name) for one in in_order] for name in ("points", "coef", "bias"))
    factor, powers = loss.conversion(scores, np.arange(n), unfitted.log)
    member = replace(unfitted, partition=partition, points=points, coefs=coefs, biases=biases, factor=factor, powers=powers)
    return member, scores


def parts_at_once(count: int, size: int, memory: int) -> int:
    """Return how many local partitions are solved at the same time: one per thread, with memory for two matrices each."""
    return max(1, min(blas_threads(), count, memory // (2 * 8 * size**2)))


def _solve_part(X: np.ndarray, kernel: Kernel, Z: np.ndarray, C: float, weights: np.ndarray) -> ExactSolution:
    """Return the exact solution of one local partition, with a larger ridge if the matrix cannot be factored."""
    for _ in range(TUNING.retries):
        solution = solve_exact(X, kernel, Z, 1.0 / (C * weights))
        if solution is not None:
            return solution
        C /= 10
    raise np.linalg.LinAlgError(f"the kernel matrix of {len(X):,} rows could not be factored with C = {C:g}")


@dataclass(frozen=True)
class SingleSettings:
    """Fitted scaling and hyperparameters for an `estimator` other than "table", the selection method, and its seconds."""

    preparation: Preparation
    C: float
    gamma: float | None
    tuned: str
    seconds: float


def tune_single(encoded: Encoded, loss: ClassLoss | ValueLoss, options: SearchOptions) -> SingleSettings:
    """Return hyperparameters for an `estimator` other than "table"; `C` and `gamma` are selected if they are None."""
    began = time.perf_counter()
    C, gamma, tune, (kernel,) = options.C, options.gamma, options.tune, options.kernels
    options.report("columns", "preparing the columns")
    n_levels, effects = options.encodings[""]
    preparation = Preparation("standard", n_levels, options.seed, effects).fit(encoded)
    has_gamma = len(WIDTHS[kernel]) > 1
    if isinstance(gamma, str) or (gamma is None and tune == "none"):
        variance = 1.0 if gamma == "auto" else float(np.var(preparation(encoded)))
        gamma = 1.0 / (max(1, preparation.n_columns) * variance) if variance > 0 else 1.0
    gamma = gamma if has_gamma else None
    if tune == "none" or (C is not None and (gamma is not None or not has_gamma)):
        return SingleSettings(preparation, 1.0 if C is None else C, gamma, "no", time.perf_counter() - began)
    plan = plan_table(len(encoded), preparation.n_columns, loss.n_targets, options)
    order = sample_order(len(encoded), loss.codes, options.tuning.first_rows, np.random.RandomState(options.seed))
    rows = order[: min(options.tuning.single_rows, plan.most_rows)]
    search = SettingSearch(encoded.take(rows), rows, {"standard": preparation}, loss, replace(options, gamma=gamma))
    best = search.run_single().setting
    if has_gamma and gamma is None:
        gamma = kernel_gamma(kernel, best.width, search.spread["standard"])
    tuned = f"leave-one-out on {len(rows):,} rows, {search.n_evaluated} settings"
    return SingleSettings(preparation, best.C, gamma, tuned, time.perf_counter() - began)
