"""Binary tree that partitions the rows of a table into leaves of about equal size.

A node splits its rows along their first principal axis, at or near the median, so that all leaves have about the same number
of rows, at most `size`. A new row is assigned to a leaf by the same splits. One exact solution for each leaf takes
`2 n size^2 / 3` operations for all leaves together, instead of `2 n^3 / 3` for one solution of all `n` rows.

Reference: Eberts and Steinwart, "Optimal learning rates for localized SVMs", 2015.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.threads import one_blas_thread

# Sampled rows per column for the estimate of a principal axis.
_ROWS_PER_COLUMN = 100


class Partition(BaseEstimator):
    """Partition of rows into leaves of at most `size` rows; `n_parts_` is the number of leaves."""

    def __init__(self, size: int):
        self.size = size

    def fit(self, X: np.ndarray) -> Partition:
        """Split the rows of `X` until every leaf has at most `size` rows."""
        self.directions_: list[np.ndarray] = []
        self.thresholds_: list[float] = []
        # `children_[k]` has the two children of inner node k; leaf m is stored as -1 - m.
        self.children_: list[list[int]] = []
        self.n_parts_ = 0
        with one_blas_thread():
            self.root_ = self._split(X, np.arange(len(X)), -(-len(X) // self.size))
        return self

    def _split(self, X: np.ndarray, rows: np.ndarray, leaves: int) -> int:
        if leaves > 1 and len(rows) > 1:
            sample = X[rows[:: max(1, len(rows) // (_ROWS_PER_COLUMN * X.shape[1]))]]
            sample = sample - sample.mean(axis=0)
            values, vectors = np.linalg.eigh(sample.T @ sample)
            direction = vectors[:, -1]
            heights = X[rows] @ direction
            # The last row of the left child: the children get rows in proportion to their numbers of leaves.
            last = len(rows) * (leaves // 2) // leaves - 1
            threshold = float(np.partition(heights, last)[last])
            right = heights > threshold
            if values[-1] > 0 and right.any():
                # Threshold halfway to the next row, so that rounding errors do not change the side of a row.
                after = float(heights[right].min())
                middle = threshold + (after - threshold) / 2
                threshold = middle if middle < after else threshold
                node = len(self.children_)
                self.directions_.append(direction)
                self.thresholds_.append(threshold)
                self.children_.append([0, 0])
                self.children_[node] = [
                    self._split(X, rows[~right], leaves // 2),
                    self._split(X, rows[right], leaves - leaves // 2),
                ]
                return node
        self.n_parts_ += 1
        return -self.n_parts_

    def parts(self, X: np.ndarray) -> np.ndarray:
        """Return the number of the leaf of each row of `X`, from 0 to `n_parts_ - 1`."""
        found = np.zeros(len(X), dtype=np.intp)
        waiting = [(self.root_, np.arange(len(X)))]
        while waiting:
            node, rows = waiting.pop()
            if node < 0:
                found[rows] = -1 - node
                continue
            right = X[rows] @ self.directions_[node] > self.thresholds_[node]
            waiting += [(self.children_[node][0], rows[~right]), (self.children_[node][1], rows[right])]
        return found
