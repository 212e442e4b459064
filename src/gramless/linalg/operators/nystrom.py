"""The columns `K(X, s)` of a kernel matrix at the landmarks `s`, and the Nyström preconditioner made of these columns.

`LocalColumns` computes products with the columns in this process. The columns are stored, recomputed a few
thousand rows at a time, taken from a given matrix, or computed by the fused product on a CUDA device. `RemoteColumns` in
`gramless.distributed` has the same interface.

`TallMatrix` computes products with a matrix of many rows and m columns. The entries have the precision of the data. A sum
over n rows in float32 would lose the small eigenvalues of a Gram matrix, so parts of 4096 rows are converted, multiplied and
added in float64, with memory for `4096 m` numbers beside the matrix.

    times(W)             C W                    O(n m k)
    transposed_times(V)  C^T V                  O(n m k)
    add_gram_(S, w)      S + C^T diag(w) C      O(n m^2)

`NystromPreconditioner` inverts a low-rank approximation of the kernel matrix. With `m` landmarks `s` and `D = diag(ridge +
damping)`, the matrix `K_ns K_ss^-1 K_sn + D` has the inverse

    P^-1 = D^-1 - D^-1 K_ns (K_ss + K_sn D^-1 K_ns)^-1 K_sn D^-1

The inverse needs one `m x m` factorisation in float64: O(n m^2) time once, and O(n m) for each column of a product. The
damping is the mean eigenvalue of `K - K_ns K_ss^-1 K_sn`, the part of the matrix that the landmarks do not represent,
estimated on a sample of rows. Without damping, `P^-1` would amplify this part of the spectrum instead of bounding it.

Reference: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread, slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import cross
from gramless.linalg.operators.fused import FusedColumns, FusedProduct
from gramless.linalg.operators.jitter import jittered_cholesky
from gramless.linalg.operators.tile_product import InDouble, compiles, product, transposed_product
from gramless.linalg.tuning import TUNING, LinalgTuning


class TallMatrix:
    """A matrix `C` whose rows are given by `compute(slice of rows)`; with `store` all rows are computed once and stored.

    `n_entries` is the number of entries of the matrix of which `C` is a part; if it is small, no compiled loops are loaded.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        compute: Callable[[slice], Array],
        *,
        store: bool = False,
        n_entries: int = 0,
        tuning: LinalgTuning = TUNING,
    ):
        self.shape = shape
        self._n_entries = n_entries
        self._stored = compute(slice(0, shape[0])) if store else None
        # A function that returns a slice of rows of `C` in the precision of the data.
        self._rows = compute if self._stored is None else self._stored.__getitem__
        self._parts = slices(shape[0], tuning.rows_per_part)

    def __sizeof__(self) -> int:
        # Dask uses the size in bytes to assign objects to workers and to move objects to disk.
        return 0 if self._stored is None else self.shape[0] * self.shape[1] * xa.numpy_dtype(self._stored).itemsize

    def _parts_for(self, V: Array) -> list[slice]:
        """Return slices of rows that are multiplied at a time: one slice if the compiled loops read stored values."""
        whole = self._stored is not None and compiles(self._stored, V, self._n_entries)
        return [slice(0, self.shape[0])] if whole else self._parts

    def transposed_times(self, V: Array) -> Array:
        """Return `C^T V` for `V` in float64."""
        total, in_double = xa.zeros((self.shape[1], V.shape[1]), V), InDouble()
        for rows in self._parts_for(V):
            total += transposed_product(self._rows(rows), V[rows], self._n_entries, in_double)
        return total

    def times(self, W: Array) -> Array:
        """Return `C W` for `W` in float64."""
        out, in_double = xa.empty((self.shape[0], W.shape[1]), W), InDouble()
        for rows in self._parts_for(W):
            out[rows] = product(self._rows(rows), W, self._n_entries, in_double)
        return out

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """Return the lower triangle of `S + C^T diag(weights) C` for a float64 `S`; `S` may be overwritten."""
        root, in_double = xa.astype(xa.namespace(weights).sqrt(weights), np.float64), InDouble()
        for rows in self._parts:
            # The sum is float64: from a million rows on, float32 rounding errors of the sum would exceed the matrix `S`.
            S = xa.add_gram_(S, in_double(self._rows(rows), root[rows]))
        return S


