"""What a kernel is, and the algebra of kernels.

A kernel is settings only: a scikit-learn `BaseEstimator` whose call gives one dense block

    K[i, j] = k(x_i, y_j)

so that `clone`, `repr` and grid search over `kernel__gamma` come free. Sums, products, positive multiples and integer
powers of kernels are kernels again, and so is a kernel on some of the features (`Columns`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.grid import GridRows


class Kernel(BaseEstimator):
    """A positive semi-definite function of two points, evaluated in blocks.

    Subclasses define `__call__` and `diag`. Instances combine: `k1 + k2`, `k1 * k2`, `2.0 * k`, `k ** 2`.

    See Also
    --------
    as_kernel : The kernel that a name or a function means.

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
    """Whether CSR input is understood."""

    thread_safe = True
    """Whether two threads may evaluate different tiles at once."""

    uses_points = True
    """Whether values are computed from points; a precomputed kernel looks them up instead."""

    permutable = False
    """Whether putting the features of both points into another order changes nothing."""

    positive_definite = True
    """Whether every Gram matrix is positive semi-definite."""

    def accepts_grid(self, rows: GridRows) -> bool:
        """Whether points may come as rows of bytes: inner products and norms of rows are all it takes.

        Parameters
        ----------
        rows : GridRows
            The points, as bytes.

        Returns
        -------
        bool
            Whether `__call__` and `diag` take them.
        """
        return False

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        """The `(n, m)` block of kernel values, written into `out` where given."""
        raise NotImplementedError

    def diag(self, X: Array) -> Array:
        """The values `k(x_i, x_i)`.

        Parameters
        ----------
        X : array of shape (n, d)
            The points.

        Returns
        -------
        array of shape (n,)
            A value for each row.
        """
        raise NotImplementedError

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        """The block `K(X[rows], X[columns])`; a precomputed kernel looks it up instead.

        Parameters
        ----------
        X : array of shape (n, d)
            The points; kernel values of shape (n, n) for a precomputed kernel.
        rows : slice or ndarray of int
            Which points stand for the rows.
        columns : slice or ndarray of int
            Which points stand for the columns.
        out : array, optional
            Where to write the block.

        Returns
        -------
        array
            The kernel values; `out` where that is given.
        """
        return self(xa.take_rows(X, rows), xa.take_rows(X, columns), out=out)

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Kernel:
        """A copy in which everything that depends on the data, such as `gamma="scale"`, is a number.

        Parameters
        ----------
        X : array of shape (n, d)
            The training points.
        weights : ndarray of shape (n,), optional
            Their weights.

        Returns
        -------
        Kernel
            The same function with its settings as numbers.
        """
        resolved = copy.copy(self)
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, Kernel):
                setattr(resolved, name, value.resolve(X, weights))
        return resolved

    @property
    def temporaries(self) -> int:
        """How many blocks of the size of the result a call holds beside the result."""
        return 0

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


