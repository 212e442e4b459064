"""Compiled loops for rows kept as bytes; imported only where `_runtime.grid.has_integer_products`: LLVM ends the process
that compiles them for another processor.

`integer_products` cuts both sides into strips that a register tile of sums reads front to back. What multiplies depends on
the processor; the sums are the same, exactly:

    AVX-512 VNNI   vpdpbusd on 16 lanes: four products of bytes for each lane, 12 x 32 sums
    AVX-VNNI       the same on 8 lanes, 6 x 16 sums
    AVX2           vpmaddwd and an addition on 8 lanes: two products of 16 bits for each lane, 6 x 16 sums

`benchmarks/cpu_products.py` compares it with float32 matrix products.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramless._compiled import simd as _simd

_LANES = _simd.LANES
# Products of bytes where the processor has them (one side unsigned, the other signed), else of numbers of 16 bits.
_BYTES = _simd.available("avx512vnni") if _LANES == 16 else _simd.available("avxvnni")
_GROUP = 4 if _BYTES else 2
_TALL, _VECTORS = (12, 2) if _LANES == 16 else (6, 2)
_WIDE = _VECTORS * _LANES
# The signed side is shifted by 128, and what that takes away is added again.
_SHIFT = 128 if _BYTES else 0
_SIGN_BITS = np.int32(-0x7F7F7F80 if _BYTES else 0)
_LEVELS = 255
# Entries may be off the grid by as many roundings of the row's largest as centring and scaling an image make.
_ROUNDINGS = 4.0 * float(np.finfo(np.float32).eps)
_CHUNK = 64


def _add_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """`total` plus, in each lane, the products of the group of features that the lane holds."""
    if _BYTES:
        return _simd.call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * _LANES}", _simd.INTEGERS, total, left, right)
    halves = ir.VectorType(ir.IntType(16), 2 * _LANES)
    name = "llvm.x86.avx512.pmaddw.d.512" if _LANES == 16 else "llvm.x86.avx2.pmadd.wd"
    pairs = [builder.bitcast(side, halves) for side in (left, right)]
    return builder.add(total, _simd.call(builder, name, _simd.INTEGERS, *pairs))


@intrinsic
def _register_tile(context: Any, strip: Any, panel: Any, steps: Any, out: Any) -> Any:
    """`out[tall][wide]` = the integer products of a packed strip and a packed panel; arguments are addresses and a count."""
    signature = types.void(types.uintp, types.uintp, types.intp, types.uintp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        strip, panel = (_simd.pointer(builder, address, _simd.I32) for address in arguments[:2])
        out = _simd.pointer(builder, arguments[3], _simd.I32)

        def step(k: Any, sums: Any) -> list[Any]:
            here = _simd.at(builder, panel, _simd.times(builder, k, _WIDE))
            right = [_simd.load(builder, _simd.at(builder, here, _LANES * v), _simd.INTEGERS) for v in range(_VECTORS)]
            here = _simd.at(builder, strip, _simd.times(builder, k, _TALL))
            new = []
            for i in range(_TALL):
                left = _simd.broadcast(builder, builder.load(_simd.at(builder, here, i)))
                new += [_add_products(builder, sums[i * _VECTORS + v], left, right[v]) for v in range(_VECTORS)]
            return new

        sums = _simd.accumulate(builder, arguments[2], _TALL * _VECTORS, _simd.INTEGERS, step)
        for place, value in enumerate(sums):
            _simd.store(builder, value, _simd.at(builder, out, place * _LANES))
        return context.get_dummy_value()

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _packed(codes: np.ndarray, width: int, flip: np.int32) -> np.ndarray:
    """Groups of features of `width` rows side by side: shape (strips, steps, width), missing rows zero."""
    words = codes.view(np.int32)
    n, fours = words.shape
    out = np.empty((-(-n // width), fours * 4 // _GROUP, width), np.int32)
    for strip in range(out.shape[0]):
        there = out[strip]
        for k in range(fours):
            for i in range(width):
                row = strip * width + i
                word = words[row, k] if row < n else np.int32(0)
                if _GROUP == 4:
                    there[k, i] = word ^ flip
                else:
                    there[2 * k, i] = (word & 0xFF) | ((word & 0xFF00) << 8)
                    there[2 * k + 1, i] = ((word >> 16) & 0xFF) | ((word >> 8) & 0xFF0000)
    return out


@numba.njit(cache=True, nogil=True)
def sums_of_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum and sum of squares of each row."""
    sums, squares = np.empty(codes.shape[0], np.int64), np.empty(codes.shape[0], np.int64)
    for i in range(codes.shape[0]):
        row = codes[i]
        total, square = np.uint32(0), np.uint32(0)
        for k in range(row.shape[0]):
            value = np.uint32(row[k])
            total += value
            square += value * value
        sums[i], squares[i] = total, square
    return sums, squares


