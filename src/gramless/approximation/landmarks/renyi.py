"""Landmarks of large quadratic Renyi entropy: training rows that are far from each other.

With the kernel as a Parzen window, the quadratic Renyi entropy of a set `S` of `m` points is

    H(S) = -log( 1/m^2 sum_{i, j in S} k(x_i, x_j) / sqrt(k(x_i, x_i) k(x_j, x_j)) )

The division has no effect for stationary kernels; without it, other kernels would prefer short vectors. The first point is
drawn at random; each further point has the smallest sum of kernel values with the chosen points, which maximises `H`.

For kernels without negative values the sums only grow. Points are chosen from a pool of the points with the smallest sums
until the smallest sum in the pool exceeds the smallest sum outside the pool; then all sums are updated by one block of
columns. The result is the same as if all sums were updated after each choice. For other kernels at most a quarter of a pool
is chosen before an update. Cost: O(n m d) time and one block of memory (Girolami 2002; Suykens et al. 2002, chapter 6).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.approximation.landmarks.rule import LandmarkRule, rows_per_block, to_host
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import cross


@dataclass(eq=False, repr=False)
class Renyi(LandmarkRule):
    """Select rows by greedy maximisation of the quadratic Renyi entropy.

    Parameters
    ----------
    candidates : int or None, default=None
        Number of random rows among which the rule selects; None is all rows. Fewer candidates contain fewer outliers, which
        the greedy rule prefers.
    pool_size : int, default=1024
        Maximum number of rows compared with each other at a time; it changes the time, not the result.

    See Also
    --------
    RPCholesky : Draws rows that are far from the span of earlier landmarks.

    References
    ----------
    Girolami, "Orthogonal series density estimation and the kernel eigenvalue problem", 2002.

    Suykens, Van Gestel, De Brabanter, De Moor and Vandewalle, "Least Squares Support Vector Machines", 2002, chapter 6.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import Renyi
    >>> X = np.repeat([[0.0], [1.0], [5.0]], 20, axis=0)
    >>> np.sort(X[Renyi().select(X, RBF(gamma=1.0), 3, np.random.RandomState(0))].ravel())
    array([0., 1., 5.])
    """

    candidates: int | None = None
    _: KW_ONLY
    pool_size: int = 1024

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        diagonal = np.sqrt(to_host(kernel.diag(X)))
        # A zero vector is chosen only if no other row is left.
        scale = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        allowed = np.arange(X.shape[0])
        if self.candidates is not None and self.candidates < X.shape[0]:
            allowed = rng.permutation(X.shape[0])[: max(self.candidates, m)]
        sums = np.where(scale > 0, 0.0, np.finfo(np.float64).max)
        chosen = allowed[rng.randint(len(allowed))][None]
        members = chosen
        while len(members) < m:
            sums[chosen] = np.inf
            _add(sums, X, kernel, scale, allowed, chosen)
            # The cost grows with the square of the pool size, so a pool has about 8 times as many rows as chosen last.
            size = int(np.clip(8 * len(chosen), 32, self.pool_size))
            chosen = _from_pool(sums, X, kernel, scale, allowed, size, m - len(members))
            members = np.concatenate([members, chosen])
        return members


def _add(sums: np.ndarray, X: Array, kernel: Kernel, scale: np.ndarray, allowed: np.ndarray, chosen: np.ndarray) -> None:
    """Add the kernel values with the chosen points to the sums of all points that may still be chosen."""
    for part in slices(len(allowed), rows_per_block(len(chosen))):
        rows = allowed[part] if len(allowed) < X.shape[0] else part
        block = cross(kernel, X, rows, chosen)
        sums[rows] += scale[rows] * to_host(block @ xa.like(scale[chosen], block))


def _from_pool(
    sums: np.ndarray, X: Array, kernel: Kernel, scale: np.ndarray, allowed: np.ndarray, size: int, at_most: int
) -> np.ndarray:
    """Choose points one by one from a pool of points with small sums, until a point outside may have a smaller sum."""
    size = min(size, len(allowed))
    nearest = np.argpartition(sums[allowed], size - 1)
    pool, rest = allowed[nearest[:size]], allowed[nearest[size:]]
    pool = pool[np.lexsort((pool, sums[pool]))]
    bound = sums[rest].min() if len(rest) else np.inf
    K = to_host(cross(kernel, X, pool, pool)) * np.outer(scale[pool], scale[pool])
    if K.min() < 0:
        at_most, bound = min(at_most, max(1, size // 4)), np.inf
    here = sums[pool].copy()
    picked: list[int] = []
    while len(picked) < at_most:
        best = int(np.argmin(here))
        if picked and not here[best] <= bound:
            break
        picked.append(best)
        here += K[best]
        here[best] = np.inf
    return pool[picked]
