"""The matrix `K(X, X) + diag(ridge)`, streamed or cached.

A product computes each tile on and below the diagonal once and uses a tile `T` for both halves of the symmetric matrix:

    out[i] += T V[j]      out[j] += T^T V[i]

so a streamed product costs `n^2 d` operations instead of `2 n^2 d`, and a cached matrix `n^2 / 2` numbers instead of `n^2`.
Uncached Gaussian values of dense rows are recomputed in registers (`SymmetricGaussian`). With `cache=True` each tile is
computed at its first use and stored. NumPy tiles share one allocation, for which the system provides huge pages, because
the page faults of separately allocated tiles of 4 MB would take as long as computing the tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import format_bytes, free_memory
from gramless._core.threads import lower_tiles, parallel_for, run_threads, slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import can_use_register_tiles
from gramless.linalg.operators.base import CAPABILITIES, Operator
from gramless.linalg.operators.blocks import (
    SymmetricGaussian,
    byte_rows,
    cross,
    expand,
    is_register_problem,
    tile_edge,
    workers_for,
)
from gramless.linalg.operators.fused import prepare as prepare_fused
from gramless.linalg.operators.nystrom import LocalColumns
from gramless.linalg.operators.tile_product import PANEL, BlasSums, CompiledSums, PaddedColumns, can_compile
from gramless.linalg.tuning import TUNING


class KernelOperator(Operator):
    """The matrix `K(X, X) + diag(ridge)` of a resolved kernel, with tiles that are recomputed or cached.

    `precision` below `"highest"` uses fused products on a CUDA device (see `gramless.linalg.operators.fused`). `storage` is
    the half-precision type of cached tensors; the relative rounding error of entries is 5e-4 (float16) or 4e-3 (bfloat16).
    """

    capabilities = CAPABILITIES

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        ridge: Any = 0.0,
        *,
        cache: bool = False,
        precision: str = "highest",
        storage: str | None = None,
    ):
        n = X.shape[0]
        self.X = byte_rows(kernel, X, n // 2)
        self.kernel = kernel
        self.shape = (n, n)
        self.reference = X.data if xa.is_sparse(X) else X
        self.dtype = xa.numpy_dtype(self.reference)
        self.ridge = xa.zeros((n,), self.reference) + xa.like(ridge, self.reference)
        self.cache = cache
        self.storage = storage
        self.edge = min(tile_edge(X), n)
        self._tiles = lower_tiles(slices(n, self.edge))
        self._stored: dict[tuple[int, int], Array] = {}
        self._memory: dict[tuple[int, int], Array] = {}
        if cache and not xa.is_torch(self.reference):
            memory = xa.empty((len(self._tiles), self.edge, self.edge), self.reference)
            self._memory = {(rows.start, columns.start): memory[i] for i, (rows, columns) in enumerate(self._tiles)}
        self.fused = prepare_fused(kernel, self.X, precision) if not cache else None

    def _tile(self, rows: slice, columns: slice, buffer: Array | None = None) -> Array:
        key = (rows.start, columns.start)
        if key in self._stored:
            return self._stored[key]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if self.cache:
            buffer = self._memory[key] if self._memory else xa.empty(shape, self.reference)
        assert buffer is not None
        tile = self.kernel.block(self.X, rows, columns, out=buffer[: shape[0], : shape[1]])
        if self.cache:
            tile = self._stored[key] = tile if self.storage is None else xa.to_half(tile, self.storage)
        return tile

    @cached_property
    def _in_registers(self) -> SymmetricGaussian | None:
        """The Gaussian matrix as a `SymmetricGaussian`, which needs no tiles, or None if products compute tiles."""
        if not (is_register_problem(self.kernel, *self.X.shape) and can_use_register_tiles(self.X, self.X, 0, 0)):
            return None
        return SymmetricGaussian(resolve_gamma(self.kernel.gamma, self.X), self.X)

    def __matmul__(self, V: Array) -> Array:
        if self.fused is not None:
            return self.fused(self.fused.operand, V) + self.ridge[:, None] * V
        if not self.cache and self._in_registers is not None:
            return self._in_registers @ V + self.ridge[:, None] * V
        while True:
            try:
                return self._tiled_product(V)
            except xa.device_out_of_memory(self.reference) as error:
                self._shrink(error)

    def _shrink(self, error: BaseException) -> None:
        """Halve the tiles and drop the cache after the device ran out of memory; raise an error if the tiles are small."""
        self._stored.clear()
        self.cache = False
        xa.release_device_memory()
        needed = (1 + self.kernel.temporaries) * self.edge**2 * self.dtype.itemsize
        if self.edge <= TUNING.smallest_device_tile:
            raise MemoryError(
                f"a tile of the kernel matrix needs {format_bytes(needed)} of the memory of {xa.device_of(self.X)}, which "
                f"has {format_bytes(free_memory(xa.device_of(self.X)))} free; free some, or use device='cpu'"
            ) from error
        self.edge //= 2
        self._tiles = lower_tiles(slices(self.shape[0], self.edge))

    def _tiled_product(self, V: Array) -> Array:
        workers = max(1, min(workers_for(self.kernel, self.X), len(self._tiles)))
        aligned = len(self._tiles) == 1 or self.edge % PANEL == 0
        same = self.dtype == xa.numpy_dtype(V)
        if aligned and same and can_compile(V, self.shape[0] ** 2 // 2, self.dtype):
            make_sums: Callable[[], CompiledSums | BlasSums] = partial(CompiledSums, PaddedColumns(xa.to_numpy(V)))
        else:
            make_sums = partial(BlasSums, V)

        def work(k: int) -> Array:
            sums = make_sums()
            buffer = None if self.cache else xa.empty((self.edge, self.edge), self.reference)
            for rows, columns in self._tiles[k::workers]:
                tile = self._tile(rows, columns, buffer)
                sums.add(tile if self.storage is None else xa.astype(tile, self.dtype), rows, columns)
            return sums.total()

        total, *others = run_threads(work, workers)
        for other in others:
            total += other
        total += self.ridge[:, None] * V
        return total

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        if self.cache:
            return self.rows(idx) @ V
        if self.fused is not None:
            product = self.fused(self.fused.operand.take(idx), V)
        else:
            product = expand(self.kernel, xa.take_rows(self.X, idx), self.X, V)
        return product + xa.take_rows(self.ridge, idx)[:, None] * xa.take_rows(V, idx)

    def diagonal_block(self, idx: np.ndarray) -> Array:
        if self.fused is not None:
            part = self.fused.of(idx)
            return xa.add_diagonal_(part.block(part.operand), xa.take_rows(self.ridge, idx))
        return xa.add_diagonal_(self.kernel.block(self.X, idx, idx), xa.take_rows(self.ridge, idx))

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        idx = np.asarray(idx)
        block = self._cached_rows(idx, out) if self.cache else cross(self.kernel, self.X, idx, slice(None), out=out)
        at = xa.indices(np.arange(len(idx)), self.reference), xa.indices(idx, self.reference)
        block[at] += xa.take_rows(self.ridge, idx)
        return block

    def _cached_rows(self, idx: np.ndarray, out: Array | None) -> Array:
        missing = [(r, c) for r, c in self._tiles if (r.start, c.start) not in self._stored]
        parallel_for(missing, lambda tile: self._tile(*tile), workers_for(self.kernel, self.X))
        block = xa.empty((len(idx), self.shape[0]), self.reference) if out is None else out
        for (row, column), tile in self._stored.items():
            height, width = tile.shape
            here = np.flatnonzero((idx >= row) & (idx < row + height))
            if here.size:
                at = xa.indices(here, block)
                block[at, column : column + width] = xa.take_rows(tile, idx[here] - row)
            there = np.flatnonzero((idx >= column) & (idx < column + width))
            if there.size and row != column:
                at = xa.indices(there, block)
                block[at, row : row + height] = tile[:, xa.indices(idx[there] - column, tile)].T
        return block

    def columns(self, landmarks: np.ndarray, store: bool) -> LocalColumns:
        """Return the columns of `K(X, X)` at the landmarks, without the ridge; with `store` the columns are stored."""
        return LocalColumns(self.X, self.kernel, landmarks, store=store, fused=self.fused)

    def drop_cache(self) -> None:
        """Free the cached tiles; later products recompute the tiles that they need."""
        self.cache = False
        self._stored.clear()
        self._memory.clear()

    def diag(self) -> Array:
        return xa.like(self.kernel.diag(self.X), self.reference) + self.ridge

    def dense(self, dtype: Any = None) -> Array:
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        A = xa.empty(self.shape, self.reference, dtype)
        # Values of a precomputed kernel are converted while they are copied; points are converted before kernel values are
        # computed from them.
        same = xa.numpy_dtype(self.reference) == dtype or not self.kernel.uses_points
        X = self.X if same else xa.astype(self.X, dtype)

        def fill(tile: tuple[slice, slice]) -> None:
            rows, columns = tile
            self.kernel.block(X, rows, columns, out=A[rows, columns])
            if rows != columns:
                A[columns, rows] = A[rows, columns].T

        parallel_for(self._tiles, fill, workers_for(self.kernel, self.X))
        return xa.add_diagonal_(A, xa.astype(self.ridge, dtype))


def check_diagonal(op: Operator) -> None:
    """Raise a `ValueError` if the diagonal, which bounds all kernel values, is not finite and positive."""
    with np.errstate(over="ignore", invalid="ignore"):
        diagonal = xa.to_numpy(op.diag())
    if not np.isfinite(diagonal).all():
        raise ValueError(
            f"the kernel's values overflow {diagonal.dtype.name} or are not numbers: scale the data (StandardScaler), lower "
            "the kernel's degree or coefficients" + (", or use dtype='float64'" if diagonal.dtype == np.float32 else "")
        )
    if (diagonal <= 0).any():
        raise ValueError(f"the kernel has a negative value {diagonal.min():g} of k(x, x): it is not positive semi-definite")


def nbytes_cached(n: int, itemsize: int, edge: int) -> int:
    """Return the bytes of the tiles on and below the diagonal of a cached kernel matrix."""
    parts = -(-n // edge)
    return parts * (parts + 1) // 2 * edge * edge * itemsize if parts > 1 else n * n * itemsize
