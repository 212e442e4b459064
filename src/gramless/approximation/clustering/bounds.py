"""Assignment of spherical k-means that skips points whose label cannot have changed.

Angles are a metric on the sphere. If a point's angle to its own centroid is at most `upper` and to every other centroid at
least `lower`, a rotation of the centroids by the angles `drift` changes these bounds to

    upper + drift[own],    lower - max drift of the others,

and a point with upper < lower keeps its label (Hamerly, "Making k-means even faster", 2010). A few centroids with a large
drift would loosen `lower` of all points. Such centroids are therefore excluded from the maximum, and their angles to all
points are computed; their number minimises the work of an assignment. The labels are the same as without bounds.

Time O(n m d + s k d) for n points, k centroids, m excluded centroids and s points whose label the bounds do not determine,
instead of O(n k d); memory O(n).
"""

from __future__ import annotations

import numpy as np

from gramless._core.threads import CPU_TILE, run_threads, slices
from gramless.approximation.clustering.steps import Visit, workers_for
from gramless.approximation.tuning import TUNING, ApproximationTuning


class AngleBounds:
    """Labels of the points and bounds on angles to the centroids; `scale` is 1 / norm of each row, or 0 for a zero row."""

    def __init__(self, X: np.ndarray, scale: np.ndarray, tuning: ApproximationTuning = TUNING):
        self.tuning = tuning
        self.X, self.scale = X, scale
        self.labels = np.zeros(X.shape[0], np.int64)
        self.upper = np.full(X.shape[0], np.inf)
        self.lower = np.full(X.shape[0], -np.inf)
        # The rounding error of a small angle is the square root of the rounding error of its cosine.
        self.slack = 4 * float(np.finfo(X.dtype).eps) ** 0.5
        # Number of inner products that the last assignment computed, divided by n k.
        self.computed = 0.0

    def reset(self, points: np.ndarray) -> None:
        """Reset the bounds of points whose label was changed by the caller."""
        self.upper[points] = np.inf

    def assign(self, centres: np.ndarray, drift: np.ndarray | None, visit: Visit) -> None:
        """Assign each point to its nearest centroid; `drift` has the rotations since the last call (None in the first call).

        `visit` is called for each tile of rows after its labels were updated.
        """
        n, k = self.X.shape[0], centres.shape[0]
        far = np.arange(0) if drift is None else self._loosen(drift)
        place = np.full(k, -1)
        place[far] = np.arange(len(far))
        excluded = np.ascontiguousarray(centres[far])
        workers = workers_for(self.X, k)
        tiles = slices(n, max(1, min(CPU_TILE, -(-n // workers))))
        n_assigned = np.zeros(workers, np.int64)

        def work(worker: int) -> None:
            buffer = np.empty((tiles[0].stop, min(CPU_TILE, max(k, 1))), self.X.dtype)
            for rows in tiles[worker::workers]:
                part = self.X[rows]
                if len(far):
                    self._update_excluded(rows, part, excluded, place, buffer)
                undecided = self.upper[rows] + self.slack >= self.lower[rows]
                if drift is not None:
                    undecided &= self.scale[rows] > 0
                idx = np.flatnonzero(undecided)
                if len(idx):
                    self._assign_fully(rows, idx, part if len(idx) == len(part) else part[idx], centres, buffer)
                n_assigned[worker] += len(idx)
                visit(worker, rows, part, self.labels[rows])

        run_threads(work, workers)
        self.computed = len(far) / k + n_assigned.sum() / n

    def _loosen(self, drift: np.ndarray) -> np.ndarray:
        """Loosen the bounds by the angles `drift`; return the indices of the centroids whose angles have to be computed."""
        k = len(drift)
        self.upper += drift[self.labels]
        order = np.argsort(-drift, kind="stable")
        gap = self.lower - self.upper - self.slack
        counts = sorted({int(fraction * k) for fraction in self.tuning.excluded_fractions})
        columns = [count + self.tuning.product_overhead_columns if count else 0 for count in counts]
        work = [c / k + np.mean(gap <= drift[order[count]]) for c, count in zip(columns, counts, strict=True)]
        best = int(np.argmin(work))
        if work[best] > self.tuning.largest_bounded_work:
            self.upper[:] = np.inf
            return order[:0]
        self.lower -= drift[order[counts[best]]]
        return np.sort(order[: counts[best]])

    def _update_excluded(
        self, rows: slice, part: np.ndarray, excluded: np.ndarray, place: np.ndarray, buffer: np.ndarray
    ) -> None:
        """Update the bounds of a tile of rows by the angles of the rows to the excluded centroids."""
        scale, lower, upper = self.scale[rows], self.lower[rows], self.upper[rows]
        for columns in slices(len(excluded), buffer.shape[1]):
            out = buffer[: len(part), : columns.stop - columns.start]
            np.matmul(part, excluded[columns].T, out=out)
            own = place[self.labels[rows]] - columns.start
            here = np.flatnonzero((own >= 0) & (own < out.shape[1]))
            upper[here] = _angle(out[here, own[here]], scale[here])
            out[here, own[here]] = -np.inf
            np.minimum(lower, _angle(out.max(axis=1), scale), out=lower)

    def _assign_fully(
        self, rows: slice, idx: np.ndarray, points: np.ndarray, centres: np.ndarray, buffer: np.ndarray
    ) -> None:
        """Compute the labels and exact bounds of the rows `idx` of a tile from the products with all centroids."""
        all_rows = np.arange(len(points))
        label = np.zeros(len(points), np.int64)
        best = np.full(len(points), -np.inf, self.X.dtype)
        second = best.copy()
        for columns in slices(len(centres), buffer.shape[1]):
            out = buffer[: len(points), : columns.stop - columns.start]
            np.matmul(points, centres[columns].T, out=out)
            found = out.argmax(axis=1)
            value = out[all_rows, found]
            out[all_rows, found] = -np.inf
            second = np.maximum(np.maximum(second, out.max(axis=1)), np.minimum(best, value))
            label = np.where(value > best, found + columns.start, label)
            best = np.maximum(best, value)
        scale = self.scale[rows][idx]
        self.labels[rows][idx] = label
        self.upper[rows][idx] = _angle(best, scale)
        self.lower[rows][idx] = _angle(second, scale)


def _angle(product: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return angles, given inner products; an inner product of minus infinity (no centroid) gives the largest angle."""
    cosine = np.where(scale > 0, product, 0) * scale
    return np.arccos(np.clip(cosine, -1, 1).astype(np.float64))
