"""A ridge problem in coordinates where everything is diagonal: any ridge, and leave-one-out, without a refit.

From the sums of `NormalEquations` and a penalty `P`,

    P + jitter I = L L^T,   M = L^-1 (S - s s^T / N) L^-T = Q diag(v) Q^T,   g = Q^T L^-1 (T - s t / N)

and the solution at a ridge r, with the bias unpenalised, is

    A = L^-T Q (v + r)^-1 g,     b = t / N - A^T s / N .

For a row with features phi let u = Q^T L^-1 (phi - s / N). Its leverage and its leave-one-out residual are

    h = w (1 / N + sum_j u_j^2 / (v_j + r)),      e_loo = (z - A^T phi - b) / (1 - h)

exactly, as for any linear smoother with a quadratic penalty. O(p^3) to set up, O(p k) for each ridge once diagonal, O(p^2)
for each row whose leave-one-out residual is asked for, at all ridges together. One ridge alone is solved by Cholesky.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless.operators.jitter import jittered_cholesky

_ROWS_AT_A_TIME = 4096
# A row that alone decides its own fitted value has leverage 1: its residual without it is not determined by the others.
_LEAST_FREEDOM = 1e-10


class WhitenedRidge:
    """The diagonalised problem; made by `NormalEquations.whiten`.

    Attributes
    ----------
    jitter : float
        What was added to the penalty's diagonal.
    spectrum : array of shape (p,)
        The eigenvalues `v`, ascending; rounding below zero is cut off.
    """

    def __init__(
        self,
        S: Array,
        cross: Array,
        features: Array,
        targets: Array,
        weight: float,
        *,
        penalty: Array = None,
        relative_jitter: float = 0.0,
    ):
        xp = xa.namespace(S)
        self.weight = weight
        self.mean = features / weight
        self.target_mean = targets / weight
        centred = S - (features @ self.mean.T)
        right = cross - features @ self.target_mean
        self._L: Array = None
        self.jitter = 0.0
        if penalty is not None:
            penalty = xa.astype(penalty, np.float64)
            scale = float(xp.max(xp.linalg.diagonal(penalty)))
            if not scale > 0:
                raise ValueError("the penalty's diagonal is zero: every landmark has kernel value zero with itself")
            self._L, self.jitter = jittered_cholesky(penalty, relative_jitter * scale)
            half = xa.solve_triangular(self._L, centred)
            centred = xa.solve_triangular(self._L, half.T + 0)
            right = xa.solve_triangular(self._L, right)
        # Row-major by construction: adding to a diagonal in place needs to know the order.
        self._M = xa.empty((int(S.shape[0]), int(S.shape[0])), S)
        self._M[...] = (centred + centred.T) / 2
        self._right = right
        self._Q: Array = None

    def _diagonalise(self) -> None:
        """Eigenvectors once something needs them: ten times the work of one Cholesky factorisation."""
        if self._Q is not None:
            return
        xp = xa.namespace(self._M)
        values, self._Q = xa.eigh(self._M + 0)
        self._values = xp.where(values > 0, values, xp.zeros_like(values))
        self._g = self._Q.T @ self._right

    @property
    def spectrum(self) -> Array:
        self._diagonalise()
        return self._values

    def solve(self, ridge: float) -> tuple[Array, Array]:
        """Coefficients `(p, k)` and biases `(k,)` at one ridge."""
        if not ridge > 0:
            raise ValueError(f"the ridge must be positive, got {ridge!r}")
        A = self._solve_by_cholesky(ridge) if self._Q is None else None
        if A is None:
            self._diagonalise()
            A = self._Q @ (self._g / (self._values + ridge)[:, None])
        if self._L is not None:
            A = xa.solve_triangular(self._L, A, transposed=True)
        return A, (self.target_mean - self.mean.T @ A)[0]

    def _solve_by_cholesky(self, ridge: float) -> Array:
        """The whitened solution by Cholesky, or None where rounding has put an eigenvalue below `-ridge`."""
        try:
            return xa.cholesky_solve(xa.cholesky_(xa.add_diagonal_(self._M + 0, ridge)), self._right)
        except xa.NotPositiveDefiniteError:
            return None

    def leave_one_out(self, features: Array, targets: Array, ridges: Sequence[float], weights: Array = None) -> Array:
        """Residuals of rows that are among those summed, each without itself: `(len(ridges), n, k)`.

        Parameters
        ----------
        features : array of shape (n, p)
        targets : array of shape (n, k)
        ridges : sequence of float
        weights : array of shape (n,), optional
            The weights the rows have in the sums; ones by default.
        """
        self._diagonalise()
        n = int(features.shape[0])
        out = xa.empty((len(ridges), n, int(targets.shape[1])), self._values)
        for start in range(0, n, _ROWS_AT_A_TIME):
            rows = slice(start, min(n, start + _ROWS_AT_A_TIME))
            U = xa.astype(features[rows], np.float64) - self.mean.T
            U = U @ self._Q if self._L is None else xa.solve_triangular(self._L, U.T + 0).T @ self._Q
            squares = U * U
            Z = xa.astype(targets[rows], np.float64) - self.target_mean
            for i, ridge in enumerate(ridges):
                inverse = 1.0 / (self._values + ridge)
                leverage = 1.0 / self.weight + squares @ inverse
                if weights is not None:
                    leverage = leverage * xa.like(weights[rows], leverage)
                free = xa.clip_below_(1.0 - leverage, _LEAST_FREEDOM)
                out[i, rows] = (Z - U @ (self._g * inverse[:, None])) / free[:, None]
        return out
