"""Basis construction: keep a pattern when it points away from the span of those kept before.

A pattern's squared cosine to the span of the basis `G` in feature space is

    cos^2(x) = k(G, x)^T K_G^-1 k(G, x) / k(x, x)

and the pattern joins the basis when that is below `epsilon` (Algorithm B.C. of Yu, Diamantaras, McKelvey and Kung 2014).
Instead of the inverse, whose update divides by ever smaller pivots and keeps their errors, the Cholesky factor
`K_G = L L^T` grows by rows, and

    cos^2(x) = ||L^-1 k(G, x)||^2 / k(x, x).

A larger basis explains more of every pattern, so whoever fails the test fails it for good: a whole block of patterns
is tested against the basis at the start of the block by one product and one triangular solve, and only those who pass
are taken in turn, in small chunks, against the basis as it grows. The result is that of the one-by-one algorithm.
O(m^2 n + m n d) for a pass that reads everything, less when `m` is reached before the end; m^2 numbers for the factor
and one block of kernel values.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.landmarks.elimination import eliminate
from gramless.approximation.landmarks.rule import LandmarkRule, cross, host, reference, rows_at_a_time
from gramless.kernels.base import Kernel

# Squared cosines closer to one than this are one up to rounding in float32 with thousands of landmarks.
_LEAST_SINGLE_GAP = 1e-2


class BasisConstruction(LandmarkRule):
    """Patterns whose squared cosine to the span of the basis is under `epsilon`, in random order.

    Parameters
    ----------
    epsilon : float, default=0.5
        Between 0 and 1: the larger, the more alike the landmarks may be.
    n_init : int, default=1
        How many patterns start the basis untested.
    relax : bool, default=True
        When a pass over the data ends with fewer than `m` landmarks, halve `1 - epsilon` and pass again, until `m` are found
        or what is left is the span's up to rounding. Without it, the smaller basis is returned.
    block_size : int, default=256
        Patterns that are tested against each other at a time. Changes the time, not the choice.

    See Also
    --------
    RPCholesky : Draws by the same measure instead of comparing it with a bound.

    References
    ----------
    Yu, Diamantaras, McKelvey and Kung, "Multiclass ridge-adjusted slack variable optimization using selected basis for fast
    classification", 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.approximation.landmarks import BasisConstruction
    >>> X = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    >>> X[BasisConstruction(0.5).select(X, Linear(), 4, np.random.RandomState(0))].astype(bool).sum(axis=0)
    array([1, 1])
    """

    def __init__(self, epsilon: float = 0.5, n_init: int = 1, relax: bool = True, *, block_size: int = 256):
        self.epsilon = epsilon
        self.n_init = n_init
        self.relax = relax
        self.block_size = block_size

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must be between 0 and 1, got {self.epsilon!r}")
        order = rng.permutation(X.shape[0])
        basis = _Basis(X, kernel, m, self.block_size)
        gap = 1 - self.epsilon
        # Rounding in a float64 factor is below m eps of the diagonal: a smaller gap would let in what the span explains.
        smallest_gap = 10 * m * float(np.finfo(np.float64).eps)
        basis.scan(order[: self.n_init], 1 - smallest_gap)
        order = order[self.n_init :]
        while True:
            if gap < _LEAST_SINGLE_GAP:
                basis.use_double()
            left = basis.scan(order, 1 - gap)
            # Nobody is left out further than `left`: a data set of low rank ends here instead of after forty passes.
            gap = min(gap, left) / 2
            if basis.size == m or not self.relax or gap < smallest_gap:
                return basis.members
            order = order[~np.isin(order, basis.members)]


class _Basis:
    """The basis so far and its growing Cholesky factor."""

    def __init__(self, X: Array, kernel: Kernel, m: int, block_size: int):
        self.X, self.kernel, self.m, self.block_size = X, kernel, m, block_size
        self.diagonal = host(kernel.diag(X))
        self.size = 0
        self._members = np.empty(m, dtype=np.intp)
        self._factor = xa.zeros((m, m), reference(X))

    @property
    def members(self) -> np.ndarray:
        return self._members[: self.size].copy()

    def scan(self, order: np.ndarray, epsilon: float) -> float:
        """Offer every pattern in turn until the basis is full; the largest share left unexplained of one turned down."""
        start, left = 0, 0.0
        while start < len(order) and self.size < self.m:
            # While the basis is small nearly everybody passes, and a large block would be tested twice for nothing.
            size = min(rows_at_a_time(self.m), max(self.block_size, 4 * self.size))
            block = order[start : start + size]
            start += size
            if len(block) > self.block_size:
                share = 1 - self._explained(block)
                left = max(left, np.max(share, where=share <= 1 - epsilon, initial=0.0))
                block = block[share > 1 - epsilon]
            for first in range(0, len(block), self.block_size):
                if self.size < self.m:
                    left = max(left, self._admit(block[first : first + self.block_size], epsilon))
        return left

    def use_double(self) -> None:
        """Go on in float64, with the factor computed again from the data."""
        if xa.numpy_dtype(self._factor) == np.float64:
            return
        members, self.size = self.members, 0
        self._factor = xa.zeros((self.m, self.m), self._factor, np.float64)
        for start in range(0, len(members), self.block_size):
            # They were tested at a wider gap than float32 can err by: below one is all that is asked again.
            self._admit(members[start : start + self.block_size], 1.0)

    def _half(self, patterns: np.ndarray) -> Array:
        """`L^-1 K(G, patterns)`."""
        K = cross(self.kernel, self.X, patterns, self._members[: self.size], xa.numpy_dtype(self._factor))
        return xa.solve_triangular(self._factor[: self.size, : self.size], K.T)

    def _explained(self, patterns: np.ndarray) -> np.ndarray:
        """Squared cosine of each pattern to the span; one for zero vectors, which have nothing to explain."""
        norms = host(xa.square_norms(self._half(patterns).T))
        diagonal = self.diagonal[patterns]
        return np.divide(norms, diagonal, out=np.ones_like(norms), where=diagonal > 0)

    def _admit(self, patterns: np.ndarray, epsilon: float) -> float:
        """Test a few patterns one after the other, each against the basis with those before it."""
        half = self._half(patterns) if self.size else xa.zeros((0, len(patterns)), self._factor)
        K = cross(self.kernel, self.X, patterns, patterns, xa.numpy_dtype(self._factor))
        unexplained = host(K) - host(half.T @ half)
        diagonal = self.diagonal[patterns]
        admitted, L, left = eliminate(unexplained, (1 - epsilon) * diagonal, self.m - self.size)
        q, k = self.size, len(admitted)
        self._members[q : q + k] = patterns[admitted]
        self._factor[q : q + k, :q] = xa.take_rows(half.T, admitted)
        self._factor[q : q + k, q : q + k] = xa.like(L, self._factor)
        self.size += k
        left[admitted] = 0.0
        return float(np.max(np.divide(left, diagonal, out=np.zeros_like(left), where=diagonal > 0)))
