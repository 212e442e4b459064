"""A compiled loop that moves rows between sums; imported only when it is called."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def move_rows(sums: np.ndarray, X: np.ndarray, old: np.ndarray, new: np.ndarray, weights: np.ndarray) -> None:
    """Row i leaves `sums[old[i]]` (unless negative) for `sums[new[i]]`; nothing is read where they agree."""
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        for j in range(X.shape[1]):
            sums[new[i], j] += weights[i] * X[i, j]
        if old[i] >= 0:
            for j in range(X.shape[1]):
                sums[old[i], j] -= weights[i] * X[i, j]
