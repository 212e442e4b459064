"""Cholesky factorisation of matrices that are positive definite only up to rounding.

Rounding makes small eigenvalues of Gram matrices of near-duplicate points negative. A jitter of the size of the rounding
errors, relative to the largest diagonal entry, is therefore added to the diagonal. The jitter grows tenfold until the
factorisation succeeds, and is returned so that the caller can report it. Callers that know the rounding error of a matrix
pass a first jitter (see `rounding_of`); callers with a ridge pass a first jitter of zero.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.tuning import TUNING


def rounding_of(A: Array, eps: float) -> float:
    """Return the uncertainty `eps sqrt(m) max(diag)` of the eigenvalues of `A` for a relative error `eps` of its entries."""
    scale = float(xa.namespace(A).max(xa.namespace(A).linalg.diagonal(A)))
    if not np.isfinite(scale):
        raise ValueError("the kernel matrix of the landmarks is not finite; scale the features or choose another kernel")
    if not scale > 0:
        raise ValueError("every landmark has kernel value zero with itself: choose another kernel or other landmarks")
    return float(eps * int(A.shape[0]) ** 0.5 * scale)


def jittered_cholesky(A: Array, jitter: float | None = None) -> tuple[Array, float]:
    """Return the lower Cholesky factor of `A + jitter I` and the jitter; only the lower triangle of `A` is read."""
    scale = float(xa.namespace(A).max(xa.namespace(A).linalg.diagonal(A))) or 1.0
    rounding = float(np.finfo(xa.numpy_dtype(A)).eps) * scale
    if jitter is None:
        jitter = A.shape[0] * rounding
    while jitter <= TUNING.largest_relative_jitter * scale:
        try:
            return xa.lower_triangle(xa.jittered_cholesky_copy(A, jitter)), jitter
        except xa.NotPositiveDefiniteError:
            jitter = max(10 * jitter, rounding)  # a jitter of zero also has to grow
    raise np.linalg.LinAlgError(
        f"the matrix stays indefinite with a jitter of {jitter / scale:.0e} of its largest entry: the kernel is not "
        "positive semi-definite"
    )
