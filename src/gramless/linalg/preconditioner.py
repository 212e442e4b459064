"""The Nyström preconditioner: a low-rank approximation of the kernel matrix that is cheap to invert.

With `m` landmarks `s` and `D = diag(ridge + damping)`, the matrix `K_ns K_ss^-1 K_sn + D` has the inverse

    P^-1 = D^-1 - D^-1 K_ns (K_ss + K_sn D^-1 K_ns)^-1 K_sn D^-1

which needs one `m x m` factorisation in float64: O(n m^2) once, O(n m) for each column it is applied to. The damping is the
mean eigenvalue of the part of the matrix that the landmarks leave out, estimated on a sample of rows. With the ridge alone
that part of the spectrum would be amplified instead of bounded.

Reference: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread
from gramless.linalg.operators.jitter import jittered_cholesky
from gramless.linalg.operators.landmark_columns import LocalColumns
from gramless.linalg.tuning import TUNING


class NystromPreconditioner:
    """The map `V -> P^-1 V` for `P` close to `K(X, X) + diag(ridge)`; `rng` draws the sample of `damping="auto"`."""

    def __init__(self, columns: LocalColumns, ridge: Array, *, damping: float | str = "auto", rng: np.random.RandomState):
        self.columns, self.landmarks = columns, columns.landmarks
        K_ss = columns.square()
        self.damping = float(damping) if damping != "auto" else self._mean_residual_eigenvalue(K_ss, rng)
        self._inverse_diagonal = xa.astype(1.0 / (ridge + self.damping), columns.sums)
        # K_ss is overwritten by the sum.
        self._factor, self.jitter = jittered_cholesky(columns.add_gram_(K_ss, self._inverse_diagonal))

    def _mean_residual_eigenvalue(self, K_ss: Array, rng: np.random.RandomState) -> float:
        """Return the mean eigenvalue of the part that the landmarks leave out: its trace, from a sample, over its rank."""
        n, m = self.columns.shape
        sample = rng.permutation(n)[: min(n, TUNING.damping_sample)]
        C, diagonal = self.columns.sample(sample)
        half = xa.solve_triangular(jittered_cholesky(K_ss)[0], C.T)
        unexplained = float(xa.namespace(half).sum(diagonal)) - xa.norm(half) ** 2
        mean = unexplained / len(sample) * n / max(1, n - m)
        # The matrix amplifies the rounding of a vector in the direction of the largest eigenvalue: a smaller damping would
        # only add noise.
        largest = float(xa.namespace(K_ss).sum(K_ss)) / m**2 * n
        return max(mean, TUNING.damping_roundings * float(np.finfo(self.columns.dtype).eps) * max(largest, 1.0))

    def __matmul__(self, V: Array) -> Array:
        D = self._inverse_diagonal[:, None]
        # In float64, unless the products have accurate sums: along the leading eigenvectors the two terms cancel to one part
        # in (lambda + damping) / damping.
        wide = xa.astype(V, self.columns.sums)
        projected = self.columns.transposed_times(D * wide)
        with one_blas_thread():
            inner = xa.cholesky_solve(self._factor, projected)
        explained = self.columns.times(inner)
        return xa.astype(D * (wide - explained), xa.numpy_dtype(V))
