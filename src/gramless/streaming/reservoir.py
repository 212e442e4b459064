"""Reservoir sampling: every row gets a random key, and the rows with the smallest keys are the sample.

The sample is drawn uniformly without replacement from all rows so far, in O(capacity) memory. For given keys, the sample
does not depend on how the rows are divided into batches.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.random import sample_without_replacement

from gramless.streaming.sources import RowBlock, concatenate, rows_of

# Largest number of rows for which `draw` permutes all row numbers and takes the first; 10^7 row numbers take 80 MB.
_PERMUTED_ROWS = 10**7


def draw(n: int, size: int, rng: np.random.RandomState) -> np.ndarray:
    """Return the sorted indices of `size` rows drawn at random from `n` rows, or of all `n` rows if `size` is larger."""
    if n <= _PERMUTED_ROWS:
        return np.sort(rng.permutation(n)[:size])
    return np.sort(sample_without_replacement(n, min(size, n), random_state=rng))


class Reservoir:
    """Uniform sample of at most `capacity` rows."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.keys = np.empty(0)
        self.rows: RowBlock | None = None

    def add(self, rows: RowBlock, keys: np.ndarray) -> None:
        """Update the sample with more rows; `keys` has an independent uniform random number for each row."""
        if len(self.keys) == self.capacity:  # most rows do not enter the sample and are not copied
            enter = np.flatnonzero(keys < self.keys.max(initial=0.0))
            if not enter.size:
                return
            keys, rows = keys[enter], rows_of(rows, enter)
        self.keys = np.concatenate([self.keys, keys])
        self.rows = rows if self.rows is None else concatenate([self.rows, rows])
        if len(self.keys) > self.capacity:
            stay = np.sort(np.argpartition(self.keys, self.capacity)[: self.capacity])
            self.keys, self.rows = self.keys[stay], rows_of(self.rows, stay)
