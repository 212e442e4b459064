"""The columns `K(X, s)` of a kernel matrix at some of its rows `s`, as something to multiply with from either side.

What a preconditioner asks of them is `LandmarkColumns`; `LocalColumns` computes it where the points are: held, computed
again a few thousand rows at a time, looked up in a matrix that is given, or by the fused product on a CUDA device.
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
    """`K(X, s)`, wherever it is computed."""

    shape: tuple[int, int]
    landmarks: np.ndarray
    """Which rows `s` are."""
    dtype: np.dtype
    """Of the data, and of the matrix that `K(X, s)` belongs to."""
    sums: np.dtype
    """Of the vectors that products take and give: float64, or float32 where fused products sum better by themselves."""

    def square(self) -> Array:
        """`K(s, s)` in float64."""
        ...

    def sample(self, rows: np.ndarray) -> tuple[Array, Array]:
        """`K(rows, s)` and the diagonal `K(x, x)` of these rows, both in float64."""
        ...

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """The lower triangle of `S + K(s, X) diag(weights) K(X, s)`, summed in float64; `S` may be overwritten."""
        ...

    def transposed_times(self, V: Array) -> Array:
        """`K(s, X) V` in float64."""
        ...

    def times(self, W: Array) -> Array:
        """`K(X, s) W` for `W` in float64."""
        ...


class LocalColumns:
    """`K(X, s)` on one machine.

    Parameters
    ----------
    X : array of shape (n, d)
        Points, or the matrix itself for a kernel that looks it up.
    kernel : Kernel
        Resolved.
    landmarks : ndarray of int
        The rows `s` of `X`.
    store : bool, default=True
        Hold `n m` numbers, or compute them again at each use.
    fused : FusedProduct, optional
        Of `X`: what is not held is then computed from its rounded points, by the kernel that multiplies with the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators.landmark_columns import LocalColumns
    >>> X = np.array([[1.0], [2.0], [3.0]])
    >>> LocalColumns(X, Linear(), np.array([2])).times(np.ones((1, 1)))
    array([[3.],
           [6.],
           [9.]])
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
        """Points as the matrix has them: rounded, where its products are fused."""
        if self._fused is None:
            return xa.take_rows(self._X, rows)
        some = self._fused[0].operand.take(rows)
        return some.points(slice(0, some.n))

    def _block(self, rows: slice) -> Array:
        if self._fused is not None:
            everything, landmarks = self._fused
            return landmarks.block(everything.operand.take(rows))
        if not self._kernel.uses_points:
            return self._kernel.block(self._X, rows, self.landmarks)
        return evaluate(self._kernel, xa.take_rows(self._X, rows), self._points)

    def _looked_up(self, rows: np.ndarray) -> Array:
        """A block of a kernel matrix that is given, in float64: only the block is converted, not the matrix."""
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
        some = xa.astype(self._rows(rows), np.float64)
        return self._kernel(some, xa.astype(self._points, np.float64)), self._kernel.diag(some)

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
        # A rounding of one of the n entries of a vector spreads over all eigenvectors and is harmless. One of the m entries
        # of W is multiplied with the leading eigenvalues: W stays in float64.
        return landmarks(everything.operand, W)
