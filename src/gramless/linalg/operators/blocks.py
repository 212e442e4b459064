"""Blocks of kernel values, and kernel expansions, computed tile by tile on all cores.

evaluate(k, X, Y)           K(X, Y)
cross(k, X, rows, columns)  K(X[rows], X[columns]); a precomputed kernel reads these values from X
expand(k, X, points, coef)  K(X, points) @ coef, with a few tiles of K in memory

A resolved kernel has numbers as parameters, not names such as `gamma="scale"`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import on_grid
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads, parallel_for, run_threads, slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import RBF, can_use_register_tiles, offset_to_remove, values_at_points
from gramless.linalg.operators.fused import FusedProduct, can_fuse
from gramless.linalg.tuning import TUNING


def tile_edge(X: Array) -> int:
    """Return the number of rows of a tile on the device of `X`."""
    return CUDA_TILE if xa.device_of(X).startswith("cuda") else CPU_TILE


def workers_for(kernel: Kernel, X: Array) -> int:
    """Return the number of threads for tiles: one for torch, which has its own threads, and for Python functions."""
    if xa.is_torch(X) or not kernel.thread_safe:
        return 1
    return blas_threads()


def byte_rows(kernel: Kernel, X: Array, partners: int) -> Array:
    """Return `X` as `GridRows` of bytes if this saves time and changes kernel values by rounding only, else `X` itself.

    `partners` is the number of points that each row is multiplied with; `gramless._core.grid` describes `GridRows`.
    """
    saves_time = X.shape[0] * partners * X.shape[1] >= TUNING.min_operations_for_bytes or xa.is_grid(X)
    rows: Any = on_grid(X) if saves_time and kernel.uses_points else None
    return rows if rows is not None and kernel.accepts_grid(rows) else X


def _both_as_bytes(kernel: Kernel, X: Array, Y: Array) -> tuple[Array, Array]:
    """Return `X` and `Y` both as bytes, or both unchanged, because products of bytes with floats are not faster."""
    left = byte_rows(kernel, X, Y.shape[0])
    right = byte_rows(kernel, Y, X.shape[0]) if xa.is_grid(left) else Y
    return (left, right) if xa.is_grid(right) else (X, Y)


def evaluate(kernel: Kernel, X: Array, Y: Array, out: Array | None = None, *, n_points: int | None = None) -> Array:
    """Return `K(X, Y)` of a resolved kernel, written to `out`; `n_points` counts all points if `Y` is a part of them."""
    shape = (X.shape[0], Y.shape[0])
    if xa.is_torch(X) or min(shape) == 0 or not kernel.uses_points:
        return kernel(X, Y, out=out)
    if out is None:
        out = np.empty(shape, X.dtype)
    X, Y = _both_as_bytes(kernel, X, Y)
    edge = tile_edge(X)
    tasks = [(rows, columns) for rows in slices(shape[0], edge) for columns in slices(shape[1], edge)]

    def fill(task: tuple[slice, slice]) -> None:
        rows, columns = task
        values_at_points(kernel, X[rows], Y[columns], out[rows, columns], n_points or shape[1])

    parallel_for(tasks, fill, workers_for(kernel, X))
    return out


def cross(kernel: Kernel, X: Array, rows: Any, columns: Any, dtype: Any = None, out: Array | None = None) -> Array:
    """Return `K(X[rows], X[columns])`, computed in `dtype` (by default that of `X`) and written to `out`."""
    if not kernel.uses_points:
        block = kernel.block(X, rows, columns, out=out)
        return block if dtype is None else xa.astype(block, dtype)
    left, right = xa.take_rows(X, rows), xa.take_rows(X, columns)
    if dtype is not None:
        left, right = xa.astype(left, dtype), xa.astype(right, dtype)
    return evaluate(kernel, left, right, out=out)


def expand(kernel: Kernel, X: Array, points: Array, coef: Array, precision: str = "highest") -> Array:
    """Return `K(X, points) @ coef` of a resolved kernel: O(n m d) time, a few tiles of memory.

    With a `precision` below `"highest"`, a CUDA device computes the kernel values and the product in one fused kernel.
    """
    if can_fuse(kernel, X, precision):
        return FusedProduct(kernel, points, precision)(X, coef)
    if isinstance(X, np.ndarray) and X.shape[0] * points.shape[0] <= TUNING.few_values:
        return kernel(X, points) @ coef
    if not kernel.uses_points:
        scores = xa.zeros((X.shape[0], coef.shape[1]), coef)
        for rows in slices(X.shape[0], tile_edge(X)):
            scores[rows] = kernel(X[rows], points) @ coef
        return scores
    if coef.shape[0] != points.shape[0]:
        raise ValueError(f"{coef.shape[0]} rows of coefficients do not match {points.shape[0]} points")
    whole = np.array([0, points.shape[0]])
    scores = expand_groups(kernel, X, points, coef, whole, np.arange(coef.shape[1])[None, :], coef.shape[1])
    return xa.astype(scores, xa.numpy_dtype(coef))


def expand_groups(
    kernel: Kernel, X: Array, points: Array, coef: Array, bounds: np.ndarray, into: np.ndarray, n_columns: int
) -> Array:
    """Return the sums of several kernel expansions, each on a group of the points; every kernel value is computed once.

    Group `g` is `points[bounds[g]:bounds[g + 1]]`; its product `K(X, points of g) @ coef` is added to the columns `into[g]`
    of the result of shape (n, n_columns). A support vector machine uses this for pairs of classes. The compiled loop returns
    float64 sums; sums of matrix products have the precision of `coef`.
    """
    X, points = _both_as_bytes(kernel, X, points)
    n_values = X.shape[0] * points.shape[0]
    operations = n_values * (X.shape[1] + coef.shape[1] + TUNING.operations_per_exponential)
    same = xa.numpy_dtype(X) == xa.numpy_dtype(coef)
    if type(kernel) is RBF and same and can_use_register_tiles(X, points, n_values, TUNING.min_values_for_registers):
        gamma = resolve_gamma(kernel.gamma, X)
        packed = PackedGaussian(gamma, points, xa.to_numpy(coef), bounds, into)
        sums = np.zeros((X.shape[0], n_columns))
        # Each thread gets the same number of tasks, all of the same size.
        workers = workers_for(kernel, X) if operations >= TUNING.min_operations_for_threads else 1
        tasks = slices(X.shape[0], -(-X.shape[0] // (workers * -(-X.shape[0] // (workers * CPU_TILE)))))
        parallel_for(tasks, lambda rows: packed.add(X[rows], sums[rows]), workers, blas=False)
        return sums
    scores = xa.zeros((X.shape[0], n_columns), coef)
    is_small = n_values < TUNING.min_values_for_registers and not (xa.is_grid(X) or xa.is_torch(X))
    edge = TUNING.small_tile_edge if is_small else tile_edge(X)
    # No tile has points of two groups.
    tiles = [
        (g, slice(first + columns.start, first + columns.stop))
        for g, (first, end) in enumerate(pairwise(bounds.tolist()))
        for columns in slices(end - first, edge)
    ]

    def fill(rows: slice) -> None:
        part, own = X[rows], scores[rows]
        buffer = xa.empty((part.shape[0], min(edge, points.shape[0])), scores)
        for g, columns in tiles:
            block = kernel(part, points[columns], out=buffer[:, : columns.stop - columns.start])
            own[:, xa.indices(into[g], scores)] += block @ coef[columns]

    # Small inputs are divided too, so that every core is used. The division depends on the sizes only and not on the number
    # of threads, because BLAS rounds differently for other numbers of rows and results must not depend on the threads.
    parts = min(TUNING.most_parts, 1 << int(max(1.0, operations / TUNING.min_operations_for_threads)).bit_length() - 1)
    rows = slices(X.shape[0], max(1, min(edge, X.shape[0] if xa.is_torch(X) else -(-X.shape[0] // parts))))
    parallel_for(rows, fill, workers_for(kernel, X))
    return scores


class PackedGaussian:
    """Expansions of a Gaussian kernel with points and coefficients in the layout of the compiled loop."""

    def __init__(
        self,
        gamma: float,
        points: np.ndarray,
        coef: np.ndarray,
        bounds: np.ndarray | None = None,
        into: np.ndarray | None = None,
    ):
        from gramless._core.compiled import register_tiles

        self._tiles = register_tiles
        dtype = points.dtype
        bounds = np.array([0, points.shape[0]]) if bounds is None else bounds
        self._into = np.arange(coef.shape[1])[None, :] if into is None else into
        # Compiled loops do not check array bounds, and models may come from damaged files.
        is_ordered = bounds[0] >= 0 and (np.diff(bounds) >= 0).all() and bounds[-1] <= len(points)
        if not is_ordered or len(coef) != len(points) or self._into.shape != (len(bounds) - 1, coef.shape[1]):
            raise ValueError(
                f"coefficients of shape {coef.shape} and groups {bounds.tolist()} do not match {len(points)} points"
            )
        self._scale, self._shift = dtype.type(register_tiles.gaussian_scale(gamma)), offset_to_remove(points)
        self._points, self._firsts = self._tiles.panels(np.ascontiguousarray(points), self._shift, self._scale, bounds)
        lanes = self._tiles.lanes(dtype.itemsize)
        self._coef = self._tiles.columns(np.ascontiguousarray(coef, dtype), bounds, self._firsts, lanes)

    def add(self, X: np.ndarray, out: np.ndarray) -> None:
        """Add the expansions at the rows `X`, in the dtype of the points, to `out`, in the calling thread."""
        xa.check_same_columns(X, self._points[0])
        if out.shape[0] != len(X) or self._into.min(initial=0) < 0 or self._into.max(initial=-1) >= out.shape[1]:
            raise ValueError(f"the scores of {len(X)} rows cannot be written to an array of shape {out.shape}")
        rows = self._tiles.strips(np.ascontiguousarray(X), self._shift, self._scale)
        self._tiles.expand(rows, self._points, self._firsts, self._coef, self._into, out)


def is_register_problem(kernel: Kernel, n: int, d: int) -> bool:
    """Return whether products with the kernel matrix of `n` dense rows of `d` features suit `SymmetricGaussian`."""
    enough = n * n // 2 >= TUNING.min_values_for_registers
    return type(kernel) is RBF and enough and d <= TUNING.max_register_features


def recomputing_is_faster(d: int, n_columns: int, itemsize: int) -> bool:
    """Return whether products of a Gaussian matrix with `n_columns` columns take less time if its values are not stored.

    A vector of kernel values takes one instruction for each feature, the instructions of the exponential, and four for each
    pair of columns.
    """
    from gramless._core.compiled.simd import lanes

    exponential = TUNING.exponential_instructions if itemsize == 4 else TUNING.exponential_instructions_double
    instructions = d + exponential + 4 * -(-n_columns // 2)
    return instructions <= TUNING.instructions_per_stored_value * lanes()


class SymmetricGaussian:
    """The map `V -> K(X, X) V` of a Gaussian kernel on dense rows; values are recomputed in registers and never stored."""

    def __init__(self, gamma: float, X: np.ndarray):
        from gramless._core.compiled import register_tiles

        self._tiles, self._bounds = register_tiles, np.array([0, len(X)])
        rows, shift = np.ascontiguousarray(X), offset_to_remove(X)
        scale = X.dtype.type(register_tiles.gaussian_scale(gamma))
        self._strips = register_tiles.strips(rows, shift, scale)
        self._panels, self._firsts = register_tiles.panels(rows, shift, scale, self._bounds)

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        n, k = V.shape
        V = np.ascontiguousarray(V, self._strips[0].dtype)
        coef = self._tiles.columns(V, self._bounds, self._firsts, self._tiles.lanes(V.itemsize))
        pairs, vectors, width, lanes = coef.shape
        factors = np.zeros((pairs, len(self._strips[1]), width), V.dtype)
        factors[:, :n] = coef.transpose(1, 3, 0, 2).reshape(vectors * lanes, pairs, width)[:n].transpose(1, 0, 2)
        workers = blas_threads()

        def work(number: int) -> np.ndarray:
            out = np.zeros(coef.shape)
            self._tiles.multiply_lower_tiles(self._strips, self._panels, factors, coef, out, number, workers)
            return out

        total, *others = run_threads(work, workers, blas=False)
        for other in others:
            total += other
        return total.transpose(1, 3, 0, 2).reshape(vectors * lanes, -1)[:n, :k].astype(V.dtype)
