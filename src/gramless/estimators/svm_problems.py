"""A multi-class support vector machine as two-class problems that share their kernel values.

One-vs-one: each pair of classes has a problem on the points of the two. The Gram matrix of each class on its own is
computed once (as far as the budget goes) and serves all its pairs; the block between two classes belongs to one pair
only and is computed row by row where a multiplier moves. The pairs run in parallel, each with single-threaded matrix
products.

One-vs-rest: all problems live on all points and advance in step, so that a kernel row any of them needs is computed
once.

Scores: a support vector of class i takes part in k - 1 pairs, so the block `K(X, vectors of class i)` is multiplied
with k - 1 columns, not with one for each of the k (k - 1) / 2 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Protocol

import numpy as np

from gramless import _array as xa
from gramless._parallel import share
from gramless.kernels.base import Kernel
from gramless.operators import expand
from gramless.solvers.box_qp import BoxQP, DualSolution
from gramless.solvers.gram_rows import GramRows, Part, own_blocks
from gramless.solvers.simple_smo import SimpleSMO
from gramless.solvers.smo import SMO

DUAL_SOLVERS: dict[str, type] = {"smo": SMO, "simple_smo": SimpleSMO}
"""The names that support vector machines accept as `solver=`."""


class DualSolver(Protocol):
    """What the problems below are solved with."""

    def maximise(
        self, problems: list[BoxQP], rows: GramRows, rng: np.random.Generator | None = None
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


@dataclass(frozen=True)
class Resources:
    """What a fit may use."""

    budget: float
    workers: int
    seed: int


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
) -> Machine:
    """Fit the two-class problems of labels `codes` in `0 .. n_classes - 1`; `C` bounds each sample's multipliers."""
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(n_classes + 1))
    parts: list[Part]
    if kernel.separable:
        X = X[order]
        parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    else:
        parts = [order[a:b] for a, b in pairwise(bounds)]
    if one_vs_one and n_classes > 2:
        beta, solutions = _one_vs_one(kernel, X, parts, bounds, C[order], solver, resources)
    else:
        positive = range(n_classes) if n_classes > 2 else [1]
        signs = [np.where(codes[order] == c, 1.0, -1.0) for c in positive]
        problems = [BoxQP.classification(y, C[order] * np.where(y > 0, positive_weight, 1.0)) for y in signs]
        rows = GramRows(kernel, X, parts, budget=resources.budget, workers=resources.workers)
        solutions = solver.maximise(problems, rows, np.random.default_rng(resources.seed))
        beta = np.stack([solution.beta for solution in solutions])
    carried = np.flatnonzero(np.any(beta != 0, axis=0))
    intercept = np.array([solution.bias for solution in solutions])
    n_support = np.diff(np.searchsorted(carried, bounds))
    return Machine(order[carried], n_support, beta[:, carried], intercept, solutions)


def machine_scores(kernel: Kernel, X: Any, vectors: Any, machine: Machine) -> np.ndarray:
    """Decision values of the two-class problems, one column each; `vectors` are the support vectors.

    For kernels that look values up, `X` has one column for each support vector.
    """
    coef = machine.dual_coef.T.astype(xa.numpy_dtype(X))
    ends = np.cumsum(machine.n_support)
    n_classes, n_problems = ends.size, machine.intercept.size
    if coef.shape[1] == n_problems:
        return expand(kernel, X, vectors, coef) + machine.intercept
    scores = np.tile(machine.intercept, (X.shape[0], 1))
    for c, (start, stop) in enumerate(zip(ends - machine.n_support, ends, strict=True)):
        points = X if kernel.separable else X[:, start:stop]
        part = expand(kernel, points, vectors[start:stop], coef[start:stop])
        for number, (i, j) in enumerate(combinations(range(n_classes), 2)):
            if c in (i, j):
                scores[:, number] += part[:, j - 1 if c == i else i]
    return scores


def _one_vs_one(
    kernel: Kernel,
    X: Any,
    parts: list[Part],
    bounds: np.ndarray,
    C: np.ndarray,
    solver: DualSolver,
    resources: Resources,
) -> tuple[np.ndarray, list[DualSolution]]:
    pairs = list(combinations(range(len(parts)), 2))
    workers = resources.workers if kernel.thread_safe else 1
    blocks = own_blocks(kernel, X, parts, resources.budget / 2, workers)
    left = resources.budget - sum(block.nbytes for block in blocks if block is not None)
    beta = np.zeros((len(parts) - 1, bounds[-1]))
    solutions: list[DualSolution] = [None] * len(pairs)  # type: ignore[list-item]

    def solve(task: tuple[int, tuple[int, int]]) -> None:
        number, (i, j) = task
        first, second = slice(bounds[i], bounds[i + 1]), slice(bounds[j], bounds[j + 1])
        y = np.concatenate([np.ones(first.stop - first.start), -np.ones(second.stop - second.start)])
        problem = BoxQP.classification(y, np.concatenate([C[first], C[second]]))
        rows = GramRows(kernel, X, [parts[i], parts[j]], blocks=[blocks[i], blocks[j]], budget=left / workers)
        rng = np.random.default_rng([resources.seed, number])
        [solutions[number]] = solver.maximise([problem], rows, rng)
        size = first.stop - first.start
        beta[j - 1, first] = solutions[number].beta[:size]
        beta[i, second] = solutions[number].beta[size:]

    share(list(enumerate(pairs)), solve, workers)
    return beta, solutions
