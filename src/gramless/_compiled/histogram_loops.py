"""Compiled loops of the histogram kernels; imported only when one of them is called.

`Y` is taken in groups of rows that stay in cache while all of `X` passes by. Reassociation lets the sums use the
vector units; the smallest normal number in the denominator makes a bin that is empty on both sides add zero.
"""

from __future__ import annotations

import numba
import numpy as np

_GROUP = 64
_VECTORISE = {"nnan", "nsz", "reassoc", "contract"}


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def harmonic(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k 2 x_k y_k / (x_k + y_k)`."""
    tiny = np.finfo(X.dtype).tiny
    for start in range(0, Y.shape[0], _GROUP):
        for i in range(X.shape[0]):
            for j in range(start, min(start + _GROUP, Y.shape[0])):
                total = X.dtype.type(0)
                for k in range(X.shape[1]):
                    total += X[i, k] * Y[j, k] / max(X[i, k] + Y[j, k], tiny)
                out[i, j] = total + total


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def chi_square(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k (x_k - y_k)^2 / (x_k + y_k)`."""
    tiny = np.finfo(X.dtype).tiny
    for start in range(0, Y.shape[0], _GROUP):
        for i in range(X.shape[0]):
            for j in range(start, min(start + _GROUP, Y.shape[0])):
                total = X.dtype.type(0)
                for k in range(X.shape[1]):
                    difference = X[i, k] - Y[j, k]
                    total += difference * difference / max(X[i, k] + Y[j, k], tiny)
                out[i, j] = total


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def intersection(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k min(x_k, y_k)`."""
    for start in range(0, Y.shape[0], _GROUP):
        for i in range(X.shape[0]):
            for j in range(start, min(start + _GROUP, Y.shape[0])):
                total = X.dtype.type(0)
                for k in range(X.shape[1]):
                    total += min(X[i, k], Y[j, k])
                out[i, j] = total
