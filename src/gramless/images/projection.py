"""Leading right singular vectors of a matrix, from the inner products of a sample S of its rows.

    G = S S^T = U diag(s^2) U^T,    V = S^T U / s

S has two random rows for each requested direction, or all rows of a small matrix. 1,000 directions from 2,000 images of
CIFAR-10 preserve 94.9 % of the squared norm of new rows. For m sampled rows of d values and k directions: time O(m^2 d + m^3
+ m d k), almost all of which is in matrix products; memory O(m d + m^2 + d k) in addition to the rows. Reference: Drineas,
Kannan and Mahoney, "Fast Monte Carlo algorithms for matrices II", 2006.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.images.tuning import TUNING, ImageTuning

# Number of random sign vectors; each vector detects columns that are not orthonormal with a probability of at least 1/2.
_PROBES = 8
# Bound on the rounding error of a sum of d terms, in units of sqrt(d) times the rounding error eps of the data type.
_ROUNDING = 4


def n_sample_rows(n: int, k: int, tuning: ImageTuning = TUNING) -> int:
    """Return how many of n rows `leading_directions` needs for k directions."""
    return min(n, max(tuning.min_direction_rows, tuning.rows_per_direction * k))


def leading_directions(X: Array, k: int) -> tuple[Array, np.ndarray]:
    """Return the k right singular vectors of X with the largest singular values, as columns, and the singular values."""
    n, d = X.shape
    k = min(k, n, d)
    wide = d > n
    gram = xa.astype(X @ X.T if wide else X.T @ X, np.float64)
    values, vectors = xa.eigh(gram)
    order = np.argsort(-xa.to_numpy(values), kind="stable")[:k]
    squares = np.clip(xa.to_numpy(values)[order], 0, None)
    vectors = vectors[:, xa.indices(order, vectors)]
    if not wide:
        return xa.like(vectors, X), np.sqrt(squares)
    return _orthonormal(X.T @ xa.like(vectors, X)), np.sqrt(squares)


def _orthonormal(A: Array) -> Array:
    """Orthonormalise columns that are orthogonal up to rounding, with the smallest changes to the first columns.

    The Gram matrix of unit columns is close to the identity, so its Cholesky factor is exact to rounding (Yamamoto,
    Nakatsukasa, Yanagisawa and Fukaya, "Roundoff error analysis of the CholeskyQR2 algorithm", 2015). Columns of zero
    singular values consist of rounding errors and may not be orthogonal; then a QR decomposition of the matrix is used.
    """
    norms = xa.sqrt_(xa.square_norms(A.T))
    if float(norms.min()) > 0:
        A = A / norms
        try:
            inverse = xa.invert_lower_(xa.cholesky_(xa.astype(A.T @ A, np.float64)))
        except xa.NotPositiveDefiniteError:
            return xa.namespace(A).linalg.qr(A)[0]
        Q = A @ xa.like(inverse.T, A)
        if _is_orthonormal(Q):
            return Q
    return xa.namespace(A).linalg.qr(A)[0]


def _is_orthonormal(A: Array) -> bool:
    """Return True if A^T A maps random sign vectors to themselves up to rounding."""
    k = A.shape[1]
    probe = xa.like(np.random.default_rng(0).choice([-1.0, 1.0], (k, _PROBES)), A)
    residual = A.T @ (A @ probe) - probe
    return xa.norm(residual) <= _ROUNDING * float(np.finfo(xa.numpy_dtype(A)).eps) * (A.shape[0] ** 0.5) * xa.norm(probe)
