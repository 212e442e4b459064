"""Tiles times a few columns: a symmetric matrix by its lower tiles, and tall matrices with sums in float64.

    NarrowSums, CompiledSums, BlasSums  A V, where each thread adds up its tiles' products for both halves of A
    product, transposed_product         C W and C^T V in float64 for a float32 matrix C, which is never copied to float64

The compiled loops are for processors with AVX-512 or AVX2: those of `_compiled.narrow_products` for up to six columns, with
sums in float64 throughout, those of `_compiled.tile_loops` for more, where `Columns` holds the right-hand side in the two
layouts that they read. A tile is read once for both halves; BLAS reads it twice and packs it first
(`benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeGuard

import numpy as np
import scipy.linalg

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads, run_threads, slices

PANEL = 16
"""Tiles for the compiled loops start at a multiple of as many rows."""

# More columns than these are summed eight or twelve at a time in registers.
_MOST_NARROW = 6
# Beyond so many columns BLAS, at twice the rate of the loops in float64, has earned the copy in float64 that it needs.
_MOST_IN_DOUBLE = 48
# Loading the compiled loops takes a second once: a matrix with fewer entries is not worth it.
_MANY_ENTRIES = 1 << 22
# Rows of a triangle that are multiplied together: their own corner of it is copied.
_ROWS_OF_TRIANGLE = 256


def can_compile(V: Array, n_entries: int, dtype: np.dtype) -> bool:
    """Whether the compiled loops take these columns, for a matrix of some size and type: NumPy, and vector units."""
    if not isinstance(V, np.ndarray) or V.dtype not in (np.float32, np.float64):
        return False
    if n_entries < _MANY_ENTRIES:
        return False
    from gramless._core.compiled.simd import lanes

    # With 16 registers a second group of columns reads the tile again at the rate of the first; BLAS does not.
    short_of_registers = lanes() == 8 and V.dtype == dtype and V.shape[1] > 12
    return lanes() > 0 and not short_of_registers


class Columns:
    """The right-hand side, 8 or 12 columns at a time: as rows, and as panels of a few rows with the columns first."""

    def __init__(self, V: np.ndarray):
        from gramless._core.compiled.simd import LANES
        from gramless._core.compiled.tile_loops import WIDTHS

        n, k = V.shape
        self.shape = (n, k)
        self.lanes = LANES * 4 // V.itemsize
        # The width that leaves the fewest columns empty, and of two such the larger one.
        self.width = min(WIDTHS, key=lambda width: (-(-k // width) * width, -width))
        self.groups = -(-k // self.width)
        self._padded = np.zeros((-(-n // self.lanes) * self.lanes, self.groups * self.width), V.dtype)
        self._padded[:n, :k] = V

    @cached_property
    def rows(self) -> np.ndarray:
        return _in_lines(self._padded.reshape(len(self._padded), self.groups, -1).transpose(1, 0, 2))

    @cached_property
    def panels(self) -> np.ndarray:
        cut = self._padded.reshape(-1, self.lanes, self.groups, self._padded.shape[1] // self.groups)
        return _in_lines(cut.transpose(2, 0, 3, 1))


def _in_lines(A: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins with a line of the cache."""
    copy = xa.empty_aligned(A.shape, A.dtype)
    copy[...] = A
    return copy


def _from_rows(rows: np.ndarray, n: int, k: int) -> np.ndarray:
    return rows.transpose(1, 0, 2).reshape(rows.shape[1], -1)[:n, :k]


def _from_panels(panels: np.ndarray, n: int, k: int) -> np.ndarray:
    return panels.transpose(1, 3, 0, 2).reshape(panels.shape[1] * panels.shape[3], -1)[:n, :k]


def compiled_sums(V: np.ndarray) -> Callable[[], NarrowSums | CompiledSums]:
    """What makes each thread's sums of products with these columns."""
    if V.shape[1] <= _MOST_NARROW:
        return partial(NarrowSums, np.ascontiguousarray(V.T, np.float64), V.dtype)
    return partial(CompiledSums, Columns(V))


class NarrowSums:
    """One thread's part of `A V` for very few columns, which come transposed and in float64.

    A cached matrix comes from memory, which takes as long as it takes to add up in float64.
    """

    def __init__(self, V: np.ndarray, dtype: np.dtype):
        self.V = V
        self.dtype = dtype
        self.sums = np.zeros_like(V)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add both halves' products of a tile."""
        _add_narrow(xa.cast_numpy(tile), rows, columns, self.V, self.V, self.sums, self.sums, True, rows != columns)

    def total(self) -> np.ndarray:
        """The sums in the shape of the right-hand side."""
        return np.ascontiguousarray(self.sums.T, self.dtype)


def _add_narrow(
    tile: np.ndarray,
    rows: slice,
    columns: slice,
    V_rows: np.ndarray,
    V_columns: np.ndarray,
    out_rows: np.ndarray,
    out_columns: np.ndarray,
    right: bool,
    left: bool,
) -> None:
    from gramless._core.compiled.narrow_products import add_narrow

    first = rows.start, columns.start
    add_narrow(*xa.as_flat(tile), tile.shape, first, V_rows, V_columns, out_rows, out_columns, right, left)


