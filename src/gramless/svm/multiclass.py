"""A multi-class support vector classifier as two-class problems that share their kernel values.

One-vs-one: each pair of classes is a problem on the points of the two classes. The Gram matrix of each class is computed
once, if the budget allows, and used by all its pairs; the block between two classes is used by one pair and is computed row
by row. Pairs run in parallel with single-threaded matrix products; on a device all pairs advance together (`batched_smo`).

One-vs-rest: all problems use all points and advance together, so a kernel row that several problems need is computed once.

Scores: a support vector of class i takes part in k - 1 pairs, so the block `K(X, vectors of class i)` is computed once and
multiplied with k - 1 columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gramless._core import arrays as xa
from gramless._core.device_rows import SparseRows, rows_on_device
from gramless._core.threads import run_threads
from gramless._core.validation import warn_caller
from gramless.kernels.base import Kernel
from gramless.linalg.operators import byte_rows, expand
from gramless.linalg.operators.blocks import expand_groups
from gramless.linalg.tuning import TUNING as LINALG_TUNING
from gramless.svm.batched_smo import BatchedSMO
from gramless.svm.box_qp import BoxQP, DualSolution, NuQP, solve_to_margin
from gramless.svm.gram_rows import GramRows, GramSource, Part, StoredGram, class_grams
from gramless.svm.resources import DualFit, row_workers
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO

DUAL_SOLVERS: dict[str, type] = {"smo": SMO, "simple_smo": SimpleSMO}
"""The names that support vector machines accept as `solver=`."""


def make_solver(name: str, tol: float, max_iter: int | None) -> SMO | SimpleSMO:
    """Return a dual solver by name; with `max_iter=None` the default limit of the solver applies."""
    settings = {} if max_iter is None else {"max_iter": max_iter}
    return DUAL_SOLVERS[name](tol=tol, **settings)


@dataclass(frozen=True)
class SupportVectorModel:
    """The solutions of one or more dual problems over the union of their support vectors.

    For one-vs-one with k > 2 classes `dual_coef` has k - 1 rows: the coefficients of a support vector in the problems of its
    class against the other classes, in the order of the other classes. Otherwise `dual_coef` has one row for each problem.
    """

    support: np.ndarray
    n_support: np.ndarray
    dual_coef: np.ndarray
    intercept: np.ndarray
    solutions: list[DualSolution]

    @classmethod
    def of_solutions(cls, solutions: list[DualSolution]) -> SupportVectorModel:
        """Return the model that combines the solutions of problems on the same points, without classes."""
        beta = np.stack([solution.beta for solution in solutions])
        support = np.flatnonzero(beta.any(axis=0))
        intercept = np.array([solution.bias for solution in solutions])
        return cls(support, np.array([support.size]), beta[:, support], intercept, solutions)

    def spread(self, n: int) -> np.ndarray:
        """Return the coefficients over all `n` points, which are zero for points that are not support vectors."""
        beta = np.zeros((self.dual_coef.shape[0], n))
        beta[:, self.support] = self.dual_coef
        return beta

    def by_problem(self) -> np.ndarray:
        """Return the coefficients of each two-class problem over the support vectors."""
        n_classes, n_problems = self.n_support.size, self.intercept.size
        if self.dual_coef.shape[0] == n_problems:
            return self.dual_coef
        decomposition = Decomposition(np.repeat(np.arange(n_classes), self.n_support), n_classes, one_vs_one=True)
        beta = np.zeros((n_problems, self.support.size))
        for number in range(n_problems):
            points, _, rows = decomposition.split(number)
            beta[number, points] = self.dual_coef[rows, points]
        return beta


class Decomposition:
    """Two-class problems of labels in `0 .. n_classes - 1`: one-vs-one or one-vs-rest; a single problem for two classes."""

    def __init__(self, codes: np.ndarray, n_classes: int, one_vs_one: bool):
        self.codes, self.n_classes = codes, n_classes
        self.in_pairs = one_vs_one and n_classes > 2
        # The positive and the negative class of each problem; the negative class None stands for all other classes.
        self.classes: list[tuple[int, int | None]] = [(c, None) for c in (range(n_classes) if n_classes > 2 else [1])]
        if self.in_pairs:
            self.classes = list(combinations(range(n_classes), 2))
        self._members = [np.flatnonzero(codes == c) for c in range(n_classes)]

    def split(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the points of a problem, a mask of the positive points, and each point's row in the dual coefficients."""
        first, second = self.classes[number]
        if second is None:
            points = np.arange(self.codes.size)
            return points, self.codes == first, np.full(points.size, number)
        points = np.sort(np.concatenate([self._members[first], self._members[second]]))
        positive = self.codes[points] == first
        return points, positive, np.where(positive, second - 1, first)

    def problems(
        self, C: np.ndarray, positive_weight: float = 1.0, nu: float | None = None, start: np.ndarray | None = None
    ) -> list[BoxQP]:
        """Return the dual problems with bounds `C` of the multipliers; they start at the dual coefficients `start`."""
        found: list[BoxQP] = []
        for number in range(len(self.classes)):
            points, positive, rows = self.split(number)
            y, bounds = np.where(positive, 1.0, -1.0), C[points] * np.where(positive, positive_weight, 1.0)
            if nu is None:
                found.append(BoxQP.classification(y, bounds, None if start is None else start[rows, points]))
            else:
                found.append(NuQP.of_labels(y, bounds, nu))
        return found

    def model(self, solutions: list[DualSolution]) -> SupportVectorModel:
        """Return the model that combines the solutions of the problems; its support vectors are sorted by class."""
        coef = np.zeros((self.n_classes - 1 if self.in_pairs else len(solutions), self.codes.size))
        for number, solution in enumerate(solutions):
            points, _, rows = self.split(number)
            coef[rows, points] = solution.beta
        support = np.concatenate([members[coef[:, members].any(axis=0)] for members in self._members])
        n_support = np.bincount(self.codes[support], minlength=self.n_classes)
        intercept = np.array([solution.bias for solution in solutions])
        return SupportVectorModel(support, n_support, coef[:, support], intercept, solutions)


