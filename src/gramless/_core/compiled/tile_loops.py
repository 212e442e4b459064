"""Compiled products of one tile with a few columns, from both sides; imported only where the processor has AVX-512 or AVX2.

    out_rows += T V_columns        out_columns += T^T V_rows

The tile of a symmetric matrix serves both halves. BLAS packs its operands before it multiplies, which costs as much as the
product when there are a dozen columns, and reads the tile once for each half. Here a strip of rows that fits the cache is
multiplied from the right and from the left while it is there: two rows (or vectors of columns) by eight or twelve columns of
sums in registers. The 16 registers of AVX2 take one row by eight columns, or two by six and then by the other six, so that
this half of the right-hand side stays in the first cache. Sums have the type of the columns; a tile in float32 is
widened on the way to columns in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, register_jitable

from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba
from gramless._core.compiled.subnormals import flush_subnormals, restore_subnormals

WIDTHS = (8, 12)
"""Columns that are multiplied together."""
_STRIP = 64


@register_jitable
def _shape(width: int) -> tuple[int, int]:
    """Rows, or vectors, that are multiplied together, and in how many parts the columns are: sums for every register."""
    if _simd.LANES == 16:
        return 2, 1
    return (2, 2) if width == 12 else (1, 1)


def _vectors(entry: Any, number: Any) -> tuple[Any, Any]:
    """How entries of the tile are loaded and how they are summed, for a tile and columns of these types."""
    if number == types.float32:
        return _simd.FLOATS, _simd.FLOATS
    return _simd.DOUBLES if entry == types.float64 else _simd.HALF_FLOATS, _simd.DOUBLES


def _load_entries(builder: Any, base: Any, stored: Any, summed: Any) -> Any:
    entries = _simd.load(builder, base, stored)
    return entries if stored == summed else builder.fpext(entries, summed)


def _add_outer(builder: Any, entries: Any, factor: Callable[[int], Any], sums: Any) -> list[Any]:
    """`sums[r][c] + entries[r] * factor(c)` for some vectors of the tile and a factor for each column."""
    new: list[Any] = [None] * len(sums)
    width = len(sums) // len(entries)
    for c in range(width):
        column = factor(c)
        for r in range(len(entries)):
            place = r * width + c
            name = f"llvm.fma.{_simd.suffix(column.type)}"
            new[place] = _simd.call(builder, name, column.type, entries[r], column, sums[place])
    return new


@intrinsic(prefer_literal=True)
def _times_rows(
    context: Any, rows: Any, stride: Any, packed: Any, steps: Any, out: Any, entry: Any, number: Any, width: Any
) -> Any:
    """`out[r][width] += rows[r] @ V` for the rows together, V packed as [steps][width][lanes].

    One part of the columns, that which begins at the addresses; `entry` and `number` are of the tile's and of V's type.
    """
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, entry, number, width)
    stored, summed = _vectors(entry, number)
    columns = width.literal_value
    together, parts = _shape(columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = _simd.pointer(builder, arguments[0], stored.element)
        rows = [_simd.at(builder, first, _simd.times(builder, arguments[1], r)) for r in range(together)]
        # A row is a page of memory or more, and the processor does not look beyond a page by itself.
        following = [_simd.at(builder, row, _simd.times(builder, arguments[1], together)) for row in rows]
        packed, out = (_simd.pointer(builder, arguments[i], summed.element) for i in (2, 4))

        def step(k: Any, sums: Any) -> list[Any]:
            along = _simd.times(builder, k, summed.count)
            entries = [_load_entries(builder, _simd.at(builder, row, along), stored, summed) for row in rows]
            for row in following:
                _simd.prefetch(builder, _simd.at(builder, row, along))
            here = _simd.at(builder, packed, _simd.times(builder, k, summed.count * columns))
            return _add_outer(
                builder, entries, lambda c: _simd.load(builder, _simd.at(builder, here, summed.count * c), summed), sums
            )

        part = columns // parts
        for place, value in enumerate(_simd.accumulate(builder, arguments[3], together * part, summed, step)):
            target = _simd.at(builder, out, place // part * columns + place % part)
            builder.store(_simd.add_lanes(builder, value, builder.load(target)), target)
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def _times_vectors(
    context: Any, corner: Any, stride: Any, factors: Any, steps: Any, out: Any, entry: Any, number: Any, width: Any
) -> Any:
    """`out[r][width][lanes] += T[:, r lanes : (r + 1) lanes]^T @ V`, V as rows of `width`.

    One part of the columns, and types, as in `_times_rows`.
    """
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, entry, number, width)
    stored, summed = _vectors(entry, number)
    columns = width.literal_value
    together, parts = _shape(columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        corner = _simd.pointer(builder, arguments[0], stored.element)
        factors, out = (_simd.pointer(builder, arguments[i], summed.element) for i in (2, 4))

        def step(k: Any, sums: Any) -> list[Any]:
            row = _simd.at(builder, corner, builder.mul(k, arguments[1]))
            places = [_simd.at(builder, row, summed.count * r) for r in range(together)]
            entries = [_load_entries(builder, place, stored, summed) for place in places]
            here = _simd.at(builder, factors, _simd.times(builder, k, columns))
            return _add_outer(
                builder, entries, lambda c: _simd.broadcast(builder, builder.load(_simd.at(builder, here, c))), sums
            )

        part = columns // parts
        for place, value in enumerate(_simd.accumulate(builder, arguments[3], together * part, summed, step)):
            target = _simd.at(builder, out, summed.count * (place // part * columns + place % part))
            _simd.store(builder, builder.fadd(_simd.load(builder, target, summed), value), target)
        return context.get_dummy_value()

    return signature, generate


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

    `rows` and `out_rows` belong to the tile's rows and have shape (height, columns), where columns is one of `WIDTHS`;
    `packed` and `out_packed` belong to its columns and have shape (width / lanes, columns, lanes), where lanes is
    `simd.LANES` for float32 and half of it for float64.
    """
    height, width = T.shape
    columns, lanes, entry, number = packed.shape[1], packed.shape[2], T.dtype.type(0), packed.dtype.type(0)
    mode: Any = flush_subnormals()  # type: ignore[call-arg]
    together, parts = _shape(columns)
    stride, part = T.strides[0] // T.itemsize, columns // parts
    even, whole = height - height % together, width - width % (together * lanes)
    # Addresses: an array made by slicing would be counted in and out, a locked addition each.
    tile, of_rows, of_columns = T.ctypes.data, rows.ctypes.data, packed.ctypes.data
    to_rows, to_columns, size = out_rows.ctypes.data, out_packed.ctypes.data, rows.itemsize
    for start in range(0, even, _STRIP):
        stop = min(even, start + _STRIP)
        for first in range(0, columns, part):
            here = of_columns + size * first * lanes
            for i in range(start, stop if right and whole else start, together):
                row, target = tile + T.itemsize * stride * i, to_rows + size * (columns * i + first)
                if columns == 8:
                    _times_rows(row, stride, here, whole // lanes, target, entry, number, 8)
                else:
                    _times_rows(row, stride, here, whole // lanes, target, entry, number, 12)
        for j in range(0, whole if left else 0, together * lanes):
            corner = tile + T.itemsize * (stride * start + j)
            for first in range(0, columns, part):
                here, target = of_rows + size * (columns * start + first), to_columns + size * (columns * j + first * lanes)
                if columns == 8:
                    _times_vectors(corner, stride, here, stop - start, target, entry, number, 8)
                else:
                    _times_vectors(corner, stride, here, stop - start, target, entry, number, 12)
    # What is left: columns beyond the last whole vectors, and rows beyond the last whole group.
    for i in range(height):
        for j in range(whole if i < even else 0, width):
            value, vector, lane = T[i, j], j // lanes, j % lanes
            for c in range(columns):
                if right:
                    out_rows[i, c] += value * packed[vector, c, lane]
                if left:
                    out_packed[vector, c, lane] += value * rows[i, c]
    restore_subnormals(mode)
