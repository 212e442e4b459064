"""Compiled loops for Gaussian kernel values, and for sums over features that no matrix product computes.

    fill    exp(-gamma ||x_i - y_j||^2), or one of the sums over k below                              O(n m d)
    expand  K(X, points) @ coef; kernel values stay in the first-level cache and are not stored    O(n m (d + k))
    multiply_lower_tiles  K(X, X) @ V, where each value is used for both triangles               O(n^2 (d / 2 + k))

    CITY_BLOCK    sum_k |x_k - y_k|         HARMONIC      sum_k 2 x_k y_k / (x_k + y_k)
    DIFFERING     #{k : x_k != y_k}         CHI_SQUARE    sum_k (x_k - y_k)^2 / (x_k + y_k)
    INTERSECTION  sum_k min(x_k, y_k)

A strip is a block of rows of `X` and a panel a block of rows of `Y`, both stored feature by feature; the sums over features
stay in registers. For points scaled by `gaussian_scale(gamma)` and `shift_x = -||x||^2 / 2`, a Gaussian kernel value is
`2^min(<x, y> + shift_x + shift_y, 0)`. It is computed in registers, because writing inner products to memory and reading
them for the exponential takes longer than computing the inner products of a few dozen features. `exp_of_products` converts
inner products that other functions have computed, for rows stored as bytes and for long rows. `benchmarks/cpu_products.py`
prints the fraction of the processor's peak rate of additions that the city-block distances reach.

A panel has 16 points with AVX2 and 32 with AVX-512: two vectors in float32, and four in float64, of which two are multiplied
at a time. With strips of 6 (AVX2) or 12 (AVX-512) rows the sums fill the registers. A vector of kernel values takes one
instruction for each feature, and fourteen (float32) or twenty-one (float64) instructions for the exponential.
"""

from __future__ import annotations

from math import factorial, log
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramless._core import arrays as xa
from gramless._core.compiled import scalar as _scalar
from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba

Points = tuple[np.ndarray, np.ndarray]
"""Packed points (in strips or panels), and minus half of their squared norms."""

GAUSSIAN, CITY_BLOCK, DIFFERING, HARMONIC, CHI_SQUARE, INTERSECTION = range(6)
"""Codes of the functions of two rows that `fill` computes."""

PANEL_POINTS = 2 * _simd.LANES
"""Number of points in a panel."""
STRIP_ROWS = 12 if _simd.LANES == 16 else 6
"""Number of rows in a strip."""
_VECTORS = 2
# Number of coefficient columns multiplied at a time: with two, sums need as many registers as a tile of kernel values.
_COLUMNS = 2
# All strips are multiplied with one group of panels before the next. Upper bounds in bytes on the points of a group (in the
# second-level cache), and on the kernel values of one strip and a group (in the first-level cache).
_PANEL_BYTES = 1 << 18
_VALUE_BYTES = 1 << 14
# Number of rows and of columns of a tile of `multiply_lower_tiles`, a multiple of `STRIP_ROWS` and `PANEL_POINTS`, and the
# number of strips whose products are summed in the dtype of the points before they are added to float64 sums.
TILE_ROWS = 960
_SUMMED_STRIPS = 16
# The power 2^t for t <= 0 is 2^k 2^r, where k is the integer nearest to t and r = t - k. In float32 the last bits of the sum
# 1.5 * 2^23 + t are k (float64: 1.5 * 2^52 + t). If `zero` is also added, these bits, shifted to the exponent field, are
# the number 2^(k + zero - bias), or 0.0 for the smallest k, which is -zero. The polynomial of 2^r contains the remaining
# factor 2^(bias - zero). Kernel values below 2^-zero (1e-30 in float32) are thus zero: they are less than the rounding error
# of sums, and their products could be subnormal numbers, with which many processors are a hundred times slower.
_ZERO, _BIAS, _MANTISSA = {"double": 1000, "float": 100}, {"double": 1023, "float": 127}, {"double": 52, "float": 23}
# Polynomials of 2^r on |r| <= 1/2, highest power first. In float64 it is the Taylor series, whose omitted terms are less
# than the rounding error; in float32 it is the minimax polynomial with p(0) = 1, whose relative error is 9e-8.
_POLYNOMIAL = {
    "double": [log(2) ** n / factorial(n) for n in range(12, -1, -1)],
    "float": [1.32647272e-3, 9.67151281e-3, 5.55073372e-2, 2.40220423e-1, 6.93146978e-1, 1.0],
}