class CompiledSums:
    """One thread's part of `A V`."""

    def __init__(self, columns: Columns):
        self.columns = columns
        self.rows = np.zeros_like(columns.rows)
        self.panels = np.zeros_like(columns.panels)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add both halves' products of a tile; `columns` starts at a whole panel."""
        from gramless._core.compiled.tile_loops import add_products

        V, block = self.columns, xa.cast_numpy(tile)
        panels = slice(columns.start // V.lanes, -(-columns.stop // V.lanes))
        for g in range(V.groups):
            here, there = V.rows[g, rows], V.panels[g, panels]
            add_products(block, here, there, self.rows[g, rows], self.panels[g, panels], True, rows != columns)

    def total(self) -> np.ndarray:
        """The sums in the shape of the right-hand side."""
        total: np.ndarray = _from_panels(self.panels, *self.columns.shape) + _from_rows(self.rows, *self.columns.shape)
        return total


class BlasSums:
    """The same by matrix products, in any library and precision."""

    def __init__(self, V: Array):
        self.V = V
        self.sums = xa.zeros(tuple(V.shape), V)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        self.sums[rows] += tile @ self.V[columns]
        if rows != columns:
            self.sums[columns] += tile.T @ self.V[rows]

    def total(self) -> Array:
        return self.sums


def compiles(C: Array, V: Array) -> TypeGuard[np.ndarray]:
    """Whether products of `C` and `V`, in float64, run in the compiled loops, which make no copy of `C`."""
    if not isinstance(C, np.ndarray) or C.dtype != np.float32 or C.strides[1] != C.itemsize:
        return False
    return V.shape[1] <= _MOST_IN_DOUBLE and can_compile(V, C.size, C.dtype)


def product(C: Array, W: Array) -> Array:
    """`C W` with `W` and the sums in float64."""
    if not compiles(C, W):
        return xa.astype(C, np.float64) @ W
    if W.shape[1] <= _MOST_NARROW:
        return _narrow_product(C, xa.to_numpy(W))
    from gramless._core.compiled.tile_loops import add_products

    columns = Columns(xa.to_numpy(W))
    out = np.zeros((columns.groups, len(C), columns.width))

    def work(part: slice) -> None:
        for g in range(columns.groups):
            rows, panels = out[g, part], columns.panels[g]
            add_products(C[part], rows, panels, rows, panels, True, False)

    parts = _parts(len(C))
    run_threads(lambda k: work(parts[k]), len(parts))
    return _from_rows(out, len(C), W.shape[1])


def transposed_product(C: Array, V: Array) -> Array:
    """`C^T V` with `V` and the sums in float64."""
    if not compiles(C, V):
        return xa.astype(C, np.float64).T @ V
    if V.shape[1] <= _MOST_NARROW:
        return _narrow_transposed_product(C, xa.to_numpy(V))
    from gramless._core.compiled.tile_loops import add_products

    columns = Columns(xa.to_numpy(V))
    panels = -(-C.shape[1] // columns.lanes)

    def work(part: slice) -> np.ndarray:
        out = np.zeros((columns.groups, panels, columns.width, columns.lanes))
        for g in range(columns.groups):
            rows = columns.rows[g, part]
            add_products(C[part], rows, out[g], rows, out[g], False, True)
        return out

    parts = _parts(len(C))
    total, *others = run_threads(lambda k: work(parts[k]), len(parts))
    for other in others:
        total += other
    return _from_panels(total, C.shape[1], V.shape[1])


def product_from_upper(A: np.ndarray, diagonal: np.ndarray, W: np.ndarray) -> np.ndarray:
    """`A W` in float64 from the strict upper triangle of a symmetric `A` and its diagonal; no more of `A` is read."""
    if A.dtype == np.float64:
        (symm,) = scipy.linalg.get_blas_funcs(("symm",), (A, W))
        # A.T is column-major without a copy; its lower triangle is A's upper one.
        whole: np.ndarray = symm(1.0, A.T, W, lower=1)
        whole += (diagonal - np.diagonal(A))[:, None] * W
        return whole
    out: np.ndarray = diagonal.astype(np.float64)[:, None] * W
    for rows in slices(len(A), _ROWS_OF_TRIANGLE):
        beyond = slice(rows.stop, len(A))
        corner = np.triu(A[rows, rows], 1).astype(np.float64)
        out[rows] += corner @ W[rows] + corner.T @ W[rows]
        out[rows] += product(A[rows, beyond], W[beyond])
        out[beyond] += transposed_product(A[rows, beyond], W[rows])
    return out


def _narrow_product(C: np.ndarray, W: np.ndarray) -> np.ndarray:
    factors = np.ascontiguousarray(W.T)
    out = np.zeros((W.shape[1], len(C)))
    columns, parts = slice(0, C.shape[1]), _parts(len(C))

    def work(k: int) -> None:
        # Nothing is read from the rows' side, nor written to the columns'.
        _add_narrow(C[parts[k]], parts[k], columns, out, factors, out, factors, True, False)

    run_threads(work, len(parts), blas=False)
    return np.ascontiguousarray(out.T)


def _narrow_transposed_product(C: np.ndarray, V: np.ndarray) -> np.ndarray:
    factors = np.ascontiguousarray(V.T)
    columns, parts = slice(0, C.shape[1]), _parts(len(C))

    def work(k: int) -> np.ndarray:
        out = np.zeros((V.shape[1], C.shape[1]))
        _add_narrow(C[parts[k]], parts[k], columns, factors, out, factors, out, False, True)
        return out

    total, *others = run_threads(work, len(parts), blas=False)
    for other in others:
        total += other
    return np.ascontiguousarray(total.T)


def _parts(n: int) -> list[slice]:
    """Rows for each thread."""
    return slices(n, -(-n // blas_threads()))
