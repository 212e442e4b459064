"""Where spherical k-means starts: random points, or points drawn far from each other (k-means++).

k-means++ draws each next centre with probability proportional to 1 - cos, the dissimilarity to the nearest centre so
far, which needs a pass over the data for each centre. Here candidates are drawn in batches from the distribution
before the batch and kept with the probability (dissimilarity now) / (dissimilarity then), which is the same
distribution exactly, because dissimilarities only fall; one matrix product then updates all points for the whole
batch. Time O(n k d) as matrix products, memory O(n). Reference: Arthur and Vassilvitskii, "k-means++: the advantages
of careful seeding", 2007.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array

# (points, centres) -> for each point the similarity to the nearest of the centres.
Nearest = Callable[[Array, Array], Array]


def random_points(mass: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k different points among those with mass, or any others once these are used up."""
    order = rng.permutation(len(mass))
    return order[np.argsort(mass[order] == 0, kind="stable")][:k]


def plus_plus(
    X: Array, unit: Callable[[np.ndarray], Array], nearest: Nearest, mass: np.ndarray, k: int, rng: np.random.Generator
) -> np.ndarray:
    """k points by k-means++.

    Parameters
    ----------
    X : array of shape (n, d)
    unit : callable
        Rows of X, given by their indices, scaled to unit norm.
    nearest : callable
        `nearest(X, centres)` is the cosine of every point with the nearest of the centres.
    mass : array of shape (n,)
        Weight of each point; zero for points that have no direction.
    k : int
    rng : numpy.random.Generator

    Returns
    -------
    array of k row indices, all different as long as there are different directions
    """
    chosen = [int(rng.choice(len(mass), p=mass / mass.sum()))] if mass.any() else []
    best = np.full(len(mass), -1.0)
    fresh = list(chosen)
    while chosen and len(chosen) < k:
        best = np.maximum(best, xa.to_numpy(nearest(X, unit(np.array(fresh)))))
        gap = mass * np.clip(1 - best, 0, None)
        # Rounding leaves a served point a little short of 1.
        gap[best > 1 - 1e-6] = 0
        total = np.cumsum(gap)
        if not total[-1] > 0:
            break
        # The more centres there are, the less a few of them change the distribution.
        draws = 1 + min(len(chosen) // 4, 255)
        drawn = np.searchsorted(total, rng.random(draws) * total[-1], side="right")
        keep = rng.random(draws)
        candidates = unit(drawn)
        among = xa.to_numpy(candidates @ candidates.T)
        fresh_positions: list[int] = []
        for i in range(draws):
            similarity = max(best[drawn[i]], among[i, fresh_positions].max(initial=-1.0))
            still = 1 - similarity if similarity <= 1 - 1e-6 else 0.0
            if keep[i] * (1 - best[drawn[i]]) < still and len(chosen) + len(fresh_positions) < k:
                fresh_positions.append(i)
        fresh = [int(drawn[i]) for i in fresh_positions]
        chosen += fresh
    if len(chosen) < k:
        spare = np.ones(len(mass))
        spare[chosen] = 0
        chosen += random_points(spare, k - len(chosen), rng).tolist()
    return np.array(chosen)
