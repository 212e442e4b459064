"""A fixed number of passes of spherical k-means from random points, for dictionaries of patches.

    label_i = argmax_q <x_i, m_q>,    m_q <- sum_{label_i = q} x_i / ||x_i||, scaled to unit norm.

Unlike `gramless.SphericalKMeans` it has no stopping rule, bounds or history. Time O(passes n k d), memory O(n + k d) in
addition to the points. Reference: Coates and Ng, "Learning feature representations with k-means", 2012.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.clustering.starts import random_points
from gramless.approximation.clustering.steps import nearest, reseed, update_centroids, workers_for


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
