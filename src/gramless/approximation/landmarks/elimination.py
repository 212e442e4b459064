"""Cholesky elimination that skips small pivots: the sequential part of the blocked landmark rules."""

from __future__ import annotations

import numpy as np


def eliminate(A: np.ndarray, least: np.ndarray, at_most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eliminate a positive semi-definite matrix in order, with at most `at_most` pivots that exceed `least`.

    Return the positions of the pivots, the lower Cholesky factor of `A[taken][:, taken]`, and the remaining diagonal.
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
