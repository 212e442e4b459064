"""A multi-class support vector machine as two-class problems that share their kernel values.

One-vs-one: each pair of classes has a problem on the points of the two. The Gram matrix of each class on its own is
computed once (as far as the budget goes) and serves all its pairs; the block between two classes belongs to one pair
only and is computed row by row where a multiplier moves. The pairs run in parallel, each with single-threaded matrix
products. On a device all pairs advance together, see `gramless.svm.batched_smo`.

One-vs-rest: all problems live on all points and advance in step, so that a kernel row any of them needs is computed
once.

Scores: a support vector of class i takes part in k - 1 pairs, so the block `K(X, vectors of class i)` is multiplied
with k - 1 columns, not with one for each of the k (k - 1) / 2 pairs, and each kernel value is computed once for all pairs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gramless._core import arrays as xa
from gramless._core.device_rows import SparseRows, rows_on_device
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.threads import CPU_TILE, blas_threads, run_threads
from gramless.kernels.base import Kernel
from gramless.linalg.operators import byte_rows, expand
from gramless.linalg.operators.blocks import FEW_VALUES, expand_groups, workers_for
from gramless.svm.batched_smo import BatchedSMO
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import SHARE_OF_SETS, GramRows, HeldRows, Part, own_blocks
from gramless.svm.nu_qp import NuQP, solve_to_margin
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO, SOLVED_WHOLE
from gramless.svm.watch import Watch

# To begin and end threads takes as long as some million operations; a fit by pairs does it several times, the kernel values
# of a small one once. The function of a product (an exponential, a power) is worth a few dozen features.
_WORTH_THREADS = 1e8
_WORTH_THREADS_FOR_VALUES = 1e7
_FUNCTION_OF_A_PRODUCT = 32

DUAL_SOLVERS: dict[str, type] = {"smo": SMO, "simple_smo": SimpleSMO}
"""The names that support vector machines accept as `solver=`."""


class DualSolver(Protocol):
    """What the problems below are solved with."""

    tol: float
    max_iter: int

    def maximise(
        self, problems: list[BoxQP], rows: Any, rng: np.random.Generator | None = None, watch: Watch | None = None
    ) -> list[DualSolution]: ...


def make_solver(name: str, tol: float, max_iter: int | None) -> DualSolver:
    """A dual solver by name; without `max_iter` its own cap holds."""
    settings = {} if max_iter is None else {"max_iter": max_iter}
    return DUAL_SOLVERS[name](tol=tol, **settings)


@dataclass(frozen=True)
class Machine:
    """The two-class solutions, put together over the points that carry any of them.

    For one-vs-one with more than two classes `dual_coef` has k - 1 rows: a support vector of class i takes part in the k - 1
    problems against the other classes, in their order. Otherwise it has one row for each problem.
    """

    support: np.ndarray
    n_support: np.ndarray
    dual_coef: np.ndarray
    intercept: np.ndarray
    solutions: list[DualSolution]

    def spread(self, n: int) -> np.ndarray:
        """The coefficients over all `n` points, zero where there is no support vector."""
        beta = np.zeros((self.dual_coef.shape[0], n))
        beta[:, self.support] = self.dual_coef
        return beta

    def by_problem(self) -> np.ndarray:
        """The coefficients of each two-class problem over the support vectors."""
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


@dataclass(frozen=True)
class Resources:
    """What a fit may use, and where it is computed."""

    budget: float
    workers: int
    seed: int
    device: str = "cpu"


def solve_machine(
    kernel: Kernel,
    X: Any,
    codes: np.ndarray,
    C: np.ndarray,
    solver: DualSolver,
    resources: Resources,
    *,
    n_classes: int,
    one_vs_one: bool,
    positive_weight: float = 1.0,
    nu: float | None = None,
    start: Machine | None = None,
    watch: Watch | None = None,
) -> Machine:
    """Fit the two-class problems of labels `codes` in `0 .. n_classes - 1`; `C` bounds each sample's multipliers.

    With `nu` the bounds are weights, and each problem finds the scale of its own (see `nu_qp`). `start` is a machine for the
    same labels and bounds from which the solver sets out; `watch` may stop it.
    """
    watch = Watch() if watch is None else watch
    order = np.argsort(codes, kind="stable")
    before = None if start is None else start.spread(len(codes))[:, order]
    bounds = np.searchsorted(codes[order], np.arange(n_classes + 1))
    parts: list[Part]
    if kernel.uses_points:
        X = X[order] if resources.device != "cpu" else byte_rows(kernel, X[order], len(order) // 2)
        parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    else:
        parts = [order[a:b] for a, b in pairwise(bounds)]
    if resources.device != "cpu":
        whole = None
    elif (
        resources.workers == 1 and len(order) <= SOLVED_WHOLE and resources.budget >= 2 * len(order) ** 2 * X.dtype.itemsize
    ):
        whole = HeldRows.of(kernel, X, order, _workers_for_values(kernel, X))
    else:
        whole = None
    if one_vs_one and n_classes > 2:
        beta, solutions = _one_vs_one(kernel, X, parts, bounds, C[order], solver, resources, nu, before, watch, whole)
    else:
        positive = range(n_classes) if n_classes > 2 else [1]
        signs = [np.where(codes[order] == c, 1.0, -1.0) for c in positive]
        starts = [None] * len(signs) if before is None else list(before)
        problems = [
            _two_classes(y, C[order] * np.where(y > 0, positive_weight, 1.0), nu, start)
            for y, start in zip(signs, starts, strict=True)
        ]
        if nu is None:
            solutions = maximise_together(problems, [parts] * len(problems), kernel, X, solver, resources, watch, whole)
        else:
            rows = whole or GramRows(kernel, X, parts, budget=resources.budget, workers=resources.workers)
            rng, largest = np.random.default_rng(resources.seed), float(np.max(kernel.diag(X)))
            solutions = [solve_to_margin(solver, qp, rows, rng, watch, nu=nu, largest=largest) for qp in problems]
        beta = np.stack([solution.beta for solution in solutions])
    carried = np.flatnonzero(np.any(beta != 0, axis=0))
    intercept = np.array([solution.bias for solution in solutions])
    n_support = np.diff(np.searchsorted(carried, bounds))
    return Machine(order[carried], n_support, beta[:, carried], intercept, solutions)


def machine_scores(kernel: Kernel, X: Any, vectors: Any, machine: Machine) -> np.ndarray:
    """Decision values of the two-class problems, one column each; `vectors` are the support vectors.

    For kernels that look values up, `X` has one column for each support vector.
    """
    coef = xa.like(np.ascontiguousarray(machine.dual_coef.T), X)
    ends = np.cumsum(machine.n_support)
    n_classes, n_problems = ends.size, machine.intercept.size
    few = X.shape[0] * len(coef) <= FEW_VALUES
    block = kernel(X, vectors) if few else None
    if coef.shape[1] == n_problems:
        return xa.to_numpy(expand(kernel, X, vectors, coef) if block is None else block @ coef) + machine.intercept
    if block is None and kernel.uses_points and not xa.is_torch(X):
        bounds = np.concatenate([[0], ends])
        return expand_groups(kernel, X, vectors, coef, bounds, _pair_of(n_classes), n_problems) + machine.intercept
    parts = xa.empty((n_classes, X.shape[0], n_classes - 1), coef)
    for c, (start, stop) in enumerate(zip(ends - machine.n_support, ends, strict=True)):
        if block is not None:
            parts[c] = block[:, start:stop] @ coef[start:stop]
        else:
            points = X if kernel.uses_points else X[:, start:stop]
            parts[c] = expand(kernel, points, vectors[start:stop], coef[start:stop])
    first, second = _pairs(n_classes)
    parts = xa.to_numpy(parts)
    return (parts[first, :, second - 1] + parts[second, :, first]).T + machine.intercept


def maximise_together(
    problems: list[BoxQP],
    parts: list[list[Part]],
    kernel: Kernel,
    X: Any,
    solver: DualSolver,
    resources: Resources,
    watch: Watch,
    whole: HeldRows | None = None,
) -> list[DualSolution]:
    """Solve problems that share their kernel values; those on the CPU have the same points in the same order."""
    if resources.device != "cpu":
        together = BatchedSMO(tol=solver.tol, max_iter=solver.max_iter)
        rows = rows_on_device(X, resources.device, resources.budget / 2)
        left = resources.budget - (X.nnz * 16 if isinstance(rows, SparseRows) else rows.numel() * rows.element_size())
        return together.maximise(problems, parts, kernel, rows, left, resources.seed, watch)
    rows = whole or GramRows(kernel, X, parts[0], budget=resources.budget, workers=resources.workers)
    return solver.maximise(problems, rows, np.random.default_rng(resources.seed), watch)


def _one_vs_one(
    kernel: Kernel,
    X: Any,
    parts: list[Part],
    bounds: np.ndarray,
    C: np.ndarray,
    solver: DualSolver,
    resources: Resources,
    nu: float | None,
    before: np.ndarray | None,
    watch: Watch,
    whole: HeldRows | None,
) -> tuple[np.ndarray, list[DualSolution]]:
    pairs = list(combinations(range(len(parts)), 2))
    members = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    problems = []
    for i, j in pairs:
        first, second = members[i], members[j]
        y = np.concatenate([np.ones(first.stop - first.start), -np.ones(second.stop - second.start)])
        start = None if before is None else np.concatenate([before[j - 1, first], before[i, second]])
        problems.append(_two_classes(y, np.concatenate([C[first], C[second]]), nu, start))
    if resources.device == "cpu":
        solutions = _pairs_in_turn(kernel, X, parts, members, problems, solver, resources, nu, watch, whole)
    else:
        own = [[parts[i], parts[j]] for i, j in pairs]
        solutions = maximise_together(problems, own, kernel, X, solver, resources, watch)
    beta = np.zeros((len(parts) - 1, bounds[-1]))
    for (i, j), solution in zip(pairs, solutions, strict=True):
        size = members[i].stop - members[i].start
        beta[j - 1, members[i]] = solution.beta[:size]
        beta[i, members[j]] = solution.beta[size:]
    return beta, solutions


def _pairs_in_turn(
    kernel: Kernel,
    X: Any,
    parts: list[Part],
    members: list[slice],
    problems: list[BoxQP],
    solver: DualSolver,
    resources: Resources,
    nu: float | None,
    watch: Watch,
    whole: HeldRows | None,
) -> list[DualSolution]:
    """Each pair on a core of its own, with the Gram matrices of the classes in common."""
    pairs = list(combinations(range(len(parts)), 2))
    workers = resources.workers if kernel.thread_safe else 1
    # With few pairs on many cores, the cores share the rows of one pair after the other.
    at_once = workers if len(pairs) >= 2 * workers else 1
    blocks = own_blocks(kernel, X, parts, resources.budget / 2 if whole is None else 0, workers)
    left = resources.budget - sum(block.nbytes for block in blocks if block is not None)
    solutions: list[DualSolution] = [None] * len(pairs)  # type: ignore[list-item]
    largest = float(np.max(kernel.diag(X))) if nu is not None else 0.0

    def solve(task: tuple[int, tuple[int, int]]) -> None:
        number, (i, j) = task
        problem = problems[number]
        if not problem.size:  # neither class has a point here, as may happen in folds
            solutions[number] = DualSolution.at(problem, problem.linear, problem.linear, 0, 0.0)
            return
        if whole is not None:
            rows: Any = whole.part(members[i], members[j])
        else:
            rows = GramRows(
                kernel,
                X,
                [parts[i], parts[j]],
                blocks=[blocks[i], blocks[j]],
                budget=left / at_once,
                workers=workers // at_once,
            )
        rng = np.random.default_rng([resources.seed, number])
        if nu is None:
            [solutions[number]] = solver.maximise([problem], rows, rng, watch)
        else:
            solutions[number] = solve_to_margin(solver, problem, rows, rng, watch, nu=nu, largest=largest)

    # Pairs differ in difficulty: whoever is free takes the next. Each has its own rows and random numbers, so the
    # outcome does not depend on who took it. A fit that was stopped leaves the pairs that wait at zero.
    waiting = list(enumerate(pairs))[::-1]

    def work(_: int) -> None:
        while True:
            try:
                task = waiting.pop()
            except IndexError:
                return
            solve(task)

    def abandon() -> None:
        waiting.clear()
        watch.stop()

    run_threads(work, at_once, meanwhile=watch.report, abandon=abandon)
    return solutions


def _two_classes(y: np.ndarray, C: np.ndarray, nu: float | None, start: np.ndarray | None) -> BoxQP:
    return BoxQP.classification(y, C, start) if nu is None else NuQP.of_labels(y, C, nu)


@cache
def _pairs(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second class of each pair."""
    return np.triu_indices(n_classes, 1)


