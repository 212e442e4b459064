"""Compiled loops of the histogram kernels; imported only when one of them is called.

    HARMONIC      out[i, j] = sum_k 2 x_k y_k / (x_k + y_k)
    CHI_SQUARE    out[i, j] = sum_k (x_k - y_k)^2 / (x_k + y_k)
    INTERSECTION  out[i, j] = sum_k min(x_k, y_k)

A group of rows of `Y` stays in the cache while all rows of `X` are read. The flag `reassoc` lets the compiler vectorise the
sums. The denominator is at least the smallest normal number, so that a bin that is empty in both histograms adds zero.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba

_GROUP = 64  # rows of `Y` that stay in the cache
_VECTORISE = {"nnan", "nsz", "reassoc", "contract"}


HARMONIC, CHI_SQUARE, INTERSECTION = range(3)
"""The terms that `sum_over_bins` adds."""


# One function for the three sums instead of closures, because numba does not load closures from its cache on disk.
@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def sum_over_bins(X: np.ndarray, Y: np.ndarray, out: np.ndarray, which: int) -> None:
    """Set `out[i, j]` to the sum of the terms `which` over the bins of `X[i]` and `Y[j]`."""
    tiny = np.finfo(X.dtype).tiny
    bins = range(X.shape[1])
    for start in range(0, Y.shape[0], _GROUP):
        for i in range(X.shape[0]):
            x = X[i]
            for j in range(start, min(start + _GROUP, Y.shape[0])):
                y = Y[j]
                total = X.dtype.type(0)
                if which == HARMONIC:
                    for k in bins:
                        total += x[k] * y[k] / max(x[k] + y[k], tiny)
                    total *= 2
                elif which == CHI_SQUARE:
                    for k in bins:
                        total += (x[k] - y[k]) * (x[k] - y[k]) / max(x[k] + y[k], tiny)
                else:
                    for k in bins:
                        total += min(x[k], y[k])
                out[i, j] = total
