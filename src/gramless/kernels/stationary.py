"""Kernels of the distance between two points.

    RBF          exp(-gamma ||x - y||_2^2)
    Laplacian    exp(-gamma ||x - y||_1), or exp(-gamma ||x - y||_2) with norm="l2"
    Equality     exp(-gamma #{k : x_k != y_k})
    Exponential  exp(-gamma r)                                   r = ||x - y||_2, Matern with nu = 1/2
    Matern32     (1 + t) exp(-t),           t = sqrt(3) gamma r                              nu = 3/2
    Matern52     (1 + t + t^2 / 3) exp(-t), t = sqrt(5) gamma r                              nu = 5/2

Euclidean distances come from one matrix product, `||x||^2 + ||y||^2 - 2 <x, y>`: O(n m d) time, no temporary block. The
formula loses all digits if the data is far from the origin; since the kernels are translation invariant, such data is
shifted first. City-block distances are computed by SciPy or, in large blocks, by compiled loops
(`gramless._core.compiled.register_tiles`), O(n m d). In the Matern family `gamma` is the inverse length scale: it multiplies
the distance, not its square.

`Equality` is for categorical columns, whose categories are coded as any numbers. It is the product over the columns k of
`exp(-gamma) + (1 - exp(-gamma)) [x_k = y_k]`, where the bracket is 1 for equal categories and else 0, so the kernel is
positive definite. On one-hot encoded columns `Laplacian(gamma / 2)` has the same values.

References: Matern, "Spatial Variation", 1960; Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006;
Hutter, Xu, Hoos and Leyton-Brown, "Algorithm runtime prediction: Methods and evaluation", 2014.
"""

from __future__ import annotations

import copy
import sys
from typing import Any, Self

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
from gramless.kernels.tuning import TUNING

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def without_offset(X: Array, Y: Array) -> tuple[Array, Array]:
    """Subtract the mean of `Y` from both arguments if the mean is far from the origin; distances do not change."""
    if xa.is_sparse(X) or xa.is_sparse(Y) or xa.is_grid(X) or xa.is_grid(Y) or 0 in (*X.shape, *Y.shape):
        return X, Y
    centre = _offset(Y)
    return (X, Y) if centre is None else (X - centre, Y - centre)


def offset_to_remove(Y: np.ndarray) -> np.ndarray:
    """Return the vector that `without_offset` subtracts; zeros if the points are not shifted."""
    centre = _offset(Y)
    return np.zeros(Y.shape[1], Y.dtype) if centre is None else centre.astype(Y.dtype)


def _offset(Y: Array) -> Array | None:
    """Return the mean of the first rows of `Y` if the mean is far from the origin relative to their spread, else None."""
    xp = xa.namespace(Y)
    sample = Y[: TUNING.offset_rows]
    centre: Array = xp.mean(sample, axis=0)
    spread = float(xp.mean(xa.square_norms(sample - centre)))
    return centre if float(xp.sum(centre * centre)) > TUNING.offset_ratio * spread else None


