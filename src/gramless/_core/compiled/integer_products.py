"""Compiled inner products of rows stored as bytes (`gramless._core.grid`).

Imported only if `has_integer_products()`, because LLVM aborts the process for other processors. Blocks of left rows (strips)
are multiplied with blocks of right rows (panels); the integer sums stay in registers. All instructions are exact:

    AVX-512 VNNI   vpdpbusd on 16 lanes: four products of bytes for each lane, 12 x 32 sums
    AVX-VNNI       vpdpbusd on 8 lanes: four products of bytes for each lane, 6 x 16 sums
    AVX2           vpmaddwd and an addition on 8 lanes: two products of 16 bits for each lane, 6 x 16 sums

Without VNNI, features are multiplied in pairs, and pairs of background pixels in an image can be skipped: if both codes of
many pairs in left row i equal its most frequent code b_i, only the other pairs are stored in a list and multiplied:

    <codes_i, codes_j> = <codes_i - b_i, codes_j> + b_i sum(codes_j)

To add the second term, the offset of the row is increased by scale_i b_i. `_select_listed_rows` estimates for each row if a
list is cheaper than a strip. There are no lists with VNNI, because differences of codes do not fit in unsigned bytes.
`benchmarks/cpu_products.py` compares lists, strips and float32 matrix products.

If all rows have only two values, such as zero and one, their codes are 0 and 255. An inner product of codes is then 255^2
times the number of features with code 255 in both rows, which is computed by one population count for 64 features.
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
# Number of features that one lane of a vector multiplies at a time.
_GROUP = 4 if _BYTE_PRODUCTS else 2
# Number of rows of a strip, and number of vectors of a panel; each lane of a vector has one row.
_STRIP_ROWS, _VECTORS = (12, 2) if _LANES == 16 else (6, 2)
_PANEL_ROWS = _VECTORS * _LANES
# Right codes must be signed bytes: 128 is subtracted from them, and 128 times the sum of left codes is added to a product.
_SHIFT = 128 if _BYTE_PRODUCTS else 0
_SIGN_BITS = np.int32(-0x7F7F7F80 if _BYTE_PRODUCTS else 0)
# Whether rows with a frequent code are stored as lists of pairs; this needs 16-bit products.
_USE_LISTS = not _BYTE_PRODUCTS
# Approximate number of codes in the sample of a row from which the most frequent code is estimated.
_SAMPLED_CODES = 32
# First only every eighth row is examined; if none of the examined rows has a frequent code, no row is stored as a list.
_EXAMINED_STRIDE = 8
# Bytes of a chunk, which is a range of features of two panels that stays in the first-level cache, and bytes of the lists
# that are multiplied with a chunk and stay in the second-level cache.
_CHUNK_BYTES, _LIST_BYTES = 28 << 10, 1 << 17
# Cost model of lists: time of a listed pair and time to start the list of a chunk, both relative to a pair of a strip; and
# time to build a list, in vector products for each pair of the row.
_PAIR_COST, _CHUNK_START_COST = 1.25, 20
_LIST_BUILD_COST = 2.0
# Largest code: grids have at most 256 levels.
_LARGEST_CODE = 255
# Largest accepted distance of an entry from its grid level, relative to the largest entry of the row: four rounding errors
# of float32, because images may have been centred and scaled in float32.
_GRID_TOLERANCE = 4.0 * float(np.finfo(np.float32).eps)
# Number of entries that are encoded between two tests for entries that are on no level.
_ENCODED_AT_ONCE = 64

# Number of right rows whose common bits with a left row are counted at a time; their words stay in the first-level cache.
_BIT_COLUMNS = 256

_EACH = range(_VECTORS)
_BYTE = ir.IntType(8)
_EIGHT, _SIXTEEN = ir.VectorType(_simd.I32, 8), ir.VectorType(ir.IntType(16), 16)
_LANE_NUMBERS = ir.VectorType(_BYTE, 8).as_pointer()
# For each 8-bit mask of lanes, the numbers of the selected lanes in ascending order, followed by zeros.
_ORDERS = np.array(
    [(lanes + [0] * 8)[:8] for lanes in ([k for k in range(8) if mask >> k & 1] for mask in range(256))], np.uint8
)


def _add_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Return `total` plus, in each lane, the sum of the products of the group of features in the lane."""
    if _BYTE_PRODUCTS:
        return _simd.call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * _LANES}", _simd.INTEGERS, total, left, right)
    halves = ir.VectorType(ir.IntType(16), 2 * _LANES)
    name = "llvm.x86.avx512.pmaddw.d.512" if _LANES == 16 else "llvm.x86.avx2.pmadd.wd"
    pairs = [builder.bitcast(side, halves) for side in (left, right)]
    return builder.add(total, _simd.call(builder, name, _simd.INTEGERS, *pairs))


