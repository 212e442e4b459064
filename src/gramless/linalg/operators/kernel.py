"""The matrix `K(X, X) + diag(ridge)`, streamed or cached, as something to multiply with.

A product visits the tiles on and below the diagonal once and uses a tile `T` for both halves of the symmetric matrix:

    out[i] += T V[j]      out[j] += T^T V[i]

so a streamed product costs `n^2 d` operations instead of `2 n^2 d`, and a cached matrix costs `n^2 / 2` numbers
instead of `n^2`. With `cache=True` each tile is computed on the first visit and kept.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import format_bytes, free_memory
from gramless._core.threads import lower_tiles, parallel_for, run_threads, slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators.base import CAPABILITIES, Operator
from gramless.linalg.operators.blocks import byte_rows, evaluate, expand, tile_edge, workers_for
from gramless.linalg.operators.fused import prepare as prepare_fused
from gramless.linalg.operators.tile_product import PANEL, BlasSums, can_compile, compiled_sums

_SMALLEST_TILE = 256
_TILES_IN_ARENA = 16


class KernelOperator(Operator):
    """`K(X, X) + diag(ridge)` without holding it (or holding one triangle of it).

    Parameters
    ----------
    X : array of shape (n, d)
        NumPy, CSR or torch.
    kernel : Kernel
        Resolved: everything that depends on data is a number.
    ridge : float or array of shape (n,), default=0.0
        Added to the diagonal.
    cache : bool, default=False
        Keep each tile once computed: `nbytes_cached(n, itemsize)` bytes, products at memory speed.
    precision : {"highest", "high", "medium"}, default="highest"
        Of streamed products on a CUDA device; below the highest they run fused (see `gramless.linalg.operators.fused`).
    storage : {None, "float16", "bfloat16"}, default=None
        Half-precision tiles for a cache of tensors: half the memory, entries rounded to 5e-4 or 4e-3 relative.

    See Also
    --------
    nbytes_cached : What `cache=True` costs.
    BorderedOperator : The same with the bias as one more unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.linalg.operators import KernelOperator
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> op = KernelOperator(X, RBF(gamma=0.5), ridge=0.1)
    >>> V = np.ones((100, 2))
    >>> bool(np.allclose(op @ V, op.dense() @ V))
    True
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
        self.ridge = self._as_vector(ridge)
        self.cache = cache
        self.storage = storage
        self.edge = min(tile_edge(X), n)
        self._tiles = lower_tiles(slices(n, self.edge))
        self._stored: dict[tuple[int, int], Array] = {}
        self._places = {(rows.start, columns.start): i for i, (rows, columns) in enumerate(self._tiles)}
        self._arenas: dict[int, Array] = {}
        self._lock = Lock()
        self.fused = prepare_fused(kernel, self.X, precision) if not cache else None

    def _as_vector(self, ridge: Any) -> Array:
        vector = xa.zeros((self.shape[0],), self.reference)
        vector += xa.like(ridge, self.reference)
        return vector

    def _tile(self, rows: slice, columns: slice, buffer: Array | None) -> Array:
        key = (rows.start, columns.start)
        if key in self._stored:
            return self._stored[key]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if self.cache:
            buffer = self._slot(key, shape)
        assert buffer is not None
        tile = self.kernel.block(self.X, rows, columns, out=buffer[: shape[0], : shape[1]])
        if self.cache:
            tile = self._stored[key] = tile if self.storage is None else xa.to_half(tile, self.storage)
        return tile

    def _slot(self, key: tuple[int, int], shape: tuple[int, int]) -> Array:
        """Memory for a tile that stays.

        NumPy's tiles share arenas: in pieces of 4 MB the first touch of the memory takes as long as filling it, in large
        pieces the system hands out huge pages.
        """
        if xa.is_torch(self.reference):
            return xa.empty(shape, self.reference)
        arena, place = divmod(self._places[key], _TILES_IN_ARENA)
        with self._lock:
            if arena not in self._arenas:
                tiles = min(_TILES_IN_ARENA, len(self._tiles) - arena * _TILES_IN_ARENA)
                self._arenas[arena] = xa.empty((tiles, self.edge, self.edge), self.reference)
        return self._arenas[arena][place]

    def __matmul__(self, V: Array) -> Array:
        if self.fused is not None:
            return self.fused(self.X, V) + self.ridge[:, None] * V
        while True:
            try:
                return self._tiled_product(V)
            except xa.device_out_of_memory(self.reference) as error:
                self._shrink(error)

    def _shrink(self, error: BaseException) -> None:
        """Halve the tiles, and keep none, after the device ran out of memory; say what was needed when that is no help."""
        self._stored.clear()
        self.cache = False
        xa.release_device_memory()
        needed = (1 + self.kernel.temporaries) * self.edge**2 * self.dtype.itemsize
        if self.edge <= _SMALLEST_TILE:
            raise MemoryError(
                f"a tile of the kernel matrix needs {format_bytes(needed)} of the memory of {xa.device_of(self.X)}, which "
                f"has {format_bytes(free_memory(xa.device_of(self.X)))} free; free some, or use device='cpu'"
            ) from error
        self.edge //= 2
        self._tiles = lower_tiles(slices(self.shape[0], self.edge))

    def _tiled_product(self, V: Array) -> Array:
        workers = max(1, min(workers_for(self.kernel, self.X), len(self._tiles)))
        make_sums = compiled_sums(xa.to_numpy(V)) if self._compiles(V) else partial(BlasSums, V)

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

    def _compiles(self, V: Array) -> bool:
        aligned = len(self._tiles) == 1 or self.edge % PANEL == 0
        return aligned and self.dtype == xa.numpy_dtype(V) and can_compile(V, self.shape[0] ** 2 // 2, self.dtype)

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        if self.cache or not self.kernel.uses_points:
            return self.rows(idx) @ V
        if self.fused is not None:
            product = self.fused(self.fused.operand.take(idx), V)
        else:
            product = expand(self.kernel, xa.take_rows(self.X, idx), self.X, V)
        return product + xa.take_rows(self.ridge, idx)[:, None] * xa.take_rows(V, idx)

    def diagonal_block(self, idx: np.ndarray) -> Array:
        if self.fused is not None:
            some = self.fused.of(idx)
            return xa.add_diagonal_(some.block(some.operand), xa.take_rows(self.ridge, idx))
        return xa.add_diagonal_(self.kernel.block(self.X, idx, idx), xa.take_rows(self.ridge, idx))

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        idx = np.asarray(idx)
        block = self._cached_rows(idx, out) if self.cache else self._computed_rows(idx, out)
        at = xa.indices(np.arange(len(idx)), self.reference), xa.indices(idx, self.reference)
        block[at] += xa.take_rows(self.ridge, idx)
        return block

    def _computed_rows(self, idx: np.ndarray, out: Array | None) -> Array:
        if not self.kernel.uses_points:
            return self.kernel.block(self.X, idx, slice(None), out=out)
        return evaluate(self.kernel, xa.take_rows(self.X, idx), self.X, out=out)

    def _fill(self) -> None:
        """Compute the tiles that no product has visited yet."""
        missing = [(r, c) for r, c in self._tiles if (r.start, c.start) not in self._stored]

        def compute(tile: tuple[slice, slice]) -> None:
            self._tile(*tile, None)

        parallel_for(missing, compute, workers_for(self.kernel, self.X))

    def _cached_rows(self, idx: np.ndarray, out: Array | None) -> Array:
        if len(self._stored) < len(self._tiles):
            self._fill()
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

    def drop_cache(self) -> None:
        """Give the cache's memory back; products compute their tiles from here on."""
        self.cache = False
        self._stored.clear()
        self._arenas.clear()

    def diag(self) -> Array:
        return xa.like(self.kernel.diag(self.X), self.reference) + self.ridge

    def dense(self, dtype: Any = None) -> Array:
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        A = xa.empty(self.shape, self.reference, dtype)
        # A look-up is converted as it is copied; points are converted first, to compute in the better precision.
        same = xa.numpy_dtype(self.reference) == dtype or not self.kernel.uses_points
        X = self.X if same else xa.astype(self.X, dtype)

        def work(k: int) -> None:
            for rows, columns in self._tiles[k::workers]:
                self.kernel.block(X, rows, columns, out=A[rows, columns])
                if rows != columns:
                    A[columns, rows] = A[rows, columns].T

        workers = max(1, min(workers_for(self.kernel, self.X), len(self._tiles)))
        run_threads(work, workers)
        return xa.add_diagonal_(A, xa.astype(self.ridge, dtype))


def check_diagonal(op: Operator) -> None:
    """Raise a `ValueError` where the kernel's values are no numbers: `|K_ij|` is bounded by the diagonal.

    Parameters
    ----------
    op : Operator
        A kernel matrix.

    See Also
    --------
    KernelOperator : The matrix that is usually checked.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators import KernelOperator, check_diagonal
    >>> check_diagonal(KernelOperator(np.full((2, 1), 1e200), Linear()))
    Traceback (most recent call last):
    ...
    ValueError: the kernel's values overflow float64 or are not numbers: scale the data (StandardScaler), lower the \
kernel's degree or coefficients
    """
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
    """Bytes of one triangle of tiles: what a cached kernel matrix holds.

    Parameters
    ----------
    n : int
        Rows of the matrix.
    itemsize : int
        Bytes of an entry.
    edge : int
        Rows and columns of a tile.

    Returns
    -------
    int
        The bytes of the tiles on and below the diagonal.

    See Also
    --------
    KernelOperator : What holds the tiles.

    Examples
    --------
    >>> from gramless.linalg.operators import nbytes_cached
    >>> nbytes_cached(3000, 4, 1000) == 6 * 1000**2 * 4
    True
    """
    parts = -(-n // edge)
    return parts * (parts + 1) // 2 * edge * edge * itemsize if parts > 1 else n * n * itemsize
