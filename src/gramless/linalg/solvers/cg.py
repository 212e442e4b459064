"""Preconditioned block conjugate gradients for all right-hand sides at once.

The search directions `P` of all right-hand sides span one subspace, and each step minimises over the full subspace:

    Q = A P,  a = (P^T Q)^-1 P^T R,  W += P a,  R -= Q a,  P <- orth(M R - P (P^T Q)^-1 Q^T M R)

so k right-hand sides share one subspace and one product with `A`: O(n^2 k) for each iteration on a cached matrix, O(n^2 d)
on a streamed matrix. Orthonormal directions, and a pseudo-inverse of the small `P^T Q` in float64, keep the recurrence
stable if columns have converged or are linearly dependent (O'Leary 1980; Dubrulle 2001). In float32, the residual `R` of the
recurrence drifts from the true residual `Z - A W`. When `R` meets the tolerance, the true residual is computed; if the true
residual does not meet the tolerance, the recurrence restarts from it. With a `convergence_test`, the drift is estimated from
a sample of rows, because one more product would take a quarter of the time of a solve with three iterations.

With `tol="auto"` a solve stops when further iterations cannot change the predictions visibly. If `A W = Z - R` with `A = K +
D` and `D = diag(ridge)`, the scores of the training rows have the error `K A^-1 R`, and

    || D^-1/2 K A^-1 R ||  <=  || D^-1/2 R ||

because no eigenvalue of `D^-1/2 K D^-1/2 (D^-1/2 K D^-1/2 + I)^-1` exceeds one. The training errors of the model are `D a`.
So the residual norm relative to the norm of the training errors bounds the remaining change: at 5 %, mean squared errors
change by about 0.25 %. Noisy problems stop at larger residuals than problems that are fitted closely. The test takes O(n k)
time in each iteration, without a product with the matrix. `normal_predictions_converged` is the corresponding test for the
preconditioned normal equations of landmark models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE, POSITIVE_INTEGER
from gramless._core.threads import one_blas_thread
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import NON_NEGATIVE, Solver, State, Status, Step, residual_of
from gramless.linalg.tuning import TUNING


class CG(Solver):
    """Preconditioned block conjugate gradients.

    Parameters
    ----------
    tol : float, default=1e-4
        Tolerance at which the solver stops. It is the true relative residual.
    max_iter : int, default=200
        Maximum number of solver iterations. One iteration is one product with the matrix.
    n_landmarks : int or "auto", default="auto"
        Number of landmarks of the Nyström preconditioner that a least-squares estimator builds; 0 is no preconditioner, and
        `"auto"` decides from the sizes and the memory. `solve` uses only `preconditioner`.
    damping : float or "auto", default="auto"
        Damping of the Nyström preconditioner; `"auto"` estimates the mean eigenvalue of what the landmarks do not represent.
    preconditioner : object with `@`, optional
        Symmetric positive definite approximate inverse, used instead of landmarks.
    convergence_test : callable(W, R) -> bool, optional
        Function of the solution and its residual `Z - A W`, called after each iteration; returning True ends the solve
        before `tol` is reached, unless the true residual is much larger than the residual of the recurrence.

    References
    ----------
    O'Leary, "The block conjugate gradient algorithm and related methods", 1980.

    Dubrulle, "Retooling the method of block conjugate gradients", 2001.
    """

    _parameter_constraints = {
        "tol": [NON_NEGATIVE],
        "max_iter": [POSITIVE_INTEGER],
        "n_landmarks": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "damping": [POSITIVE, StrOptions({"auto"})],
        "preconditioner": "no_validation",
        "convergence_test": [callable, None],
    }
    convergence_test: Callable[[Array, Array], bool] | None = None  # a default, because model files of 0.1.0 lack it

    def __init__(
        self,
        *,
        tol: float = 1e-4,
        max_iter: int = 200,
        n_landmarks: int | str = "auto",
        damping: float | str = "auto",
        preconditioner: Any = None,
        convergence_test: Callable[[Array, Array], bool] | None = None,
    ):
        self.tol = tol
        self.max_iter = max_iter
        self.n_landmarks = n_landmarks
        self.damping = damping
        self.preconditioner = preconditioner
        self.convergence_test = convergence_test

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        z_norm = xa.norm(Z) or 1.0
        if state:
            R, P, best_true, stalled = state["R"], state["P"], state["best_true"], state["stalled"]
            best, best_residual = state["best"], state["best_residual"]
        else:
            R = residual_of(op, Z, W)
            residual = xa.norm(R) / z_norm
            if residual <= self.tol:
                yield Step(W, residual, status=Status.CONVERGED)
                return
            P = _orthonormal(self._precondition(R))
            best_true, stalled = np.inf, 0
            best, best_residual = W, residual
        status: Status | None = None
        while status is None:
            Q = op @ P
            with one_blas_thread():
                inverse = _pseudo_inverse(P.T @ Q)
                step = inverse @ _double(P.T @ R)
                W = W + P @ xa.like(step, P)
                R = R - Q @ xa.like(step, P)
                residual = xa.norm(R) / z_norm
            if residual < best_residual:
                best, best_residual = W, residual
            # The exact residual rises by at most the square root of the condition number; more is due to rounding errors.
            lost = not residual < TUNING.lost_residual_factor * best_residual
            if lost:
                W = best
            accurate = not lost and self.convergence_test is not None and self.convergence_test(W, R)
            at_tol = not lost and residual <= self.tol
            restarted = at_tol or lost or accurate
            trusted_drift = (TUNING.trusted_residual_factor - 1) * xa.norm(R)
            sampled = self.convergence_test is not None and (accurate or at_tol)
            if sampled and _drift(op, Z, W, R, rng) <= trusted_drift:
                status = Status.CONVERGED if at_tol else Status.PREDICTIONS_CONVERGED
            elif restarted:
                # The recurrence restarts from the true residual.
                of_recurrence, R = residual, Z - op @ W
                residual = xa.norm(R) / z_norm
                best, best_residual = W, residual
                stalled = stalled + 1 if residual > 0.5 * best_true else 0
                best_true = min(best_true, residual)
                if residual <= self.tol:
                    status = Status.CONVERGED
                elif accurate and residual <= TUNING.trusted_residual_factor * of_recurrence:
                    status = Status.PREDICTIONS_CONVERGED
                elif stalled >= TUNING.stalled_restarts:
                    status = Status.PRECISION_EXHAUSTED
            if status is None:
                M_R = self._precondition(R)
                with one_blas_thread():
                    new = M_R if restarted else M_R - P @ xa.like(inverse @ _double(Q.T @ M_R), P)
                    # If the directions span the full space, no new direction is left: restart from the residual `R`.
                    P = _orthonormal(new if xa.norm(new) else M_R)
            state = {"R": R, "P": P, "best_true": float(best_true), "stalled": stalled}
            state |= {"best": best, "best_residual": float(best_residual)}
            yield Step(W, residual, status=status, state=state)

    def _precondition(self, R: Array) -> Array:
        return R + 0 if self.preconditioner is None else self.preconditioner @ R


def _drift(op: Operator, Z: Array, W: Array, R: Array, rng: np.random.RandomState) -> float:
    """Return the estimated norm of `Z - A W - R`, from a sample of rows; infinity if `op` has no product of single rows."""
    n = op.shape[0]
    if "rows_times" not in op.capabilities:
        return np.inf
    rows = np.sort(rng.permutation(n)[: TUNING.verified_rows])
    difference = xa.take_rows(Z - R, rows) - op.rows_times(rows, W)
    return float(xa.norm(difference) * np.sqrt(n / len(rows)))


def _double(x: Array) -> np.ndarray:
    return xa.to_numpy(x).astype(np.float64)


def _orthonormal(M: Array) -> Array:
    """Return an orthonormal basis of the span of the columns, without directions that consist of rounding errors.

    Columns are scaled first, so that a column near convergence keeps its direction. Two passes with the small Gram matrix in
    float64 give a basis that is as orthogonal as that of a QR factorisation, and need only matrix products.
    """
    xp = xa.namespace(M)
    scale = xp.max(xp.abs(M), axis=0)
    basis = xa.astype(M / xp.where(scale > 0, scale, xp.ones_like(scale)), np.float64)
    # `floor` bounds squared lengths relative to the longest direction: if a direction is shorter than sqrt(eps), half of its
    # digits are rounding errors. Such directions would double the iterations in float32 and multiply them by seven in
    # float64 (measured).
    floor = float(np.finfo(xa.numpy_dtype(M)).eps)
    for _ in range(2):
        values, vectors = np.linalg.eigh(xa.to_numpy(basis.T @ basis))
        keep = values > values[-1] * floor * M.shape[1]
        basis = basis @ xa.like(vectors[:, keep] / np.sqrt(values[keep]), basis)
    return xa.astype(basis, xa.numpy_dtype(M))


def _pseudo_inverse(G: Array) -> np.ndarray:
    """Return the inverse of a small symmetric matrix on the directions in which it is numerically positive."""
    small = _double(G)
    if not np.isfinite(small).all():
        raise FloatingPointError("the kernel values overflow: scale the data, or lower the kernel's degree or coefficients")
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    keep = values > values[-1] * small.shape[0] * np.finfo(xa.numpy_dtype(G)).eps
    return np.asarray((vectors[:, keep] / values[keep]) @ vectors[:, keep].T)


def predictions_converged(ridge: Array, *, intercept: bool) -> Callable[[Array, Array], bool]:
    """Return the stopping rule `f(W, R)` of `tol="auto"`; with `intercept`, the last column of `W` solves for ones."""
    xp = xa.namespace(ridge)
    root = xp.sqrt(ridge)[:, None]

    def converged(W: Array, R: Array) -> bool:
        coef, left = W, R
        if intercept:
            bias = xp.sum(W[:, :-1], axis=0) / xp.sum(W[:, -1])
            coef, left = W[:, :-1] - W[:, -1:] * bias, R[:, :-1] - R[:, -1:] * bias
        errors, residuals = _column_norms(root * coef), _column_norms(left / root)
        return bool(xp.all(residuals <= TUNING.error_fraction * errors))

    return converged


def normal_objective(W: Array, R: Array, rhs: Array, target_squares: Array) -> Array:
    """Return the objective of each output of the preconditioned normal equations `B W = rhs` for the residual `R`."""
    return target_squares - xa.namespace(W).sum(W * (rhs + R), axis=0)


def normal_predictions_converged(rhs: Array, target_squares: Array, tol: float) -> Callable[[Array, Array], bool]:
    """Return the stopping rule `f(W, R)` of the preconditioned normal equations with right-hand side `rhs`.

    After preconditioning, the squared residual norm of an output is close to the excess of its objective over the minimum.
    The bound on this excess is a fraction of the objective, or `tol**2` times the sum of squares of the centred targets if
    this is larger. The norm of `rhs` is not used: a few rows far from all landmarks can make this norm very large.
    """
    xp = xa.namespace(rhs)

    def converged(W: Array, R: Array) -> bool:
        objective = normal_objective(W, R, rhs, target_squares)
        bound = xp.maximum(TUNING.error_fraction**2 * objective, tol**2 * target_squares)
        return bool(xp.all(_column_norms(R) ** 2 <= bound))

    return converged


def _column_norms(columns: Array) -> Array:
    norms: Array = xa.namespace(columns).sum(columns * columns, axis=0) ** 0.5
    return norms
