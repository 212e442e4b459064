"""Kernels of the distance between two points.

    RBF        exp(-gamma ||x - y||_2^2)
    Laplacian  exp(-gamma ||x - y||_1), or of the Euclidean norm with norm="l2"

Euclidean distances come from one matrix product, `||x||^2 + ||y||^2 - 2 <x, y>`: O(n m d) time, no temporary block.
That formula loses all digits where the data sits far from the origin; since the kernels are translation invariant, such
data is shifted first. City-block distances have no product form: compiled register tiles, O(n m d) at the rate of additions
(see `gramless._core.compiled.city_block`). The Matern family, rough to smooth, is in `gramless.kernels.matern`.
"""

from __future__ import annotations

import sys
from typing import TypeGuard, cast

import numpy as np
from scipy.spatial.distance import cdist

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import GridRows
from gramless._core.threads import slices
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel

# Shift when the mean's squared norm is this many times the spread around it: two digits are lost then, not before.
_OFFSET_RATIO = 16.0
_OFFSET_SAMPLE = 64
# Squared distances below this many roundings of the largest squared norm are computed from differences, a strip of rows
# and a bounded number of differences at a time.
_NEAR = 256
_STRIP = 64
_DIFFERENCES = 1 << 18
# Loading compiled code takes most of a second, once: blocks that take a millisecond do not ask for it.
_WORTH_LOADING = 1 << 18
_WORTH_CALLING = 1 << 12
_FEW_DIFFERENCES = 1 << 14
# Rows this long, and the others of a register tile, still stay in the first cache while a tile is summed.
_LONGEST_ROW = 1 << 12
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def without_offset(X: Array, Y: Array) -> tuple[Array, Array]:
    """Both sides shifted to the middle of `Y` where that is far from the origin; distances stay as they are."""
    if xa.is_sparse(X) or xa.is_sparse(Y) or xa.is_grid(X) or xa.is_grid(Y) or 0 in (*X.shape, *Y.shape):
        return X, Y
    centre, far = _offset(Y)
    return (X - centre, Y - centre) if far else (X, Y)


def _offset(Y: Array) -> tuple[Array, bool]:
    """The centre of some rows, and whether it is far from the origin for their spread."""
    xp = xa.namespace(Y)
    sample = Y[:_OFFSET_SAMPLE]
    centre = xp.mean(sample, axis=0)
    spread = float(xp.mean(xa.square_norms(sample - centre)))
    return centre, float(xp.sum(centre * centre)) > _OFFSET_RATIO * spread


def negative_square_distances(X: Array, Y: Array, gamma: float, out: Array | None = None) -> Array:
    """`-gamma ||x - y||^2` as a block, never above zero."""
    X, Y = without_offset(X, Y)
    # Scaling the points instead of the block saves a pass over it, and no square leaves the range of float32.
    X, Y = X * (2 * gamma) ** 0.5, Y * (2 * gamma) ** 0.5
    block = xa.dot(X, Y, out=out)
    block -= xa.square_norms(X)[:, None] / 2
    block -= xa.square_norms(Y)[None, :] / 2
    return xa.clip_above_(block, 0.0)


