"""The elementwise half of the Gaussian kernel in one pass, for products that come from elsewhere: bytes, long rows.

With the points scaled by `sqrt(2 gamma)` and `half_x = ||x||^2 / 2`, an entry is `exp(min(<x, y> - half_x - half_y, 0))`.
Array expressions take five passes over the block for it, and NumPy's exponential alone takes several times as long as the
loop below where the processor has no AVX-512. Dense rows of moderate length go through `gaussian_tiles` instead, where the
exponential follows in the registers that the product ends in.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba
from gramless._core.compiled.scalar import exp32, smaller

_FAST = {"contract", "nsz", "reassoc", "nnan"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def finish(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Inner products, in rows of a flat array `stride` apart, to kernel values in place."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = exp32(smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))
