"""Exact solution by Cholesky factorisation with iterative refinement.

    A = L L^T,   W = L^-T L^-1 Z,   then   W += A^-1 (Z - A W)   while the residual shrinks

The factor overwrites one triangle of `A`; the other still has the entries of `A` for the residual. A solve takes `n^2`
numbers and `n^3 / 3` operations. A float32 matrix is factored in float32, and the solution is refined with float64
residuals: two or three products give the accuracy of a float64 factorisation in half of its time. If the smallest eigenvalue
is below `eps * lambda_max`, factoring in float32 fails or leaves a large residual, and the solve is repeated in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread
from gramless.linalg.operators.base import Operator
from gramless.linalg.operators.tile_product import product_from_upper
from gramless.linalg.solvers.base import NON_NEGATIVE, Solver, State, Status, Step
from gramless.linalg.tuning import TUNING


class Cholesky(Solver):
    """Direct solution of a symmetric positive definite system.

    Parameters
    ----------
    tol : float, default=1e-6
        Tolerance at which the solver stops. It is the relative residual that refinement has to reach; a float32
        factorisation that does not reach it is repeated in float64.
    """

    _parameter_constraints = {"tol": [NON_NEGATIVE]}
    requires = ("spd", "dense")
    max_iter = 1

    def __init__(self, tol: float = 1e-6):
        self.tol = tol

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        dtype = xa.numpy_dtype(Z)
        precisions = [np.float32, np.float64] if dtype == np.float32 and not _float32_fails(op, rng) else [np.float64]
        for precision in precisions:
            try:
                with one_blas_thread() if op.shape[0] <= TUNING.one_thread_rows else nullcontext():
                    W, residual = self._factor_and_refine(op, Z, precision)
            except xa.NotPositiveDefiniteError as error:
                if precision is precisions[-1]:
                    raise np.linalg.LinAlgError(
                        f"the system is not positive definite even in float64 ({error}): the kernel is not positive "
                        "semi-definite, or C is too large; lower C or use solver='cg'"
                    ) from error
                continue
            if residual <= self.tol:
                break
        info = {"precision": np.dtype(precision).name}
        accurate = residual <= max(self.tol, TUNING.acceptable_residual)
        status = Status.CONVERGED if accurate else Status.SINGULAR
        yield Step(xa.astype(W, dtype), residual, status=status, info=info)

    def _factor_and_refine(self, op: Operator, Z: Array, precision: Any) -> tuple[Array, float]:
        A = op.dense(precision)
        diagonal = xa.namespace(A).linalg.diagonal(A) + 0
        original = A if xa.is_torch(A) else None  # torch factors out of place; NumPy keeps A in the upper triangle
        L = xa.cholesky_(A)
        # On the CPU the solution is float64, whatever the precision of the factor.
        B = xa.astype(Z, precision if original is not None else np.float64)
        W = _corrected(L, B)
        z_norm = xa.norm(B) or 1.0
        residual = np.inf
        for _ in range(TUNING.refinements + 1):
            if original is None:
                with one_blas_thread() if W.shape[1] <= TUNING.one_thread_columns else nullcontext():
                    R = B - product_from_upper(xa.to_numpy(A), xa.to_numpy(diagonal), W)
            else:
                R = B - original @ W
            previous, residual = residual, xa.norm(R) / z_norm
            if not np.isfinite(residual):
                raise xa.NotPositiveDefiniteError("the factor is not finite")
            if residual <= self.tol or residual > TUNING.refinement_progress * previous:
                break
            W = W + _corrected(L, R)
        return W, residual


def _corrected(L: Array, R: Array) -> Array:
    """Return `(L L^T)^-1 R`, computed in the precision of the factor."""
    with one_blas_thread() if R.shape[1] <= TUNING.one_thread_columns else nullcontext():
        return xa.astype(xa.cholesky_solve(L, xa.astype(R, xa.numpy_dtype(L))), xa.numpy_dtype(R))


def _float32_fails(op: Operator, rng: np.random.RandomState) -> bool:
    """Return whether the ridge is below the float32 rounding of the largest eigenvalue.

    The mean entry of a sampled block, times n, is a lower bound of the largest eigenvalue.
    """
    if not {"diagonal_block", "ridge"} <= op.capabilities:
        return False
    sample = rng.permutation(op.shape[0])[: TUNING.eigenvalue_sample]
    block = op.diagonal_block(sample)
    largest = float(block.sum()) / len(sample) ** 2 * op.shape[0]
    return float(op.ridge.min()) < float(np.finfo(np.float32).eps) * largest
