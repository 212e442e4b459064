"""What solvers ask of a matrix: products always, and what else it declares to have.

    capability         what it is
    "spd"              symmetric positive definite
    "rows"             `rows(idx)`: any block of rows
    "dense"            `dense(dtype)`: the whole matrix
    "rows_times"       `rows_times(idx, V)`: the product of some rows, without holding them
    "diagonal_block"   `diagonal_block(idx)`: the entries where some rows and columns cross
    "ridge"            `ridge`: what was added to the diagonal of a semi-definite matrix

A solver names what it cannot do without (`Solver.requires`), and `solve` compares the two before anything is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array

CAPABILITIES = frozenset({"spd", "rows", "dense", "rows_times", "diagonal_block", "ridge"})


class Operator:
    """A square matrix that is used without being held.

    Subclasses define `shape`, `@`, `diag` and the methods that they name in `capabilities`.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns, which are equal.
    capabilities : frozenset of str
        What the matrix has beside products and a diagonal; names from `CAPABILITIES`.
    ridge : array of shape (n,)
        What was added to the diagonal, where `"ridge"` is a capability.
    dtype : dtype
        Of the entries; of kernel matrices only.
    reference : array
        An array of the library, on the device and of the dtype of the vectors; of kernel matrices only.

    See Also
    --------
    DenseOperator : A matrix that is held.
    KernelOperator : A kernel matrix, computed tile by tile.
    BorderedOperator : A matrix with a border of ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import Operator
    >>> class Doubling(Operator):
    ...     shape = (3, 3)
    ...     capabilities = frozenset({"spd"})
    ...     def __matmul__(self, V):
    ...         return 2.0 * V
    ...     def diag(self):
    ...         return np.full(3, 2.0)
    >>> (Doubling() @ np.ones((3, 1))).ravel()
    array([2., 2., 2.])
    """

    shape: tuple[int, int]
    capabilities: frozenset[str] = frozenset()
    ridge: Array
    dtype: np.dtype
    reference: Array

    def __matmul__(self, V: Array) -> Array:
        raise NotImplementedError

    def diag(self) -> Array:
        """The diagonal.

        Returns
        -------
        array of shape (n,)
            The entries `A[i, i]`.
        """
        raise NotImplementedError

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """The rows `idx` as one block.

        Parameters
        ----------
        idx : ndarray of int, shape (b,)
            Which rows, in any order.
        out : array of shape (b, n), optional
            Where to write them.

        Returns
        -------
        array of shape (b, n)
            The rows; `out` where that is given.
        """
        raise self._lacks("rows")

    def dense(self, dtype: Any = None) -> Array:
        """The whole matrix, as an array that may be overwritten.

        Parameters
        ----------
        dtype : dtype, optional
            Of the result, and of the computation where entries are computed; the matrix's own by default.

        Returns
        -------
        array of shape (n, n)
            All entries, both triangles.
        """
        raise self._lacks("dense")

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        """The product of some rows, without holding them where that can be avoided.

        Parameters
        ----------
        idx : ndarray of int, shape (b,)
            Which rows.
        V : array of shape (n, k)
            What they are multiplied with.

        Returns
        -------
        array of shape (b, k)
            `rows(idx) @ V`.
        """
        raise self._lacks("rows_times")

    def diagonal_block(self, idx: np.ndarray) -> Array:
        """The entries where some rows and the same columns cross, as an array that may be overwritten.

        Parameters
        ----------
        idx : ndarray of int, shape (b,)
            Which rows and columns.

        Returns
        -------
        array of shape (b, b)
            `A[idx, idx]`.
        """
        raise self._lacks("diagonal_block")

    def _lacks(self, capability: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {capability!r}; it has {sorted(self.capabilities)}")


class DenseOperator(Operator):
    """A matrix that is held, as an operator: what tests and small systems use.

    Parameters
    ----------
    A : array of shape (n, n)
        The matrix, NumPy or torch.
    spd : bool, default=True
        Whether it is symmetric positive definite.

    See Also
    --------
    KernelOperator : A kernel matrix that is not held.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> DenseOperator(np.diag([1.0, 2.0])) @ np.ones((2, 1))
    array([[1.],
           [2.]])
    """

    def __init__(self, A: Array, *, spd: bool = True):
        self.A = A
        self.shape = (A.shape[0], A.shape[1])
        self.capabilities = CAPABILITIES - {"ridge"} if spd else CAPABILITIES - {"ridge", "spd"}

    def __matmul__(self, V: Array) -> Array:
        return self.A @ V

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        block = xa.take_rows(self.A, np.asarray(idx))
        if out is None:
            return block
        out[...] = block
        return out

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        return self.rows(idx) @ V

    def diagonal_block(self, idx: np.ndarray) -> Array:
        return xa.submatrix(self.A, idx, idx) + 0

    def diag(self) -> Array:
        diagonal: Array = xa.namespace(self.A).linalg.diagonal(self.A)
        return diagonal

    def dense(self, dtype: Any = None) -> Array:
        return (self.A if dtype is None else xa.astype(self.A, dtype)) + 0
