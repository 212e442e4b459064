"""The exact solution by Cholesky factorisation, with refinement.

    A = L L^T,   W = L^-T L^-1 Z,   then   W += A^-1 (Z - A W)   while that helps

The factor overwrites one triangle of `A`; the other keeps `A` for the residual, so the whole costs `n^2` numbers and
`n^3 / 3` operations. A float32 matrix is factored in float32, and its solution refined with residuals summed in float64: two
or three products with `A` give the digits that a factorisation in float64 has, for half of its time. In float32 the
factorisation breaks down, or returns garbage, once the smallest eigenvalue is below `eps * lambda_max`; the residual shows
both, and the solve is then done again in float64.
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
from gramless.linalg.solvers.base import Solver, Status, Step

# A factorisation of so few rows takes some milliseconds on one core; BLAS's threads, which meet after every panel, take
# longer where other processes want the cores too.
_FOR_ONE_THREAD = 1000
_FEW_COLUMNS = 16
_REFINEMENTS = 5
_SAMPLE = 512
# A factorisation whose correction does not shrink the residual at least this much has no correct digits.
_LEAST_PROGRESS = 0.5
# What float64 leaves after refinement: a solution with fewer digits than this is returned with a warning only.
_ACCEPTABLE = 1e-3


class Cholesky(Solver):
    """Direct solution of a symmetric positive definite system.

    Parameters
    ----------
    tol : float, default=1e-6
        Relative residual to reach by refinement; factorisation in float32 that cannot is repeated in float64.

    See Also
    --------
    CG : For matrices that are too large to be held or factored.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import Cholesky, solve
    >>> result = solve(DenseOperator(np.diag([1.0, 4.0])), np.ones((2, 1)), Cholesky())
    >>> result.W.ravel()
    array([1.  , 0.25])
    """

    requires = ("spd", "dense")
    max_iter = 1

    def __init__(self, tol: float = 1e-6):
        self.tol = tol

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        dtype = xa.numpy_dtype(Z)
        precisions = [np.float32, np.float64] if dtype == np.float32 and not _hopeless(op, rng) else [np.float64]
        for precision in precisions:
            last = precision is precisions[-1]
            try:
                with one_blas_thread() if op.shape[0] <= _FOR_ONE_THREAD else nullcontext():
                    W, residual = self._factor_and_refine(op, Z, precision)
            except xa.NotPositiveDefiniteError as error:
                if last:
                    raise np.linalg.LinAlgError(
                        f"the system is not positive definite even in float64 ({error}): the kernel is not positive "
                        "semi-definite, or C is too large; lower C or use solver='cg'"
                    ) from error
                continue
            if residual <= self.tol:
                break
        info = {"precision": np.dtype(precision).name}
        good = residual <= max(self.tol, _ACCEPTABLE)
        status = Status.CONVERGED if good else Status.SINGULAR
        yield Step(xa.astype(W, dtype), residual, status=status, info=info)

    def _factor_and_refine(self, op: Operator, Z: Array, precision: Any) -> tuple[Array, float]:
        A = op.dense(precision)
        diagonal = xa.namespace(A).linalg.diagonal(A) + 0
        keep = None if not xa.is_torch(A) else A
        L = xa.cholesky_(A)
        # What is refined has the digits of float64, whatever its corrections have.
        B = xa.astype(Z, precision if keep is not None else np.float64)
        W = _corrected(L, B)
        z_norm = xa.norm(B) or 1.0
        residual = np.inf
        for _ in range(_REFINEMENTS + 1):
            if keep is None:
                # Few columns are read from memory and multiplied by one core as fast as by several.
                with one_blas_thread() if W.shape[1] <= _FEW_COLUMNS else nullcontext():
                    R = B - product_from_upper(xa.to_numpy(A), xa.to_numpy(diagonal), xa.cast_numpy(W))
            else:
                R = B - keep @ W
            previous, residual = residual, xa.norm(R) / z_norm
            if not np.isfinite(residual):
                raise xa.NotPositiveDefiniteError("the factor is not finite")
            if residual <= self.tol or residual > _LEAST_PROGRESS * previous:
                break
            W = W + _corrected(L, R)
        return W, residual


def _corrected(L: Array, R: Array) -> Array:
    """`(L L^T)^-1 R`, computed in the precision of the factor."""
    with one_blas_thread() if R.shape[1] <= _FEW_COLUMNS else nullcontext():
        return xa.astype(xa.cholesky_solve(L, xa.astype(R, xa.numpy_dtype(L))), xa.numpy_dtype(R))


def _hopeless(op: Operator, rng: np.random.RandomState) -> bool:
    """Whether float32 is sure to break down: the ridge is below the rounding of the largest eigenvalue.

    The mean entry of a sampled block, times n, bounds the largest eigenvalue from below.
    """
    if not {"diagonal_block", "ridge"} <= op.capabilities:
        return False
    sample = rng.permutation(op.shape[0])[:_SAMPLE]
    block = op.diagonal_block(sample)
    largest = float(block.sum()) / len(sample) ** 2 * op.shape[0]
    return float(op.ridge.min()) < float(np.finfo(np.float32).eps) * largest
