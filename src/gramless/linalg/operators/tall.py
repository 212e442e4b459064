"""A tall matrix `C` of many rows and few columns, held or computed a part at a time; sums over its rows are in float64.

    times(W)             C W                    O(n m k)
    transposed_times(V)  C^T V                  O(n m k)
    add_gram_(S, w)      S + C^T diag(w) C      O(n m^2)

The entries keep the data's precision. A sum over n rows in that precision would lose the small eigenvalues of a Gram matrix,
so parts of a few thousand rows are converted, multiplied and added in float64: `4096 m` numbers beside `C`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.linalg.operators.tile_product import compiles, product, transposed_product

_ROWS_AT_A_TIME = 4096


class TallMatrix:
    """`n` rows of `m` numbers, given by a function of a slice of rows.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    compute : callable(slice) -> array
        The rows of a slice.
    store : bool, default=False
        Compute all rows now and hold them, or a part at a time at each use.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators.tall import TallMatrix
    >>> C = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    >>> TallMatrix(C.shape, lambda rows: C[rows]).transposed_times(np.ones((3, 1)))
    array([[6.],
           [9.]])
    """

    def __init__(self, shape: tuple[int, int], compute: Callable[[slice], Array], *, store: bool = False):
        self.shape = shape
        self._compute = compute
        self._held = compute(slice(0, shape[0])) if store else None
        self._parts = slices(shape[0], _ROWS_AT_A_TIME)

    @classmethod
    def of(cls, C: Array) -> TallMatrix:
        """A matrix that is there."""
        return cls((C.shape[0], C.shape[1]), lambda rows: C[rows], store=True)

    def rows(self, rows: slice) -> Array:
        """Some rows, in the data's precision."""
        return self._compute(rows) if self._held is None else self._held[rows]

    def transposed_times(self, V: Array) -> Array:
        """`C^T V` for `V` in float64."""
        if self._held is not None and compiles(self._held, V):
            return transposed_product(self._held, V)
        total, in_double = xa.zeros((self.shape[1], V.shape[1]), V), _InDouble()
        for rows in self._parts:
            part = self.rows(rows)
            total += transposed_product(part, V[rows]) if compiles(part, V) else in_double(part).T @ V[rows]
        return total

    def times(self, W: Array) -> Array:
        """`C W` for `W` in float64."""
        if self._held is not None and compiles(self._held, W):
            return product(self._held, W)
        out, in_double = xa.empty((self.shape[0], W.shape[1]), W), _InDouble()
        for rows in self._parts:
            part = self.rows(rows)
            out[rows] = product(part, W) if compiles(part, W) else in_double(part) @ W
        return out

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """The lower triangle of `S + C^T diag(weights) C`, in place where the array library can, for `S` in float64."""
        root, in_double = xa.astype(xa.namespace(weights).sqrt(weights), np.float64), _InDouble()
        for rows in self._parts:
            # The product has the square of C's condition: rounded to float32 it would drown S from a million rows on.
            S = xa.add_gram_(S, in_double(self.rows(rows), root[rows]))
        return S


class _InDouble:
    """Copies of parts in float64, each in the memory of the last: to touch fresh memory takes longer than to convert."""

    def __init__(self) -> None:
        self._buffer: np.ndarray | None = None

    def __call__(self, part: Array, weights: Array | None = None) -> Array:
        scale = 1.0 if weights is None else weights[:, None]
        if not isinstance(part, np.ndarray):
            return xa.astype(part, np.float64) * scale
        if part.dtype == np.float64 and weights is None:
            return part
        if self._buffer is None:
            self._buffer = np.empty(part.shape)
        return np.multiply(part, scale, out=self._buffer[: len(part)])
