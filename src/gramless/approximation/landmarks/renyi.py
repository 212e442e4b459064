"""Landmarks of large quadratic Renyi entropy: spread where the data is, apart from each other.

With the kernel as a Parzen window, the quadratic Renyi entropy of a set `S` of `m` points is

    H(S) = -log( 1/m^2 sum_{i, j in S} k(x_i, x_j) / sqrt(k(x_i, x_i) k(x_j, x_j)) )

(the division changes nothing for stationary kernels, and keeps others from preferring short vectors). The rule adds
the point that leaves `H` largest: the one with the smallest sum of kernel values to those already chosen. The first is
drawn at random.

One column of kernel values for each point chosen would be n m d operations as matrix-vector products. Sums only grow
for kernels with no negative values, so the smallest sums of the last pass bound all others from below: points are
chosen among a pool of those until one exceeds the bound, and the whole is brought up to date by one block of columns.
The choice is that of the one-by-one method for kernels that are nowhere negative; for others each pool is exhausted by
a quarter at most. O(n m d) time, one block of memory (Girolami 2002; Suykens et al. 2002, chapter 6).
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.approximation.landmarks.rule import LandmarkRule, cross, host, rows_at_a_time
from gramless.kernels.base import Kernel


class Renyi(LandmarkRule):
    """Greedy maximisation of the quadratic Renyi entropy.

    Parameters
    ----------
    candidates : int or None, default=None
        Choose among this many points drawn at random; None is all of them. The greedy choice looks at extremes: with fewer
        candidates it meets fewer outliers.
    pool_size : int, default=1024
        The most points compared with each other at a time. Changes the time, not the choice.

    See Also
    --------
    RPCholesky : Landmarks apart from each other, drawn and not chosen.

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

    def __init__(self, candidates: int | None = None, *, pool_size: int = 1024):
        self.candidates = candidates
        self.pool_size = pool_size

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        diagonal = np.sqrt(host(kernel.diag(X)))
        # A zero vector has no direction and no entropy to add; it can only be chosen when nothing else is left.
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
            # A pool costs the square of its size: no larger than a few times what the last one gave.
            size = int(np.clip(8 * len(chosen), 32, self.pool_size))
            chosen = _from_pool(sums, X, kernel, scale, allowed, size, m - len(members))
            members = np.concatenate([members, chosen])
        return members


def _add(sums: np.ndarray, X: Array, kernel: Kernel, scale: np.ndarray, allowed: np.ndarray, chosen: np.ndarray) -> None:
    """Add the kernel values to the chosen points, for every point that may still be chosen."""
    for part in slices(len(allowed), rows_at_a_time(len(chosen))):
        rows = allowed[part] if len(allowed) < X.shape[0] else part
        block = cross(kernel, X, rows, chosen)
        sums[rows] += scale[rows] * host(block @ xa.like(scale[chosen], block))


def _from_pool(
    sums: np.ndarray, X: Array, kernel: Kernel, scale: np.ndarray, allowed: np.ndarray, size: int, at_most: int
) -> np.ndarray:
    """Choose one point after the other among those with the smallest sums, while they are sure to be the best."""
    size = min(size, len(allowed))
    nearest = np.argpartition(sums[allowed], size - 1)
    pool, rest = allowed[nearest[:size]], allowed[nearest[size:]]
    pool = pool[np.lexsort((pool, sums[pool]))]
    bound = sums[rest].min() if len(rest) else np.inf
    K = host(cross(kernel, X, pool, pool)) * np.outer(scale[pool], scale[pool])
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
