"""Compiled inner products of rows stored as bytes (`gramless._core.grid`).

Imported only if `has_integer_products()`, because LLVM aborts the process for other processors. The left rows are packed to
strips and the right rows to panels; the integer sums of a strip and a panel stay in registers. All instructions are exact:

    AVX-512 VNNI   vpdpbusd on 16 lanes: four products of bytes for each lane, 12 x 32 sums
    AVX-VNNI       the same on 8 lanes, 6 x 16 sums
    AVX2           vpmaddwd and an addition on 8 lanes: two products of 16 bits for each lane, 2 x 32 sums

Most pixels of an image are background, whose code is zero. A group of features that is zero in all rows of a strip is left
out of the strip: for 12 rows of MNIST and groups of four this leaves 60 % of the products (`benchmarks/cpu_products.py`).

If all rows have only two values, their codes are 0 and 255, and a product is 255^2 times the number of common bits of words
of 64 features: rows of zeros and ones, such as indicator columns of categories, take a population count for each word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba

_LANES = _simd.LANES
# Whether the processor multiplies bytes (unsigned by signed); otherwise codes are multiplied as 16-bit integers.
_BYTE_PRODUCTS = _simd.available("avx512vnni") if _LANES == 16 else _simd.available("avxvnni")
# Rows of a strip, and vectors of a panel: as many as fit in the registers. Two rows have more zeros in common than six.
_STRIP_ROWS, _VECTORS = (12, 2) if _LANES == 16 else (6, 2) if _BYTE_PRODUCTS else (2, 4)
_PANEL_ROWS = _VECTORS * _LANES
# Codes of the signed operand are reduced by 128; 128 times the sum of the codes of the other operand is added later.
_SHIFT = 128 if _BYTE_PRODUCTS else 0
_SIGN_BITS = np.uint32(0x80808080 if _BYTE_PRODUCTS else 0)
# Upper bound on the panels multiplied with all strips before the next ones; they stay in the second-level cache.
_PANELS_BYTES = 1 << 18
# Largest code: grids have at most 256 levels.
_LARGEST_CODE = 255
# Largest distance of an entry from its grid level, relative to the largest entry of the row: four float32 roundings, for
# images that were centred and scaled.
_GRID_TOLERANCE = 4.0 * float(np.finfo(np.float32).eps)
# Entries that are encoded before the next test for a value that is on no level.
_ENCODED_AT_ONCE = 64

# Columns whose common bits with a row are counted before the next ones; their words stay in the first-level cache.
_BIT_COLUMNS = 256


def _add_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Return `total` plus, in each lane, the sum of the products of its group of features."""
    if _BYTE_PRODUCTS:
        return _simd.call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * _LANES}", _simd.INTEGERS, total, left, right)
    halves = ir.VectorType(ir.IntType(16), 2 * _LANES)
    name = "llvm.x86.avx512.pmaddw.d.512" if _LANES == 16 else "llvm.x86.avx2.pmadd.wd"
    pairs = [builder.bitcast(side, halves) for side in (left, right)]
    return builder.add(total, _simd.call(builder, name, _simd.INTEGERS, *pairs))


