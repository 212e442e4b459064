"""Multiple kernel learning: the weights of several kernels and a support vector classifier on their sum.

    K = sum_m d_m K_m,    S_m = sum over problems of beta' K_m beta

Alternation: for fixed weights the classifier is solved starting from the previous solution; for a fixed classifier the
weights have a closed form. With `||d||_p <= 1` they are proportional to `(d_m^2 S_m)^(1 / (p + 1))`, and the duality gap is
`(||S||_q - d' S) / 2` with `1/p + 1/q = 1`. With the penalty `penalty ||d||^2 / 2` the update is `(d_m^2 S_m / (2
penalty))^(1/3)`, with the fixed point `d = S / (2 penalty)`.

Pairwise steps (the readable reference, O(M n) for each step): with the penalty the dual objective is
`linear' beta - sum_m S_m^2 / (8 penalty)`. Along a pair of variables it is a concave quartic; its derivative is a cubic.

References: Kloft, Brefeld, Sonnenburg and Zien (2011); Sun, Ampornpunt, Varma and Vishwanathan (2010).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, parallel_for, slices
from gramless.kernels import Kernel, Precomputed, Scaled
from gramless.linalg.operators import expand
from gramless.linalg.operators.blocks import workers_for
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import class_grams
from gramless.svm.multiclass import SupportVectorModel, solve_multiclass
from gramless.svm.progress import SolverProgress
from gramless.svm.resources import DualFit, FitResources
from gramless.svm.simple_smo import SMALLEST_STEP, SimpleSMO, is_violated, pair_bias
from gramless.svm.smo import SMO

# Divisors are at least this large; smaller objectives and weights are zero up to rounding.
_TINY = 1e-300


def weighted_sum(kernels: Sequence[Kernel], weights: np.ndarray) -> Kernel:
    """Return `sum_m weights_m k_m` over the kernels with non-zero weight."""
    return reduce(add, [Scaled(kernel, float(w)) for kernel, w in zip(kernels, weights, strict=True) if w > 0])


class StreamedKernels:
    """Kernels that are evaluated on demand, without stored kernel values."""

    def __init__(self, kernels: Sequence[Kernel], X: Any):
        self.kernels = kernels
        self.X = X

    def __len__(self) -> int:
        return len(self.kernels)

    def combined(self, weights: np.ndarray) -> tuple[Kernel, Any]:
        """Return the weighted sum as a kernel, and the points to evaluate it on."""
        return weighted_sum(self.kernels, weights), self.X

    def quadratic_forms(self, model: SupportVectorModel) -> np.ndarray:
        """Return `S_m = sum_p beta_p' K_m beta_p` for each kernel, over the problems of a model."""
        vectors = xa.take_rows(self.X, model.support)
        beta = model.by_problem().T
        coef = beta.astype(xa.numpy_dtype(self.X))
        return np.array([np.sum(expand(kernel, vectors, vectors, coef) * beta) for kernel in self.kernels])


class StoredKernels:
    """Gram matrices in memory, with the interface of `StreamedKernels`."""

    def __init__(self, grams: Sequence[np.ndarray], workers: int):
        self.grams = grams
        self.workers = workers
        self._sum = np.empty_like(grams[0])

    def __len__(self) -> int:
        return len(self.grams)

    @classmethod
    def of(cls, kernels: Sequence[Kernel], X: Any) -> StoredKernels:
        """Compute the Gram matrix of each kernel."""
        grams = []
        for kernel in kernels:
            [gram] = class_grams(kernel, X, [slice(0, X.shape[0])], np.inf, workers_for(kernel, X))
            grams.append(gram)
        return cls(grams, workers_for(kernels[0], X))  # type: ignore[arg-type]

    @staticmethod
    def nbytes(n: int, n_kernels: int, itemsize: int) -> int:
        """Return the bytes of the Gram matrices and their sum."""
        return (n_kernels + 1) * n * n * itemsize

    def combined(self, weights: np.ndarray) -> tuple[Kernel, Any]:
        """Return the weighted sum as a precomputed kernel and its matrix, which the next call overwrites."""
        scales = weights.astype(self._sum.dtype)

        def fill(rows: slice) -> None:
            np.multiply(self.grams[0][rows], scales[0], out=self._sum[rows])
            for gram, scale in zip(self.grams[1:], scales[1:], strict=True):
                self._sum[rows] += scale * gram[rows]

        parallel_for(slices(len(self._sum), 64), fill, self.workers)
        return Precomputed(), self._sum

    def quadratic_forms(self, model: SupportVectorModel) -> np.ndarray:
        """Return `S_m = sum_p beta_p' K_m beta_p` for each kernel, over the problems of a model."""
        support, beta = model.support, model.by_problem()
        coef = beta.T.astype(self._sum.dtype)
        totals = np.zeros(len(self.grams))
        for m, gram in enumerate(self.grams):
            for part in slices(support.size, CPU_TILE):
                products = gram[support[part]][:, support] @ coef
                totals[m] += np.sum(products * beta[:, part].T)
        return totals


@dataclass(frozen=True)
class KernelWeights:
    """Learnt kernel weights and the classifier on the weighted sum."""

    weights: np.ndarray
    model: SupportVectorModel
    gap: float
    n_iter: int
    converged: bool


def learn_by_alternation(
    kernels: StreamedKernels | StoredKernels,
    codes: np.ndarray,
    C: np.ndarray,
    solver: SMO | SimpleSMO,
    resources: FitResources,
    *,
    p: float,
    penalty: float | None,
    weight_tol: float,
    max_iter: int,
    on_iteration: Callable[[dict[str, Any]], bool],
    **decomposition: Any,
) -> KernelWeights:
    """Alternate between the classifier and the weights until the gap is at most `weight_tol`.

    `on_iteration(record)` is called after each alternation and returns True to stop; `decomposition` is passed to
    `solve_multiclass`.
    """
    weights, model, gap = np.full(len(kernels), float(len(kernels)) ** (-1 / p)), None, np.inf
    seconds = 0.0
    for n_iter in range(1, max_iter + 1):
        clock = time.perf_counter()
        kernel, X = kernels.combined(weights)
        model = solve_multiclass(DualFit(kernel, X, solver, resources), codes, C, start=model, **decomposition)
        S = np.maximum(kernels.quadratic_forms(model), 0)
        updated, gap = _update_weights(weights, S, sum(s.objective for s in model.solutions), p, penalty)
        seconds += time.perf_counter() - clock
        stopped = on_iteration({"n_iter": n_iter, "seconds": seconds, "gap": gap})
        if gap <= weight_tol or stopped:
            return KernelWeights(weights, model, gap, n_iter, True)
        if n_iter < max_iter:
            weights = updated
    assert model is not None
    return KernelWeights(weights, model, gap, max_iter, False)


def _update_weights(
    weights: np.ndarray, S: np.ndarray, objective: float, p: float, penalty: float | None
) -> tuple[np.ndarray, float]:
    """Return the next weights and the relative distance of the current weights from the optimum."""
    norms = weights**2 * S
    if penalty is not None:
        updated = np.cbrt(norms / (2 * penalty))
        return updated, float(np.abs(S / (2 * penalty) - weights).max() / max(weights.max(), _TINY))
    dual_norm = S.max() if p == 1 else np.sum(S ** (p / (p - 1))) ** (1 - 1 / p)
    gap = 0.5 * (dual_norm - weights @ S) / max(abs(objective), _TINY)
    if not norms.any():
        return weights, float(gap)
    updated = (norms / norms.max()) ** (1 / (p + 1))
    return updated / np.sum(updated**p) ** (1 / p), float(gap)


def learn_by_pairs(
    kernels: StoredKernels,
    codes: np.ndarray,
    C: np.ndarray,
    solver: MKLSMO,
    seed: int,
    progress: SolverProgress,
    *,
    n_classes: int,
    one_vs_one: bool,
    positive_weight: float,
) -> KernelWeights:
    """Learn penalised weights by pairwise steps with a cubic line search."""
    n, k = len(codes), n_classes
    pairs = list(combinations(range(k), 2)) if one_vs_one and k > 2 else []
    positives = [i for i, _ in pairs] or (list(range(k)) if k > 2 else [1])
    members = [np.flatnonzero(np.isin(codes, pair)) for pair in pairs] or [np.arange(n)] * len(positives)
    problems = []
    for positive, points in zip(positives, members, strict=True):
        y = np.where(codes[points] == positive, 1.0, -1.0)
        problems.append((BoxQP.classification(y, C[points] * np.where(y > 0, positive_weight, 1.0)), points))
    solutions, weights = solver.maximise(problems, kernels.grams, np.random.default_rng(seed), progress)
    beta = np.zeros((k - 1 if pairs else len(problems), n))
    for number, (solution, points) in enumerate(zip(solutions, members, strict=True)):
        if pairs:
            i, j = pairs[number]
            first = codes[points] == i
            beta[j - 1, points[first]] = solution.beta[first]
            beta[i, points[~first]] = solution.beta[~first]
        else:
            beta[number] = solution.beta
    order = np.argsort(codes, kind="stable")
    support = order[np.any(beta[:, order] != 0, axis=0)]
    counts = np.bincount(codes[support], minlength=k)
    intercept = np.array([solution.bias for solution in solutions])
    model = SupportVectorModel(support, counts, beta[:, support], intercept, solutions)
    gap, n_iter = max(solution.violation for solution in solutions), sum(solution.n_iter for solution in solutions)
    return KernelWeights(weights, model, gap, n_iter, True)


@dataclass
class _PairwiseState:
    """One dual problem: its points, variables, bias, and `K_m beta` for each kernel."""

    qp: BoxQP
    points: np.ndarray
    beta: np.ndarray = field(init=False)
    products: np.ndarray = field(init=False)
    bias: float = 0.0
    n_iter: int = 0


@dataclass(frozen=True)
class MKLSMO:
    """Simplified SMO with a cubic line search, for problems that share penalised kernel weights."""

    penalty: float
    tol: float = 1e-3
    # Sweeps without a move after which the solver stops.
    patience: int = 10
    max_iter: int = 1_000_000

    def maximise(
        self,
        problems: Sequence[tuple[BoxQP, np.ndarray]],
        grams: Sequence[np.ndarray],
        rng: np.random.Generator,
        progress: SolverProgress,
    ) -> tuple[list[DualSolution], np.ndarray]:
        """Solve the problems `(qp, points)` on rows `points` of the Gram matrices; return solutions and weights."""
        K = np.stack([gram.astype(np.float64) for gram in grams])
        states = [_PairwiseState(qp, points) for qp, points in problems]
        for state in states:
            state.beta = np.zeros(state.qp.size)
            state.products = np.zeros((len(K), state.qp.size))
        S = np.zeros(len(K))
        quiet = n_moved = 0
        while quiet < self.patience and n_moved < self.max_iter and not progress.stopped:
            moved = sum(self._sweep(state, K, S, rng) for state in states)
            n_moved += moved
            quiet = 0 if moved else quiet + 1
            slopes = [state.qp.slope(S @ state.products / (2 * self.penalty)) for state in states]
            violations = [state.qp.violation(state.beta, slope) for state, slope in zip(states, slopes, strict=True)]
            progress.advance(moved, violation=max(violations))
        d = S / (2 * self.penalty)
        solutions = [DualSolution.at(s.qp, s.beta, d @ s.products, s.n_iter, self.tol) for s in states]
        return solutions, d

    def _sweep(self, state: _PairwiseState, K: np.ndarray, S: np.ndarray, rng: np.random.Generator) -> int:
        """Move each violating variable once, with `S` updated in place; return the number of moves."""
        qp, beta, products, points = state.qp, state.beta, state.products, state.points
        moved = 0
        for i in range(qp.size):
            if not is_violated(qp, beta, i, state.bias - self._slope(state, S, i), self.tol / 2):
                continue
            for j in rng.permutation(qp.size):
                step = self._step(state, K, S, i, j) if j != i else 0.0
                if step:
                    break
            else:
                continue
            difference = products[:, i] - products[:, j]
            S += 2 * step * difference + step**2 * _curvature(K, points[i], points[j])
            beta[i] = min(max(beta[i] + step, qp.lower[i]), qp.upper[i])
            beta[j] = min(max(beta[j] - step, qp.lower[j]), qp.upper[j])
            products += step * (K[:, points[i]][:, points] - K[:, points[j]][:, points])
            state.bias = pair_bias(qp, beta, (i, j), [float(self._slope(state, S, k)) for k in (i, j)])
            moved += 1
        state.n_iter += moved
        return moved

    def _slope(self, state: _PairwiseState, S: np.ndarray, i: int) -> float:
        return state.qp.linear[i] - S @ state.products[:, i] / (2 * self.penalty)

    def _step(self, state: _PairwiseState, K: np.ndarray, S: np.ndarray, i: int, j: int) -> float:
        """Return the increase of `beta_i` (and decrease of `beta_j`): the root of the cubic, clipped to both boxes."""
        qp, beta = state.qp, state.beta
        low = max(qp.lower[i] - beta[i], beta[j] - qp.upper[j])
        high = min(qp.upper[i] - beta[i], beta[j] - qp.lower[j])
        smallest = SMALLEST_STEP * (qp.upper[i] - qp.lower[i])
        if high - low <= smallest:
            return 0.0
        a = _curvature(K, state.points[i], state.points[j])
        b = state.products[:, i] - state.products[:, j]
        cubic = np.array([a @ a, 3 * a @ b, 2 * b @ b + a @ S, b @ S]) / (2 * self.penalty)
        cubic[3] -= qp.linear[i] - qp.linear[j]
        step = _root_of_increasing(cubic, low, high)
        return step if abs(step) > smallest else 0.0


def _curvature(K: np.ndarray, r: int, s: int) -> np.ndarray:
    """Return `K_rr + K_ss - 2 K_rs` for each kernel."""
    return K[:, r, r] + K[:, s, s] - 2 * K[:, r, s]


def _root_of_increasing(cubic: np.ndarray, low: float, high: float) -> float:
    """Return the root of a cubic that increases on `[low, high]`, or the end of the interval closest to it."""
    if np.polyval(cubic, low) >= 0:
        return low
    if np.polyval(cubic, high) <= 0:
        return high
    inside = [r.real for r in np.roots(cubic) if abs(r.imag) <= 1e-7 * (1 + abs(r.real)) and low <= r.real <= high]
    if inside:
        return float(inside[0])
    # By rounding the root is outside the interval or complex. Bisection converges, because the signs at the ends differ.
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.polyval(cubic, middle) < 0 else (low, middle)
    return 0.5 * (low + high)
