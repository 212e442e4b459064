"""Rows of a Gram matrix: computed on demand and cached, or stored in full.

A support vector machine needs the rows of the points that ever become support vectors, usually a small part of the matrix.
`GramRows` computes many rows at a time (one matrix product) and evicts the least recently used rows when the cache is full.
Blocks that were computed before, such as the Gram matrix of a class that several problems share, are copied.

Cost: O(n d) time for each computed row, and memory for `capacity * n` numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from gramless._core import arrays as xa
from gramless._core.threads import CPU_TILE, lower_tiles, one_blas_thread, parallel_for, slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import can_use_register_tiles, compiled_block
from gramless.linalg.operators.blocks import PackedGaussian, is_register_problem, recomputing_is_faster
from gramless.linalg.tuning import TUNING as OPERATORS
from gramless.svm.tuning import TUNING

# A subset of the rows of X: a range (fast), or row indices.
Part = slice | np.ndarray

# Row indices, their weights, and the vector to which the weighted rows are added.
Update = tuple[np.ndarray, np.ndarray, np.ndarray]

# `GramRows.entry_cost` of a stored entry: 3 vector instructions for the addition, divided by 12 for moving a pair.
_STORED_ENTRY_COST = 0.25


class GramRows:
    """Gram matrix of the points in `parts` of `X`, computed row by row and cached within `budget` bytes.

    `blocks` has, for each part, its square Gram matrix if this was computed before, or None. `ridge` is added to the
    diagonal, as in dual problems of losses with a quadratic part (Huber's). `workers` is the number of threads.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        parts: Sequence[Part],
        *,
        blocks: Sequence[np.ndarray | None] | None = None,
        ridge: np.ndarray | None = None,
        budget: float = 1e9,
        workers: int = 1,
    ):
        self.kernel, self.X, self.parts, self.ridge = kernel, X, parts, ridge
        self.blocks = blocks if blocks is not None else [None] * len(parts)
        self.workers = workers if kernel.thread_safe else 1
        lists = [as_indices(part) for part in parts]
        self.starts = np.concatenate([[0], np.cumsum([part.size for part in lists])])
        self.size = int(self.starts[-1])
        self._index = np.concatenate(lists)
        self.dtype = dtype = xa.numpy_dtype(X)
        for_sets = TUNING.set_budget_fraction
        self.capacity = int(min(self.size, max(1, (1 - for_sets) * budget // (self.size * dtype.itemsize))))
        # Two Gram matrices of working sets exist at a time: that of the previous round and that of the next round.
        self.largest_set = int((for_sets * budget / (2 * dtype.itemsize)) ** 0.5)
        # The operating system allocates pages on first use, so unused capacity takes no memory.
        self.rows = np.empty((self.capacity, self.size), dtype=dtype)
        self.slot_of = np.full(self.size, -1)
        self._owner = np.full(self.capacity, -1)
        self._used_at = np.zeros(self.capacity, dtype=np.int64)
        self._clock = 0
        self._matrix: np.ndarray | None = None
        self._stores_rows, self._budget = True, budget
        self.n_computed = 0

    @property
    def entry_cost(self) -> float:
        """Cost of computing and adding one entry, relative to the cost of moving a pair for each variable of a working set.

        Counted in vector instructions on eight numbers: an entry takes d / 2 for points of d features, 6 for the kernel
        function and 3 for the addition; moving a pair takes 12 for each variable of the set.
        """
        if not self.kernel.uses_points:
            return _STORED_ENTRY_COST
        d = self.X.nnz / self.X.shape[0] * 8 if xa.is_sparse(self.X) else self.X.shape[1]
        return (d / 2 + 9) / 12

    def fits_memory(self, n_problems: int) -> bool:
        """Return whether the budget allows the full matrix, and a small working set of each problem."""
        small = TUNING.small_set + TUNING.gram_padding if self.size > TUNING.largest_direct else 0
        return (self.size**2 + n_problems * small**2) * self.dtype.itemsize <= self._budget

    def matrix(self) -> np.ndarray:
        """Return the full matrix, computed at the first call; callers must not write to it."""
        if self._matrix is None:
            out = np.empty((self.size, self.size), dtype=self.dtype)
            places, tiles = [slice(int(a), int(b)) for a, b in pairwise(self.starts)], []
            for r, block in enumerate(self.blocks):
                if block is not None:
                    out[places[r], places[r]] = block
                others = range(r + 1 if block is None else r)
                tiles += [(out, places[r], places[c], self.parts[r], self.parts[c]) for c in others]
            _fill_symmetric(self.kernel, self.X, tiles, self.workers)
            if self.ridge is not None:
                out[np.diag_indices(self.size)] += self.ridge.astype(self.dtype)
            self._matrix = out
        return self._matrix

    def recompute_cheap_rows(self, largest_weight: float, tol: float) -> None:
        """Let `add` compute kernel values in registers, without storing rows, if this is faster and accurate to `tol`.

        Each row is added 1.7 to 4.5 times on average (counted), so recomputing the row costs less than storing it. Rows with
        weights up to `largest_weight` are summed in the precision of the rows, a few hundred rows at a time.
        """
        n, d = self.size, self.X.shape[1]
        rounding = np.finfo(self.dtype).eps * largest_weight * n**0.5
        if (
            is_register_problem(self.kernel, n, d)
            and can_use_register_tiles(self.X, self.X, 0, 0)
            and all(block is None for block in self.blocks)
            and np.array_equal(self._index, np.arange(self.X.shape[0]))
            and n * n * self.dtype.itemsize >= OPERATORS.min_recomputed_bytes
            and recomputing_is_faster(d, 1, self.dtype.itemsize)
            and rounding <= TUNING.rounding_fraction * tol
        ):
            self._stores_rows = False

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None:
        """Write the rows and columns at positions `fresh` of `K[idx][:, idx]`, from cached rows if possible."""
        from gramless._core.compiled.smo_loops import gather, mirror, scatter

        slots = self.slot_of[idx[fresh]]
        gather(self.rows, slots[slots >= 0], idx, fresh[slots >= 0], out)
        missing = fresh[slots < 0]
        tasks = []
        for r, rows in enumerate(self._by_part(idx, missing)):
            for c, columns in enumerate(self._by_part(idx, np.arange(idx.size))):
                # Tiles bound the temporary copies of large sets.
                step = min(CPU_TILE, max(CPU_TILE // 4, -(-columns.size // self.workers)))
                block = self.blocks[r]
                for here in (rows[part] for part in slices(rows.size, CPU_TILE)):
                    if r == c and block is not None:
                        start = self.starts[r]
                        scatter(block[np.ix_(idx[here] - start, idx[columns] - start)], here, columns, out)
                    else:
                        tasks += [(here, columns[part]) for part in slices(columns.size, step)]

        def compute(task: tuple[np.ndarray, np.ndarray]) -> None:
            here, there = task
            block = compiled_block(self.kernel, self.X, self._index[idx[here]], self._index[idx[there]])
            scatter(xa.to_numpy(block), here, there, out)

        parallel_for(tasks, compute, self.workers)
        mirror(out, fresh, idx.size)
        if self.ridge is not None:
            out[fresh, fresh] += self.ridge[idx[fresh]].astype(self.dtype)

    def _by_part(self, idx: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
        """Group the positions in `idx` by the part of the point at each position, in the order of the points."""
        positions = positions[np.argsort(idx[positions])]
        bounds = np.searchsorted(idx[positions], self.starts)
        return [positions[a:b] for a, b in pairwise(bounds)]

    def add(self, updates: Sequence[Update]) -> None:
        """Compute `total += weights @ K[idx]` for each update `(idx, weights, total)`; shared rows are computed once."""
        wanted = np.unique(np.concatenate([idx for idx, _, _ in updates]))
        if not self._stores_rows and wanted.size:
            self._add_recomputed(wanted, updates)
        for start in range(0, wanted.size if self._stores_rows else 0, self.capacity):
            present = wanted[start : start + self.capacity]
            self._fetch(present)
            here = [(idx >= present[0]) & (idx <= present[-1]) for idx, _, _ in updates]
            parts = [
                (self.slot_of[idx[at]], weights[at], total) for at, (idx, weights, total) in zip(here, updates, strict=True)
            ]
            _add_weighted_rows(self.rows, parts, self.size, self.workers)
        if self.ridge is not None:
            for idx, weights, total in updates:
                total[idx] += weights * self.ridge[idx]

    def _add_recomputed(self, wanted: np.ndarray, updates: Sequence[Update]) -> None:
        """Compute `add` for the rows `wanted` of the updates, with kernel values in registers."""
        weights = np.zeros((wanted.size, len(updates)), self.dtype)
        for k, (idx, values, _) in enumerate(updates):
            weights[np.searchsorted(wanted, idx), k] = values
        expansion = PackedGaussian(resolve_gamma(self.kernel.gamma, self.X), self.X[wanted], weights)

        def apply(part: slice) -> None:
            sums = np.zeros((part.stop - part.start, len(updates)))
            expansion.add(self.X[part], sums)
            for k, (_, _, total) in enumerate(updates):
                total[part] += sums[:, k]

        parallel_for(slices(self.size, max(CPU_TILE, -(-self.size // self.workers))), apply, self.workers, blas=False)

    def _fetch(self, idx: np.ndarray) -> None:
        """Load the rows `idx` (ascending, at most `capacity`) into the cache."""
        self._clock += 1
        slots = self.slot_of[idx]
        self._used_at[slots[slots >= 0]] = self._clock
        missing = idx[slots < 0]
        if not missing.size:
            return
        # Empty slots are the oldest; rows of this request have the newest time stamp, so they are not evicted.
        slots = np.argsort(self._used_at, kind="stable")[: missing.size]
        owners = self._owner[slots]
        self.slot_of[owners[owners >= 0]] = -1
        self._compute(missing, slots)
        self.slot_of[missing] = slots
        self._owner[slots] = missing
        self._used_at[slots] = self._clock

    def _compute(self, idx: np.ndarray, slots: np.ndarray) -> None:
        """Compute the rows `idx` into `slots` of the cache, tile by tile."""
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
                out = self.rows[slots[here.start] : slots[here.stop - 1] + 1, into]
                compiled_block(self.kernel, self.X, *points, out=out)
            else:
                values = compiled_block(self.kernel, self.X, *points)
                scatter(xa.to_numpy(values), slots[here], np.arange(into.start, into.stop), self.rows)

        parallel_for(tasks, fill, self.workers)


class StoredGram:
    """A Gram matrix in memory; only its first `size` rows and columns are used."""

    def __init__(self, K: np.ndarray, size: int | None = None, workers: int = 1):
        self.K = K
        self.size = len(K) if size is None else size
        self.dtype = K.dtype
        self.workers = workers
        self.largest_set = self.size
        self.entry_cost = _STORED_ENTRY_COST

    @classmethod
    def of(cls, kernel: Kernel, X: Any, order: np.ndarray, workers: int) -> StoredGram:
        """Compute half of the Gram matrix of `X` and mirror it; a precomputed matrix is copied with its rows in `order`."""
        n = len(order)
        if not kernel.uses_points:
            return cls(xa.to_numpy(kernel.block(X, order, order)))
        K = np.empty((n, n), dtype=xa.numpy_dtype(X))
        strips = [(rows, slice(0, rows.stop)) for rows in slices(n, TUNING.strip_rows)[::-1]]
        with one_blas_thread():
            _fill_symmetric(kernel, X, [(K, *strip, *strip) for strip in strips], workers)
        return cls(K)

    def pair(self, first: slice, second: slice) -> StoredGram:
        """Return the Gram matrix of the union of the points of both slices."""
        columns = np.concatenate([self.K[:, first], self.K[:, second]], axis=1)
        return StoredGram(np.concatenate([columns[first], columns[second]]))

    def fits_memory(self, n_problems: int) -> bool:
        """Return True, because the matrix is in memory."""
        return True

    def matrix(self) -> np.ndarray:
        """Return the full matrix."""
        return self.K

    def fill(self, out: np.ndarray, idx: np.ndarray, fresh: np.ndarray) -> None:
        """Write the rows and columns at positions `fresh` of `K[idx][:, idx]`."""
        from gramless._core.compiled.smo_loops import gather, mirror

        gather(self.K, idx[fresh], idx, fresh, out)
        mirror(out, fresh, idx.size)

    def add(self, updates: Sequence[Update]) -> None:
        """Compute `total += weights @ K[idx]` for each update `(idx, weights, total)`."""
        _add_weighted_rows(self.K, updates, self.size, self.workers)


GramSource: TypeAlias = GramRows | StoredGram
"""A Gram matrix for dual solvers."""


def _add_weighted_rows(rows: np.ndarray, updates: Sequence[Update], size: int, workers: int) -> None:
    """Compute `total += weights @ rows[idx]` for each update, with ranges of columns divided among threads."""
    from gramless._core.compiled.smo_loops import add_rows

    strips = slices(size, max(CPU_TILE, -(-size * len(updates) // workers)))

    def apply(task: tuple[Update, slice]) -> None:
        (idx, weights, total), strip = task
        add_rows(rows, idx, weights, total, strip.start, strip.stop)

    parallel_for([(update, strip) for update in updates for strip in strips], apply, workers)


def as_indices(part: Part) -> np.ndarray:
    """Return the row indices of a part."""
    return np.arange(part.start, part.stop) if isinstance(part, slice) else np.asarray(part)


def within(part: Part, columns: slice) -> Part:
    """Return the points at the positions `columns` of a part."""
    if isinstance(part, slice):
        return slice(part.start + columns.start, part.start + columns.stop)
    return part[columns]


def class_grams(kernel: Kernel, X: Any, parts: Sequence[Part], budget: float, workers: int) -> list[np.ndarray | None]:
    """Return the square Gram matrix of each part while the budget in bytes lasts, and None for the other parts.

    Only tiles on and below the diagonal are computed; the tiles above the diagonal are transposes of these.
    """
    dtype, tasks = xa.numpy_dtype(X), []
    blocks: list[Any] = []
    for part in parts:
        n = as_indices(part).size
        budget -= n * n * dtype.itemsize
        blocks.append(np.empty((n, n), dtype=dtype) if budget >= 0 else None)
        if budget >= 0:
            tiles = lower_tiles(slices(n, CPU_TILE))
            tasks += [(blocks[-1], *tile, within(part, tile[0]), within(part, tile[1])) for tile in tiles]
    _fill_symmetric(kernel, X, tasks, workers if kernel.thread_safe else 1)
    return blocks


def _fill_symmetric(
    kernel: Kernel, X: Any, tiles: Sequence[tuple[np.ndarray, slice, slice, Part, Part]], workers: int
) -> None:
    """Compute tiles of Gram matrices and copy their transposes; a tile is (matrix, rows, columns, row and column points)."""

    def fill(tile: tuple[np.ndarray, slice, slice, Part, Part]) -> None:
        gram, rows, columns, left, right = tile
        compiled_block(kernel, X, left, right, out=gram[rows, columns])
        if rows != columns:
            gram[columns, rows] = gram[rows, columns].T

    parallel_for(tiles, fill, workers)