def solve_multiclass(
    fit: DualFit,
    codes: np.ndarray,
    C: np.ndarray,
    *,
    n_classes: int,
    one_vs_one: bool,
    positive_weight: float = 1.0,
    nu: float | None = None,
    start: SupportVectorModel | None = None,
) -> SupportVectorModel:
    """Solve the two-class problems of labels `codes` in `0 .. n_classes - 1`; `C` bounds each sample's multipliers.

    With `nu` the bounds are weights, and each problem determines their scale (see `NuQP`). `start` is a model for the same
    labels and bounds from which the solver starts.
    """
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(n_classes + 1))
    members = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    on_cpu = fit.device == "cpu"
    parts: list[Part] = [order[part] for part in members]
    if fit.kernel.uses_points:
        X, parts = fit.X[order], list(members)
        fit = replace(fit, X=byte_rows(fit.kernel, X, len(order) // 2) if on_cpu else X)
    stored = None
    fits = fit.budget >= 2 * len(order) ** 2 * fit.X.dtype.itemsize
    if on_cpu and fit.workers == 1 and len(order) <= fit.tuning.solved_whole and fits:
        workers = row_workers(fit.kernel, fit.X, fit.tuning.operations_for_threads_once)
        stored = StoredGram.of(fit.kernel, fit.X, order, workers)
    decomposition = Decomposition(codes[order], n_classes, one_vs_one)
    start_coef = None if start is None else start.spread(len(codes))[:, order]
    problems = decomposition.problems(C[order], positive_weight, nu, start_coef)
    if decomposition.in_pairs and on_cpu:
        solutions = _solve_pairs(fit, decomposition.classes, problems, parts, members, stored)
    else:
        own = [[parts[i], parts[j]] if j is not None else parts for i, j in decomposition.classes]
        solutions = solve_jointly(fit, problems, own, stored)
    model = decomposition.model(solutions)
    return replace(model, support=order[model.support])


def solve_jointly(
    fit: DualFit, problems: list[BoxQP], parts: list[list[Part]], stored: StoredGram | None = None
) -> list[DualSolution]:
    """Solve problems that share their kernel values; on the CPU all problems must have the same points in the same order."""
    if fit.device != "cpu":
        solver = BatchedSMO(tol=fit.solver.tol, max_iter=fit.solver.max_iter)
        rows = rows_on_device(fit.X, fit.device, fit.budget / 2)
        used = fit.X.nnz * 16 if isinstance(rows, SparseRows) else rows.numel() * rows.element_size()
        return solver.maximise(problems, parts, fit.kernel, rows, fit.budget - used, fit.seed, fit.progress)
    return _solve_two_class(fit, problems, stored or gram_rows(fit, parts[0]), np.random.default_rng(fit.seed))


def gram_rows(fit: DualFit, parts: list[Part], ridge: np.ndarray | None = None) -> GramRows:
    """Return the Gram matrix of the rows of a fit, computed row by row, with `ridge` added to its diagonal."""
    return GramRows(fit.kernel, fit.X, parts, ridge=ridge, budget=fit.budget, workers=fit.workers)


def _solve_pairs(
    fit: DualFit, pairs: list[Any], problems: list[BoxQP], parts: list[Part], members: list[slice], stored: StoredGram | None
) -> list[DualSolution]:
    """Solve the problems of the pairs of classes in parallel on the CPU; they share the Gram matrices of the classes."""
    kernel, X = fit.kernel, fit.X
    workers = fit.workers if kernel.thread_safe else 1
    # With fewer than two pairs per core, pairs are solved one after the other, and all cores compute the rows of each pair.
    n_parallel = workers if len(pairs) >= 2 * workers else 1
    blocks = class_grams(kernel, X, parts, fit.budget / 2 if stored is None else 0, workers)
    budget = (fit.budget - sum(block.nbytes for block in blocks if block is not None)) / n_parallel
    solutions: list[DualSolution] = [None] * len(pairs)  # type: ignore[list-item]
    # Pairs differ in difficulty, so each idle thread takes the next pair. Each pair has its own rows and random numbers, so
    # the result does not depend on the thread. After a stop the multipliers of the remaining pairs are zero.
    waiting = list(enumerate(pairs))
    next_pair = iter(waiting)

    def work(_: int) -> None:
        for number, (i, j) in next_pair:
            if not problems[number].size:  # a cross-validation fold may have no point of the two classes
                solutions[number] = DualSolution.at(problems[number], np.empty(0), np.empty(0), 0, 0.0)
                continue
            gram: GramSource
            if stored is not None:
                gram = stored.pair(members[i], members[j])
            else:
                own_blocks, n_threads = [blocks[i], blocks[j]], workers // n_parallel
                gram = GramRows(kernel, X, [parts[i], parts[j]], blocks=own_blocks, budget=budget, workers=n_threads)
            rng = np.random.default_rng([fit.seed, number])
            [solutions[number]] = _solve_two_class(fit, [problems[number]], gram, rng)

    def abandon() -> None:
        waiting.clear()
        fit.progress.stop()

    run_threads(work, n_parallel, meanwhile=fit.progress.report, abandon=abandon)
    return solutions


def _solve_two_class(fit: DualFit, problems: list[BoxQP], gram: GramSource, rng: np.random.Generator) -> list[DualSolution]:
    """Solve two-class problems on the same points on the CPU: jointly, or one after the other for problems with `nu`."""
    if not isinstance(problems[0], NuQP):
        return fit.solver.maximise(problems, gram, rng, fit.progress)
    return [solve_to_margin(fit.solver, qp, gram, rng, fit.progress, fit.largest_value) for qp in problems]


def problem_scores(kernel: Kernel, X: Any, vectors: Any, model: SupportVectorModel) -> np.ndarray:
    """Return the decision values of the dual problems, one column each; `vectors` are the support vectors.

    For a precomputed kernel `X` has one column for each support vector.
    """
    coef = xa.like(np.ascontiguousarray(model.dual_coef.T), X)
    ends = np.cumsum(model.n_support)
    n_classes, n_problems = ends.size, model.intercept.size
    if coef.shape[1] == n_problems:
        return xa.to_numpy(expand(kernel, X, vectors, coef)) + model.intercept
    block = kernel(X, vectors) if X.shape[0] * len(coef) <= LINALG_TUNING.few_values else None
    if block is None and kernel.uses_points and not xa.is_torch(X):
        bounds = np.concatenate([[0], ends])
        scores = expand_groups(kernel, X, vectors, coef, bounds, _pair_of(n_classes), n_problems)
        return xa.to_numpy(scores) + model.intercept
    parts = xa.empty((n_classes, X.shape[0], n_classes - 1), coef)
    for c, (start, stop) in enumerate(zip(ends - model.n_support, ends, strict=True)):
        if block is not None:
            parts[c] = block[:, start:stop] @ coef[start:stop]
        else:
            points = X if kernel.uses_points else X[:, start:stop]
            parts[c] = expand(kernel, points, vectors[start:stop], coef[start:stop])
    first, second = _pairs(n_classes)
    parts = xa.to_numpy(parts)
    return (parts[first, :, second - 1] + parts[second, :, first]).T + model.intercept


@cache
def _pairs(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second class of each pair."""
    return np.triu_indices(n_classes, 1)


@cache
def _pair_of(n_classes: int) -> np.ndarray:
    """Return, in row c, the indices of the one-vs-one problems that contain class c, ordered by the other class."""
    first, second = _pairs(n_classes)
    pair_of = np.empty((n_classes, n_classes - 1), dtype=np.intp)
    pair_of[first, second - 1] = pair_of[second, first] = np.arange(first.size)
    return pair_of


@cache
def _sides(n_classes: int) -> np.ndarray:
    """Return a matrix with a row for each pair of classes: 1 in the column of the first class, -1 in that of the second."""
    first, second = _pairs(n_classes)
    return np.eye(n_classes)[first] - np.eye(n_classes)[second]


def votes(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Return votes per class plus a tie-breaker below 1/2; score 0 votes for a pair's first class, as in scikit-learn."""
    # The product has, for each class, the wins as first class of a pair minus the losses as second class. The number of
    # pairs in which the class is second is added, which gives the number of its wins.
    count = (scores >= 0) @ _sides(n_classes) + np.arange(n_classes)
    confidence = scores @ _sides(n_classes)
    # The tie-breaker has the order of the summed scores and is smaller than a vote.
    return count + confidence / (3 * (np.abs(confidence) + 1))


def class_scores(scores: np.ndarray, n_classes: int, from_votes: bool) -> np.ndarray:
    """Return the decision function: one score for two classes, else the votes of the pairs or the scores themselves."""
    if n_classes == 2:
        return scores[:, 0]
    return votes(scores, n_classes) if from_votes else scores


def most_votes(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the first class with the most votes; score 0 votes for a pair's second class, as in LIBSVM."""
    return ((scores > 0) @ _sides(n_classes) + np.arange(n_classes)).argmax(axis=1)


def warn_unless_converged(solutions: list[DualSolution], tol: float) -> None:
    """Warn with the largest violation if a problem did not converge."""
    unsolved = [solution for solution in solutions if not solution.converged]
    if unsolved:
        worst = max(unsolved, key=lambda solution: solution.violation)
        warn_caller(
            f"{len(unsolved)} of {len(solutions)} dual problems stopped before convergence: KKT violation "
            f"{worst.violation:.3g} (tol={tol:g}) after {worst.n_iter} pair updates. Scale the features, lower C, or raise "
            "tol or max_iter.",
            ConvergenceWarning,
        )
