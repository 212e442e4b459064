"""Basis construction: add a row to the basis if its angle to the span of the basis is large.

The squared cosine of a row to the span of the basis `G` in feature space is

    cos^2(x) = k(G, x)^T K_G^-1 k(G, x) / k(x, x) = ||L^-1 k(G, x)||^2 / k(x, x),    K_G = L L^T,

and the row joins the basis if its squared cosine is below `epsilon` (Algorithm B.C. of Yu, Diamantaras, McKelvey and Kung
2014). The Cholesky factor grows by rows, which is more accurate than updating the inverse. A larger basis explains more of
every row, so a row that fails the test also fails every later test. A block of rows is therefore tested against the current
basis by one product and one triangular solve, and only rows that pass are tested again one by one. The result is the same as
if all rows were tested one by one. A full pass takes O(m^2 n + m n d) time, and memory for m^2 numbers and one block.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.landmarks.rule import LandmarkRule, eliminate, reference, rows_per_block, to_host
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import cross

# Value of 1 - cos^2 below which float32 rounding errors may be as large as the value, with thousands of landmarks.
_LEAST_FLOAT32_GAP = 1e-2


@dataclass(eq=False, repr=False)
class BasisConstruction(LandmarkRule):
    """Select rows whose squared cosine to the span of earlier landmarks is below `epsilon`.

    Parameters
    ----------
    epsilon : float, default=0.5
        Bound on the squared cosine, between 0 and 1; a larger value allows more similar landmarks.
    n_init : int, default=1
        Number of rows that join the basis without a test.
    relax : bool, default=True
        If a pass finds fewer than `m` landmarks, True halves `1 - epsilon` and repeats the pass until the remaining rows are
        in the span of the basis up to rounding, and False returns the smaller basis.
    block_size : int, default=256
        Number of rows in a block that is tested one by one; the block size changes the time, not the result.

    See Also
    --------
    RPCholesky : Draws rows with probability proportional to the residual of their approximation.

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

    epsilon: float = 0.5
    n_init: int = 1
    relax: bool = True
    _: KW_ONLY
    block_size: int = 256

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must be between 0 and 1, got {self.epsilon!r}")
        order = rng.permutation(X.shape[0])
        basis = _Basis(X, kernel, m, self.block_size)
        gap = 1 - self.epsilon
        # A row passes if its 1 - cos^2 exceeds `gap`. A gap below the rounding error of a float64 factor, m eps of the
        # diagonal, would accept rows that are in the span of the basis.
        smallest_gap = 10 * m * float(np.finfo(np.float64).eps)
        basis.scan(order[: self.n_init], 1 - smallest_gap)
        order = order[self.n_init :]
        while True:
            if gap < _LEAST_FLOAT32_GAP:
                basis.use_double()
            left = basis.scan(order, 1 - gap)
            # `left` is the largest 1 - cos^2 of a rejected row. No row would pass a test with a larger gap, so tests with
            # larger gaps are skipped, and the passes over data of low rank end early.
            gap = min(gap, left) / 2
            if basis.size == m or not self.relax or gap < smallest_gap:
                return basis.members
            order = order[~np.isin(order, basis.members)]


class _Basis:
    """The basis and its growing Cholesky factor."""

    def __init__(self, X: Array, kernel: Kernel, m: int, block_size: int):
        self.X, self.kernel, self.m, self.block_size = X, kernel, m, block_size
        self.diagonal = to_host(kernel.diag(X))
        self.size = 0
        self._members = np.empty(m, dtype=np.intp)
        self._factor = xa.zeros((m, m), reference(X))

    @property
    def members(self) -> np.ndarray:
        return self._members[: self.size].copy()

    def scan(self, order: np.ndarray, epsilon: float) -> float:
        """Test rows in order until the basis is full; return the largest `1 - cos^2` of a rejected row."""
        start, left = 0, 0.0
        while start < len(order) and self.size < self.m:
            # Blocks start small: with a small basis nearly all rows of a large block would pass the first of its two tests.
            size = min(rows_per_block(self.m), max(self.block_size, 4 * self.size))
            block = order[start : start + size]
            start += size
            if len(block) > self.block_size:
                unexplained = 1 - self._explained(block)
                left = max(left, np.max(unexplained, where=unexplained <= 1 - epsilon, initial=0.0))
                block = block[unexplained > 1 - epsilon]
            for first in range(0, len(block), self.block_size):
                if self.size < self.m:
                    left = max(left, self._admit(block[first : first + self.block_size], epsilon))
        return left

    def use_double(self) -> None:
        """Continue in float64, with the factor recomputed from the data."""
        if xa.numpy_dtype(self._factor) == np.float64:
            return
        members, self.size = self.members, 0
        self._factor = xa.zeros((self.m, self.m), self._factor, np.float64)
        for start in range(0, len(members), self.block_size):
            # These rows are in the basis: their 1 - cos^2 exceeded the float32 error, so any squared cosine below 1 passes.
            self._admit(members[start : start + self.block_size], 1.0)

    def _half(self, rows: np.ndarray) -> Array:
        """Return `L^-1 K(G, rows)`."""
        K = cross(self.kernel, self.X, rows, self._members[: self.size], xa.numpy_dtype(self._factor))
        return xa.solve_triangular(self._factor[: self.size, : self.size], K.T)

    def _explained(self, rows: np.ndarray) -> np.ndarray:
        """Return the squared cosine of each row to the span of the basis; zero vectors have squared cosine one."""
        norms = to_host(xa.square_norms(self._half(rows).T))
        diagonal = self.diagonal[rows]
        return np.divide(norms, diagonal, out=np.ones_like(norms), where=diagonal > 0)

    def _admit(self, rows: np.ndarray, epsilon: float) -> float:
        """Test rows one by one and add rows that pass to the basis; return the largest `1 - cos^2` of a rejected row."""
        half = self._half(rows) if self.size else xa.zeros((0, len(rows)), self._factor)
        K = cross(self.kernel, self.X, rows, rows, xa.numpy_dtype(self._factor))
        unexplained = to_host(K) - to_host(half.T @ half)
        diagonal = self.diagonal[rows]
        admitted, L, left = eliminate(unexplained, (1 - epsilon) * diagonal, self.m - self.size)
        q, k = self.size, len(admitted)
        self._members[q : q + k] = rows[admitted]
        self._factor[q : q + k, :q] = xa.take_rows(half.T, admitted)
        self._factor[q : q + k, q : q + k] = xa.like(L, self._factor)
        self.size += k
        left[admitted] = 0.0
        return float(np.max(np.divide(left, diagonal, out=np.zeros_like(left), where=diagonal > 0)))
