"""Leave-one-out predictions without refitting.

For the least-squares machine `M [a; b] = [z; 0]`, with `M` the bordered matrix, the prediction for row i of the model fitted
without row i is

    f_-i(x_i) = z_i - a_i / (M^-1)_ii,     (M^-1)_ii = (A^-1)_ii - u_i^2 / sum u,     u = A^-1 1

exactly, weights included (Cawley and Talbot 2004). The eigenvectors of `K` give that for every `C` at once: `A^-1` has them
too, with eigenvalues `1 / (lambda + 1/C)`. O(n^3) once and O(n^2) for each C. Where the kernel matrix does not fit, the
diagonal of `A^-1` is estimated from solves with random signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import blas, lapack
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate
from gramless._core.targets.columns import split_bias
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator
from gramless.linalg.operators.landmark_columns import LocalColumns
from gramless.linalg.planning.plan import Plan, make_plan, sizes
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers import CG, solve

EXACT_UP_TO = 12_000
# Of the diagonal, 24 random signs leave an error of about 7 %; of the two numbers of a sigmoid fitted to all rows, far less:
# probabilities on MNIST move by 0.001 in the mean against the exact diagonal.
_PROBES = 24
N_PROBES = _PROBES + 1
"""Columns of `diagonal_probes`."""


def leave_one_out_memory(n: int, d: int, k: int, dtype: Any, device: str) -> MemoryEstimate:
    """What the exact diagonal holds: one matrix in float64, three with torch, which works out of place; and the points."""
    copies = 3 if device != "cpu" else 1
    parts = {
        "inverse factor": copies * n * n * 8,
        "scores": 4 * n * (k + 1) * 8,
        "points in float64": double_points_bytes(n, d, dtype, device),
    }
    return MemoryEstimate(parts, device)


def double_points_bytes(n: int, d: int, dtype: Any, device: str) -> int:
    """What a kernel matrix in float64 makes of the points: a copy of float32 ones, and tiles of both sides, centred."""
    edge, workers = (CUDA_TILE, 1) if device.startswith("cuda") else (CPU_TILE, blas_threads())
    copy = n * d * 8 if np.dtype(dtype).itemsize < 8 else 0
    return copy + 2 * min(n, workers * edge) * d * 8


def leave_one_out_scores(
    op: KernelOperator, Z: np.ndarray, coef: np.ndarray, plan: Plan | None, *, random_state: Any = None
) -> np.ndarray:
    """Scores of each training row by the model fitted without it, from the coefficients of the model fitted with it.

    Parameters
    ----------
    op : KernelOperator
    Z, coef : ndarray of shape (n, k)
    plan : Plan or None
        None computes the diagonal of the inverse; a plan for the probes estimates it.
    """
    if plan is None:
        diagonal, u = exact_diagonal(op)
    else:
        rng = check_random_state(random_state)
        diagonal, u = estimated_diagonal(op, planned_preconditioner(op, plan, rng), rng)
    return _without_each(Z, coef, diagonal, u)


def _without_each(Z: np.ndarray, coef: np.ndarray, diagonal: np.ndarray, u: np.ndarray) -> np.ndarray:
    """`f_-i(x_i)` from the coefficients, the diagonal of `A^-1` and `u = A^-1 1`."""
    return Z - coef / (diagonal - u**2 / u.sum())[:, None]


def dense_scores(K: np.ndarray, Z: np.ndarray, C: float) -> np.ndarray | None:
    """Leave-one-out scores for one `C` from the inverse of `K + I/C`, O(n^3); None where that cannot be factored.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        In float64; overwritten.
    Z : ndarray of shape (n, k)
    C : float
    """
    n = len(K)
    K.flat[:: n + 1] += 1.0 / C
    # LAPACK reads by columns: the transpose is the same symmetric matrix, and no copy.
    factor, failed = lapack.dpotrf(K.T, lower=1, overwrite_a=1)
    if failed:
        return None
    inverse, failed = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        return None
    # Of the symmetric inverse the lower triangle is there, and enough.
    solution = blas.dsymm(1.0, inverse, np.column_stack([Z, np.ones(n)]), lower=1)
    coef, _ = split_bias(solution)
    return _without_each(Z, coef, inverse.diagonal(), solution[:, -1])


def probes_plan(n: int, d: int, dtype: Any, device: str, kernel: Kernel, budget: int) -> Plan:
    """How the estimate's right-hand sides are solved within the budget."""
    return make_plan(sizes(n, d, N_PROBES, dtype, device, kernel), "cg", budget)


