"""A preconditioner from a low-rank factor of the matrix, such as a partial Cholesky factor.

For `F F^T` close to `K` and `D = diag(ridge + damping)`, the matrix `P = F F^T + D` has the inverse

    P^-1 = D^-1 - D^-1 F (I + F^T D^-1 F)^-1 F^T D^-1

O(n m^2) once, summed in float64, and O(n m) for each column it is applied to. As with landmarks, the damping
belongs at the level of the spectrum that `F` leaves out, which is the mean of the diagonal that it leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless.operators.tall import TallMatrix


class LowRankPreconditioner:
    """`V -> P^-1 V` for `P = F F^T + diag(ridge + damping)`.

    Parameters
    ----------
    F : array of shape (n, m)
        The factor, such as `gramless.landmarks.RPCholesky().factor` gives.
    ridge : float or array of shape (n,)
        What the matrix has on its diagonal beside `F F^T`; positive.
    damping : float, default=0.0
        For instance `(trace(K) - ||F||^2) / n`, the mean of what `F` leaves out.

    See Also
    --------
    NystromPreconditioner : From landmarks.

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
        self._tall = TallMatrix.of(F)
        diagonal = xa.zeros((F.shape[0],), F, np.float64)
        diagonal += xa.astype(xa.like(ridge, F), np.float64)
        diagonal += damping
        self._inverse_diagonal = 1.0 / diagonal
        identity = xa.add_diagonal_(xa.zeros((F.shape[1], F.shape[1]), F, np.float64), 1.0)
        self._factor = xa.cholesky_(self._tall.add_gram_(identity, self._inverse_diagonal))

    def __matmul__(self, V: Array) -> Array:
        D, wide = self._inverse_diagonal[:, None], xa.astype(V, np.float64)
        inner = xa.cholesky_solve(self._factor, self._tall.transposed_times(D * wide))
        return xa.astype(D * (wide - self._tall.times(inner)), xa.numpy_dtype(V))
