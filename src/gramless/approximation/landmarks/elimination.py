"""Cholesky elimination that passes over pivots: the small sequential part of the blocked landmark rules."""

from __future__ import annotations

import numpy as np


def eliminate(A: np.ndarray, least: np.ndarray, at_most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eliminate in order with those pivots that are still above `least` when their turn comes.

    Parameters
    ----------
    A : ndarray of shape (b, b)
        Symmetric positive semi-definite, float64.
    least : ndarray of shape (b,)
        What a pivot must exceed; not negative.
    at_most : int
        How many pivots to take.

    Returns
    -------
    taken : ndarray of int, shape (k,)
        Positions of the pivots taken.
    L : ndarray of shape (k, k)
        The lower Cholesky factor of `A[taken][:, taken]`.
    left : ndarray of shape (b,)
        The diagonal that the elimination leaves.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> eliminate(A, np.zeros(3), 3)
    (array([0, 2]), array([[1., 0.],
           [0., 2.]]), array([0., 0., 0.]))
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
