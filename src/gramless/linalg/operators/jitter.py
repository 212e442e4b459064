"""Cholesky factorisation of matrices that are positive definite only up to rounding.

Gram matrices of near-duplicate points have eigenvalues that rounding puts on either side of zero. A jitter of the size of
that rounding, relative to the largest diagonal entry, makes them definite; it grows tenfold until the factorisation goes
through, and is returned so that a result can say what was added. This is the one place where a jitter grows; who knows the
rounding of a matrix better than its dtype does says so (`rounding_of`), and who has a ridge starts from none.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import one_blas_thread

_LARGEST_RELATIVE_JITTER = 1e-2
_SMALL = 1024


def rounding_of(A: Array, eps: float) -> float:
    """How far entries that are known to a relative `eps` leave the eigenvalues of `A` unknown: `eps sqrt(m) max(diag)`."""
    scale = float(xa.namespace(A).max(xa.namespace(A).linalg.diagonal(A)))
    if not np.isfinite(scale):
        raise ValueError("the kernel matrix of the landmarks is not finite; scale the features or choose another kernel")
    if not scale > 0:
        raise ValueError("every landmark has kernel value zero with itself: choose another kernel or other landmarks")
    return float(eps * int(A.shape[0]) ** 0.5 * scale)


def jittered_cholesky(A: Array, jitter: float | None = None) -> tuple[Array, float]:
    """Lower factor of `A + jitter I`, and the jitter; of `A` the lower triangle is read, and nothing is changed.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators.jitter import jittered_cholesky
    >>> L, jitter = jittered_cholesky(np.ones((3, 3)))
    >>> bool(np.allclose(L @ L.T, np.ones((3, 3)))), jitter < 1e-12
    (True, True)
    """
    scale = float(xa.namespace(A).max(xa.namespace(A).linalg.diagonal(A))) or 1.0
    rounding = float(np.finfo(xa.numpy_dtype(A)).eps) * scale
    if jitter is None:
        jitter = A.shape[0] * rounding
    while jitter <= _LARGEST_RELATIVE_JITTER * scale:
        try:
            # Sharing a small factorisation among threads takes longer than factorising.
            with one_blas_thread() if A.shape[0] <= _SMALL else nullcontext():
                return xa.lower_triangle(xa.jittered_cholesky_copy(A, jitter)), jitter
        except xa.NotPositiveDefiniteError:
            jitter = max(10 * jitter, rounding)  # from none at all, too
    raise np.linalg.LinAlgError(
        f"the matrix stays indefinite with a jitter of {jitter / scale:.0e} of its largest entry: the kernel is not "
        "positive semi-definite"
    )
