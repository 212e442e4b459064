"""Compiled loops over CSR rows that write dense blocks; imported only for sparse data.

SciPy's product of two sparse matrices is sparse, and converting it to a dense block needs copies of several times the size
of the block. These loops write to the dense block directly, in O(rows * nonzeros) time and without a large temporary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gramless._core import arrays as xa
from gramless._core.compiled.compiler import numba
from gramless._core.tuning import TUNING


def _output(X: Any, Y: Any, out: np.ndarray | None) -> np.ndarray:
    return np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(X.dtype, Y.dtype)) if out is None else out


def dot(X: Any, Y: Any, out: np.ndarray | None = None) -> np.ndarray:
    """Return `X @ Y.T` as a dense block; one side may be dense.

    Columns with many nonzeros, such as frequent words of a text, are multiplied as dense columns.
    """
    X, Y = sp.csr_matrix(X), sp.csc_matrix(Y)
    out = _output(X, Y, out)
    dense_columns = np.flatnonzero(np.diff(Y.indptr) > TUNING.dense_column_fraction * Y.shape[0])
    dense_position = np.full(Y.shape[1], -1)
    dense_position[dense_columns] = np.arange(dense_columns.size)
    if dense_columns.size:
        left = np.zeros((X.shape[0], dense_columns.size), dtype=out.dtype)
        _take(X.data, X.indices, X.indptr, dense_position, left)
        np.matmul(left, Y[:, dense_columns].toarray().T.astype(out.dtype, copy=False), out=out)
    else:
        out[...] = 0
    _add_dot(X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr, dense_position, out)
    return out


@numba.njit(cache=True, nogil=True)
def _take(x, column, start, dense_position, out):
    for i in range(out.shape[0]):
        for p in range(start[i], start[i + 1]):
            if dense_position[column[p]] >= 0:
                out[i, dense_position[column[p]]] += x[p]


@numba.njit(cache=True, nogil=True)
def _add_dot(x, x_column, x_start, y, y_row, y_start, dense_position, out):
    for i in range(out.shape[0]):
        row = out[i]
        for p in range(x_start[i], x_start[i + 1]):
            k, value = x_column[p], x[p]
            if dense_position[k] < 0:
                for q in range(y_start[k], y_start[k + 1]):
                    row[y_row[q]] += value * y[q]


def city_block(X: Any, Y: Any, out: np.ndarray | None = None) -> np.ndarray:
    """Return `sum_k |X[i, k] - Y[j, k]|` as a dense block; one side may be dense."""
    X, Y = xa.canonical_csr(sp.csr_matrix(X)), xa.canonical_csr(sp.csr_matrix(Y))
    out = _output(X, Y, out)
    _city_block(X.data, X.indices, X.indptr, Y.data, Y.indices, Y.indptr, out)
    return out


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
            for rest in range(p, x_start[i + 1]):
                total += abs(x[rest])
            for rest in range(q, y_start[j + 1]):
                total += abs(y[rest])
            out[i, j] = total
