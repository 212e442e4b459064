"""The columns `K(X, s)` of a kernel matrix at the landmarks `s`, multiplied from either side.

`LandmarkColumns` is the interface that a preconditioner needs; `LocalColumns` has the columns in the memory of this process:
stored, recomputed a few thousand rows at a time, taken from a given matrix, or by the fused product on a CUDA device.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import evaluate
from gramless.linalg.operators.fused import FusedProduct
from gramless.linalg.operators.tall import TallMatrix


class LandmarkColumns(Protocol):
    """Interface of the columns `K(X, s)`, local or distributed."""

    shape: tuple[int, int]
    landmarks: np.ndarray
    """Row numbers of the landmarks."""
    dtype: np.dtype
    """Precision of the data and of the kernel matrix."""
    sums: np.dtype
    """Precision of the vectors of products: float64, or float32 for fused products, which have accurate sums."""

    def square(self) -> Array:
        """Return `K(s, s)` in float64."""
        ...

    def sample(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Return `K(rows, s)` and the diagonal `K(x, x)` of these rows in float64."""
        ...

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """Return the lower triangle of `S + K(s, X) diag(weights) K(X, s)` in float64; `S` may be overwritten."""
        ...

    def transposed_times(self, V: Array) -> Array:
        """Return `K(s, X) V` in float64."""
        ...

    def times(self, W: Array) -> Array:
        """Return `K(X, s) W` for `W` in float64."""
        ...


class LocalColumns:
    """The columns `K(X, s)` in this process; with `store` they are kept, else recomputed at each use.

    A `fused` product of `X` computes columns that are not stored from its rounded points.
    """

    def __init__(
        self, X: Array, kernel: Kernel, landmarks: np.ndarray, *, store: bool = True, fused: FusedProduct | None = None
    ):
        self.shape = (X.shape[0], len(landmarks))
        self.landmarks = landmarks
        self.dtype = xa.numpy_dtype(X.data if xa.is_sparse(X) else X)
        self._X, self._kernel = X, kernel
        self._fused = None if store or fused is None else (fused, fused.of(landmarks))
        self.sums = np.dtype(np.float64) if self._fused is None else self.dtype
        self._points = self._rows(landmarks)
        self._tall = TallMatrix(self.shape, self._block, store=store)

    def _rows(self, rows: Any) -> Array:
        """Return points in the precision of the matrix: rounded if its products are fused."""
        if self._fused is None:
            return xa.take_rows(self._X, rows)
        part = self._fused[0].operand.take(rows)
        return part.points(slice(0, part.n))

    def _block(self, rows: slice) -> Array:
        if self._fused is not None:
            everything, landmarks = self._fused
            return landmarks.block(everything.operand.take(rows))
        if not self._kernel.uses_points:
            return self._kernel.block(self._X, rows, self.landmarks)
        return evaluate(self._kernel, xa.take_rows(self._X, rows), self._points)

    def _looked_up(self, rows: np.ndarray) -> Array:
        """Return a block of a given kernel matrix in float64; only the block is converted."""
        block = xa.astype(xa.submatrix(self._X, rows, self.landmarks), np.float64)
        return self._kernel.block(block, slice(None), slice(None))

    def square(self) -> Array:
        if not self._kernel.uses_points:
            return self._looked_up(self.landmarks)
        points = xa.astype(self._points, np.float64)
        return evaluate(self._kernel, points, points)

    def sample(self, rows: np.ndarray) -> tuple[Array, Array]:
        if not self._kernel.uses_points:
            return self._looked_up(rows), xa.astype(xa.take_rows(self._kernel.diag(self._X), rows), np.float64)
        part = xa.astype(self._rows(rows), np.float64)
        return self._kernel(part, xa.astype(self._points, np.float64)), self._kernel.diag(part)

    def add_gram_(self, S: Array, weights: Array) -> Array:
        return self._tall.add_gram_(S, weights)

    def transposed_times(self, V: Array) -> Array:
        if self._fused is None:
            return self._tall.transposed_times(V)
        everything, landmarks = self._fused
        return xa.astype(everything(landmarks.operand, V), np.float64)

    def times(self, W: Array) -> Array:
        if self._fused is None:
            return self._tall.times(W)
        everything, landmarks = self._fused
        # Rounding of one of the n entries of a vector spreads over all eigenvectors. Rounding of one of the m entries of W
        # would be multiplied with the leading eigenvalues, so W stays in float64.
        return landmarks(everything.operand, W)
