"""A kernel for categories: the number of columns that differ.

    k(x, y) = exp(-gamma #{k : x_k != y_k}) = prod_k (exp(-gamma) + (1 - exp(-gamma)) [x_k = y_k])

It is a product over the columns of a constant plus the indicator of equal levels, so it is positive definite for
`gamma > 0`. Levels are any numbers (codes); their order and distance do not matter. It equals `Laplacian(gamma / 2)` on
one-hot encoded columns. A compiled loop computes a block in O(n m d) time without a temporary block.

Reference: Hutter, Xu, Hoos and Leyton-Brown, "Algorithm runtime prediction: Methods and evaluation", 2014.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.stationary import UnitDiagonalKernel


class Equality(UnitDiagonalKernel):
    """The kernel `exp(-gamma * n)` of the number `n` of columns that differ, for codes of categories.

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
        if isinstance(self.gamma, str):
            if self.gamma not in ("scale", "auto"):
                raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {self.gamma!r}")
            return 1.0 / max(1, int(X.shape[1]))
        if not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma must be a finite number of at least 0, got {self.gamma!r}")
        return float(self.gamma)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        gamma = self._number(X)
        if out is None:
            out = xa.empty((X.shape[0], Y.shape[0]), X)
        if xa.is_torch(X):
            out[...] = 0
            for k in range(int(X.shape[1])):
                out += X[:, k : k + 1] != Y[None, :, k]
        else:
            from gramless._core.compiled import register_tiles

            register_tiles.fill(register_tiles.DIFFERING, xa.cast_numpy(X), xa.cast_numpy(Y), xa.cast_numpy(out))
        out *= -gamma
        return xa.exp_(out)