def euclidean_distances(X: Array, Y: Array, out: Array | None = None) -> Array:
    """`||x - y||` as a block.

    The square root turns a rounding error of `eps ||x||^2` into `sqrt(eps) ||x||`: pairs so close that the product form
    has few digits left are computed again from their difference, so that equal rows are at distance zero.
    """
    X, Y = without_offset(X, Y)
    x, y = xa.square_norms(X), xa.square_norms(Y)
    block = xa.dot(X, Y, out=out)
    block *= -2
    block += x[:, None]
    block += y[None, :]
    if 0 in block.shape:
        return block
    xp = xa.namespace(block)
    near = _NEAR * float(np.finfo(xa.numpy_dtype(block)).eps) * (float(xp.max(x)) + float(xp.max(y)))
    for rows in slices(block.shape[0], _STRIP):
        i, j = (xa.to_numpy(index) for index in xp.nonzero(block[rows] <= near))
        for some in slices(len(i), max(1, _DIFFERENCES // X.shape[1])):
            difference = xa.take_rows(X, i[some] + rows.start) - xa.take_rows(Y, j[some])
            at = xa.indices(i[some] + rows.start, block), xa.indices(j[some], block)
            block[at] = xa.square_norms(difference)
    return xa.sqrt_(block)


class RBF(Kernel):
    """The Gaussian kernel `exp(-gamma ||x - y||^2)`.

    Parameters
    ----------
    gamma : float, "scale", "weighted_scale" or "auto", default="scale"
        `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`, as in scikit-learn; `"weighted_scale"` has
        the variance of the rows counted by their sample weights.

    See Also
    --------
    Laplacian : Of the distance instead of its square: for functions that are less smooth.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> RBF(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    accepts_sparse = True
    permutable = True

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def accepts_grid(self, rows: GridRows) -> bool:
        return not _offset(rows[:_OFFSET_SAMPLE].astype(rows.dtype))[1]

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> RBF:
        return RBF(resolve_gamma(self.gamma, X, weights))

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        gamma = resolve_gamma(self.gamma, X)
        if isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.size * Y.shape[0] <= _FEW_DIFFERENCES:
            # So few that calls cost more than arithmetic: no products, no centre.
            difference = (X[:, None, :] - Y[None, :, :]) * gamma**0.5
            block = np.einsum("ijk,ijk->ij", difference, difference, out=None if out is None else xa.cast_numpy(out))
            return xa.exp_(np.negative(block, out=block))
        if in_registers(X, Y, X.shape[0] * Y.shape[0]) and (out is None or _has_rows(out, X.dtype)):
            return _in_registers(xa.cast_numpy(X), xa.cast_numpy(Y), gamma, out)
        X, Y = without_offset(X, Y)
        X, Y = X * (2 * gamma) ** 0.5, Y * (2 * gamma) ** 0.5
        block = xa.dot(X, Y, out=out)
        half_x, half_y = xa.square_norms(X) / 2, xa.square_norms(Y) / 2
        if _compiles(block):
            from gramless._core.compiled.rbf_loops import finish

            finish(*xa.as_flat(block), xa.cast_numpy(half_x), xa.cast_numpy(half_y))
            return block
        block -= half_x[:, None]
        block -= half_y[None, :]
        return xa.exp_(xa.clip_above_(block, 0.0))

    def diag(self, X: Array) -> Array:
        return ones_diagonal(X)


class Laplacian(Kernel):
    """The Laplacian kernel `exp(-gamma ||x - y||)`, in the city-block norm or in the Euclidean one.

    Parameters
    ----------
    gamma : float, "scale", "weighted_scale" or "auto", default="scale"
        `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`, as in scikit-learn; `"weighted_scale"` has
        the variance of the rows counted by their sample weights.
    norm : {"l1", "l2"}, default="l1"
        `"l1"` is scikit-learn's `laplacian_kernel`; `"l2"` costs one matrix product instead of a compiled loop.

    See Also
    --------
    RBF : The square of the Euclidean norm instead.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Laplacian
    >>> Laplacian(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    accepts_sparse = True
    permutable = True

    def __init__(self, gamma: float | str = "scale", norm: str = "l1"):
        self.gamma = gamma
        self.norm = norm

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Laplacian:
        if self.norm not in ("l1", "l2"):
            raise ValueError(f"unknown norm {self.norm!r}; known: 'l1', 'l2'")
        return Laplacian(resolve_gamma(self.gamma, X, weights), self.norm)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        gamma = resolve_gamma(self.gamma, X)
        if self.norm == "l2":
            block = euclidean_distances(X, Y, out)
        else:
            block = _city_block(X, Y, out)
        block *= -gamma
        return xa.exp_(block)

    def diag(self, X: Array) -> Array:
        return ones_diagonal(X)


def in_registers(X: Array, Y: Array, n_values: int, worth_loading: int = _WORTH_LOADING) -> bool:
    """Whether so many Gaussian kernel values are computed in one compiled loop: dense rows, and a processor with vectors."""
    if not (isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.dtype == Y.dtype and X.dtype in _FLOATS):
        return False
    enough = _WORTH_CALLING if "gramless._core.compiled.gaussian_tiles" in sys.modules else worth_loading
    if n_values < enough or not 0 < X.shape[1] * X.itemsize <= _LONGEST_ROW:
        return False
    from gramless._core.compiled.simd import lanes

    return lanes() > 0


def offset_to_remove(Y: np.ndarray) -> np.ndarray:
    """What `without_offset` takes away; zeros where it leaves the points alone."""
    centre, far = _offset(Y)
    return xa.cast_numpy(centre).astype(Y.dtype) if far else np.zeros(Y.shape[1], Y.dtype)


def _in_registers(X: np.ndarray, Y: np.ndarray, gamma: float, out: Array | None) -> np.ndarray:
    from gramless._core.compiled.gaussian_tiles import block

    values = np.empty((X.shape[0], Y.shape[0]), X.dtype) if out is None else xa.cast_numpy(out)
    scale = X.dtype.type((2 * gamma) ** 0.5)
    rows, others = np.ascontiguousarray(X), np.ascontiguousarray(Y)
    block(rows, others, offset_to_remove(Y), scale, *xa.as_flat(values))
    return values


def _has_rows(block: Array, dtype: np.dtype) -> TypeGuard[np.ndarray]:
    """Whether a block has this type, and rows that are contiguous."""
    return (
        isinstance(block, np.ndarray)
        and block.dtype == dtype
        and block.strides[1] == block.itemsize
        and block.strides[0] >= block.shape[1] * block.itemsize
    )


def _compiles(block: Array) -> TypeGuard[np.ndarray]:
    """Whether a block is finished by compiled code, which knows rows of float32; small blocks do not load it."""
    enough = _WORTH_CALLING if "gramless._core.compiled.rbf_loops" in sys.modules else _WORTH_LOADING
    return _has_rows(block, np.dtype(np.float32)) and block.size >= enough


def ones_diagonal(X: Array) -> Array:
    """`k(x, x) = 1` for each row."""
    if xa.is_sparse(X) or xa.is_grid(X):
        return np.ones(X.shape[0], dtype=X.dtype)
    out = xa.empty((X.shape[0],), X)
    out[...] = 1
    return out


def _city_block(X: Array, Y: Array, out: Array | None = None) -> Array:
    if xa.is_torch(X):
        import torch

        block: Array = torch.cdist(X, cast(torch.Tensor, Y), p=1.0)
    elif xa.is_sparse(X) or xa.is_sparse(Y):
        from gramless._core import sparse as _sparse

        return _sparse.city_block(X, Y, None if out is None else xa.cast_numpy(out))
    else:
        into = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype) if out is None else xa.cast_numpy(out)
        if into.size < _WORTH_LOADING and "gramless._core.compiled.city_block" not in sys.modules:
            # A few rows do not wait for a compiler: SciPy's loop is as exact.
            into[...] = cdist(xa.cast_numpy(X), xa.cast_numpy(Y), "cityblock")
            return into
        from gramless._core.compiled.city_block import city_block

        city_block(xa.cast_numpy(X), xa.cast_numpy(Y), into)
        return into
    if out is None:
        return block
    out[...] = block
    return out
