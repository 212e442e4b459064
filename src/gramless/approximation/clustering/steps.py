"""The steps of spherical k-means: assign the points, turn the centres, find points for empty clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads, run_threads, slices

# A point whose cosine with its centroid is this close to 1 is served as well as rounding allows.
SERVED = 1 - 1e-6


# (worker, rows of X, those rows, their labels): called for each tile while it is in cache.
Visit = Callable[[int, slice, Array, Array], None]


def workers_for(X: Array, k: int) -> int:
    """Threads to share tiles among, not so many that one array of k sums for each outgrows the data."""
    return 1 if xa.is_torch(X) else max(1, min(blas_threads(), X.shape[0] // k))


def nearest(
    X: Array, centres: Array, labels: Array | None = None, cosines: Array | None = None, visit: Visit | None = None
) -> tuple[Array, Array]:
    """For every row of X the centre with the largest inner product, and that product.

    One tile of the product exists per thread. The rows of X need not have unit norm: the label does not depend on it.
    """
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
    """Weight of each row; none where there is no direction."""
    return np.where(xa.to_numpy(scale) > 0, 1.0 if weights is None else weights, 0.0)


def inertia_of(cosines: Array, scale: Array, mass: np.ndarray) -> float:
    gaps = 1 - xa.to_numpy(cosines * scale).astype(np.float64)
    return float(np.clip(gaps, 0, None) @ mass)


def turn(centres: Array, sums: Array, counts: np.ndarray) -> np.ndarray:
    """Point the centres along the sums, in place; how far each has moved, |new - old|.

    A cluster without points keeps its centre, as does one whose points cancel.
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
    """1 - mean <new, old> of unit vectors, from their distances."""
    return float(np.mean(chords**2)) / 2


def reseed(cosines: Array, scale: Array, mass: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Clusters without points, and the worst-served point for each; fewer where no more are badly served."""
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return empty, empty
    served = np.where(mass > 0, xa.to_numpy(cosines * scale), 1.0)
    worst = np.argsort(served, kind="stable")[: len(empty)]
    worst = worst[served[worst] < SERVED]
    return empty[: len(worst)], worst