class Pair(Kernel):
    """Two kernels on the same points, combined entry by entry; see `Sum` and `Product`."""

    def __init__(self, left: Kernel, right: Kernel):
        self.left = left
        self.right = right

    @property
    def accepts_sparse(self) -> bool:  # type: ignore[override]
        """Whether CSR input is understood, by every part."""
        return self.left.accepts_sparse and self.right.accepts_sparse

    @property
    def thread_safe(self) -> bool:  # type: ignore[override]
        """Whether two threads may evaluate different tiles at once."""
        return self.left.thread_safe and self.right.thread_safe

    @property
    def positive_definite(self) -> bool:  # type: ignore[override]
        """Whether every Gram matrix is positive semi-definite."""
        return self.left.positive_definite and self.right.positive_definite

    @property
    def uses_points(self) -> bool:  # type: ignore[override]
        """Whether values are computed from points."""
        return self.left.uses_points and self.right.uses_points

    @property
    def permutable(self) -> bool:  # type: ignore[override]
        """Whether the order of the features means nothing."""
        return self.left.permutable and self.right.permutable

    def accepts_grid(self, rows: GridRows) -> bool:
        return self.left.accepts_grid(rows) and self.right.accepts_grid(rows)

    @property
    def _heavier_first(self) -> tuple[Kernel, Kernel]:
        """Evaluating the one with more temporaries before the other's block exists keeps the peak lowest."""
        if self.left.temporaries >= self.right.temporaries:
            return self.left, self.right
        return self.right, self.left

    @property
    def temporaries(self) -> int:
        first, second = self._heavier_first
        return max(first.temporaries, 1 + second.temporaries)

    def _combine(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Kernel:
        if self.left.uses_points != self.right.uses_points:
            raise ValueError(f"a precomputed kernel combines with other precomputed ones only, not as in {self!r}")
        return super().resolve(X, weights)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        first, second = self._heavier_first
        return self._combine(first(X, Y, out=out), second(X, Y))

    def diag(self, X: Array) -> Array:
        return self._combine(xa.astype(self.left.diag(X), xa.numpy_dtype(X)), self.right.diag(X))

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        first, second = self._heavier_first
        return self._combine(first.block(X, rows, columns, out=out), second.block(X, rows, columns))


class Sum(Pair):
    """The sum of two kernels, `k1(x, y) + k2(x, y)`.

    Parameters
    ----------
    left : Kernel
        The first summand.
    right : Kernel
        The second one.

    See Also
    --------
    Product : The product of two kernels.
    Scaled : A multiple of one.

    Examples
    --------
    >>> from gramless.kernels import RBF, Linear
    >>> RBF(gamma=0.5) + 2.0 * Linear()
    Sum(left=RBF(gamma=0.5), right=Scaled(kernel=Linear(), scale=2.0))
    """

    def _combine(self, a: Array, b: Array) -> Array:
        a += b
        return a


class Product(Pair):
    """The product of two kernels, `k1(x, y) k2(x, y)`.

    Parameters
    ----------
    left : Kernel
        The first factor.
    right : Kernel
        The second one.

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

    def _combine(self, a: Array, b: Array) -> Array:
        a *= b
        return a


class Wrapped(Kernel):
    """A kernel made of one other kernel, whose abilities it shares."""

    kernel: Kernel

    @property
    def accepts_sparse(self) -> bool:  # type: ignore[override]
        """Whether CSR input is understood, by every part."""
        return self.kernel.accepts_sparse

    @property
    def thread_safe(self) -> bool:  # type: ignore[override]
        """Whether two threads may evaluate different tiles at once."""
        return self.kernel.thread_safe

    @property
    def positive_definite(self) -> bool:  # type: ignore[override]
        """Whether every Gram matrix is positive semi-definite."""
        return self.kernel.positive_definite

    @property
    def uses_points(self) -> bool:  # type: ignore[override]
        """Whether values are computed from points."""
        return self.kernel.uses_points

    @property
    def permutable(self) -> bool:  # type: ignore[override]
        """Whether the order of the features means nothing."""
        return self.kernel.permutable

    @property
    def temporaries(self) -> int:
        return self.kernel.temporaries

    def accepts_grid(self, rows: GridRows) -> bool:
        return self.kernel.accepts_grid(rows)


class Scaled(Wrapped):
    """A multiple of a kernel, `scale * k(x, y)`.

    Parameters
    ----------
    kernel : Kernel
        What is multiplied.
    scale : float, default=1.0
        At least 0.

    See Also
    --------
    Sum : Multiples add up to a kernel.

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

    def _scaled(self, values: Array) -> Array:
        if not self.scale >= 0:
            raise ValueError(f"a multiple of a kernel needs scale >= 0 to stay a kernel, got {self.scale!r}")
        values *= self.scale
        return values

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self._scaled(self.kernel(X, Y, out=out))

    def diag(self, X: Array) -> Array:
        return self._scaled(self.kernel.diag(X))

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        return self._scaled(self.kernel.block(X, rows, columns, out=out))


class Power(Wrapped):
    """A power of a kernel, `k(x, y) ** exponent`.

    Parameters
    ----------
    kernel : Kernel
        What is raised to the power.
    exponent : int, default=2
        At least 1.

    See Also
    --------
    Polynomial : A power of an inner product and a constant.

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

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return xa.integer_power_(self.kernel(X, Y, out=out), self.exponent)

    def diag(self, X: Array) -> Array:
        return xa.integer_power_(self.kernel.diag(X), self.exponent)

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        return xa.integer_power_(self.kernel.block(X, rows, columns, out=out), self.exponent)


class Columns(Wrapped):
    """A kernel on some of the features: `k(x[columns], y[columns])`.

    Parameters
    ----------
    kernel : Kernel
        Of the features that are left.
    columns : slice, sequence of int, or boolean mask
        Which features the kernel sees.

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

    @property
    def permutable(self) -> bool:  # type: ignore[override]
        """Whether the order of the features means nothing."""
        return False

    def accepts_grid(self, rows: GridRows) -> bool:
        return False  # bytes come in whole rows

    def _select(self, X: Array) -> Array:
        if isinstance(self.columns, slice):
            return X[:, self.columns]
        return X[:, xa.indices(np.asarray(self.columns), X)]

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self.kernel(self._select(X), self._select(Y), out=out)

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._select(X))

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Columns:
        return Columns(self.kernel.resolve(self._select(X), weights), self.columns)


