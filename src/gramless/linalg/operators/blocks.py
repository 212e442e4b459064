"""Kernel blocks and expansions, tile by tile on every core.

evaluate(k, X, Y)           K(X, Y)
expand(k, X, points, coef)  K(X, points) @ coef, never holding more than a few tiles of K
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import on_grid
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads, parallel_for, slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import RBF, can_use_register_tiles, offset_to_remove
from gramless.linalg.operators.fused import FusedProduct, can_fuse

# Loading the compiled loops takes a second once: products that take less than a tenth of that do not ask for them.
_MANY_OPERATIONS = 5e9
# Kernel values. NumPy computes so many in about ten milliseconds; larger products use compiled loops in every process.
_MANY_VALUES = 1 << 20
# Blocks of tiles with such an edge are too small for a kernel to ask for them.
_SMALL_EDGE = 256
# An exponential costs as much as so many multiplications in a matrix product.
_OPERATIONS_OF_A_VALUE = 30
# Beginning and ending threads takes as long as some million operations.
_WORTH_THREADS = 1e7


FEW_VALUES = 2**16
"""So few kernel values are computed in one piece where they are needed: tiles and threads cost more."""


def tile_edge(X: Array) -> int:
    """The tile size that suits the device `X` lives on."""
    return CUDA_TILE if xa.device_of(X).startswith("cuda") else CPU_TILE


def workers_for(kernel: Kernel, X: Array) -> int:
    """Threads to share tiles among: torch and Python callables bring their own parallelism or cannot be shared."""
    if xa.is_torch(X) or not kernel.thread_safe:
        return 1
    return blas_threads()


def byte_rows(kernel: Kernel, X: Array, partners: int) -> Array:
    """Points as rows of bytes, where that is faster and changes no kernel value by more than rounding.

    See `gramless._core.grid` for the points that bytes can hold.

    Parameters
    ----------
    kernel : Kernel
        What is to be evaluated.
    X : array of shape (n, d)
        The points.
    partners : int
        How many points each of them will be multiplied with: loading the compiled loops pays for many only.

    Returns
    -------
    GridRows or array of shape (n, d)
        Rows of bytes; `X` itself where its values or the kernel forbid that, or the work is small.

    See Also
    --------
    evaluate : A block of kernel values.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators import byte_rows
    >>> X = np.ones((3, 2))
    >>> byte_rows(Linear(), X, 3) is X
    True
    """
    worth_it = X.shape[0] * partners * X.shape[1] >= _MANY_OPERATIONS or xa.is_grid(X)
    rows: Any = on_grid(X) if worth_it and kernel.uses_points else None
    return rows if rows is not None and kernel.accepts_grid(rows) else X


def _both_as_bytes(kernel: Kernel, X: Array, Y: Array) -> tuple[Array, Array]:
    """Both as bytes, or both as they are: products of mixed kinds gain nothing."""
    left = byte_rows(kernel, X, Y.shape[0])
    right = byte_rows(kernel, Y, X.shape[0]) if xa.is_grid(left) else Y
    return (left, right) if xa.is_grid(right) else (X, Y)


def evaluate(kernel: Kernel, X: Array, Y: Array, out: Array | None = None) -> Array:
    """The block `K(X, Y)`, tile by tile on every core.

    Parameters
    ----------
    kernel : Kernel
        Resolved: everything that depends on data is a number.
    X : array of shape (n, d)
        The points of the rows: NumPy, CSR or torch.
    Y : array of shape (m, d)
        The points of the columns, of the same library.
    out : array of shape (n, m), optional
        Where to write the block.

    Returns
    -------
    array of shape (n, m)
        The kernel values; `out` where that is given.

    See Also
    --------
    expand : The product of such a block with coefficients, without holding the block.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators import evaluate
    >>> evaluate(Linear(), np.eye(2), np.array([[3.0, 4.0]]))
    array([[3.],
           [4.]])
    """
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
        kernel(X[rows], Y[columns], out=out[rows, columns])

    parallel_for(tasks, fill, workers_for(kernel, X))
    return out


def expand(kernel: Kernel, X: Array, points: Array, coef: Array, precision: str = "highest") -> Array:
    """The product `K(X, points) @ coef`: O(n m d) time, a few tiles of memory.

    Parameters
    ----------
    kernel : Kernel
        Resolved: everything that depends on data is a number.
    X : array of shape (n, d)
        Where the expansion is evaluated.
    points : array of shape (m, d)
        The points that carry it.
    coef : array of shape (m, k)
        Their coefficients.
    precision : {"highest", "high", "medium"}, default="highest"
        Below the highest, a CUDA device computes both products fused; see `gramless.linalg.operators.fused`.

    Returns
    -------
    array of shape (n, k)
        One column for each column of `coef`.

    See Also
    --------
    evaluate : The block of kernel values itself.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> from gramless.linalg.operators import expand
    >>> expand(Linear(), np.eye(2), np.array([[3.0, 4.0]]), np.array([[2.0]]))
    array([[6.],
           [8.]])
    """
    if can_fuse(kernel, X, precision):
        return FusedProduct(kernel, points, precision, accurate=True)(X, coef)
    if isinstance(X, np.ndarray) and X.shape[0] * points.shape[0] <= FEW_VALUES:
        return kernel(X, points) @ coef
    if not kernel.uses_points:
        scores = xa.zeros((X.shape[0], coef.shape[1]), coef)
        for rows in slices(X.shape[0], tile_edge(X)):
            scores[rows] = kernel(X[rows], points) @ coef
        return scores
    if xa.is_torch(X):
        return _by_tiles(kernel, X, points, coef)
    whole = np.array([0, points.shape[0]])
    scores = expand_groups(kernel, X, points, coef, whole, np.arange(coef.shape[1])[None, :], coef.shape[1])
    return xa.astype(scores, xa.numpy_dtype(coef))


def expand_groups(
    kernel: Kernel, X: Array, points: Array, coef: Array, bounds: np.ndarray, into: np.ndarray, n_columns: int
) -> np.ndarray:
    """Several expansions at once, each on a group of the points: every kernel value is computed once, whoever uses it.

    The product of `K(X, points of g)` and the group's coefficients is added to the columns `into[g]` of the answer. That is
    what the pairs of classes of a support vector machine ask for: a vector takes part in the pairs of its own class.

    Parameters
    ----------
    kernel : Kernel
        Resolved, and computed from points.
    X : array of shape (n, d)
        Where the expansions are evaluated: NumPy, CSR or rows of bytes.
    points : array of shape (m, d)
        The points of all groups, one group after the other.
    coef : array of shape (m, k)
        Their coefficients.
    bounds : ndarray of shape (n_groups + 1,)
        Where each group begins, and where the last one ends.
    into : ndarray of shape (n_groups, k)
        The column of the answer that each column of a group's coefficients is added to.
    n_columns : int
        Columns of the answer.

    Returns
    -------
    ndarray of shape (n, n_columns)
        Float64, or in the precision of `coef` where it is summed by matrix products.
    """
    X, points = _both_as_bytes(kernel, X, points)
    n_values = X.shape[0] * points.shape[0]
    same = xa.numpy_dtype(X) == xa.numpy_dtype(coef)
    if type(kernel) is RBF and same and can_use_register_tiles(X, points, n_values, _MANY_VALUES):
        scores = np.zeros((X.shape[0], n_columns))
        _add_gaussian(kernel, xa.cast_numpy(X), xa.cast_numpy(points), xa.to_numpy(coef), bounds, into, scores)
        return scores
    scores = np.zeros((X.shape[0], n_columns), xa.numpy_dtype(coef))
    edge = tile_edge(X) if n_values >= _MANY_VALUES or xa.is_grid(X) else _SMALL_EDGE
    # No tile holds points of two groups.
    tiles = [
        (g, slice(first + columns.start, first + columns.stop))
        for g, (first, end) in enumerate(pairwise(bounds.tolist()))
        for columns in slices(end - first, edge)
    ]

    def fill(rows: slice) -> None:
        part, own = X[rows], scores[rows]
        buffer = np.empty((part.shape[0], min(edge, points.shape[0])), scores.dtype)
        for g, columns in tiles:
            block = kernel(part, points[columns], out=buffer[:, : columns.stop - columns.start])
            own[:, into[g]] += block @ coef[columns]

    # Small inputs still keep every core busy: no fewer row groups than threads.
    workers = workers_for(kernel, X)
    parallel_for(slices(X.shape[0], max(1, min(edge, -(-X.shape[0] // workers)))), fill, workers)
    return scores


def _by_tiles(kernel: Kernel, X: Array, points: Array, coef: Array) -> Array:
    """`K(X, points) @ coef` on a device."""
    edge = tile_edge(X)
    scores = xa.zeros((X.shape[0], coef.shape[1]), coef)
    for rows in slices(X.shape[0], edge):
        part = X[rows]
        buffer = xa.empty((part.shape[0], min(edge, points.shape[0])), coef)
        for columns in slices(points.shape[0], edge):
            block = kernel(part, points[columns], out=buffer[:, : columns.stop - columns.start])
            scores[rows] += block @ coef[columns]
    return scores


class PackedGaussian:
    """Expansions of a Gaussian kernel whose points and coefficients lie as the compiled loop wants them.

    Parameters
    ----------
    gamma : float
        Of the kernel.
    points : ndarray of shape (m, d)
        Of all groups, one group after the other, float32 or float64.
    coef : ndarray of shape (m, k)
        Their coefficients.
    bounds, into : ndarray
        As in `expand_groups`; one group by default.
    """

    def __init__(
        self,
        gamma: float,
        points: np.ndarray,
        coef: np.ndarray,
        bounds: np.ndarray | None = None,
        into: np.ndarray | None = None,
    ):
        from gramless._core.compiled import gaussian_tiles

        self._tiles = gaussian_tiles
        dtype = points.dtype
        bounds = np.array([0, points.shape[0]]) if bounds is None else bounds
        self._into = np.arange(coef.shape[1])[None, :] if into is None else into
        self._scale, self._shift = dtype.type((2 * gamma) ** 0.5), offset_to_remove(points)
        self._points = self._tiles.panels(np.ascontiguousarray(points), self._shift, self._scale, bounds)
        lanes = self._tiles.lanes(dtype.itemsize)
        self._coef = self._tiles.columns(np.ascontiguousarray(coef, dtype), bounds, self._points[-1], lanes)

    def add(self, X: np.ndarray, out: np.ndarray) -> None:
        """Add the expansions at rows of the points' dtype to `out`, in the calling thread."""
        left, half_x = self._tiles.strips(np.ascontiguousarray(X), self._shift, self._scale)
        self._tiles.expand(left, half_x, *self._points, self._coef, self._into, out)


def _add_gaussian(
    kernel: RBF, X: np.ndarray, points: np.ndarray, coef: np.ndarray, bounds: np.ndarray, into: np.ndarray, out: np.ndarray
) -> None:
    """`expand_groups` of a Gaussian kernel without a tile of it in memory."""
    packed = PackedGaussian(resolve_gamma(kernel.gamma, X), points, coef, bounds, into)

    def add(rows: slice) -> None:
        packed.add(X[rows], out[rows])

    n_values = X.shape[0] * points.shape[0]
    enough = n_values * (X.shape[1] + coef.shape[1] + _OPERATIONS_OF_A_VALUE) >= _WORTH_THREADS
    workers = workers_for(kernel, X) if enough else 1
    # As many tasks for each thread, all of one size.
    tasks = workers * -(-X.shape[0] // (workers * CPU_TILE))
    parallel_for(slices(X.shape[0], -(-X.shape[0] // tasks)), add, workers, blas=False)
