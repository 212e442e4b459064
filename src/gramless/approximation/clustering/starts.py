"""Initial centroids of spherical k-means: random points, or points far from each other (k-means++).

k-means++ draws each centroid with probability proportional to 1 - cos, the distance to the nearest centroid so far, which
needs a pass over the data for each centroid. Here candidates are drawn in batches from the distribution before the batch and
accepted with probability (distance now) / (distance then). This is the same distribution, because distances only decrease,
and one matrix product updates all points for the batch. Time O(n k d) as matrix products, memory O(n).

Reference: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", 2007.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array

# Function (points, centroids) that returns the cosine of each point with the nearest centroid.
Nearest = Callable[[Array, Array], Array]


def random_points(mass: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return `k` different random points, those with positive weight first."""
    order = rng.permutation(len(mass))
    return order[np.argsort(mass[order] == 0, kind="stable")][:k]


def plus_plus(
    X: Array, unit: Callable[[np.ndarray], Array], nearest: Nearest, mass: np.ndarray, k: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the indices of `k` points chosen by k-means++; different if there are enough directions.

    `unit(idx)` returns rows of `X` scaled to unit norm, and `mass` has the weight of each point, zero for zero rows.
    """
    chosen = [int(rng.choice(len(mass), p=mass / mass.sum()))] if mass.any() else []
    best = np.full(len(mass), -1.0)
    fresh = list(chosen)
    while chosen and len(chosen) < k:
        best = np.maximum(best, xa.to_numpy(nearest(X, unit(np.array(fresh)))))
        gap = mass * np.clip(1 - best, 0, None)
        # The cosine of a point with itself may be below 1 by rounding.
        gap[best > 1 - 1e-6] = 0
        total = np.cumsum(gap)
        if not total[-1] > 0:
            break
        # The more centroids there are, the less a batch changes the distribution.
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
