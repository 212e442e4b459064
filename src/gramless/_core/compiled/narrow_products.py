"""Compiled products of one tile `T` of a symmetric matrix and its transpose with few columns.

    out_rows += T V_columns        out_columns += T^T V_rows

`tile_loops` computes the same products for 8 or 12 columns at a time; these loops are for one to a few columns. Four rows of
the tile stay in the first-level cache while each column multiplies them once for both products. Sums have the dtype of the
columns, float32 or float64. The compiler vectorises these loops for any processor.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba

_FAST = {"contract", "reassoc", "nsz"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _both(a, b, c, d, values, factors, sums):
    """Add `factors @ [a, b, c, d]` to `sums`, and return the inner product of each of the four rows with `values`."""
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
    """With `right`, add `T V_columns` to `out_rows`; with `left`, add `T^T V_rows` to `out_columns`.

    Row i of the tile starts at `flat[i * stride]`; `first` is the position of the tile in the matrix (row, column).
    Right-hand sides and sums are transposed: shape (columns, n).
    """
    (height, width), (top, start) = shape, first
    factors = np.empty(4, V_rows.dtype)
    for i in range(0, height, 4):
        n_rows = min(4, height - i)
        # If fewer than four rows are left, the first one is repeated with a factor of zero.
        a = flat[i * stride : i * stride + width]
        b, c, d = a, a, a
        if n_rows > 1:
            b = flat[(i + 1) * stride : (i + 1) * stride + width]
        if n_rows > 2:
            c = flat[(i + 2) * stride : (i + 2) * stride + width]
        if n_rows > 3:
            d = flat[(i + 3) * stride : (i + 3) * stride + width]
        for column in range(V_rows.shape[0]):
            if left:
                for r in range(4):
                    factors[r] = V_rows[column, top + i + r] if r < n_rows else 0
                sums = out_columns[column, start : start + width]
                if not right:
                    _left(a, b, c, d, factors, sums)
                    continue
                inner_products = _both(a, b, c, d, V_columns[column, start : start + width], factors, sums)
            else:
                inner_products = _right(a, b, c, d, V_columns[column, start : start + width])
            out_rows[column, top + i] += inner_products[0]
            if n_rows > 1:
                out_rows[column, top + i + 1] += inner_products[1]
            if n_rows > 2:
                out_rows[column, top + i + 2] += inner_products[2]
            if n_rows > 3:
                out_rows[column, top + i + 3] += inner_products[3]
