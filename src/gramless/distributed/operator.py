"""The matrix `K(X, X) + diag(ridge)` and its preconditioner, with the rows on the workers.

The rows are in a few blocks. A product visits the tiles on and below the diagonal once, wherever they are:

    out[i] += T_ij V[j]      out[j] += T_ij^T V[i]

Only `V` and the product travel, `n k` numbers each way. Tiles stay on the workers where a third of their memory holds one
triangle of the matrix; otherwise each product computes them again, and the blocks of rows are copied between workers. A
worker that is lost takes along its tiles, which the others compute again, and perhaps its share of `V`: the product is then
repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import Any

import numpy as np
from dask.distributed import Client

from gramless._runtime import arrays as xa
from gramless.distributed.cluster import reduce_in_tree
from gramless.distributed.collections import Piece
from gramless.kernels.base import Kernel
from gramless.operators import evaluate
from gramless.operators.kernel import KernelOperator

_ATTEMPTS = 6
_SECONDS_BEFORE_THE_NEXT = 0.25


class DistributedOperator:
    """`K(X, X) + diag(ridge)` over blocks of rows on the workers.

    Parameters
    ----------
    client : distributed.Client
    blocks : list of futures of Piece
    counts : list of int
        Rows in each block.
    kernel : Kernel
    ridge : ndarray of shape (n,)
    dtype : dtype
    cache : bool
        Keep the tiles.
    """

    spd = True

    def __init__(
        self,
        client: Client,
        blocks: list[Any],
        counts: list[int],
        kernel: Kernel,
        ridge: np.ndarray,
        dtype: Any,
        *,
        cache: bool,
    ):
        n = sum(counts)
        self.shape = (n, n)
        self.dtype = np.dtype(dtype)
        self.client, self.blocks, self.kernel = client, blocks, kernel
        self.ridge = ridge.astype(self.dtype)
        edges = np.cumsum([0, *counts])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self._pairs = [(i, j) for i in range(len(blocks)) for j in range(i + 1)]
        self._tiles: dict[tuple[int, int], Any] = {}
        if cache:
            self._tiles = {(i, j): client.submit(_tile, kernel, blocks[i], blocks[j], pure=False) for i, j in self._pairs}

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        product = again_if_lost(lambda: self._product(V))
        return product + self.ridge[:, None] * V

    def _product(self, V: np.ndarray) -> np.ndarray:
        shares = self.client.scatter([np.ascontiguousarray(V[part]) for part in self.parts], hash=False)
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

    def rows(self, idx: np.ndarray, out: Any = None) -> np.ndarray:
        """The rows `idx`, ridge included: as a product with unit vectors."""
        units = np.zeros((self.shape[0], len(idx)), self.dtype)
        units[idx, np.arange(len(idx))] = 1
        block = np.ascontiguousarray((self @ units).T)
        if out is None:
            return block
        out[...] = block
        return out

    def diag(self) -> np.ndarray:
        """The diagonal, ridge included."""
        parts = self.client.gather([self.client.submit(_diagonal, self.kernel, b, pure=False) for b in self.blocks])
        return np.concatenate(parts) + self.ridge


class DistributedPreconditioner:
    """`V -> P^-1 V` as `gramless.preconditioners.nystrom` has it, with `K(X, landmarks)` on the workers.

    Parameters
    ----------
    op : DistributedOperator
    landmarks : future of Piece
    sample : future of Piece
        Rows on which the damping is estimated.
    damping : float or "auto"
    store : bool
        Keep `K(X, landmarks)` on the workers, or compute it again at each use.
    """

    def __init__(self, op: DistributedOperator, landmarks: Any, sample: Any, damping: float | str, *, store: bool):
        client, self.op, self._landmarks = op.client, op, landmarks
        local = client.submit(_landmark_matrix, op.kernel, landmarks, sample, op.shape[0], damping, pure=False)
        self.damping = client.submit(_damping, local, pure=False).result()
        self._inverse_diagonal = (1.0 / (op.ridge.astype(np.float64) + self.damping)).astype(op.dtype)
        self._stored = None
        if store:
            self._stored = [client.submit(_cross, op.kernel, block, landmarks, pure=False) for block in op.blocks]
        inverse = [self._inverse_diagonal[part] for part in op.parts]
        squares = [client.submit(_square, cross, d, pure=False) for cross, d in zip(self._crosses(), inverse, strict=True)]
        total = reduce_in_tree(client, squares, _add)
        self._factor = client.submit(_factorise, local, total, op.dtype, pure=False)

    def _crosses(self) -> list[Any]:
        if self._stored is not None:
            return self._stored
        client = self.op.client
        return [client.submit(_cross, self.op.kernel, b, self._landmarks, pure=False) for b in self.op.blocks]

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        return again_if_lost(lambda: self._apply(self._inverse_diagonal[:, None] * V))

    def _apply(self, scaled: np.ndarray) -> np.ndarray:
        client = self.op.client
        shares = client.scatter([np.ascontiguousarray(scaled[part]) for part in self.op.parts], hash=False)
        crosses = self._crosses()
        down = [client.submit(_down, c, v, pure=False) for c, v in zip(crosses, shares, strict=True)]
        inner = client.submit(_inner, self._factor, reduce_in_tree(client, down, _add), self.op.dtype, pure=False)
        up = client.gather([client.submit(_up, cross, inner, pure=False) for cross in crosses])
        return scaled - self._inverse_diagonal[:, None] * np.concatenate(up)


def again_if_lost(work: Callable[[], np.ndarray]) -> np.ndarray:
    """Do `work`, and do it again where a lost worker took along numbers that came from the client."""
    for attempt in range(_ATTEMPTS - 1):
        try:
            return work()
        except (CancelledError, OSError):
            # A closed connection, before the scheduler has noticed that the worker is gone, is an OSError.
            time.sleep(_SECONDS_BEFORE_THE_NEXT * 2**attempt)
    return work()


def _tile(kernel: Kernel, rows: Piece, columns: Piece) -> np.ndarray:
    return evaluate(kernel, rows.X, columns.X)


def _both_halves(tile: np.ndarray, own: np.ndarray, other: np.ndarray, diagonal: bool) -> tuple[Any, Any]:
    return tile @ other, None if diagonal else tile.T @ own


def _both_halves_computed(
    kernel: Kernel, rows: Piece, columns: Piece, own: np.ndarray, other: np.ndarray, diagonal: bool
) -> tuple[Any, Any]:
    if diagonal:
        return KernelOperator(rows.X, kernel) @ own, None
    down = np.zeros((len(rows.X), own.shape[1]), own.dtype)
    up = np.zeros((len(columns.X), own.shape[1]), own.dtype)
    edge = 2048
    for i in range(0, len(rows.X), edge):
        for j in range(0, len(columns.X), edge):
            tile = evaluate(kernel, rows.X[i : i + edge], columns.X[j : j + edge])
            down[i : i + edge] += tile @ other[j : j + edge]
            up[j : j + edge] += tile.T @ own[i : i + edge]
    return down, up


def _collect(own: list[tuple[Any, Any]], others: list[tuple[Any, Any]]) -> np.ndarray:
    parts = [pair[0] for pair in own] + [pair[1] for pair in others]
    return sum(parts[1:], start=parts[0])


def _diagonal(kernel: Kernel, block: Piece) -> np.ndarray:
    return kernel.diag(block.X)


def _cross(kernel: Kernel, block: Piece, landmarks: Piece) -> np.ndarray:
    return evaluate(kernel, block.X, landmarks.X)


def _landmark_matrix(
    kernel: Kernel, landmarks: Piece, sample: Piece, n: int, damping: Any
) -> tuple[np.ndarray, float, float]:
    """`K_ss` in float64, its jitter, and the damping: the mean eigenvalue that the landmarks leave out."""
    points = landmarks.X.astype(np.float64)
    K = evaluate(kernel, points, points)
    m = len(points)
    jitter = m * float(np.finfo(np.float64).eps) * float(np.diagonal(K).max())
    if damping != "auto":
        return K, jitter, float(damping)
    some = sample.X.astype(np.float64)
    half = xa.solve_triangular(xa.cholesky_(xa.add_diagonal_(K + 0, jitter)), evaluate(kernel, points, some))
    unexplained = float(np.sum(kernel.diag(some))) - xa.norm(half) ** 2
    mean = unexplained / len(some) * n / max(1, n - m)
    return K, jitter, max(mean, float(np.finfo(landmarks.X.dtype).eps) * n)


def _damping(local: tuple[np.ndarray, float, float]) -> float:
    return local[2]


def _square(cross: np.ndarray, inverse_diagonal: np.ndarray) -> np.ndarray:
    return ((cross * inverse_diagonal[:, None]).T @ cross).astype(np.float64)


def _add(parts: list[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)


def _factorise(local: tuple[np.ndarray, float, float], total: np.ndarray, dtype: np.dtype) -> np.ndarray:
    K, jitter, _ = local
    rounding = float(np.finfo(dtype).eps) * float(np.trace(total)) / np.sqrt(len(K))
    return xa.cholesky_(xa.add_diagonal_(total + K, max(jitter, rounding)))


def _down(cross: np.ndarray, share: np.ndarray) -> np.ndarray:
    return (cross.T @ share).astype(np.float64)


def _inner(factor: np.ndarray, projected: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return xa.cholesky_solve(factor, projected).astype(dtype)


def _up(cross: np.ndarray, inner: np.ndarray) -> np.ndarray:
    return cross @ inner
