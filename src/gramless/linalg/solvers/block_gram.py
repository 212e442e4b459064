"""The factored Gram matrix of a block of rows, for the projection `P = A^T (A A^T)^-1 A` on the block.

`A A^T` has the squared condition number of `A`. Its rows are therefore scaled to unit norm (which changes no projection), it
is factored in float64, and a jitter of the size of the rounding of the product is added to its diagonal: the computed matrix
is then not below the true one, so a step falls short of the projection rather than beyond it. O(b^2 n + b^3) time, b^2
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.jitter import jittered_cholesky


class BlockGram:
    """The factored `A A^T` of one block, stored in `dtype`; `jitter` is relative to rows of unit norm."""

    def __init__(self, A: Array, dtype: Any = np.float64):
        eps = float(np.finfo(xa.numpy_dtype(A)).eps)
        with np.errstate(over="ignore", invalid="ignore"):
            # NumPy detects that both factors are the same matrix and computes one triangle.
            G = xa.astype(xa.matmul(A, A.T), np.float64)
        xp = xa.namespace(G)
        norms = xp.sqrt(xp.linalg.diagonal(G))
        if not bool(xp.all(xp.isfinite(norms))):  # the diagonal bounds all entries
            raise FloatingPointError(
                f"the squares of the kernel's values overflow {xa.numpy_dtype(A).name}: scale the data, lower the kernel's "
                "degree or coefficients, or use dtype='float64'"
            )
        self._scale = 1.0 / xp.where(norms > 0, norms, xp.ones_like(norms))
        G *= self._scale
        G *= self._scale[:, None]
        L, self.jitter = jittered_cholesky(G, jitter=2.0 * eps * float(np.sqrt(A.shape[0])))
        self._factor = xa.astype(L, dtype)

    def solve(self, B: Array) -> Array:
        """Return `(A A^T)^-1 B` in the dtype of `B`."""
        dtype = xa.numpy_dtype(self._factor)
        scale = xa.astype(self._scale, dtype)[:, None]
        return xa.astype(scale * xa.cholesky_solve(self._factor, scale * xa.astype(B, dtype)), xa.numpy_dtype(B))


class BlockGrams:
    """The factors of all blocks, cached if blocks recur: b^2 numbers for each block, in the precision of the data."""

    def __init__(self, cache: bool):
        self.cache = cache
        self._factors: dict[int, BlockGram] = {}

    def of(self, number: int, A: Array) -> BlockGram:
        """Return the factor of block `number`, whose rows are `A`."""
        if not self.cache:
            return BlockGram(A)
        if number not in self._factors:
            self._factors[number] = BlockGram(A, xa.numpy_dtype(A))
        return self._factors[number]
