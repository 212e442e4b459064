"""The kernel of a Gram matrix that the user has computed.

In `fit`, `X` is the square matrix `K(train, train)`; in `predict`, it is `K(test, train)`. Blocks are read from `X`.
"""

from __future__ import annotations

from typing import Any

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.base import Kernel


class Precomputed(Kernel):
    """Kernel values `K[i, j]` given as the data `X`.

    See Also
    --------
    Callable_ : A kernel given as a function.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVC
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> LSSVC(kernel="precomputed").fit(X @ X.T, y).predict(X @ X.T)
    array([0, 0, 1, 1])
    """

    uses_points = False

    def __call__(self, X: Array, Y: Array, out: Array | None = None) -> Array:
        if X.shape[1] != Y.shape[0]:
            raise ValueError(
                f"a precomputed kernel needs one column for each training point: got {X.shape[1]} columns "
                f"for {Y.shape[0]} points"
            )
        return xa.copied(X, out)

    def diag(self, X: Array) -> Array:
        return xa.namespace(X).linalg.diagonal(X) + 0

    def block(self, X: Array, rows: Any, columns: Any, out: Array | None = None) -> Array:
        return xa.copied(xa.take_rows(xa.take_rows(X, rows).T, columns).T, out)
