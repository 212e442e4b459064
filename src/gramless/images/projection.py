"""The leading directions of a set of rows, by randomised subspace iteration.

    Q <- orthonormal basis of X Omega,    repeated:  Q <- basis of X (X^T Q),    then the singular vectors of Q^T X

Time O(n d k) for each pass, as matrix products on any array library; memory O((n + d) k) beside the rows. Reference: Halko,
Martinsson and Tropp, "Finding structure with randomness", 2011.
"""

from __future__ import annotations

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array

SPARE = 16
"""Directions beyond those asked for that the subspace has, so that the last ones asked for are found too."""

_PASSES = 2


def leading_directions(X: Array, k: int, rng: np.random.Generator) -> tuple[Array, np.ndarray]:
    """The k right singular vectors of X with the largest singular values, as columns, and these values."""
    n, d = X.shape
    width = min(k + SPARE, n, d)
    k = min(k, width)
    start = rng.standard_normal((d, width), dtype=np.float32)
    Q = _basis(X @ xa.like(start, X))
    for _ in range(_PASSES):
        Q = _basis(X @ _basis(X.T @ Q))
    B = X.T @ Q
    values, vectors = xa.eigh(xa.astype(B.T @ B, np.float64))
    order = np.argsort(-xa.to_numpy(values), kind="stable")[:k]
    squares = np.clip(xa.to_numpy(values)[order], 0, None)
    directions = B @ xa.like(xa.to_numpy(vectors)[:, order], B)
    # Orthogonal but for rounding; the factorisation also finds a direction for a value of zero.
    return _basis(directions), np.sqrt(squares)


def _basis(A: Array) -> Array:
    return xa.namespace(A).linalg.qr(A)[0]
