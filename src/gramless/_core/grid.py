"""Rows whose entries lie on a grid of 256 levels, kept as bytes: pixels, counts, yes/no features.

    x_i = scale_i * codes_i + offset_i        codes_i in {0, ..., 255}^d

Centring and normalising an image keeps it on a grid, only a different one for each image. Inner products of such rows are
sums of products of bytes, which the vector units add up two or four at a time, exactly:

    <x_i, y_j> = scale_i scale_j <codes_i, codes_j> + offset_j sum(x_i) + offset_i scale_j sum(codes_j)

so the result is rounded once, from float64, in less time than a float32 matrix product takes: a third of it with AVX-512
VNNI (`benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

# The sum of as many products of two bytes fits 32 bits.
_MOST_FEATURES = 33_000
# Below these sizes finding the grid is not worth it.
_FEWEST_FEATURES = 32
_FEWEST_ROWS = 256
# Rows encoded by one task.
_ROWS_AT_A_TIME = 2048


class GridRows:
    """A read-only float32 matrix in a quarter of its memory; behaves as one where rows are taken and multiplied.

    Parameters
    ----------
    codes : uint8 array of shape (n, width)
        `width` is the number of features rounded up to a multiple of four; the columns beyond are zero.
    scale, offset : float64 arrays of shape (n,)
    n_features : int
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray, n_features: int):
        self.codes, self.scale, self.offset = codes, scale, offset
        self.shape = (len(codes), n_features)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> GridRows:
        return GridRows(self.codes[rows], self.scale[rows], self.offset[rows], self.shape[1])

    def __mul__(self, factor: float) -> GridRows:
        return GridRows(self.codes, self.scale * factor, self.offset * factor, self.shape[1])

    def astype(self, dtype: Any, copy: bool = True) -> np.ndarray:
        """The rows as a dense array."""
        dense = self.codes[:, : self.shape[1]].astype(dtype)
        dense *= self.scale[:, None].astype(dtype)
        dense += self.offset[:, None].astype(dtype)
        return dense

    def square_norms(self) -> np.ndarray:
        """Squared Euclidean norm of each row."""
        from gramless._core.compiled.integer_products import sums_of_codes

        sums, squares = sums_of_codes(self.codes)
        cross = 2 * self.scale * self.offset * sums
        return (self.scale**2 * squares + cross + self.shape[1] * self.offset**2).astype(self.dtype)


def has_integer_products() -> bool:
    """Whether this processor has the instructions, and numba compiles for it."""
    from gramless._core.compiled.simd import available, lanes

    return available("avx512bw") if lanes() == 16 else lanes() > 0


def on_grid(X: Any) -> GridRows | None:
    """`X` as bytes if it is a float32 matrix on such grids, to rounding, and large enough to gain; else None.

    Data that is not on a grid is found out at its first rows; for data that is, the cost is one pass over it.
    """
    if isinstance(X, GridRows):
        return X
    if not isinstance(X, np.ndarray) or X.dtype != np.float32 or X.ndim != 2:
        return None
    n, d = X.shape
    if n < _FEWEST_ROWS or not _FEWEST_FEATURES <= d <= _MOST_FEATURES:
        return None
    if not has_integer_products():
        return None
    from gramless._core.compiled.integer_products import encode
    from gramless._core.threads import blas_threads, parallel_for, slices

    rows = GridRows(np.zeros((n, -(-d // 4) * 4), np.uint8), np.empty(n), np.empty(n), d)
    first, *others = slices(n, _ROWS_AT_A_TIME)
    missed: list[slice] = []

    def fill(part: slice) -> None:
        if not missed and not encode(np.ascontiguousarray(X[part]), rows.codes[part], rows.scale[part], rows.offset[part]):
            missed.append(part)

    fill(first)
    if others and not missed:
        parallel_for(others, fill, blas_threads())
    return None if missed else rows


def dot(X: GridRows, Y: GridRows, out: np.ndarray | None = None) -> np.ndarray:
    """`X @ Y.T` in float32, into `out` where given."""
    from gramless._core.compiled.integer_products import integer_products

    if out is None:
        out = np.empty((len(X), len(Y)), X.dtype)
    # Loops over one contiguous array run on the vector units, whatever larger block `out` is a part of.
    stride = out.strides[0] // out.itemsize
    flat = as_strided(out, (max(0, len(X) - 1) * stride + len(Y),), (out.itemsize,))
    integer_products(X.codes, X.scale, X.offset, Y.codes, Y.scale, Y.offset, X.shape[1], flat, stride)
    return out
