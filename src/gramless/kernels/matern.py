"""The Matern family of the Euclidean distance `r = ||x - y||`, rough to smooth.

    Exponential  exp(-gamma r)                                            (nu = 1/2)
    Matern32     (1 + t) exp(-t),               t = sqrt(3) gamma r       (nu = 3/2)
    Matern52     (1 + t + t^2 / 3) exp(-t),     t = sqrt(5) gamma r       (nu = 5/2)

`gamma` is one over the length scale: it multiplies the distance, not its square. Distances come from one matrix product,
O(n m d) (see `gramless.kernels.stationary`), and the rest is done in place; Matern32 and Matern52 hold one more block.

References: Matern, "Spatial Variation", 1960; Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel
from gramless.kernels.stationary import euclidean_distances, ones_diagonal


def length_gamma(gamma: float | str, X: Array, weights: np.ndarray | None = None) -> float:
    """A positive number from `gamma` for kernels of the distance: `"scale"` is `1 / sqrt(n_features * X.var())`."""
    value = resolve_gamma(gamma, X, weights)
    return value**0.5 if isinstance(gamma, str) else value


class Exponential(Kernel):
    """`exp(-gamma ||x - y||)`: the roughest of the Matern family, nu = 1/2.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        One over the length scale. `"scale"` is `1 / sqrt(n_features * X.var())`, `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Laplacian : the same of the city-block distance.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Exponential
    >>> Exponential(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    accepts_sparse = True

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Exponential:
        return Exponential(length_gamma(self.gamma, X, weights))

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = euclidean_distances(X, Y, out)
        block *= -length_gamma(self.gamma, X)
        return xa.exp_(block)

    def diag(self, X: Array) -> Array:
        return ones_diagonal(X)


class Matern32(Kernel):
    """`(1 + t) exp(-t)` with `t = sqrt(3) gamma ||x - y||`: once differentiable functions.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        One over the length scale. `"scale"` is `1 / sqrt(n_features * X.var())`, `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Matern52 : The other of the two degrees of smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Matern32
    >>> Matern32(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.    , 0.4834]])
    """

    accepts_sparse = True
    temporaries = 1

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Matern32:
        return Matern32(length_gamma(self.gamma, X, weights))

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = euclidean_distances(X, Y, out)
        block *= -(3**0.5) * length_gamma(self.gamma, X)
        factor = 1 - block
        block = xa.exp_(block)
        block *= factor
        return block

    def diag(self, X: Array) -> Array:
        return ones_diagonal(X)


class Matern52(Kernel):
    """`(1 + t + t^2 / 3) exp(-t)` with `t = sqrt(5) gamma ||x - y||`: twice differentiable functions.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        One over the length scale. `"scale"` is `1 / sqrt(n_features * X.var())`, `"auto"` is `1 / sqrt(n_features)`.

    See Also
    --------
    Matern32 : The other of the two degrees of smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Matern52
    >>> Matern52(gamma=0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 2.0]])).round(4)
    array([[1.   , 0.524]])
    """

    accepts_sparse = True
    temporaries = 1

    def __init__(self, gamma: float | str = "scale"):
        self.gamma = gamma

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Matern52:
        return Matern52(length_gamma(self.gamma, X, weights))

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = euclidean_distances(X, Y, out)
        block *= -(5**0.5) * length_gamma(self.gamma, X)
        factor = block * (1 / 3)
        factor -= 1
        factor *= block
        factor += 1  # 1 - s + s^2 / 3 with s = -t
        block = xa.exp_(block)
        block *= factor
        return block

    def diag(self, X: Array) -> Array:
        return ones_diagonal(X)
