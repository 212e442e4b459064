"""Conversion of inner products to Gaussian kernel values in one pass, for inner products computed by other functions.

With the points scaled by `sqrt(2 gamma)` and `half_x = ||x||^2 / 2`, an entry is `exp(min(<x, y> - half_x - half_y, 0))`.
Array expressions need five passes over the block, and NumPy's exponential alone takes several times as long as this loop on
processors without AVX-512. The inner products are those of rows stored as bytes or of long rows; for dense rows of moderate
length, `gaussian_tiles` computes the exponential while the inner products are in registers.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba
from gramless._core.compiled.scalar import exp32, smaller

_FAST = {"contract", "nsz", "reassoc", "nnan"}


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def finish(flat: np.ndarray, stride: int, half_x: np.ndarray, half_y: np.ndarray) -> None:
    """Convert inner products to kernel values in place; row i starts at `flat[i * stride]`."""
    for i in range(half_x.size):
        row = flat[i * stride : i * stride + half_y.size]
        shift = half_x[i]
        for j in range(half_y.size):
            row[j] = exp32(smaller(row[j] - (shift + half_y[j]), np.float32(0.0)))
