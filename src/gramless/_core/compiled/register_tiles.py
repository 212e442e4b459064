"""Blocks whose sums over the features stay in registers: Gaussian kernel values, and sums that no matrix product computes.

    fill    exp(-gamma ||x_i - y_j||^2), sum_k |x_ik - y_jk|, or the number of k with x_ik != y_jk    O(n m d)
    expand  K(X, points) @ coef; kernel values stay in the first-level cache and are not stored    O(n m (d + k))
    multiply_lower_tiles  K(X, X) @ V, where each value is used for both halves of the matrix    O(n^2 (d / 2 + k))

Rows of `X` are packed in strips and the others in panels, both feature by feature. For the Gaussian kernel, with the points
scaled by `gaussian_scale(gamma)` and `shift_x = -||x||^2 / 2`, an entry is `2^min(<x, y> + shift_x + shift_y, 0)`, computed
in registers: writing the inner products to memory and reading them again for the exponential would take longer than
computing the inner products of a few dozen features. `exp_of_products` does the exponential for inner products that other
functions have computed, those of rows stored as bytes or of long rows. `benchmarks/cpu_products.py` prints the fraction of
the processor's peak rate of additions that the city-block distances reach.

A panel has 16 points with AVX2 and 32 with AVX-512: two vectors in float32, and four in float64, of which two are multiplied
at a time. With strips of 6 (AVX2) or 12 (AVX-512) rows the sums fill the registers. An entry takes one vector instruction
for each feature, fourteen for the exponential in float32 and twenty-one in float64.
"""

from __future__ import annotations

