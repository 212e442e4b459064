"""What solvers ask of a matrix: products, rows, a diagonal."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from gramless._runtime.arrays import Array


@runtime_checkable
class Operator(Protocol):
    """A square matrix that is used without being held."""

    shape: tuple[int, int]
    spd: bool
    """Whether the matrix is symmetric positive definite."""

    def __matmul__(self, V: Array) -> Array: ...

    def rows(self, idx: np.ndarray, out: Array = None) -> Array:
        """The `(b, n)` block of the rows `idx`, written into `out` where given."""
        ...

    def diag(self) -> Array:
        """The diagonal."""
        ...


class DenseOperator:
    """A matrix that is held, as an operator: what tests and small systems use.

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
        self.spd = spd

    def __matmul__(self, V: Array) -> Array:
        return self.A @ V

    def rows(self, idx: np.ndarray, out: Array = None) -> Array:
        from gramless._runtime.arrays import take_rows

        block = take_rows(self.A, np.asarray(idx))
        if out is None:
            return block
        out[...] = block
        return out

    def diag(self) -> Array:
        from gramless._runtime.arrays import namespace

        return namespace(self.A).linalg.diagonal(self.A)

    def dense(self, dtype: object = None) -> Array:
        """A copy of the matrix, in `dtype` where given."""
        from gramless._runtime.arrays import astype

        return (self.A if dtype is None else astype(self.A, dtype)) + 0
