"""Rows whose entries lie on a grid of 256 equidistant levels (pixels, counts, binary features), stored as bytes.

    x_i = scale_i * codes_i + offset_i        codes_i in {0, ..., 255}^d

A centred or normalised image is still on a grid, with its own scale and offset. Inner products of rows on grids follow from
sums of products of bytes, which vector instructions compute without rounding:

    <x_i, y_j> = scale_i scale_j <codes_i, codes_j> + offset_j sum(x_i) + offset_i scale_j sum(codes_j)

The result is rounded once, from float64 to float32. A matrix product of bytes by AVX-512 VNNI takes a third of the time
of a float32 matrix product (measured by `benchmarks/cpu_products.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core.tuning import TUNING


class GridRows:
    """Read-only float32 matrix stored as uint8 codes, with a scale and an offset for each row.

    The number of columns of `codes` is the number of features rounded up to a multiple of four; additional columns are zero.
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
        """Return the rows as a dense array."""
        dense = self.codes[:, : self.shape[1]].astype(dtype)
        dense *= self.scale[:, None].astype(dtype)
        dense += self.offset[:, None].astype(dtype)
        return dense

    def square_norms(self) -> np.ndarray:
        """Return the squared Euclidean norm of each row."""
        from gramless._core.compiled.integer_products import sums_of_codes

        sums, squares = sums_of_codes(self.codes)
        cross = 2 * self.scale * self.offset * sums
        return (self.scale**2 * squares + cross + self.shape[1] * self.offset**2).astype(self.dtype)


def has_integer_products() -> bool:
    """Return True if the processor has vector instructions for products of integers, and numba uses them."""
    from gramless._core.compiled.simd import available, lanes

    return available("avx512bw") if lanes() == 16 else lanes() > 0


def on_grid(X: Any) -> GridRows | None:
    """Return `X` as `GridRows` if it is a large enough float32 matrix whose rows lie on grids up to rounding, else None.

    Data on no grid is rejected at its first rows in most cases; otherwise the cost is one pass over the data.
    """
    if isinstance(X, GridRows):
        return X
    if not isinstance(X, np.ndarray) or X.dtype != np.float32 or X.ndim != 2:
        return None
    n, d = X.shape
    fewest, most = TUNING.grid_features
    if n < TUNING.grid_rows or not fewest <= d <= most or not has_integer_products():
        return None
    from gramless._core.compiled.integer_products import encode
    from gramless._core.threads import blas_threads, parallel_for, slices

    rows = GridRows(np.zeros((n, -(-d // 4) * 4), np.uint8), np.empty(n), np.empty(n), d)
    first, *others = slices(n, TUNING.grid_rows_per_task)
    failed: list[slice] = []

    def fill(part: slice) -> None:
        if not failed and not encode(np.ascontiguousarray(X[part]), rows.codes[part], rows.scale[part], rows.offset[part]):
            failed.append(part)

    fill(first)
    if others and not failed:
        parallel_for(others, fill, blas_threads())
    return None if failed else rows
