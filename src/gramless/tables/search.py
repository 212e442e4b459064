"""Search for the best settings (scaling, kernel, kernel width and `C`) by closed-form leave-one-out on a growing sample.

1. On `first_rows` rows, evaluate every scaling, kernel and width, each with its best `C`.
2. On more rows, run a coordinate search in width and `C` from the best setting of each family (pair of scaling and kernel),
   also with learned column scales and with the logarithm of a skewed target.
3. Evaluate the best settings (finalists) on all rows if time allows, else on local subsets, which are as dense as the table.
4. Average finalists greedily if the average lowers the loss.

Kernel widths are relative to the spread of the scaled columns, so that one list of widths serves all tables. An evaluation
is one Cholesky factorisation (`gramless.tables.exact`). Column scales overfit the rows from which they are learned. Scales
are therefore learned from each half of a sample and evaluated on the other half; the model uses their geometric mean.

Reference: Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models", 2004.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gramless._core.threads import blas_threads, one_blas_thread, run_round_robin
from gramless.kernels import Kernel, ScaledColumns, as_kernel
from gramless.tables.column_types import TARGET_ENCODED, Encoded
from gramless.tables.exact import CachedMatrices, ExactSolution, ScaleProblem, solve_exact
from gramless.tables.losses import ClassLoss, ValueLoss
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation
from gramless.tables.tuning import TUNING, TablesTuning

T = TypeVar("T")
Scales: TypeAlias = tuple[float, ...]
Report: TypeAlias = Callable[[str, str], bool]
"""Progress callback `report(stage, message)`, which returns True to stop the search."""

KERNELS = ("rbf", "matern52", "exponential", "laplacian")
"""Kernels that the search compares."""
FAST_KERNELS = ("matern52", "laplacian")
"""Kernels that a fast search compares: one for smooth functions, and one for functions that change along single columns."""
# Kernel widths of the first stage in the order of evaluation: the search for C starts from the best C of the previous width.
WIDTHS = {
    "rbf": (0.3, 0.15, 0.6, 1.2, 4.0),
    "matern52": (0.3, 0.1, 1.0, 4.0),
    "matern32": (0.3, 0.1, 1.0, 4.0),
    "exponential": (0.2, 0.05, 0.8, 3.2),
    "laplacian": (0.4, 0.1, 1.6, 6.4),
    "poly": (1.0, 0.3, 3.0),
    "linear": (1.0,),
}


BASE_SCALINGS = ("standard", "quantile")
"""Scalings that the first stage combines with every kernel."""


@dataclass(frozen=True)
class TableSetting:
    """Scaling, kernel, kernel width, `C`, whether the logarithm of the target is fitted, and any learned column scales."""

    scaling: str
    kernel: str
    width: float
    C: float
    log: bool = False
    scales: Scales | None = None

    def describe(self) -> str:
        """Return a description of the setting as a string."""
        extra = ", learned column scales" if self.scales is not None else ""
        return f"{self.kernel} kernel on {self.scaling} columns, width {self.width:.3g}, C {self.C:.3g}{extra}" + (
            ", logarithm of the target" if self.log else ""
        )


def kernel_gamma(kernel: str, width: float, spread: float) -> float:
    """Return the `gamma` of a kernel of relative width `width` for columns whose variances sum to `spread`."""
    if kernel == "rbf":
        return width**2 / spread
    return width / (spread if kernel in ("laplacian", "poly") else spread**0.5)


def kernel_width(kernel: str, gamma: float, spread: float) -> float:
    """Return the relative width of a kernel with the given `gamma`; this is the inverse of `kernel_gamma`."""
    per_unit = gamma / kernel_gamma(kernel, 1.0, spread)
    return per_unit**0.5 if kernel == "rbf" else per_unit


def make_kernel(setting: TableSetting, spread: float) -> Kernel:
    """Return the kernel of a setting for columns whose variances sum to `spread`."""
    kernel = as_kernel(setting.kernel, gamma=kernel_gamma(setting.kernel, setting.width, spread))
    return kernel if setting.scales is None else ScaledColumns(kernel, np.array(setting.scales))


@dataclass
class Evaluation:
    """Setting with its leave-one-out predictions of the first `n` rows of the sample, and the loss of these predictions."""

    setting: TableSetting
    loss: float
    n: int
    predictions: np.ndarray


def narrowed_evaluations(starts: int, evaluations: int) -> int:
    """Return the number of evaluations of a search that evaluates all starts and continues from the better half of them."""
    return starts + -(-starts // 2) * (evaluations - 1)


def rows_within(seconds: float, evaluations: int, tuning: TablesTuning = TUNING) -> int:
    """Return the largest number of rows of a matrix that is factored `evaluations` times in `seconds` at nominal speed."""
    return int((1.5 * seconds * tuning.operations_per_second / evaluations) ** (1 / 3))


@dataclass(frozen=True)
class SearchOptions:
    """Options of search and fit; `C` and `gamma` are selected by the search if they are None.

    `seconds` is converted to a number of operations at the nominal speed; `encodings` is from `TableColumns.encodings`.
    """

    report: Report = lambda stage, message: False
    encodings: dict[str, tuple[list[int], list[int]]] = field(default_factory=lambda: {"": ([], [])})
    kernels: tuple[str, ...] = KERNELS
    C: float | None = None
    gamma: Any = None
    tune: str = "loo"
    column_scales: str = "learned"
    seconds: float = np.inf
    memory: float = np.inf
    most_for_matrices: float = np.inf
    seed: int = 0
    tuning: TablesTuning = TUNING


Steps: TypeAlias = Generator[None, None, Evaluation]
"""Generator that yields after every evaluation of a search, so that another thread can continue the search."""


def _step(do: Callable[..., T], *arguments: Any) -> Generator[None, None, T]:
    """Return a generator that calls `do` as its only step."""
    yield from ()
    return do(*arguments)


class SettingSearch:
    """State of one search over settings.

    `rows` are the indices of the rows of `encoded` in the table, in the order in which the sample grows.
    """

    def __init__(
        self,
        encoded: Encoded,
        rows: np.ndarray,
        preparations: dict[str, Preparation],
        loss: ClassLoss | ValueLoss,
        options: SearchOptions,
    ):
        self.rows, self.loss = rows, loss
        self.groups = {scaling: prepare.groups for scaling, prepare in preparations.items()}
        self.options, self.tuning, self.C, self.gamma = options, options.tuning, options.C, options.gamma
        self._stage, self._stopped = "", False
        self.n_evaluated, self._best = 0, Evaluation(TableSetting("standard", "rbf", 1.0, 1.0), np.inf, 0, np.empty(0))
        self._most = 0
        self.X = {scaling: prepare(encoded) for scaling, prepare in preparations.items()}
        self.spread = {scaling: max(float(X.var(axis=0).sum()), 1e-12) for scaling, X in self.X.items()}
        self.evaluated: dict[tuple[TableSetting, int], Evaluation] = {}
        # For each vector of averaged column scales: the scales learned from the even and from the odd rows of the first part
        # of the sample, and the number of rows of this part.
        self.halves: dict[Scales, tuple[tuple[Scales, Scales], int]] = {}
        # Solutions of settings on the full sample, reused by the fit if the sample contains all rows.
        self.solutions: dict[TableSetting, ExactSolution] = {}
        self._counting = Lock()

    def report(self, stage: str) -> None:
        """Report the stage, the number of evaluated settings, and the best setting on the largest sample."""
        self._stage = stage
        best = f", best so far {self._best.setting.describe()}" if np.isfinite(self._best.loss) else ""
        message = f"{stage}: {self.n_evaluated:,} of at most {self._most:,} settings{best}"
        self._stopped = self.options.report("search", message) or self._stopped

    def _expect(self, *stages: int) -> None:
        """Set the largest total number of evaluations from the numbers of evaluations of the remaining stages."""
        self._most = self.n_evaluated + sum(stages)

    def _each(self, jobs: Iterable[Generator[None, None, T]]) -> list[T]:
        """Return the results of all jobs, which run in parallel with one thread each."""
        at_once = min(self.tuning.workers, blas_threads())  # evaluated before BLAS is limited to one thread
        with one_blas_thread():
            return run_round_robin(list(jobs), at_once)

    def evaluate(
        self, setting: TableSetting, n: int, cached: dict[TableSetting, CachedMatrices] | None = None
    ) -> Evaluation:
        """Return the evaluation of a setting on the first `n` rows; `cached` has the kernel matrix of the previous call."""
        key = (setting, n)
        if key not in self.evaluated:
            matrices: CachedMatrices | None = None
            if cached is not None:
                same_kernel = replace(setting, C=1.0, log=False)
                matrices = cached.get(same_kernel, {})
                cached.clear()
                cached[same_kernel] = matrices
            kernel = make_kernel(setting, self.spread[setting.scaling])
            rows, X = self.rows[:n], self.X[setting.scaling][:n]
            Z, ridge = self.loss.targets(rows, setting.log), self.loss.ridge(setting.C, rows, setting.log)
            solution = solve_exact(X, kernel, Z, ridge, matrices)
            evaluation = self.evaluated[key] = Evaluation(setting, np.inf, n, np.empty(0))
            if solution is not None:
                evaluation.predictions = self.loss.predictions(solution.scores, rows, setting.log)
                evaluation.loss = self.loss(evaluation.predictions, rows)
                if n == len(self.rows):
                    self.solutions[setting] = solution
            with self._counting:
                self.n_evaluated += 1
                if (n, -evaluation.loss) > (self._best.n, -self._best.loss):
                    self._best = evaluation
                self.report(self._stage)
        return self.evaluated[key]

    def line_search(self, start: TableSetting, n: int) -> Steps:
        """Return a search for the best `C` on the first `n` rows that starts at `start`, in steps of a factor of ten."""
        step = self.tuning.first_C_step
        return self._greedy_search(start, n, np.inf, [(step, 1.0), (1 / step, 1.0)])

    def coordinate_search(self, start: TableSetting, n: int, evaluations: int) -> Steps:
        """Return a coordinate search in `C` and width with a limited number of evaluations on the first `n` rows."""
        C_step, width_step = self.tuning.C_step, self.tuning.width_step
        moves = [(C_step, 1.0), (1 / C_step, 1.0)]
        if self.gamma is None and len(WIDTHS[start.kernel]) > 1:
            moves += [(1.0, width_step), (1.0, 1 / width_step)]
        return self._greedy_search(start, n, evaluations, moves)

    def _greedy_search(self, start: TableSetting, n: int, evaluations: float, moves: list[tuple[float, float]]) -> Steps:
        """Multiply `C` and width by the factors of `moves`; accept the first improving move, which is then tried first."""
        # A move that changes only C reuses the kernel matrix of the previous evaluation.
        cached: dict[TableSetting, CachedMatrices] = {}
        here = self.evaluate(start, n, cached)
        yield
        moves = [move for move in moves if self.C is None or move[0] == 1.0]
        spent, visited = 1, {start}
        while spent < evaluations and not self._stopped:
            for move in list(moves):
                C, width = here.setting.C * move[0], here.setting.width * move[1]
                there = replace(here.setting, C=C, width=width)
                if there in visited or (self.C is None and not self.tuning.smallest_C <= C <= self.tuning.largest_C):
                    continue
                visited.add(there)
                spent += 1
                found = self.evaluate(there, n, cached)
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

    def first(self, n: int) -> list[Evaluation]:
        """Evaluate all scalings, kernels and widths; return the best evaluation of each family, lowest loss first."""
        start_C = self.tuning.start_C if self.C is None else self.C

        def widths(scaling: str, kernel: str) -> Steps:
            found, C, tried = list[Evaluation](), start_C, WIDTHS[kernel]
            if self.gamma is not None and kernel != "linear":
                tried = (kernel_width(kernel, self.gamma, self.spread[scaling]),)
            for width in tried:
                found.append((yield from self.line_search(TableSetting(scaling, kernel, width, C), n)))
                C = found[-1].setting.C if np.isfinite(found[-1].loss) else start_C
                if self._stopped:
                    break
            return min(found, key=lambda one: one.loss)

        self.report(f"evaluating every scaling, kernel and width, {n:,} rows")
        families = product([scaling for scaling in self.X if scaling in BASE_SCALINGS], self.options.kernels)
        found = self._each(widths(scaling, kernel) for scaling, kernel in families)
        best = [one.setting for one in _best_of_each(found, _family)[:2]]
        others = [replace(one, scaling=scaling) for one in best for scaling in ("log", one.scaling + TARGET_ENCODED)]
        others = [one for one in dict.fromkeys(others) if one.scaling in self.X]
        if others:
            self.report(f"evaluating logarithms of skewed columns and target-encoded categories, {n:,} rows")
            found += self._each(self.line_search(one, n) for one in others)
        if not _finite(found):
            raise ValueError(NOTHING_FITTED)
        return _best_of_each(found, _family)

    def learn(self, starts: Sequence[TableSetting], rows: int) -> list[TableSetting]:
        """Return each setting with the geometric mean of the column scales learned from two halves of the first rows.

        A setting that already has scales starts from the scales of the same half, and takes half as many L-BFGS iterations.
        """

        def learned(start: TableSetting, first: int) -> tuple[np.ndarray, float]:
            half = slice(first, rows, 2)
            X, groups = self.X[start.scaling][half], self.groups[start.scaling]
            gamma = kernel_gamma(start.kernel, start.width, self.spread[start.scaling])
            steps, logs = self.tuning.learning_steps, np.zeros(int(groups.max()) + 1)
            if start.scales is not None:
                own, _ = self.halves[start.scales]
                steps, logs[groups] = -(-steps // 2), np.log(own[first])
            problem = ScaleProblem(X, groups, start.kernel, gamma, self.loss, self.rows[half], start.log)
            return problem.learn(logs, start.C, steps)

        halves = self._each(_step(learned, start, first) for start in starts for first in (0, 1))
        return [self._joined(start, halves[2 * k : 2 * k + 2], rows) for k, start in enumerate(starts)]

    def _joined(self, start: TableSetting, halves: list[tuple[np.ndarray, float]], rows: int) -> TableSetting:
        """Return the setting with the geometric mean of the column scales that were learned from both halves."""
        logs, Cs = [half[0] for half in halves], [np.log(half[1]) for half in halves]
        mean = np.mean(logs, axis=0)
        # The scales of each half are multiplied by a factor, so that both have the geometric mean of the averaged scales and
        # one kernel width suits all three vectors of scales.
        even, odd, both = (self._scales(one - one.mean() + mean.mean(), start.scaling) for one in (*logs, mean))
        self.halves[both] = (even, odd), rows
        C = float(np.clip(np.exp(np.mean(Cs)), self.tuning.smallest_C, self.tuning.largest_C))
        return replace(start, scales=both, C=C)

    def _scales(self, logs: np.ndarray, scaling: str) -> Scales:
        return tuple(float(f"{scale:.6g}") for scale in np.exp(logs)[self.groups[scaling]])

    def unbiased_search(self, start: TableSetting, n: int, evaluations: int) -> Steps:
        """Run a coordinate search and return its result, with predictions by scales learned without the predicted rows.

        Each row is predicted with the column scales that were learned from the other half of the rows.
        """
        evaluation = yield from self.coordinate_search(start, n, evaluations)
        setting = evaluation.setting
        (even, odd), n_learned = self.halves.get(setting.scales or (), (((), ()), 0))
        if n_learned < self.tuning.negligible_share * n or not np.isfinite(evaluation.loss):
            return evaluation
        predictions = evaluation.predictions.copy()
        for scales, first in ((odd, 0), (even, 1)):
            there = self.evaluate(replace(setting, scales=scales), n)
            yield
            if not np.isfinite(there.loss):
                return there
            half = slice(first, n_learned, 2)
            predictions[half] = there.predictions[half]
        return Evaluation(setting, self.loss(predictions, self.rows[:n]), n, predictions)

    def _narrowed(self, starts: Sequence[TableSetting], n: int, evaluations: int) -> list[Evaluation]:
        """Evaluate all settings, and run a coordinate search from the best that `promising` returns, at most half."""
        first = self._each(_step(self.evaluate, start, n) for start in starts)
        plain = [one for one in first if one.setting.scales is None]
        # Before `unbiased_search`, losses of settings with learned scales are too low: compare them only with each other.
        learned = promising([one for one in first if one.setting.scales is not None], self.loss, self.rows[:n], self.tuning)
        kept = _finite(promising(plain, self.loss, self.rows[:n], self.tuning) + learned)[: -(-len(first) // 2)]
        others = [one for one in [*plain, *learned] if all(one is not other for other in kept)]
        jobs = [(one, evaluations) for one in kept] + [(one, 1) for one in others]
        return self._each(self.unbiased_search(one.setting, n, count) for one, count in jobs)

    def _reweight(self, found: list[Evaluation]) -> None:
        """Update the row weights of a robust loss by the residuals of the best evaluation."""
        finite = _finite(found)
        if self.loss.is_robust and finite:
            self.loss = self.loss.reweighted(finite[0].predictions, self.rows[: finite[0].n])
            self.evaluated.clear()
            self.solutions.clear()

    def run(self) -> list[Evaluation]:
        """Return the best evaluations of different families on as many rows as the time budget allows, best first."""
        t, most = self.tuning, len(self.rows)
        learns = self.options.column_scales == "learned" and len(np.unique(self.groups["standard"])) > 1
        # With learned scales, every coordinate search is followed by one evaluation with the scales of each half.
        second = narrowed_evaluations(t.families, t.family_evaluations) + self.loss.can_log * t.family_evaluations
        second += narrowed_evaluations(t.learned_kernels, t.family_evaluations) + 2 * t.learned_kernels if learns else 0
        last = narrowed_evaluations(t.finalists, t.finalist_evaluations)
        third = last + 2 * t.finalists
        scalings, decades = len([one for one in self.X if one in BASE_SCALINGS]), round(np.log10(t.largest_C / t.smallest_C))
        n_widths = scalings * sum(len(WIDTHS[kernel]) for kernel in self.options.kernels)
        self._expect((n_widths + 4) * (1 + decades), second, third)
        families = self.first(min(most, t.first_rows))
        self._reweight(families)
        evaluations = narrowed_evaluations(t.families, t.family_evaluations)
        rows = rows_within(t.shares["second"] * self.options.seconds, evaluations, t)
        n = min(t.second_rows, max(t.first_rows, rows))
        self._expect(second, third)
        # Use all rows here if a separate stage would add only few rows.
        n = most if n > t.almost_all * most else n
        self.report(f"coordinate search from the best settings, {n:,} rows")
        starts = [one.setting for one in _diverse(families, t.families)]
        found = self._narrowed(starts, n, t.family_evaluations)
        if self.loss.can_log:
            best = min(found, key=lambda one: one.loss).setting
            self.report(f"evaluating the logarithm of the target, {n:,} rows")
            found += self._each([self.coordinate_search(replace(best, log=True), n, t.family_evaluations)])
        if learns:
            found += self._with_learned_scales(found, n)
        self._reweight(found)
        finalists = _diverse(_best_of_each(found, _family), t.finalists)
        self._expect(third)
        affordable = rows_within(t.shares["third"] * self.options.seconds, last, t)
        if n < most <= affordable / t.almost_all and not self._stopped:
            self.report(f"choosing among the best, {most:,} rows")
            finalists = self._narrowed([one.setting for one in finalists], most, t.finalist_evaluations)
        return _finite(finalists)

    def _with_learned_scales(self, found: list[Evaluation], n: int) -> list[Evaluation]:
        """Return evaluations with learned scales for the best kernel and, if its loss decreases, also for other kernels."""
        t, most = self.tuning, len(self.rows)
        steps = 2 * t.learned_kernels * t.learning_steps * t.gradient_cost
        seconds = t.shares["learn"] * self.options.seconds
        # Learning the scales of many columns needs more rows, and deserves more time, than learning the scales of few.
        wide = min(
            rows_within(t.wide_learning * seconds, steps, t), t.rows_per_scale * len(np.unique(self.groups["standard"]))
        )
        half = min(most // 2, max(t.first_rows // 2, rows_within(seconds, steps, t), wide))

        def learn(starts: list[TableSetting]) -> list[Evaluation]:
            self.report(f"learning a scale for each column, {len(starts)} kernels, {2 * half:,} rows")
            settings = self.learn(starts, 2 * half)
            self.report(f"coordinate search with the learned scales, {n:,} rows")
            return self._narrowed(settings, n, t.family_evaluations)

        # Keep one family per kernel, because the best kernel can change with learned scales.
        best, *others = _best_of_each(found, lambda setting: setting.kernel)[: t.learned_kernels]
        learned = [] if self._stopped else learn([best.setting])
        if not others or not learned or self._stopped or learned[0].loss > best.loss:
            return learned
        scales = learned[0].setting.scales
        # Scalings of the same encoding have the same columns, and can start from the same scales.
        same = {scaling for scaling, groups in self.groups.items() if len(groups) == len(scales or ())}
        starts = [one.setting for one in others]
        return learned + learn([replace(one, scales=scales if one.scaling in same else None) for one in starts])

    def run_local(self, found: list[Evaluation], spread: dict[str, float]) -> list[Evaluation]:
        """Continue an earlier search by a coordinate search on the rows of local subsets; return the evaluations."""
        self.spread = spread
        t, n = self.tuning, len(self.rows)
        self._expect(narrowed_evaluations(t.local_finalists, t.local_evaluations))
        self.report(f"choosing among the best, {n:,} rows of {t.local_subsets} local subsets")
        return _finite(self._narrowed([one.setting for one in _diverse(found, t.local_finalists)], n, t.local_evaluations))

    def run_single(self) -> Evaluation:
        """Return the best evaluation for one scaling and one kernel on at most `single_rows` rows."""
        n = min(len(self.rows), self.tuning.single_rows)
        families = self.first(min(n, self.tuning.first_rows))
        self.report(f"coordinate search, {n:,} rows")
        return self._each([self.coordinate_search(families[0].setting, n, self.tuning.single_evaluations)])[0]


NOTHING_FITTED = "no setting could be fitted: the kernel matrix is singular for every C"


def local_rows(
    X: np.ndarray, known: np.ndarray, losses: np.ndarray, options: SearchOptions, most: int, rng: np.random.RandomState
) -> np.ndarray:
    """Return the indices of the rows of random local subsets, as many rows as the time budget of the third stage allows.

    A subset is drawn in proportion to the sum of `losses` over the rows of `known` in the subset: for a skewed target, few
    subsets may cause almost all of the loss, and settings should be compared on such subsets.
    """
    tuning = options.tuning
    evaluations = narrowed_evaluations(tuning.local_finalists, tuning.local_evaluations)
    count = min(most, rows_within(tuning.shares["third"] * options.seconds, evaluations, tuning))
    tree = Partition(max(1, count // tuning.local_subsets)).fit(X)
    parts = tree.parts(X)
    # Add the mean loss of a row to the sum of each subset, so that subsets without rows of `known` can be drawn.
    totals = np.bincount(parts[known], weights=losses, minlength=tree.n_parts_) + max(losses.mean(), np.finfo(float).tiny)
    drawn = rng.choice(tree.n_parts_, min(tuning.local_subsets, tree.n_parts_), replace=False, p=totals / totals.sum())
    return np.flatnonzero(np.isin(parts, drawn))


def _finite(found: list[Evaluation]) -> list[Evaluation]:
    """Return the evaluations with finite loss in ascending order of loss."""
    return sorted((one for one in found if np.isfinite(one.loss)), key=lambda one: one.loss)


def _diverse(found: list[Evaluation], most: int) -> list[Evaluation]:
    """Return the best of each kernel, of each encoding, and with and without `log`, then others, at most `most` in total.

    The best kernel can change with more rows, and averages of models that differ more have smaller errors.
    """
    groups: list[Callable[[TableSetting], Any]] = [
        lambda setting: setting.kernel,
        lambda setting: setting.log,
        lambda setting: setting.scaling.endswith(TARGET_ENCODED),
    ]
    ordered = [one for group in groups for one in _best_of_each(found, group)] + _finite(found)
    kept = list({id(one): one for one in ordered}.values())[:most]
    return _finite(kept)


def _family(setting: TableSetting) -> tuple[Any, ...]:
    """Return the hyperparameters of a setting that the coordinate search does not change."""
    return setting.scaling, setting.kernel, setting.log, setting.scales is not None


def _best_of_each(found: list[Evaluation], group: Callable[[TableSetting], Any]) -> list[Evaluation]:
    """Return the evaluation with the lowest loss of each group of settings, in ascending order of loss."""
    best: dict[Any, Evaluation] = {}
    for one in found:
        which = group(one.setting)
        if np.isfinite(one.loss) and (which not in best or one.loss < best[which].loss):
            best[which] = one
    return sorted(best.values(), key=lambda one: one.loss)


def promising(
    found: list[Evaluation], loss: ClassLoss | ValueLoss, rows: np.ndarray, tuning: TablesTuning
) -> list[Evaluation]:
    """Return the evaluations of the greedy average, and evaluations whose loss is not significantly above the lowest loss.

    The losses of two settings are compared row by row, as in a paired test.
    """
    found = _finite(found)
    if len(found) < 2:
        return found
    averaged = [id(one) for one, _ in choose(found, loss, rows, tuning.members)]
    lowest = loss.by_row(found[0].predictions, rows)
    kept = []
    for one in found:
        excess = loss.by_row(one.predictions, rows) - lowest
        if id(one) in averaged or excess.mean() <= tuning.margin * excess.std() / len(rows) ** 0.5:
            kept.append(one)
    return kept


def choose(
    finalists: list[Evaluation], loss: ClassLoss | ValueLoss, rows: np.ndarray, most: int = TUNING.members
) -> list[tuple[Evaluation, float]]:
    """Return the evaluations of a greedy average and their weights: add the evaluation that lowers the loss most."""
    finalists = _finite(finalists)
    if not finalists:
        raise ValueError(NOTHING_FITTED)
    counts = {0: 1}
    total, value = finalists[0].predictions.copy(), finalists[0].loss
    for _ in range(TUNING.greedy_rounds):
        taken = sum(counts.values())
        allowed = range(len(finalists)) if len(counts) < most else list(counts)
        trials = [(loss((total + finalists[i].predictions) / (taken + 1), rows), i) for i in allowed]
        best, i = min(trials)
        if best >= value:
            break
        counts[i] = counts.get(i, 0) + 1
        total, value = total + finalists[i].predictions, best
    taken = sum(counts.values())
    return [(finalists[i], count / taken) for i, count in counts.items()]
