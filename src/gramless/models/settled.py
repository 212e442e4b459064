"""When the predictions of a least-squares machine have settled, from what conjugate gradients have at hand anyway.

Where `A W = Z - R` with `A = K + D`, `D = diag(ridge)`, the scores of the training rows are off by `K A^-1 R`, and

    || D^-1/2 K A^-1 R ||  <=  || D^-1/2 R ||

because `D^-1/2 K D^-1/2 (D^-1/2 K D^-1/2 + I)^-1` has no eigenvalue above one. The machine's own errors there are `D a`. So
the length of the residual, as a share of theirs, bounds what can still happen: at a twentieth, mean squared errors change by
about a quarter of a hundredth. Noisy problems end at larger residuals than those that are fitted closely, each as soon as
nothing that anybody sees depends on more. O(n k) for each iteration, no product with the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import is_classifier

from gramless._core import arrays as xa
from gramless._core.arrays import Array

SHARE = 0.05
"""Of the errors, what the residual may have, in every column."""

FINEST = 1e-3
"""With `tol="auto"`, the relative residual that ends every solve: predictions change by no more, relative to the targets."""

FINEST_FOR_LABELS = 5e-3
"""The same for targets of one and minus one, of whose scores only the sign or the largest is asked."""

USUAL_RESIDUAL = 1e-2
"""Where predictions settle, in the order of magnitude: what a preconditioner is planned for."""


def finest_residual(estimator: Any) -> float:
    """The relative residual that ends conjugate gradients whether predictions have settled or not."""
    return FINEST_FOR_LABELS if is_classifier(estimator) else FINEST


def settled_predictions(ridge: Array, *, intercept: bool, share: float = SHARE) -> Callable[[Array, Array], bool]:
    """A function of a solution and its residual that says whether predictions have settled.

    Parameters
    ----------
    ridge : array of shape (n,)
        What the matrix has on its diagonal beside the kernel.
    intercept : bool
        Whether the last column belongs to the right-hand side of ones, from which the bias comes.
    share : float, default=SHARE
        The largest share of the errors that the residual may have.

    Returns
    -------
    callable(W, R) -> bool
    """
    xp = xa.namespace(ridge)
    root = xp.sqrt(ridge)[:, None]

    def settled(W: Array, R: Array) -> bool:
        coef, left = W, R
        if intercept:
            bias = xp.sum(W[:, :-1], axis=0) / xp.sum(W[:, -1])
            coef, left = W[:, :-1] - W[:, -1:] * bias, R[:, :-1] - R[:, -1:] * bias
        errors, residuals = _lengths(root * coef), _lengths(left / root)
        return bool(xp.all(residuals <= share * errors))

    return settled


def _lengths(columns: Array) -> Array:
    return xa.namespace(columns).sum(columns * columns, axis=0) ** 0.5
