"""Compiled loops for rows kept as bytes; imported only where `_runtime.grid.has_integer_products`: LLVM ends the process
that compiles them for another processor.

`integer_products` cuts both sides into strips that a register tile of sums reads front to back. What multiplies depends on
the processor; the sums are the same, exactly:

    AVX-512 VNNI   vpdpbusd on 16 lanes: four products of bytes for each lane, 12 x 32 sums
    AVX-VNNI       the same on 8 lanes, 6 x 16 sums
    AVX2           vpmaddwd and an addition on 8 lanes: two products of 16 bits for each lane, 6 x 16 sums

Most of an image is background. With 16 bits a row of which many pairs of features have its most frequent code b becomes a
list of the others, which it reads against two panels at a time, so that it costs what differs from the background:

    <codes_i, codes_j> = <codes_i - b_i, codes_j> + b_i sum(codes_j)

where the second part joins the offset of the row's grid. Rows whose list would be long, or read by few others, stay strips:
`_choose` counts. Products of bytes take four features at a time and have no room for the sign of a difference.

`benchmarks/cpu_products.py` compares it with float32 matrix products, and lists with strips.
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
# Products of bytes where the processor has them (one side unsigned, the other signed), else of numbers of 16 bits.
_BYTES = _simd.available("avx512vnni") if _LANES == 16 else _simd.available("avxvnni")
_GROUP = 4 if _BYTES else 2
_TALL, _VECTORS = (12, 2) if _LANES == 16 else (6, 2)
_WIDE = _VECTORS * _LANES
# The signed side is shifted by 128, and what that takes away is added again.
_SHIFT = 128 if _BYTES else 0
_SIGN_BITS = np.int32(-0x7F7F7F80 if _BYTES else 0)
# Rows of which most codes are the same become lists where products are of pairs.
_LISTS = not _BYTES
# Codes of a row of which the most frequent counts as its background.
_SAMPLE = 32
# Some of the rows are asked first, one in so many: where none has a background, all are dense.
_EVERY = 8
# What lists read of two panels at a time stays in the first cache, and the lists that are read together in the second one.
_BYTES_OF_CHUNK, _BYTES_OF_LISTS = 28 << 10, 1 << 17
# A pair of a list costs as much as so many steps of a strip, beginning with the list of a chunk as so many pairs, and making
# a list as so many vectors for each pair of the row.
_SLOWER, _BEGINNING = 1.25, 20
_MAKING = 2.0
_LEVELS = 255
# Entries may be off the grid by as many roundings of the row's largest as centring and scaling an image make.
_ROUNDINGS = 4.0 * float(np.finfo(np.float32).eps)
_CHUNK = 64

_EACH = range(_VECTORS)
_BYTE = ir.IntType(8)
_EIGHT, _SIXTEEN = ir.VectorType(_simd.I32, 8), ir.VectorType(ir.IntType(16), 16)
_LANE_NUMBERS = ir.VectorType(_BYTE, 8).as_pointer()
# For each set of eight lanes, the lanes in it, one after the other, and zeros.
_ORDERS = np.array(
    [(lanes + [0] * 8)[:8] for lanes in ([k for k in range(8) if mask >> k & 1] for mask in range(256))], np.uint8
)


def _sixteen_codes(builder: Any, base: Any) -> Any:
    """Sixteen bytes from memory, in 16 bits each."""
    codes = builder.load(builder.bitcast(base, ir.VectorType(_BYTE, 16).as_pointer()))
    codes.align = 1
    return builder.zext(codes, _SIXTEEN)


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


@intrinsic(prefer_literal=True)
def _listed_tile(context: Any, places: Any, pairs: Any, steps: Any, panel: Any, apart: Any, out: Any, more: Any) -> Any:
    """`out[2][wide]` = the products of a row's listed pairs and two packed panels, `apart` bytes from each other.

    With `more`, a literal, they are added to what is there.
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
def _finish(
    context: Any, exact: Any, right: Any, add: Any, shift: Any, left: Any, total: Any, first: Any, shifted: Any, out: Any
) -> Any:
    """`out[wide]` = left right (exact + shifted) + add total + first shift: sums of products of codes to inner products."""
    address, number = types.uintp, types.float64
    signature = types.void(*[address] * 4, *[number] * 4, address)
    half = _LANES // 2

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exact = _simd.pointer(builder, arguments[0], _simd.I32)
        out = _simd.pointer(builder, arguments[8], _simd.F32)
        columns = [_simd.pointer(builder, arguments[i], _simd.F64) for i in (1, 2, 3)]
        left, total, first, shifted = (_simd.broadcast(builder, arguments[i]) for i in (4, 5, 6, 7))
        for place in range(0, _WIDE, half):
            right, add, shift = (_simd.load(builder, _simd.at(builder, one, place), _simd.DOUBLES) for one in columns)
            integers = _simd.load(builder, _simd.at(builder, exact, place), ir.VectorType(_simd.I32, half))
            value = builder.fmul(builder.fadd(builder.sitofp(integers, _simd.DOUBLES), shifted), builder.fmul(left, right))
            value = builder.fadd(builder.fadd(value, builder.fmul(add, total)), builder.fmul(first, shift))
            _simd.store(builder, builder.fptrunc(value, _simd.HALF_FLOATS), _simd.at(builder, out, place))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _transpose_pairs(context: Any, rows: Any, width: Any, out: Any) -> Any:
    """Eight pairs of codes of eight rows, `width` bytes apart, into eight steps of a packed panel; addresses and a count."""
    signature = types.void(types.uintp, types.intp, types.uintp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, out = _simd.pointer(builder, arguments[0], _BYTE), _simd.pointer(builder, arguments[2], _simd.I32)
        vectors = []
        for i in range(8):
            row = _simd.at(builder, rows, _simd.times(builder, arguments[1], i))
            vectors.append(builder.bitcast(_sixteen_codes(builder, row), _EIGHT))

        def mixed(first: Any, second: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(first, second, ir.Constant(_EIGHT, lanes))

        # Neighbours, then rows two apart, within halves of a vector; then the halves change places.
        for distance, low, high in (
            (1, [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
            (2, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
            (4, [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
        ):
            new = list(vectors)
            for i in range(8):
                if not i & distance:
                    both = vectors[i], vectors[i + distance]
                    new[i], new[i + distance] = mixed(*both, low), mixed(*both, high)
            vectors = new
        # The first two rounds leave steps 1 and 2, and 5 and 6, in each other's place.
        for k, place in enumerate((0, 2, 1, 3, 4, 6, 5, 7)):
            _simd.store(builder, vectors[place], _simd.at(builder, out, k * _WIDE))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _list_pairs(context: Any, codes: Any, background: Any, first: Any, orders: Any, places: Any, pairs: Any) -> Any:
    """Write the places and the differences of those of eight pairs that differ from the background; gives their number."""
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
        differences = builder.bitcast(builder.sub(_sixteen_codes(builder, codes), background), _EIGHT)
        differ = builder.icmp_signed("!=", differences, ir.Constant(_EIGHT, [0] * 8))
        mask = builder.zext(builder.bitcast(differ, _BYTE), _simd.I64)
        order = builder.load(builder.bitcast(_simd.at(builder, orders, _simd.times(builder, mask, 8)), _LANE_NUMBERS))
        order.align = 1
        order = builder.zext(order, _EIGHT)
        step = ir.Constant(_EIGHT, [4 * _WIDE] * 8)
        place = builder.mul(builder.add(order, everywhere(arguments[2], _EIGHT)), step)
        _simd.store(builder, place, _simd.pointer(builder, arguments[4], _simd.I32))
        chosen = _simd.call(builder, "llvm.x86.avx2.permd", _EIGHT, differences, order)
        _simd.store(builder, chosen, _simd.pointer(builder, arguments[5], _simd.I32))
        return _simd.call(builder, "llvm.ctpop.i64", _simd.I64, mask)

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _panels(codes: np.ndarray) -> np.ndarray:
    """As `_packed` for panels of pairs, faster: an even number of them, past the end of the rows the last one again."""
    n, width = codes.shape
    steps = width // 2
    count = 2 * -(-n // (2 * _WIDE))
    # Begins with a line of the cache, so that no vector lies in two.
    memory = np.empty(count * steps * _WIDE + 16, np.int32)
    start = (64 - memory.ctypes.data % 64) % 64 // 4
    out = memory[start : start + count * steps * _WIDE].reshape(count, steps, _WIDE)
    for first in range(0, count * _WIDE, 8):
        panel, lane = out[first // _WIDE], first % _WIDE
        if first + 8 <= n and width >= 16:
            here, there = codes[first:].ctypes.data, panel[:, lane:].ctypes.data
            for k in range(0, width, 16):
                at = min(k, width - 16)  # the last sixteen may overlap those before
                _transpose_pairs(here + at, width, there + 2 * at * _WIDE)  # type: ignore[call-arg]
            continue
        for r in range(8):
            row = codes[min(first + r, n - 1)]
            for k in range(steps):
                panel[k, lane + r] = np.int32(row[2 * k]) | np.int32(row[2 * k + 1]) << 16
    return out


@numba.njit(cache=True, nogil=True)
def _background(codes: np.ndarray, i: int, counts: np.ndarray) -> tuple[np.uint8, bool]:
    """The most frequent of some of a row's codes, and whether it is one in eight of them or more."""
    width = codes.shape[1]
    every = max(1, width // _SAMPLE) | 1  # odd, so that it does not run down the columns of an image
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
    """Steps of two panels that are read together: chunks of one size, in whole groups of eight."""
    chunks = -(-steps * 8 * _WIDE // _BYTES_OF_CHUNK)
    return -(-steps // (8 * chunks)) * 8


# Loops, here and below, where NumPy has a word for it: numba takes seconds to compile expressions of arrays.
@numba.njit(cache=True, nogil=True)
def _choose(codes: np.ndarray, m: int, background: np.ndarray, listed: np.ndarray) -> int:
    """Which rows are worth a list for `m` others: writes that and their most frequent code, and says how many."""
    n, steps = codes.shape[0], codes.shape[1] // 2
    words = codes.view(np.uint16)
    counts = np.empty(256, np.int32)
    worth_it = False
    for i in range(n):
        background[i], listed[i] = 0, False
    for i in range(0, n, _EVERY):
        worth_it |= _background(codes, i, counts)[1]
    if not worth_it:
        return 0
    # In products of one vector: all steps of a strip, or the list's and what it takes to make it.
    whole, for_each = -(-m // _WIDE) * _VECTORS * steps, -(-m // (2 * _WIDE)) * 2 * _VECTORS
    most = ((whole - _MAKING * steps) / for_each - _BEGINNING * -(-steps // _chunk(steps))) / _SLOWER
    found = 0
    for i in range(n):
        background[i], often = _background(codes, i, counts)
        if often:
            same = np.uint16(background[i] * 0x101)
            differ = 0
            for k in range(steps):
                differ += words[i, k] != same
            listed[i] = differ < most
            found += listed[i]
    return found


@numba.njit(cache=True, nogil=True)
def _lists(
    codes: np.ndarray, rows: np.ndarray, background: np.ndarray, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs in which rows differ from their background: their places in a packed panel, in bytes, and the differences.

    Those of `rows[i]` in chunk c are from `bounds[i, c]` to `bounds[i, c + 1]`, at least one.
    """
    width = codes.shape[1]
    chunk = 2 * _chunk(width // 2)
    bounds = np.zeros((rows.size, -(-width // chunk) + 1), np.int64)
    most = rows.size * (width // 2 + bounds.shape[1]) + 8
    places, pairs = np.empty(most, np.int32), np.empty(most, np.int32)
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
                places[count], pairs[count] = k * 2 * _WIDE, (low & 0xFFFF) | (high << 16)
                count += (low != 0) | (high != 0)
            if count == bounds[i, c]:
                places[count], pairs[count] = 0, 0
                count += 1
            bounds[i, c + 1] = count
    return places, pairs, bounds


# The two below work with addresses: an array made by slicing would be counted in and out, a locked addition each. Whose
# addresses they are, the caller keeps.
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
    few: np.ndarray,
    m: int,
    out: np.ndarray,
    stride: int,
) -> None:
    """Inner products of the listed rows, two panels at a time; the last columns, if fewer, by way of `few`.

    A chunk of two panels is read by one row after the other, whose sums wait in `exact` for the next chunk.
    """
    first_exact, first_panel, apart = exact.ctypes.data, panels.ctypes.data, 4 * panels.shape[1] * _WIDE
    first_place, first_pair, last = places.ctypes.data, pairs.ctypes.data, bounds.shape[1] - 2
    right, add, shift = columns.ctypes.data, columns[1:].ctypes.data, columns[2:].ctypes.data
    # As many rows at a time as have lists that stay in the second cache.
    together = max(1, _BYTES_OF_LISTS * rows.size // (8 * max(1, bounds[-1, -1])))
    for begin in range(0, rows.size, together):
        end = min(rows.size, begin + together)
        for j in range(0, m, 2 * _WIDE):
            panel, here, there = first_panel + j // _WIDE * apart, 8 * j, 8 * (j + _WIDE)
            whole = j + 2 * _WIDE <= m
            target, step = (out[j:].ctypes.data, 4 * stride) if whole else (few.ctypes.data, 8 * _WIDE)
            for c in range(last + 1):
                for t in range(begin, end):
                    into = first_exact + 8 * _WIDE * (t - begin)
                    start, count = 4 * bounds[t, c], bounds[t, c + 1] - bounds[t, c]
                    place, pair = first_place + start, first_pair + start
                    if c == 0:
                        _listed_tile(place, pair, count, panel, apart, into, False)  # type: ignore[call-arg]
                    else:
                        _listed_tile(place, pair, count, panel, apart, into, True)  # type: ignore[call-arg]
                    if c == last:
                        i = rows[t]
                        left, total, first, at = grid[0, i], grid[1, i], grid[2, i], target + i * step
                        _finish(into, right + here, add + here, shift + here, left, total, first, 0.0, at)
                        second = into + 4 * _WIDE, right + there, add + there, shift + there
                        _finish(*second, left, total, first, 0.0, at + 4 * _WIDE)
            if not whole:
                for i in rows[begin:end]:
                    for k in range(m - j):
                        out[i * stride + j + k] = few[i, k]


@numba.njit(cache=True, nogil=True)
def _multiply_strips(
    rows: np.ndarray,
    strips: np.ndarray,
    panels: np.ndarray,
    grid: np.ndarray,
    columns: np.ndarray,
    tile: np.ndarray,
    few: np.ndarray,
    m: int,
    out: np.ndarray,
    stride: int,
) -> None:
    """Inner products of the rows in strips, a panel at a time; the last columns, if fewer, by way of `few`."""
    into, steps = tile.ctypes.data, panels.shape[1]
    first_strip, first_panel = strips.ctypes.data, panels.ctypes.data
    right, add, shift = columns.ctypes.data, columns[1:].ctypes.data, columns[2:].ctypes.data
    for j in range(0, m, _WIDE):
        panel, here = first_panel + 4 * steps * j, 8 * j
        whole = j + _WIDE <= m
        target, step = (out[j:].ctypes.data, 4 * stride) if whole else (few.ctypes.data, 8 * _WIDE)
        for s in range(strips.shape[0]):
            _register_tile(first_strip + 4 * s * steps * _TALL, panel, steps, into)  # type: ignore[call-arg]
            for r in range(min(_TALL, rows.size - s * _TALL)):
                i, exact = rows[s * _TALL + r], into + 4 * r * _WIDE
                numbers = grid[0, i], grid[1, i], grid[2, i], grid[3, i]
                _finish(exact, right + here, add + here, shift + here, *numbers, target + i * step)
        if not whole:
            for i in rows:
                for k in range(m - j):
                    out[i * stride + j + k] = few[i, k]


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
    n, m, width = codes.shape[0], other_codes.shape[0], codes.shape[1]
    sums, _ = sums_of_codes(codes)
    other_sums, _ = sums_of_codes(other_codes)
    background, listed = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
    found = _choose(codes, m, background, listed) if _LISTS else 0
    # Scale, sum, offset, and what the signed side lacks. Codes without their background are the row on a grid that begins
    # there.
    grid = np.empty((4, n))
    strip_rows, list_rows = np.empty(n - found, np.int64), np.empty(found, np.int64)
    chosen = np.empty((n - found, width), np.uint8) if found else codes
    s, t = 0, 0
    for i in range(n):
        grid[0, i], grid[1, i], grid[3, i] = scale[i], scale[i] * sums[i] + n_features * offset[i], _SHIFT * sums[i]
        if listed[i]:
            list_rows[t], grid[2, i] = i, offset[i] + scale[i] * background[i]
            t += 1
        else:
            strip_rows[s], grid[2, i] = i, offset[i]
            if found:
                for k in range(width):
                    chosen[s, k] = codes[i, k]
            s += 1
    panels = _packed(other_codes, _WIDE, _SIGN_BITS) if _BYTES else _panels(other_codes)
    columns = np.zeros((3, panels.shape[0] * _WIDE))
    for j in range(m):
        columns[0, j], columns[1, j], columns[2, j] = other_scale[j], other_offset[j], other_scale[j] * other_sums[j]
    few = np.empty((n, 2 * _WIDE), np.float32)
    if s:
        tile = np.empty((_TALL, _WIDE), np.int32)
        strips = _packed(chosen, _TALL, np.int32(0))
        _multiply_strips(strip_rows, strips, panels, grid, columns, tile, few, m, out, stride)
    if _LISTS and t:  # the first is a constant: nothing of this is compiled where there are no lists
        exact = np.empty((t, 2 * _WIDE), np.int32)
        places, pairs, bounds = _lists(codes, list_rows, background, _ORDERS)
        _multiply_lists(list_rows, places, pairs, bounds, panels, grid, columns, exact, few, m, out, stride)


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
