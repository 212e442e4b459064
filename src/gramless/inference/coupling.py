"""Class probabilities from the probabilities of all pairs of classes.

Given `r_ij = P(i | i or j)`, minimise `sum_ij (r_ji p_i - r_ij p_j)^2` over the simplex: one small linear system for each
row, O(k^3), solved for many rows at once.

Reference: Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

_MIN_PROBABILITY = 1e-7


def couple(pairwise: np.ndarray, n_classes: int) -> np.ndarray:
    """Return class probabilities from `pairwise[:, j]`, the probability of the first class of the j-th pair of classes."""
    n, k = pairwise.shape[0], n_classes
    pairwise = np.clip(pairwise, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    r = np.zeros((n, k, k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        r[:, i, j] = pairwise[:, column]
        r[:, j, i] = 1 - pairwise[:, column]
    system = np.zeros((n, k + 1, k + 1))
    system[:, :k, :k] = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(k)
    system[:, diagonal, diagonal] = np.sum(r**2, axis=1)
    system[:, :k, k] = system[:, k, :k] = 1
    right = np.zeros((n, k + 1, 1))
    right[:, k] = 1
    probabilities = np.clip(np.linalg.solve(system, right)[:, :k, 0], 0, None)
    return probabilities / probabilities.sum(axis=1, keepdims=True)
