"""Products with a few columns: of symmetric matrices from their lower tiles, and of tall matrices with float64 sums.

    CompiledSums, BlasSums         A V, where each thread sums the products of its tiles for both triangles of A
    product, transposed_product    C W and C^T V in float64 for a float32 matrix C, which is not copied to float64

The compiled loops of `_core.compiled.tile_loops` need AVX-512 or AVX2; `PaddedColumns` stores the right-hand side in the two
layouts that the loops read. The loops read a tile once for both triangles of A; BLAS reads a tile twice and packs it first
(`benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeGuard, TypeVar

import numpy as np
import scipy.linalg

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads, run_threads, slices
from gramless.linalg.tuning import TUNING

T = TypeVar("T")
Halves = tuple[np.ndarray, np.ndarray]
"""Right-hand sides or sums: an array for the rows of a tile, and an array for the columns of the tile."""

PANEL = 16
"""Tiles for the compiled loops start at a multiple of this number of rows."""


def can_compile(V: Array, n_entries: int, dtype: np.dtype) -> bool:
    """Return whether to load and use compiled loops for products of `V` with a matrix of `n_entries` entries of `dtype`."""
    if not isinstance(V, np.ndarray) or V.dtype not in (np.float32, np.float64):
        return False
    if n_entries < TUNING.min_entries_to_compile:
        return False
    from gramless._core.compiled.simd import lanes

    # With 16 vector registers the loops read a tile again for a second group of columns; BLAS does not.
    short_of_registers = lanes() == 8 and V.dtype == dtype and V.shape[1] > 12
    return lanes() > 0 and not short_of_registers


class PaddedColumns:
    """The right-hand side in groups of columns and two layouts: by rows, and in panels of a few rows stored by columns.

    A few columns are converted to float64, because reading the matrix takes longer than multiplying in either precision.
    """

    def __init__(self, V: np.ndarray):
        from gramless._core.compiled.simd import LANES
        from gramless._core.compiled.tile_loops import WIDTHS

        n, k = self.shape = V.shape
        self.dtype = V.dtype
        V = V.astype(np.float64) if k <= TUNING.max_narrow_columns else V
        self.lanes = LANES * 4 // V.itemsize
        # Use the smallest width that fits all columns, else the width with the fewest padded columns (the larger if equal).
        fitting = [width for width in WIDTHS if width >= k]
        self.width = fitting[0] if fitting else min(WIDTHS[-2:], key=lambda width: (-(-k // width) * width, -width))
        self.groups = -(-k // self.width)
        self._padded = np.zeros((-(-n // self.lanes) * self.lanes, self.groups * self.width), V.dtype)
        self._padded[:n, :k] = V

    @cached_property
    def rows(self) -> np.ndarray:
        return _in_lines(self._padded.reshape(len(self._padded), self.groups, -1).transpose(1, 0, 2))

    @cached_property
    def panels(self) -> np.ndarray:
        return _in_lines(self._padded.reshape(-1, self.lanes, self.groups, self.width).transpose(2, 0, 3, 1))

    def from_rows(self, sums: np.ndarray, n: int) -> np.ndarray:
        """Return sums in the layout `rows`, for `n` matrix rows, as an array with one column per right-hand side."""
        return sums.transpose(1, 0, 2).reshape(sums.shape[1], -1)[:n, : self.shape[1]]

    def from_panels(self, sums: np.ndarray, n: int) -> np.ndarray:
        """Return sums in the layout `panels`, for `n` matrix columns, as an array with one column per right-hand side."""
        return sums.transpose(1, 3, 0, 2).reshape(sums.shape[1] * sums.shape[3], -1)[:n, : self.shape[1]]

    def add(self, tile: np.ndarray, rows: slice, columns: slice, V: Halves, out: Halves, right: bool, left: bool) -> None:
        """Add the products of a tile, whose `rows` and `columns` start at a panel, with each group of right-hand sides."""
        from gramless._core.compiled.tile_loops import add_products

        panels = slice(columns.start // self.lanes, -(-columns.stop // self.lanes))
        for own, other, own_sums, other_sums in zip(*V, *out, strict=True):
            add_products(tile, own[rows], other[panels], own_sums[rows], other_sums[panels], right, left)


def _in_lines(A: np.ndarray) -> np.ndarray:
    """Return a contiguous copy aligned to a cache line."""
    copy = xa.empty_aligned(A.shape, A.dtype)
    copy[...] = A
    return copy


class CompiledSums:
    """The part of `A V` that one thread computes with the compiled loops."""

    def __init__(self, V: PaddedColumns):
        self.V = V
        self.sums = np.zeros_like(V.rows), np.zeros_like(V.panels)

    def add(self, tile: Array, rows: slice, columns: slice) -> None:
        """Add the products of a tile and, if it is not on the diagonal, of its transpose."""
        factors = self.V.rows, self.V.panels
        self.V.add(tile, rows, columns, factors, self.sums, True, rows != columns)

    def total(self) -> np.ndarray:
        """Return the sums in the shape and precision of the right-hand side."""
        (rows, panels), n = self.sums, self.V.shape[0]
        total: np.ndarray = self.V.from_panels(panels, n) + self.V.from_rows(rows, n)
        return total.astype(self.V.dtype, copy=False)


class BlasSums:
    """The part of `A V` that one thread computes with matrix products, for any array type and precision."""

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
    """Return whether compiled loops compute the float64 product of `C`, part of a matrix of `n_entries` entries, and `V`."""
    if not isinstance(C, np.ndarray) or C.dtype != np.float32 or C.strides[1] != C.itemsize or not C.size:
        return False
    return V.shape[1] <= TUNING.max_compiled_double_columns and can_compile(V, max(C.size, n_entries), C.dtype)


class InDouble:
    """Convert arrays to float64 in one reused buffer, since page faults of new memory take longer than the conversion."""

    def __init__(self) -> None:
        self._buffer: np.ndarray | None = None

    def __call__(self, part: Array, weights: Array | None = None) -> Array:
        if weights is None and (xa.is_torch(part) or part.dtype == np.float64):
            return xa.astype(part, np.float64)
        scale = 1.0 if weights is None else weights[:, None]
        if not isinstance(part, np.ndarray):
            return xa.astype(part, np.float64) * scale
        if self._buffer is None:
            self._buffer = np.empty(part.shape)
        return np.multiply(part, scale, out=self._buffer[: len(part)])


def product(C: Array, W: Array, n_entries: int = 0, in_double: InDouble | None = None) -> Array:
    """Return `C W` with `W` and the sums in float64; `in_double` has a buffer for a float64 copy of `C`."""
    if not compiles(C, W, n_entries):
        return (in_double or InDouble())(C) @ W
    # `ends` are factors and sums at once: without the transposed product, the loops read only panels and write only rows.
    columns, m = PaddedColumns(xa.to_numpy(W)), slice(0, C.shape[1])
    out = np.zeros((columns.groups, len(C), columns.width), columns.panels.dtype)
    ends = out, columns.panels
    _for_each_part(len(C), lambda rows: columns.add(C[rows], rows, m, ends, ends, True, False))
    return columns.from_rows(out, len(C))


def transposed_product(C: Array, V: Array, n_entries: int = 0, in_double: InDouble | None = None) -> Array:
    """Return `C^T V` with `V` and the sums in float64; `in_double` has a buffer for a float64 copy of `C`."""
    if not compiles(C, V, n_entries):
        return (in_double or InDouble())(C).T @ V
    columns, m = PaddedColumns(xa.to_numpy(V)), C.shape[1]

    def work(part: slice) -> np.ndarray:
        ends = (
            columns.rows,
            np.zeros((columns.groups, -(-m // columns.lanes), columns.width, columns.lanes), columns.rows.dtype),
        )
        columns.add(C[part], part, slice(0, m), ends, ends, False, True)
        return ends[1]

    total, *others = _for_each_part(len(C), work)
    for other in others:
        total += other
    return columns.from_panels(total, m)


def product_from_upper(A: np.ndarray, diagonal: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return `A W` in float64 from the strict upper triangle of a symmetric `A` and its diagonal."""
    if A.dtype == np.float64:
        (symm,) = scipy.linalg.get_blas_funcs(("symm",), (A, W))
        # A.T is column-major without a copy; its lower triangle is the upper triangle of A.
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
    """Return the results of `work(rows)` for equal parts of `n` rows, with one thread for each part."""
    parts = slices(n, -(-n // blas_threads()))
    return run_threads(lambda k: work(parts[k]), len(parts), blas=False)
