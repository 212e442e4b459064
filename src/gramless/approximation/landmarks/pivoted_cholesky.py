"""Randomly pivoted Cholesky: landmarks drawn by how badly the earlier ones explain them.

Each landmark is drawn with probability proportional to the diagonal of the residual

    K - F F^T,    F = K(:, S) L^-T,    K(S, S) = L L^T

which is within a factor of the best rank-m approximation in expectation (Chen, Epperly, Tropp & Webber 2023). Drawn
one at a time it is a chain of matrix-vector products; the accelerated form (Epperly, Tropp & Webber 2024) proposes a
block from the current diagonal, keeps each proposal with the probability that the one-by-one method would have, and so
has the same distribution with matrix-matrix products: O(n m d + n m^2).

`F` is held where it fits (`n m` numbers). Where it does not, each round computes what it needs of it again, `K(:, S)
K(S, S)^-1`, and the rule streams over `X` once for each round with one block of memory.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless._core.validation import check_positive
from gramless.approximation.landmarks.elimination import eliminate
from gramless.approximation.landmarks.rule import LandmarkRule, cross, host, may_hold, reference, rows_at_a_time
from gramless.kernels.base import Kernel

# A residual below this many times the precision's eps of the whole is rounding.
_ROUNDING = 10.0


class RPCholesky(LandmarkRule):
    """Points drawn in proportion to what is left unexplained of them.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Proposals in a round; "auto" is a tenth of the landmarks, between 32 and 512.
    max_factor_bytes : int, default=2 * 10**9
        Hold the partial factor when it needs no more than this, compute it again in each round otherwise.

    See Also
    --------
    BasisConstruction : Compares what is left with a bound instead of drawing by it.
    Uniform : Reads no data.

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

    def __init__(self, block_size: int | str = "auto", max_factor_bytes: int = 2 * 10**9):
        self.block_size = block_size
        self.max_factor_bytes = max_factor_bytes

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        itemsize = xa.numpy_dtype(reference(X)).itemsize
        size = X.shape[0] * m * itemsize
        store = size <= self.max_factor_bytes and may_hold(size)
        return self._run(X, kernel, m, rng, store=store).pivots

    def factor(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> tuple[np.ndarray, Array]:
        """The landmarks and the partial Cholesky factor, whose product with itself is close to `K(X, X)`.

        Parameters
        ----------
        X : array of shape (n, d)
            NumPy, CSR or torch, floating.
        kernel : Kernel
            Resolved: everything that depends on data is a number.
        m : int
            Columns of the factor, at most.
        rng : RandomState
            Where random choices come from.

        Returns
        -------
        pivots : ndarray of int, shape (m,)
            Row numbers of the landmarks.
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
    """The pivots so far, the diagonal they leave, and the factor where it is held."""

    def __init__(self, X: Array, kernel: Kernel, m: int, *, store: bool):
        self.X, self.kernel, self.m = X, kernel, m
        self.pivots = np.empty(0, dtype=np.intp)
        self.diagonal = np.maximum(host(kernel.diag(X)), 0.0)
        self.left = self.diagonal.copy()
        self.F: Array | None = xa.empty((X.shape[0], m), reference(X)) if store else None
        self._L = np.zeros((m, m))
        # What is computed again passes through the inverse of K(S, S): float64, or ill-conditioning would show.
        self._dtype = xa.numpy_dtype(reference(X)) if store else np.dtype(np.float64)

    def propose(self, count: int, rng: np.random.RandomState) -> np.ndarray:
        """Points drawn from the current diagonal, with replacement."""
        cumulative = np.cumsum(self.left)
        drawn = np.searchsorted(cumulative, rng.random_sample(count) * cumulative[-1], side="right")
        return np.minimum(drawn, len(self.left) - 1)

    def extend(self, proposals: np.ndarray, rng: np.random.RandomState) -> None:
        """Take those proposals that the one-by-one method would have taken, and bring the diagonal up to date."""
        q = len(self.pivots)
        half = self._half(proposals)
        K = host(cross(self.kernel, self.X, proposals, proposals, self._dtype))
        rounding = _ROUNDING * float(np.finfo(self._dtype).eps) * self.diagonal[proposals]
        least = np.maximum(rng.random_sample(len(proposals)) * self.left[proposals], rounding)
        taken, L, _ = eliminate(K - half @ half.T, least, self.m - q)
        new, k = proposals[taken], len(taken)
        if k == 0:
            # Nothing above rounding among them: what the diagonal still shows there is rounding too.
            self.left[proposals] = 0.0
            return
        self._L[q : q + k, :q] = half[taken]
        self._L[q : q + k, q : q + k] = L
        self._update(new, half[taken], L)
        self.pivots = np.concatenate([self.pivots, new])
        self.left[self.pivots] = 0.0

    def _half(self, points: np.ndarray) -> np.ndarray:
        """The rows of `F` at `points`, float64 on the host."""
        q = len(self.pivots)
        if self.F is not None:
            return host(xa.take_rows(self.F[:, :q], points))
        if q == 0:
            return np.empty((len(points), 0))
        K = host(cross(self.kernel, self.X, points, self.pivots, self._dtype))
        return scipy.linalg.solve_triangular(self._L[:q, :q], K.T, lower=True).T

    def _update(self, new: np.ndarray, half: np.ndarray, L: np.ndarray) -> None:
        """Subtract the new columns' share from the diagonal: one pass over the data."""
        q, k = len(self.pivots), len(new)
        example = xa.empty((0,), reference(self.X), self._dtype)
        factor = xa.like(L, example)
        if self.F is not None:
            weights = xa.like(half.T, example)
        else:
            weights = xa.like(scipy.linalg.solve_triangular(self._L[:q, :q], half.T, lower=True, trans=1), example)
        for rows in slices(self.X.shape[0], rows_at_a_time(q + k)):
            block = cross(self.kernel, self.X, rows, new, self._dtype)
            if q and self.F is not None:
                block -= xa.matmul(self.F[rows, :q], weights)
            elif q:
                block -= xa.matmul(cross(self.kernel, self.X, rows, self.pivots, self._dtype), weights)
            columns = xa.solve_triangular(factor, block.T).T
            if self.F is not None:
                self.F[rows, q : q + k] = columns
            self.left[rows] -= host(xa.square_norms(columns))
        np.maximum(self.left, 0.0, out=self.left)
