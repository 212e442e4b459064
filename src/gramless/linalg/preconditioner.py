"""The Nyström preconditioner: a low-rank copy of the kernel matrix that is cheap to invert.

With `m` landmarks `s` and `D = diag(ridge + damping)`, the matrix `K_ns K_ss^-1 K_sn + D` has the inverse

    P^-1 = D^-1 - D^-1 K_ns (K_ss + K_sn D^-1 K_ns)^-1 K_sn D^-1

which needs one `m x m` factorisation in float64: O(n m^2) once, O(n m) for each column it is applied to. The damping belongs
at the level of the spectrum that the landmarks leave out (estimated on a sample of the residual matrix), not at the ridge:
with the ridge there, the left-out part of the spectrum is amplified instead of bounded.

Where `K_ns` is, and who multiplies with it, is the business of the columns that are handed in: this machine, or many.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread
from gramless.linalg.operators.jitter import jittered_cholesky
from gramless.linalg.operators.landmark_columns import LandmarkColumns

_DAMPING_SAMPLE = 512
_ROUNDINGS = 8.0


class NystromPreconditioner:
    """`V -> P^-1 V` for `P` close to `K(X, X) + diag(ridge)`.

    Parameters
    ----------
    columns : LandmarkColumns
        `K(X, landmarks)`, such as `gramless.linalg.operators.landmark_columns.LocalColumns`.
    ridge : array of shape (n,)
        What the matrix has on its diagonal beside the kernel.
    damping : float or "auto", default="auto"
        What stands in for the spectrum that the landmarks leave out; "auto" estimates its mean.
    rng : RandomState
        Draws the sample for that estimate.

    Attributes
    ----------
    columns : LandmarkColumns
        As given.
    landmarks : ndarray of int
        Which rows they are.
    damping : float
        As given, or as estimated.
    jitter : float
        What was added to the diagonal of the small matrix, against rounding.

    See Also
    --------
    gramless.linalg.solvers.CG : Uses one by default.

    References
    ----------
    Z. Frangella, J. A. Tropp and M. Udell, "Randomized Nyström preconditioning", 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators.landmark_columns import LocalColumns
    >>> from gramless.linalg.preconditioner import NystromPreconditioner
    >>> X = np.array([[1.0], [2.0], [3.0]])
    >>> columns = LocalColumns(X, Linear(), np.array([2]))
    >>> P = NystromPreconditioner(columns, np.ones(3), damping=1.0, rng=np.random.RandomState(0))
    >>> bool(np.allclose(P @ (X @ X.T + 2 * np.eye(3)), np.eye(3)))
    True
    """

    def __init__(self, columns: LandmarkColumns, ridge: Array, *, damping: float | str = "auto", rng: np.random.RandomState):
        self.columns, self.landmarks = columns, columns.landmarks
        K_ss = columns.square()
        self.damping = float(damping) if damping != "auto" else self._left_out(K_ss, rng)
        self._inverse_diagonal = xa.astype(1.0 / (ridge + self.damping), columns.sums)
        # The sum takes the place of K_ss.
        self._factor, self.jitter = jittered_cholesky(columns.add_gram_(K_ss, self._inverse_diagonal))

    def _left_out(self, K_ss: Array, rng: np.random.RandomState) -> float:
        """The mean eigenvalue of what the landmarks do not explain: its trace, from a sample of points, over its rank."""
        n, m = self.columns.shape
        sample = rng.permutation(n)[: min(n, _DAMPING_SAMPLE)]
        C, diagonal = self.columns.sample(sample)
        half = xa.solve_triangular(jittered_cholesky(K_ss)[0], C.T)
        unexplained = float(xa.namespace(half).sum(diagonal)) - xa.norm(half) ** 2
        mean = unexplained / len(sample) * n / max(1, n - m)
        # A vector stored in the data's precision carries its rounding into the largest eigenvalue's direction, which the
        # matrix then amplifies: damping below that has no effect but noise.
        largest = float(xa.namespace(K_ss).sum(K_ss)) / m**2 * n
        return max(mean, _ROUNDINGS * float(np.finfo(self.columns.dtype).eps) * max(largest, 1.0))

    def __matmul__(self, V: Array) -> Array:
        D = self._inverse_diagonal[:, None]
        # In float64, unless products sum better by themselves: the two terms cancel to one part in
        # (lambda + damping) / damping along the leading eigenvectors.
        wide = xa.astype(V, self.columns.sums)
        projected = self.columns.transposed_times(D * wide)
        with one_blas_thread():
            inner = xa.cholesky_solve(self._factor, projected)
        explained = self.columns.times(inner)
        return xa.astype(D * (wide - explained), xa.numpy_dtype(V))
