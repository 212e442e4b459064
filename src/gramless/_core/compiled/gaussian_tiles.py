"""The Gaussian kernel from products to values in registers, and its products with coefficients.

With the points scaled by `sqrt(2 gamma)` and `half_x = ||x||^2 / 2`, an entry is `exp(min(<x, y> - half_x - half_y, 0))`. A
register tile of inner products (a strip of rows against a panel of others, both packed feature by feature) becomes kernel
values where it is: no block of products goes to memory and comes back for the exponential, which with a few dozen features
costs more than the products do.

    block   writes the values                                    O(n m d)
    expand  multiplies them with coefficients while they are in the first cache; no value goes to memory

A panel has two vectors of points in float32, 16 with AVX2 and 32 with AVX-512, and four in float64, which are multiplied two
at a time: with strips of 6 and 12 rows as many sums as the processor has registers for.

The exponential is a polynomial after the power of two is taken out (see `scalar`), correct to two units in the last place.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramless._core.compiled import scalar as _scalar
from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba
from gramless._core.compiled.subnormals import flush_subnormals, restore_subnormals

WIDE = 2 * _simd.LANES
"""Points in a panel."""
TALL = 12 if _simd.LANES == 16 else 6
"""Rows in a strip."""
_VECTORS = 2
# Two columns of coefficients at a time: as many sums in registers as a tile of kernel values has.
_COLUMNS = 2
# A block of panels stays in the cache of a core while the strips pass, and its kernel values for a strip in the first one.
_BYTES_OF_PANELS = 1 << 18
_PANELS = 32
# 1.5 * 2^52 and 1.5 * 2^23: added to a number of moderate size, they leave the nearest integer in the last bits.
_ROUND = {"double": 6755399441055744.0, "float": 12582912.0}
_LN2 = {"double": (0.6931471803691238, 1.9082149292705877e-10), "float": (0.693359375, -2.12194440e-4)}
# Below these the result is zero (see `scalar`).
_SMALLEST = {"double": -708.0, "float": float(_scalar.SMALLEST)}
# (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2, highest power first: Taylor's terms as far as double precision sees them.
_POLYNOMIAL = {
    "double": [1 / factorial(n) for n in range(12, 1, -1)],
    "float": [float(c) for c in _scalar._P],
}


def lanes(itemsize: int) -> int:
    """Numbers of this size in a vector."""
    return _simd.LANES * 4 // itemsize


def _kind(number: Any) -> Any:
    return _simd.DOUBLES if number == types.float64 else _simd.FLOATS


def _constant(kind: Any, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _simd.call(builder, f"llvm.fma.{_simd.suffix(a.type)}", a.type, a, b, c)


def _exponential(builder: Any, x: Any) -> Any:
    """`exp(x)` in each lane, for numbers of at most zero."""
    kind = x.type
    name = "double" if kind.element == _simd.F64 else "float"
    smallest = _constant(kind, _SMALLEST[name])
    counts = builder.fcmp_ordered(">=", x, smallest)
    x = _simd.call(builder, f"llvm.maxnum.{_simd.suffix(kind)}", kind, x, smallest)
    rounder = _constant(kind, _ROUND[name])
    shifted = _fma(builder, x, _constant(kind, 1.4426950408889634), rounder)
    k = builder.fsub(shifted, rounder)
    high, low = _LN2[name]
    r = _fma(builder, k, _constant(kind, -low), _fma(builder, k, _constant(kind, -high), x))
    first, *others = _POLYNOMIAL[name]
    p: Any = _constant(kind, first)
    for coefficient in others:
        p = _fma(builder, p, r, _constant(kind, coefficient))
    p = builder.fadd(_fma(builder, builder.fmul(p, r), r, r), _constant(kind, 1.0))
    # The last bits of `shifted` are k: moved to the exponent's place, they multiply p by 2^k.
    bits, mantissa = (64, 52) if name == "double" else (32, 23)
    integers = ir.VectorType(ir.IntType(bits), kind.count)
    places = ir.Constant(integers, [mantissa] * kind.count)
    exponent = builder.shl(builder.bitcast(shifted, integers), places)
    power = builder.bitcast(builder.add(builder.bitcast(p, integers), exponent), kind)
    return builder.select(counts, power, _constant(kind, 0.0))


@intrinsic
def _kernel_tile(
    context: Any, strip: Any, panel: Any, steps: Any, half_x: Any, half_y: Any, out: Any, stride: Any, most: Any
) -> Any:
    """Kernel values of a strip and a panel into rows of `out`; addresses and counts, and an exponent's bound, zero."""
    address = types.uintp
    signature = types.void(address, address, types.intp, address, address, address, types.intp, most)
    kind = _kind(most)
    places = [range(first, first + _VECTORS) for first in range(0, WIDE // kind.count, _VECTORS)]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        strip, panel, half_x, half_y, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 1, 3, 4, 5))
        bound = _simd.broadcast(builder, arguments[7])
        for vectors in places:

            def step(k: Any, sums: Any, vectors: range = vectors) -> list[Any]:
                here = _simd.at(builder, panel, _simd.times(builder, k, WIDE))
                right = [_simd.load(builder, _simd.at(builder, here, kind.count * v), kind) for v in vectors]
                here = _simd.at(builder, strip, _simd.times(builder, k, TALL))
                new = []
                for i in range(TALL):
                    left = _simd.broadcast(builder, builder.load(_simd.at(builder, here, i)))
                    new += [_fma(builder, left, right[v], sums[i * _VECTORS + v]) for v in range(_VECTORS)]
                return new

            sums = _simd.accumulate(builder, arguments[2], TALL * _VECTORS, kind, step)
            halves = [_simd.load(builder, _simd.at(builder, half_y, kind.count * v), kind) for v in vectors]
            for i in range(TALL):
                shift = _simd.broadcast(builder, builder.load(_simd.at(builder, half_x, i)))
                row = _simd.at(builder, out, _simd.times(builder, arguments[6], i))
                for number, v in enumerate(vectors):
                    exponent = builder.fsub(sums[i * _VECTORS + number], builder.fadd(shift, halves[number]))
                    exponent = _simd.call(builder, f"llvm.minnum.{_simd.suffix(kind)}", kind, exponent, bound)
                    _simd.store(builder, _exponential(builder, exponent), _simd.at(builder, row, kind.count * v))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _dots(context: Any, values: Any, stride: Any, coef: Any, steps: Any, out: Any, number: Any) -> Any:
    """`out[row][column]` = the sum of values times coefficients, packed as [steps][columns][lanes]; `number` is one."""
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, number)
    kind = _kind(number)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, coef, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 2, 4))
        rows = [_simd.at(builder, values, _simd.times(builder, arguments[1], i)) for i in range(TALL)]

        def step(k: Any, sums: Any) -> list[Any]:
            here = _simd.at(builder, coef, _simd.times(builder, k, _COLUMNS * kind.count))
            right = [_simd.load(builder, _simd.at(builder, here, kind.count * c), kind) for c in range(_COLUMNS)]
            along = _simd.times(builder, k, kind.count)
            new = []
            for i in range(TALL):
                left = _simd.load(builder, _simd.at(builder, rows[i], along), kind)
                new += [_fma(builder, left, right[c], sums[i * _COLUMNS + c]) for c in range(_COLUMNS)]
            return new

        zero = ir.Constant(kind.element, 0.0)
        for place, value in enumerate(_simd.accumulate(builder, arguments[3], TALL * _COLUMNS, kind, step)):
            builder.store(_simd.add_lanes(builder, value, zero), _simd.at(builder, out, place))
        return context.get_dummy_value()

    return signature, generate


