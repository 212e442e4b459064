"""Kernel blocks and expansions, tile by tile on every core.

evaluate(k, X, Y)           K(X, Y)
expand(k, X, points, coef)  K(X, points) @ coef, never holding more than a few tiles of K
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.grid import on_grid
from gramless._runtime.threads import CPU_TILE, CUDA_TILE, blas_threads, share, slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import RBF, without_offset
from gramless.operators.fused import FusedProduct, can_fuse

# Up to so many features and columns, products with a Gaussian kernel are faster in one compiled loop than by tiles and BLAS.
_FEW_FEATURES = 16
_FEW_COLUMNS = 8
# Loading the compiled loops takes a second once: products that take less than a tenth of that do not ask for them.
_MANY_OPERATIONS = 5e9


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

    See `gramless._runtime.grid` for the points that bytes can hold.

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
    >>> from gramless.operators import byte_rows
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
    >>> from gramless.operators import evaluate
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

    share(tasks, fill, workers_for(kernel, X))
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
        Below the highest, a CUDA device computes both products fused; see `gramless.operators.fused`.

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
    >>> from gramless.operators import expand
    >>> expand(Linear(), np.eye(2), np.array([[3.0, 4.0]]), np.array([[2.0]]))
    array([[6.],
           [8.]])
    """
    if can_fuse(kernel, X, precision):
        return FusedProduct(kernel, points, precision, accurate=True)(X, coef)
    if isinstance(X, np.ndarray) and X.shape[0] * points.shape[0] <= FEW_VALUES:
        return kernel(X, points) @ coef
    if _is_small_gaussian(kernel, X, points, coef):
        return _expand_gaussian(kernel, X, points, coef)
    edge = tile_edge(X)
    scores = xa.zeros((X.shape[0], coef.shape[1]), coef)
    X, points = _both_as_bytes(kernel, X, points)
    if not kernel.uses_points:
        for rows in slices(X.shape[0], edge):
            scores[rows] = kernel(X[rows], points) @ coef
        return scores

    def fill(rows: slice) -> None:
        part = X[rows]
        buffer = xa.empty((part.shape[0], min(edge, points.shape[0])), coef)
        for columns in slices(points.shape[0], edge):
            block = kernel(part, points[columns], out=buffer[:, : columns.stop - columns.start])
            scores[rows] += block @ coef[columns]

    # Small inputs still keep every core busy: no fewer row groups than threads.
    workers = workers_for(kernel, X)
    share(slices(X.shape[0], max(1, min(edge, -(-X.shape[0] // workers)))), fill, workers)
    return scores


def _is_small_gaussian(kernel: Kernel, X: Array, points: Array, coef: Array) -> bool:
    n, d = X.shape
    return (
        type(kernel) is RBF
        and all(isinstance(side, np.ndarray) and side.dtype == np.float32 for side in (X, points, coef))
        and d <= _FEW_FEATURES
        and coef.shape[1] <= _FEW_COLUMNS
        # An entry costs as much as thirty operations in a matrix product do.
        and 30 * n * points.shape[0] >= _MANY_OPERATIONS / 10
    )


def _expand_gaussian(kernel: RBF, X: Array, points: Array, coef: Array) -> Array:
    """`K(X, points) @ coef` without a tile of K in memory; sums over strips of points in float64."""
    from gramless._compiled import rbf_loops

    n, d = X.shape
    scale = np.float32((2 * resolve_gamma(kernel.gamma, X)) ** 0.5)
    X, points = without_offset(X, points)
    # The loop takes rows and features in fours: zeros fill them up.
    rows, width = -(-n // 4) * 4, -(-d // 4) * 4
    left = np.zeros((rows, width), dtype=np.float32)
    left[:n, :d] = X * scale
    columns = np.zeros((width, points.shape[0]), dtype=np.float32)
    columns[:d] = (points * scale).T
    half_x = xa.to_numpy(xa.square_norms(left)) / 2
    half_y = xa.to_numpy(xa.square_norms(np.ascontiguousarray(columns.T))) / 2
    weights = np.ascontiguousarray(coef.T)
    out = np.zeros((rows, coef.shape[1]))

    def fill(part: slice) -> None:
        rbf_loops.expand(left[part], columns, half_x[part], half_y, weights, out[part])

    share(slices(rows, CPU_TILE), fill, workers_for(kernel, X))
    return out[:n].astype(coef.dtype)
