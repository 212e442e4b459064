"""Compiled products of one tile with very few columns, from both sides.

    out_rows += T V_columns        out_columns += T^T V_rows

What `tile_loops` does with twelve columns in registers, for one or a few: four rows of the tile are in the first cache while
each column passes over them once for both products. Sums are in the type of the columns, float32 or float64. The loops are
plain ones, which the compiler vectorises for any processor.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba

_FAST = {"contract", "reassoc", "nsz"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _both(a, b, c, d, values, factors, sums):
    """`sums += factors of the four rows times the rows`; gives each row times `values`."""
    fa, fb, fc, fd = factors[0], factors[1], factors[2], factors[3]
    zero = values.dtype.type(0)
    sa, sb, sc, sd = zero, zero, zero, zero
    for j in range(values.size):
        ta, tb, tc, td = (
            values.dtype.type(a[j]),
            values.dtype.type(b[j]),
            values.dtype.type(c[j]),
            values.dtype.type(d[j]),
        )
        x = values[j]
        sa += ta * x
        sb += tb * x
        sc += tc * x
        sd += td * x
        sums[j] += (ta * fa + tb * fb) + (tc * fc + td * fd)
    return sa, sb, sc, sd


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _right(a, b, c, d, values):
    zero = values.dtype.type(0)
    sa, sb, sc, sd = zero, zero, zero, zero
    for j in range(values.size):
        x = values[j]
        sa += values.dtype.type(a[j]) * x
        sb += values.dtype.type(b[j]) * x
        sc += values.dtype.type(c[j]) * x
        sd += values.dtype.type(d[j]) * x
    return sa, sb, sc, sd


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _left(a, b, c, d, factors, sums):
    fa, fb, fc, fd = factors[0], factors[1], factors[2], factors[3]
    for j in range(sums.size):
        ta, tb, tc, td = sums.dtype.type(a[j]), sums.dtype.type(b[j]), sums.dtype.type(c[j]), sums.dtype.type(d[j])
        sums[j] += (ta * fa + tb * fb) + (tc * fc + td * fd)


@numba.njit(cache=True, nogil=True)
def add_narrow(
    flat: np.ndarray,
    stride: int,
    shape: tuple[int, int],
    first: tuple[int, int],
    V_rows: np.ndarray,
    V_columns: np.ndarray,
    out_rows: np.ndarray,
    out_columns: np.ndarray,
    right: bool,
    left: bool,
) -> None:
    """Add `T V_columns` to `out_rows` and `T^T V_rows` to `out_columns`, either where it is asked for.

    The tile's rows are in a flat array `stride` apart; `first` are its first row and column in right-hand sides and sums,
    which are transposed: one row for each column.
    """
    (height, width), (top, start) = shape, first
    factors = np.empty(4, V_rows.dtype)
    for i in range(0, height, 4):
        here = min(4, height - i)
        # Rows beyond the last are the first of the four once more, with factors of zero.
        a = flat[i * stride : i * stride + width]
        b, c, d = a, a, a
        if here > 1:
            b = flat[(i + 1) * stride : (i + 1) * stride + width]
        if here > 2:
            c = flat[(i + 2) * stride : (i + 2) * stride + width]
        if here > 3:
            d = flat[(i + 3) * stride : (i + 3) * stride + width]
        for column in range(V_rows.shape[0]):
            if left:
                for r in range(4):
                    factors[r] = V_rows[column, top + i + r] if r < here else 0
                sums = out_columns[column, start : start + width]
                if not right:
                    _left(a, b, c, d, factors, sums)
                    continue
                found = _both(a, b, c, d, V_columns[column, start : start + width], factors, sums)
            else:
                found = _right(a, b, c, d, V_columns[column, start : start + width])
            out_rows[column, top + i] += found[0]
            if here > 1:
                out_rows[column, top + i + 1] += found[1]
            if here > 2:
                out_rows[column, top + i + 2] += found[2]
            if here > 3:
                out_rows[column, top + i + 3] += found[3]
