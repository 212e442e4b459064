"""The matrix `K(X, X) + diag(ridge)` and its columns at the landmarks, with the rows on the workers.

The rows are divided into a few blocks, and `T_ij` is the tile of the matrix for blocks i and j. A product with `V` uses each
tile on and below the diagonal once, on the worker that has the tile:

    out[i] += T_ij V[j]      out[j] += T_ij^T V[i]

Only `V` and the product are transferred, `n k` numbers each way. The tiles are cached on the workers if they fit into
memory; otherwise each product computes the tiles again, and the blocks of rows are copied between workers. If a worker is
lost, other workers compute its tiles again, and the product is repeated if a part of `V` was lost.

`RemoteColumns` computes the products for `NystromPreconditioner` from one `TallMatrix` per block of rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import Any

import numpy as np

from gramless._core.arrays import Array
from gramless.distributed.cluster import reduce_in_tree
from gramless.distributed.collections import Piece, Rows
from gramless.kernels.base import Kernel
from gramless.linalg.operators import Operator, evaluate
from gramless.linalg.operators.kernel import KernelOperator
from gramless.linalg.operators.nystrom import TallMatrix

_ATTEMPTS = 6  # number of times that a product is tried; an error in the last attempt is raised
_FIRST_DELAY = 0.25  # seconds before the second attempt, doubled for each further attempt
_TILE = 2048  # rows and columns of a tile that is not cached: 32 MB in float64


class DistributedOperator(Operator):
    """`K(X, X) + diag(ridge)` of `rows` on the workers; `blocks[i]` is the future of a `Piece` with `counts[i]` rows."""

    capabilities = frozenset({"spd", "ridge"})

    def __init__(
        self,
        rows: Rows,
        blocks: list[Any],
        counts: list[int],
        kernel: Kernel,
        ridge: np.ndarray,
        *,
        cache: bool,
    ):
        self.shape = (rows.n, rows.n)
        self.dtype = np.dtype(rows.dtype)
        self.reference = np.empty(0, self.dtype)
        self.source, self.client, self.blocks, self.kernel = rows, rows.client, blocks, kernel
        self.ridge = ridge.astype(self.dtype)
        edges = np.cumsum([0, *counts])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self._pairs = [(i, j) for i in range(len(blocks)) for j in range(i + 1)]
        self._tiles: dict[tuple[int, int], Any] = {}
        if cache:
            submit = self.client.submit
            self._tiles = {(i, j): submit(_tile, kernel, blocks[i], blocks[j], pure=False) for i, j in self._pairs}

    def __matmul__(self, V: Array) -> Array:
        product = retry_if_lost(lambda: self._product(V))
        return product + self.ridge[:, None] * V

    def scattered(self, V: Array) -> list[Any]:
        """Return futures of the rows of `V` that belong to each block."""
        return self.client.scatter([np.ascontiguousarray(V[part]) for part in self.parts], hash=False)

    def _product(self, V: Array) -> np.ndarray:
        shares = self.scattered(V)
        halves: dict[tuple[int, int], Any] = {}
        for i, j in self._pairs:
            task: tuple[Any, ...]
            if self._tiles:
                task = (_both_halves, self._tiles[i, j], shares[i], shares[j], i == j)
            else:
                task = (_both_halves_computed, self.kernel, self.blocks[i], self.blocks[j], shares[i], shares[j], i == j)
            halves[i, j] = self.client.submit(*task, pure=False)
        sums = []
        for i in range(len(self.parts)):
            own = [halves[i, j] for j in range(i + 1)]
            others = [halves[j, i] for j in range(i + 1, len(self.parts))]
            sums.append(self.client.submit(_collect, own, others, pure=False))
        return np.concatenate(self.client.gather(sums))

    def diag(self) -> np.ndarray:
        """Return the diagonal of the matrix, including the ridge."""
        parts = self.client.gather([self.client.submit(_diagonal, self.kernel, b, pure=False) for b in self.blocks])
        return np.concatenate(parts) + self.ridge

    def columns(self, landmarks: np.ndarray, store: bool) -> RemoteColumns:
        """Return the columns of `K(X, X)` at sorted landmark indices, without the ridge."""
        return RemoteColumns(self, landmarks, store=store)


class RemoteColumns:
    """`K(X, s)` for sorted landmarks `s`, with the interface of `LocalColumns`; `store` caches the values on the workers."""

    def __init__(self, op: DistributedOperator, landmarks: np.ndarray, *, store: bool):
        self.shape = (op.shape[0], len(landmarks))
        self.landmarks = landmarks
        self.dtype, self.sums = op.dtype, np.dtype(np.float64)
        self._op = op
        self._points = op.source.take(landmarks)
        self._blocks = [op.client.submit(_columns, op.kernel, b, self._points, store, pure=False) for b in op.blocks]

    def square(self) -> Array:
        """Return `K(s, s)` in float64, computed on a worker."""
        return self._op.client.submit(_square, self._op.kernel, self._points, pure=False).result()

    def sample(self, rows: np.ndarray) -> tuple[Array, Array]:
        """Return `K(rows, s)` and the diagonal entries of `K(X, X)` at the same rows, in float64."""
        order = np.argsort(rows)
        taken = self._op.source.take(rows[order])
        C, diagonal = self._op.client.submit(_sample, self._op.kernel, taken, self._points, pure=False).result()
        back = np.argsort(order)
        return C[back], diagonal[back]

    def add_gram_(self, S: Array, weights: Array) -> Array:
        """Add `K(s, X) diag(weights) K(X, s)` to the lower triangle of `S`, and return `S`."""
        S += self._added(_gram, weights)
        return S

    def transposed_times(self, V: Array) -> Array:
        """Return `K(s, X) V`."""
        return self._added(TallMatrix.transposed_times, V)

    def times(self, W: Array) -> Array:
        """Return `K(X, s) W`."""
        client = self._op.client

        def product() -> np.ndarray:
            share = client.scatter(W, hash=False)
            return np.concatenate(client.gather(self._for_each_block(TallMatrix.times, [share] * len(self._blocks))))

        return retry_if_lost(product)

    def _added(self, work: Callable[..., Any], V: Array) -> Array:
        """Return the sum of `work(columns, rows of V)` over all blocks."""

        def added() -> Any:
            parts = self._for_each_block(work, self._op.scattered(V))
            return reduce_in_tree(self._op.client, parts, _add).result()

        return retry_if_lost(added)

    def _for_each_block(self, work: Callable[..., Any], shares: list[Any]) -> list[Any]:
        submit = self._op.client.submit
        return [submit(work, columns, share, pure=False) for columns, share in zip(self._blocks, shares, strict=True)]


def retry_if_lost(work: Callable[[], Any]) -> Any:
    """Call `work` and return its result; repeat the call if a worker was lost with data that the client had sent to it."""
    for attempt in range(_ATTEMPTS - 1):
        try:
            return work()
        except (CancelledError, OSError):
            # A connection that closes before the scheduler has noticed the lost worker raises an OSError.
            time.sleep(_FIRST_DELAY * 2**attempt)
    return work()


def _tile(kernel: Kernel, rows: Piece, columns: Piece) -> Array:
    return evaluate(kernel, rows.X, columns.X, n_points=sys.maxsize)


def _both_halves(tile: np.ndarray, own: np.ndarray, other: np.ndarray, diagonal: bool) -> tuple[Any, Any]:
    return tile @ other, None if diagonal else tile.T @ own


def _both_halves_computed(
    kernel: Kernel, rows: Piece, columns: Piece, own: np.ndarray, other: np.ndarray, diagonal: bool
) -> tuple[Any, Any]:
    if diagonal:
        return KernelOperator(rows.X, kernel) @ own, None
    down = np.zeros((len(rows.X), own.shape[1]), own.dtype)
    up = np.zeros((len(columns.X), own.shape[1]), own.dtype)
    for i in range(0, len(rows.X), _TILE):
        for j in range(0, len(columns.X), _TILE):
            tile = evaluate(kernel, rows.X[i : i + _TILE], columns.X[j : j + _TILE], n_points=sys.maxsize)
            down[i : i + _TILE] += tile @ other[j : j + _TILE]
            up[j : j + _TILE] += tile.T @ own[i : i + _TILE]
    return down, up


def _collect(own: list[tuple[Any, Any]], others: list[tuple[Any, Any]]) -> np.ndarray:
    parts = [pair[0] for pair in own] + [pair[1] for pair in others]
    return sum(parts[1:], start=parts[0])


def _diagonal(kernel: Kernel, block: Piece) -> Array:
    return kernel.diag(block.X)


def _columns(kernel: Kernel, block: Piece, points: Piece, store: bool) -> TallMatrix:
    """Return the kernel values of a block with the landmarks, computed now (`store`) or from the rows in each product."""
    rows, landmarks = block.X, points.X
    return TallMatrix((len(rows), len(landmarks)), lambda part: evaluate(kernel, rows[part], landmarks), store=store)


def _gram(columns: TallMatrix, weights: np.ndarray) -> Array:
    m = columns.shape[1]
    return columns.add_gram_(np.zeros((m, m)), weights)


def _square(kernel: Kernel, points: Piece) -> Array:
    double = points.X.astype(np.float64)
    return evaluate(kernel, double, double)


def _sample(kernel: Kernel, some: Piece, points: Piece) -> tuple[Array, Array]:
    double = some.X.astype(np.float64)
    return kernel(double, points.X.astype(np.float64)), kernel.diag(double)


def _add(parts: list[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)
