"""The steps of spherical k-means: initial centroids, assignment, update and reseeding, and an iteration of fixed length.

k-means++ draws each centroid with probability proportional to 1 - cos, the distance to the nearest centroid so far, which
needs a pass over the data for each centroid. Here candidates are drawn in batches from the distribution before the batch and
accepted with probability (current distance) / (distance before the batch). The accepted points have the distribution of
k-means++, because distances only decrease. One matrix product updates all distances for a batch: O(n k d) time, O(n) memory.

`common_directions` starts from random points and makes a fixed number of passes, for dictionaries of image patches: unlike
`gramless.SphericalKMeans`, this function has no stopping rule, bounds or history.

References: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", 2007; Coates and Ng, "Learning feature
representations with k-means", 2012.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads, run_threads, slices

# A point whose cosine to its centroid is above this number coincides with the centroid up to rounding.
_COINCIDENT = 1 - 1e-6


# Function (worker, range of rows, rows, labels) that is called for each tile while the tile is in the processor cache.
Visit = Callable[[int, slice, Array, Array], None]


def workers_for(X: Array, k: int) -> int:
    """Return the number of threads, limited so that the arrays of k sums of all threads are not larger than the data.

    Data of at most one tile uses one thread, so that the sums do not depend on the number of processor cores.
    """
    return 1 if xa.is_torch(X) or X.shape[0] <= CPU_TILE else max(1, min(blas_threads(), X.shape[0] // k))


def nearest(
    X: Array, centres: Array, labels: Array | None = None, cosines: Array | None = None, visit: Visit | None = None
) -> tuple[Array, Array]:
    """Return for each row of `X` the index of the centroid with the largest inner product, and this inner product."""
    n, k = X.shape[0], centres.shape[0]
    labels = xa.zeros((n,), X, np.int64) if labels is None else labels
    cosines = xa.empty((n,), X) if cosines is None else cosines
    edge = CUDA_TILE if xa.device_of(X).startswith("cuda") else CPU_TILE
    workers = workers_for(X, k)
    tiles = slices(n, max(1, min(edge, -(-n // workers))))

    def work(worker: int) -> None:
        buffer = xa.empty((tiles[0].stop, min(edge, k)), X)
        for rows in tiles[worker::workers]:
            part = X[rows]
            for columns in slices(k, edge):
                out = buffer[: part.shape[0], : columns.stop - columns.start]
                found, value = xa.row_argmax(xa.matmul(part, centres[columns].T, out=out))
                if columns.start == 0:
                    labels[rows], cosines[rows] = found, value
                else:
                    better = value > cosines[rows]
                    labels[rows][better] = found[better] + columns.start
                    cosines[rows][better] = value[better]
            if visit is not None:
                visit(worker, rows, part, labels[rows])

    run_threads(work, workers)
    return labels, cosines


def mass_of(scale: Array, weights: np.ndarray | None) -> np.ndarray:
    """Return the weight of each row; zero rows have weight zero."""
    return np.where(xa.to_numpy(scale) > 0, 1.0 if weights is None else weights, 0.0)


def inertia_of(cosines: Array, scale: Array, mass: np.ndarray) -> float:
    """Return the weighted sum of 1 - cos over the points, for the cosine of each point with its centroid."""
    gaps = 1 - xa.to_numpy(cosines * scale).astype(np.float64)
    return float(np.clip(gaps, 0, None) @ mass)


def update_centroids(centres: Array, sums: Array, counts: np.ndarray) -> np.ndarray:
    """Set the centroids to the normalised sums in place; return the distance |new - old| of each centroid.

    A cluster without points, or with sum zero, keeps its centroid.
    """
    xp = xa.namespace(sums)
    norms = xa.sqrt_(xa.square_norms(sums))
    alive = xa.indices(counts > 0, sums) & (norms > 0)
    new = sums / xp.where(alive, norms, norms * 0 + 1)[:, None]
    new = xa.astype(xp.where(alive[:, None], new, xa.astype(centres, np.float64)), xa.numpy_dtype(centres))
    chords = xa.to_numpy(xa.square_norms(new - centres)).astype(np.float64) ** 0.5
    centres[...] = new
    return chords


def deviation_of(chords: np.ndarray) -> float:
    """Return the mean of `1 - <new, old>` over pairs of unit vectors, given the distance of each pair."""
    return float(np.mean(chords**2)) / 2


def reseed(cosines: Array, scale: Array, mass: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of empty clusters and of equally many points that are farthest from their centroids."""
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return empty, empty
    similarity = np.where(mass > 0, xa.to_numpy(cosines * scale), 1.0)
    worst = np.argsort(similarity, kind="stable")[: len(empty)]
    worst = worst[similarity[worst] < _COINCIDENT]
    return empty[: len(worst)], worst


