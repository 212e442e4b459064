"""Several kernels on the same points: their weighted sum as one kernel, and how much each contributes to a machine.

Held, each Gram matrix is computed once (lower triangle, mirrored) and a sum of them is one pass over memory: `(M + 1)
n^2` numbers. Streamed, the sum is a kernel like any other and nothing is held. Both answer the same two questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, parallel_for, slices
from gramless.kernels import Kernel, Precomputed, Scaled
from gramless.linalg.operators import expand
from gramless.linalg.operators.blocks import workers_for
from gramless.svm.gram_rows import own_blocks
from gramless.svm.problems import Machine


def weighted_sum(kernels: Sequence[Kernel], weights: np.ndarray) -> Kernel:
    """`sum_m weights_m k_m` over the kernels whose weight is not zero."""
    return reduce(add, [Scaled(kernel, float(w)) for kernel, w in zip(kernels, weights, strict=True) if w > 0])


class StreamedKernels:
    """Kernels evaluated when needed."""

    def __init__(self, kernels: Sequence[Kernel], X: Any):
        self.kernels = kernels
        self.X = X

    def combined(self, weights: np.ndarray) -> tuple[Kernel, Any]:
        """The weighted sum as a kernel and the points to evaluate it on."""
        return weighted_sum(self.kernels, weights), self.X

    def energies(self, machine: Machine) -> np.ndarray:
        """`sum_p beta_p' K_m beta_p` for each kernel, over the two-class problems of a machine."""
        vectors = xa.take_rows(self.X, machine.support)
        beta = machine.by_problem().T
        coef = beta.astype(xa.numpy_dtype(self.X))
        return np.array([np.sum(expand(kernel, vectors, vectors, coef) * beta) for kernel in self.kernels])


class HeldKernels:
    """Gram matrices held in memory."""

    def __init__(self, grams: Sequence[np.ndarray], workers: int):
        self.grams = grams
        self.workers = workers
        self._sum = np.empty_like(grams[0])

    @classmethod
    def of(cls, kernels: Sequence[Kernel], X: Any) -> HeldKernels:
        """Compute the Gram matrix of each kernel."""
        n = X.shape[0]
        grams = []
        for kernel in kernels:
            [gram] = own_blocks(kernel, X, [slice(0, n)], np.inf, workers_for(kernel, X))
            grams.append(gram)
        return cls(grams, workers_for(kernels[0], X))  # type: ignore[arg-type]

    @staticmethod
    def nbytes(n: int, n_kernels: int, itemsize: int) -> int:
        """What holding them takes, the sum included."""
        return (n_kernels + 1) * n * n * itemsize

    def combined(self, weights: np.ndarray) -> tuple[Kernel, Any]:
        """The weighted sum, written into one matrix that the next call overwrites."""
        scales = weights.astype(self._sum.dtype)

        def fill(rows: slice) -> None:
            np.multiply(self.grams[0][rows], scales[0], out=self._sum[rows])
            for gram, scale in zip(self.grams[1:], scales[1:], strict=True):
                self._sum[rows] += scale * gram[rows]

        parallel_for(slices(len(self._sum), 64), fill, self.workers)
        return Precomputed(), self._sum

    def energies(self, machine: Machine) -> np.ndarray:
        """`sum_p beta_p' K_m beta_p` for each kernel, over the two-class problems of a machine."""
        support, beta = machine.support, machine.by_problem()
        coef = beta.T.astype(self._sum.dtype)
        totals = np.zeros(len(self.grams))
        for m, gram in enumerate(self.grams):
            for part in slices(support.size, CPU_TILE):
                products = gram[support[part]][:, support] @ coef
                totals[m] += np.sum(products * beta[:, part].T)
        return totals
