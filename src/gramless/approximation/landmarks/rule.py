"""What a landmark rule is, and the blocks of kernel values that rules read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import evaluate

# Entries of the largest block a rule holds beside X and its own factor: 128 MB in float32.
_BLOCK_ENTRIES = 2**25
# Of numbers in float64, what the work on a block takes beside the block: kernel values, the solution of a triangular system,
# and a transposed copy of each.
_COPIES_OF_A_BLOCK = 4
_ALLOWED: ContextVar[int | None] = ContextVar("bytes that a rule may hold", default=None)


class LandmarkRule(BaseEstimator):
    """Settings of a way to choose the points that carry a model; no state.

    Subclasses define `select`.

    See Also
    --------
    select : What estimators call: a name, a rule or the user's own landmarks.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import LandmarkRule, select
    >>> class First(LandmarkRule):
    ...     def select(self, X, kernel, m, rng):
    ...         return np.arange(m)
    >>> select(First(), np.zeros((9, 2)), RBF(gamma=1.0), 3, np.random.RandomState(0))
    array([0, 1, 2])
    """

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> Array:
        """Choose at most `m` landmarks.

        Parameters
        ----------
        X : array of shape (n, d)
            NumPy, CSR or torch, floating.
        kernel : Kernel
            Resolved: everything that depends on data is a number.
        m : int
            How many, from 1 to `n`.
        rng : RandomState
            Where random choices come from.

        Returns
        -------
        array
            Row numbers (a NumPy integer vector), or points like the rows of `X`.
        """
        raise NotImplementedError


def cross(kernel: Kernel, X: Array, rows: Any, columns: Any, dtype: Any = None) -> Array:
    """`K(X[rows], X[columns])` in `dtype` (the data's by default), on every core where the kernel allows it."""
    dtype = xa.numpy_dtype(reference(X)) if dtype is None else dtype
    if not kernel.uses_points:
        return xa.astype(kernel.block(X, rows, columns), dtype)
    return evaluate(kernel, xa.astype(xa.take_rows(X, rows), dtype), xa.astype(xa.take_rows(X, columns), dtype))


def rows_at_a_time(width: int) -> int:
    """How many rows of a block `width` entries wide fit the memory that a rule is allowed, or allows itself."""
    allowed, rows = _ALLOWED.get(), int(np.clip(_BLOCK_ENTRIES // max(1, width), 256, 8192))
    if allowed is None:
        return rows
    return int(np.clip(allowed // (2 * _COPIES_OF_A_BLOCK * 8 * max(1, width)), 32, rows))


@contextmanager
def holding_at_most(nbytes: int | None) -> Iterator[None]:
    """A context in which rules hold no more than so many bytes, as far as they have a choice; None is their own measure."""
    token = _ALLOWED.set(nbytes)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def may_hold(nbytes: int) -> bool:
    """Whether a rule may hold something of this size for as long as it works: half of what it is allowed."""
    allowed = _ALLOWED.get()
    return allowed is None or nbytes <= allowed // 2


def reference(X: Array) -> Array:
    """A dense array of the library, device and dtype that kernel blocks of `X` have."""
    return X.data if xa.is_sparse(X) else X


def host(x: Array) -> np.ndarray:
    """A vector or a small matrix in float64 on the host, where decisions are taken."""
    return xa.to_numpy(x).astype(np.float64)