# Function (points, centroids) that returns the cosine of each point with the nearest centroid.
Nearest = Callable[[Array, Array], Array]


def random_points(mass: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of `k` different random points; points of weight zero are used only if there are too few others."""
    order = rng.permutation(len(mass))
    return order[np.argsort(mass[order] == 0, kind="stable")][:k]


def plus_plus(
    X: Array, unit: Callable[[np.ndarray], Array], nearest: Nearest, mass: np.ndarray, k: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the indices of `k` points chosen by k-means++, with different directions if the data has `k` of them.

    `unit(idx)` returns rows of `X` scaled to unit norm, and `mass` has the weight of each point, zero for zero rows.
    """
    chosen = [int(rng.choice(len(mass), p=mass / mass.sum()))] if mass.any() else []
    best = np.full(len(mass), -1.0)
    fresh = list(chosen)
    while chosen and len(chosen) < k:
        best = np.maximum(best, xa.to_numpy(nearest(X, unit(np.array(fresh)))))
        gap = mass * np.clip(1 - best, 0, None)
        # The cosine of a point with itself may be below 1 by rounding.
        gap[best > _COINCIDENT] = 0
        total = np.cumsum(gap)
        if not total[-1] > 0:
            break
        # The batches grow, because each new centroid changes the distribution less if there are more centroids.
        draws = 1 + min(len(chosen) // 4, 255)
        drawn = np.searchsorted(total, rng.random(draws) * total[-1], side="right")
        keep = rng.random(draws)
        candidates = unit(drawn)
        among = xa.to_numpy(candidates @ candidates.T)
        fresh_positions: list[int] = []
        for i in range(draws):
            similarity = max(best[drawn[i]], among[i, fresh_positions].max(initial=-1.0))
            still = 1 - similarity if similarity <= _COINCIDENT else 0.0
            if keep[i] * (1 - best[drawn[i]]) < still and len(chosen) + len(fresh_positions) < k:
                fresh_positions.append(i)
        fresh = [int(drawn[i]) for i in fresh_positions]
        chosen += fresh
    if len(chosen) < k:
        spare = np.ones(len(mass))
        spare[chosen] = 0
        chosen += random_points(spare, k - len(chosen), rng).tolist()
    return np.array(chosen)


def common_directions(
    X: Array, k: int, passes: int, rng: np.random.Generator, report: Callable[[int], None] | None = None
) -> Array:
    """Return `k` unit vectors, the centroids of the directions of the rows of `X`; zero rows are ignored.

    `report(n)` is called after pass `n`. If the rows have fewer than `k` different directions, vectors repeat.
    """
    xp = xa.namespace(X)
    norms = xa.sqrt_(xa.square_norms(X))
    scale = xp.where(norms > 0, 1 / xp.where(norms > 0, norms, norms + 1), norms)
    mass = xa.to_numpy(scale > 0).astype(np.float64)
    start = random_points(mass, k, rng)
    centres = xa.take_rows(X, start) * xa.take_rows(scale, start)[:, None]
    unset = xa.zeros((X.shape[0],), X, np.int64) - 1
    for done in range(passes):
        sums = [xa.zeros((k, X.shape[1]), X, np.float64) for _ in range(workers_for(X, k))]

        def add(worker: int, rows: slice, part: Array, labels: Array, sums: list[Array] = sums) -> None:
            xa.move_rows_(sums[worker], part, unset[rows], labels, scale[rows])

        labels, cosines = nearest(X, centres, visit=add)
        counts = np.bincount(xa.to_numpy(labels), mass, minlength=k)
        total = sum(sums[1:], sums[0])
        empty, worst = reseed(cosines, scale, mass, counts)
        if len(empty):
            points, to = xa.indices(worst, X), xa.indices(empty, X)
            xa.move_rows_(total, X[points], labels[points], to, scale[points])
            counts[empty] = 1
        update_centroids(centres, total, counts)
        if report is not None:
            report(done + 1)
    return centres
