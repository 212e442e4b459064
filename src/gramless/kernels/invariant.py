"""Invariant kernels: the mean of a kernel over transformed copies of both points.

    Invariant   k(x, y) = mean over g, h of kernel(g x, h y)         g, h in a finite set of transforms
    Reflected   k(x, y) = (f(e + o) + f(e - o)) / 2                  e, o = inner products of the first and the last columns

The mean is the inner product of mean feature vectors, hence positive semi-definite for every kernel and every set of
transforms. If the set is a group that permutes columns, and the kernel does not depend on the order of columns, the mean
over the transforms of one point equals the mean over both points: |G| blocks instead of |G|^2. `Reflected` is for a
reflection that negates only the last (odd) columns; e and o cost together as much as one inner product of all columns.
Reference: Haasdonk and Burkhardt, "Invariant kernel functions for pattern analysis and machine learning", 2007.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.base import ColumnwiseKernel, Kernel
from gramless.kernels.dot import InnerProductKernel, Linear, Polynomial


class Invariant(ColumnwiseKernel):
    """Mean of a kernel over transformed copies of both points.

    Parameters
    ----------
    kernel : Kernel
        Kernel that is averaged.
    transforms : array of int of shape (n_transforms, n_columns)
        Column indices of each transformed point: `x[transforms[g]]`. `gramless.images.mirror_columns`, `rotation_columns`
        and `shift_columns` return permutations of pixels; for concatenated features of transformed images use
        `np.arange(n_transforms * p).reshape(n_transforms, p)`.

    See Also
    --------
    Reflected : The mean over one reflection, at the cost of a single kernel.
    gramless.images.virtual_examples : Transformed copies of the training images.

    References
    ----------
    Haasdonk and Burkhardt, "Invariant kernel functions for pattern analysis and machine learning", 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import mirror_columns
    >>> from gramless.kernels import RBF, Invariant
    >>> kernel = Invariant(RBF(gamma=0.5), mirror_columns((1, 3)))
    >>> x, mirrored = np.array([[1.0, 0.0, 2.0]]), np.array([[2.0, 0.0, 1.0]])
    >>> bool(np.isclose(kernel(x, x), kernel(x, mirrored)).all())
    True
    """

    accepts_sparse = False

    def __init__(self, kernel: Kernel, transforms: Any):
        self.kernel = kernel
        self.transforms = transforms

    @property
    def temporaries(self) -> int:
        return 1 + self.kernel.temporaries

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Invariant:
        if not self.kernel.uses_points:
            raise ValueError("a precomputed kernel has no columns to transform")
        columns = self._columns(X.shape[1])
        return Invariant(self.kernel.resolve(X[:, xa.indices(columns[0], X)], weights), columns)

    def _columns(self, d: int) -> np.ndarray:
        columns = np.asarray(self.transforms)
        if columns.ndim != 2 or columns.dtype.kind not in "iu" or columns.size == 0:
            raise ValueError(f"transforms must be a matrix of column numbers, got shape {columns.shape} of {columns.dtype}")
        if columns.min() < 0 or columns.max() >= d:
            raise ValueError(f"transforms has column numbers from {columns.min()} to {columns.max()}, and X has {d} columns")
        return columns

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        columns = self._columns(X.shape[1])
        # For a group of permutations, averaging over the transforms of the second argument suffices.
        left = columns[:1] if self.kernel.permutable and is_group(columns) else columns
        out = xa.empty((X.shape[0], Y.shape[0]), X) if out is None else out
        block = None
        for i, of_x in enumerate(left):
            part = X[:, xa.indices(of_x, X)]
            for j, of_y in enumerate(columns):
                other = Y[:, xa.indices(of_y, Y)]
                if i == j == 0:
                    self.kernel(part, other, out=out)
                else:
                    block = self.kernel(part, other, out=block)
                    out += block
        out *= 1 / (len(left) * len(columns))
        return out

    diag = Kernel.diag


class Reflected(ColumnwiseKernel):
    """Mean of a kernel of inner products over a reflection that changes the signs of the last columns.

    Parameters
    ----------
    kernel : Linear or Polynomial
        Kernel that is averaged.
    n_odd : int
        Number of last columns whose signs change.

    See Also
    --------
    Invariant : The mean of any kernel over any transforms of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import Polynomial, Reflected
    >>> Reflected(Polynomial(degree=2, gamma=1.0), n_odd=1)(np.array([[2.0, 1.0]]), np.array([[3.0, 5.0]]))
    array([[61.]])
    """

    accepts_sparse = False

    def __init__(self, kernel: InnerProductKernel, n_odd: int = 1):
        self.kernel: InnerProductKernel = kernel
        self.n_odd = n_odd

    @property
    def temporaries(self) -> int:
        return 1 + self.kernel.temporaries

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Reflected:
        if not isinstance(self.kernel, (Linear, Polynomial)):
            raise TypeError(
                f"Reflected takes a linear or polynomial kernel, not {self.kernel!r}; use Invariant for other kernels"
            )
        if not 0 <= int(self.n_odd) <= X.shape[1]:
            raise ValueError(f"n_odd={self.n_odd} must lie between 0 and the number of columns, {X.shape[1]}")
        return Reflected(self.kernel.resolve(X, weights), int(self.n_odd))

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        # The inner product is e + o for two points, and e - o if one of the points is reflected.
        even = X.shape[1] - int(self.n_odd)
        scale = getattr(self.kernel, "gamma", 1.0)
        same = xa.dot(X[:, :even], Y[:, :even], out=out)
        opposite = xa.dot(X[:, even:], Y[:, even:])
        same += opposite  # e + o
        opposite *= -2
        opposite += same  # e - o
        for values in (same, opposite):
            values *= scale
            self.kernel._apply(values, X)
        same += opposite
        same *= 0.5
        return same

    def diag(self, X: Array) -> Array:
        even = X.shape[1] - int(self.n_odd)
        e, o = xa.square_norms(X[:, :even]), xa.square_norms(X[:, even:])
        scale = getattr(self.kernel, "gamma", 1.0)
        return (self.kernel._apply((e + o) * scale, X) + self.kernel._apply((e - o) * scale, X)) / 2


def is_group(columns: np.ndarray) -> bool:
    """Return True if the rows are permutations of all columns and the set of rows is closed under composition."""
    every = np.arange(columns.shape[1])
    if not all(np.array_equal(np.sort(row), every) for row in columns):
        return False
    known = {row.tobytes() for row in columns}
    return all(first[second].tobytes() in known for first in columns for second in columns)
