"""Least squares with leave-one-out scores, from one factorisation of a dense kernel matrix.

    (K + diag(ridge)) a + b = z,    sum a = 0,         f_-i(x_i) = z_i - a_i / ((A^-1)_ii - u_i^2 / sum u),   u = A^-1 1

(see `gramless.inference.leave_one_out`). The diagonal of `A^-1` is the squared column norms of `L^-1`: `2 n^3 / 3`
operations and one `n x n` matrix in all. Float32 is used for large matrices whose ridge stands above its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, one_blas_thread, slices
from gramless.inference.leave_one_out import DenseFit, solve_dense
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator

SINGLE_FROM = 600
"""Rows from which float32 is considered."""

SHARED_FROM = 3000
"""Rows from which BLAS shares a factorisation among its threads: below, they wait for each other longer than they work."""

# Rows of a strip of a small kernel matrix: what is computed on the way stays in the processor's caches, and strips of up to
# a thousand rows do not ask for compiled code, which takes most of a second to load and saves less than that here.
_STRIP = 256
# The ridge must be this many roundings of the largest eigenvalue.
_ROUNDINGS = 64.0
_SAMPLE = 256


@dataclass
class Solution:
    """Coefficients, bias and leave-one-out scores, and the points in the precision that was enough for them."""

    points: np.ndarray
    coef: np.ndarray
    bias: np.ndarray
    scores: np.ndarray


Kept: TypeAlias = dict[type, np.ndarray]
"""The kernel matrix of one kernel and some points, in each precision in which it was needed."""


class Spare:
    """Memory for matrices that come and go: the system would hand out and clear its pages anew for each of them."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    @contextmanager
    def copy(self, K: np.ndarray) -> Iterator[np.ndarray]:
        """A copy of a matrix, in row-major order, for as long as the context lasts; safe in threads."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(0, np.uint8)
        if memory.nbytes < K.nbytes:
            memory = np.empty(K.nbytes, np.uint8)
        A = memory[: K.nbytes].view(K.dtype).reshape(K.shape)
        np.copyto(A, K)
        try:
            yield A
        finally:
            self._free.append(memory)


def solve_exact(
    X: np.ndarray,
    kernel: Kernel,
    Z: np.ndarray,
    ridge: np.ndarray,
    *,
    single_from: int = SINGLE_FROM,
    kept: Kept | None = None,
    spare: Spare | None = None,
) -> Solution | None:
    """Solve for the columns of `Z`; None where the matrix cannot be factored even in float64.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64
    kernel : Kernel
        Resolved.
    Z : ndarray of shape (n, k)
    ridge : ndarray of shape (n,)
        `1 / (C w_i)`.
    single_from : int
        From how many rows on float32 is tried first, where its rounding is small beside the ridge.
    kept : dict or None
        Small kernel matrices of this kernel and these points, from calls with other ridges before; gets those of this call.
    spare : Spare or None
        Memory for a copy of one of those.
    """
    n = len(X)
    for dtype in [np.float32, np.float64] if n >= single_from and _single_will_do(X, kernel, ridge) else [np.float64]:
        points = X.astype(dtype, copy=False)
        with one_blas_thread() if n < SHARED_FROM else nullcontext():
            if kept is None or n >= SHARED_FROM:
                found = _solve_with_ridge(upper_kernel_matrix(points, kernel), ridge, Z)
            else:
                if dtype not in kept:
                    kept[dtype] = upper_kernel_matrix(points, kernel)
                with (spare or Spare()).copy(kept[dtype]) as A:
                    found = _solve_with_ridge(A, ridge, Z)
        if found is not None:
            return Solution(points, *found)
    return None


def _solve_with_ridge(A: np.ndarray, ridge: np.ndarray, Z: np.ndarray) -> DenseFit | None:
    """`solve_dense` of `A + diag(ridge)`, over `A`."""
    A.flat[:: len(A) + 1] += ridge.astype(A.dtype)
    return solve_dense(A, Z)


def upper_kernel_matrix(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """The kernel matrix of points on and above its diagonal; what is below means nothing.

    Small ones in strips, which leave nearly half of it out; larger ones in the tiles of an operator.
    """
    n = len(points)
    if n >= CPU_TILE:
        return xa.cast_numpy(KernelOperator(points, kernel, np.zeros(n, points.dtype)).dense())
    K = np.zeros((n, n), points.dtype)
    for rows in slices(n, _STRIP):
        kernel(points[rows], points[rows.start :], out=K[rows, rows.start :])
    return K


def _single_will_do(X: np.ndarray, kernel: Kernel, ridge: np.ndarray) -> bool:
    some = X[:: max(1, len(X) // _SAMPLE)]
    largest = float(np.abs(kernel(some, some)).mean()) * len(X)
    return float(ridge.min()) > _ROUNDINGS * float(np.finfo(np.float32).eps) * largest
