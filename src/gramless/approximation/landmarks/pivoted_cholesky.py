"""Randomly pivoted Cholesky: rows that the selected landmarks approximate poorly are drawn more often as landmarks.

Each landmark is drawn with probability proportional to the diagonal of the residual

    K - F F^T,    F = K(:, S) L^-T,    K(S, S) = L L^T

The expected error of `F F^T` is within a factor of the error of the best rank-m approximation (Chen, Epperly, Tropp and
Webber 2023). The accelerated method (Epperly, Tropp and Webber 2024) draws a block of proposed rows from the current
diagonal and accepts each proposal with the probability of the one-by-one method, so the landmarks have the same
distribution, and the work is matrix-matrix products. Cost: O(n m d + n m^2).

`F` (n m numbers) is stored if it fits into memory. Otherwise each round computes the columns of `F F^T` at
the accepted rows `P`, `K(:, S) K(S, S)^-1 K(S, P)`, in one pass over `X` with the memory of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless._core.validation import check_positive
from gramless.approximation.landmarks.rule import (
    LandmarkRule,
    eliminate,
    fits_limit,
    reference,
    rows_per_block,
    to_host,
)
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import cross

# A residual below this number times eps, relative to the trace or to the diagonal entry, is a rounding error.
_ROUNDING = 10.0


@dataclass(eq=False, repr=False)
class RPCholesky(LandmarkRule):
    """Draw rows with probability proportional to the residual of their approximation.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Number of rows proposed as landmarks in a round; `"auto"` is a tenth of the landmarks, between 32 and 512.
    max_factor_bytes : int, default=2 * 10**9
        Largest size in bytes of a stored factor; a larger factor is recomputed in each round.

    See Also
    --------
    BasisConstruction : Selects rows whose residual of the approximation exceeds a bound.
    Uniform : Draws rows uniformly.

    References
    ----------
    Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky: practical approximation of a kernel matrix with few entry
    evaluations", 2023.

    Epperly, Tropp and Webber, "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky",
    2024.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import RPCholesky
    >>> X = np.repeat([[0.0], [1.0], [5.0]], 20, axis=0)
    >>> np.sort(X[RPCholesky().select(X, RBF(gamma=1.0), 3, np.random.RandomState(0))].ravel())
    array([0., 1., 5.])
    """

    block_size: int | str = "auto"
    max_factor_bytes: int = 2 * 10**9

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        itemsize = xa.numpy_dtype(reference(X)).itemsize
        size = X.shape[0] * m * itemsize
        store = size <= self.max_factor_bytes and fits_limit(size)
        return self._run(X, kernel, m, rng, store=store).pivots

    def factor(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> tuple[np.ndarray, Array]:
        """Return the landmarks and the partial Cholesky factor `F` with `F F^T` close to `K(X, X)`.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows in floating point: NumPy, CSR or torch.
        kernel : Kernel
            Kernel with numeric settings.
        m : int
            Maximum number of columns of the factor.
        rng : RandomState
            Random generator.

        Returns
        -------
        pivots : ndarray of int, shape (m,)
            Row indices of the landmarks.
        F : array of shape (n, m)
            The factor.
        """
        state = self._run(X, kernel, m, rng, store=True)
        assert state.F is not None
        return state.pivots, state.F[:, : len(state.pivots)]

    def _run(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState, *, store: bool) -> _PartialCholesky:
        proposals = int(np.clip(m // 10, 32, 512))
        if self.block_size != "auto":
            proposals = int(check_positive("block_size (or 'auto')", self.block_size, integer=True))
        state = _PartialCholesky(X, kernel, m, store=store)
        floor = _ROUNDING * float(np.finfo(xa.numpy_dtype(reference(X))).eps) * state.diagonal.sum()
        while len(state.pivots) < m and state.left.sum() > floor:
            state.extend(state.propose(proposals, rng), rng)
        return state


class _PartialCholesky:
    """The pivots, the diagonal of the residual, and the factor if it is stored."""

    def __init__(self, X: Array, kernel: Kernel, m: int, *, store: bool):
        self.X, self.kernel, self.m = X, kernel, m
        self.pivots = np.empty(0, dtype=np.intp)
        self.diagonal = np.maximum(to_host(kernel.diag(X)), 0.0)
        self.left = self.diagonal.copy()
        self.F: Array | None = xa.empty((X.shape[0], m), reference(X)) if store else None
        self._L = np.zeros((m, m))
        # A recomputed factor is in float64, because it depends on the inverse of K(S, S), which may be ill-conditioned.
        self._dtype = xa.numpy_dtype(reference(X)) if store else np.dtype(np.float64)

    def propose(self, count: int, rng: np.random.RandomState) -> np.ndarray:
        """Draw rows with replacement, with probabilities proportional to the current diagonal of the residual."""
        cumulative = np.cumsum(self.left)
        drawn = np.searchsorted(cumulative, rng.random_sample(count) * cumulative[-1], side="right")
        return np.minimum(drawn, len(self.left) - 1)

    def extend(self, proposals: np.ndarray, rng: np.random.RandomState) -> None:
        """Accept proposals with the probability of the one-by-one method, and update the diagonal of the residual."""
        q = len(self.pivots)
        half = self._half(proposals)
        K = to_host(cross(self.kernel, self.X, proposals, proposals, self._dtype))
        rounding = _ROUNDING * float(np.finfo(self._dtype).eps) * self.diagonal[proposals]
        least = np.maximum(rng.random_sample(len(proposals)) * self.left[proposals], rounding)
        taken, L, _ = eliminate(K - half @ half.T, least, self.m - q)
        new, k = proposals[taken], len(taken)
        if k == 0:
            # The residuals of all proposals are rounding errors.
            self.left[proposals] = 0.0
            return
        self._L[q : q + k, :q] = half[taken]
        self._L[q : q + k, q : q + k] = L
        self._update(new, half[taken], L)
        self.pivots = np.concatenate([self.pivots, new])
        self.left[self.pivots] = 0.0

    def _half(self, points: np.ndarray) -> np.ndarray:
        """Return the rows of `F` at `points` as a float64 NumPy array."""
        q = len(self.pivots)
        if self.F is not None:
            return to_host(xa.take_rows(self.F[:, :q], points))
        if q == 0:
            return np.empty((len(points), 0))
        K = to_host(cross(self.kernel, self.X, points, self.pivots, self._dtype))
        return scipy.linalg.solve_triangular(self._L[:q, :q], K.T, lower=True).T

    def _update(self, new: np.ndarray, half: np.ndarray, L: np.ndarray) -> None:
        """Subtract the squares of the new columns of `F` from the diagonal of the residual in one pass over the data."""
        q, k = len(self.pivots), len(new)
        example = xa.empty((0,), reference(self.X), self._dtype)
        factor = xa.like(L, example)
        if self.F is not None:
            weights = xa.like(half.T, example)
        else:
            weights = xa.like(scipy.linalg.solve_triangular(self._L[:q, :q], half.T, lower=True, trans=1), example)
        for rows in slices(self.X.shape[0], rows_per_block(q + k)):
            block = cross(self.kernel, self.X, rows, new, self._dtype)
            if q and self.F is not None:
                block -= xa.matmul(self.F[rows, :q], weights)
            elif q:
                block -= xa.matmul(cross(self.kernel, self.X, rows, self.pivots, self._dtype), weights)
            columns = xa.solve_triangular(factor, block.T).T
            if self.F is not None:
                self.F[rows, q : q + k] = columns
            self.left[rows] -= to_host(xa.square_norms(columns))
        np.maximum(self.left, 0.0, out=self.left)
