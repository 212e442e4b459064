"""Kernels of the distance between two points.

    RBF        exp(-gamma ||x - y||_2^2)
    Laplacian  exp(-gamma ||x - y||_1), or exp(-gamma ||x - y||_2) with norm="l2"

Euclidean distances come from one matrix product, `||x||^2 + ||y||^2 - 2 <x, y>`: O(n m d) time, no temporary block. The
formula loses all digits if the data is far from the origin; since the kernels are translation invariant, such data is
shifted first. City-block distances are computed by SciPy or, in large blocks, by compiled loops
(`gramless._core.compiled.register_tiles`), O(n m d). The Matern family is in `gramless.kernels.matern`.
"""

from __future__ import annotations

import copy
import sys
from typing import Any, Self, cast

import numpy as np
from scipy.linalg import LinAlgWarning
from scipy.spatial.distance import cdist

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import GridRows
from gramless._core.threads import slices
from gramless._core.validation import warn_caller
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.tuning import TUNING, KernelTuning

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def without_offset(X: Array, Y: Array) -> tuple[Array, Array]:
    """Subtract the mean of `Y` from both arguments if the mean is far from the origin; distances do not change."""
    if xa.is_sparse(X) or xa.is_sparse(Y) or xa.is_grid(X) or xa.is_grid(Y) or 0 in (*X.shape, *Y.shape):
        return X, Y
    centre, far = _offset(Y)
    return (X - centre, Y - centre) if far else (X, Y)


def offset_to_remove(Y: np.ndarray) -> np.ndarray:
    """Return the vector that `without_offset` subtracts; zeros if the points are not shifted."""
    centre, far = _offset(Y)
    return xa.cast_numpy(centre).astype(Y.dtype) if far else np.zeros(Y.shape[1], Y.dtype)


def _offset(Y: Array) -> tuple[Array, bool]:
    """Return the mean of the first rows, and whether it is far from the origin in units of their spread."""
    xp = xa.namespace(Y)
    sample = Y[: TUNING.offset_rows]
    centre = xp.mean(sample, axis=0)
    spread = float(xp.mean(xa.square_norms(sample - centre)))
    return centre, float(xp.sum(centre * centre)) > TUNING.offset_ratio * spread


