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

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, lower_tiles, one_blas_thread, parallel_for, slices
from gramless.kernels.base import Kernel

Part = slice | np.ndarray

Update = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row indices, their weights, and the vector to which the weighted rows are added."""

SHARE_OF_SETS = 0.25
"""Of the budget, what the Gram matrices of working sets may take."""


# Rows that a small matrix is computed by, each strip up to its diagonal.
_STRIP = 128


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
        Bytes for stored rows and the Gram matrices of working sets.
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
        self.dtype = dtype = xa.numpy_dtype(X)
        self.capacity = int(min(self.size, max(1, (1 - SHARE_OF_SETS) * budget // (self.size * dtype.itemsize))))
        # Two at a time: that of the round before, and the one it becomes.
        self.largest_set = int((SHARE_OF_SETS * budget / (2 * dtype.itemsize)) ** 0.5)
        # Untouched memory costs nothing, so the store is allocated whole.
        self.rows = np.empty((self.capacity, self.size), dtype=dtype)
        self.slot_of = np.full(self.size, -1)
        self._owner = np.full(self.capacity, -1)
        self._used_at = np.zeros(self.capacity, dtype=np.int64)
        self._clock = 0
        self._filled = 0
        self._whole: np.ndarray | None = None
        self.n_computed = 0

    @property
    def entry_cost(self) -> float:
        """What an entry of a row costs, to compute and to add, beside one variable's part in moving a pair.

        Counted in instructions on eight numbers: half of one for each feature, six for the function of the product, three to
        add the entry, and twelve for a variable in a move.
        """
        if not self.kernel.uses_points:
            return 0.25
        d = self.X.nnz / self.X.shape[0] * 8 if xa.is_sparse(self.X) else self.X.shape[1]
        return (d / 2 + 9) / 12

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

            parallel_for([(r, c) for r in range(len(places)) for c in range(r + 1)], fill, self.workers)
            self._whole = out
        return self._whole

    def gram(self, idx: np.ndarray) -> np.ndarray:
        """`K[idx][:, idx]`."""
        out = np.empty((idx.size, idx.size), dtype=self.dtype)
        self.fill(out, idx, np.arange(idx.size))
        return out

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None:
        """Write the rows and columns at positions `fresh` of the Gram matrix of the points `idx`.

        Rows in the store are looked up; of the others only what is asked for is computed.
        """
        from gramless._core.compiled.smo_loops import gather, mirror, scatter

        slots = self.slot_of[idx[fresh]]
        gather(self.rows, slots[slots >= 0], idx, fresh[slots >= 0], out)
        missing = fresh[slots < 0]
        tasks = []
        for r, all_here in enumerate(self._by_part(idx, missing)):
            for c, there in enumerate(self._by_part(idx, np.arange(idx.size))):
                # A tile at a time: large sets would need copies that nobody has counted.
                step = min(CPU_TILE, max(CPU_TILE // 4, -(-there.size // self.workers)))
                block = self.blocks[r]
                for here in (all_here[part] for part in slices(all_here.size, CPU_TILE)):
                    if r == c and block is not None:
                        start = self.starts[r]
                        scatter(block[np.ix_(idx[here] - start, idx[there] - start)], here, there, out)
                    else:
                        tasks += [(here, there[part]) for part in slices(there.size, step)]

        def compute(task: tuple[np.ndarray, np.ndarray]) -> None:
            here, there = task
            block = self.kernel.block(self.X, self._index[idx[here]], self._index[idx[there]])
            scatter(xa.to_numpy(block), here, there, out)

        if tasks:
            parallel_for(tasks, compute, self.workers)
        mirror(out, fresh, idx.size)

    def _by_part(self, idx: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
        """Positions in `idx`, those of each part together, in the order of its points."""
        positions = positions[np.argsort(idx[positions])]
        bounds = np.searchsorted(idx[positions], self.starts)
        return [positions[a:b] for a, b in pairwise(bounds)]

    def add(self, updates: Sequence[Update]) -> None:
        """For each update `(idx, weights, total)`: `total += weights @ K[idx]`; shared rows are computed once."""
        from gramless._core.compiled.smo_loops import add_rows

        wanted = np.unique(np.concatenate([idx for idx, _, _ in updates]))
        strips = slices(self.size, max(CPU_TILE, -(-self.size * len(updates) // self.workers)))
        for start in range(0, wanted.size, self.capacity):
            present = wanted[start : start + self.capacity]
            self._fetch(present)

            def apply(task: tuple[Update, slice], present: np.ndarray = present) -> None:
                (idx, weights, total), strip = task
                here = (idx >= present[0]) & (idx <= present[-1])
                add_rows(self.rows, self.slot_of[idx[here]], weights[here], total, strip.start, strip.stop)

            parallel_for([(update, strip) for update in updates for strip in strips], apply, self.workers)

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
        """Write the rows `idx` into their places of the store, a tile at a time."""
        from gramless._core.compiled.smo_loops import scatter

        contiguous = bool(np.all(np.diff(slots) == 1))
        bounds = np.searchsorted(idx, self.starts)
        tasks: list[tuple[int, slice, slice]] = []
        for r, (first, last) in enumerate(pairwise(bounds)):
            for c, block in enumerate(self.blocks):
                start, width = self.starts[c], self.starts[c + 1] - self.starts[c]
                for here in (slice(first + part.start, first + part.stop) for part in slices(last - first, CPU_TILE)):
                    if r == c and block is not None:
                        self.rows[slots[here], start : start + width] = block[idx[here] - start]
                        continue
                    tile = max(CPU_TILE, CPU_TILE**2 // (here.stop - here.start))
                    tasks += [(c, here, columns) for columns in slices(width, tile)]
                    self.n_computed += (here.stop - here.start) * width

        def fill(task: tuple[int, slice, slice]) -> None:
            c, here, columns = task
            into = slice(self.starts[c] + columns.start, self.starts[c] + columns.stop)
            points = self._index[idx[here]], within(self.parts[c], columns)
            if contiguous:
                self.kernel.block(self.X, *points, out=self.rows[slots[here.start] : slots[here.stop - 1] + 1, into])
            else:
                values = self.kernel.block(self.X, *points)
                scatter(xa.to_numpy(values), slots[here], np.arange(into.start, into.stop), self.rows)

        if tasks:
            parallel_for(tasks, fill, self.workers)


class HeldRows:
    """A Gram matrix in memory, with the interface of `GramRows`."""

    def __init__(self, K: np.ndarray, size: int | None = None, workers: int = 1):
        self.K = K
        self.size = len(K) if size is None else size
        self.dtype = K.dtype
        self.workers = workers
        self.largest_set = self.size
        self.entry_cost = 0.25

    @classmethod
    def of(cls, kernel: Kernel, X: Any, order: np.ndarray, workers: int) -> HeldRows:
        """All values of rows that are in this order already, or of a kernel that looks them up; half of them by symmetry."""
        n = len(order)
        if not kernel.uses_points:
            return cls(xa.to_numpy(kernel.block(X, order, order)))
        K = np.empty((n, n), dtype=xa.numpy_dtype(X))

        def fill(rows: slice) -> None:
            before = slice(0, rows.stop)
            kernel.block(X, rows, before, out=K[rows, before])
            K[before, rows] = K[rows, before].T

        with one_blas_thread():
            parallel_for(slices(n, _STRIP)[::-1], fill, workers)
        return cls(K)

    def part(self, first: slice, second: slice) -> HeldRows:
        """The matrix of the points in two slices."""
        columns = np.concatenate([self.K[:, first], self.K[:, second]], axis=1)
        return HeldRows(np.concatenate([columns[first], columns[second]]))

    def whole(self) -> np.ndarray:
        """All of the matrix."""
        return self.K

    def gram(self, idx: np.ndarray) -> np.ndarray:
        """`K[idx][:, idx]`."""
        return self.K[np.ix_(idx, idx)]

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None:
        """Write the rows and columns at positions `fresh` of the Gram matrix of the points `idx`."""
        from gramless._core.compiled.smo_loops import gather, gather_columns

        gather(self.K, idx[fresh], idx, fresh, out)
        gather_columns(self.K, idx, fresh, out)

    def add(self, updates: Sequence[Update]) -> None:
        """For each update `(idx, weights, total)`: `total += weights @ K[idx]`."""
        from gramless._core.compiled.smo_loops import add_rows

        strips = slices(self.size, max(CPU_TILE, -(-self.size * len(updates) // self.workers)))

        def apply(task: tuple[Update, slice]) -> None:
            (idx, weights, total), strip = task
            add_rows(self.K, idx, weights, total, strip.start, strip.stop)

        parallel_for([(update, strip) for update in updates for strip in strips], apply, self.workers)


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
        parallel_for(tasks, fill, workers if kernel.thread_safe else 1)
    return blocks
