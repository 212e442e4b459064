"""Compiled loops over CSR rows that write dense blocks; imported only when sparse data is met.

SciPy's product of two sparse matrices is sparse again, and becomes dense through copies several times the size of the
block. These loops write each value where it belongs: O(rows * nonzeros) time, no temporary of the block's size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gramless._core.compiled.compiler import numba

# A column is multiplied as a dense one where more than this share of the rows have it: in a matrix product an entry takes
# about a fiftieth of the time of a scattered one, and the square of the share is how many of the block's entries need it.
_DENSE_SHARE = 50**-0.5


def _output(X: Any, Y: Any, out: np.ndarray | None) -> np.ndarray:
    return np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(X.dtype, Y.dtype)) if out is None else out


def dot(X: Any, Y: Any, out: np.ndarray | None = None) -> np.ndarray:
    """`X @ Y.T` as a dense block; dense rows on one side are converted.

    Columns that most rows share, such as the frequent words of a text, are multiplied as dense ones: the rest is scattered.
    """
    X, Y = sp.csr_matrix(X), sp.csc_matrix(Y)
    out = _output(X, Y, out)
    heavy = np.flatnonzero(np.diff(Y.indptr) > _DENSE_SHARE * Y.shape[0])
    place = np.full(Y.shape[1], -1)
    place[heavy] = np.arange(heavy.size)
    if heavy.size:
        left = np.zeros((X.shape[0], heavy.size), dtype=out.dtype)
        _take(X.data, X.indices, X.indptr, place, left)
        np.matmul(left, Y[:, heavy].toarray().T.astype(out.dtype, copy=False), out=out)
    else:
        out[...] = 0
    _add_dot(X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr, place, out)
    return out


@numba.njit(cache=True, nogil=True)
def _take(x, column, start, place, out):
    for i in range(out.shape[0]):
        for p in range(start[i], start[i + 1]):
            if place[column[p]] >= 0:
                out[i, place[column[p]]] += x[p]


@numba.njit(cache=True, nogil=True)
def _add_dot(x, x_column, x_start, y, y_row, y_start, place, out):
    for i in range(out.shape[0]):
        row = out[i]
        for p in range(x_start[i], x_start[i + 1]):
            k, value = x_column[p], x[p]
            if place[k] < 0:
                for q in range(y_start[k], y_start[k + 1]):
                    row[y_row[q]] += value * y[q]


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