# Compiled once for each precision, not wherever it is called.
@numba.njit(cache=True, nogil=True)
def _values(strip: int, panel: int, steps: int, half_x: int, half_y: int, out: int, stride: int, most: Any) -> None:
    _kernel_tile(strip, panel, steps, half_x, half_y, out, stride, most)  # type: ignore[call-arg]


@numba.njit(cache=True, nogil=True)
def strips(X: np.ndarray, shift: np.ndarray, scale: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows scaled and packed feature by feature, a strip together, and half of their squared norms; zeros fill the last."""
    n, d = X.shape
    packed = np.zeros((-(-n // TALL), d, TALL), X.dtype)
    half = np.zeros(packed.shape[0] * TALL, X.dtype)
    for i in range(n):
        there = packed[i // TALL]
        place = i % TALL
        total = X.dtype.type(0)
        for k in range(d):
            value = (X[i, k] - shift[k]) * scale
            there[k, place] = value
            total += value * value
        half[i] = total / 2
    return packed, half


@numba.njit(cache=True, nogil=True)
def _pack_panel(X: np.ndarray, first: int, shift: np.ndarray, scale: Any, there: np.ndarray, half: np.ndarray) -> None:
    for k in range(X.shape[1]):
        away = shift[k]
        for i in range(WIDE):
            value = (X[first + i, k] - away) * scale
            there[k, i] = value
            half[i] += value * value
    for i in range(WIDE):
        half[i] /= 2


@numba.njit(cache=True, nogil=True)
def panels(X: np.ndarray, shift: np.ndarray, scale: Any, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The other side of `strips`: panels of the points of each group, none of which holds points of two.

    `bounds` are the first points of the groups and the end of the last. Gives the packed points, half of their squared
    norms, and the first panel of each group.
    """
    firsts = np.zeros(bounds.size, np.int64)
    for g in range(bounds.size - 1):
        firsts[g + 1] = firsts[g] + -(-(bounds[g + 1] - bounds[g]) // WIDE)
    d = X.shape[1]
    packed = np.empty((firsts[-1], d, WIDE), X.dtype)
    half = np.zeros(firsts[-1] * WIDE, X.dtype)
    few = np.zeros((WIDE, d), X.dtype)
    for g in range(bounds.size - 1):
        for p in range(firsts[g], firsts[g + 1]):
            first = bounds[g] + (p - firsts[g]) * WIDE
            there, halves = packed[p], half[p * WIDE : (p + 1) * WIDE]
            if first + WIDE <= bounds[g + 1]:
                _pack_panel(X, first, shift, scale, there, halves)
                continue
            for i in range(WIDE):
                row = min(first + i, bounds[g + 1] - 1)
                for k in range(d):
                    few[i, k] = X[row, k]
            _pack_panel(few, 0, shift, scale, there, halves)
    return packed, half, firsts


@numba.njit(cache=True, nogil=True)
def _panels_together(d: int, itemsize: int) -> int:
    return max(1, min(_PANELS, _BYTES_OF_PANELS // (d * WIDE * itemsize)))


@numba.njit(cache=True, nogil=True)
def block(X: np.ndarray, Y: np.ndarray, shift: np.ndarray, scale: Any, flat: np.ndarray, stride: int) -> None:
    """Kernel values of the rows of `X` and `Y`, into rows of a flat array `stride` apart."""
    n, m, d = X.shape[0], Y.shape[0], X.shape[1]
    zero = X.dtype.type(0)
    left, half_x = strips(X, shift, scale)
    right, half_y, _ = panels(Y, shift, scale, np.array([0, m]))
    tile = np.empty((TALL, WIDE), X.dtype)
    together = _panels_together(d, X.itemsize)
    for start in range(0, right.shape[0], together):
        for s in range(left.shape[0]):
            strip, halves = left[s:].ctypes.data, half_x[s * TALL :].ctypes.data
            rows = min(TALL, n - s * TALL)
            for p in range(start, min(start + together, right.shape[0])):
                panel, other = right[p:].ctypes.data, half_y[p * WIDE :].ctypes.data
                first = s * TALL * stride + p * WIDE
                if rows == TALL and (p + 1) * WIDE <= m:
                    _values(strip, panel, d, halves, other, flat[first:].ctypes.data, stride, zero)
                    continue
                _values(strip, panel, d, halves, other, tile.ctypes.data, WIDE, zero)
                for r in range(rows):
                    for j in range(min(WIDE, m - p * WIDE)):
                        flat[first + r * stride + j] = tile[r, j]


@numba.njit(cache=True, nogil=True)
def columns(coef: np.ndarray, bounds: np.ndarray, firsts: np.ndarray, lanes: int) -> np.ndarray:
    """Coefficients beside the panels of their points: shape (pairs of columns, vectors, 2, lanes), zeros where none is."""
    k = coef.shape[1]
    out = np.zeros((-(-k // _COLUMNS), firsts[-1] * WIDE // lanes, _COLUMNS, lanes), coef.dtype)
    for g in range(bounds.size - 1):
        for i in range(bounds[g], bounds[g + 1]):
            place = firsts[g] * WIDE + i - bounds[g]
            vector, lane = place // lanes, place % lanes
            for c in range(k):
                out[c // _COLUMNS, vector, c % _COLUMNS, lane] = coef[i, c]
    return out


@numba.njit(cache=True, nogil=True)
def expand(
    left: np.ndarray,
    half_x: np.ndarray,
    right: np.ndarray,
    half_y: np.ndarray,
    firsts: np.ndarray,
    coef: np.ndarray,
    into: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Add `K(rows, points of g) @ coef of g` to the columns `into[g]` of `scores`, for every group of points.

    Sums are in the precision of the points over a few hundred of them, and in that of `scores` beyond.
    """
    mode: Any = flush_subnormals()  # type: ignore[call-arg]
    d = left.shape[1]
    lanes = coef.shape[3]
    together = _panels_together(d, left.itemsize)
    width = together * WIDE
    values = np.empty((TALL, width), left.dtype)
    sums = np.empty((TALL, _COLUMNS), left.dtype)
    zero = left.dtype.type(0)
    for g in range(firsts.size - 1):
        for start in range(firsts[g], firsts[g + 1], together):
            stop = min(start + together, firsts[g + 1])
            for s in range(left.shape[0]):
                strip, halves = left[s:].ctypes.data, half_x[s * TALL :].ctypes.data
                for p in range(start, stop):
                    there = values[:, (p - start) * WIDE :].ctypes.data
                    panel, other = right[p:].ctypes.data, half_y[p * WIDE :].ctypes.data
                    _values(strip, panel, d, halves, other, there, width, zero)
                rows = min(TALL, scores.shape[0] - s * TALL)
                for pair in range(coef.shape[0]):
                    weights = coef[pair, start * WIDE // lanes :].ctypes.data
                    vectors = (stop - start) * WIDE // lanes
                    _dots(values.ctypes.data, width, weights, vectors, sums.ctypes.data, zero)
                    for c in range(min(_COLUMNS, into.shape[1] - pair * _COLUMNS)):
                        column = into[g, pair * _COLUMNS + c]
                        for r in range(rows):
                            scores[s * TALL + r, column] += sums[r, c]
    restore_subnormals(mode)