class ScaledColumns(Wrapped):
    """A kernel on columns that are each multiplied by a number of their own: `k(s * x, s * y)`.

    With a stationary kernel this is a length scale for each column (automatic relevance determination): a column with a
    large scale matters much, one with scale 0 not at all.

    Parameters
    ----------
    kernel : Kernel
        Of the columns after that.
    scales : array of shape (n_features,)
        What each column is multiplied by.

    See Also
    --------
    Columns : A kernel on some of the features.

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

    def accepts_grid(self, rows: GridRows) -> bool:
        return False  # scaled columns are on no grid

    def _scaled(self, X: Array) -> Array:
        scales = np.asarray(self.scales, dtype=np.float64)
        if scales.shape != (X.shape[1],):
            raise ValueError(f"scales has shape {scales.shape} for {X.shape[1]} columns; give one for each")
        if xa.is_sparse(X):
            scaled: Array = (X @ sp.diags_array(scales.astype(X.dtype))).tocsr()
            return scaled
        return X * xa.like(scales, X)

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        return self.kernel(self._scaled(X), self._scaled(Y), out=out)

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._scaled(X))

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> ScaledColumns:
        return ScaledColumns(self.kernel.resolve(self._scaled(X), weights), self.scales)


class Callable_(Kernel):
    """A Python function of two blocks of points, as a kernel.

    The function sees rows of `X` as they are, in CSR where the data is sparse; its answer may be sparse too.

    Parameters
    ----------
    function : callable(X, Y) -> matrix of shape (n, m)
        Called by one thread at a time.

    See Also
    --------
    as_kernel : Makes one of these of a function.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Callable_
    >>> Callable_(lambda X, Y: X @ Y.T)(np.ones((1, 3)), np.ones((2, 3)))
    array([[3., 3.]])
    """

    accepts_sparse = True
    thread_safe = False

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
        if out is None:
            return block + 0  # it may be the function's own, and what comes after works in place
        out[...] = block
        return out

    def diag(self, X: Array) -> Array:
        # Only the function knows its diagonal: small square blocks keep the waste at a factor of 64.
        n, size = X.shape[0], 64
        pieces = [self(X[i : i + size], X[i : i + size]) for i in range(0, n, size)]
        xp = xa.namespace(X)
        diagonal: Array = xp.concat([xp.linalg.diagonal(piece) for piece in pieces])
        return diagonal

    @property
    def temporaries(self) -> int:
        return 2
