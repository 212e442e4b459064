"""Compiled update of the sums of clusters when rows change their cluster; imported only when the update is called."""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba


@numba.njit(cache=True, nogil=True)
def move_rows(sums: np.ndarray, X: np.ndarray, old: np.ndarray, new: np.ndarray, weights: np.ndarray) -> None:
    """For every i, subtract `weights[i] * X[i]` from `sums[old[i]]` (unless `old[i] < 0`) and add it to `sums[new[i]]`."""
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        # The compiler vectorises loops over views of single rows.
        x, w, new_sum = X[i], weights[i], sums[new[i]]
        if old[i] >= 0:
            old_sum = sums[old[i]]
            for j in range(x.shape[0]):
                moved = w * x[j]
                new_sum[j] += moved
                old_sum[j] -= moved
        else:
            for j in range(x.shape[0]):
                new_sum[j] += w * x[j]
