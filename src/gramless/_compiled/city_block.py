"""Compiled loops for kernels that no matrix product computes; imported only when one of them is called."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def city_block(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k |X[i, k] - Y[j, k]|`; reassociation lets the inner sum use the vector units."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[0]):
            total = X.dtype.type(0)
            for k in range(X.shape[1]):
                total += abs(X[i, k] - Y[j, k])
            out[i, j] = total
