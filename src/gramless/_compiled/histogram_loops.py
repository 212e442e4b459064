"""Compiled loops of the histogram kernels; imported only when one of them is called.

    harmonic      out[i, j] = sum_k 2 x_k y_k / (x_k + y_k)
    chi_square    out[i, j] = sum_k (x_k - y_k)^2 / (x_k + y_k)
    intersection  out[i, j] = sum_k min(x_k, y_k)

`Y` is taken in groups of rows that stay in cache while all of `X` passes by. Reassociation lets the sums use the
vector units; the smallest normal number in the denominator makes a bin that is empty on both sides add zero.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_GROUP = 64
_VECTORISE = {"nnan", "nsz", "reassoc", "contract"}


@numba.njit(inline="always", fastmath=_VECTORISE)
def _harmonic(x: Any, y: Any, tiny: Any) -> Any:
    return x * y / max(x + y, tiny)


@numba.njit(inline="always", fastmath=_VECTORISE)
def _chi_square(x: Any, y: Any, tiny: Any) -> Any:
    return (x - y) * (x - y) / max(x + y, tiny)


@numba.njit(inline="always", fastmath=_VECTORISE)
def _intersection(x: Any, y: Any, tiny: Any) -> Any:
    return min(x, y)


def _sum_over_bins(term: Any, factor: int = 1) -> Any:
    @numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
    def fill(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
        tiny = np.finfo(X.dtype).tiny
        for start in range(0, Y.shape[0], _GROUP):
            for i in range(X.shape[0]):
                for j in range(start, min(start + _GROUP, Y.shape[0])):
                    total = X.dtype.type(0)
                    for k in range(X.shape[1]):
                        total += term(X[i, k], Y[j, k], tiny)
                    out[i, j] = factor * total

    return fill


harmonic = _sum_over_bins(_harmonic, 2)
chi_square = _sum_over_bins(_chi_square)
intersection = _sum_over_bins(_intersection)
