"""The Matern family of the Euclidean distance `r = ||x - y||`, ordered by increasing smoothness.

    Exponential  exp(-gamma r)                                            (nu = 1/2)
    Matern32     (1 + t) exp(-t),               t = sqrt(3) gamma r       (nu = 3/2)
    Matern52     (1 + t + t^2 / 3) exp(-t),     t = sqrt(5) gamma r       (nu = 5/2)

`gamma` is the inverse length scale: it multiplies the distance, not its square. Distances come from one matrix product,
O(n m d) (`gramless.kernels.stationary`), and the function is applied in place; Matern32 and Matern52 need one temporary
block.

References: Matern, "Spatial Variation", 1960; Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.stationary import UnitDiagonalKernel, euclidean_distances


class MaternKernel(UnitDiagonalKernel):
    """Base class of the kernels `f(t)` with `t = factor * gamma * ||x - y||`; subclasses define `factor` and `_apply`."""

    accepts_sparse = True
    factor = 1.0

    def _number(self, X: Array, weights: np.ndarray | None = None) -> float:
        """Return `gamma` as a number: `"scale"` is `1 / sqrt(n_features * X.var())`, since it multiplies the distance."""
        value = resolve_gamma(self.gamma, X, weights)
        return value**0.5 if isinstance(self.gamma, str) else value

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = euclidean_distances(X, Y, out)
        block *= -self.factor * self._number(X)
        return self._apply(block)

    def _apply(self, block: Array) -> Array:
        """Return the kernel values `f(t)` of a block that contains `-t`; the block may be overwritten."""
        raise NotImplementedError


class Exponential(MaternKernel):
    """The Matern kernel with nu = 1/2, `exp(-gamma ||x - y||)`, for continuous functions.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Inverse length scale; `"scale"` is `1 / sqrt(n_features * X.var())` and `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Laplacian : The same function of the city-block distance.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Exponential
    >>> Exponential(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    def _apply(self, block: Array) -> Array:
        return xa.exp_(block)


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
