"""A preconditioner from a low-rank factor of the matrix, such as a partial Cholesky factor.

For `F F^T` close to `K` and `D = diag(ridge + damping)`, the matrix `P = F F^T + D` has the inverse

    P^-1 = D^-1 - D^-1 F (I + F^T D^-1 F)^-1 F^T D^-1

O(n m^2) once, in float64 for the `m x m` part, and O(n m) for each column it is applied to. As with landmarks, the damping
belongs at the level of the spectrum that `F` leaves out, which is the mean of the diagonal that it leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import slices

_ROWS_AT_A_TIME = 8192


class LowRankPreconditioner:
    """`V -> P^-1 V` for `P = F F^T + diag(ridge + damping)`.

    Parameters
    ----------
    F : array of shape (n, m)
    ridge : float or array of shape (n,)
        Positive.
    damping : float, default=0.0
        For instance `(trace(K) - ||F||^2) / n`, the mean of what `F` leaves out.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.preconditioners.low_rank import LowRankPreconditioner
    >>> F = np.array([[1.0], [2.0], [0.0]])
    >>> P = F @ F.T + 0.5 * np.eye(3)
    >>> LowRankPreconditioner(F, 0.5) @ (P @ np.ones((3, 1)))
    array([[1.],
           [1.],
           [1.]])
    """

    def __init__(self, F: Array, ridge: Any, damping: float = 0.0):
        self.F = F
        diagonal = xa.zeros((F.shape[0],), F)
        diagonal += xa.like(ridge, F)
        diagonal += damping
        self._inverse_diagonal = 1.0 / diagonal
        inner = xa.zeros((F.shape[1], F.shape[1]), F, np.float64)
        for rows in slices(F.shape[0], _ROWS_AT_A_TIME):
            part = F[rows]
            inner += xa.astype((part * self._inverse_diagonal[rows][:, None]).T @ part, np.float64)
        self._factor = xa.cholesky_(xa.add_diagonal_(inner, 1.0))

    def __matmul__(self, V: Array) -> Array:
        scaled = self._inverse_diagonal[:, None] * V
        inner = xa.cholesky_solve(self._factor, xa.astype(self.F.T @ scaled, np.float64))
        return scaled - self._inverse_diagonal[:, None] * (self.F @ xa.astype(inner, xa.numpy_dtype(V)))
