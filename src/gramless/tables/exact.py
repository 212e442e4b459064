"""Least squares with leave-one-out scores, from one factorisation of a dense kernel matrix.

    (K + diag(ridge)) a + b = z,    sum a = 0,         f_-i(x_i) = z_i - a_i / ((A^-1)_ii - u_i^2 / sum u),   u = A^-1 1

(see `gramless.inference.leave_one_out`). The diagonal of `A^-1` is the squared column norms of `L^-1`: `2 n^3 / 3`
operations and one `n x n` matrix in total. Float32 is used for large matrices whose ridge is well above its rounding error.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gramless._core.threads import CPU_TILE, one_blas_thread, slices
from gramless.inference.leave_one_out import solve_dense
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator

SINGLE_FROM = 600
"""Fewest rows for which float32 is considered."""

SHARED_FROM = 3000
"""Fewest rows of a factorisation that uses all BLAS threads; for fewer rows synchronisation dominates (measured)."""

# Rows per strip of a small kernel matrix: intermediate arrays stay in cache, and strips of up to 1,000 rows use no compiled
# code: loading compiled code takes almost a second and saves less time than that for these sizes.
_STRIP_ROWS = 256
# Smallest ridge for float32, in units of the float32 rounding error of the largest eigenvalue: rounding then changes
# predictions by less than 2 % of their error, and the error itself by less than 0.03 % (measured on four tables).
_ROUNDINGS = 4.0
# Number of sampled rows for the estimate of the largest eigenvalue.
_ESTIMATION_ROWS = 256


@dataclass
class ExactSolution:
    """Coefficients, bias, leave-one-out scores, and the training points in the precision of the factorisation."""

    points: np.ndarray
    coef: np.ndarray
    bias: np.ndarray
    scores: np.ndarray


CachedMatrices: TypeAlias = dict[type, np.ndarray]
"""Kernel matrix of one kernel and one set of points, by precision."""


def solve_exact(
    X: np.ndarray,
    kernel: Kernel,
    Z: np.ndarray,
    ridge: np.ndarray,
    *,
    single_from: int = SINGLE_FROM,
    cached: CachedMatrices | None = None,
) -> ExactSolution | None:
    """Solve for the columns of `Z` with ridge `1 / (C w_i)`; return None if the matrix cannot be factored even in float64.

    From `single_from` rows on, float32 is tried first if its rounding error is small compared with the ridge. `cached`
    contains kernel matrices of earlier calls with the same kernel and points; this call adds its matrix.
    """
    n = len(X)
    for dtype in [np.float32, np.float64] if n >= single_from and float32_suffices(X, kernel, ridge) else [np.float64]:
        points = X.astype(dtype, copy=False)
        with one_blas_thread() if n < SHARED_FROM else nullcontext():
            if cached is None or n >= SHARED_FROM:
                A = upper_kernel_matrix(points, kernel)
            else:
                if dtype not in cached:
                    cached[dtype] = upper_kernel_matrix(points, kernel)
                A = cached[dtype].copy()
            A.flat[:: n + 1] += ridge.astype(dtype)
            found = solve_dense(A, Z)
        if found is not None:
            return ExactSolution(points, *found)
    return None


def upper_kernel_matrix(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Return the kernel matrix of points, of which only the upper triangle and the diagonal are defined.

    Small matrices are computed in strips, which skip nearly half of the values; larger ones in the tiles of an operator.
    """
    n = len(points)
    if n >= CPU_TILE:
        return KernelOperator(points, kernel, np.zeros(n, points.dtype)).dense()
    K = np.zeros((n, n), points.dtype)
    for rows in slices(n, _STRIP_ROWS):
        kernel(points[rows], points[rows.start :], out=K[rows, rows.start :])
    return K


def float32_suffices(X: np.ndarray, kernel: Kernel, ridge: np.ndarray) -> bool:
    """Return True if the ridge is well above the float32 rounding error of the largest eigenvalue."""
    sample = X[:: max(1, len(X) // _ESTIMATION_ROWS)]
    largest = float(np.abs(kernel(sample, sample)).mean()) * len(X)
    return float(ridge.min()) > _ROUNDINGS * float(np.finfo(np.float32).eps) * largest
