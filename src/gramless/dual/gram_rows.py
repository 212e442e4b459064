"""Rows of a Gram matrix, computed when first needed and kept within a memory budget.

A support vector machine needs the rows of the points that ever become support vectors, usually a small part of the
matrix. Rows are computed many at a time (one matrix product), stored, and when the store is full the rows that were
not used for the longest time make room. Parts of the matrix that are already known, such as the block of one class
that several problems share, are copied instead of computed.

Cost: O(n d) for each row computed, capacity * n numbers of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.threads import CPU_TILE, lower_tiles, share, slices
from gramless.kernels.base import Kernel

Part = slice | np.ndarray

Update = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row indices, their weights, and the vector to which the weighted rows are added."""


class GramRows:
    """The Gram matrix of some points, row by row.

    Parameters
    ----------
    kernel : Kernel
        With its data-dependent settings resolved.
    X : array of shape (n_total, d)
    parts : sequence of slice or index array
        The points of this matrix, as ranges of `X` (best) or as lists of its rows.
    blocks : sequence of array or None
        For each part, its own square Gram matrix where known.
    budget : float
        Bytes for stored rows.
    workers : int
        Threads that compute and add rows.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        parts: Sequence[Part],
        *,
        blocks: Sequence[np.ndarray | None] | None = None,
        budget: float = 1e9,
        workers: int = 1,
    ):
        self.kernel = kernel
        self.X = X
        self.parts = parts
        self.blocks = blocks if blocks is not None else [None] * len(parts)
        self.workers = workers if kernel.thread_safe else 1
        lists = [as_indices(part) for part in parts]
        self.starts = np.concatenate([[0], np.cumsum([part.size for part in lists])])
        self.size = int(self.starts[-1])
        self._index = np.concatenate(lists)
        dtype = xa.numpy_dtype(X)
        self.capacity = int(min(self.size, max(1, budget // (self.size * dtype.itemsize))))
        # Untouched memory costs nothing, so the store is allocated whole.
        self.rows = np.empty((self.capacity, self.size), dtype=dtype)
        self.slot_of = np.full(self.size, -1)
        self._owner = np.full(self.capacity, -1)
        self._used_at = np.zeros(self.capacity, dtype=np.int64)
        self._clock = 0
        self._filled = 0
        self._whole: np.ndarray | None = None
        self.n_computed = 0

    def whole(self) -> np.ndarray:
        """All of the matrix, computed at the first call; not to be written to."""
        if self._whole is None:
            out = np.empty((self.size, self.size), dtype=self.rows.dtype)
            places = [slice(int(a), int(b)) for a, b in pairwise(self.starts)]

            def fill(task: tuple[int, int]) -> None:
                r, c = task
                block = self.blocks[r]
                if r == c and block is not None:
                    out[places[r], places[r]] = block
                    return
                self.kernel.block(self.X, self.parts[r], self.parts[c], out=out[places[r], places[c]])
                if r != c:
                    out[places[c], places[r]] = out[places[r], places[c]].T

            share([(r, c) for r in range(len(places)) for c in range(r + 1)], fill, self.workers)
            self._whole = out
        return self._whole

    def gram(self, idx: np.ndarray) -> np.ndarray:
        """`K[idx][:, idx]` for ascending `idx`; of rows not in the store, only what is asked for is computed."""
        from gramless._compiled.smo_loops import gather

        out = np.empty((idx.size, idx.size), dtype=self.rows.dtype)
        slots = self.slot_of[idx]
        known, new = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        gather(self.rows, slots[known], idx, known, out)
        if known.size and new.size:
            out[np.ix_(new, known)] = out[np.ix_(known, new)].T
        bounds = np.searchsorted(idx[new], self.starts)
        groups = [new[a:b] for a, b in pairwise(bounds)]
        for r, rows in enumerate(groups):
            for c, columns in enumerate(groups[: r + 1]):
                if not (rows.size and columns.size):
                    continue
                block = self.blocks[r]
                if r == c and block is not None:
                    local = idx[rows] - self.starts[r]
                    values = block[local][:, local]
                else:
                    values = self.kernel.block(self.X, self._index[idx[rows]], self._index[idx[columns]])
                out[np.ix_(rows, columns)] = values
                if r != c:
                    out[np.ix_(columns, rows)] = values.T
        return out

    def add(self, updates: Sequence[Update]) -> None:
        """For each update `(idx, weights, total)`: `total += weights @ K[idx]`; shared rows are computed once."""
        from gramless._compiled.smo_loops import add_rows

        wanted = np.unique(np.concatenate([idx for idx, _, _ in updates]))
        for start in range(0, wanted.size, self.capacity):
            present = wanted[start : start + self.capacity]
            self._fetch(present)

            def apply(update: Update, present: np.ndarray = present) -> None:
                idx, weights, total = update
                here = (idx >= present[0]) & (idx <= present[-1])
                add_rows(self.rows, self.slot_of[idx[here]], weights[here], total)

            share(updates, apply, self.workers)

    def _fetch(self, idx: np.ndarray) -> None:
        """Make the rows `idx` (ascending, at most `capacity`) present."""
        self._clock += 1
        slots = self.slot_of[idx]
        self._used_at[slots[slots >= 0]] = self._clock
        missing = idx[slots < 0]
        if not missing.size:
            return
        fresh = min(missing.size, self.capacity - self._filled)
        slots = np.arange(self._filled, self._filled + fresh)
        self._filled += fresh
        if fresh < missing.size:
            # Rows of the present request carry the newest stamp and are never among the oldest.
            oldest = np.argsort(self._used_at[: self._filled - fresh], kind="stable")[: missing.size - fresh]
            self.slot_of[self._owner[oldest]] = -1
            slots = np.concatenate([slots, oldest])
        self._compute(missing, slots)
        self.slot_of[missing] = slots
        self._owner[slots] = missing
        self._used_at[slots] = self._clock

    def _compute(self, idx: np.ndarray, slots: np.ndarray) -> None:
        contiguous = bool(np.all(np.diff(slots) == 1))
        target = self.rows[slots[0] : slots[-1] + 1] if contiguous else np.empty((idx.size, self.size), self.rows.dtype)
        bounds = np.searchsorted(idx, self.starts)
        tasks: list[tuple[int, slice, slice]] = []
        for r in range(len(self.parts)):
            here = slice(bounds[r], bounds[r + 1])
            if here.start == here.stop:
                continue
            for c, block in enumerate(self.blocks):
                start, width = self.starts[c], self.starts[c + 1] - self.starts[c]
                if r == c and block is not None:
                    target[here, start : start + width] = block[idx[here] - start]
                    continue
                tile = max(CPU_TILE, CPU_TILE**2 // (here.stop - here.start))
                tasks += [(c, here, columns) for columns in slices(width, tile)]
                self.n_computed += (here.stop - here.start) * width

        def fill(task: tuple[int, slice, slice]) -> None:
            c, here, columns = task
            start = self.starts[c]
            self.kernel.block(
                self.X,
                self._index[idx[here]],
                within(self.parts[c], columns),
                out=target[here, start + columns.start : start + columns.stop],
            )

        if tasks:
            share(tasks, fill, self.workers)
        if not contiguous:
            self.rows[slots] = target


def as_indices(part: Part) -> np.ndarray:
    """The row numbers of a part."""
    return np.arange(part.start, part.stop) if isinstance(part, slice) else np.asarray(part)


def within(part: Part, columns: slice) -> Part:
    """A range of the points of a part."""
    if isinstance(part, slice):
        return slice(part.start + columns.start, part.start + columns.stop)
    return part[columns]


def own_blocks(kernel: Kernel, X: Any, parts: Sequence[Part], budget: float, workers: int) -> list[np.ndarray | None]:
    """The square Gram matrix of each part, for as many parts as fit the budget; `None` for the others.

    Only tiles on and below the diagonal are computed, the others are their transposes.
    """
    dtype = xa.numpy_dtype(X)
    blocks: list[np.ndarray | None] = []
    tasks = []
    for part in parts:
        n = as_indices(part).size
        budget -= n * n * dtype.itemsize
        blocks.append(np.empty((n, n), dtype=dtype) if budget >= 0 else None)
        if budget >= 0:
            tasks += [(part, blocks[-1], rows, columns) for rows, columns in lower_tiles(slices(n, CPU_TILE))]

    def fill(task: tuple[Part, np.ndarray, slice, slice]) -> None:
        part, block, rows, columns = task
        kernel.block(X, within(part, rows), within(part, columns), out=block[rows, columns])
        if rows != columns:
            block[columns, rows] = block[rows, columns].T

    if tasks:
        share(tasks, fill, workers if kernel.thread_safe else 1)
    return blocks
