"""Compiled loops of the histogram kernels; imported only when one of them is called.

    harmonic      out[i, j] = sum_k 2 x_k y_k / (x_k + y_k)
    chi_square    out[i, j] = sum_k (x_k - y_k)^2 / (x_k + y_k)
    intersection  out[i, j] = sum_k min(x_k, y_k)

`Y` is taken in groups of rows that stay in cache while all of `X` passes by. Reassociation lets the sums use the
vector units; the smallest normal number in the denominator makes a bin that is empty on both sides add zero.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba

_GROUP = 64
_VECTORISE = {"nnan", "nsz", "reassoc", "contract"}


_HARMONIC, _CHI_SQUARE, _INTERSECTION = range(3)


# One function for the three sums, without variables of an outer one: numba would compile those anew in every process.
@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _fill(X: np.ndarray, Y: np.ndarray, out: np.ndarray, which: int) -> None:
    tiny = np.finfo(X.dtype).tiny
    bins = range(X.shape[1])
    for start in range(0, Y.shape[0], _GROUP):
        for i in range(X.shape[0]):
            x = X[i]
            for j in range(start, min(start + _GROUP, Y.shape[0])):
                y = Y[j]
                total = X.dtype.type(0)
                if which == _HARMONIC:
                    for k in bins:
                        total += x[k] * y[k] / max(x[k] + y[k], tiny)
                    total *= 2
                elif which == _CHI_SQUARE:
                    for k in bins:
                        total += (x[k] - y[k]) * (x[k] - y[k]) / max(x[k] + y[k], tiny)
                else:
                    for k in bins:
                        total += min(x[k], y[k])
                out[i, j] = total


def harmonic(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k 2 x_k y_k / (x_k + y_k)`."""
    _fill(X, Y, out, _HARMONIC)


def chi_square(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k (x_k - y_k)^2 / (x_k + y_k)`."""
    _fill(X, Y, out, _CHI_SQUARE)


def intersection(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """`out[i, j] = sum_k min(x_k, y_k)`."""
    _fill(X, Y, out, _INTERSECTION)
