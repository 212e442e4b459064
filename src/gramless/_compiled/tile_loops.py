"""Compiled products of one tile with a few columns, from both sides; imported only where the processor has AVX-512 or AVX2.

    out_rows += T V_columns        out_columns += T^T V_rows

The tile of a symmetric matrix serves both halves. BLAS packs its operands before it multiplies, which costs as much as the
product when there are a dozen columns, and reads the tile once for each half. Here a strip of rows that fits the cache is
multiplied from the right and from the left while it is there: rows (or vectors of columns) by eight or twelve columns of
sums in registers, two at a time with the 32 registers of AVX-512, one with the 16 of AVX2. The tile is float32; with columns
in float64 its entries are widened on the way, and so are the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from gramless._compiled import simd as _simd
from gramless._compiled.compiler import numba

WIDTHS = (8, 12)
"""Columns that are multiplied together."""
_TOGETHER = 2 if _simd.LANES == 16 else 1
_STRIP = 64


def _vectors(number: Any) -> tuple[Any, Any]:
    """How entries of the tile are loaded and how they are summed, for columns of this type."""
    if number == types.float64:
        return _simd.HALF_FLOATS, _simd.DOUBLES
    return _simd.FLOATS, _simd.FLOATS


def _load_entries(builder: Any, base: Any, stored: Any, summed: Any) -> Any:
    entries = _simd.load(builder, base, stored)
    return entries if stored == summed else builder.fpext(entries, summed)


def _add_outer(builder: Any, entries: Any, factor: Callable[[int], Any], sums: Any) -> list[Any]:
    """`sums[r][c] + entries[r] * factor(c)` for some vectors of the tile and a factor for each column."""
    new: list[Any] = [None] * len(sums)
    width = len(sums) // _TOGETHER
    for c in range(width):
        column = factor(c)
        for r in range(_TOGETHER):
            place = r * width + c
            name = f"llvm.fma.{_simd.suffix(column.type)}"
            new[place] = _simd.call(builder, name, column.type, entries[r], column, sums[place])
    return new


@intrinsic(prefer_literal=True)
def _times_rows(context: Any, rows: Any, stride: Any, packed: Any, steps: Any, out: Any, number: Any, width: Any) -> Any:
    """`out[r][width] += rows[r] @ V` for the rows together, V packed as [steps][width][lanes]; `number` is of V's type."""
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, number, width)
    stored, summed = _vectors(number)
    columns = width.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = _simd.pointer(builder, arguments[0], _simd.F32)
        rows = [_simd.at(builder, first, _simd.times(builder, arguments[1], r)) for r in range(_TOGETHER)]
        # A row is a page of memory or more, and the processor does not look beyond a page by itself.
        following = [_simd.at(builder, row, _simd.times(builder, arguments[1], _TOGETHER)) for row in rows]
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

        for place, value in enumerate(_simd.accumulate(builder, arguments[3], _TOGETHER * columns, summed, step)):
            target = _simd.at(builder, out, place)
            builder.store(_simd.add_lanes(builder, value, builder.load(target)), target)
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def _times_vectors(
    context: Any, corner: Any, stride: Any, factors: Any, steps: Any, out: Any, number: Any, width: Any
) -> Any:
    """`out[r][width][lanes] += T[:, r lanes : (r + 1) lanes]^T @ V`, V as rows of `width`; `number` is of V's type."""
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, number, width)
    stored, summed = _vectors(number)
    columns = width.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        corner = _simd.pointer(builder, arguments[0], _simd.F32)
        factors, out = (_simd.pointer(builder, arguments[i], summed.element) for i in (2, 4))

        def step(k: Any, sums: Any) -> list[Any]:
            row = _simd.at(builder, corner, builder.mul(k, arguments[1]))
            places = [_simd.at(builder, row, summed.count * r) for r in range(_TOGETHER)]
            entries = [_load_entries(builder, place, stored, summed) for place in places]
            here = _simd.at(builder, factors, _simd.times(builder, k, columns))
            return _add_outer(
                builder, entries, lambda c: _simd.broadcast(builder, builder.load(_simd.at(builder, here, c))), sums
            )

        for place, value in enumerate(_simd.accumulate(builder, arguments[3], _TOGETHER * columns, summed, step)):
            target = _simd.at(builder, out, summed.count * place)
            _simd.store(builder, builder.fadd(_simd.load(builder, target, summed), value), target)
        return context.get_dummy_value()

    return signature, generate


@numba.njit(
    [
        "void(f4[:, :], f4[:, ::1], f4[:, :, ::1], f4[:, ::1], f4[:, :, ::1], b1, b1)",
        "void(f4[:, :], f8[:, ::1], f8[:, :, ::1], f8[:, ::1], f8[:, :, ::1], b1, b1)",
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
    columns, lanes, number = packed.shape[1], packed.shape[2], packed.dtype.type(0)
    stride = T.strides[0] // T.itemsize
    even, whole = height - height % _TOGETHER, width - width % (_TOGETHER * lanes)
    for start in range(0, even, _STRIP):
        stop = min(even, start + _STRIP)
        if right and whole:
            for i in range(start, stop, _TOGETHER):
                row, target = T[i:].ctypes.data, out_rows[i:].ctypes.data
                if columns == 8:
                    _times_rows(row, stride, packed.ctypes.data, whole // lanes, target, number, 8)  # type: ignore[call-arg]
                else:
                    _times_rows(row, stride, packed.ctypes.data, whole // lanes, target, number, 12)  # type: ignore[call-arg]
        if left:
            for j in range(0, whole, _TOGETHER * lanes):
                corner, target = T[start:, j:].ctypes.data, out_packed[j // lanes :].ctypes.data
                here = rows[start:].ctypes.data
                if columns == 8:
                    _times_vectors(corner, stride, here, stop - start, target, number, 8)  # type: ignore[call-arg]
                else:
                    _times_vectors(corner, stride, here, stop - start, target, number, 12)  # type: ignore[call-arg]
    # What is left: columns beyond the last whole vectors, and rows beyond the last whole group.
    for i in range(height):
        for j in range(whole if i < even else 0, width):
            value, vector, lane = T[i, j], j // lanes, j % lanes
            for c in range(columns):
                if right:
                    out_rows[i, c] += value * packed[vector, c, lane]
                if left:
                    out_packed[vector, c, lane] += value * rows[i, c]