def lanes(itemsize: int) -> int:
    """Return the number of elements of `itemsize` bytes in a vector."""
    return _simd.LANES * 4 // itemsize


def _kind(number: Any) -> Any:
    return _simd.DOUBLES if number == types.float64 else _simd.FLOATS


def _constant(kind: Any, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _simd.call(builder, f"llvm.fma.{_simd.suffix(a.type)}", a.type, a, b, c)


def gaussian_scale(gamma: float) -> float:
    """Return the factor by which points are scaled so that the Gaussian kernel is `2^(-||x - y||^2 / 2)`."""
    return float((2 * gamma / log(2)) ** 0.5)


def _power_of_two(builder: Any, t: Any) -> Any:
    """Return `2^t` in each lane, for values `t` of at most zero."""
    kind = t.type
    name = "double" if kind.element == _simd.F64 else "float"
    zero, mantissa = _ZERO[name], _MANTISSA[name]
    t = _simd.call(builder, f"llvm.maxnum.{_simd.suffix(kind)}", kind, t, _constant(kind, -zero))
    rounder = _constant(kind, 1.5 * 2.0**mantissa + zero)
    shifted = builder.fadd(t, rounder)
    r = builder.fsub(t, builder.fsub(shifted, rounder))
    first, *others = (coefficient * 2.0 ** (_BIAS[name] - zero) for coefficient in _POLYNOMIAL[name])
    p: Any = _constant(kind, first)
    for coefficient in others:
        p = _fma(builder, p, r, _constant(kind, coefficient))
    integers = ir.VectorType(ir.IntType(8 * _simd.LANES * 4 // kind.count), kind.count)
    exponent = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [mantissa] * kind.count))
    return builder.fmul(p, builder.bitcast(exponent, kind))


def _add_product(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return _fma(builder, x, y, total)


def _add_difference(builder: Any, total: Any, x: Any, y: Any) -> Any:
    difference = builder.fsub(x, y)
    return builder.fadd(total, _simd.call(builder, f"llvm.fabs.{_simd.suffix(x.type)}", x.type, difference))


def _add_unequal(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.uitofp(builder.fcmp_unordered("!=", x, y), x.type))


def _add_over_sum(builder: Any, total: Any, term: Any, x: Any, y: Any) -> Any:
    """Add `term / max(x + y, tiny)` to `total`; `tiny` avoids a division by zero if a bin is empty in both histograms."""
    tiny = _constant(x.type, float(np.finfo(np.float64 if x.type == _simd.DOUBLES else np.float32).tiny))
    positive = _simd.call(builder, f"llvm.maxnum.{_simd.suffix(x.type)}", x.type, builder.fadd(x, y), tiny)
    return builder.fadd(total, builder.fdiv(term, positive))


def _add_harmonic(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return _add_over_sum(builder, total, builder.fmul(builder.fadd(x, x), y), x, y)


def _add_chi_square(builder: Any, total: Any, x: Any, y: Any) -> Any:
    difference = builder.fsub(x, y)
    return _add_over_sum(builder, total, builder.fmul(difference, difference), x, y)


def _add_smaller(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, _simd.call(builder, f"llvm.minnum.{_simd.suffix(x.type)}", x.type, x, y))


_TERMS = (_add_product, _add_difference, _add_unequal, _add_harmonic, _add_chi_square, _add_smaller)
"""For each function of two rows, a generator of code that adds the term of one feature to the sums."""


@intrinsic
def _tile(
    context: Any,
    which: Any,
    strip: Any,
    panel: Any,
    steps: Any,
    shift_x: Any,
    shift_y: Any,
    out: Any,
    stride: Any,
    number: Any,
) -> Any:
    """Write the values of the function `which` for a strip and a panel to `out`; array arguments are addresses.

    The argument `number` only passes the dtype of the values.
    """
    address = types.uintp
    signature = types.void(types.intp, address, address, types.intp, address, address, address, types.intp, number)
    kind = _kind(number)

    def write(builder: Any, function: int, addresses: list[Any], steps: Any, stride: Any) -> None:
        strip, panel, shift_x, shift_y, out = addresses
        largest = _constant(kind, 0.0)
        width = _VECTORS if function == GAUSSIAN else 1
        for first in range(0, PANEL_POINTS // kind.count, width):
            vectors = range(first, first + width)
            step = _simd.tile_step(builder, strip, panel, (STRIP_ROWS, PANEL_POINTS), vectors, kind, _TERMS[function])
            sums = _simd.accumulate(builder, steps, STRIP_ROWS * width, kind, step)
            shifts = [_simd.load(builder, _simd.at(builder, shift_y, kind.count * v), kind) for v in vectors]
            for i in range(STRIP_ROWS):
                shift = _simd.broadcast(builder, builder.load(_simd.at(builder, shift_x, i)))
                row = _simd.at(builder, out, _simd.times(builder, stride, i))
                for place, v in enumerate(vectors):
                    value = sums[i * width + place]
                    if function == GAUSSIAN:
                        # The shifts are added last, so that the sum is exactly zero for two equal points of one feature.
                        value = builder.fadd(value, builder.fadd(shift, shifts[place]))
                        value = _simd.call(builder, f"llvm.minnum.{_simd.suffix(kind)}", kind, value, largest)
                        value = _power_of_two(builder, value)
                    _simd.store(builder, value, _simd.at(builder, row, kind.count * v))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addresses = [_simd.pointer(builder, arguments[i], kind.element) for i in (1, 2, 4, 5, 6)]
        for function in range(len(_TERMS)):
            with builder.if_then(builder.icmp_signed("==", arguments[0], ir.Constant(_simd.I64, function))):
                write(builder, function, addresses, arguments[3], arguments[7])
        return context.get_dummy_value()

    return signature, generate


def _dots(
    builder: Any, values: Any, stride: Any, coef: Any, steps: Any, out: Any, stored: Any, kind: Any, width: int
) -> None:
    """Set `out[row][column]` to the product of kernel values and coefficients packed as [steps][columns][lanes]."""
    rows = [_simd.at(builder, values, _simd.times(builder, stride, i)) for i in range(STRIP_ROWS)]

    def step(k: Any, sums: Any) -> list[Any]:
        here = _simd.at(builder, coef, _simd.times(builder, k, width * kind.count))
        right = [_simd.load(builder, _simd.at(builder, here, kind.count * c), kind) for c in range(width)]
        along = _simd.times(builder, k, kind.count)
        new = []
        for i in range(STRIP_ROWS):
            left = _simd.load(builder, _simd.at(builder, rows[i], along), kind)
            new += [_fma(builder, left, right[c], sums[i * width + c]) for c in range(width)]
        return new

    zero = ir.Constant(kind.element, 0.0)
    for place, value in enumerate(_simd.accumulate(builder, steps, STRIP_ROWS * width, kind, step)):
        builder.store(_simd.add_lanes(builder, value, zero), _simd.at(builder, out, place))


def _add_transposed(
    builder: Any, values: Any, stride: Any, factors: Any, steps: Any, out: Any, stored: Any, kind: Any, width: int
) -> None:
    """Add the product of the transposed kernel values and the factors of shape (rows, columns) to `out`.

    `out` is packed as [steps][columns][lanes].
    """
    rows = [_simd.at(builder, values, _simd.times(builder, stride, i)) for i in range(STRIP_ROWS)]
    weights = [_simd.broadcast(builder, builder.load(_simd.at(builder, factors, i))) for i in range(STRIP_ROWS * width)]

    def step(k: Any, sums: Any) -> list[Any]:
        here = _simd.at(builder, out, _simd.times(builder, k, width * kind.count))
        places = [_simd.at(builder, here, kind.count * c) for c in range(width)]
        totals = [_simd.load(builder, place, kind) for place in places]
        along = _simd.times(builder, k, kind.count)
        for i in range(STRIP_ROWS):
            value = _simd.load(builder, _simd.at(builder, rows[i], along), kind)
            totals = [_fma(builder, value, weights[i * width + c], totals[c]) for c in range(width)]
        for total, place in zip(totals, places, strict=True):
            _simd.store(builder, total, place)
        return []

    _simd.accumulate(builder, steps, 0, kind, step)


_times_columns = _simd.product(_dots, (_COLUMNS,))
_transposed_times_columns = _simd.product(_add_transposed, (_COLUMNS,))


# A separate function, so that numba compiles the intrinsic once for each precision and not for each caller. The tiles are
# given by addresses, because numba counts references to each array slice with atomic operations.
@numba.njit(cache=True, nogil=True)
def _fill_strip(
    which: int, left: Points, right: Points, s: int, start: int, stop: int, out: np.ndarray, first: int, stride: int
) -> None:
    """Write the values of strip `s` and panels `start` to `stop - 1` to `out`, whose first row begins at index `first`."""
    d, size, zero = left[0].shape[1], left[0].itemsize, left[0].dtype.type(0)
    strip, x = left[0].ctypes.data + size * d * STRIP_ROWS * s, left[1].ctypes.data + size * STRIP_ROWS * s
    for p in range(start, stop):
        panel, y = right[0].ctypes.data + size * d * PANEL_POINTS * p, right[1].ctypes.data + size * PANEL_POINTS * p
        place = out.ctypes.data + size * (first + (p - start) * PANEL_POINTS)
        _tile(which, strip, panel, d, x, y, place, stride, zero)  # type: ignore[call-arg]


@numba.njit(cache=True, nogil=True)
def strips(X: np.ndarray, shift: np.ndarray, scale: Any) -> Points:
    """Return the shifted and scaled rows in strips, packed feature by feature, and minus half of their squared norms.

    The last strip is padded with zero rows.
    """
    n, d = X.shape
    packed = np.zeros((-(-n // STRIP_ROWS), d, STRIP_ROWS), X.dtype)
    half = np.zeros(packed.shape[0] * STRIP_ROWS, X.dtype)
    for i in range(n):
        target = packed[i // STRIP_ROWS]
        place = i % STRIP_ROWS
        total = X.dtype.type(0)
        for k in range(d):
            value = (X[i, k] - shift[k]) * scale
            target[k, place] = value
            total += value * value
        half[i] = -total / 2
    return packed, half


@numba.njit(cache=True, nogil=True)
def _pack_panel(X: np.ndarray, first: int, shift: np.ndarray, scale: Any, target: np.ndarray, half: np.ndarray) -> None:
    for k in range(X.shape[1]):
        offset = shift[k]
        for i in range(PANEL_POINTS):
            value = (X[first + i, k] - offset) * scale
            target[k, i] = value
            half[i] += value * value
    for i in range(PANEL_POINTS):
        half[i] /= -2


@numba.njit(cache=True, nogil=True)
def panels(X: np.ndarray, shift: np.ndarray, scale: Any, bounds: np.ndarray) -> tuple[Points, np.ndarray]:
    """Return the shifted and scaled points in panels, and the index of the first panel of each group.

    Group g has the points `bounds[g]` to `bounds[g + 1] - 1`; no panel has points of two groups. The last panel of a group
    is padded with copies of its last point.
    """
    firsts = np.zeros(bounds.size, np.int64)
    for g in range(bounds.size - 1):
        firsts[g + 1] = firsts[g] + -(-(bounds[g + 1] - bounds[g]) // PANEL_POINTS)
    d = X.shape[1]
    packed = np.empty((firsts[-1], d, PANEL_POINTS), X.dtype)
    half = np.zeros(firsts[-1] * PANEL_POINTS, X.dtype)
    padded = np.zeros((PANEL_POINTS, d), X.dtype)
    for g in range(bounds.size - 1):
        for p in range(firsts[g], firsts[g + 1]):
            first = bounds[g] + (p - firsts[g]) * PANEL_POINTS
            target, halves = packed[p], half[p * PANEL_POINTS : (p + 1) * PANEL_POINTS]
            if first + PANEL_POINTS <= bounds[g + 1]:
                _pack_panel(X, first, shift, scale, target, halves)
                continue
            for i in range(PANEL_POINTS):
                row = min(first + i, bounds[g + 1] - 1)
                for k in range(d):
                    padded[i, k] = X[row, k]
            _pack_panel(padded, 0, shift, scale, target, halves)
    return (packed, half), firsts


@numba.njit(cache=True, nogil=True)
def _panels_per_group(d: int, itemsize: int) -> int:
    return max(1, min(_VALUE_BYTES // STRIP_ROWS, _PANEL_BYTES // d) // (PANEL_POINTS * itemsize))


@numba.njit(cache=True, nogil=True)
def _fill(which: int, X: np.ndarray, Y: np.ndarray, shift: np.ndarray, scale: Any, flat: np.ndarray, stride: int) -> None:
    """Write the function values of all pairs of rows; the values of row i of `X` start at `flat[i * stride]`."""
    n, m = X.shape[0], Y.shape[0]
    left, (right, _) = strips(X, shift, scale), panels(Y, shift, scale, np.array([0, m]))
    n_strips, n_panels = left[0].shape[0], right[0].shape[0]
    tile = np.empty(STRIP_ROWS * PANEL_POINTS, X.dtype)
    panel_group = _panels_per_group(X.shape[1], X.itemsize)
    for start in range(0, n_panels, panel_group):
        stop = min(start + panel_group, n_panels)
        for s in range(n_strips):
            rows, first = min(STRIP_ROWS, n - s * STRIP_ROWS), s * STRIP_ROWS * stride
            end = min(stop, m // PANEL_POINTS) if rows == STRIP_ROWS else start
            _fill_strip(which, left, right, s, start, end, flat, first + start * PANEL_POINTS, stride)
            for p in range(end, stop):
                _fill_strip(which, left, right, s, p, p + 1, tile, 0, PANEL_POINTS)
                for r in range(rows):
                    for j in range(min(PANEL_POINTS, m - p * PANEL_POINTS)):
                        flat[first + r * stride + p * PANEL_POINTS + j] = tile[r * PANEL_POINTS + j]


def fill(
    which: int, X: np.ndarray, Y: np.ndarray, out: np.ndarray, shift: np.ndarray | None = None, scale: float = 1.0
) -> None:
    """Write the function `which` of all pairs of shifted and scaled rows to `out`, computed in the dtype of `out`."""
    # Conversion to one memory layout and one dtype limits numba to one compiled version for each precision.
    rows, others = np.ascontiguousarray(X, out.dtype), np.ascontiguousarray(Y, out.dtype)
    xa.check_same_columns(rows, others)
    if out.shape != (len(rows), len(others)):
        raise ValueError(f"the values of {len(rows)} and {len(others)} rows cannot be written to shape {out.shape}")
    shift = np.zeros(X.shape[1], out.dtype) if shift is None else shift
    target = out if xa.has_contiguous_rows(out) else np.empty(out.shape, out.dtype)
    if 0 in (*out.shape, X.shape[1]):
        target[...] = 0
    else:
        _fill(which, rows, others, shift, out.dtype.type(scale), *xa.as_flat(target))
    if target is not out:
        out[...] = target


@numba.njit(cache=True, nogil=True)
def columns(coef: np.ndarray, bounds: np.ndarray, firsts: np.ndarray, lanes: int) -> np.ndarray:
    """Return the coefficients in the order of the panels: shape (pairs of columns, vectors, 2, lanes), padded with zeros."""
    k = coef.shape[1]
    out = np.zeros((-(-k // _COLUMNS), firsts[-1] * PANEL_POINTS // lanes, _COLUMNS, lanes), coef.dtype)
    for g in range(bounds.size - 1):
        for i in range(bounds[g], bounds[g + 1]):
            place = firsts[g] * PANEL_POINTS + i - bounds[g]
            vector, lane = place // lanes, place % lanes
            for c in range(k):
                out[c // _COLUMNS, vector, c % _COLUMNS, lane] = coef[i, c]
    return out


@numba.njit(cache=True, nogil=True)
def _multiply_strip(
    values: np.ndarray, stride: int, coef: np.ndarray, pair: int, start: int, stop: int, sums: np.ndarray
) -> None:
    """Write to `sums` the products of a strip of values (panels `start` to `stop - 1`) and a pair of coefficient columns."""
    lanes, zero = coef.shape[3], values.dtype.type(0)
    weights = coef.ctypes.data + coef.strides[0] * pair + coef.strides[1] * (start * PANEL_POINTS // lanes)
    n_vectors = (stop - start) * PANEL_POINTS // lanes
    _times_columns(values.ctypes.data, stride, weights, n_vectors, sums.ctypes.data, zero, zero, _COLUMNS)


@numba.njit(cache=True, nogil=True)
def expand(left: Points, right: Points, firsts: np.ndarray, coef: np.ndarray, into: np.ndarray, scores: np.ndarray) -> None:
    """Add the products of kernel values and coefficients of every group g of points to the columns `into[g]` of `scores`.

    Sums over a few hundred points have the dtype of the points; these partial sums are added in the dtype of `scores`.
    """
    mode: Any = _simd.flush_subnormals()  # type: ignore[call-arg]
    n_strips, d, _ = left[0].shape
    panel_group = _panels_per_group(d, coef.itemsize)
    width = panel_group * PANEL_POINTS
    values = np.empty(STRIP_ROWS * width, coef.dtype)
    sums = np.empty((STRIP_ROWS, _COLUMNS), coef.dtype)
    for g in range(firsts.size - 1):
        for start in range(firsts[g], firsts[g + 1], panel_group):
            stop = min(start + panel_group, firsts[g + 1])
            for s in range(n_strips):
                _fill_strip(GAUSSIAN, left, right, s, start, stop, values, 0, width)
                for pair in range(coef.shape[0]):
                    _multiply_strip(values, width, coef, pair, start, stop, sums)
                    for c in range(min(_COLUMNS, into.shape[1] - pair * _COLUMNS)):
                        column = into[g, pair * _COLUMNS + c]
                        for r in range(min(STRIP_ROWS, scores.shape[0] - s * STRIP_ROWS)):
                            scores[s * STRIP_ROWS + r, column] += sums[r, c]
    _simd.restore_subnormals(mode)


@numba.njit(cache=True, nogil=True)
def multiply_lower_tiles(
    left: Points, right: Points, factors: np.ndarray, coef: np.ndarray, out: np.ndarray, first: int, step: int
) -> None:
    """Add the products of the tiles `first`, `first + step`, ... of the lower triangle of a Gaussian kernel matrix to `out`.

    `left` has the points in strips and `right` has them in panels. The right-hand side V is given twice: as `factors` of
    shape (pairs of columns, rows, 2), and as `coef` in the order of the panels. `out` (float64) has the order of `coef`.
    Sums over a few hundred points have the dtype of the points.
    """
    mode: Any = _simd.flush_subnormals()  # type: ignore[call-arg]
    n_strips, n_panels, n_pairs, lanes = left[0].shape[0], right[0].shape[0], coef.shape[0], coef.shape[3]
    panel_group = _panels_per_group(left[0].shape[1], coef.itemsize)
    width = panel_group * PANEL_POINTS
    values = np.empty(STRIP_ROWS * width, coef.dtype)
    sums = np.empty((STRIP_ROWS, _COLUMNS), coef.dtype)
    below = np.zeros((n_pairs, width // lanes, _COLUMNS, lanes), coef.dtype)
    zero = coef.dtype.type(0)
    number = 0
    for i in range(-(-n_panels * PANEL_POINTS // TILE_ROWS)):
        first_strip, last_strip = i * TILE_ROWS // STRIP_ROWS, min((i + 1) * TILE_ROWS // STRIP_ROWS, n_strips)
        for j in range(i + 1):
            number += 1
            if (number - 1 - first) % step:
                continue
            last_panel = min((j + 1) * TILE_ROWS // PANEL_POINTS, n_panels)
            for start in range(j * TILE_ROWS // PANEL_POINTS, last_panel, panel_group):
                stop = min(start + panel_group, last_panel)
                n_vectors, vector = (stop - start) * PANEL_POINTS // lanes, start * PANEL_POINTS // lanes
                for s in range(first_strip, last_strip):
                    _fill_strip(GAUSSIAN, left, right, s, start, stop, values, 0, width)
                    for pair in range(n_pairs):
                        _multiply_strip(values, width, coef, pair, start, stop, sums)
                        for r in range(min(STRIP_ROWS, out.shape[1] * lanes - s * STRIP_ROWS)):
                            row = s * STRIP_ROWS + r
                            for c in range(_COLUMNS):
                                out[pair, row // lanes, c, row % lanes] += sums[r, c]
                        if i != j:
                            weights = factors.ctypes.data + factors.strides[0] * pair + factors.strides[1] * s * STRIP_ROWS
                            totals = below.ctypes.data + below.strides[0] * pair
                            place = values.ctypes.data
                            _transposed_times_columns(place, width, weights, n_vectors, totals, zero, zero, _COLUMNS)
                    if i != j and ((s - first_strip) % _SUMMED_STRIPS == _SUMMED_STRIPS - 1 or s == last_strip - 1):
                        for pair in range(n_pairs):
                            for v in range(n_vectors):
                                for c in range(_COLUMNS):
                                    for lane in range(lanes):
                                        out[pair, vector + v, c, lane] += below[pair, v, c, lane]
                                        below[pair, v, c, lane] = zero
    _simd.restore_subnormals(mode)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "nsz", "reassoc", "nnan"})
def exp_of_products(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Convert float32 inner products to Gaussian kernel values in place; row i of the block starts at `flat[i * stride]`."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = _scalar.exp32(_scalar.smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))
