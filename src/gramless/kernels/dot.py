"""Kernels that are functions of the inner product: linear, cosine, polynomial and sigmoid.

    linear      <x, y>
    cosine      <x, y> / (||x|| ||y||)
    polynomial  (gamma <x, y> + coef0) ** degree
    sigmoid     tanh(gamma <x, y> + coef0)

Each block needs one matrix product and, except for the linear kernel, one pass over the block in place: O(n m d) time. A
polynomial whose degree is not a power of two needs one temporary block.
"""

from __future__ import annotations

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import GridRows
from gramless.kernels.bandwidth import resolve_gamma
from gramless.kernels.base import Kernel


class InnerProductKernel(Kernel):
    """Base class of kernels that are functions of the inner product."""

    accepts_sparse = True
    permutable = True

    def _apply(self, values: Array, X: Array) -> Array:
        """Apply the function to inner products in place; `X`, the first argument, determines a `gamma` such as `"scale"`."""
        return values

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self._apply(xa.dot(X, Y, out=out), X)

    def diag(self, X: Array) -> Array:
        return self._apply(xa.square_norms(X), X)


class Linear(InnerProductKernel):
    """The linear kernel `<x, y>`.

    See Also
    --------
    Polynomial : A power of the inner product.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> Linear()(np.eye(2), np.ones((1, 2)))
    array([[1.],
           [1.]])
    """

    def accepts_grid(self, rows: GridRows) -> bool:
        return True


class Polynomial(InnerProductKernel):
    """The polynomial kernel `(gamma <x, y> + coef0) ** degree`.

    Parameters
    ----------
    degree : int, default=3
        Degree of the polynomial, at least 1.
    gamma : float, "scale", "weighted_scale" or "auto", default="scale"
        Coefficient of the inner product; `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`, and
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    coef0 : float, default=0.0
        Constant term, at least 0.

    See Also
    --------
    Linear : The inner product, a polynomial of degree 1.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, coef0=1.0)(np.eye(2), np.ones((1, 2)))
    array([[4.],
           [4.]])
    """

    def __init__(self, degree: int = 3, gamma: float | str = "scale", coef0: float = 0.0):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    def accepts_grid(self, rows: GridRows) -> bool:
        return True

    @property
    def temporaries(self) -> int:
        return 0 if (int(self.degree) & (int(self.degree) - 1)) == 0 else 1

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Polynomial:
        if int(self.degree) != self.degree or self.degree < 1:
            raise ValueError(f"degree must be an integer of at least 1, got {self.degree!r}")
        if not self.coef0 >= 0:
            raise ValueError(f"coef0 must be at least 0 for a positive semi-definite kernel, got {self.coef0!r}")
        return Polynomial(int(self.degree), resolve_gamma(self.gamma, X, weights), float(self.coef0))

    def _apply(self, values: Array, X: Array) -> Array:
        if self.coef0:
            values += self.coef0
        return xa.integer_power_(values, int(self.degree))

    def _scaled(self, X: Array, gamma: float) -> Array:
        # Scaling points instead of inner products saves a pass over the block, and squares stay in range of float32.
        return X if gamma == 1 else X * gamma**0.5

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        gamma = resolve_gamma(self.gamma, X)
        return self._apply(xa.dot(self._scaled(X, gamma), self._scaled(Y, gamma), out=out), X)

    def diag(self, X: Array) -> Array:
        return self._apply(xa.square_norms(self._scaled(X, resolve_gamma(self.gamma, X))), X)


class Cosine(InnerProductKernel):
    """The cosine kernel `<x, y> / (||x|| ||y||)`; zero for a row of zeros.

    See Also
    --------
    Linear : The inner product without normalisation.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Cosine
    >>> Cosine()(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[2.0, 0.0]]))
    array([[0.6],
           [0. ]])
    """

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = xa.dot(X, Y, out=out)
        block *= _inverse_norms(X)[:, None]
        block *= _inverse_norms(Y)[None, :]
        return block

    def diag(self, X: Array) -> Array:
        squares = xa.square_norms(X)
        return squares * _inverse_norms(X) ** 2


class Sigmoid(InnerProductKernel):
    """The sigmoid kernel `tanh(gamma <x, y> + coef0)`, which is not positive semi-definite.

    With this kernel a support vector machine converges to a solution that no change of two multipliers improves, and
    methods that factor the Gram matrix may raise an error.

    Parameters
    ----------
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of the inner product; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    coef0 : float, default=0.0
        Constant term, added before the hyperbolic tangent.

    See Also
    --------
    Polynomial : A positive semi-definite function of the inner product.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Sigmoid
    >>> Sigmoid(gamma=0.5)(np.eye(2), np.ones((1, 2))).round(4)
    array([[0.4621],
           [0.4621]])
    """

    positive_definite = False

    def __init__(self, gamma: float | str = "scale", coef0: float = 0.0):
        self.gamma = gamma
        self.coef0 = coef0

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Sigmoid:
        if not np.isfinite(self.coef0):
            raise ValueError(f"coef0 must be a finite number, got {self.coef0!r}")
        return Sigmoid(resolve_gamma(self.gamma, X, weights), float(self.coef0))

    def _apply(self, values: Array, X: Array) -> Array:
        values *= resolve_gamma(self.gamma, X)
        values += self.coef0
        return xa.tanh_(values)


def _inverse_norms(X: Array) -> Array:
    """Return `1 / ||x||` for each row, zero for a row of zeros."""
    norms = xa.square_norms(X) ** 0.5
    return (norms > 0) / xa.namespace(norms).where(norms > 0, norms, norms + 1)
