"""Products of tiles with a few columns: symmetric matrices by their lower tiles, and tall matrices with float64 sums.

    NarrowSums, CompiledSums, BlasSums  A V, where each thread sums the products of its tiles for both halves of A
    product, transposed_product         C W and C^T V in float64 for a float32 matrix C, which is not copied to float64

The compiled loops need AVX-512 or AVX2: those of `_core.compiled.narrow_products` are for up to six columns, with float64
sums, those of `_core.compiled.tile_loops` for more, where `PaddedColumns` has the right-hand side in the two layouts that
they read. A tile is read once for both halves; BLAS reads it twice and packs it first (`benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TypeGuard, TypeVar

import numpy as np
import scipy.linalg

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads, run_threads, slices
from gramless.linalg.tuning import TUNING

T = TypeVar("T")
Halves = tuple[np.ndarray, np.ndarray]
"""Columns that belong to the rows of a tile, and those that belong to its columns."""

PANEL = 16
"""Tiles for the compiled loops start at a multiple of this number of rows."""


def can_compile(V: Array, n_entries: int, dtype: np.dtype) -> bool:
    """Return whether the compiled loops can multiply a matrix with `n_entries` entries of `dtype` with the columns `V`."""
    if not isinstance(V, np.ndarray) or V.dtype not in (np.float32, np.float64):
        return False
    if n_entries < TUNING.min_entries_to_compile:
        return False
    from gramless._core.compiled.simd import lanes

    # With 16 registers the loops read the tile again for a second group of columns; BLAS does not.
    short_of_registers = lanes() == 8 and V.dtype == dtype and V.shape[1] > 12
    return lanes() > 0 and not short_of_registers


class PaddedColumns:
    """The right-hand side in groups of 8 or 12 columns: as rows, and as panels of a few rows with the columns first."""

    def __init__(self, V: np.ndarray):
        from gramless._core.compiled.simd import LANES
        from gramless._core.compiled.tile_loops import WIDTHS

        n, k = V.shape
        self.shape = (n, k)
        self.lanes = LANES * 4 // V.itemsize
        # The width with the fewest empty columns; if two widths have equally few, the larger one.
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
    """Return a contiguous copy aligned to a cache line."""
    copy = xa.empty_aligned(A.shape, A.dtype)
    copy[...] = A
    return copy


def _from_rows(rows: np.ndarray, n: int, k: int) -> np.ndarray:
    return rows.transpose(1, 0, 2).reshape(rows.shape[1], -1)[:n, :k]


def _from_panels(panels: np.ndarray, n: int, k: int) -> np.ndarray:
    return panels.transpose(1, 3, 0, 2).reshape(panels.shape[1] * panels.shape[3], -1)[:n, :k]


def compiled_sums(V: np.ndarray) -> Callable[[], NarrowSums | CompiledSums]:
    """Return a factory of the sums of one thread for these columns."""
    if V.shape[1] <= TUNING.max_narrow_columns:
        return partial(NarrowSums, np.ascontiguousarray(V.T, np.float64), V.dtype)
    return partial(CompiledSums, PaddedColumns(V))


class NarrowSums:
    """Part of `A V` of one thread for few columns, transposed and in float64, at the speed of reading the matrix."""

    def __init__(self, V: np.ndarray, dtype: np.dtype):
        self.V = V
        self.dtype = dtype
        self.sums = np.zeros_like(V)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add the products of a tile for both halves of the matrix."""
        _add_narrow(xa.cast_numpy(tile), rows, columns, (self.V,) * 2, (self.sums,) * 2, True, rows != columns)

    def total(self) -> np.ndarray:
        """Return the sums in the shape of the right-hand side."""
        return np.ascontiguousarray(self.sums.T, self.dtype)


def _add_narrow(tile: np.ndarray, rows: slice, columns: slice, V: Halves, out: Halves, right: bool, left: bool) -> None:
    """Call the compiled loop for the tile at these rows and columns of the matrix."""
    from gramless._core.compiled.narrow_products import add_narrow

    add_narrow(*xa.as_flat(tile), tile.shape, (rows.start, columns.start), *V, *out, right, left)


def _add_wide(tile: np.ndarray, V: Halves, out: Halves, right: bool, left: bool) -> None:
    """Call the compiled loop of each group of columns."""
    from gramless._core.compiled.tile_loops import add_products

    for rows, panels, row_sums, panel_sums in zip(*V, *out, strict=True):
        add_products(tile, rows, panels, row_sums, panel_sums, right, left)


