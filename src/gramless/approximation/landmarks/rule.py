"""Interface of the landmark rules, and functions for block sizes, elimination and the memory limit of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.tuning import TUNING
from gramless.kernels.base import Kernel

_MEMORY_LIMIT: ContextVar[int | None] = ContextVar("bytes that a landmark rule may allocate", default=None)


class LandmarkRule(BaseEstimator):
    """Base class of the rules that select landmarks; a rule has parameters and no fitted state.

    Subclasses define `select`.

    See Also
    --------
    select : Selects landmarks by a name, a rule, row indices or points.

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
        """Select at most `m` landmarks.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows in floating point: NumPy, CSR or torch.
        kernel : Kernel
            Kernel with numeric settings.
        m : int
            Number of landmarks, from 1 to `n`.
        rng : RandomState
            Random generator.

        Returns
        -------
        array
            Row indices (a NumPy integer vector), or points with the columns of `X`.
        """
        raise NotImplementedError


def rows_per_block(width: int) -> int:
    """Return the number of rows for which a block with `width` columns fits into the memory limit of a rule."""
    limit, rows = _MEMORY_LIMIT.get(), int(np.clip(TUNING.block_entries // max(1, width), 256, 8192))
    if limit is None:
        return rows
    return int(np.clip(limit // (2 * TUNING.block_copies * 8 * max(1, width)), 32, rows))


@contextmanager
def limit_memory(nbytes: int | None) -> Iterator[None]:
    """Limit the bytes of optional memory that landmark rules allocate in this context; None sets the default sizes."""
    token = _MEMORY_LIMIT.set(nbytes)
    try:
        yield
    finally:
        _MEMORY_LIMIT.reset(token)


def fits_limit(nbytes: int) -> bool:
    """Return whether an array that exists for the entire selection takes at most half of the memory limit."""
    limit = _MEMORY_LIMIT.get()
    return limit is None or nbytes <= limit // 2


def reference(X: Array) -> Array:
    """Return a dense array with the array namespace, device and dtype of kernel blocks of `X`."""
    return X.data if xa.is_sparse(X) else X


def to_host(x: Array) -> np.ndarray:
    """Return a vector or a small matrix as a float64 NumPy array."""
    return xa.to_numpy(x).astype(np.float64)


def eliminate(A: np.ndarray, least: np.ndarray, at_most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factor a positive semi-definite matrix by partial Cholesky: rows are pivots if their residual exceeds `least`.

    Return the indices of the first `at_most` pivots, the lower Cholesky factor at the pivots, and the remaining diagonal.
    """
    left = np.diagonal(A).copy()
    rows = np.empty((min(at_most, len(A)), len(A)))
    taken: list[int] = []
    for i in range(len(A)):
        k = len(taken)
        if k == at_most:
            break
        if left[i] > least[i]:
            rows[k] = (A[i] - rows[:k, i] @ rows[:k]) / np.sqrt(left[i])
            left -= rows[k] ** 2
            taken.append(i)
    at = np.array(taken, dtype=np.intp)
    return at, np.tril(rows[: len(at), at].T), left
