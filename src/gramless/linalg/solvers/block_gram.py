"""The inverse of the Gram matrix of a block of rows: what a projection on the block needs.

    P = A^T (A A^T)^-1 A

`A A^T` has the square of the condition number of `A`, so its rows are first scaled to unit norm (which changes no
projection), it is factored in float64, and a jitter of the size of the rounding of the product stands on its diagonal: with
it the computed matrix is not below the true one, so a step made from it falls short of the projection rather than beyond.
O(b^2 n + b^3) time; b^2 numbers are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.jitter import jittered_cholesky


class BlockGram:
    """The factored `A A^T` of one block.

    Parameters
    ----------
    A : array of shape (b, n)
    dtype : NumPy dtype, default=float64
        In which the factor is kept.

    Attributes
    ----------
    jitter : float
        Added to the diagonal, relative to rows of unit norm.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.solvers.block_gram import BlockGram
    >>> A = np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> BlockGram(A).solve(np.array([[9.0], [4.0]])).round(6)
    array([[1.],
           [2.]])
    """

    def __init__(self, A: Array, dtype: Any = np.float64):
        eps = float(np.finfo(xa.numpy_dtype(A)).eps)
        with np.errstate(over="ignore", invalid="ignore"):
            # NumPy sees that both sides are one matrix and computes one triangle.
            G = xa.astype(xa.matmul(A, A.T), np.float64)
        xp = xa.namespace(G)
        norms = xp.sqrt(xp.linalg.diagonal(G))
        if not bool(xp.all(xp.isfinite(norms))):  # no entry is larger than the diagonal
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
        """`(A A^T)^-1 B` in the dtype of `B`."""
        kept = xa.numpy_dtype(self._factor)
        scale = xa.astype(self._scale, kept)[:, None]
        return xa.astype(scale * xa.cholesky_solve(self._factor, scale * xa.astype(B, kept)), xa.numpy_dtype(B))


class BlockGrams:
    """The factors of all blocks; kept from one visit to the next where blocks recur.

    Parameters
    ----------
    keep : bool
        Keep the factors, in the dtype of the data, whose rounding they share: b^2 numbers for each block.
    """

    def __init__(self, keep: bool):
        self.keep = keep
        self._kept: dict[int, BlockGram] = {}

    def of(self, number: int, A: Array) -> BlockGram:
        """The factor for block `number`, whose rows are `A`."""
        if not self.keep:
            return BlockGram(A)
        if number not in self._kept:
            self._kept[number] = BlockGram(A, xa.numpy_dtype(A))
        return self._kept[number]