class LocalColumns(TallMatrix):
    """The columns `K(X, s)`, computed in this process: once with `store`, else at each use.

    If the columns are not stored, a `fused` product of `X` computes them from its rounded points. `landmarks` are row
    numbers, and `dtype` is the precision of the data. Vectors are multiplied in the dtype `sums`: float64, or
    float32 for fused products, whose sums are accurate.
    """

    def __init__(
        self, X: Array, kernel: Kernel, landmarks: np.ndarray, *, store: bool = True, fused: FusedProduct | None = None
    ):
        self.landmarks = landmarks
        self.dtype = xa.numpy_dtype(X.data if xa.is_sparse(X) else X)
        self._X, self._kernel = X, kernel
        self._fused = None if store or fused is None else FusedColumns(fused, fused.of(landmarks))
        self.sums = np.dtype(np.float64) if self._fused is None else self.dtype
        super().__init__((X.shape[0], len(landmarks)), self._block, store=store, n_entries=X.shape[0] ** 2 // 2)

    def _block(self, rows: Any, dtype: Any = None) -> Array:
        """Return `K(rows, s)`, with rounded points if the products are fused."""
        if self._fused is None:
            return cross(self._kernel, self._X, rows, self.landmarks, dtype)
        if dtype is None:
            return self._fused.landmarks.block(self._fused.rows.operand.take(rows))
        return self._kernel(self._points(rows), self._points(self.landmarks))

    def _points(self, rows: np.ndarray) -> Array:
        """Return points in float64, rounded if the products are fused."""
        points = xa.take_rows(self._X, rows) if self._fused is None else self._fused.rows.of(rows).rounded_points()
        return xa.astype(points, np.float64)

    def square(self) -> Array:
        """Return `K(s, s)` in float64."""
        return self._block(self.landmarks, np.float64)

    def sample(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Return `K(rows, s)` and the diagonal `K(x, x)` of these rows in float64."""
        kernel = self._kernel
        diagonal = kernel.diag(self._points(rows)) if kernel.uses_points else xa.take_rows(kernel.diag(self._X), rows)
        return self._block(rows, np.float64), xa.astype(diagonal, np.float64)

    def transposed_times(self, V: Array) -> Array:
        return super().transposed_times(V) if self._fused is None else self._fused.transposed_times(V)

    def times(self, W: Array) -> Array:
        # `W` is float64 for fused products too: the rounding errors of its m entries would be multiplied by the leading
        # eigenvalues, whereas those of the n entries of `V` in `transposed_times` spread over all eigenvectors.
        return super().times(W) if self._fused is None else self._fused.times(W)


class NystromPreconditioner:
    """The map `V -> P^-1 V` for `P` close to `K(X, X) + diag(ridge)`; `rng` samples rows for `damping="auto"`."""

    def __init__(self, columns: LocalColumns, ridge: Array, *, damping: float | str = "auto", rng: np.random.RandomState):
        self.columns, self.landmarks = columns, columns.landmarks
        K_ss = columns.square()
        self.damping = float(damping) if damping != "auto" else self._mean_residual_eigenvalue(K_ss, rng)
        self._inverse_diagonal = xa.astype(1.0 / (ridge + self.damping), columns.sums)
        # K_ss is overwritten by the sum.
        self._factor, self.jitter = jittered_cholesky(columns.add_gram_(K_ss, self._inverse_diagonal))

    def _mean_residual_eigenvalue(self, K_ss: Array, rng: np.random.RandomState) -> float:
        """Return the mean eigenvalue of `K - K_ns K_ss^-1 K_sn`: the trace, estimated from a sample, divided by the rank."""
        n, m = self.columns.shape
        sample = rng.permutation(n)[: min(n, TUNING.eigenvalue_sample)]
        C, diagonal = self.columns.sample(sample)
        half = xa.solve_triangular(jittered_cholesky(K_ss)[0], C.T)
        unexplained = float(xa.namespace(half).sum(diagonal)) - xa.norm(half) ** 2
        mean = unexplained / len(sample) * n / max(1, n - m)
        # A product with the matrix multiplies the rounding errors of a vector by up to the largest eigenvalue. A damping
        # below `damping_roundings * eps` times this eigenvalue would only amplify these rounding errors.
        largest = float(xa.namespace(K_ss).sum(K_ss)) / m**2 * n
        return max(mean, TUNING.damping_roundings * float(np.finfo(self.columns.dtype).eps) * max(largest, 1.0))

    def __matmul__(self, V: Array) -> Array:
        D = self._inverse_diagonal[:, None]
        # Float64, unless the products sum accurately, because `wide` and `explained` nearly cancel: along an eigenvector
        # with eigenvalue lambda, the difference is damping / (lambda + damping) of `wide`.
        wide = xa.astype(V, self.columns.sums)
        projected = self.columns.transposed_times(D * wide)
        with one_blas_thread():
            inner = xa.cholesky_solve(self._factor, projected)
        explained = self.columns.times(inner)
        return xa.astype(D * (wide - explained), xa.numpy_dtype(V))
