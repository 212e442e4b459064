"""The elementwise half of the Gaussian kernel in one pass, and products of Gaussian kernel matrices with few features.

With the points scaled by `sqrt(2 gamma)` and `half_x = ||x||^2 / 2`, an entry is `exp(min(<x, y> - half_x - half_y, 0))`.
Array expressions take five passes over the block for it, and NumPy's exponential alone takes several times as long as the
loop below where the processor has no AVX-512: with few features, that and not the matrix product is what a block costs.

`expand` multiplies the kernel values with a few columns of coefficients while they are in the first cache: four points
against a strip of others at a time, four features for each pass over the strip. No entry goes to memory.
"""

from __future__ import annotations

import numba
import numpy as np

from gramless._compiled.scalar import exp32, smaller

_STRIP = 256
_FAST = {"contract", "nsz", "reassoc", "nnan"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def finish(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Inner products, in rows of a flat array `stride` apart, to kernel values in place."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = exp32(smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def expand(
    X: np.ndarray, columns: np.ndarray, half_x: np.ndarray, half_y: np.ndarray, coef: np.ndarray, out: np.ndarray
) -> None:
    """`out += K(X, points) @ coef.T`, sums in float32 within a strip and in the type of `out` over strips.

    `columns` are the points, of shape (d, m), and `coef` has shape (k, m). The rows of `X` and its columns come in fours.
    """
    values = np.empty((4, _STRIP), dtype=np.float32)
    v, w, x, y = values[0], values[1], values[2], values[3]
    for start in range(0, half_y.size, _STRIP):
        width = min(_STRIP, half_y.size - start)
        half = half_y[start : start + width]
        for i in range(0, half_x.size, 4):
            shift_v, shift_w, shift_x, shift_y = half_x[i], half_x[i + 1], half_x[i + 2], half_x[i + 3]
            for j in range(width):
                v[j] = -(shift_v + half[j])
                w[j] = -(shift_w + half[j])
                x[j] = -(shift_x + half[j])
                y[j] = -(shift_y + half[j])
            for k in range(0, X.shape[1], 4):
                va, vb, vc, vd = X[i, k], X[i, k + 1], X[i, k + 2], X[i, k + 3]
                wa, wb, wc, wd = X[i + 1, k], X[i + 1, k + 1], X[i + 1, k + 2], X[i + 1, k + 3]
                xa, xb, xc, xd = X[i + 2, k], X[i + 2, k + 1], X[i + 2, k + 2], X[i + 2, k + 3]
                ya, yb, yc, yd = X[i + 3, k], X[i + 3, k + 1], X[i + 3, k + 2], X[i + 3, k + 3]
                points_a, points_b = columns[k, start : start + width], columns[k + 1, start : start + width]
                points_c, points_d = columns[k + 2, start : start + width], columns[k + 3, start : start + width]
                for j in range(width):
                    a, b, c, d = points_a[j], points_b[j], points_c[j], points_d[j]
                    v[j] += va * a + vb * b + vc * c + vd * d
                    w[j] += wa * a + wb * b + wc * c + wd * d
                    x[j] += xa * a + xb * b + xc * c + xd * d
                    y[j] += ya * a + yb * b + yc * c + yd * d
            for r in range(4):
                row = values[r]
                for j in range(width):
                    row[j] = exp32(smaller(row[j], np.float32(0.0)))
                for column in range(coef.shape[0]):
                    weights = coef[column, start : start + width]
                    total = np.float32(0.0)
                    for j in range(width):
                        total += row[j] * weights[j]
                    out[i + r, column] += total
