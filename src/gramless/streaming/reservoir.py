"""Reservoir sampling: every row gets a random key, and the rows with the smallest keys are the sample.

The sample is drawn uniformly without replacement from all rows so far, in O(capacity) memory. Given the keys, it does not
depend on the batches.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless.streaming.sources import RowBlock, concatenate


class Reservoir:
    """Uniform sample of at most `capacity` rows."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.keys = np.empty(0)
        self.rows: RowBlock | None = None

    def add(self, rows: RowBlock, keys: np.ndarray) -> None:
        """Add rows with independent uniform keys."""
        if len(self.keys) == self.capacity:  # most rows are not sampled and need no copy
            enter = np.flatnonzero(keys < self.keys.max(initial=0.0))
            if not enter.size:
                return
            keys = keys[enter]
            rows = tuple(None if part is None else xa.take_rows(part, enter) for part in rows)  # type: ignore[assignment]
        self.keys = np.concatenate([self.keys, keys])
        self.rows = rows if self.rows is None else concatenate([self.rows, rows])
        if len(self.keys) > self.capacity:
            stay = np.sort(np.argpartition(self.keys, self.capacity)[: self.capacity])
            self.keys = self.keys[stay]
            self.rows = tuple(None if part is None else xa.take_rows(part, stay) for part in self.rows)  # type: ignore[assignment]
