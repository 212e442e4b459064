"""The normal equations of a landmark model as a well-conditioned operator, without storing the kernel matrix `K_nm`.

For landmarks `g_1 .. g_m`, rows `x_i` with weights `w_i` of sum `N`, and targets `z_i`, the model minimises

    sum_i w_i (z_i - k_m(x_i)^T a - b)^2 + ridge a^T K_mm a .

With `K_mm = L L^T` and `A^T A = (N / m) L^T L + ridge I`, the coefficients are `a = L^-T A^-1 beta`, where

    A^-T (L^-1 K_mn W_c K_nm L^-T + ridge I) A^-1 beta = A^-T L^-1 K_mn W_c z,      W_c = W - w w^T / N .

`W_c` is `W = diag(w)` after elimination of the intercept. If the landmarks are typical rows, `K_mn W K_nm` is close to `(N /
m) K_mm K_mm` and the matrix to the identity, so conjugate gradients need few iterations, each of which is one pass over the
rows: O(n m d) time, instead of O(n m^2) for the sums of the normal equations (Rudi, Carratino and Rosasco, "FALKON: an
optimal large scale kernel method", 2017). For the unknowns `beta`, the squared norm of a residual is close to the excess of
the objective over its minimum, so a small residual means that the predictions have converged.

The triangular factors `L` and `A` are computed in float64 and in place, tile by tile: `L` in the lower and `A` in the upper
triangle of one `m x m` matrix, in O(m^3) time and 8 m^2 bytes. A jitter is added to `K_mm` as in all landmark models
(`gramless.linalg.operators.jitter`); the objective that is minimised includes the jitter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import run_threads, slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators.base import Operator
from gramless.linalg.operators.blocks import evaluate, workers_for
from gramless.linalg.operators.fused import FusedColumns, prepare
from gramless.linalg.operators.jitter import rounding_of
from gramless.linalg.operators.tile_product import product, transposed_product
from gramless.linalg.tuning import TUNING, LinalgTuning


class TiledRows:
    """Float64 products with `C = K(X, landmarks)` and its transpose; each kernel value is used for both products.

    Each thread computes blocks of about `products.block_bytes` bytes of kernel values and multiplies a block while it is in
    the cache of the core. Each group of blocks has its own sum, and the groups do not depend on the number of threads.
    With `store` kernel values are computed only once and stored, in half precision if `products.storage` names a format.
    """

    def __init__(self, products: LandmarkProducts, X: Array, *, store: bool = False):
        kernel, landmarks = products.kernel, products.landmarks
        self._kernel, self._X, self._landmarks = kernel, X, landmarks
        self._dtype, self._block_bytes = xa.numpy_dtype(X.data if xa.is_sparse(X) else X), products.block_bytes
        self._height = max(
            TUNING.smallest_normal_block, self._block_bytes // (int(landmarks.shape[0]) * self._dtype.itemsize)
        )
        self._parts, self._n_values = slices(int(X.shape[0]), self._height), int(X.shape[0]) * int(landmarks.shape[0])
        self._stored: list[Array] | None = None
        if store:
            blocks = (evaluate(kernel, X[rows], landmarks) for rows in self._parts)
            storage = products.storage
            self._stored = [block if storage is None else xa.to_half(block, storage) for block in blocks]

    def _block(self, i: int, buffer: np.ndarray | None) -> Array:
        """Return the kernel values of block `i` in the precision of the data; values that are not stored use `buffer`."""
        if self._stored is not None:
            return xa.astype(self._stored[i], self._dtype)
        rows = self._parts[i]
        out = None if buffer is None else buffer[: rows.stop - rows.start]
        return evaluate(self._kernel, self._X[rows], self._landmarks, out=out)

    def _sum(self, term: Callable[[slice, Array], Array], V: Array) -> Array:
        """Return the sum of `term(rows, C[rows])`, with as many columns as `V`, over all blocks of rows."""
        shape, on_host = (int(self._landmarks.shape[0]), int(V.shape[1])), not xa.is_torch(V)
        most = max(1, min(TUNING.most_parts, self._block_bytes // (8 * shape[0] * shape[1]))) if on_host else 1
        groups = slices(len(self._parts), -(-len(self._parts) // most))
        sums = [xa.zeros(shape, V) for _ in groups]
        workers = min(workers_for(self._kernel, V), len(groups))

        def work(k: int) -> None:
            # All blocks of the thread use one buffer, because page faults of new memory take time.
            buffer = np.empty((self._height, shape[0]), self._dtype) if on_host and self._stored is None else None
            for total, group in zip(sums[k::workers], groups[k::workers], strict=True):
                for i in range(group.start, group.stop):
                    total += term(self._parts[i], self._block(i, buffer))

        run_threads(work, workers)
        for part in sums[1:]:
            sums[0] += part
        return sums[0]

    def transposed_times(self, V: Array) -> Array:
        """Return `C^T V`."""
        return self._sum(lambda rows, block: transposed_product(block, V[rows], self._n_values), V)

    def normal_times(self, V: Array, shift: Array, weights: Array) -> Array:
        """Return `C^T diag(weights) (C V - shift)`."""

        def term(rows: slice, block: Array) -> Array:
            scores = product(block, V, self._n_values)
            return transposed_product(block, weights[rows] * (scores - shift), self._n_values)

        return self._sum(term, V)


class LandmarkProducts:
    """Products with `K(X, landmarks)` for blocks of rows `X`.

    With `precision` below `"highest"`, a CUDA device computes fused products of rounded points. `NormalOperator` must then
    be built from the rounded `landmarks`, because rounded rows and exact landmarks may give an indefinite system.
    """

    def __init__(
        self,
        kernel: Kernel,
        landmarks: Array,
        precision: str = "highest",
        *,
        storage: str | None = None,
        block_bytes: int = TUNING.normal_block_bytes_cpu,
    ):
        self.kernel, self.storage, self.block_bytes = kernel, storage, block_bytes
        self._fused = prepare(kernel, landmarks, precision)
        self.landmarks = landmarks if self._fused is None else self._fused.rounded_points()

    def rows(self, X: Array, *, store: bool = False) -> TiledRows | FusedColumns:
        """Return the products with `K(X, landmarks)` for a block of rows; with `store` the kernel values are stored."""
        return (
            TiledRows(self, X, store=store) if self._fused is None else FusedColumns(self._fused.with_points(X), self._fused)
        )


class NormalOperator(Operator):
    """The matrix `A^-T (L^-1 K_mn W_c K_nm L^-T + ridge I) A^-1`; each product is one pass over the rows.

    `normal_times(V, shift)` returns `K_mn W (K_nm V - shift)`, and `feature_sum` is `K_mn w`, of shape (m, 1). `eps` is the
    relative precision of the kernel values and `weight` the sum of the weights of all rows.
    """

    capabilities = frozenset({"spd"})

    def __init__(
        self,
        kernel: Kernel,
        landmarks: Array,
        normal_times: Callable[[Array, Array], Array],
        feature_sum: Array,
        *,
        eps: float,
        ridge: float,
        weight: float,
        tuning: LinalgTuning = TUNING,
    ):
        points = xa.astype(landmarks, np.float64)
        m = int(points.shape[0])
        self.shape, self.reference, self.dtype = (m, m), feature_sum, np.dtype(np.float64)
        self._normal_times, self._mean = normal_times, feature_sum / weight
        self._ridge, self._edge = ridge, tuning.factor_edge
        # `L` is stored in the lower triangle of the matrix and `A` in the upper triangle.
        matrix = self._matrix = xa.empty((m, m), points.data if xa.is_sparse(points) else points)
        self._fill(kernel, points)
        self.jitter, largest = rounding_of(matrix, eps), TUNING.largest_relative_jitter * rounding_of(matrix, 1.0) / m**0.5
        while True:
            try:
                _factor_lower_(xa.add_diagonal_(matrix, self.jitter), self._edge)
                break
            except xa.NotPositiveDefiniteError:
                self.jitter *= 10
                self._fill(kernel, points)  # the factorisation overwrote the matrix
                if self.jitter > largest:
                    raise np.linalg.LinAlgError(
                        f"the kernel matrix of the landmarks stays indefinite with a jitter of {self.jitter:.1e}: the "
                        "kernel is not positive semi-definite"
                    ) from None
        self._diagonals = [self._diagonal() + 0, _gram_of_lower_(matrix, weight / m, self._edge) + ridge]
        _factor_lower_(self._lower(1), self._edge)
        self._diagonals[1] = self._diagonal() + 0

    def _fill(self, kernel: Kernel, points: Array) -> None:
        for rows in slices(int(points.shape[0]), 4 * self._edge):
            evaluate(kernel, points[rows], points, out=self._matrix[rows])

    def _diagonal(self) -> Array:
        return xa.namespace(self._matrix).linalg.diagonal(self._matrix)

    def _lower(self, which: int) -> Array:
        """Return the stored matrix with `L` (which=0), or its transpose with `A^T` (which=1), in the lower triangle."""
        xa.set_diagonal_(self._matrix, self._diagonals[which])
        return self._matrix.T if which else self._matrix

    def solve(self, which: int, B: Array, *, transposed: bool = False) -> Array:
        """Return `L^-1 B` for `which=0` or `A^-T B` for `which=1`; if `transposed`, return `L^-T B` or `A^-1 B`."""
        return _solve_lower(self._lower(which), B, self._edge, transposed=transposed)

    def __matmul__(self, V: Array) -> Array:
        U = self.solve(1, V, transposed=True)
        a = self.solve(0, U, transposed=True)
        total = self._normal_times(a, self._mean.T @ a)  # the shift is the weighted mean of K_nm a
        return self.solve(1, self.solve(0, total) + self._ridge * U)

    def right_hand_side(self, crossed: Array) -> Array:
        """Return the right-hand side `A^-T L^-1 crossed` of the normal equations for `crossed = K_mn W_c z`."""
        return self.solve(1, self.solve(0, crossed))

    def coefficients(self, beta: Array) -> Array:
        """Return the coefficients `a = L^-T A^-1 beta` of the landmarks in the model."""
        return self.solve(0, self.solve(1, beta, transposed=True), transposed=True)

    def solution_of(self, a: Array) -> Array:
        """Return the solution `beta` for which `a = L^-T A^-1 beta` are the coefficients of the landmarks."""
        U = _times_transposed_lower(self._lower(0), a, self._edge)
        return _times_transposed_lower(self._lower(1), U, self._edge)

    def bias(self, a: Array, target_mean: Array) -> Array:
        """Return the intercepts for the coefficients `a` and the weighted mean of the targets."""
        return target_mean - self._mean.T @ a


def _factor_lower_(A: Array, edge: int) -> None:
    """Overwrite the lower triangle of `A` with its Cholesky factor; the strict upper triangle is unchanged.

    If this raises `NotPositiveDefiniteError`, a part of `A` has already been overwritten.
    """
    n, xp = int(A.shape[0]), xa.namespace(A)
    for k in slices(n, edge):
        left = A[k, : k.start]
        corner = A[k, k] - left @ left.T
        factor = xa.lower_triangle(xa.cholesky_(corner))
        A[k, k] = factor + xp.triu(A[k, k], k=1)
        for rows in slices(n - k.stop, 8 * edge):
            below = slice(k.stop + rows.start, k.stop + rows.stop)
            A[below, k] = xa.solve_triangular(factor, (A[below, k] - A[below, : k.start] @ left.T).T).T


def _gram_of_lower_(A: Array, scale: float, edge: int) -> Array:
    """Return the diagonal of `scale L^T L`, and write its strict upper triangle into `A`, whose lower triangle is `L`."""
    n, xp = int(A.shape[0]), xa.namespace(A)
    diagonal = xa.zeros((n,), A)
    for k in slices(n, edge):
        below = A[k.start :, k] + 0
        below[: k.stop - k.start] = xp.tril(below[: k.stop - k.start])
        A[: k.start, k] = scale * (A[k.start :, : k.start].T @ below)
        corner = scale * (below.T @ below)
        diagonal[k] = xp.linalg.diagonal(corner)
        A[k, k] = xp.tril(A[k, k]) + xp.triu(corner, k=1)
    return diagonal


def _times_transposed_lower(L: Array, B: Array, edge: int) -> Array:
    """Return `L^T B`; only the lower triangle of `L` is read."""
    X, xp = B + 0, xa.namespace(B)
    for k in slices(int(L.shape[0]), edge):
        X[k] = xp.tril(L[k, k]).T @ B[k] + L[k.stop :, k].T @ B[k.stop :]
    return X


def _solve_lower(L: Array, B: Array, edge: int, *, transposed: bool = False) -> Array:
    """Return `L^-1 B`, or `L^-T B` if `transposed`; only the lower triangle of `L` is read."""
    if not xa.is_torch(L):
        return xa.solve_triangular(L, B, transposed=transposed)
    # A device solves by blocks, because its triangular solves with few columns are far slower than matrix products.
    X = B + 0
    parts = slices(int(L.shape[0]), edge)
    for k in reversed(parts) if transposed else parts:
        if transposed:
            X[k] = xa.solve_triangular(L[k, k], X[k] - L[k.stop :, k].T @ X[k.stop :], transposed=True)
        else:
            X[k] = xa.solve_triangular(L[k, k], X[k] - L[k, : k.start] @ X[: k.start])
    return X
