"""The bordered matrix of the least-squares SVM: the bias is one more unknown, `sum a = 0` one more equation.

    Theta = [[A, 1], [1^T, 0]],   Theta [a; b] = [Z; 0],   A = K + diag(ridge)

Symmetric, nonsingular, but indefinite: for methods that read rows and do not ask for definiteness. The border is the last
row and column (a permutation of the usual way of writing it), so that a block of kernel values begins where the block's
memory does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator

# Rows of a block start at multiples of 64 bytes (in float32): matrix units on a GPU need it, and n + 1 seldom gives it.
_ALIGNMENT = 16


class BorderedOperator(Operator):
    """`A` with a border of ones, without holding it.

    Parameters
    ----------
    inner : Operator
        The matrix `A`, ridge included.

    See Also
    --------
    KernelOperator : The usual inner matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import BorderedOperator, DenseOperator
    >>> BorderedOperator(DenseOperator(2.0 * np.eye(2))).rows(np.array([1, 2]))
    array([[0., 2., 1.],
           [1., 1., 0.]])
    """

    capabilities = frozenset({"rows", "dense"})

    def __init__(self, inner: Operator):
        self.inner = inner
        self.shape = (inner.shape[0] + 1, inner.shape[1] + 1)

    def __matmul__(self, V: Array) -> Array:
        coef, bias = V[:-1], V[-1:]
        xp = xa.namespace(V)
        # A sum of n terms of both signs in float32 would lose the digits that decide whether it is zero.
        total = xp.sum(coef, axis=0, keepdims=True, dtype=xp.float64)
        product: Array = xp.concat([self.inner @ coef + bias, xa.astype(total, xa.numpy_dtype(V))])
        return product

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """The rows `idx`, of which the border is number `n`.

        Parameters
        ----------
        idx : ndarray of int, shape (b,)
            Which rows, in any order.
        out : array of shape (b, n + 1), optional
            Where to write them.

        Returns
        -------
        array of shape (b, n + 1)
            The rows; `out` where that is given.
        """
        idx, n = np.asarray(idx), self.inner.shape[0]
        if out is None:
            width = n + 1 + (-(n + 1)) % _ALIGNMENT
            out = xa.empty((len(idx), width), self.inner.diag())[:, : n + 1]
        # The border needs no kernel; any other row keeps its place in the block until the ones are written.
        self.inner.rows(np.where(idx == n, 0, idx), out=out[:, :n])
        out[:, n] = 1
        for at in np.flatnonzero(idx == n):
            out[int(at), :] = 1
            out[int(at), n] = 0
        return out

    def diag(self) -> Array:
        """The diagonal.

        Returns
        -------
        array of shape (n + 1,)
            The inner diagonal and a zero.
        """
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
        """The right-hand side `[Z; 0]`.

        Parameters
        ----------
        Z : array of shape (n, k)
            The targets.

        Returns
        -------
        array of shape (n + 1, k)
            The targets and a row of zeros.
        """
        bordered: Array = xa.namespace(Z).concat([Z, xa.zeros((1, Z.shape[1]), Z)])
        return bordered

    def split(self, W: Array) -> tuple[Array, Array]:
        """A solution as coefficients and bias.

        Parameters
        ----------
        W : array of shape (n + 1, k)
            What solves the bordered system.

        Returns
        -------
        coef : array of shape (n, k)
            All rows but the last.
        bias : array of shape (k,)
            The last row.
        """
        return W[:-1], W[-1]
