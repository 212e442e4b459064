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
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows, GramSource, Part, StoredGram, class_grams
from gramless.svm.nu_qp import NuQP, solve_to_margin
from gramless.svm.resources import DualFit, workers_for_values
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO
from gramless.svm.tuning import TUNING, SVMTuning

DUAL_SOLVERS: dict[str, type] = {"smo": SMO, "simple_smo": SimpleSMO}
"""The names that support vector machines accept as `solver=`."""


def make_solver(name: str, tol: float, max_iter: int | None) -> SMO | SimpleSMO:
    """Return a dual solver by name; `max_iter=None` is the solver's own limit."""
    settings = {} if max_iter is None else {"max_iter": max_iter}
    return DUAL_SOLVERS[name](tol=tol, **settings)


@dataclass(frozen=True)
class SupportVectorModel:
    """The solutions of one or more dual problems over the union of their support vectors.

    For one-vs-one with more than two classes `dual_coef` has k - 1 rows: the coefficients of a support vector in the
    problems of its class against the other classes, in their order. Otherwise it has one row for each problem.
    """

    support: np.ndarray
    n_support: np.ndarray
    dual_coef: np.ndarray
    intercept: np.ndarray
    solutions: list[DualSolution]

    @classmethod
    def of_solutions(cls, solutions: list[DualSolution]) -> SupportVectorModel:
        """Return the model of the solutions of problems on the same points, without classes."""
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
        k, n_problems = self.n_support.size, self.intercept.size
        if self.dual_coef.shape[0] == n_problems:
            return self.dual_coef
        ends = np.cumsum(self.n_support)
        members = [slice(end - size, end) for end, size in zip(ends, self.n_support, strict=True)]
        beta = np.zeros((n_problems, self.support.size))
        for number, (i, j) in enumerate(combinations(range(k), 2)):
            beta[number, members[i]] = self.dual_coef[j - 1, members[i]]
            beta[number, members[j]] = self.dual_coef[i, members[j]]
        return beta


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
    tuning: SVMTuning = TUNING,
) -> SupportVectorModel:
    """Solve the two-class problems of labels `codes` in `0 .. n_classes - 1`; `C` bounds each sample's multipliers.

    With `nu` the bounds are weights, and each problem determines their scale (see `nu_qp`). `start` is a model for the same
    labels and bounds from which the solver starts.
    """
    order = np.argsort(codes, kind="stable")
    start_coef = None if start is None else start.spread(len(codes))[:, order]
    bounds = np.searchsorted(codes[order], np.arange(n_classes + 1))
    on_cpu, X = fit.resources.device == "cpu", fit.X
    parts: list[Part] = [order[a:b] for a, b in pairwise(bounds)]
    if fit.kernel.uses_points:
        X = byte_rows(fit.kernel, X[order], len(order) // 2) if on_cpu else X[order]
        parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
        fit = replace(fit, X=X)
    stored = None
    fits = fit.resources.budget >= 2 * len(order) ** 2 * X.dtype.itemsize
    if on_cpu and fit.resources.workers == 1 and len(order) <= tuning.solved_whole and fits:
        stored = StoredGram.of(fit.kernel, X, order, workers_for_values(fit.kernel, X, tuning), tuning)
    if one_vs_one and n_classes > 2:
        beta, solutions = _one_vs_one(fit, parts, bounds, C[order], nu, start_coef, stored)
    else:
        positive = range(n_classes) if n_classes > 2 else [1]
        signs = [np.where(codes[order] == c, 1.0, -1.0) for c in positive]
        starts = [None] * len(signs) if start_coef is None else list(start_coef)
        problems = [
            _two_class_problem(y, C[order] * np.where(y > 0, positive_weight, 1.0), nu, start)
            for y, start in zip(signs, starts, strict=True)
        ]
        if nu is None:
            solutions = solve_jointly(fit, problems, [parts] * len(problems), stored)
        else:
            rows = stored or gram_rows(fit, parts)
            rng, largest = np.random.default_rng(fit.resources.seed), float(np.max(fit.kernel.diag(X)))
            solutions = [
                solve_to_margin(fit.solver, problem, rows, rng, fit.progress, nu=nu, largest=largest) for problem in problems
            ]
        beta = np.stack([solution.beta for solution in solutions])
    nonzero = np.flatnonzero(np.any(beta != 0, axis=0))
    intercept = np.array([solution.bias for solution in solutions])
    n_support = np.diff(np.searchsorted(nonzero, bounds))
    return SupportVectorModel(order[nonzero], n_support, beta[:, nonzero], intercept, solutions)


def solve_jointly(
    fit: DualFit, problems: list[BoxQP], parts: list[list[Part]], stored: StoredGram | None = None
) -> list[DualSolution]:
    """Solve problems that share their kernel values; on the CPU they have the same points in the same order."""
    resources = fit.resources
    if resources.device != "cpu":
        solver = BatchedSMO(tol=fit.solver.tol, max_iter=fit.solver.max_iter)
        rows = rows_on_device(fit.X, resources.device, resources.budget / 2)
        used = fit.X.nnz * 16 if isinstance(rows, SparseRows) else rows.numel() * rows.element_size()
        return solver.maximise(problems, parts, fit.kernel, rows, resources.budget - used, resources.seed, fit.progress)
    gram = stored or gram_rows(fit, parts[0])
    return fit.solver.maximise(problems, gram, np.random.default_rng(resources.seed), fit.progress)


def gram_rows(fit: DualFit, parts: list[Part]) -> GramRows:
    """Return the Gram matrix of the rows of a fit, computed row by row."""
    return GramRows(fit.kernel, fit.X, parts, budget=fit.resources.budget, workers=fit.resources.workers)


def _one_vs_one(
    fit: DualFit,
    parts: list[Part],
    bounds: np.ndarray,
    C: np.ndarray,
    nu: float | None,
    start: np.ndarray | None,
    stored: StoredGram | None,
) -> tuple[np.ndarray, list[DualSolution]]:
    """Return the coefficients of all pairs over the sorted points, and the solution of each pair."""
    pairs = list(combinations(range(len(parts)), 2))
    members = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    problems = []
    for i, j in pairs:
        first, second = members[i], members[j]
        y = np.concatenate([np.ones(first.stop - first.start), -np.ones(second.stop - second.start)])
        own_start = None if start is None else np.concatenate([start[j - 1, first], start[i, second]])
        problems.append(_two_class_problem(y, np.concatenate([C[first], C[second]]), nu, own_start))
    if fit.resources.device == "cpu":
        solutions = _solve_pairs(fit, parts, members, problems, nu, stored)
    else:
        solutions = solve_jointly(fit, problems, [[parts[i], parts[j]] for i, j in pairs])
    beta = np.zeros((len(parts) - 1, bounds[-1]))
    for (i, j), solution in zip(pairs, solutions, strict=True):
        size = members[i].stop - members[i].start
        beta[j - 1, members[i]] = solution.beta[:size]
        beta[i, members[j]] = solution.beta[size:]
    return beta, solutions


def _solve_pairs(
    fit: DualFit,
    parts: list[Part],
    members: list[slice],
    problems: list[BoxQP],
    nu: float | None,
    stored: StoredGram | None,
) -> list[DualSolution]:
    """Solve the pairs in parallel on the CPU, with the Gram matrices of the classes in common."""
    kernel, X, resources = fit.kernel, fit.X, fit.resources
    pairs = list(combinations(range(len(parts)), 2))
    workers = resources.workers if kernel.thread_safe else 1
    # With fewer than two pairs per core, pairs are solved one after the other, and all cores compute the rows of each pair.
    n_parallel = workers if len(pairs) >= 2 * workers else 1
    blocks = class_grams(kernel, X, parts, resources.budget / 2 if stored is None else 0, workers)
    budget = (resources.budget - sum(block.nbytes for block in blocks if block is not None)) / n_parallel
    solutions: list[DualSolution] = [None] * len(pairs)  # type: ignore[list-item]
    largest = float(np.max(kernel.diag(X))) if nu is not None else 0.0

    def solve(number: int, i: int, j: int) -> DualSolution:
        problem = problems[number]
        if not problem.size:  # a cross-validation fold may have no point of the two classes
            return DualSolution.at(problem, problem.linear, problem.linear, 0, 0.0)
        gram: GramSource
        if stored is not None:
            gram = stored.pair(members[i], members[j])
        else:
            own_blocks, n_threads = [blocks[i], blocks[j]], workers // n_parallel
            gram = GramRows(kernel, X, [parts[i], parts[j]], blocks=own_blocks, budget=budget, workers=n_threads)
        rng = np.random.default_rng([resources.seed, number])
        if nu is None:
            return fit.solver.maximise([problem], gram, rng, fit.progress)[0]
        return solve_to_margin(fit.solver, problem, gram, rng, fit.progress, nu=nu, largest=largest)

    # Pairs differ in difficulty, so each idle thread takes the next pair. Each pair has its own rows and random numbers, so
    # the result does not depend on the thread. After a stop the multipliers of the remaining pairs are zero.
    waiting = list(enumerate(pairs))[::-1]

    def work(_: int) -> None:
        while True:
            try:
                number, (i, j) = waiting.pop()
            except IndexError:
                return
            solutions[number] = solve(number, i, j)

    def abandon() -> None:
        waiting.clear()
        fit.progress.stop()

    run_threads(work, n_parallel, meanwhile=fit.progress.report, abandon=abandon)
    return solutions


def _two_class_problem(y: np.ndarray, C: np.ndarray, nu: float | None, start: np.ndarray | None) -> BoxQP:
    return BoxQP.classification(y, C, start) if nu is None else NuQP.of_labels(y, C, nu)


def problem_scores(kernel: Kernel, X: Any, vectors: Any, model: SupportVectorModel) -> np.ndarray:
    """Return the decision values of the dual problems, one column each; `vectors` are the support vectors.

    For a precomputed kernel `X` has one column for each support vector.
    """
    coef = xa.like(np.ascontiguousarray(model.dual_coef.T), X)
    ends = np.cumsum(model.n_support)
    n_classes, n_problems = ends.size, model.intercept.size
    block = kernel(X, vectors) if X.shape[0] * len(coef) <= LINALG_TUNING.few_values else None
    if coef.shape[1] == n_problems:
        return xa.to_numpy(expand(kernel, X, vectors, coef) if block is None else block @ coef) + model.intercept
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
    """Return a matrix with 1 in the column of the first class of each pair and -1 in that of the second."""
    first, second = _pairs(n_classes)
    sides = np.zeros((first.size, n_classes))
    sides[np.arange(first.size), first] = 1.0
    sides[np.arange(first.size), second] = -1.0
    return sides


def votes(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the votes of the pairs for each class plus a tie-breaker below one half; a score of 0 votes for the first."""
    # The product is the wins as first class minus the losses as second class; adding the number of pairs in which the class
    # is second gives its wins.
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
    """Return the first class with the most votes of the pairs; a score of 0 votes for the pair's second class."""
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