@cache
def _pair_of(n_classes: int) -> np.ndarray:
    """The number of the pair of each class with each of the others, in their order."""
    first, second = _pairs(n_classes)
    pair_of = np.empty((n_classes, n_classes - 1), dtype=np.intp)
    pair_of[first, second - 1] = pair_of[second, first] = np.arange(first.size)
    return pair_of


@cache
def _sides(n_classes: int) -> np.ndarray:
    """For each pair, 1 in the column of its first class and -1 in that of its second."""
    first, second = _pairs(n_classes)
    sides = np.zeros((first.size, n_classes))
    sides[np.arange(first.size), first] = 1.0
    sides[np.arange(first.size), second] = -1.0
    return sides


def votes(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Votes of the pairs for each class, plus a confidence below one half that breaks ties; zero votes for the first."""
    # A class is the second of as many pairs as there are classes before it, and has all their votes to lose.
    count = (scores >= 0) @ _sides(n_classes) + np.arange(n_classes)
    confidence = scores @ _sides(n_classes)
    # The bound keeps the order of confidences and never outweighs a vote.
    return count + confidence / (3 * (np.abs(confidence) + 1))


def most_votes(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """The class with most votes of the pairs, the first of several; a decision value of zero votes for the pair's second."""
    return ((scores > 0) @ _sides(n_classes) + np.arange(n_classes)).argmax(axis=1)


def _operations(X: Any) -> float:
    """What all kernel values of the rows cost, roughly."""
    return X.shape[0] ** 2 * (X.shape[1] + _FUNCTION_OF_A_PRODUCT)


def _workers_for_values(kernel: Kernel, X: Any) -> int:
    return workers_for(kernel, X) if _operations(X) >= _WORTH_THREADS_FOR_VALUES else 1


def device_resources(memory_budget: Any, device: str, seed: int) -> Resources:
    """The budget of a fit on a device, its points included."""
    return Resources(parse_budget(memory_budget, device), 1, seed, device)


def row_workers(kernel: Kernel, X: Any) -> int:
    """Threads that compute rows: one where they are few."""
    return workers_for(kernel, X) if _operations(X) >= _WORTH_THREADS else 1


def row_resources(memory_budget: Any, kernel: Kernel, X: Any, seed: int) -> Resources:
    """The part of the budget that is left for kernel rows, after the sorted copy of the data and the working sets."""
    workers = row_workers(kernel, X)
    copy = X.data.nbytes + X.indices.nbytes if xa.is_sparse(X) else X.nbytes
    fixed = sum(fixed_memory(kernel, X.shape[0], copy, X.dtype.itemsize, workers).values())
    budget = parse_budget(memory_budget)
    if budget < fixed:
        raise MemoryError(
            f"the fit needs {format_bytes(fixed)} beside kernel rows (a sorted copy of the data and the working sets) and "
            f"memory_budget allows {format_bytes(budget)}; allow more, or fit fewer samples"
        )
    return Resources(budget - fixed, workers, seed)


def fixed_memory(kernel: Kernel, n: int, nbytes: int, itemsize: int, workers: int) -> dict[str, int]:
    """What a fit of `n` rows of `nbytes` in all holds beside kernel rows, by name."""
    tile, working_set = min(CPU_TILE, n), min(SOLVED_WHOLE, n)
    return {
        "sorted copy of the data": nbytes if kernel.uses_points else 0,
        "tiles": workers * itemsize * tile**2 * (1 + kernel.temporaries),
        "working sets": workers * itemsize * 2 * working_set**2,
    }


def machine_memory(memory_budget: Any, kernel: Kernel, n: int, d: int, itemsize: int, device: str = "cpu") -> MemoryEstimate:
    """Peak memory of a machine of this size: what it must hold, and kernel rows as far as the budget goes."""
    workers = blas_threads() if n * n * (d + _FUNCTION_OF_A_PRODUCT) >= _WORTH_THREADS and kernel.thread_safe else 1
    memory = MemoryEstimate(fixed_memory(kernel, n, n * d * itemsize, itemsize, workers), device)
    budget = parse_budget(memory_budget, device)
    memory.check(budget, "allow more, or fit fewer samples")
    memory.parts["kernel rows"] = int(min(budget - memory.nbytes, n * n * itemsize / (1 - SHARE_OF_SETS)))
    return memory


def warn_unless_converged(solutions: list[DualSolution], tol: float) -> None:
    """Say how far from optimal the worst problem was left."""
    left = [solution for solution in solutions if not solution.converged]
    if left:
        worst = max(left, key=lambda solution: solution.violation)
        warnings.warn(
            f"{len(left)} of {len(solutions)} dual problems stopped before convergence: KKT violation "
            f"{worst.violation:.3g} (tol={tol:g}) after {worst.n_iter} pair updates. Scale the features, lower C, or raise "
            "tol or max_iter.",
            ConvergenceWarning,
            stacklevel=3,
        )