def euclidean_distances(X: Array, Y: Array, out: Array | None = None) -> Array:
    """Return the block of distances `||x - y||`.

    The square root turns a rounding error of `eps ||x||^2` into `sqrt(eps) ||x||`, so close pairs are recomputed from the
    differences of their coordinates; equal rows have distance zero.
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


def _warn_of_rounding(gamma: float, X: Array) -> None:
    """Warn if rounding errors of squared distances, `eps (||x||^2 + ||y||^2)`, noticeably change RBF kernel values."""
    dtype = xa.numpy_dtype(X)
    if xa.is_grid(X) or 0 in X.shape or dtype not in _FLOATS:
        return
    centre = None if xa.is_sparse(X) else _offset(X)
    rows = slices(int(X.shape[0]), max(1, TUNING.variance_values // int(X.shape[1])))
    with np.errstate(over="ignore"):
        largest = max(float(xa.square_norms(X[part] if centre is None else X[part] - centre).max()) for part in rows)
    error = 2 * gamma * float(np.finfo(dtype).eps) * largest
    if error > TUNING.largest_rounding:
        warn_caller(
            f"rounding errors of {dtype} distances multiply values of the RBF kernel with gamma={gamma:.3g} by up to "
            f"exp({error:.2g}): lower gamma, scale the features" + (", or use float64" if dtype == np.float32 else ""),
            LinAlgWarning,
        )


class UnitDiagonalKernel(Kernel):
    """Base class of the kernels `f(t)` with `t = factor * gamma * distance` and `f(0) = 1`; by default `f(t) = exp(-t)`."""

    factor = 1.0

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Self:
        resolved = copy.copy(self)
        resolved.gamma = self._number(X, weights)
        return resolved

    def _number(self, X: Array, weights: np.ndarray | None = None) -> float:
        """Return `gamma` as a number for the training rows `X`."""
        return resolve_gamma(self.gamma, X, weights)

    def _distances(self, X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
        """Return the block of distances; blocks of at least `compiled_values` values are computed by compiled code."""
        return euclidean_distances(X, Y, out)

    def _apply(self, block: Array) -> Array:
        """Return the kernel values `f(t)` of a block that contains `-t`; the block may be overwritten."""
        return xa.exp_(block)

    def __call__(self, X: Array, Y: Array, out: Array | None = None, compiled_values: int | None = None) -> Array:
        compiled_values = TUNING.compiled_values if compiled_values is None else compiled_values
        block = self._distances(X, Y, out, compiled_values)
        block *= -self.factor * self._number(X)
        return self._apply(block)

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
        return _offset(rows[: TUNING.offset_rows].astype(rows.dtype)) is None

    def __call__(self, X: Array, Y: Array, out: Array | None = None, compiled_values: int | None = None) -> Array:
        """Return the block of kernel values; compiled code computes blocks of at least `compiled_values` values."""
        compiled_values = TUNING.compiled_values if compiled_values is None else compiled_values
        gamma = resolve_gamma(self.gamma, X)
        if isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.size * Y.shape[0] <= TUNING.few_differences:
            difference = (X[:, None, :] - Y[None, :, :]) * gamma**0.5
            block = np.einsum("ijk,ijk->ij", difference, difference, out=out)
            return xa.exp_(np.negative(block, out=block))
        n_values = X.shape[0] * Y.shape[0]
        if can_use_register_tiles(X, Y, n_values, compiled_values):
            from gramless._core.compiled import register_tiles

            values = np.empty((len(X), len(Y)), X.dtype) if out is None else out
            if values.dtype == X.dtype:
                scale = register_tiles.gaussian_scale(gamma)
                register_tiles.fill(register_tiles.GAUSSIAN, X, Y, values, offset_to_remove(Y), scale)
                return values
        X, Y = without_offset(X, Y)
        # Scaling points instead of inner products saves a pass over the block, and squares stay in range of float32.
        X, Y = X * (2 * gamma) ** 0.5, Y * (2 * gamma) ** 0.5
        block = xa.dot(X, Y, out=out)
        half_x, half_y = xa.square_norms(X) / 2, xa.square_norms(Y) / 2
        if n_values >= compiled_values and xa.has_contiguous_rows(block) and block.dtype == np.float32:
            from gramless._core.compiled.register_tiles import exp_of_products

            exp_of_products(*xa.as_flat(block), half_x, half_y)
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
        Norm of the difference. The kernel with `"l1"` is scikit-learn's `laplacian_kernel`; `"l2"` needs one matrix product.

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

    def _distances(self, X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
        return euclidean_distances(X, Y, out) if self.norm == "l2" else _city_block(X, Y, out, compiled_values)


class MaternKernel(UnitDiagonalKernel):
    """Base class of the Matern family, whose `gamma` is an inverse length scale."""

    accepts_sparse = True

    def _number(self, X: Array, weights: np.ndarray | None = None) -> float:
        """Return `gamma` as a number; `"scale"` is `1 / sqrt(n_features * X.var())`, as `gamma` multiplies the distance."""
        value = resolve_gamma(self.gamma, X, weights)
        return value**0.5 if isinstance(self.gamma, str) else value


class Exponential(MaternKernel):
    """The Matern kernel with nu = 1/2, `exp(-gamma ||x - y||)`, for continuous functions.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Inverse length scale; `"scale"` is `1 / sqrt(n_features * X.var())` and `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Laplacian : The exponential of the city-block distance.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Exponential
    >>> Exponential(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.    , 0.3679]])
    """


class Matern32(MaternKernel):
    """The Matern kernel with nu = 3/2, `(1 + t) exp(-t)` with `t = sqrt(3) gamma ||x - y||`, for differentiable functions.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Inverse length scale; `"scale"` is `1 / sqrt(n_features * X.var())` and `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Matern52 : The smoother kernel, for twice differentiable functions.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Matern32
    >>> Matern32(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.    , 0.4834]])
    """

    temporaries = 1
    factor = 3**0.5

    def _apply(self, block: Array) -> Array:
        factor = 1 - block
        block = xa.exp_(block)
        block *= factor
        return block


class Matern52(MaternKernel):
    """The Matern kernel with nu = 5/2, `(1 + t + t^2 / 3) exp(-t)` with `t = sqrt(5) gamma ||x - y||`.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Inverse length scale; `"scale"` is `1 / sqrt(n_features * X.var())` and `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Matern32 : The rougher kernel, for once differentiable functions.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Matern52
    >>> Matern52(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.   , 0.524]])
    """

    temporaries = 1
    factor = 5**0.5

    def _apply(self, block: Array) -> Array:
        factor = block * (1 / 3)
        factor -= 1
        factor *= block
        factor += 1  # 1 - s + s^2 / 3 with s = -t
        block = xa.exp_(block)
        block *= factor
        return block


class Equality(UnitDiagonalKernel):
    """The kernel `exp(-gamma * n)`, where `n` is the number of columns that differ, for categories coded as numbers.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of the number of different columns; `"scale"` and `"auto"` are `1 / n_features`.

    See Also
    --------
    Columns : Restricts a kernel to a subset of the columns, for tables of numbers and categories.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Equality
    >>> Equality(gamma=0.5)(np.array([[1.0, 7.0]]), np.array([[1.0, 7.0], [1.0, 3.0], [2.0, 3.0]])).round(4)
    array([[1.    , 0.6065, 0.3679]])
    """

    def _number(self, X: Array, weights: np.ndarray | None = None) -> float:
        if self.gamma == "weighted_scale":
            raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {self.gamma!r}")
        return resolve_gamma("auto" if self.gamma == "scale" else self.gamma, X)

    def _distances(self, X: Array, Y: Array, out: Array | None, compiled_values: int) -> Array:
        return sums_over_features("DIFFERING", X, Y, out)


def sums_over_features(function: str, X: Array, Y: Array, out: Array | None) -> Array:
    """Return the block of sums over features of a function of `register_tiles`; tensors are summed feature by feature."""
    block = xa.empty((X.shape[0], Y.shape[0]), X) if out is None else out
    if not xa.is_torch(X):
        from gramless._core.compiled import register_tiles

        register_tiles.fill(getattr(register_tiles, function), X, Y, block)
        return block
    block[...] = 0
    tiny = float(np.finfo(xa.numpy_dtype(X)).tiny)
    for k in range(X.shape[1]):
        x, y = X[:, k, None], Y[None, :, k]
        if function == "DIFFERING":
            block += x != y
        elif function == "INTERSECTION":
            block += xa.namespace(X).minimum(x, y)
        elif function == "HARMONIC":
            block += 2 * x * y / xa.clip_below_(x + y, tiny)
        else:
            block += (x - y) ** 2 / xa.clip_below_(x + y, tiny)
    return block


def compiled_block(kernel: Kernel, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
    """Return `kernel.block(X, rows, columns)`; compiled code is used from `TUNING.compiled_values_if_loaded` values on."""
    if isinstance(kernel, UnitDiagonalKernel):
        x, y = xa.take_rows(X, rows), xa.take_rows(X, columns)
        return kernel(x, y, out, TUNING.compiled_values_if_loaded)
    return kernel.block(X, rows, columns, out=out)


def values_at_points(kernel: Kernel, X: Array, Y: Array, out: Array, n_points: int) -> Array:
    """Return `kernel(X, Y)`. `n_points` alone selects compiled code, so values do not depend on the batches of X."""
    if isinstance(kernel, UnitDiagonalKernel):
        return kernel(X, Y, out, 0 if n_points >= TUNING.compiled_points else sys.maxsize)
    return kernel(X, Y, out=out)


def can_use_register_tiles(X: Array, Y: Array, n_values: int, compiled_values: int) -> bool:
    """Return whether a block of `n_values` Gaussian kernel values is computed by the compiled loop.

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
        block: Array = xa.import_torch().cdist(X, Y, p=1.0)
        return block if out is None else xa.copied(block, out)
    if xa.is_sparse(X) or xa.is_sparse(Y):
        from gramless._core import sparse

        return sparse.city_block(X, Y, out)
    if X.shape[0] * Y.shape[0] >= compiled_values:
        return sums_over_features("CITY_BLOCK", X, Y, out)
    distances = cdist(X, Y, "cityblock")
    return distances.astype(X.dtype, copy=False) if out is None else xa.copied(distances, out)