@numba.njit("void(u1[:, ::1], f8[::1], f8[::1], u1[:, ::1], f8[::1], f8[::1], i8, f4[::1], i8)", cache=True, nogil=True)
def integer_products(
    codes: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    other_codes: np.ndarray,
    other_scale: np.ndarray,
    other_offset: np.ndarray,
    n_features: int,
    out: np.ndarray,
    stride: int,
) -> None:
    """Inner products of two sets of rows on their grids, see `_runtime.grid`; rows of `out` are `stride` numbers apart."""
    n, m = codes.shape[0], other_codes.shape[0]
    sums, _ = sums_of_codes(codes)
    other_sums, _ = sums_of_codes(other_codes)
    other_shift = other_scale * other_sums
    totals = scale * sums + n_features * offset
    strips, panels = _packed(codes, _TALL, np.int32(0)), _packed(other_codes, _WIDE, _SIGN_BITS)
    steps = strips.shape[1]
    tile = np.empty((_TALL, _WIDE), np.int32)
    for p in range(panels.shape[0]):
        start, stop = p * _WIDE, min(m, (p + 1) * _WIDE)
        right, add, shift = other_scale[start:stop], other_offset[start:stop], other_shift[start:stop]
        for s in range(strips.shape[0]):
            strip, panel = strips[s:].ctypes.data, panels[p:].ctypes.data
            _register_tile(strip, panel, steps, tile.ctypes.data)  # type: ignore[call-arg]
            for r in range(min(_TALL, n - s * _TALL)):
                i = s * _TALL + r
                exact, target = tile[r], out[i * stride + start : i * stride + stop]
                shifted = np.int32(_SHIFT * sums[i])
                left, total, first = scale[i], totals[i], offset[i]
                for j in range(stop - start):
                    value = left * right[j] * np.float64(exact[j] + shifted) + add[j] * total + first * shift[j]
                    target[j] = np.float32(value)


@numba.njit(cache=True, nogil=True)
def _encode_row(x: np.ndarray, codes: np.ndarray, low: float, step: float, tolerance: float) -> bool:
    for start in range(0, x.shape[0], _CHUNK):
        part, into = x[start : start + _CHUNK], codes[start : start + _CHUNK]
        missed = 0
        for k in range(part.shape[0]):
            level = np.floor((part[k] - low) / step + 0.5)
            # Counted, and asked the other way round: a NaN is on no grid, and a maximum would pass over it.
            missed += not abs(part[k] - (low + level * step)) <= tolerance
            into[k] = np.uint8(level)
        if missed:
            return False
    return True


# Data that may not be written to (a memory map, what joblib hands to its workers) is read like any other.
_READ_ONLY = types.Array(types.float32, 2, "C", readonly=True)


@numba.njit(types.boolean(_READ_ONLY, types.uint8[:, ::1], types.float64[::1], types.float64[::1]), cache=True, nogil=True)
def encode(X: np.ndarray, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> bool:
    """Write each row's codes and grid; False at the first row that is on no grid of at most 256 levels."""
    for i in range(X.shape[0]):
        x, into = X[i], codes[i, : X.shape[1]]
        low, high = x[0], x[0]
        for k in range(x.shape[0]):
            low, high = min(low, x[k]), max(high, x[k])
        bottom, span = np.float64(low), np.float64(high) - np.float64(low)
        scale[i], offset[i] = 0.0, bottom
        if not np.isfinite(span):
            return False
        if span == 0:
            into[:] = 0
            continue
        found = False
        tolerance = _ROUNDINGS * max(abs(bottom), abs(np.float64(high)))
        for levels in range(_LEVELS, 0, -1):
            if _encode_row(x, into, bottom, span / levels, tolerance):
                scale[i] = span / levels
                found = True
                break
        if not found:
            return False
    return True