@intrinsic
def _register_tile(context: Any, strip: Any, panel: Any, steps: Any, out: Any) -> Any:
    """Set `out[strip row][panel row]` to the integer products of a packed strip and panel, which are given by addresses."""
    signature = types.void(types.uintp, types.uintp, types.intp, types.uintp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        strip, panel = (_simd.pointer(builder, address, _simd.I32) for address in arguments[:2])
        out = _simd.pointer(builder, arguments[3], _simd.I32)

        shape = _STRIP_ROWS, _PANEL_ROWS
        step = _simd.tile_step(builder, strip, panel, shape, range(_VECTORS), _simd.INTEGERS, _add_products)
        sums = _simd.accumulate(builder, arguments[2], _STRIP_ROWS * _VECTORS, _simd.INTEGERS, step)
        for place, value in enumerate(sums):
            _simd.store(builder, value, _simd.at(builder, out, place * _LANES))
        return context.get_dummy_value()

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _pack(codes: np.ndarray, width: int, flip: np.int32, multiple: int = 1) -> np.ndarray:
    """Return the codes in strips of `width` rows, shape (strips, steps, width); each int32 has a group of features.

    Zero rows are added until the number of strips is a multiple of `multiple`; each int32 is combined with `flip` by XOR.
    """
    words = codes.view(np.int32)
    n, fours = words.shape
    out = np.empty((-(-n // (width * multiple)) * multiple, fours * 4 // _GROUP, width), np.int32)
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
    """Return the sum and the sum of squares of the codes of each row."""
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


@intrinsic(prefer_literal=True)
def _listed_tile(context: Any, places: Any, pairs: Any, steps: Any, panel: Any, apart: Any, out: Any, more: Any) -> Any:
    """Set `out[2][panel row]` to the products of the listed pairs of a row and two panels that are `apart` bytes apart.

    If the literal `more` is True, the products are added to `out` instead.
    """
    signature = types.void(types.uintp, types.uintp, types.intp, types.uintp, types.intp, types.uintp, more)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places, pairs, out = (_simd.pointer(builder, arguments[i], _simd.I32) for i in (0, 1, 5))
        panels = [_simd.pointer(builder, arguments[3], _BYTE)]
        panels.append(_simd.at(builder, panels[0], arguments[4]))

        def step(k: Any, sums: Any) -> list[Any]:
            place = builder.sext(builder.load(_simd.at(builder, places, k)), _simd.I64)
            left = _simd.broadcast(builder, builder.load(_simd.at(builder, pairs, k)))
            here = [builder.bitcast(_simd.at(builder, panel, place), _simd.I32.as_pointer()) for panel in panels]
            right = [_simd.load(builder, _simd.at(builder, at, _LANES * v), _simd.INTEGERS) for at in here for v in _EACH]
            return [_add_products(builder, total, left, one) for total, one in zip(sums, right, strict=True)]

        for place, value in enumerate(_simd.accumulate(builder, arguments[2], 2 * _VECTORS, _simd.INTEGERS, step)):
            there = _simd.at(builder, out, place * _LANES)
            total = builder.add(value, _simd.load(builder, there, _simd.INTEGERS)) if more.literal_value else value
            _simd.store(builder, total, there)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _to_inner_products(
    context: Any, exact: Any, right: Any, add: Any, shift: Any, left: Any, total: Any, first: Any, shifted: Any, out: Any
) -> Any:
    """Write the inner products of `gramless._core.grid`: `left right (exact + shifted) + add total + first shift`."""
    address, number = types.uintp, types.float64
    signature = types.void(*[address] * 4, *[number] * 4, address)
    half = _LANES // 2

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exact = _simd.pointer(builder, arguments[0], _simd.I32)
        out = _simd.pointer(builder, arguments[8], _simd.F32)
        columns = [_simd.pointer(builder, arguments[i], _simd.F64) for i in (1, 2, 3)]
        left, total, first, shifted = (_simd.broadcast(builder, arguments[i]) for i in (4, 5, 6, 7))
        for place in range(0, _PANEL_ROWS, half):
            right, add, shift = (_simd.load(builder, _simd.at(builder, one, place), _simd.DOUBLES) for one in columns)
            integers = _simd.load(builder, _simd.at(builder, exact, place), ir.VectorType(_simd.I32, half))
            value = builder.fmul(builder.fadd(builder.sitofp(integers, _simd.DOUBLES), shifted), builder.fmul(left, right))
            value = builder.fadd(builder.fadd(value, builder.fmul(add, total)), builder.fmul(first, shift))
            _simd.store(builder, builder.fptrunc(value, _simd.HALF_FLOATS), _simd.at(builder, out, place))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _list_pairs(context: Any, codes: Any, background: Any, first: Any, orders: Any, places: Any, pairs: Any) -> Any:
    """Of eight pairs, write offset and difference of each that differs from the background; return their number."""
    address = types.uintp
    signature = types.intp(address, types.int32, types.int32, address, address, address)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def everywhere(scalar: Any, kind: Any) -> Any:
            vector = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_simd.I32, 0))
            return builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(_simd.I32, kind.count), [0] * kind.count)
            )

        codes, orders = (_simd.pointer(builder, arguments[i], _BYTE) for i in (0, 3))
        background = everywhere(builder.trunc(arguments[1], ir.IntType(16)), _SIXTEEN)
        sixteen = builder.load(builder.bitcast(codes, ir.VectorType(_BYTE, 16).as_pointer()))
        sixteen.align = 1
        differences = builder.bitcast(builder.sub(builder.zext(sixteen, _SIXTEEN), background), _EIGHT)
        differ = builder.icmp_signed("!=", differences, ir.Constant(_EIGHT, [0] * 8))
        mask = builder.zext(builder.bitcast(differ, _BYTE), _simd.I64)
        order = builder.load(builder.bitcast(_simd.at(builder, orders, _simd.times(builder, mask, 8)), _LANE_NUMBERS))
        order.align = 1
        order = builder.zext(order, _EIGHT)
        step = ir.Constant(_EIGHT, [4 * _PANEL_ROWS] * 8)
        place = builder.mul(builder.add(order, everywhere(arguments[2], _EIGHT)), step)
        _simd.store(builder, place, _simd.pointer(builder, arguments[4], _simd.I32))
        chosen = _simd.call(builder, "llvm.x86.avx2.permd", _EIGHT, differences, order)
        _simd.store(builder, chosen, _simd.pointer(builder, arguments[5], _simd.I32))
        return _simd.call(builder, "llvm.ctpop.i64", _simd.I64, mask)

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _background(codes: np.ndarray, i: int, counts: np.ndarray) -> tuple[np.uint8, bool]:
    """Return the most frequent code in a sample of a row, and whether at least one in eight sampled codes equals it."""
    width = codes.shape[1]
    every = max(1, width // _SAMPLED_CODES) | 1  # an odd step, so that the sample is not a single column of an image
    counts[:] = 0
    best = np.uint8(0)
    for k in range(0, width, every):
        code = codes[i, k]
        counts[code] += 1
        if counts[code] > counts[best]:
            best = code
    return best, counts[best] * every * 8 >= width


@numba.njit(cache=True, nogil=True)
def _chunk(steps: int) -> int:
    """Return the number of steps (pairs of features) of a chunk, a multiple of eight; the last chunk may be shorter."""
    chunks = -(-steps * 8 * _PANEL_ROWS // _CHUNK_BYTES)
    return -(-steps // (8 * chunks)) * 8


# This module has loops instead of NumPy array expressions, because numba takes seconds to compile array expressions.
@numba.njit(cache=True, nogil=True)
def _select_listed_rows(codes: np.ndarray, m: int, background: np.ndarray, listed: np.ndarray) -> int:
    """Mark rows that a list multiplies by `m` right rows faster than a strip; set `background`; return their number."""
    n, steps = codes.shape[0], codes.shape[1] // 2
    words = codes.view(np.uint16)
    counts = np.empty(256, np.int32)
    has_background = False
    for i in range(n):
        background[i], listed[i] = 0, False
    for i in range(0, n, _EXAMINED_STRIDE):
        has_background |= _background(codes, i, counts)[1]
    if not has_background:
        return 0
    # Vector products with `m` rows: of a row in a strip, and of a listed pair. Lists of fewer than `limit` pairs are faster.
    strip_cost, pair_cost = -(-m // _PANEL_ROWS) * _VECTORS * steps, -(-m // (2 * _PANEL_ROWS)) * 2 * _VECTORS
    limit = (
        (strip_cost - _LIST_BUILD_COST * steps) / pair_cost - _CHUNK_START_COST * -(-steps // _chunk(steps))
    ) / _PAIR_COST
    n_listed = 0
    for i in range(n):
        background[i], is_frequent = _background(codes, i, counts)
        if is_frequent:
            same = np.uint16(background[i] * 0x101)
            differ = 0
            for k in range(steps):
                differ += words[i, k] != same
            listed[i] = differ < limit
            n_listed += listed[i]
    return n_listed


@numba.njit(cache=True, nogil=True)
def _lists(
    codes: np.ndarray, rows: np.ndarray, background: np.ndarray, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs that differ from the background of their row: byte offsets in a packed panel, differences, bounds.

    The pairs of `rows[i]` in chunk c are `bounds[i, c]` to `bounds[i, c + 1] - 1`; an empty chunk gets a zero pair.
    """
    width = codes.shape[1]
    chunk = 2 * _chunk(width // 2)
    bounds = np.zeros((rows.size, -(-width // chunk) + 1), np.int64)
    capacity = rows.size * (width // 2 + bounds.shape[1]) + 8
    places, pairs = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    first, table, first_place, first_pair = codes.ctypes.data, orders.ctypes.data, places.ctypes.data, pairs.ctypes.data
    count = 0
    for i in range(rows.size):
        row, base = codes[rows[i]], np.int32(background[rows[i]])
        here = first + rows[i] * width
        bounds[i, 0] = count
        for c in range(bounds.shape[1] - 1):
            stop = min(width, (c + 1) * chunk)
            for k in range(c * chunk, stop - 15, 16):
                place, pair, step = first_place + 4 * count, first_pair + 4 * count, np.int32(k // 2)
                count += _list_pairs(here + k, base, step, table, place, pair)  # type: ignore[call-arg]
            for k in range(stop // 16 * 16, stop, 2):
                low, high = np.int64(row[k]) - base, np.int64(row[k + 1]) - base
                places[count], pairs[count] = k * 2 * _PANEL_ROWS, (low & 0xFFFF) | (high << 16)
                count += (low != 0) | (high != 0)
            if count == bounds[i, c]:
                places[count], pairs[count] = 0, 0
                count += 1
            bounds[i, c + 1] = count
    return places, pairs, bounds


# The next two functions use addresses instead of array slices, because numba counts references to each slice with atomic
# operations. The caller of the functions keeps references to the arrays.
@numba.njit(cache=True, nogil=True)
def _multiply_lists(
    rows: np.ndarray,
    places: np.ndarray,
    pairs: np.ndarray,
    bounds: np.ndarray,
    panels: np.ndarray,
    grid: np.ndarray,
    columns: np.ndarray,
    exact: np.ndarray,
    padded: np.ndarray,
    m: int,
    out: np.ndarray,
    stride: int,
) -> None:
    """Write the inner products of listed rows, two panels at a time; `padded` stores the results of incomplete panels.

    All rows of a group are multiplied with one chunk of features before the next; `exact` stores their partial sums.
    """
    first_exact, first_panel, apart = exact.ctypes.data, panels.ctypes.data, 4 * panels.shape[1] * _PANEL_ROWS
    first_place, first_pair, last = places.ctypes.data, pairs.ctypes.data, bounds.shape[1] - 2
    right, add, shift = columns.ctypes.data, columns[1:].ctypes.data, columns[2:].ctypes.data
    # Number of rows whose lists stay in the second-level cache.
    group_rows = max(1, _LIST_BYTES * rows.size // (8 * max(1, bounds[-1, -1])))
    for begin in range(0, rows.size, group_rows):
        end = min(rows.size, begin + group_rows)
        for j in range(0, m, 2 * _PANEL_ROWS):
            panel, here, there = first_panel + j // _PANEL_ROWS * apart, 8 * j, 8 * (j + _PANEL_ROWS)
            complete = j + 2 * _PANEL_ROWS <= m
            target, step = (out[j:].ctypes.data, 4 * stride) if complete else (padded.ctypes.data, 8 * _PANEL_ROWS)
            for c in range(last + 1):
                for t in range(begin, end):
                    into = first_exact + 8 * _PANEL_ROWS * (t - begin)
                    start, count = 4 * bounds[t, c], bounds[t, c + 1] - bounds[t, c]
                    place, pair = first_place + start, first_pair + start
                    if c == 0:
                        _listed_tile(place, pair, count, panel, apart, into, False)  # type: ignore[call-arg]
                    else:
                        _listed_tile(place, pair, count, panel, apart, into, True)  # type: ignore[call-arg]
                    if c == last:
                        i = rows[t]
                        left, total, first, at = grid[0, i], grid[1, i], grid[2, i], target + i * step
                        _to_inner_products(into, right + here, add + here, shift + here, left, total, first, 0.0, at)
                        second = into + 4 * _PANEL_ROWS, right + there, add + there, shift + there
                        _to_inner_products(*second, left, total, first, 0.0, at + 4 * _PANEL_ROWS)
            if not complete:
                for i in rows[begin:end]:
                    for k in range(m - j):
                        out[i * stride + j + k] = padded[i, k]


@numba.njit(cache=True, nogil=True)
def _multiply_strips(
    rows: np.ndarray,
    strips: np.ndarray,
    panels: np.ndarray,
    grid: np.ndarray,
    columns: np.ndarray,
    tile: np.ndarray,
    padded: np.ndarray,
    m: int,
    out: np.ndarray,
    stride: int,
) -> None:
    """Write the inner products of rows in strips, one panel at a time; `padded` stores the results of incomplete panels."""
    into, steps = tile.ctypes.data, panels.shape[1]
    first_strip, first_panel = strips.ctypes.data, panels.ctypes.data
    right, add, shift = columns.ctypes.data, columns[1:].ctypes.data, columns[2:].ctypes.data
    for j in range(0, m, _PANEL_ROWS):
        panel, here = first_panel + 4 * steps * j, 8 * j
        complete = j + _PANEL_ROWS <= m
        target, step = (out[j:].ctypes.data, 4 * stride) if complete else (padded.ctypes.data, 8 * _PANEL_ROWS)
        for s in range(strips.shape[0]):
            _register_tile(first_strip + 4 * s * steps * _STRIP_ROWS, panel, steps, into)  # type: ignore[call-arg]
            for r in range(min(_STRIP_ROWS, rows.size - s * _STRIP_ROWS)):
                i, exact = rows[s * _STRIP_ROWS + r], into + 4 * r * _PANEL_ROWS
                numbers = grid[0, i], grid[1, i], grid[2, i], grid[3, i]
                _to_inner_products(exact, right + here, add + here, shift + here, *numbers, target + i * step)
        if not complete:
            for i in rows:
                for k in range(m - j):
                    out[i * stride + j + k] = padded[i, k]


@intrinsic
def _count_bits(context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@numba.njit(cache=True, nogil=True)
def _pack_bits(codes: np.ndarray) -> np.ndarray:
    """Return 64-bit words with a bit per feature, shape (words, rows), or an empty array if a code is neither 0 nor 255."""
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
def _multiply_bits(
    words: np.ndarray, others: np.ndarray, grid: np.ndarray, columns: np.ndarray, out: np.ndarray, stride: int
) -> None:
    """Write the inner products of rows with codes 0 and 255, packed as bits, by the formula of `_to_inner_products`."""
    # Slices and scalars are assigned outside of the inner loops, because LLVM does not vectorise the loops otherwise.
    counts = np.empty(_BIT_COLUMNS, np.int32)
    for start in range(0, others.shape[1], _BIT_COLUMNS):
        end = min(start + _BIT_COLUMNS, others.shape[1])
        right, add, shift = columns[0, start:end], columns[1, start:end], columns[2, start:end]
        for i in range(words.shape[1]):
            left, total, first = 65025.0 * grid[0, i], grid[1, i], grid[2, i]
            counts[:] = 0
            for w in range(words.shape[0]):
                word, other = words[w, i], others[w, start:end]
                for j in range(end - start):
                    counts[j] += np.int32(_count_bits(word & other[j]))  # type: ignore[call-arg]
            row = out[i * stride + start : i * stride + end]
            for j in range(end - start):
                row[j] = np.float32(counts[j] * (left * right[j]) + add[j] * total + first * shift[j])


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
    """Write the inner products of two sets of rows on grids (`gramless._core.grid`); row i is at `out[i * stride]`."""
    n, m, width = codes.shape[0], other_codes.shape[0], codes.shape[1]
    sums, _ = sums_of_codes(codes)
    other_sums, _ = sums_of_codes(other_codes)
    # `grid` has, for each left row, the scale, the sum, the offset and the correction for the shift of the signed codes.
    grid, columns = np.empty((4, n)), np.zeros((3, -(-m // (2 * _PANEL_ROWS)) * 2 * _PANEL_ROWS))
    for i in range(n):
        grid[0, i], grid[1, i] = scale[i], scale[i] * sums[i] + n_features * offset[i]
        grid[2, i], grid[3, i] = offset[i], _SHIFT * sums[i]
    for j in range(m):
        columns[0, j], columns[1, j], columns[2, j] = other_scale[j], other_offset[j], other_scale[j] * other_sums[j]
    words = _pack_bits(codes)
    others = _pack_bits(other_codes) if words.shape[0] else words
    if others.shape[0]:
        _multiply_bits(words, others, grid, columns, out, stride)
        return
    background, listed = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
    n_listed = _select_listed_rows(codes, m, background, listed) if _USE_LISTS else 0
    strip_rows, list_rows = np.empty(n - n_listed, np.int64), np.empty(n_listed, np.int64)
    chosen = np.empty((n - n_listed, width), np.uint8) if n_listed else codes
    s, t = 0, 0
    for i in range(n):
        if listed[i]:
            # Subtracting the background from the codes of a listed row increases the offset of the row.
            list_rows[t], grid[2, i] = i, offset[i] + scale[i] * background[i]
            t += 1
        else:
            strip_rows[s] = i
            if n_listed:
                for k in range(width):
                    chosen[s, k] = codes[i, k]
            s += 1
    panels = _pack(other_codes, _PANEL_ROWS, _SIGN_BITS, 1 if _BYTE_PRODUCTS else 2)
    padded = np.empty((n, 2 * _PANEL_ROWS), np.float32)
    if s:
        tile = np.empty((_STRIP_ROWS, _PANEL_ROWS), np.int32)
        strips = _pack(chosen, _STRIP_ROWS, np.int32(0))
        _multiply_strips(strip_rows, strips, panels, grid, columns, tile, padded, m, out, stride)
    if _USE_LISTS and t:  # `_USE_LISTS` is a constant, so that numba does not compile this branch if it is False
        exact = np.empty((t, 2 * _PANEL_ROWS), np.int32)
        places, pairs, bounds = _lists(codes, list_rows, background, _ORDERS)
        _multiply_lists(list_rows, places, pairs, bounds, panels, grid, columns, exact, padded, m, out, stride)


@numba.njit(cache=True, nogil=True)
def _encode_row(x: np.ndarray, codes: np.ndarray, low: float, step: float, tolerance: float) -> bool:
    for start in range(0, x.shape[0], _ENCODED_AT_ONCE):
        part, into = x[start : start + _ENCODED_AT_ONCE], codes[start : start + _ENCODED_AT_ONCE]
        missed = 0
        for k in range(part.shape[0]):
            level = np.floor((part[k] - low) / step + 0.5)
            # "not <=" instead of ">" also counts NaN, which is on no grid.
            missed += not abs(part[k] - (low + level * step)) <= tolerance
            into[k] = np.uint8(level)
        if missed:
            return False
    return True


# The signature accepts read-only arrays, such as memory maps and arrays that joblib passes to its workers.
_READ_ONLY = types.Array(types.float32, 2, "C", readonly=True)


@numba.njit(types.boolean(_READ_ONLY, types.uint8[:, ::1], types.float64[::1], types.float64[::1]), cache=True, nogil=True)
def encode(X: np.ndarray, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> bool:
    """Write codes, scale and offset of each row; return False at the first row that is on no grid of at most 256 levels."""
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
        encoded = False
        tolerance = _GRID_TOLERANCE * max(abs(bottom), abs(np.float64(high)))
        for levels in range(_LARGEST_CODE, 0, -1):
            if _encode_row(x, into, bottom, span / levels, tolerance):
                scale[i] = span / levels
                encoded = True
                break
        if not encoded:
            return False
    return True
