"""Assignments of spherical k-means that leave out what cannot have changed.

Angles are a metric on the sphere. Once a point's angle to its own centre is known to be at most `upper` and to every other
centre at least `lower`, a turn of the centres by `drift` changes these to

    upper + drift[own],    lower - max drift of the others,

and a point with upper < lower keeps its label unseen (Hamerly, "Making k-means even faster", 2010). A few centres that turn
far would spoil the bound of every point, so the far turners are taken out of it and multiplied with all points instead; how
many is chosen anew each time for the least work. The labels are those of the full product.

Time O(n m d + s k d) for m far turners and s points in doubt, instead of O(n k d); memory O(n) beside one tile per thread.
"""

from __future__ import annotations

import numpy as np

from gramless._core.threads import CPU_TILE, run_threads, slices
from gramless.approximation.clustering.steps import Visit, workers_for

# Shares of the centres that may be taken out of the bound.
SHARES = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
# A product with few columns takes as long as if it had so many more.
MORE_COLUMNS = 12
# Above this share of the full product, the full product is simpler and no slower.
WORTHWHILE = 0.9


class Bounds:
    """Labels of the points, and bounds on their angles from one assignment to the next.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    scale : ndarray of shape (n,)
        1 / norm of each row; 0 for a zero row, which stays with the first centre.
    """

    def __init__(self, X: np.ndarray, scale: np.ndarray):
        self.X, self.scale = X, scale
        self.labels = np.zeros(X.shape[0], np.int64)
        self.upper = np.full(X.shape[0], np.inf)
        self.lower = np.full(X.shape[0], -np.inf)
        # An inner product is rounded, and small angles magnify that to its square root.
        self.slack = 4 * float(np.finfo(X.dtype).eps) ** 0.5
        self.computed = 0.0
        """Share of the full product that the last assignment computed."""

    def reset(self, points: np.ndarray) -> None:
        """Points whose label was set from outside are looked at next time."""
        self.upper[points] = np.inf

    def assign(self, centres: np.ndarray, drift: np.ndarray | None, visit: Visit) -> None:
        """Update the labels to the nearest centres.

        Parameters
        ----------
        centres : ndarray of shape (k, d)
        drift : ndarray of shape (k,) or None
            The angles by which the centres have turned since the last assignment; None before the first.
        visit : callable
            Called for each tile of rows when its labels are known.
        """
        n, k = self.X.shape[0], centres.shape[0]
        far = np.arange(0) if drift is None else self._loosen(drift)
        place = np.full(k, -1)
        place[far] = np.arange(len(far))
        turned = np.ascontiguousarray(centres[far])
        workers = workers_for(self.X, k)
        tiles = slices(n, max(1, min(CPU_TILE, -(-n // workers))))
        looked_at = np.zeros(workers, np.int64)

        def work(worker: int) -> None:
            buffer = np.empty((tiles[0].stop, min(CPU_TILE, max(k, 1))), self.X.dtype)
            for rows in tiles[worker::workers]:
                part = self.X[rows]
                if len(far):
                    self._multiply_far(rows, part, turned, place, buffer)
                doubtful = self.upper[rows] + self.slack >= self.lower[rows]
                if drift is not None:
                    doubtful &= self.scale[rows] > 0
                idx = np.flatnonzero(doubtful)
                if len(idx):
                    self._look_at(rows, idx, part if len(idx) == len(part) else part[idx], centres, buffer)
                looked_at[worker] += len(idx)
                visit(worker, rows, part, self.labels[rows])

        run_threads(work, workers)
        self.computed = len(far) / k + looked_at.sum() / n

    def _loosen(self, drift: np.ndarray) -> np.ndarray:
        """Widen the bounds by the turn of the centres; those that are taken out of it."""
        k = len(drift)
        self.upper += drift[self.labels]
        order = np.argsort(-drift, kind="stable")
        room = self.lower - self.upper - self.slack
        counts = sorted({int(share * k) for share in SHARES})
        columns = [count + MORE_COLUMNS if count else 0 for count in counts]
        work = [c / k + np.mean(room <= drift[order[count]]) for c, count in zip(columns, counts, strict=True)]
        best = int(np.argmin(work))
        if work[best] > WORTHWHILE:
            self.upper[:] = np.inf
            return order[:0]
        self.lower -= drift[order[counts[best]]]
        return np.sort(order[: counts[best]])

    def _multiply_far(
        self, rows: slice, part: np.ndarray, turned: np.ndarray, place: np.ndarray, buffer: np.ndarray
    ) -> None:
        """Bring the far turners into the bounds of some rows."""
        scale, lower, upper = self.scale[rows], self.lower[rows], self.upper[rows]
        for columns in slices(len(turned), buffer.shape[1]):
            out = buffer[: len(part), : columns.stop - columns.start]
            np.matmul(part, turned[columns].T, out=out)
            own = place[self.labels[rows]] - columns.start
            here = np.flatnonzero((own >= 0) & (own < out.shape[1]))
            upper[here] = _angle(out[here, own[here]], scale[here])
            out[here, own[here]] = -np.inf
            np.minimum(lower, _angle(out.max(axis=1), scale), out=lower)

    def _look_at(self, rows: slice, idx: np.ndarray, points: np.ndarray, centres: np.ndarray, buffer: np.ndarray) -> None:
        """The full product for some rows: their labels and exact bounds."""
        every = np.arange(len(points))
        label = np.zeros(len(points), np.int64)
        best = np.full(len(points), -np.inf, self.X.dtype)
        second = best.copy()
        for columns in slices(len(centres), buffer.shape[1]):
            out = buffer[: len(points), : columns.stop - columns.start]
            np.matmul(points, centres[columns].T, out=out)
            found = out.argmax(axis=1)
            value = out[every, found]
            out[every, found] = -np.inf
            second = np.maximum(np.maximum(second, out.max(axis=1)), np.minimum(best, value))
            label = np.where(value > best, found + columns.start, label)
            best = np.maximum(best, value)
        scale = self.scale[rows][idx]
        self.labels[rows][idx] = label
        self.upper[rows][idx] = _angle(best, scale)
        self.lower[rows][idx] = _angle(second, scale)


def _angle(product: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Angles from inner products; minus infinity stands for no centre and is as far as can be."""
    cosine = np.where(scale > 0, product, 0) * scale
    return np.arccos(np.clip(cosine, -1, 1).astype(np.float64))
