"""The base class of kernels, and kernels that combine other kernels.

A kernel is a scikit-learn `BaseEstimator` without fitted state whose call returns one dense block

    K[i, j] = k(x_i, y_j),

so `clone`, `repr` and grid search over `kernel__gamma` work. Sums, products, positive multiples and integer powers of
kernels are kernels, and so is a kernel on a subset of the features (`Columns`).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import GridRows
from gramless._core.threads import slices


class Kernel(BaseEstimator):
    """A positive semi-definite function `k(x, y)` of two points, evaluated in blocks.

    Subclasses define `__call__` and `diag`. Kernels can be combined: `k1 + k2`, `k1 * k2`, `2.0 * k`, `k ** 2`.

    See Also
    --------
    as_kernel : Converts a name or a function to a kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Kernel
    >>> class Minimum(Kernel):
    ...     def __call__(self, X, Y, out=None):
    ...         return np.minimum(X[:, :1], Y[:, 0], out=out)
    ...     def diag(self, X):
    ...         return X[:, 0] + 0
    >>> (2.0 * Minimum())(np.array([[1.0], [3.0]]), np.array([[2.0]]))
    array([[2.],
           [4.]])
    """

    accepts_sparse = False
    """Whether the kernel accepts CSR rows."""

    thread_safe = True
    """Whether two threads may evaluate the kernel at the same time."""

    uses_points = True
    """Whether kernel values are computed from points; a precomputed kernel reads its values from a matrix."""

    permutable = False
    """Whether the kernel is invariant to permutations of the features."""

    positive_definite = True
    """Whether every Gram matrix is positive semi-definite."""

    @property
    def temporaries(self) -> int:
        """Number of temporary blocks of the size of the result that a call allocates."""
        return 0

    def accepts_grid(self, rows: GridRows) -> bool:
        """Return whether the kernel accepts `GridRows` (rows stored as bytes).

        Parameters
        ----------
        rows : GridRows
            Rows stored as bytes.

        Returns
        -------
        bool
            True if `__call__` and `diag` accept `GridRows`, for which only inner products and norms can be computed.
        """
        return False

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        """Return the `(n, m)` block of kernel values, written into `out` if given."""
        raise NotImplementedError

    def diag(self, X: Array) -> Array:
        """Return the values `k(x_i, x_i)`; the default computes square blocks of 64 rows, 64 times more values than needed.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows.

        Returns
        -------
        array of shape (n,)
            The value for each row.
        """
        xp, blocks = xa.namespace(X), slices(X.shape[0], 64)
        return xp.concat([xp.linalg.diagonal(self(X[rows], X[rows])) for rows in blocks])

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        """Return the block `K(X[rows], X[columns])`; a precomputed kernel reads it from `X`.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows; kernel values of shape (n, n) for a precomputed kernel.
        rows : slice or ndarray of int
            Indices of the block's rows.
        columns : slice or ndarray of int
            Indices of the block's columns.
        out : array, optional
            Array into which the block is written.

        Returns
        -------
        array
            The kernel values; `out` if given.
        """
        return self(xa.take_rows(X, rows), xa.take_rows(X, columns), out=out)

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Kernel:
        """Return a copy of the kernel in which settings that depend on the data, such as `gamma="scale"`, are numbers.

        Parameters
        ----------
        X : array of shape (n, d)
            Training rows.
        weights : ndarray of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        Kernel
            The same kernel with numeric settings.
        """
        resolved = copy.copy(self)
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, Kernel):
                setattr(resolved, name, value.resolve(X, weights))
        return resolved

    def __add__(self, other: Kernel) -> Sum:
        if not isinstance(other, Kernel):
            return NotImplemented
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real):
            return Scaled(self, float(other))
        return NotImplemented

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Power:
        if not isinstance(exponent, Integral) or exponent < 1:
            raise ValueError(f"a kernel can be raised to an integer power of at least 1, not to {exponent!r}")
        return Power(self, int(exponent))


def _holds_for_parts(name: str) -> Any:
    """Return a property of a combined kernel that is True if the property `name` is True for all kernels in it."""

    def holds(self: CombinedKernel) -> bool:
        return all(getattr(part, name) for part in self._parts)

    holds.__doc__ = f"Whether all parts have `{name}`."
    return property(holds)


class CombinedKernel(Kernel):
    """Base class of kernels that consist of other kernels."""

    accepts_sparse = _holds_for_parts("accepts_sparse")
    thread_safe = _holds_for_parts("thread_safe")
    positive_definite = _holds_for_parts("positive_definite")
    uses_points = _holds_for_parts("uses_points")
    permutable = _holds_for_parts("permutable")

    @property
    def _parts(self) -> list[Kernel]:
        return [value for value in vars(self).values() if isinstance(value, Kernel)]

    @property
    def temporaries(self) -> int:
        return max(part.temporaries for part in self._parts)

    def accepts_grid(self, rows: GridRows) -> bool:
        return all(part.accepts_grid(rows) for part in self._parts)


class PairKernel(CombinedKernel):
    """Base class of `Sum` and `Product`: two kernels on the same points, combined entry by entry."""

    _combine: Callable[[Array, Array], Array]
    """In-place operator that combines two blocks of kernel values."""

    def __init__(self, left: Kernel, right: Kernel):
        self.left = left
        self.right = right

    @property
    def _heavier_first(self) -> list[Kernel]:
        """The two kernels; the kernel with more temporaries is first, which minimises the peak memory."""
        return sorted([self.left, self.right], key=lambda kernel: kernel.temporaries, reverse=True)

    @property
    def temporaries(self) -> int:
        first, second = self._heavier_first
        return max(first.temporaries, 1 + second.temporaries)

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Kernel:
        if self.left.uses_points != self.right.uses_points:
            raise ValueError(f"a precomputed kernel can be combined only with other precomputed kernels, got {self!r}")
        return super().resolve(X, weights)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        first, second = self._heavier_first
        return self._combine(first(X, Y, out=out), second(X, Y))

    def diag(self, X: Array) -> Array:
        return self._combine(xa.astype(self.left.diag(X), xa.numpy_dtype(X)), self.right.diag(X))

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        first, second = self._heavier_first
        return self._combine(first.block(X, rows, columns, out=out), second.block(X, rows, columns))


class Sum(PairKernel):
    """The sum of two kernels, `k1(x, y) + k2(x, y)`.

    Parameters
    ----------
    left : Kernel
        First summand.
    right : Kernel
        Second summand.

    See Also
    --------
    Product : The product of two kernels.
    Scaled : A multiple of a kernel.

    Examples
    --------
    >>> from gramless.kernels import RBF, Linear
    >>> RBF(gamma=0.5) + 2.0 * Linear()
    Sum(left=RBF(gamma=0.5), right=Scaled(kernel=Linear(), scale=2.0))
    """

    _combine = staticmethod(operator.iadd)


class Product(PairKernel):
    """The product of two kernels, `k1(x, y) k2(x, y)`.

    Parameters
    ----------
    left : Kernel
        First factor.
    right : Kernel
        Second factor.

    See Also
    --------
    Sum : The sum of two kernels.
    Power : The product of a kernel with itself.

    Examples
    --------
    >>> from gramless.kernels import RBF, Linear
    >>> RBF(gamma=0.5) * Linear()
    Product(left=RBF(gamma=0.5), right=Linear())
    """

    _combine = staticmethod(operator.imul)


class EntrywiseKernel(CombinedKernel):
    """Base class of kernels that are a function of the values of one other kernel."""

    kernel: Kernel

    def _apply(self, values: Array) -> Array:
        """Apply the function to a block of kernel values, in place."""
        raise NotImplementedError

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self._apply(self.kernel(X, Y, out=out))

    def diag(self, X: Array) -> Array:
        return self._apply(self.kernel.diag(X))

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        return self._apply(self.kernel.block(X, rows, columns, out=out))


class ColumnwiseKernel(CombinedKernel):
    """Base class of kernels that apply another kernel to the transformed rows `_transform(X)`, for example some columns."""

    kernel: Kernel
    permutable = False

    def accepts_grid(self, rows: GridRows) -> bool:
        return False  # rows stored as bytes cannot be divided into columns

    def _transform(self, X: Array) -> Array:
        raise NotImplementedError

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self.kernel(self._transform(X), self._transform(Y), out=out)

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._transform(X))

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Self:
        resolved = copy.copy(self)
        resolved.kernel = self.kernel.resolve(self._transform(X), weights)
        return resolved


class Scaled(EntrywiseKernel):
    """A multiple of a kernel, `scale * k(x, y)`.

    Parameters
    ----------
    kernel : Kernel
        Kernel to multiply.
    scale : float, default=1.0
        Factor, at least 0.

    See Also
    --------
    Sum : The sum of two kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> (2.0 * Linear())(np.ones((1, 3)), np.ones((1, 3)))
    array([[6.]])
    """

    def __init__(self, kernel: Kernel, scale: float = 1.0):
        self.kernel = kernel
        self.scale = scale

    def _apply(self, values: Array) -> Array:
        if not self.scale >= 0:
            raise ValueError(f"scale must be at least 0 for a positive semi-definite kernel, got {self.scale!r}")
        values *= self.scale
        return values


class Power(EntrywiseKernel):
    """A power of a kernel, `k(x, y) ** exponent`.

    Parameters
    ----------
    kernel : Kernel
        Kernel to raise to a power.
    exponent : int, default=2
        Exponent, at least 1.

    See Also
    --------
    Polynomial : A power of an inner product plus a constant.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Linear
    >>> (Linear() ** 2)(np.ones((1, 3)), np.ones((1, 3)))
    array([[9.]])
    """

    def __init__(self, kernel: Kernel, exponent: int = 2):
        self.kernel = kernel
        self.exponent = exponent

    @property
    def temporaries(self) -> int:
        power_of_two = (self.exponent & (self.exponent - 1)) == 0
        return max(self.kernel.temporaries, 0 if power_of_two else 1)

    def _apply(self, values: Array) -> Array:
        return xa.integer_power_(values, self.exponent)


class Columns(ColumnwiseKernel):
    """A kernel on a subset of the features, `k(x[columns], y[columns])`.

    Parameters
    ----------
    kernel : Kernel
        Kernel on the selected features.
    columns : slice, sequence of int, or boolean mask
        Features that the kernel uses.

    See Also
    --------
    Product : Combines kernels on different features.

    Examples
    --------
    >>> from gramless.kernels import RBF, Columns
    >>> pixels, edges = slice(0, 784), slice(784, 1108)
    >>> kernel = Columns(RBF(gamma=0.01), pixels) * Columns(RBF(gamma=0.03), edges)
    """

    def __init__(self, kernel: Kernel, columns: Any):
        self.kernel = kernel
        self.columns = columns

    def _transform(self, X: Array) -> Array:
        if isinstance(self.columns, slice):
            return X[:, self.columns]
        return X[:, xa.indices(np.asarray(self.columns), X)]


class ScaledColumns(ColumnwiseKernel):
    """A kernel on columns that are multiplied by scales, `k(s * x, s * y)`.

    With a stationary kernel the scales are inverse length scales (automatic relevance determination): a column with a large
    scale has a large influence, and a column with scale 0 has none.

    Parameters
    ----------
    kernel : Kernel
        Kernel on the scaled columns.
    scales : array of shape (n_features,)
        Factor of each column.

    See Also
    --------
    Columns : A kernel on a subset of the features.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF, ScaledColumns
    >>> kernel = ScaledColumns(RBF(gamma=0.5), scales=[1.0, 0.0])
    >>> kernel(np.zeros((1, 2)), np.array([[0.0, 9.0], [1.0, 0.0]])).round(4)
    array([[1.    , 0.6065]])
    """

    def __init__(self, kernel: Kernel, scales: Any):
        self.kernel = kernel
        self.scales = scales

    def _transform(self, X: Array) -> Array:
        scales = np.asarray(self.scales, dtype=np.float64)
        if scales.shape != (X.shape[1],):
            raise ValueError(f"scales has shape {scales.shape} for {X.shape[1]} columns; give one for each")
        if xa.is_sparse(X):
            return (X @ sp.diags_array(scales.astype(X.dtype))).tocsr()
        return X * xa.like(scales, X)


class Callable_(Kernel):
    """A kernel `k(x, y)` given as a Python function of two blocks of rows.

    The function receives CSR rows if the data is sparse, and may return a sparse matrix.

    Parameters
    ----------
    function : callable(X, Y) -> matrix of shape (n, m)
        Function that returns the kernel matrix; it is called by one thread at a time.

    See Also
    --------
    as_kernel : Converts a name or a function to a kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Callable_
    >>> Callable_(lambda X, Y: X @ Y.T)(np.ones((1, 3)), np.ones((2, 3)))
    array([[3., 3.]])
    """

    accepts_sparse = True
    thread_safe = False
    temporaries = 2

    def __init__(self, function: Callable[[Array, Array], Array]):
        self.function = function

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        block = self.function(X, Y)
        block = block.toarray() if xa.is_sparse(block) else block
        expected = (X.shape[0], Y.shape[0])
        if tuple(getattr(block, "shape", ())) != expected:
            raise ValueError(
                f"the kernel function {self.function!r} returned shape {getattr(block, 'shape', None)} "
                f"for {expected[0]} and {expected[1]} points; expected {expected}"
            )
        block = np.asarray(block, dtype=X.dtype) if xa.is_sparse(X) else xa.like(block, X)
        if not bool(xa.namespace(block).all(xa.namespace(block).isfinite(block))):
            raise ValueError(f"the kernel function {self.function!r} returned values that are not finite (NaN or infinity)")
        return xa.copied(block, out)  # callers modify the block in place
