"""A compiled loop that moves rows between sums; imported only when it is called."""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba


@numba.njit(cache=True, nogil=True)
def move_rows(sums: np.ndarray, X: np.ndarray, old: np.ndarray, new: np.ndarray, weights: np.ndarray) -> None:
    """Row i leaves `sums[old[i]]` (unless negative) for `sums[new[i]]`; nothing is read where they agree."""
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        # Views of single rows: their inner loops run on the vector units.
        x, w, into = X[i], weights[i], sums[new[i]]
        if old[i] >= 0:
            out_of = sums[old[i]]
            for j in range(x.shape[0]):
                moved = w * x[j]
                into[j] += moved
                out_of[j] -= moved
        else:
            for j in range(x.shape[0]):
                into[j] += w * x[j]
