"""Rows of a Gram matrix with a number added to each entry of its diagonal.

Losses with a part that is a square (Huber's) give dual problems with `K + diag(ridge)` in the place of `K`. The rows are
those of `K`; what the ridge adds is added where a row meets its own column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gramless.svm.gram_rows import GramRows, Update


class RidgedRows:
    """The rows of `K + diag(ridge)`, with the interface of `GramRows`.

    Parameters
    ----------
    rows : GramRows
        Those of `K`.
    ridge : ndarray of shape (n,)
        What is added to the diagonal.
    """

    def __init__(self, rows: GramRows, ridge: np.ndarray):
        self.rows = rows
        self.ridge = ridge
        self.size = rows.size
        self.workers = rows.workers
        self.largest_set = rows.largest_set
        self.dtype = rows.dtype

    @property
    def entry_cost(self) -> float:
        """What an entry of a row costs beside one variable's part in moving a pair."""
        return self.rows.entry_cost

    def whole(self) -> np.ndarray:
        """All of the matrix."""
        K = self.rows.whole().copy()
        K[np.diag_indices(self.size)] += self.ridge.astype(self.dtype)
        return K

    def gram(self, idx: np.ndarray) -> np.ndarray:
        """The rows and columns `idx`."""
        K = self.rows.gram(idx)
        K[np.diag_indices(idx.size)] += self.ridge[idx].astype(self.dtype)
        return K

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None:
        """Write the rows and columns at positions `fresh` of the matrix of the points `idx`."""
        self.rows.fill(out, idx, fresh)
        out[fresh, fresh] += self.ridge[idx[fresh]].astype(self.dtype)

    def add(self, updates: Sequence[Update]) -> None:
        """For each update `(idx, weights, total)`: `total += weights @ (K + diag(ridge))[idx]`."""
        self.rows.add(updates)
        for idx, weights, total in updates:
            total[idx] += weights * self.ridge[idx]
