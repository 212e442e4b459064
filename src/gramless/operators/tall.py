"""A tall matrix `C` of many rows and few columns, held or computed a part at a time; sums over its rows are in float64.

    times(W)             C W                    O(n m k)
    transposed_times(V)  C^T V                  O(n m k)
    add_gram_(S, w)      S + C^T diag(w) C      O(n m^2)

The entries keep the data's precision. A sum over n rows in that precision would lose the small eigenvalues of a Gram matrix,
so parts of a few thousand rows are converted, multiplied and added in float64: `8192 m` numbers beside `C`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import slices
from gramless.operators.tile_product import compiles, product, transposed_product

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
    >>> from gramless.operators.tall import TallMatrix
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

    def _parts_for(self, V: Array) -> list[slice]:
        # The compiled products take all rows at once; others copy a part at a time to float64.
        whole = self._held is not None and compiles(self._held, V)
        return [slice(0, self.shape[0])] if whole else self._parts

    def transposed_times(self, V: Array) -> Array:
        """`C^T V` for `V` in float64."""
        total = xa.zeros((self.shape[1], V.shape[1]), V)
        for rows in self._parts_for(V):
            total += transposed_product(self.rows(rows), V[rows])
        return total

    def times(self, W: Array) -> Array:
        """`C W` for `W` in float64."""
        out = xa.empty((self.shape[0], W.shape[1]), W)
        for rows in self._parts_for(W):
            out[rows] = product(self.rows(rows), W)
        return out

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """The lower triangle of `S + C^T diag(weights) C`, in place where the array library can, for `S` in float64."""
        root = xa.astype(xa.namespace(weights).sqrt(weights), np.float64)
        for rows in self._parts:
            # The product has the square of C's condition: rounded to float32 it would drown S from a million rows on.
            S = xa.add_gram_(S, xa.astype(self.rows(rows), np.float64) * root[rows][:, None])
        return S
