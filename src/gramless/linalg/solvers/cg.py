"""Block conjugate gradients, preconditioned, for all right-hand sides at once.

The search directions `P` of all columns span one subspace, and each step minimises over the whole of it:

    Q = A P,  a = (P^T Q)^-1 P^T R,  W += P a,  R -= Q a,  P <- orth(M R - P (P^T Q)^-1 Q^T M R)

so k right-hand sides share what they learn and one product with `A` serves them all: O(n^2 k) for each iteration on a cached
matrix, O(n^2 d) on a streamed one. Orthonormal directions, and a pseudo-inverse of the small `P^T Q` in float64, keep the
recurrence alive when some columns have converged or depend on each other (O'Leary 1980; Dubrulle 2001).

The recurrence's residual drifts from the true one in float32: when it meets the tolerance the true one is computed, and if
that one does not meet it, the iteration starts again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, Status, Step

# After this many restarts from a true residual without halving it, the arithmetic has no more digits to give.
_STALLED_RESTARTS = 2
# The residual of conjugate gradients may rise on its way, by the root of the condition number; by this much over its best
# it is no longer that of W: rounding has broken the recurrence.
_LOST = 1e3
# A recurrence within this factor of the true residual is believed in what it says about predictions.
_NEAR = 1.5


class CG(Solver):
    """Preconditioned block conjugate gradients.

    Parameters
    ----------
    tol : float, default=1e-4
        Stop when the true relative residual is at most this.
    max_iter : int, default=200
        Limit on iterations, each of which is one product with the matrix.
    n_landmarks : int or "auto", default="auto"
        Landmarks of the Nyström preconditioner that a least-squares estimator builds for its kernel matrix; 0 is none,
        `"auto"` decides from the sizes and the memory. `solve` takes the operator as it is, and `preconditioner`.
    damping : float or "auto", default="auto"
        Of that preconditioner; see `gramless.linalg.preconditioner`.
    preconditioner : object with `@`, optional
        An approximate inverse, symmetric positive definite; given, it is used instead of landmarks.
    settled : callable(W, R) -> bool, optional
        Asked after each iteration with the solution and its residual `Z - A W`; a true answer ends the solve before `tol`
        is reached, once the true residual is not much larger than the recurrence's.

    See Also
    --------
    Cholesky : The direct solution, where the matrix can be held.

    References
    ----------
    O'Leary, "The block conjugate gradient algorithm and related methods", 1980.

    Dubrulle, "Retooling the method of block conjugate gradients", 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import CG, solve
    >>> A = np.diag(np.arange(1.0, 11.0))
    >>> solve(DenseOperator(A), np.ones((10, 2)), CG(tol=1e-8)).n_iter
    10
    """

    def __init__(
        self,
        *,
        tol: float = 1e-4,
        max_iter: int = 200,
        n_landmarks: int | str = "auto",
        damping: float | str = "auto",
        preconditioner: Any = None,
        settled: Callable[[Array, Array], bool] | None = None,
    ):
        self.tol = tol
        self.max_iter = max_iter
        self.n_landmarks = n_landmarks
        self.damping = damping
        self.preconditioner = preconditioner
        self.settled = settled

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        z_norm = xa.norm(Z) or 1.0
        if state:
            R, P, best_true, stalled = state["R"], state["P"], state["best_true"], state["stalled"]
            best, best_residual = state["best"], state["best_residual"]
        else:
            R = Z - op @ W if xa.norm(W) else Z + 0
            residual = xa.norm(R) / z_norm
            if residual <= self.tol:
                yield Step(W, residual, status=Status.CONVERGED)
                return
            P = _orthonormal(self._precondition(R))
            best_true, stalled = np.inf, 0
            best, best_residual = W, residual
        while True:
            Q = op @ P
            with one_blas_thread():
                inverse = _pseudo_inverse(P.T @ Q)
                step = inverse @ _double(P.T @ R)
                W = W + P @ xa.like(step, P)
                R = R - Q @ xa.like(step, P)
                residual = xa.norm(R) / z_norm
            restarted = False
            if residual < best_residual:
                best, best_residual = W, residual
            lost = not residual < _LOST * best_residual
            if lost:
                W = best
            settled = not lost and self.settled is not None and self.settled(W, R)
            if residual <= self.tol or lost or settled:
                believed = residual
                R = Z - op @ W
                residual = xa.norm(R) / z_norm
                if residual <= self.tol:
                    yield Step(W, residual, status=Status.CONVERGED)
                    return
                if settled and residual <= _NEAR * believed:
                    yield Step(W, residual, status=Status.SETTLED)
                    return
                # From here on the recurrence is measured against the truth, not against what it had believed before.
                restarted, best, best_residual = True, W, residual
                stalled = stalled + 1 if residual > 0.5 * best_true else 0
                best_true = min(best_true, residual)
                if stalled >= _STALLED_RESTARTS:
                    yield Step(W, residual, status=Status.STALLED)
                    return
            M_R = self._precondition(R)
            with one_blas_thread():
                new = M_R if restarted else M_R - P @ xa.like(inverse @ _double(Q.T @ M_R), P)
                # Nothing new where the directions span the whole space; what rounding has left over begins again.
                P = _orthonormal(new if xa.norm(new) else M_R)
            state = {"R": R, "P": P, "best_true": float(best_true), "stalled": stalled}
            state |= {"best": best, "best_residual": float(best_residual)}
            yield Step(W, residual, state=state)

    def _precondition(self, R: Array) -> Array:
        return R + 0 if self.preconditioner is None else self.preconditioner @ R


def _double(x: Array) -> np.ndarray:
    return xa.to_numpy(x).astype(np.float64)


def _orthonormal(M: Array) -> Array:
    """An orthonormal basis of the columns' span, without the directions that rounding made.

    Columns are scaled first, so that one near convergence keeps its direction; two passes through the small Gram matrix
    in float64 are as orthogonal as a QR factorisation and are matrix products only.
    """
    xp = xa.namespace(M)
    scale = xp.max(xp.abs(M), axis=0)
    basis = xa.astype(M / xp.where(scale > 0, scale, xp.ones_like(scale)), np.float64)
    # Of squared lengths: a direction shorter than sqrt(eps) of the longest has half of its digits from rounding, which costs
    # conjugacy. Kept, such directions double the iterations in float32 and take seven times as many in float64.
    floor = float(np.finfo(xa.numpy_dtype(M)).eps)
    for _ in range(2):
        values, vectors = np.linalg.eigh(xa.to_numpy(basis.T @ basis))
        keep = values > values[-1] * floor * M.shape[1]
        basis = basis @ xa.like(vectors[:, keep] / np.sqrt(values[keep]), basis)
    return xa.astype(basis, xa.numpy_dtype(M))


def _pseudo_inverse(G: Array) -> np.ndarray:
    """Inverse of a small symmetric matrix on the directions where it is numerically positive."""
    small = _double(G)
    if not np.isfinite(small).all():
        raise FloatingPointError("the kernel values overflow: scale the data, or lower the kernel's degree or coefficients")
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    keep = values > values[-1] * small.shape[0] * np.finfo(xa.numpy_dtype(G)).eps
    return np.asarray((vectors[:, keep] / values[keep]) @ vectors[:, keep].T)
