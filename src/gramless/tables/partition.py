"""Many rows as a tree of neighbourhoods of about equal size.

A node splits its rows across the direction in which they spread most (the first principal axis), at the median or near it,
so that all leaves have about the same number of rows, at most `size`. A new row goes down the same tree. An exact solution
in each leaf costs `2 n size^2 / 3` in all instead of `2 n^3 / 3`; every row still carries the model of its neighbourhood.

Reference: Eberts and Steinwart, "Optimal learning rates for localized SVMs", 2015.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.threads import one_blas_thread

# Rows from which a direction is taken, for each column.
_SAMPLE_PER_COLUMN = 100


class Partition(BaseEstimator):
    """A tree of splits.

    Parameters
    ----------
    size : int
        The most rows of a leaf.

    Attributes
    ----------
    n_parts_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.tables.partition import Partition
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> tree = Partition(300).fit(X)
    >>> tree.n_parts_, np.bincount(tree.parts(X)).tolist()
    (4, [250, 250, 250, 250])
    """

    def __init__(self, size: int):
        self.size = size

    def fit(self, X: np.ndarray) -> Partition:
        """Split until every leaf is small enough."""
        self.directions_: list[np.ndarray] = []
        self.thresholds_: list[float] = []
        # Children of inner node k; a leaf is written as -1 - its number.
        self.children_: list[list[int]] = []
        self.n_parts_ = 0
        with one_blas_thread():
            self.root_ = self._split(X, np.arange(len(X)), -(-len(X) // self.size))
        return self

    def _split(self, X: np.ndarray, rows: np.ndarray, leaves: int) -> int:
        if leaves > 1 and len(rows) > 1:
            some = X[rows[:: max(1, len(rows) // (_SAMPLE_PER_COLUMN * X.shape[1]))]]
            some = some - some.mean(axis=0)
            values, vectors = np.linalg.eigh(some.T @ some)
            direction = vectors[:, -1]
            heights = X[rows] @ direction
            # The last row on the left, so that each side has its share of the leaves.
            last = len(rows) * (leaves // 2) // leaves - 1
            threshold = float(np.partition(heights, last)[last])
            right = heights > threshold
            if values[-1] > 0 and right.any():
                # Halfway to the next row, so that no row lies on the border, where rounding would decide.
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
        """The leaf of each row, 0 to `n_parts_ - 1`."""
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
