"""A tall matrix `C` of many rows and few columns, stored or computed in parts; sums over its rows are in float64.

    times(W)             C W                    O(n m k)
    transposed_times(V)  C^T V                  O(n m k)
    add_gram_(S, w)      S + C^T diag(w) C      O(n m^2)

The entries have the precision of the data. A sum over n rows in that precision would lose the small eigenvalues of a Gram
matrix, so parts of a few thousand rows are converted, multiplied and added in float64: `4096 m` numbers beside `C`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.linalg.operators.tile_product import compiles, product, transposed_product
from gramless.linalg.tuning import TUNING


class TallMatrix:
    """A matrix given by `compute(slice of rows)`; with `store` all rows are computed once and kept."""

    def __init__(self, shape: tuple[int, int], compute: Callable[[slice], Array], *, store: bool = False):
        self.shape = shape
        self._compute = compute
        self._stored = compute(slice(0, shape[0])) if store else None
        self._parts = slices(shape[0], TUNING.rows_per_part)

    @classmethod
    def of(cls, C: Array) -> TallMatrix:
        """Return the tall matrix of a stored array."""
        return cls((C.shape[0], C.shape[1]), lambda rows: C[rows], store=True)

    def rows(self, rows: slice) -> Array:
        """Return a slice of rows in the precision of the data."""
        return self._compute(rows) if self._stored is None else self._stored[rows]

    def transposed_times(self, V: Array) -> Array:
        """Return `C^T V` for `V` in float64."""
        if self._stored is not None and compiles(self._stored, V):
            return transposed_product(self._stored, V)
        total, in_double = xa.zeros((self.shape[1], V.shape[1]), V), _InDouble()
        for rows in self._parts:
            part = self.rows(rows)
            total += transposed_product(part, V[rows]) if compiles(part, V) else in_double(part).T @ V[rows]
        return total

    def times(self, W: Array) -> Array:
        """Return `C W` for `W` in float64."""
        if self._stored is not None and compiles(self._stored, W):
            return product(self._stored, W)
        out, in_double = xa.empty((self.shape[0], W.shape[1]), W), _InDouble()
        for rows in self._parts:
            part = self.rows(rows)
            out[rows] = product(part, W) if compiles(part, W) else in_double(part) @ W
        return out

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """Return the lower triangle of `S + C^T diag(weights) C` for `S` in float64, which may be overwritten."""
        root, in_double = xa.astype(xa.namespace(weights).sqrt(weights), np.float64), _InDouble()
        for rows in self._parts:
            # The product has the squared condition of C: float32 rounding would exceed S from a million rows on.
            S = xa.add_gram_(S, in_double(self.rows(rows), root[rows]))
        return S


class _InDouble:
    """Convert parts to float64 in one reused buffer, since page faults of new memory take longer than the conversion."""

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
