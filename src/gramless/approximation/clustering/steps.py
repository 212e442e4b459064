"""The steps of spherical k-means: assign points, update centroids, and find points for empty clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads, run_threads, slices

# A point with a larger cosine coincides with its centroid up to rounding.
_COINCIDENT = 1 - 1e-6


# Function (worker, range of rows, rows, labels) that is called for each tile while the tile is in the processor cache.
Visit = Callable[[int, slice, Array, Array], None]


def workers_for(X: Array, k: int) -> int:
    """Return the number of threads, limited so that their arrays of k sums are not larger than the data."""
    return 1 if xa.is_torch(X) else max(1, min(blas_threads(), X.shape[0] // k))


def nearest(
    X: Array, centres: Array, labels: Array | None = None, cosines: Array | None = None, visit: Visit | None = None
) -> tuple[Array, Array]:
    """Return for each row of `X` the centroid with the largest inner product, and that product, with one tile per thread."""
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
    """Return the weighted sum of 1 - cos."""
    gaps = 1 - xa.to_numpy(cosines * scale).astype(np.float64)
    return float(np.clip(gaps, 0, None) @ mass)


def update_centroids(centres: Array, sums: Array, counts: np.ndarray) -> np.ndarray:
    """Set the centroids to the normalised sums in place; return the distances |new - old|.

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
    """Return 1 - mean <new, old> of unit vectors from their distances."""
    return float(np.mean(chords**2)) / 2


def reseed(cosines: Array, scale: Array, mass: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return empty clusters and for each a point far from its centroid; fewer if fewer points differ from their centroid."""
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return empty, empty
    similarity = np.where(mass > 0, xa.to_numpy(cosines * scale), 1.0)
    worst = np.argsort(similarity, kind="stable")[: len(empty)]
    worst = worst[similarity[worst] < _COINCIDENT]
    return empty[: len(worst)], worst