def exact_diagonal(op: KernelOperator) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal of `A^-1` and `A^-1 1`, in float64."""
    op.drop_cache()
    inverse_factor = xa.invert_lower_(xa.cholesky_(op.dense(np.float64)))
    # A^-1 = L^-T L^-1: its diagonal is the squared column norms of L^-1.
    diagonal = xa.square_norms(inverse_factor.T)
    ones = xa.zeros((op.shape[0], 1), inverse_factor) + 1.0
    return xa.to_numpy(diagonal), xa.to_numpy(inverse_factor.T @ (inverse_factor @ ones))[:, 0]


def estimated_diagonal(
    op: KernelOperator, preconditioner: NystromPreconditioner | None, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Hutchinson's estimate of the diagonal of `A^-1`, and `A^-1 1`, from one solve."""
    probes = diagonal_probes(op.shape[0], rng)
    solver = CG(tol=1e-2, preconditioner=preconditioner)
    return diagonal_from(op, probes, solve(op, xa.like(probes, op.reference), solver, random_state=rng).W)


def diagonal_probes(n: int, rng: np.random.RandomState) -> np.ndarray:
    """The right-hand sides of the estimate: random signs, and ones."""
    return np.column_stack([rng.choice(np.array([-1.0, 1.0]), size=(n, _PROBES)), np.ones(n)])


def diagonal_from(op: KernelOperator, probes: np.ndarray, W: Array) -> tuple[np.ndarray, np.ndarray]:
    """`mean(s * A^-1 s)` over the random signs `s`, and `A^-1 1`, from the solutions for `diagonal_probes`."""
    solution = xa.to_numpy(W)
    samples = probes[:, :-1] * solution[:, :-1]
    # No diagonal entry of the inverse lies below the inverse of A's own entry; noise must not cross that bound.
    floor = 1.0 / xa.to_numpy(op.diag()).astype(np.float64)
    u = solution[:, -1].astype(np.float64)
    diagonal = np.maximum(np.mean(samples, axis=1), floor + u**2 / u.sum())
    # Everybody divides by these entries, and the mean of 1 / p is larger than one over the mean by var(p) / p^2.
    return diagonal + np.var(samples, axis=1, ddof=1) / _PROBES / diagonal, u


def planned_preconditioner(op: KernelOperator, plan: Plan, rng: np.random.RandomState) -> NystromPreconditioner | None:
    """The preconditioner that a plan for conjugate gradients speaks of."""
    if not plan.n_landmarks:
        return None
    landmarks = np.sort(rng.permutation(op.shape[0])[: plan.n_landmarks])
    columns = LocalColumns(op.X, op.kernel, landmarks, store=plan.store_landmarks, fused=op.fused)
    return NystromPreconditioner(columns, op.ridge, rng=rng)


def path_scores(
    K: Array, Z: np.ndarray, Cs: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leave-one-out scores and models for every `C` from one eigendecomposition (`K` is overwritten).

    Returns
    -------
    scores : ndarray of shape (n_C, n, k)
    coefs : ndarray of shape (n_C, n, k)
    biases : ndarray of shape (n_C, k)
    """
    n = K.shape[0]
    root = np.ones(n) if weights is None else np.sqrt(weights)
    scale = xa.like(root, K)
    K *= scale[:, None]
    K *= scale[None, :]
    values, vectors = xa.eigh(K)
    # Rounding puts the zero eigenvalues of a semi-definite kernel on both sides of zero.
    spectrum = np.maximum(xa.to_numpy(values), 0.0)
    Q = xa.to_numpy(vectors)
    rhs = np.column_stack([Z, np.ones(n)]) * root[:, None]
    projected = Q.T @ rhs
    inverses = 1.0 / (spectrum[None, :] + 1.0 / np.asarray(Cs)[:, None])
    diagonals = (Q * Q) @ inverses.T
    scores, coefs, biases = [], [], []
    for inverse, diagonal in zip(inverses, diagonals.T, strict=True):
        solution = (Q @ (inverse[:, None] * projected)) * root[:, None]
        coef, bias = split_bias(solution)
        scores.append(_without_each(Z, coef, diagonal * root**2, solution[:, -1]))
        coefs.append(coef)
        biases.append(bias)
    return np.array(scores), np.array(coefs), np.array(biases)