def euclidean_distances(X: Array, Y: Array, out: Array | None = None) -> Array:
    """Return the block of distances `||x - y||`.

    The square root turns a rounding error of `eps ||x||^2` into `sqrt(eps) ||x||`, so close pairs are recomputed from their
    difference; equal rows have distance zero.
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
    rounding = float(np.finfo(xa.numpy_dtype(block)).eps) * (float(xp.max(x)) + float(xp.max(y)))
    near = TUNING.near_roundings * rounding
    for rows in slices(block.shape[0], TUNING.near_strip_rows):
        i, j = (xa.to_numpy(index) for index in xp.nonzero(block[rows] <= near))
        for part in slices(len(i), max(1, TUNING.differences_per_step // X.shape[1])):
            difference = xa.take_rows(X, i[part] + rows.start) - xa.take_rows(Y, j[part])
            at = xa.indices(i[part] + rows.start, block), xa.indices(j[part], block)
            block[at] = xa.square_norms(difference)
    return xa.sqrt_(block)


def _warn_of_rounding(gamma: float, X: Array, tuning: KernelTuning = TUNING) -> None:
    """Warn if rounding errors of squared distances, `eps (||x||^2 + ||y||^2)`, change `exp(-gamma ||x - y||^2)`."""
    dtype = xa.numpy_dtype(X)
    if xa.is_grid(X) or 0 in X.shape or dtype not in _FLOATS:
        return
    centre, far = (None, False) if xa.is_sparse(X) else _offset(X)
    rows = slices(int(X.shape[0]), max(1, tuning.variance_values // int(X.shape[1])))
    with np.errstate(over="ignore"):
        largest = max(float(xa.square_norms(X[part] - centre if far else X[part]).max()) for part in rows)
    error = 2 * gamma * float(np.finfo(dtype).eps) * largest
    if error > tuning.largest_rounding:
        warn_caller(
            f"rounding errors of {dtype} distances multiply values of the RBF kernel with gamma={gamma:.3g} by up to "
            f"exp({error:.2g}): lower gamma, scale the features" + (", or use float64" if dtype == np.float32 else ""),
            LinAlgWarning,
        )


class UnitDiagonalKernel(Kernel):
    """Base class of kernels with `k(x, x) = 1` and the parameter `gamma`."""

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Self:
        resolved = copy.copy(self)
        resolved.gamma = self._number(X, weights)
        return resolved

    def _number(self, X: Array, weights: np.ndarray | None = None) -> float:
        """Return `gamma` as a number."""
        return resolve_gamma(self.gamma, X, weights)

    def diag(self, X: Array) -> Array:
        if xa.is_sparse(X) or xa.is_grid(X):
            return np.ones(X.shape[0], dtype=X.dtype)
        return xa.zeros((X.shape[0],), X) + 1


class RBF(UnitDiagonalKernel):
    """The Gaussian kernel `exp(-gamma ||x - y||^2)`, for smooth functions.

    Parameters
    ----------
    gamma : float, "scale", "weighted_scale" or "auto", default="scale"
        Coefficient of the squared distance; `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`, and
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.

    See Also
    --------
    Laplacian : Kernel of the distance instead of its square, for less smooth functions.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> RBF(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    accepts_sparse = True
    permutable = True

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Self:
        resolved = super().resolve(X, weights)
        _warn_of_rounding(float(resolved.gamma), X)
        return resolved

    def accepts_grid(self, rows: GridRows) -> bool:
        return not _offset(rows[: TUNING.offset_rows].astype(rows.dtype))[1]

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self._values(X, Y, out, TUNING.compiled_values)

    def _values(self, X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
        """Return the kernel block, by compiled code if it has at least `compiled_values` values."""
        gamma = resolve_gamma(self.gamma, X)
        if isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.size * Y.shape[0] <= TUNING.few_differences:
            difference = (X[:, None, :] - Y[None, :, :]) * gamma**0.5
            block = np.einsum("ijk,ijk->ij", difference, difference, out=None if out is None else xa.cast_numpy(out))
            return xa.exp_(np.negative(block, out=block))
        n_values = X.shape[0] * Y.shape[0]
        if can_use_register_tiles(X, Y, n_values, compiled_values):
            from gramless._core.compiled import register_tiles

            rows, others = xa.cast_numpy(X), xa.cast_numpy(Y)
            values = np.empty((len(rows), len(others)), rows.dtype) if out is None else xa.cast_numpy(out)
            if values.dtype == rows.dtype:
                shift = offset_to_remove(others)
                scale = register_tiles.gaussian_scale(gamma)
                register_tiles.fill(register_tiles.GAUSSIAN, rows, others, values, shift, scale)
                return values
        X, Y = without_offset(X, Y)
        # Scaling the points instead of the block saves a pass over the block, and squares stay in the range of float32.
        X, Y = X * (2 * gamma) ** 0.5, Y * (2 * gamma) ** 0.5
        block = xa.dot(X, Y, out=out)
        half_x, half_y = xa.square_norms(X) / 2, xa.square_norms(Y) / 2
        if n_values >= compiled_values and xa.has_contiguous_rows(block) and block.dtype == np.float32:
            from gramless._core.compiled.register_tiles import exp_of_products

            exp_of_products(*xa.as_flat(block), xa.cast_numpy(half_x), xa.cast_numpy(half_y))
            return block
        block -= half_x[:, None]
        block -= half_y[None, :]
        return xa.exp_(xa.clip_above_(block, 0.0))


class Laplacian(UnitDiagonalKernel):
    """The Laplacian kernel `exp(-gamma ||x - y||)` of the city-block or the Euclidean norm.

    Parameters
    ----------
    gamma : float, "scale", "weighted_scale" or "auto", default="scale"
        Coefficient of the distance; `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`, and
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    norm : {"l1", "l2"}, default="l1"
        Norm of the difference; `"l1"` is scikit-learn's `laplacian_kernel`, and `"l2"` is computed by one matrix product.

    See Also
    --------
    RBF : Kernel of the squared Euclidean distance.

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
        super().__init__(gamma)
        self.norm = norm

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Self:
        if self.norm not in ("l1", "l2"):
            raise ValueError(f"unknown norm {self.norm!r}; known: 'l1', 'l2'")
        return super().resolve(X, weights)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self._values(X, Y, out, TUNING.compiled_values)

    def _values(self, X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
        """Return the kernel block, by compiled code if it has at least `compiled_values` values."""
        gamma = resolve_gamma(self.gamma, X)
        block = euclidean_distances(X, Y, out) if self.norm == "l2" else _city_block(X, Y, out, compiled_values)
        block *= -gamma
        return xa.exp_(block)


def compiled_block(kernel: Kernel, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
    """Return `kernel.block(X, rows, columns)`, by compiled code from `compiled_values_if_loaded` values on."""
    if isinstance(kernel, RBF | Laplacian):
        x, y = xa.take_rows(X, rows), xa.take_rows(X, columns)
        return kernel._values(x, y, out, TUNING.compiled_values_if_loaded)
    return kernel.block(X, rows, columns, out=out)


def values_at_points(kernel: Kernel, X: Array, Y: Array, out: Array, n_points: int) -> Array:
    """Return `kernel(X, Y)`, compiled only if the model has many points: values do not depend on the batches of X."""
    if isinstance(kernel, RBF | Laplacian):
        return kernel._values(X, Y, out, 0 if n_points >= TUNING.compiled_points else sys.maxsize)
    return kernel(X, Y, out=out)


def can_use_register_tiles(X: Array, Y: Array, n_values: int, compiled_values: int) -> bool:
    """Return whether `n_values` Gaussian kernel values are computed by the compiled loop.

    The loop needs dense rows of one dtype and bounded length, a processor with vector instructions, and at least
    `compiled_values` values.
    """
    if not (isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.dtype == Y.dtype and X.dtype in _FLOATS):
        return False
    if n_values < compiled_values or not 0 < X.shape[1] * X.itemsize <= TUNING.longest_row_bytes:
        return False
    from gramless._core.compiled.simd import lanes

    return lanes() > 0


def _city_block(X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
    """Return the block of city-block distances."""
    if xa.is_torch(X):
        import torch

        block: Array = torch.cdist(X, cast(torch.Tensor, Y), p=1.0)
        if out is None:
            return block
        out[...] = block
        return out
    if xa.is_sparse(X) or xa.is_sparse(Y):
        from gramless._core import sparse

        return sparse.city_block(X, Y, None if out is None else xa.cast_numpy(out))
    into = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype) if out is None else xa.cast_numpy(out)
    if into.size < compiled_values:
        into[...] = cdist(xa.cast_numpy(X), xa.cast_numpy(Y), "cityblock")
        return into
    from gramless._core.compiled import register_tiles

    register_tiles.fill(register_tiles.CITY_BLOCK, xa.cast_numpy(X), xa.cast_numpy(Y), into)
    return into
