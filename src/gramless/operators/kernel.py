"""The matrix `K(X, X) + diag(ridge)`, streamed or cached, as something to multiply with.

A product visits the tiles on and below the diagonal once and uses a tile `T` for both halves of the symmetric matrix:

    out[i] += T V[j]      out[j] += T^T V[i]

so a streamed product costs `n^2 d` operations instead of `2 n^2 d`, and a cached matrix costs `n^2 / 2` numbers
instead of `n^2`. With `cache=True` each tile is computed on the first visit and kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless import _array as xa
from gramless._array import Array
from gramless._parallel import lower_tiles, run, share, slices
from gramless.kernels.base import Kernel
from gramless.operators.blocks import evaluate, tile_edge, workers_for


class KernelOperator:
    """`K(X, X) + diag(ridge)` without holding it (or holding one triangle of it).

    Parameters
    ----------
    X : array of shape (n, d)
        NumPy, CSR or torch.
    kernel : Kernel
        Resolved: everything that depends on data is a number.
    ridge : float or array of shape (n,), default=0.0
    cache : bool, default=False
        Keep each tile once computed: `nbytes_cached(n, itemsize)` bytes, products at memory speed.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.operators import KernelOperator
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> op = KernelOperator(X, RBF(gamma=0.5), ridge=0.1)
    >>> V = np.ones((100, 2))
    >>> bool(np.allclose(op @ V, op.dense() @ V))
    True
    """

    spd = True

    def __init__(self, X: Array, kernel: Kernel, ridge: Any = 0.0, *, cache: bool = False):
        n = X.shape[0]
        self.X = X
        self.kernel = kernel
        self.shape = (n, n)
        self.reference = X.data if xa.is_sparse(X) else X
        self.dtype = xa.numpy_dtype(self.reference)
        self.ridge = self._as_vector(ridge)
        self.cache = cache
        self._tiles = lower_tiles(slices(n, tile_edge(X)))
        self._stored: dict[tuple[int, int], Array] = {}

    def _as_vector(self, ridge: Any) -> Array:
        vector = xa.zeros((self.shape[0],), self.reference)
        vector += xa.like(ridge, self.reference)
        return vector

    def _tile(self, rows: slice, columns: slice, buffer: Array) -> Array:
        key = (rows.start, columns.start)
        if key in self._stored:
            return self._stored[key]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if self.cache:
            buffer = xa.empty(shape, self.reference)
        tile = self.kernel.block(self.X, rows, columns, out=buffer[: shape[0], : shape[1]])
        if self.cache:
            self._stored[key] = tile
        return tile

    def __matmul__(self, V: Array) -> Array:
        workers = max(1, min(workers_for(self.kernel, self.X), len(self._tiles)))
        edge = min(tile_edge(self.X), self.shape[0])

        def work(k: int) -> Array:
            out = xa.zeros(tuple(V.shape), V)
            buffer = None if self.cache else xa.empty((edge, edge), self.reference)
            for rows, columns in self._tiles[k::workers]:
                tile = self._tile(rows, columns, buffer)
                out[rows] += tile @ V[columns]
                if rows != columns:
                    out[columns] += tile.T @ V[rows]
            return out

        total, *others = run(work, workers)
        for other in others:
            total += other
        total += self.ridge[:, None] * V
        return total

    def rows(self, idx: np.ndarray, out: Array = None) -> Array:
        """The rows `idx`, ridge included: a `(b, n)` block, into `out` where given, from the cache if there is one."""
        idx = np.asarray(idx)
        block = self._cached_rows(idx, out) if self.cache else self._computed_rows(idx, out)
        at = xa.indices(np.arange(len(idx)), self.reference), xa.indices(idx, self.reference)
        block[at] += xa.take_rows(self.ridge, idx)
        return block

    def _computed_rows(self, idx: np.ndarray, out: Array) -> Array:
        if not self.kernel.separable:
            return self.kernel.block(self.X, idx, slice(None), out=out)
        return evaluate(self.kernel, xa.take_rows(self.X, idx), self.X, out=out)

    def _fill(self) -> None:
        """Compute the tiles that no product has visited yet."""
        missing = [(r, c) for r, c in self._tiles if (r.start, c.start) not in self._stored]

        def compute(tile: tuple[slice, slice]) -> None:
            self._tile(*tile, None)

        share(missing, compute, workers_for(self.kernel, self.X))

    def _cached_rows(self, idx: np.ndarray, out: Array) -> Array:
        if len(self._stored) < len(self._tiles):
            self._fill()
        block = xa.empty((len(idx), self.shape[0]), self.reference) if out is None else out
        for (row, column), tile in self._stored.items():
            height, width = tile.shape
            here = np.flatnonzero((idx >= row) & (idx < row + height))
            if here.size:
                at = xa.indices(here, block)
                block[at, column : column + width] = xa.take_rows(tile, idx[here] - row)
            there = np.flatnonzero((idx >= column) & (idx < column + width))
            if there.size and row != column:
                at = xa.indices(there, block)
                block[at, row : row + height] = tile[:, xa.indices(idx[there] - column, tile)].T
        return block

    def forget(self) -> None:
        """Give the cache's memory back; products compute their tiles from here on."""
        self.cache = False
        self._stored.clear()

    def diag(self) -> Array:
        """The diagonal, ridge included."""
        return xa.like(self.kernel.diag(self.X), self.reference) + self.ridge

    def dense(self, dtype: Any = None) -> Array:
        """The whole matrix in `dtype` (its own by default), ridge included, both triangles filled."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        A = xa.empty(self.shape, self.reference, dtype)
        # A look-up is converted as it is copied; points are converted first, to compute in the better precision.
        same = xa.numpy_dtype(self.reference) == dtype or not self.kernel.separable
        X = self.X if same else xa.astype(self.X, dtype)

        def work(k: int) -> None:
            for rows, columns in self._tiles[k::workers]:
                self.kernel.block(X, rows, columns, out=A[rows, columns])
                if rows != columns:
                    A[columns, rows] = A[rows, columns].T

        workers = max(1, min(workers_for(self.kernel, self.X), len(self._tiles)))
        run(work, workers)
        return xa.add_diagonal_(A, xa.astype(self.ridge, dtype))


def nbytes_cached(n: int, itemsize: int, edge: int) -> int:
    """Bytes of one triangle of tiles."""
    parts = -(-n // edge)
    return int(n * n / 2 + parts * edge * edge / 2) * itemsize if parts > 1 else n * n * itemsize
