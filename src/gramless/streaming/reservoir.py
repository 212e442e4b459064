"""A uniform sample of rows that pass by: a random key for each row, the rows with the smallest keys stay.

Equal to a draw without replacement from all rows seen, in O(capacity) memory; what is kept does not depend on how the rows
were cut into batches, given their keys.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless.streaming.sources import Rows, concatenate


class Reservoir:
    """At most `capacity` rows, each row seen with the same chance.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.streaming.reservoir import Reservoir
    >>> sample = Reservoir(2)
    >>> sample.add((np.arange(3.0)[:, None], np.arange(3), None), keys=np.array([0.5, 0.1, 0.2]))
    >>> sample.rows[1]
    array([1, 2])
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.keys = np.empty(0)
        self.rows: Rows | None = None

    def add(self, rows: Rows, keys: np.ndarray) -> None:
        """Let rows pass by; `keys` are independent and uniform."""
        if len(self.keys) == self.capacity:  # of many rows few come in: the others are not copied
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