class CompiledSums:
    """Part of `A V` of one thread, by the compiled loops."""

    def __init__(self, columns: PaddedColumns):
        self.columns = columns
        self.rows = np.zeros_like(columns.rows)
        self.panels = np.zeros_like(columns.panels)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add the products of a tile for both halves; `columns` starts at a panel."""
        V = self.columns
        panels = slice(columns.start // V.lanes, -(-columns.stop // V.lanes))
        factors, sums = (V.rows[:, rows], V.panels[:, panels]), (self.rows[:, rows], self.panels[:, panels])
        _add_wide(xa.cast_numpy(tile), factors, sums, True, rows != columns)

    def total(self) -> np.ndarray:
        """Return the sums in the shape of the right-hand side."""
        total: np.ndarray = _from_panels(self.panels, *self.columns.shape) + _from_rows(self.rows, *self.columns.shape)
        return total


class BlasSums:
    """Part of `A V` of one thread by matrix products, for any array type and precision."""

    def __init__(self, V: Array):
        self.V = V
        self.sums = xa.zeros(tuple(V.shape), V)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        self.sums[rows] += tile @ self.V[columns]
        if rows != columns:
            self.sums[columns] += tile.T @ self.V[rows]

    def total(self) -> Array:
        return self.sums


def compiles(C: Array, V: Array, n_entries: int = 0) -> TypeGuard[np.ndarray]:
    """Return whether float64 products of `C`, part of a matrix of `n_entries`, and `V` run in the compiled loops."""
    if not isinstance(C, np.ndarray) or C.dtype != np.float32 or C.strides[1] != C.itemsize:
        return False
    return V.shape[1] <= TUNING.max_compiled_double_columns and can_compile(V, max(C.size, n_entries), C.dtype)


def product(C: Array, W: Array, n_entries: int = 0) -> Array:
    """Return `C W` with `W` and the sums in float64."""
    if not compiles(C, W, n_entries):
        return xa.astype(C, np.float64) @ W
    # The row operand is not read, and the column result is not written.
    if W.shape[1] <= TUNING.max_narrow_columns:
        factors, sums = np.ascontiguousarray(xa.to_numpy(W).T), np.zeros((W.shape[1], len(C)))
        columns = slice(0, C.shape[1])
        _for_each_part(len(C), lambda i: _add_narrow(C[i], i, columns, (sums, factors), (sums, factors), True, False))
        return np.ascontiguousarray(sums.T)
    padded = PaddedColumns(xa.to_numpy(W))
    out, panels = np.zeros((padded.groups, len(C), padded.width)), padded.panels
    _for_each_part(len(C), lambda i: _add_wide(C[i], (out[:, i], panels), (out[:, i], panels), True, False))
    return _from_rows(out, len(C), W.shape[1])


def transposed_product(C: Array, V: Array, n_entries: int = 0) -> Array:
    """Return `C^T V` with `V` and the sums in float64."""
    if not compiles(C, V, n_entries):
        return xa.astype(C, np.float64).T @ V
    if V.shape[1] <= TUNING.max_narrow_columns:
        factors = np.ascontiguousarray(xa.to_numpy(V).T)

        def narrow(part: slice) -> np.ndarray:
            out = np.zeros((V.shape[1], C.shape[1]))
            _add_narrow(C[part], part, slice(0, C.shape[1]), (factors, out), (factors, out), False, True)
            return out

        return np.ascontiguousarray(_sum(_for_each_part(len(C), narrow)).T)
    padded = PaddedColumns(xa.to_numpy(V))
    shape = (padded.groups, -(-C.shape[1] // padded.lanes), padded.width, padded.lanes)

    def wide(part: slice) -> np.ndarray:
        out, rows = np.zeros(shape), padded.rows[:, part]
        _add_wide(C[part], (rows, out), (rows, out), False, True)
        return out

    return _from_panels(_sum(_for_each_part(len(C), wide)), C.shape[1], V.shape[1])


def product_from_upper(A: np.ndarray, diagonal: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return `A W` in float64 from the strict upper triangle of a symmetric `A` and its diagonal."""
    if A.dtype == np.float64:
        (symm,) = scipy.linalg.get_blas_funcs(("symm",), (A, W))
        # A.T is column-major without a copy; its lower triangle is A's upper one.
        whole: np.ndarray = symm(1.0, A.T, W, lower=1)
        whole += (diagonal - np.diagonal(A))[:, None] * W
        return whole
    out: np.ndarray = diagonal.astype(np.float64)[:, None] * W
    for rows in slices(len(A), TUNING.triangle_rows):
        beyond = slice(rows.stop, len(A))
        corner = np.triu(A[rows, rows], 1).astype(np.float64)
        out[rows] += corner @ W[rows] + corner.T @ W[rows]
        out[rows] += product(A[rows, beyond], W[beyond])
        out[beyond] += transposed_product(A[rows, beyond], W[rows])
    return out


def _for_each_part(n: int, work: Callable[[slice], T]) -> list[T]:
    """Return `work(rows)` for equal parts of `n` rows, one in each thread."""
    parts = slices(n, -(-n // blas_threads()))
    return run_threads(lambda k: work(parts[k]), len(parts), blas=False)


def _sum(arrays: Iterable[np.ndarray]) -> np.ndarray:
    total, *others = arrays
    for other in others:
        total += other
    return total