from collections.abc import Callable
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
# second-level cache, and the bytes of the kernel values of one strip, which stay in the first-level cache.
_PANEL_BYTES = 1 << 18
_VALUE_BYTES = 1 << 14
# Rows and columns of a tile of `multiply_lower_tiles`, a multiple of `STRIP_ROWS` and `PANEL_POINTS`, and the number of
# strips whose products are summed in the dtype of the points.
TILE_ROWS = 960
_SUMMED_STRIPS = 16
# The power 2^t for t <= 0 is 2^k 2^r with k the nearest integer. 1.5 * 2^23 (or 2^52) plus a number of moderate size has the
# nearest integer in its last bits. With `zero` added, these bits shifted to the exponent are the number 2^(k + zero - bias),
# and 0.0 for k = -zero, the smallest k: kernel values below 1e-30 in float32, less than the rounding of sums, are zero,
# because products of subnormal numbers are a hundred times slower on many processors. The polynomial has the remaining
# factor 2^(bias - zero).
_ZERO, _BIAS, _MANTISSA = {"double": 1000, "float": 100}, {"double": 1023, "float": 127}, {"double": 52, "float": 23}
# Polynomials of 2^r on |r| <= 1/2, highest power first. In float64 the Taylor series, whose omitted terms are below
# rounding; in float32 the minimax polynomial with p(0) = 1, whose relative error is 9e-8.
_POLYNOMIAL = {
    "double": [log(2) ** n / factorial(n) for n in range(12, -1, -1)],
    "float": [1.32647272e-3, 9.67151281e-3, 5.55073372e-2, 2.40220423e-1, 6.93146978e-1, 1.0],
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


def gaussian_scale(gamma: float) -> float:
    """Return the factor of points for which the Gaussian kernel is `2^(-||x - y||^2 / 2)`."""
    return float((2 * gamma / log(2)) ** 0.5)


def _power_of_two(builder: Any, t: Any) -> Any:
    """Return `2^t` in each lane, for numbers of at most zero."""
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


def _tile(add: Callable[[Any, Any, Any, Any], Any], *, gaussian: bool = False) -> Any:
    """Return an intrinsic that writes the values of a strip and a panel to rows of `out`; array arguments are addresses.

    `add(builder, total, x, y)` adds the term of one feature to the sums; the type of `number` is the dtype of the values.
    """

    @intrinsic
    def tile(
        context: Any, strip: Any, panel: Any, steps: Any, shift_x: Any, shift_y: Any, out: Any, stride: Any, number: Any
    ) -> Any:
        address = types.uintp
        signature = types.void(address, address, types.intp, address, address, address, types.intp, number)
        kind = _kind(number)
        width = _VECTORS if gaussian else 1
        places = [range(first, first + width) for first in range(0, PANEL_POINTS // kind.count, width)]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            strip, panel, shift_x, shift_y, out = (
                _simd.pointer(builder, arguments[i], kind.element) for i in (0, 1, 3, 4, 5)
            )
            largest = _constant(kind, 0.0)
            for vectors in places:
                step = _simd.tile_step(builder, strip, panel, (STRIP_ROWS, PANEL_POINTS), vectors, kind, add)
                sums = _simd.accumulate(builder, arguments[2], STRIP_ROWS * width, kind, step)
                shifts = [_simd.load(builder, _simd.at(builder, shift_y, kind.count * v), kind) for v in vectors]
                for i in range(STRIP_ROWS):
                    shift = _simd.broadcast(builder, builder.load(_simd.at(builder, shift_x, i)))
                    row = _simd.at(builder, out, _simd.times(builder, arguments[6], i))
                    for place, v in enumerate(vectors):
                        value = sums[i * width + place]
                        if gaussian:
                            # Added after the products, which cancel exactly for equal points with one coordinate.
                            value = builder.fadd(value, builder.fadd(shift, shifts[place]))
                            value = _simd.call(builder, f"llvm.minnum.{_simd.suffix(kind)}", kind, value, largest)
                            value = _power_of_two(builder, value)
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


@intrinsic
def _add_transposed(context: Any, values: Any, stride: Any, factors: Any, steps: Any, out: Any, number: Any) -> Any:
    """Add the product of the transposed kernel values and the factors of shape (rows, columns) to `out`.

    `out` is packed as [steps][columns][lanes]; other arguments are as in `_dots`.
    """
    signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, number)
    kind = _kind(number)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, factors, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 2, 4))
        rows = [_simd.at(builder, values, _simd.times(builder, arguments[1], i)) for i in range(STRIP_ROWS)]
        weights = [
            _simd.broadcast(builder, builder.load(_simd.at(builder, factors, i))) for i in range(STRIP_ROWS * _COLUMNS)
        ]

        def step(k: Any, sums: Any) -> list[Any]:
            here = _simd.at(builder, out, _simd.times(builder, k, _COLUMNS * kind.count))
            places = [_simd.at(builder, here, kind.count * c) for c in range(_COLUMNS)]
            totals = [_simd.load(builder, place, kind) for place in places]
            along = _simd.times(builder, k, kind.count)
            for i in range(STRIP_ROWS):
                value = _simd.load(builder, _simd.at(builder, rows[i], along), kind)
                totals = [_fma(builder, value, weights[i * _COLUMNS + c], totals[c]) for c in range(_COLUMNS)]
            for total, place in zip(totals, places, strict=True):
                _simd.store(builder, total, place)
            return []

        _simd.accumulate(builder, arguments[3], 0, kind, step)
        return context.get_dummy_value()

    return signature, generate


@numba.njit(cache=True, nogil=True)
def _keep(array: np.ndarray) -> int:
    """Do nothing: numba frees an array after its last use, and an address is no use."""
    return array.size


# A separate function, so that numba compiles the intrinsics once for each precision and not at each call.
@numba.njit(cache=True, nogil=True)
def _values(
    which: int, strip: int, panel: int, steps: int, shift_x: int, shift_y: int, out: int, stride: int, most: Any
) -> None:
    if which == GAUSSIAN:
        _gaussian_tile(strip, panel, steps, shift_x, shift_y, out, stride, most)
    elif which == CITY_BLOCK:
        _city_block_tile(strip, panel, steps, shift_x, shift_y, out, stride, most)
    else:
        _differing_tile(strip, panel, steps, shift_x, shift_y, out, stride, most)


