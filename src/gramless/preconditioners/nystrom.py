"""The Nyström preconditioner: a low-rank copy of the kernel matrix that is cheap to invert.

With `m` landmarks `s` and `D = diag(ridge + damping)`, the matrix `K_ns K_ss^-1 K_sn + D` has the inverse

    P^-1 = D^-1 - D^-1 K_ns (K_ss + K_sn D^-1 K_ns)^-1 K_sn D^-1

which needs one `m x m` factorisation in float64: O(n m^2) once, O(n m) for each column it is applied to. The damping belongs
at the level of the spectrum that the landmarks leave out (estimated on a sample of the residual matrix), not at the ridge:
with the ridge there, the left-out part of the spectrum is amplified instead of bounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import one_blas_thread, slices
from gramless.kernels.base import Kernel
from gramless.operators.blocks import evaluate
from gramless.operators.fused import FusedProduct
from gramless.operators.jitter import jittered_cholesky
from gramless.operators.tile_product import compiles, product, transposed_product

_DAMPING_SAMPLE = 512
_ROWS_AT_A_TIME = 4096
_ROUNDINGS = 8.0


class NystromPreconditioner:
    """`V -> P^-1 V` for `P` close to `K(X, X) + diag(ridge)`.

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
    ridge : array of shape (n,)
    landmarks : ndarray of int
        Which rows of `X` span the approximation.
    damping : float or "auto", default="auto"
    store : bool, default=True
        Hold `K(X, landmarks)` (`n m` numbers), or compute it again at each use.
    fused : FusedProduct, optional
        Of `X`: what is not held is then computed from its rounded points, by the kernel that multiplies with the matrix.
    rng : RandomState
    """

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        ridge: Array,
        landmarks: np.ndarray,
        *,
        damping: float | str = "auto",
        store: bool = True,
        fused: FusedProduct | None = None,
        rng: np.random.RandomState,
    ):
        self.X, self.kernel, self.landmarks = X, kernel, landmarks
        reference = X.data if xa.is_sparse(X) else X
        self._parts = slices(X.shape[0], _ROWS_AT_A_TIME)
        self._fused = None if store or fused is None else (fused, fused.of(landmarks))
        self._points = self._rows(landmarks)
        self._stored = self._cross(slice(0, X.shape[0])) if store else None

        double = xa.astype(self._points, np.float64) if kernel.separable else None
        K_ss = evaluate(kernel, double, double) if kernel.separable else self._looked_up(landmarks, landmarks)
        self.jitter = 0.0
        self.damping = float(damping) if damping != "auto" else self._left_out(K_ss, reference, rng)
        self._inverse_diagonal = 1.0 / (ridge + self.damping)
        self._factor = self._factorise(K_ss)

    def _rows(self, rows: Any) -> Array:
        """Points as the matrix has them: rounded, where its products are fused."""
        if self._fused is None:
            return xa.take_rows(self.X, rows)
        some = self._fused[0].operand.take(rows)
        return some.points(slice(0, some.n))

    def _cross(self, rows: Any) -> Array:
        if self._fused is not None:
            everything, landmarks = self._fused
            return landmarks.block(everything.operand.take(rows))
        if not self.kernel.separable:
            return self.kernel.block(self.X, rows, self.landmarks)
        return evaluate(self.kernel, xa.take_rows(self.X, rows), self._points)

    def _looked_up(self, rows: np.ndarray, columns: np.ndarray) -> Array:
        """A block of a kernel matrix that is given, in float64: only the block is converted, not the matrix."""
        block = xa.astype(xa.submatrix(self.X, rows, columns), np.float64)
        return self.kernel.block(block, slice(None), slice(None))

    def _left_out(self, K_ss: Array, reference: Array, rng: np.random.RandomState) -> float:
        """The mean eigenvalue of what the landmarks do not explain: its trace, from a sample of points, over its rank."""
        n = self.X.shape[0]
        sample = rng.permutation(n)[: min(n, _DAMPING_SAMPLE)]
        if not self.kernel.separable:
            C = self._looked_up(sample, self.landmarks)
            diagonal = xa.astype(xa.take_rows(self.kernel.diag(self.X), sample), np.float64)
        else:
            some = xa.astype(self._rows(sample), np.float64)
            C = self.kernel(some, xa.astype(self._points, np.float64))
            diagonal = self.kernel.diag(some)
        L, self.jitter = jittered_cholesky(K_ss)
        half = xa.solve_triangular(L, C.T)
        unexplained = float(xa.namespace(half).sum(diagonal)) - xa.norm(half) ** 2
        mean = unexplained / len(sample) * n / max(1, n - len(self.landmarks))
        # A vector stored in the data's precision carries its rounding into the largest eigenvalue's direction, which the
        # matrix then amplifies: damping below that has no effect but noise.
        largest = float(xa.namespace(K_ss).sum(K_ss)) / len(self.landmarks) ** 2 * n
        return max(mean, _ROUNDINGS * float(np.finfo(xa.numpy_dtype(reference)).eps) * max(largest, 1.0))

    def _factorise(self, K_ss: Array) -> Array:
        """The factor of `K_ss + K_sn D^-1 K_ns`; the sum takes the place of `K_ss`."""
        S = K_ss
        root = xa.astype(xa.namespace(self._inverse_diagonal).sqrt(self._inverse_diagonal), np.float64)
        for rows in self._parts:
            # The product has the square of K's condition: rounded to float32 it would drown K_ss from a million rows on.
            S = xa.add_gram_(S, xa.astype(self._cross_of(rows), np.float64) * root[rows][:, None])
        L, self.jitter = jittered_cholesky(S)
        return L

    def __matmul__(self, V: Array) -> Array:
        if self._fused is not None:
            return self._fused_product(*self._fused, V)
        # In float64: the two terms cancel to one part in (lambda + damping) / damping along the leading eigenvectors.
        scaled = xa.astype(self._inverse_diagonal[:, None] * V, np.float64)
        projected = xa.zeros((len(self.landmarks), V.shape[1]), self._factor)
        # The compiled products take all rows at once; others copy a part at a time to float64.
        whole = self._stored is not None and compiles(self._stored, scaled)
        parts = [slice(0, self.X.shape[0])] if whole else self._parts
        for rows in parts:
            projected += transposed_product(self._cross_of(rows), scaled[rows])
        with one_blas_thread():
            inner = xa.cholesky_solve(self._factor, projected)
        for rows in parts:
            explained = product(self._cross_of(rows), inner)
            scaled[rows] -= xa.astype(self._inverse_diagonal[rows], np.float64)[:, None] * explained
        return xa.astype(scaled, xa.numpy_dtype(V))

    def _fused_product(self, everything: FusedProduct, landmarks: FusedProduct, V: Array) -> Array:
        """`P^-1 V` without `K_ns`.

        A rounding of one of the n entries of a vector spreads over all eigenvectors and is harmless. One of the m entries of
        `inner` is multiplied with the leading eigenvalues, undamped: `inner` stays in float64.
        """
        D = self._inverse_diagonal[:, None]
        projected = xa.astype(everything(landmarks.operand, D * V), np.float64)
        inner = xa.cholesky_solve(self._factor, projected)
        return D * (V - landmarks(everything.operand, inner))

    def _cross_of(self, rows: slice) -> Array:
        return self._cross(rows) if self._stored is None else self._stored[rows]
