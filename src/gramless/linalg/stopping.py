"""Stopping rule of `tol="auto"`: conjugate gradients stop when further iterations cannot change the predictions visibly.

If `A W = Z - R` with `A = K + D` and `D = diag(ridge)`, the scores of the training rows have the error `K A^-1 R`, and

    || D^-1/2 K A^-1 R ||  <=  || D^-1/2 R ||

because no eigenvalue of `D^-1/2 K D^-1/2 (D^-1/2 K D^-1/2 + I)^-1` exceeds one. The training errors of the model are `D a`.
So the residual norm relative to the norm of the training errors bounds the remaining change: at 5 %, mean squared errors
change by about 0.25 %. Noisy problems stop at larger residuals than problems that are fitted closely. O(n k) for each
iteration, without a product with the matrix. The preconditioned normal equations of landmark models have a rule of the same
meaning.
"""

from __future__ import annotations

from collections.abc import Callable

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.tuning import TUNING


def predictions_converged(
    ridge: Array, *, intercept: bool, error_fraction: float = TUNING.error_fraction
) -> Callable[[Array, Array], bool]:
    """Return the stopping rule `f(W, R)`; with `intercept`, the last column belongs to the right-hand side of ones."""
    xp = xa.namespace(ridge)
    root = xp.sqrt(ridge)[:, None]

    def converged(W: Array, R: Array) -> bool:
        coef, left = W, R
        if intercept:
            bias = xp.sum(W[:, :-1], axis=0) / xp.sum(W[:, -1])
            coef, left = W[:, :-1] - W[:, -1:] * bias, R[:, :-1] - R[:, -1:] * bias
        errors, residuals = _column_norms(root * coef), _column_norms(left / root)
        return bool(xp.all(residuals <= error_fraction * errors))

    return converged


def normal_objective(W: Array, R: Array, rhs: Array, target_squares: Array) -> Array:
    """Return the objective of each output of the preconditioned normal equations, for the residual `R = rhs - B W`."""
    return target_squares - xa.namespace(W).sum(W * (rhs + R), axis=0)


def normal_predictions_converged(rhs: Array, target_squares: Array, tol: float) -> Callable[[Array, Array], bool]:
    """Return the stopping rule `f(W, R)` of the preconditioned normal equations with right-hand side `rhs`.

    In their coordinates the squared residual norm is close to the excess of the objective over its minimum. It is compared
    with the objective of each output, or with `tol` squared times the squares of its centred targets, if these are larger.
    The norm of `rhs` is no measure of convergence, because a few rows far from all landmarks can make it much larger.
    """
    xp = xa.namespace(rhs)

    def converged(W: Array, R: Array) -> bool:
        objective = normal_objective(W, R, rhs, target_squares)
        bound = xp.maximum(TUNING.error_fraction**2 * objective, tol**2 * target_squares)
        return bool(xp.all(_column_norms(R) ** 2 <= bound))

    return converged


def _column_norms(columns: Array) -> Array:
    return xa.namespace(columns).sum(columns * columns, axis=0) ** 0.5