@numba.njit(cache=True, nogil=True)
def strips(X: np.ndarray, shift: np.ndarray, scale: Any) -> tuple[np.ndarray, np.ndarray]:
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
def panels(X: np.ndarray, shift: np.ndarray, scale: Any, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shifted and scaled points in panels, minus half of their squared norms, and the first panel of each group.

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
    return max(1, min(_VALUE_BYTES // STRIP_ROWS, _PANEL_BYTES // d) // (PANEL_POINTS * itemsize))


@numba.njit(cache=True, nogil=True)
def _fill(which: int, X: np.ndarray, Y: np.ndarray, shift: np.ndarray, scale: Any, flat: np.ndarray, stride: int) -> None:
    """Write the values of the rows of `X` and `Y`; row i starts at `flat[i * stride]`."""
    n, m, d = X.shape[0], Y.shape[0], X.shape[1]
    zero = X.dtype.type(0)
    left, shift_x = strips(X, shift, scale)
    right, shift_y, _ = panels(Y, shift, scale, np.array([0, m]))
    tile = np.empty((STRIP_ROWS, PANEL_POINTS), X.dtype)
    panel_group = _panels_per_group(d, X.itemsize)
    # Addresses instead of array slices, because numba counts references to each slice with atomic operations.
    size = X.itemsize
    strip_bytes, panel_bytes = size * d * STRIP_ROWS, size * d * PANEL_POINTS
    from_left, from_right, of_left, of_right = left.ctypes.data, right.ctypes.data, shift_x.ctypes.data, shift_y.ctypes.data
    into, apart = flat.ctypes.data, tile.ctypes.data
    for start in range(0, right.shape[0], panel_group):
        for s in range(left.shape[0]):
            strip, x = from_left + s * strip_bytes, of_left + size * s * STRIP_ROWS
            rows = min(STRIP_ROWS, n - s * STRIP_ROWS)
            for p in range(start, min(start + panel_group, right.shape[0])):
                panel, y = from_right + p * panel_bytes, of_right + size * p * PANEL_POINTS
                first = s * STRIP_ROWS * stride + p * PANEL_POINTS
                if rows == STRIP_ROWS and (p + 1) * PANEL_POINTS <= m:
                    _values(which, strip, panel, d, x, y, into + size * first, stride, zero)
                    continue
                _values(which, strip, panel, d, x, y, apart, PANEL_POINTS, zero)
                for r in range(rows):
                    for j in range(min(PANEL_POINTS, m - p * PANEL_POINTS)):
                        flat[first + r * stride + j] = tile[r, j]
    _keep(left)
    _keep(right)
    _keep(shift_x)
    _keep(shift_y)
    _keep(tile)


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
    shift_x: np.ndarray,
    right: np.ndarray,
    shift_y: np.ndarray,
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
    zero, size, pair_bytes = left.dtype.type(0), left.itemsize, coef.itemsize * coef[0].size
    strip_bytes, panel_bytes = size * d * STRIP_ROWS, size * d * PANEL_POINTS
    from_left, from_right, of_left, of_right = left.ctypes.data, right.ctypes.data, shift_x.ctypes.data, shift_y.ctypes.data
    block, factors, products = values.ctypes.data, coef.ctypes.data, sums.ctypes.data
    for g in range(firsts.size - 1):
        for start in range(firsts[g], firsts[g + 1], panel_group):
            stop = min(start + panel_group, firsts[g + 1])
            for s in range(left.shape[0]):
                strip, x = from_left + s * strip_bytes, of_left + size * s * STRIP_ROWS
                for p in range(start, stop):
                    panel, y = from_right + p * panel_bytes, of_right + size * p * PANEL_POINTS
                    _values(GAUSSIAN, strip, panel, d, x, y, block + size * (p - start) * PANEL_POINTS, width, zero)
                rows = min(STRIP_ROWS, scores.shape[0] - s * STRIP_ROWS)
                for pair in range(coef.shape[0]):
                    weights = factors + pair * pair_bytes + size * _COLUMNS * start * PANEL_POINTS
                    _dots(block, width, weights, (stop - start) * PANEL_POINTS // lanes, products, zero)
                    for c in range(min(_COLUMNS, into.shape[1] - pair * _COLUMNS)):
                        column = into[g, pair * _COLUMNS + c]
                        for r in range(rows):
                            scores[s * STRIP_ROWS + r, column] += sums[r, c]
    _keep(values)
    _keep(sums)
    _simd.restore_subnormals(mode)


@numba.njit(cache=True, nogil=True)
def multiply_lower_tiles(
    left: np.ndarray,
    shift_x: np.ndarray,
    right: np.ndarray,
    shift_y: np.ndarray,
    factors: np.ndarray,
    coef: np.ndarray,
    out: np.ndarray,
    first: int,
    step: int,
) -> None:
    """Add the products of the tiles `first`, `first + step`, ... of the lower half of a Gaussian kernel matrix to `out`.

    `left` and `right` have the same points in strips and in panels. The right-hand side is given as `factors` of shape
    (pairs of columns, rows, 2) and as `coef` in the order of the panels, which is also that of `out` (float64). Sums over a
    few hundred points have the dtype of the points.
    """
    mode: Any = _simd.flush_subnormals()  # type: ignore[call-arg]
    d, lanes, n_pairs = left.shape[1], coef.shape[3], coef.shape[0]
    zero, size = left.dtype.type(0), left.itemsize
    panel_group = _panels_per_group(d, size)
    width = panel_group * PANEL_POINTS
    values = np.empty((STRIP_ROWS, width), left.dtype)
    sums = np.empty((STRIP_ROWS, _COLUMNS), left.dtype)
    below = np.zeros((n_pairs, width // lanes, _COLUMNS, lanes), left.dtype)
    strip_bytes, panel_bytes = size * d * STRIP_ROWS, size * d * PANEL_POINTS
    from_left, from_right, of_left, of_right = left.ctypes.data, right.ctypes.data, shift_x.ctypes.data, shift_y.ctypes.data
    block, products, of_rows, of_columns = values.ctypes.data, sums.ctypes.data, factors.ctypes.data, coef.ctypes.data
    row_bytes, column_bytes, below_bytes = size * factors[0].size, size * coef[0].size, size * below[0].size
    totals = below.ctypes.data
    n_tiles = -(-right.shape[0] * PANEL_POINTS // TILE_ROWS)
    number = 0
    for i in range(n_tiles):
        first_strip, last_strip = i * TILE_ROWS // STRIP_ROWS, min((i + 1) * TILE_ROWS // STRIP_ROWS, left.shape[0])
        for j in range(i + 1):
            number += 1
            if (number - 1 - first) % step:
                continue
            last_panel = min((j + 1) * TILE_ROWS // PANEL_POINTS, right.shape[0])
            for start in range(j * TILE_ROWS // PANEL_POINTS, last_panel, panel_group):
                stop = min(start + panel_group, last_panel)
                n_vectors, vector = (stop - start) * PANEL_POINTS // lanes, start * PANEL_POINTS // lanes
                for s in range(first_strip, last_strip):
                    strip, x = from_left + s * strip_bytes, of_left + size * s * STRIP_ROWS
                    for p in range(start, stop):
                        panel, y = from_right + p * panel_bytes, of_right + size * p * PANEL_POINTS
                        _values(GAUSSIAN, strip, panel, d, x, y, block + size * (p - start) * PANEL_POINTS, width, zero)
                    for pair in range(n_pairs):
                        weights = of_columns + pair * column_bytes + size * _COLUMNS * start * PANEL_POINTS
                        _dots(block, width, weights, n_vectors, products, zero)
                        for r in range(min(STRIP_ROWS, out.shape[1] * lanes - s * STRIP_ROWS)):
                            row = s * STRIP_ROWS + r
                            for c in range(_COLUMNS):
                                out[pair, row // lanes, c, row % lanes] += sums[r, c]
                        if i != j:
                            weights = of_rows + pair * row_bytes + size * _COLUMNS * s * STRIP_ROWS
                            _add_transposed(block, width, weights, n_vectors, totals + pair * below_bytes, zero)
                    if i != j and ((s - first_strip) % _SUMMED_STRIPS == _SUMMED_STRIPS - 1 or s == last_strip - 1):
                        for pair in range(n_pairs):
                            for v in range(n_vectors):
                                for c in range(_COLUMNS):
                                    for lane in range(lanes):
                                        out[pair, vector + v, c, lane] += below[pair, v, c, lane]
                                        below[pair, v, c, lane] = zero
    _keep(values)
    _keep(sums)
    _keep(below)
    _simd.restore_subnormals(mode)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "nsz", "reassoc", "nnan"})
def exp_of_products(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Convert float32 inner products to Gaussian kernel values in place; row i starts at `flat[i * stride]`."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = _scalar.exp32(_scalar.smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))
