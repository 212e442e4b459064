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

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array

CAPABILITIES = frozenset({"spd", "rows", "dense", "rows_times", "diagonal_block", "ridge"})


class Operator:
    """A square matrix that is used without being held.

    Subclasses define `shape`, `@`, `diag` and the methods that they name in `capabilities`.
    """

    shape: tuple[int, int]
    capabilities: frozenset[str] = frozenset()
    """What the matrix has beside products and a diagonal; names from `CAPABILITIES`."""
    ridge: Array
    dtype: np.dtype
    reference: Array
    """An array of the library, on the device and of the dtype of the vectors; of kernel matrices only, like `dtype`."""

    def __matmul__(self, V: Array) -> Array:
        raise NotImplementedError

    def diag(self) -> Array:
        """The diagonal."""
        raise NotImplementedError

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """The `(b, n)` block of the rows `idx`, written into `out` where given."""
        raise self._lacks("rows")

    def dense(self, dtype: Any = None) -> Array:
        """The whole matrix, in `dtype` where given, as an array that may be overwritten."""
        raise self._lacks("dense")

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        """`rows(idx) @ V`."""
        raise self._lacks("rows_times")

    def diagonal_block(self, idx: np.ndarray) -> Array:
        """`A[idx, idx]`, as an array that may be overwritten."""
        raise self._lacks("diagonal_block")

    def _lacks(self, capability: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {capability!r}; it has {sorted(self.capabilities)}")


class DenseOperator(Operator):
    """A matrix that is held, as an operator: what tests and small systems use.

    Parameters
    ----------
    A : array of shape (n, n)
    spd : bool, default=True
        Whether it is symmetric positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.operators import DenseOperator
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
        return xa.namespace(self.A).linalg.diagonal(self.A)

    def dense(self, dtype: Any = None) -> Array:
        return (self.A if dtype is None else xa.astype(self.A, dtype)) + 0
