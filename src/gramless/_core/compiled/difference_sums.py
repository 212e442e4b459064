"""Compiled weighted sums of absolute differences; imported only when called.

    out[k] = sum_ij V[i, j] |X[i, k] - X[j, k]|

The slope of a city-block kernel's matrix by the scale of each column: O(n^2 d), no temporary, for a symmetric `V`.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba


@numba.njit(cache=True, nogil=True, fastmath=True)
def absolute_difference_sums(V: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The sums for a symmetric `V` of shape (n, n) and `X` of shape (n, d), both float64 and C order."""
    n, d = X.shape
    # Columns side by side: the innermost loop runs along a row of `V` and a column of `X`, on the vector units.
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
