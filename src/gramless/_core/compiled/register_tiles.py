"""Blocks whose sums over the features stay in registers: Gaussian kernel values, and sums that no matrix product computes.

    fill    exp(-gamma ||x_i - y_j||^2), sum_k |x_ik - y_jk|, or the number of k with x_ik != y_jk    O(n m d)
    expand  K(X, points) @ coef; kernel values stay in the first-level cache and are not stored    O(n m (d + k))

Rows of `X` are packed in strips and the others in panels, both feature by feature. For the Gaussian kernel, with the points
scaled by `sqrt(2 gamma)` and `half_x = ||x||^2 / 2`, an entry is `exp(min(<x, y> - half_x - half_y, 0))`, computed in
registers: writing the inner products to memory and reading them again for the exponential would take longer than computing
the inner products of a few dozen features. `exp_of_products` does the exponential for inner products that other functions
have computed, those of rows stored as bytes or of long rows. `benchmarks/cpu_products.py` prints the fraction of the
processor's peak rate of additions that the city-block distances reach.

A panel has 16 points with AVX2 and 32 with AVX-512: two vectors in float32, and four in float64, of which two are multiplied
at a time. With strips of 6 (AVX2) or 12 (AVX-512) rows the sums fill the registers. The exponential is a power of two times
a polynomial (see `scalar`), with an error of at most two units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramless._core import arrays as xa
from gramless._core.compiled import scalar as _scalar
from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba

GAUSSIAN, CITY_BLOCK, DIFFERING = range(3)
"""The functions of two rows that `fill` computes."""

PANEL_POINTS = 2 * _simd.LANES
"""Number of points in a panel."""
STRIP_ROWS = 12 if _simd.LANES == 16 else 6
"""Number of rows in a strip."""
_VECTORS = 2
# Columns of coefficients multiplied at a time: with two, the sums need as many registers as a tile of kernel values.
_COLUMNS = 2
# Upper bounds on the panels processed for all strips before the next ones: their bytes, so that the points stay in the
# second-level cache, and their number, so that the kernel values of one strip stay in the first-level cache.
_PANEL_BYTES = 1 << 18
_MAX_PANELS = 32
# 1.5 * 2^52 and 1.5 * 2^23: added to a number of moderate size, the last bits of the sum are the nearest integer.
_ROUND = {"double": 6755399441055744.0, "float": 12582912.0}
_LN2 = {"double": (0.6931471803691238, 1.9082149292705877e-10), "float": (0.693359375, -2.12194440e-4)}
# Arguments below these have the result zero (see `scalar.SMALLEST`).
_SMALLEST = {"double": -708.0, "float": float(_scalar.SMALLEST)}
# Polynomials of (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2, highest power first. In float64 it is the Taylor series, whose
# omitted terms are below rounding.
_POLYNOMIAL = {
    "double": [1 / factorial(n) for n in range(12, 1, -1)],
    "float": [float(c) for c in _scalar._P],
}


def lanes(itemsize: int) -> int:
    """Return how many numbers of `itemsize` bytes a vector has."""
    return _simd.LANES * 4 // itemsize


def _kind(number: Any) -> Any:
    return _simd.DOUBLES if number == types.float64 else _simd.FLOATS


def _constant(kind: Any, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _simd.call(builder, f"llvm.fma.{_simd.suffix(a.type)}", a.type, a, b, c)


def _exponential(builder: Any, x: Any) -> Any:
    """Return `exp(x)` in each lane, for numbers of at most zero."""
    kind = x.type
    name = "double" if kind.element == _simd.F64 else "float"
    smallest = _constant(kind, _SMALLEST[name])
    is_nonzero = builder.fcmp_ordered(">=", x, smallest)
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
    # The last bits of `shifted` are k. Shifted to the bits of the exponent and added to p, they multiply p by 2^k.
    bits, mantissa = (64, 52) if name == "double" else (32, 23)
    integers = ir.VectorType(ir.IntType(bits), kind.count)
    places = ir.Constant(integers, [mantissa] * kind.count)
    exponent = builder.shl(builder.bitcast(shifted, integers), places)
    power = builder.bitcast(builder.add(builder.bitcast(p, integers), exponent), kind)
    return builder.select(is_nonzero, power, _constant(kind, 0.0))


def _tile(add: Callable[[Any, Any, Any, Any], Any], *, gaussian: bool = False) -> Any:
    """Return an intrinsic that writes the values of a strip and a panel to rows of `out`; array arguments are addresses.

    `add(builder, total, x, y)` adds the term of one feature to the sums. `most` is the upper bound of the exponents, zero,
    and its type is the dtype of the values.
    """

    @intrinsic
    def tile(
        context: Any, strip: Any, panel: Any, steps: Any, half_x: Any, half_y: Any, out: Any, stride: Any, most: Any
    ) -> Any:
        address = types.uintp
        signature = types.void(address, address, types.intp, address, address, address, types.intp, most)
        kind = _kind(most)
        width = _VECTORS if gaussian else 1
        places = [range(first, first + width) for first in range(0, PANEL_POINTS // kind.count, width)]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            strip, panel, half_x, half_y, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 1, 3, 4, 5))
            bound = _simd.broadcast(builder, arguments[7])

            def kernel_value(product: Any, shift: Any, half: Any) -> Any:
                exponent = builder.fsub(product, builder.fadd(shift, half))
                exponent = _simd.call(builder, f"llvm.minnum.{_simd.suffix(kind)}", kind, exponent, bound)
                return _exponential(builder, exponent)

            for vectors in places:
                step = _simd.tile_step(builder, strip, panel, (STRIP_ROWS, PANEL_POINTS), vectors, kind, add)
                sums = _simd.accumulate(builder, arguments[2], STRIP_ROWS * width, kind, step)
                halves = [_simd.load(builder, _simd.at(builder, half_y, kind.count * v), kind) for v in vectors]
                for i in range(STRIP_ROWS):
                    shift = _simd.broadcast(builder, builder.load(_simd.at(builder, half_x, i)))
                    row = _simd.at(builder, out, _simd.times(builder, arguments[6], i))
                    for number, v in enumerate(vectors):
                        total = sums[i * width + number]
                        value = kernel_value(total, shift, halves[number]) if gaussian else total
                        _simd.store(builder, value, _simd.at(builder, row, kind.count * v))
            return context.get_dummy_value()

        return signature, generate

    return tile


def _add_product(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return _fma(builder, x, y, total)


def _add_difference(builder: Any, total: Any, x: Any, y: Any) -> Any:
    difference = builder.fsub(x, y)
    return builder.fadd(total, _simd.call(builder, f"llvm.fabs.{_simd.suffix(x.type)}", x.type, difference))


def _add_unequal(builder: Any, total: Any, x: Any, y: Any) -> Any:
    return builder.fadd(total, builder.uitofp(builder.fcmp_unordered("!=", x, y), x.type))


_gaussian_tile = _tile(_add_product, gaussian=True)
_city_block_tile = _tile(_add_difference)
_differing_tile = _tile(_add_unequal)


@intrinsic
def _dots(context: Any, values: Any, stride: Any, coef: Any, steps: Any, out: Any, number: Any) -> Any:
    """Set `out[row][column]` to the product of kernel values and coefficients packed as [steps][columns][lanes].

    Array arguments are addresses; `number` only passes their dtype.
    """
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, number)
    kind = _kind(number)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, coef, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 2, 4))
        rows = [_simd.at(builder, values, _simd.times(builder, arguments[1], i)) for i in range(STRIP_ROWS)]

        def step(k: Any, sums: Any) -> list[Any]:
            here = _simd.at(builder, coef, _simd.times(builder, k, _COLUMNS * kind.count))
            right = [_simd.load(builder, _simd.at(builder, here, kind.count * c), kind) for c in range(_COLUMNS)]
            along = _simd.times(builder, k, kind.count)
            new = []
            for i in range(STRIP_ROWS):
                left = _simd.load(builder, _simd.at(builder, rows[i], along), kind)
                new += [_fma(builder, left, right[c], sums[i * _COLUMNS + c]) for c in range(_COLUMNS)]
            return new

        zero = ir.Constant(kind.element, 0.0)
        for place, value in enumerate(_simd.accumulate(builder, arguments[3], STRIP_ROWS * _COLUMNS, kind, step)):
            builder.store(_simd.add_lanes(builder, value, zero), _simd.at(builder, out, place))
        return context.get_dummy_value()

    return signature, generate


# A separate function, so that numba compiles the intrinsics once for each precision and not at each call.
@numba.njit(cache=True, nogil=True)
def _values(
    which: int, strip: int, panel: int, steps: int, half_x: int, half_y: int, out: int, stride: int, most: Any
) -> None:
    if which == GAUSSIAN:
        _gaussian_tile(strip, panel, steps, half_x, half_y, out, stride, most)
    elif which == CITY_BLOCK:
        _city_block_tile(strip, panel, steps, half_x, half_y, out, stride, most)
    else:
        _differing_tile(strip, panel, steps, half_x, half_y, out, stride, most)


@numba.njit(cache=True, nogil=True)
def strips(X: np.ndarray, shift: np.ndarray, scale: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the shifted and scaled rows in strips, packed feature by feature, and half of their squared norms.

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
        half[i] = total / 2
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
        half[i] /= 2


@numba.njit(cache=True, nogil=True)
def panels(X: np.ndarray, shift: np.ndarray, scale: Any, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shifted and scaled points in panels, half of their squared norms, and the first panel of each group.

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
    return packed, half, firsts


@numba.njit(cache=True, nogil=True)
def _panels_per_group(d: int, itemsize: int) -> int:
    return max(1, min(_MAX_PANELS, _PANEL_BYTES // (d * PANEL_POINTS * itemsize)))


@numba.njit(cache=True, nogil=True)
def _fill(which: int, X: np.ndarray, Y: np.ndarray, shift: np.ndarray, scale: Any, flat: np.ndarray, stride: int) -> None:
    """Write the values of the rows of `X` and `Y`; row i starts at `flat[i * stride]`."""
    n, m, d = X.shape[0], Y.shape[0], X.shape[1]
    zero = X.dtype.type(0)
    left, half_x = strips(X, shift, scale)
    right, half_y, _ = panels(Y, shift, scale, np.array([0, m]))
    tile = np.empty((STRIP_ROWS, PANEL_POINTS), X.dtype)
    panel_group = _panels_per_group(d, X.itemsize)
    for start in range(0, right.shape[0], panel_group):
        for s in range(left.shape[0]):
            strip, halves = left[s:].ctypes.data, half_x[s * STRIP_ROWS :].ctypes.data
            rows = min(STRIP_ROWS, n - s * STRIP_ROWS)
            for p in range(start, min(start + panel_group, right.shape[0])):
                panel, other = right[p:].ctypes.data, half_y[p * PANEL_POINTS :].ctypes.data
                first = s * STRIP_ROWS * stride + p * PANEL_POINTS
                if rows == STRIP_ROWS and (p + 1) * PANEL_POINTS <= m:
                    _values(which, strip, panel, d, halves, other, flat[first:].ctypes.data, stride, zero)
                    continue
                _values(which, strip, panel, d, halves, other, tile.ctypes.data, PANEL_POINTS, zero)
                for r in range(rows):
                    for j in range(min(PANEL_POINTS, m - p * PANEL_POINTS)):
                        flat[first + r * stride + j] = tile[r, j]


def fill(
    which: int, X: np.ndarray, Y: np.ndarray, out: np.ndarray, shift: np.ndarray | None = None, scale: float = 1.0
) -> None:
    """Compute the function `which` of all pairs of rows, shifted and scaled, in the dtype of `out`, which is overwritten."""
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

    Sums over a few hundred points have the dtype of the points; the sums of these have the dtype of `scores`.
    """
    mode: Any = _simd.flush_subnormals()  # type: ignore[call-arg]
    d = left.shape[1]
    lanes = coef.shape[3]
    panel_group = _panels_per_group(d, left.itemsize)
    width = panel_group * PANEL_POINTS
    values = np.empty((STRIP_ROWS, width), left.dtype)
    sums = np.empty((STRIP_ROWS, _COLUMNS), left.dtype)
    zero = left.dtype.type(0)
    for g in range(firsts.size - 1):
        for start in range(firsts[g], firsts[g + 1], panel_group):
            stop = min(start + panel_group, firsts[g + 1])
            for s in range(left.shape[0]):
                strip, halves = left[s:].ctypes.data, half_x[s * STRIP_ROWS :].ctypes.data
                for p in range(start, stop):
                    target = values[:, (p - start) * PANEL_POINTS :].ctypes.data
                    panel, other = right[p:].ctypes.data, half_y[p * PANEL_POINTS :].ctypes.data
                    _values(GAUSSIAN, strip, panel, d, halves, other, target, width, zero)
                rows = min(STRIP_ROWS, scores.shape[0] - s * STRIP_ROWS)
                for pair in range(coef.shape[0]):
                    weights = coef[pair, start * PANEL_POINTS // lanes :].ctypes.data
                    vectors = (stop - start) * PANEL_POINTS // lanes
                    _dots(values.ctypes.data, width, weights, vectors, sums.ctypes.data, zero)
                    for c in range(min(_COLUMNS, into.shape[1] - pair * _COLUMNS)):
                        column = into[g, pair * _COLUMNS + c]
                        for r in range(rows):
                            scores[s * STRIP_ROWS + r, column] += sums[r, c]
    _simd.restore_subnormals(mode)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "nsz", "reassoc", "nnan"})
def exp_of_products(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Convert float32 inner products to Gaussian kernel values in place; row i starts at `flat[i * stride]`."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = _scalar.exp32(_scalar.smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))
