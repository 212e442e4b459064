"""Float32 tiles times a few columns: a symmetric matrix by its lower tiles, and tall matrices with sums in float64.

    CompiledSums, BlasSums      A V, where each thread adds up its tiles' products for both halves of A
    product, transposed_product C W and C^T V in float64 for a float32 matrix C, which is never copied to float64

The compiled loops are those of `_compiled.tile_loops`, for processors with AVX-512 or AVX2; `Columns` holds the right-hand
side in the two layouts that they read. With eleven columns and AVX-512 they take half the time of BLAS for the first and a
quarter for the second (`benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeGuard

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import blas_threads, run, slices

PANEL = 16
"""Tiles for the compiled loops start at a multiple of as many rows."""

# Fewer columns leave most of a register tile empty: BLAS is as fast.
_FEWEST_COLUMNS = 3
# Loading the compiled loops takes a second once: a matrix with fewer entries is not worth it.
_MANY_ENTRIES = 1 << 22


def can_compile(V: Array, n_entries: int) -> bool:
    """Whether the compiled loops take these columns, for a matrix of some size: NumPy, vector units, more than a few."""
    if not isinstance(V, np.ndarray) or V.dtype not in (np.float32, np.float64):
        return False
    if V.shape[1] < _FEWEST_COLUMNS or n_entries < _MANY_ENTRIES:
        return False
    from gramless._compiled.simd import lanes

    # With 16 registers a second group of columns reads the tile again at the rate of the first; BLAS does not.
    short_of_registers = lanes() == 8 and V.dtype == np.float32 and V.shape[1] > 12
    return lanes() > 0 and not short_of_registers


class Columns:
    """The right-hand side, twelve columns at a time: as rows, and as panels of a few rows with the columns first."""

    def __init__(self, V: np.ndarray):
        from gramless._compiled.simd import LANES
        from gramless._compiled.tile_loops import COLUMNS

        n, k = V.shape
        self.shape = (n, k)
        self.lanes = LANES * 4 // V.itemsize
        self.groups = -(-k // COLUMNS)
        self._padded = np.zeros((-(-n // self.lanes) * self.lanes, self.groups * COLUMNS), V.dtype)
        self._padded[:n, :k] = V

    @cached_property
    def rows(self) -> np.ndarray:
        return np.ascontiguousarray(self._padded.reshape(len(self._padded), self.groups, -1).transpose(1, 0, 2))

    @cached_property
    def panels(self) -> np.ndarray:
        cut = self._padded.reshape(-1, self.lanes, self.groups, self._padded.shape[1] // self.groups)
        return np.ascontiguousarray(cut.transpose(2, 0, 3, 1))


def _from_rows(rows: np.ndarray, n: int, k: int) -> np.ndarray:
    return rows.transpose(1, 0, 2).reshape(rows.shape[1], -1)[:n, :k]


def _from_panels(panels: np.ndarray, n: int, k: int) -> np.ndarray:
    return panels.transpose(1, 3, 0, 2).reshape(panels.shape[1] * panels.shape[3], -1)[:n, :k]


class CompiledSums:
    """One thread's part of `A V`."""

    def __init__(self, columns: Columns):
        self.columns = columns
        self.rows = np.zeros_like(columns.rows)
        self.panels = np.zeros_like(columns.panels)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add both halves' products of a tile; `columns` starts at a whole panel."""
        from gramless._compiled.tile_loops import add_products

        V, block = self.columns, xa.known_numpy(tile)
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
    """Whether products of `C` and `V` run in the compiled loops, which make no copy of `C`."""
    return isinstance(C, np.ndarray) and C.dtype == np.float32 and C.strides[1] == C.itemsize and can_compile(V, C.size)


def product(C: Array, W: Array) -> Array:
    """`C W` with `W` and the sums in float64."""
    if not compiles(C, W):
        return xa.astype(C, np.float64) @ W
    from gramless._compiled.tile_loops import COLUMNS, add_products

    columns = Columns(xa.to_numpy(W))
    out = np.zeros((columns.groups, len(C), COLUMNS))

    def work(part: slice) -> None:
        for g in range(columns.groups):
            rows, panels = out[g, part], columns.panels[g]
            add_products(C[part], rows, panels, rows, panels, True, False)

    parts = _parts(len(C))
    run(lambda k: work(parts[k]), len(parts))
    return _from_rows(out, len(C), W.shape[1])


def transposed_product(C: Array, V: Array) -> Array:
    """`C^T V` with `V` and the sums in float64."""
    if not compiles(C, V):
        return xa.astype(C, np.float64).T @ V
    from gramless._compiled.tile_loops import COLUMNS, add_products

    columns = Columns(xa.to_numpy(V))
    panels = -(-C.shape[1] // columns.lanes)

    def work(part: slice) -> np.ndarray:
        out = np.zeros((columns.groups, panels, COLUMNS, columns.lanes))
        for g in range(columns.groups):
            rows = columns.rows[g, part]
            add_products(C[part], rows, out[g], rows, out[g], False, True)
        return out

    parts = _parts(len(C))
    total, *others = run(lambda k: work(parts[k]), len(parts))
    for other in others:
        total += other
    return _from_panels(total, C.shape[1], V.shape[1])


def _parts(n: int) -> list[slice]:
    """Rows for each thread."""
    return slices(n, -(-n // blas_threads()))
