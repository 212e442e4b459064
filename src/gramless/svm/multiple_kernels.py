"""Multiple kernel learning: the weights of several kernels and a support vector classifier on their sum.

    K = sum_m d_m K_m,    S_m = sum over problems of beta' K_m beta,    with weights d and dual variables beta

Alternation: for fixed weights the classifier is solved starting from the previous solution; for a fixed classifier the
weights have a closed form. With `||d||_p <= 1` the weights are proportional to `(d_m^2 S_m)^(1 / (p + 1))`, and the duality
gap is `(||S||_q - d' S) / 2` with `1/p + 1/q = 1`. With the penalty `penalty ||d||^2 / 2` the updated weights are
`(d_m^2 S_m / (2 penalty))^(1/3)`, with the fixed point `d = S / (2 penalty)`.

Pairwise steps (the readable reference solver; a step takes O(M n) for M kernels): with the penalty the dual objective is
`linear' beta - sum_m S_m^2 / (8 penalty)`, a concave quartic along a pair of variables; its maximum is the root of a cubic.

References: Kloft, Brefeld, Sonnenburg and Zien (2011); Sun, Ampornpunt, Varma and Vishwanathan (2010).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy.optimize import brentq

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, parallel_for, slices
from gramless.kernels import Kernel, Precomputed, Scaled
from gramless.linalg.operators import expand
from gramless.linalg.operators.blocks import workers_for
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import class_grams
from gramless.svm.multiclass import Decomposition, SupportVectorModel, solve_multiclass
from gramless.svm.resources import DualFit
from gramless.svm.simple_smo import PairSteps, sweep_until_quiet

# Lower bound of divisors: smaller objectives and weights are zero up to rounding.
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
    fit: DualFit,
    codes: np.ndarray,
    C: np.ndarray,
    *,
    p: float,
    penalty: float | None,
    weight_tol: float,
    max_iter: int,
    on_iteration: Callable[[dict[str, Any]], bool],
    **decomposition: Any,
) -> KernelWeights:
    """Alternate between the classifier and the weights until the gap (see `_update_weights`) is at most `weight_tol`.

    `fit` has the solver and the resources of each classifier. `on_iteration(record)` is called after each alternation and
    returns True to stop; `decomposition` is passed to `solve_multiclass`.
    """
    weights, model = np.full(len(kernels), float(len(kernels)) ** (-1 / p)), None
    seconds, n_iter = 0.0, 0
    while True:
        clock, n_iter = time.perf_counter(), n_iter + 1
        kernel, X = kernels.combined(weights)
        model = solve_multiclass(replace(fit, kernel=kernel, X=X), codes, C, start=model, **decomposition)
        S = np.maximum(kernels.quadratic_forms(model), 0)
        updated, gap = _update_weights(weights, S, sum(s.objective for s in model.solutions), p, penalty)
        seconds += time.perf_counter() - clock
        stopped = on_iteration({"n_iter": n_iter, "seconds": seconds, "gap": gap})
        done = gap <= weight_tol or stopped
        if done or n_iter == max_iter:
            return KernelWeights(weights, model, gap, n_iter, done)
        weights = updated


def _update_weights(
    weights: np.ndarray, S: np.ndarray, objective: float, p: float, penalty: float | None
) -> tuple[np.ndarray, float]:
    """Return the next weights and the relative duality gap of the current ones (with `penalty`, distance to fixed point)."""
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
    fit: DualFit,
    codes: np.ndarray,
    C: np.ndarray,
    *,
    penalty: float,
    n_classes: int,
    one_vs_one: bool,
    positive_weight: float,
) -> KernelWeights:
    """Learn penalised weights by pairwise steps with a cubic line search, with `tol` and `max_iter` of `fit.solver`."""
    decomposition, solver = Decomposition(codes, n_classes, one_vs_one), fit.solver
    problems = decomposition.problems(C, positive_weight)
    K = np.stack([gram.astype(np.float64) for gram in kernels.grams])
    S = np.zeros(len(K))
    states = [_WeightedPairSteps(qp, decomposition.split(p)[0], K, S, penalty) for p, qp in enumerate(problems)]
    sweep_until_quiet(states, solver.tol, solver.max_iter, np.random.default_rng(fit.seed), fit.progress)
    weights = S / (2 * penalty)
    solutions = [DualSolution.at(s.qp, s.beta, weights @ s.products, s.n_iter, solver.tol) for s in states]
    gap, n_iter = max(solution.violation for solution in solutions), sum(solution.n_iter for solution in solutions)
    return KernelWeights(weights, decomposition.model(solutions), gap, n_iter, True)


class _WeightedPairSteps(PairSteps):
    """Pairwise steps of one of the problems that share the penalised kernel weights `S / (2 penalty)`.

    `S` is an array that all problems update, and `products` has `K_m beta` for each kernel.
    """

    def __init__(self, qp: BoxQP, points: np.ndarray, K: np.ndarray, S: np.ndarray, penalty: float):
        self.qp, self.points, self.K, self.S, self.penalty = qp, points, K, S, penalty
        self.beta, self.products = np.zeros(qp.size), np.zeros((len(K), qp.size))
        self.bias, self.n_iter = 0.0, 0

    def slope(self, i: int) -> float:
        return float(self.qp.linear[i] - self.S @ self.products[:, i] / (2 * self.penalty))

    def step(self, i: int, j: int, low: float, high: float) -> float:
        if high <= low:
            return 0.0
        a, b = self._curvature(i, j), self.products[:, i] - self.products[:, j]
        cubic = np.array([a @ a, 3 * a @ b, 2 * b @ b + a @ self.S, b @ self.S]) / (2 * self.penalty)
        cubic[3] -= self.qp.linear[i] - self.qp.linear[j]
        return _root_of_increasing(cubic, low, high)

    def update_products(self, i: int, j: int, step: float) -> None:
        difference = self.products[:, i] - self.products[:, j]
        self.S += 2 * step * difference + step**2 * self._curvature(i, j)
        rows = self.K[:, self.points[[i, j]]][:, :, self.points]
        self.products += step * (rows[:, 0] - rows[:, 1])

    def violation(self) -> float:
        return self.qp.violation(self.beta, self.qp.slope(self.S @ self.products / (2 * self.penalty)))

    def _curvature(self, i: int, j: int) -> np.ndarray:
        """Return `K_ii + K_jj - 2 K_ij` for each kernel."""
        r, s = self.points[i], self.points[j]
        return self.K[:, r, r] + self.K[:, s, s] - 2 * self.K[:, r, s]


def _root_of_increasing(cubic: np.ndarray, low: float, high: float) -> float:
    """Return the root of a cubic that increases on `[low, high]`, or the end of the interval closest to it."""
    a, b, c, d = cubic.tolist()

    def value(step: float) -> float:
        return float(((a * step + b) * step + c) * step + d)

    if value(low) >= 0:
        return low
    if value(high) <= 0:
        return high
    return float(brentq(value, low, high, xtol=np.finfo(np.float64).tiny))
