"""Compiled weighted sums of absolute differences; imported only when they are computed.

    out[k] = sum_ij V[i, j] |X[i, k] - X[j, k]|

for a symmetric `V`. With `V = W * dK/dD` for a kernel K of the city-block distances D, `out` is the gradient of `sum(W * K)`
by the log scales of the columns. O(n^2 d) time; the only temporary array is a transposed copy of `X`.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba


@numba.njit(cache=True, nogil=True, fastmath=True)
def absolute_difference_sums(V: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the sums `out` for a symmetric `V` of shape (n, n) and `X` of shape (n, d), both float64 and C-contiguous."""
    n, d = X.shape
    # With the transposed copy the innermost loop reads two contiguous arrays, so that the compiler vectorises it.
    columns = X.T.copy()
    sums = np.zeros(d)
    for i in range(n):
        weights = V[i]
        for k in range(d):
            column = columns[k]
            here = column[i]
            total = 0.0
            for j in range(i):
                total += weights[j] * abs(here - column[j])
            sums[k] += 2.0 * total
    return sums
