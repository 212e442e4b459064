"""The interface of matrices that solvers multiply with: products always, and further declared capabilities.

    capability         meaning
    "spd"              symmetric positive definite
    "rows"             `rows(idx)`: any block of rows
    "dense"            `dense(dtype)`: the full matrix
    "rows_times"       `rows_times(idx, V)`: the product of a subset of rows, without storing them
    "diagonal_block"   `diagonal_block(idx)`: the entries in a subset of rows and the same columns
    "ridge"            `ridge`: the diagonal that was added to a semi-definite matrix

A solver lists the capabilities that it needs (`Solver.requires`), and `solve` compares them before anything is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array

CAPABILITIES = frozenset({"spd", "rows", "dense", "rows_times", "diagonal_block", "ridge"})


class Operator:
    """A square matrix that need not be stored; subclasses define `shape`, `@`, `diag` and the methods in `capabilities`.

    Kernel matrices also have `ridge`, the `dtype` of the entries, and `reference`, an array with the array type, device and
    dtype of the vectors.
    """

    shape: tuple[int, int]
    capabilities: frozenset[str] = frozenset()
    ridge: Array
    dtype: np.dtype
    reference: Array

    def __matmul__(self, V: Array) -> Array:
        raise NotImplementedError

    def diag(self) -> Array:
        """Return the diagonal."""
        raise NotImplementedError

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """Return the rows `idx` as one block of shape (b, n), written to `out` if it is given."""
        raise self._lacks("rows")

    def dense(self, dtype: Any = None) -> Array:
        """Return the full matrix as a new array, computed in `dtype`."""
        raise self._lacks("dense")

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        """Return `rows(idx) @ V`, without storing the rows if possible."""
        raise self._lacks("rows_times")

    def diagonal_block(self, idx: np.ndarray) -> Array:
        """Return `A[idx, idx]` as a new array."""
        raise self._lacks("diagonal_block")

    def _lacks(self, capability: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {capability!r}; it has {sorted(self.capabilities)}")


class DenseOperator(Operator):
    """A stored matrix as an operator, for tests and small systems."""

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
