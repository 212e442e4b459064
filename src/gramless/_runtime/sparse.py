"""Compiled loops over CSR rows that write dense blocks; imported only when sparse data is met.

SciPy's product of two sparse matrices is sparse again, and becomes dense through copies several times the size of the
block. These loops write each value where it belongs: O(rows * nonzeros) time, no temporary of the block's size.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.sparse as sp


def _output(X: Any, Y: Any, out: np.ndarray | None) -> np.ndarray:
    return np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(X.dtype, Y.dtype)) if out is None else out


def dot(X: Any, Y: Any, out: np.ndarray | None = None) -> np.ndarray:
    """`X @ Y.T` as a dense block; dense rows on one side are converted."""
    X, Y = sp.csr_matrix(X), sp.csc_matrix(Y)
    out = _output(X, Y, out)
    _dot(X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr, out)
    return out


@numba.njit(cache=True, nogil=True)
def _dot(x, x_column, x_start, y, y_row, y_start, out):
    out[...] = 0
    for i in range(out.shape[0]):
        for p in range(x_start[i], x_start[i + 1]):
            k = x_column[p]
            for q in range(y_start[k], y_start[k + 1]):
                out[i, y_row[q]] += x[p] * y[q]


def city_block(X: Any, Y: Any, out: np.ndarray | None = None) -> np.ndarray:
    """`sum_k |X[i, k] - Y[j, k]|` as a dense block; dense rows on one side are converted."""
    X, Y = _sorted(sp.csr_matrix(X)), _sorted(sp.csr_matrix(Y))
    out = _output(X, Y, out)
    _city_block(X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr, out)
    return out


def _sorted(X: Any) -> Any:
    """`X` with each row's columns ascending and named once, which the merge below relies on."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


@numba.njit(cache=True, nogil=True)
def _city_block(x, x_column, x_start, y, y_column, y_start, out):
    zero = out.dtype.type(0)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            p, q = x_start[i], y_start[j]
            total = zero
            while p < x_start[i + 1] and q < y_start[j + 1]:
                if x_column[p] == y_column[q]:
                    total += abs(x[p] - y[q])
                    p += 1
                    q += 1
                elif x_column[p] < y_column[q]:
                    total += abs(x[p])
                    p += 1
                else:
                    total += abs(y[q])
                    q += 1
            while p < x_start[i + 1]:
                total += abs(x[p])
                p += 1
            while q < y_start[j + 1]:
                total += abs(y[q])
                q += 1
            out[i, j] = total
