"""The bordered matrix of the least-squares SVM: the bias is one more unknown, `sum a = 0` one more equation.

    Theta = [[A, 1], [1^T, 0]],   Theta [a; b] = [Z; 0],   A = K + diag(ridge)

Symmetric and nonsingular, but indefinite: for methods that read rows and do not need definiteness. The border is the last
row and column (a permutation of the usual notation), so that a block of kernel values starts at the start of its memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator

# Rows of a block start at multiples of 64 bytes (in float32), as the matrix units of a GPU require.
_ALIGNMENT = 16


class BorderedOperator(Operator):
    """The matrix `A`, ridge included, with a border of ones."""

    capabilities = frozenset({"rows", "dense"})

    def __init__(self, inner: Operator):
        self.inner = inner
        self.shape = (inner.shape[0] + 1, inner.shape[1] + 1)

    def __matmul__(self, V: Array) -> Array:
        coef, bias = V[:-1], V[-1:]
        xp = xa.namespace(V)
        # A float32 sum of n terms of both signs would lose the digits that decide whether it is zero.
        total = xp.sum(coef, axis=0, keepdims=True, dtype=xp.float64)
        product: Array = xp.concat([self.inner @ coef + bias, xa.astype(total, xa.numpy_dtype(V))])
        return product

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """Return the rows `idx`; row `n` is the border."""
        idx, n = np.asarray(idx), self.inner.shape[0]
        if out is None:
            width = n + 1 + (-(n + 1)) % _ALIGNMENT
            out = xa.empty((len(idx), width), self.inner.diag())[:, : n + 1]
        # The border has no kernel values; row 0 is a placeholder until the ones are written.
        self.inner.rows(np.where(idx == n, 0, idx), out=out[:, :n])
        out[:, n] = 1
        for at in np.flatnonzero(idx == n):
            out[int(at), :] = 1
            out[int(at), n] = 0
        return out

    def diag(self) -> Array:
        """Return the diagonal of `A` and a zero."""
        inner = self.inner.diag()
        diagonal: Array = xa.namespace(inner).concat([inner, xa.zeros((1,), inner)])
        return diagonal

    def dense(self, dtype: Any = None) -> Array:
        inner = self.inner.dense(dtype)
        n = inner.shape[0]
        A = xa.empty((n + 1, n + 1), inner)
        A[:n, :n] = inner
        A[n, :] = 1
        A[:, n] = 1
        A[n, n] = 0
        return A

    def targets(self, Z: Array) -> Array:
        """Return the right-hand side `[Z; 0]`."""
        bordered: Array = xa.namespace(Z).concat([Z, xa.zeros((1, Z.shape[1]), Z)])
        return bordered

    def split(self, W: Array) -> tuple[Array, Array]:
        """Return the coefficients and the bias of a solution."""
        return W[:-1], W[-1]
