"""A scale for each column, from how much a fitted function changes along it.

    m_j = mean_i sum_c (d f_c / d x_j)^2 (x_i),      scale_j = m_j^(1/2), normalised to mean square 1

the diagonal of the average gradient outer product of a recursive feature machine: fit, take the gradients, scale the
columns, fit again. Columns that the function does not use fade away, which is what trees do by never splitting on them. For
`f = sum_i a_i exp(-gamma ||x - x_i||) + b` the gradients of all points are `1 + d k` matrix products: O(n^2 d k).

Reference: Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", 2024.
"""

from __future__ import annotations

import numpy as np

from gramless.kernels.stationary import euclidean_distances

# Gradients at as many points tell the means well enough.
_POINTS = 1000
# A column never fades so far that it could not come back.
_LEAST = 0.03


def column_scales(X: np.ndarray, scales: np.ndarray, coef: np.ndarray, gamma: float, groups: np.ndarray) -> np.ndarray:
    """New scales for the columns of `X`, mean square 1.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The points that carry the function, not scaled.
    scales : ndarray of shape (d,)
        With which the function was fitted.
    coef : ndarray of shape (n, k)
    gamma : float
        Of the `Exponential` kernel.
    groups : ndarray of int, shape (d,)
        Columns with the same number share a scale: the levels of one category.
    """
    X = X * scales
    at = X[:_POINTS]
    distances = euclidean_distances(at, X)
    slopes = np.exp(-gamma * distances)
    slopes *= -gamma
    # The kernel has a cusp at its own point, which has no slope to count.
    slopes /= np.where(distances > 0, distances, np.inf)
    mean_squares = np.zeros(X.shape[1])
    for a in coef.T:
        B = slopes * a[None, :]
        gradient = at * B.sum(axis=1)[:, None] - B @ X
        mean_squares += (gradient**2).mean(axis=0)
    mean_squares *= scales**2  # along the columns as they were before they were scaled
    by_group = np.bincount(groups, weights=mean_squares) / np.bincount(groups)
    if not by_group.max() > 0:
        return np.ones(X.shape[1])
    found = np.maximum(np.sqrt(by_group / by_group.max()), _LEAST)[groups]
    return found / np.sqrt(np.mean(found**2))
