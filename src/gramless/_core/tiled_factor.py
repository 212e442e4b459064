"""Cholesky factorisation and Gram matrices computed in tiles, by threads with one BLAS thread each.

    A_ik -= sum_(j < k) L_ij L_kj^T,   L_kk = chol(A_kk),   L_ik = A_ik L_kk^-T     for i > k      O(n^3 / 3)
    S_ij += B_i^T B_j                                                            for i >= j     O(n m^2 / 2)

Nearly all operations are large matrix products. In LAPACK's factorisation, the threads of BLAS wait for each other in busy
loops and are many times slower on cores that other processes use too; the threads of this module sleep while they wait.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gramless._core.threads import lower_tiles, parallel_for, slices
from gramless._core.tuning import TUNING


def factor_lower_(A: np.ndarray, workers: int) -> int:
    """Overwrite the lower triangle of a row-major `A` by its Cholesky factor; call it within `one_blas_thread`.

    Returns zero, or the number of the first pivot that is not positive. The strict upper triangle is unchanged.
    """
    (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (A,))
    (trsm,) = scipy.linalg.get_blas_funcs(("trsm",), (A,))
    n = len(A)
    for k in slices(n, TUNING.factor_edge):
        corner, before = A[k, k], slice(0, k.start)
        left = A[k, before]
        factor, info = potrf(np.asfortranarray((corner - left @ left.T).T), lower=0, overwrite_a=1, clean=0)
        if info != 0:
            return int(k.start + info)
        lower = np.tril(factor.T)
        corner[...] = lower + np.triu(corner, 1)
        triangle = np.asfortranarray(lower)

        def finish(
            i: slice, k: slice = k, before: slice = before, left: np.ndarray = left, triangle: np.ndarray = triangle
        ) -> None:
            A[i, k] = trsm(1.0, triangle, (A[i, k] - A[i, before] @ left.T).T, lower=1).T

        # `finish` subtracts the terms of all previous columns in one product, so that each entry is written once.
        below = n - k.stop
        if below:
            rows = [slice(k.stop + i.start, k.stop + i.stop) for i in slices(below, TUNING.factor_edge)]
            parallel_for(rows, finish, workers, blas=False)
    return 0


def add_lower_gram_(S: np.ndarray, B: np.ndarray, workers: int) -> None:
    """Add `B^T B` to the lower triangle of `S`; the upper triangle becomes invalid; call it within `one_blas_thread`."""

    def add(tile: tuple[slice, slice]) -> None:
        rows, columns = tile
        S[rows, columns] += B[:, rows].T @ B[:, columns]

    parallel_for(lower_tiles(slices(len(S), TUNING.factor_edge)), add, workers, blas=False)