@intrinsic
def _register_tile(context: Any, strip: Any, places: Any, steps: Any, panel: Any, out: Any, stride: Any) -> Any:
    """Set `out[strip row * stride + panel row]` to the integer products of a packed strip and a packed panel.

    Arrays are given by addresses; `places` has the position in the panel of each step of the strip.
    """
    address = types.uintp
    signature = types.void(address, address, types.intp, address, address, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        strip, panel, out = (_simd.pointer(builder, arguments[i], _simd.I32) for i in (0, 3, 4))
        places = _simd.pointer(builder, arguments[1], _simd.I64)
        shape = _STRIP_ROWS, _PANEL_ROWS
        step = _simd.tile_step(builder, strip, panel, shape, range(_VECTORS), _simd.INTEGERS, _add_products, places)
        sums = _simd.accumulate(builder, arguments[2], _STRIP_ROWS * _VECTORS, _simd.INTEGERS, step)
        for i in range(_STRIP_ROWS):
            row = _simd.at(builder, out, _simd.times(builder, arguments[5], i))
            for v in range(_VECTORS):
                _simd.store(builder, sums[i * _VECTORS + v], _simd.at(builder, row, v * _LANES))
        return context.get_dummy_value()

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _pack(codes: np.ndarray, width: int, flip: np.uint32, skip: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes in strips of `width` rows, padded with zero rows, with a group of features in each number.

    The results are the strips of shape (strips, steps, width), with `flip` combined by exclusive or, the position in a panel
    of each step of each strip, and the number of steps of each strip. With `skip`, groups that are zero in all rows of a
    strip have no step, but each strip has at least one.
    """
    groups = (codes if _BYTE_PRODUCTS else codes.astype(np.uint16)).view(np.uint32)
    n, n_groups = groups.shape
    packed = np.empty((-(-n // width), n_groups, width), np.uint32)
    places, steps = np.empty(packed.shape[:2], np.int64), np.zeros(packed.shape[0], np.int64)
    for strip in range(packed.shape[0]):
        first, into, count = strip * width, packed[strip], 0
        rows = min(width, n - first)
        for k in range(n_groups):
            used = np.uint32(0)
            for i in range(rows):
                group = groups[first + i, k]
                into[count, i] = group ^ flip
                used |= group
            for i in range(rows, width):
                into[count, i] = flip
            places[strip, count] = k * _PANEL_ROWS
            count += used != 0 or not skip
        steps[strip] = max(1, count)
    return packed, places, steps


@numba.njit(cache=True, nogil=True)
def sums_of_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and the sum of squares of each row."""
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


@numba.njit(cache=True, nogil=True)
def _to_inner_products(
    rows: np.ndarray, columns: np.ndarray, first: int, last: int, start: int, stop: int, out: np.ndarray, stride: int
) -> None:
    """Convert integer products of codes, stored as int32, to inner products of rows, for a part of the rows and columns."""
    # Unsigned numbers, because LLVM vectorises the loop only if no index can be negative.
    for i in range(first, last):
        row, scale, total, offset, shift = np.uint64(i * stride), rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for j in range(np.uint64(start), np.uint64(stop)):
            product = (np.float32(out[row + j]).view(np.int32) + shift) * (scale * columns[0, j])
            out[row + j] = np.float32(product + columns[1, j] * total + offset * columns[2, j])


@numba.njit(cache=True, nogil=True)
def _multiply_strips(
    codes: np.ndarray, other_codes: np.ndarray, rows: np.ndarray, columns: np.ndarray, out: np.ndarray, stride: int
) -> None:
    """Write the inner products of rows on grids by strips and panels; row i starts at `out[i * stride]`."""
    n, m = codes.shape[0], other_codes.shape[0]
    strips, places, steps = _pack(codes, _STRIP_ROWS, np.uint32(0), True)
    panels, _, _ = _pack(other_codes, _PANEL_ROWS, _SIGN_BITS, False)
    tile, exact = np.empty((_STRIP_ROWS, _PANEL_ROWS), np.int32), out.view(np.int32)
    # Addresses instead of array slices, because numba counts references to each slice with atomic operations.
    first_strip, first_place, first_panel = strips.ctypes.data, places.ctypes.data, panels.ctypes.data
    most, panel_bytes = panels.shape[1], 4 * panels.shape[1] * _PANEL_ROWS
    width = max(1, _PANELS_BYTES // panel_bytes) * _PANEL_ROWS
    for start in range(0, m, width):
        stop = min(start + width, m)
        for s in range(strips.shape[0]):
            first, last = s * _STRIP_ROWS, min((s + 1) * _STRIP_ROWS, n)
            strip, place = first_strip + 4 * most * first, first_place + 8 * most * s
            for j in range(start, stop, _PANEL_ROWS):
                panel, target = first_panel + panel_bytes * (j // _PANEL_ROWS), exact.ctypes.data + 4 * (first * stride + j)
                if last - first == _STRIP_ROWS and stop - j >= _PANEL_ROWS:
                    _register_tile(strip, place, steps[s], panel, target, stride)  # type: ignore[call-arg]
                    continue
                _register_tile(strip, place, steps[s], panel, tile.ctypes.data, _PANEL_ROWS)  # type: ignore[call-arg]
                for i in range(first, last):
                    for k in range(j, min(j + _PANEL_ROWS, stop)):
                        exact[i * stride + k] = tile[i - first, k - j]
            _to_inner_products(rows, columns, first, last, start, stop, out, stride)


@intrinsic
def _count_bits(context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@numba.njit(cache=True, nogil=True)
def _pack_bits(codes: np.ndarray) -> np.ndarray:
    """Return words of 64 features of shape (words, rows), or no words if a code is neither 0 nor 255."""
    fours = codes.view(np.uint32)
    n, width = fours.shape
    words = np.zeros((-(-width // 16), n), np.uint64)
    for i in range(n):
        for k in range(width):
            lowest = np.uint64(fours[i, k] & np.uint32(0x01010101))
            if lowest * np.uint64(255) != fours[i, k]:
                return words[:0]
            # The multiplication moves the lowest bits of four bytes to four adjacent bits.
            bits = (lowest * np.uint64(0x01020408)) >> np.uint64(24) & np.uint64(0xF)
            words[k // 16, i] |= bits << np.uint64(4 * (k % 16))
    return words


@numba.njit(cache=True, nogil=True)
def _multiply_bits(words: np.ndarray, others: np.ndarray, exact: np.ndarray, stride: int) -> None:
    """Write the products of codes of 0 and 255 given by bits; row i starts at `exact[i * stride]`."""
    for start in range(0, others.shape[1], _BIT_COLUMNS):
        end = min(start + _BIT_COLUMNS, others.shape[1])
        for i in range(words.shape[1]):
            # Slices are taken out of the inner loops, because LLVM vectorises them only then.
            row = exact[i * stride + start : i * stride + end]
            row[:] = 0
            for w in range(words.shape[0]):
                word, other = words[w, i], others[w, start:end]
                for j in range(end - start):
                    row[j] += np.int32(_count_bits(word & other[j]))  # type: ignore[call-arg]
            for j in range(end - start):
                row[j] *= np.int32(65025)


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
    """Write the inner products of two sets of rows on grids (`gramless._core.grid`); row i starts at `out[i * stride]`."""
    n, m = codes.shape[0], other_codes.shape[0]
    words = _pack_bits(codes)
    others = _pack_bits(other_codes) if words.shape[0] else words
    sums, _ = sums_of_codes(codes)
    other_sums, _ = sums_of_codes(other_codes)
    # For each row: scale, sum, offset, and the correction for the shift of the signed codes.
    rows, columns = np.empty((4, n)), np.empty((3, m))
    for i in range(n):
        rows[0, i], rows[1, i] = scale[i], scale[i] * sums[i] + n_features * offset[i]
        rows[2, i], rows[3, i] = offset[i], 0 if others.shape[0] else _SHIFT * sums[i]
    for j in range(m):
        columns[0, j], columns[1, j], columns[2, j] = other_scale[j], other_offset[j], other_scale[j] * other_sums[j]
    if others.shape[0]:
        _multiply_bits(words, others, out.view(np.int32), stride)
        _to_inner_products(rows, columns, 0, n, 0, m, out, stride)
    else:
        _multiply_strips(codes, other_codes, rows, columns, out, stride)


@numba.njit(cache=True, nogil=True)
def _encode_row(x: np.ndarray, codes: np.ndarray, first: float, step: float, tolerance: float) -> bool:
    for start in range(0, x.shape[0], _ENCODED_AT_ONCE):
        part, into = x[start : start + _ENCODED_AT_ONCE], codes[start : start + _ENCODED_AT_ONCE]
        missed = 0
        for k in range(part.shape[0]):
            level = np.floor((part[k] - first) / step + 0.5)
            # "not <=" instead of ">" also counts NaN, which is on no grid.
            missed += not abs(part[k] - (first + level * step)) <= tolerance
            into[k] = np.uint8(level)
        if missed:
            return False
    return True


# The signature accepts read-only arrays, such as memory maps and arrays that joblib passes to its workers.
_READ_ONLY = types.Array(types.float32, 2, "C", readonly=True)


@numba.njit(types.boolean(_READ_ONLY, types.uint8[:, ::1], types.float64[::1], types.float64[::1]), cache=True, nogil=True)
def encode(X: np.ndarray, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> bool:
    """Write the codes and the grid of each row; return False at the first row that is on no grid of 256 or fewer levels.

    The more frequent of the smallest and the largest entry has the code zero.
    """
    for i in range(X.shape[0]):
        x, into = X[i], codes[i, : X.shape[1]]
        low, high = x[0], x[0]
        for k in range(x.shape[0]):
            low, high = min(low, x[k]), max(high, x[k])
        larger = np.int32(0)
        for k in range(x.shape[0]):
            larger += np.int32(x[k] == high) - np.int32(x[k] == low)
        start, end = (np.float64(high), np.float64(low)) if larger > 0 else (np.float64(low), np.float64(high))
        span = end - start
        scale[i], offset[i] = 0.0, start
        if not np.isfinite(span):
            return False
        if span == 0:
            into[:] = 0
            continue
        encoded = False
        tolerance = _GRID_TOLERANCE * max(abs(start), abs(end))
        for levels in range(_LARGEST_CODE, 0, -1):
            if _encode_row(x, into, start, span / levels, tolerance):
                scale[i] = span / levels
                encoded = True
                break
        if not encoded:
            return False
    return True
