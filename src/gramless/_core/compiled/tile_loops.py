"""Compiled products of a matrix tile `T` and its transpose with a few columns; imported only with AVX-512 or AVX2.

    out_rows += T V_columns        out_columns += T^T V_rows

A tile of a symmetric matrix is multiplied twice, as a part of the lower and of the upper triangle. BLAS reads the tile for
each product and copies its operands first, which takes as long as the product if V has a dozen columns. These loops compute
both products of 32 rows of the tile (a strip) while the rows are in the cache. The sums for a few rows of T (or of T^T) and
all columns of V stay in registers. The 16 registers of AVX2 suffice for 8 sums, or for 12 sums of 2 rows and 6 columns; with
AVX2, 12 columns of V are therefore two groups of 6, of which one at a time stays in the first-level cache. Sums have the
dtype of V; a float32 tile is converted when it is multiplied with a float64 V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba

WIDTHS = (1, 2, 4, 6, 8, 12)
"""Numbers of columns of V for which the loops are compiled."""
_STRIP = 32  # rows of a tile that stay in the cache for both products


@register_jitable
def _shape(width: int) -> tuple[int, int]:
    """Return the number of rows (or vectors) of a register tile, and of groups into which `width` columns are split."""
    if width % 6 == 0:
        return (24 // width, 1) if _simd.LANES == 16 else (2, width // 6)
    return min(4, (16 if _simd.LANES == 16 else 8) // width), 1


def _load_entries(builder: Any, base: Any, stored: Any, summed: Any) -> Any:
    entries = _simd.load(builder, base, stored)
    return entries if stored == summed else builder.fpext(entries, summed)


def _add_outer(builder: Any, entries: Any, factor: Callable[[int], Any], sums: Any) -> list[Any]:
    """Return `sums[r][c] + entries[r] * factor(c)` for all vectors `entries` of the tile and all columns c."""
    new: list[Any] = [None] * len(sums)
    width = len(sums) // len(entries)
    for c in range(width):
        column = factor(c)
        for r in range(len(entries)):
            place = r * width + c
            name = f"llvm.fma.{_simd.suffix(column.type)}"
            new[place] = _simd.call(builder, name, column.type, entries[r], column, sums[place])
    return new


def _multiply_rows(
    builder: Any, first: Any, stride: Any, packed: Any, steps: Any, out: Any, stored: Any, summed: Any, width: int
) -> None:
    """Compute `out[r][width] += rows[r] @ V` for the rows of a register tile, with V packed as [steps][width][lanes]."""
    tile_rows, n_groups = _shape(width)
    rows = [_simd.at(builder, first, _simd.times(builder, stride, r)) for r in range(tile_rows)]
    # The next rows are prefetched explicitly, because a row takes at least one memory page and processors do not prefetch
    # across pages.
    following = [_simd.at(builder, row, _simd.times(builder, stride, tile_rows)) for row in rows]

    def step(k: Any, sums: Any) -> list[Any]:
        along = _simd.times(builder, k, summed.count)
        entries = [_load_entries(builder, _simd.at(builder, row, along), stored, summed) for row in rows]
        for row in following:
            _simd.prefetch(builder, _simd.at(builder, row, along))
        here = _simd.at(builder, packed, _simd.times(builder, k, summed.count * width))
        return _add_outer(
            builder, entries, lambda c: _simd.load(builder, _simd.at(builder, here, summed.count * c), summed), sums
        )

    group = width // n_groups
    for place, value in enumerate(_simd.accumulate(builder, steps, tile_rows * group, summed, step)):
        target = _simd.at(builder, out, place // group * width + place % group)
        builder.store(_simd.add_lanes(builder, value, builder.load(target)), target)


def _multiply_vectors(
    builder: Any, corner: Any, stride: Any, factors: Any, steps: Any, out: Any, stored: Any, summed: Any, width: int
) -> None:
    """Compute `out[r][width][lanes] += T[:, r lanes : (r + 1) lanes]^T @ V`, with V of shape (steps, width)."""
    tile_vectors, n_groups = _shape(width)

    def step(k: Any, sums: Any) -> list[Any]:
        row = _simd.at(builder, corner, builder.mul(k, stride))
        places = [_simd.at(builder, row, summed.count * r) for r in range(tile_vectors)]
        entries = [_load_entries(builder, place, stored, summed) for place in places]
        for place in places:
            _simd.prefetch(builder, _simd.at(builder, place, summed.count * tile_vectors))
        here = _simd.at(builder, factors, _simd.times(builder, k, width))
        return _add_outer(
            builder, entries, lambda c: _simd.broadcast(builder, builder.load(_simd.at(builder, here, c))), sums
        )

    group = width // n_groups
    for place, value in enumerate(_simd.accumulate(builder, steps, tile_vectors * group, summed, step)):
        target = _simd.at(builder, out, summed.count * (place // group * width + place % group))
        _simd.store(builder, builder.fadd(_simd.load(builder, target, summed), value), target)


_times_rows = _simd.product(_multiply_rows, WIDTHS)
_times_vectors = _simd.product(_multiply_vectors, WIDTHS)


@numba.njit(
    [
        "void(f4[:, :], f4[:, ::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1], b1, b1)",
        "void(f4[:, :], f8[:, ::1], f8[:, :, ::1], f8[:, ::1], f8[:, :, ::1], b1, b1)",
        "void(f8[:, :], f8[:, ::1], f8[:, :, ::1], f8[:, ::1], f8[:, :, ::1], b1, b1)",
    ],
    cache=True,
    nogil=True,
)
def add_products(
    T: np.ndarray,
    rows: np.ndarray,
    packed: np.ndarray,
    out_rows: np.ndarray,
    out_packed: np.ndarray,
    right: bool,
    left: bool,
) -> None:
    """With `right`, add `T V` to `out_rows`; with `left`, add `T^T V` to `out_packed`.

    `rows` (the rows of V for the rows of the tile) and `out_rows` have shape (height, columns), where columns is one of
    `WIDTHS`; `packed` (the rows of V for the columns of the tile) and `out_packed` have shape (width / lanes, columns,
    lanes), where lanes is `simd.LANES` for float32 and `simd.LANES / 2` for float64.
    """
    height, width = T.shape
    columns, lanes, entry, number = packed.shape[1], packed.shape[2], T.dtype.type(0), packed.dtype.type(0)
    mode: Any = _simd.flush_subnormals()  # type: ignore[call-arg]
    tile_rows, n_groups = _shape(columns)
    stride, group = T.strides[0] // T.itemsize, columns // n_groups
    tiled_rows, tiled_columns = height - height % tile_rows, width - width % (tile_rows * lanes)
    # The loops use addresses instead of array slices, because numba counts references to each slice with atomic operations.
    tile, of_rows, of_columns = T.ctypes.data, rows.ctypes.data, packed.ctypes.data
    to_rows, to_columns, size = out_rows.ctypes.data, out_packed.ctypes.data, rows.itemsize
    for start in range(0, tiled_rows, _STRIP):
        stop = min(tiled_rows, start + _STRIP)
        for first in range(0, columns, group):
            here = of_columns + size * first * lanes
            for i in range(start, stop if right and tiled_columns else start, tile_rows):
                row, target = tile + T.itemsize * stride * i, to_rows + size * (columns * i + first)
                _times_rows(row, stride, here, tiled_columns // lanes, target, entry, number, columns)
        for j in range(0, tiled_columns if left else 0, tile_rows * lanes):
            corner = tile + T.itemsize * (stride * start + j)
            for first in range(0, columns, group):
                here, target = of_rows + size * (columns * start + first), to_columns + size * (columns * j + first * lanes)
                _times_vectors(corner, stride, here, stop - start, target, entry, number, columns)
    # These loops compute the remaining columns and rows, which fill no complete vector or register tile.
    for i in range(height):
        for j in range(tiled_columns if i < tiled_rows else 0, width):
            value, vector, lane = T[i, j], j // lanes, j % lanes
            for c in range(columns):
                if right:
                    out_rows[i, c] += value * packed[vector, c, lane]
                if left:
                    out_packed[vector, c, lane] += value * rows[i, c]
    _simd.restore_subnormals(mode)
