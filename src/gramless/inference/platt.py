"""Platt scaling: a probability from a score.

    P(y = 1 | s) = 1 / (1 + exp(a s + b))

with `a`, `b` by maximum likelihood on scores of rows that the model was not fitted on (leave-one-out or held-out rows), by
Newton's method with backtracking and the overflow-free likelihood of Lin, Lin and Weng (2007). O(n) for each of about ten
steps.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

_MAX_ITER = 100
_SMALLEST_STEP = 1e-10
_HESSIAN_RIDGE = 1e-12


def fit_sigmoid(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return slope and offset of the sigmoid for the rows that are `positive`."""
    s = np.asarray(scores, dtype=np.float64)
    w = np.ones_like(s) if weights is None else np.asarray(weights, dtype=np.float64)
    n_positive, n_negative = w[positive].sum(), w[~positive].sum()
    # Platt's targets, the posterior means under a uniform prior, keep the slope finite for separable data.
    t = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(a: float, b: float) -> float:
        f = a * s + b
        return float(w @ (np.logaddexp(0.0, -np.abs(f)) + np.where(f >= 0, t * f, (t - 1) * f)))

    a, b = 0.0, float(np.log((n_negative + 1) / (n_positive + 1)))
    value = loss(a, b)
    for _ in range(_MAX_ITER):
        p = expit(-(a * s + b))
        slope, curvature = w * (t - p), w * p * (1 - p)
        g = np.array([slope @ s, slope.sum()])
        if np.abs(g).max() < 1e-5 * max(1.0, w.sum() * 1e-3):
            break
        cross = curvature @ s
        H = np.array([[curvature @ (s * s) + _HESSIAN_RIDGE, cross], [cross, curvature.sum() + _HESSIAN_RIDGE]])
        direction = -np.linalg.solve(H, g)
        step = 1.0
        while step >= _SMALLEST_STEP:
            candidate = loss(a + step * direction[0], b + step * direction[1])
            if candidate < value + 1e-4 * step * (g @ direction):
                break
            step /= 2
        else:
            break
        a, b, value = a + step * direction[0], b + step * direction[1], candidate
    return float(a), float(b)


def fit_sigmoids(scores: np.ndarray, codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return rows `(a, b)`: one sigmoid for each class, or one for the second of two classes."""
    columns = [1] if n_classes == 2 else range(n_classes)
    scores = scores.reshape(len(codes), -1)
    return np.array([fit_sigmoid(scores[:, j], codes == c, weights) for j, c in enumerate(columns)])


def sigmoid_probabilities(scores: np.ndarray, sigmoids: np.ndarray) -> np.ndarray:
    """Return class probabilities: one-vs-rest sigmoids of the scores, normalised to sum to one."""
    p = expit(-(scores.reshape(len(scores), -1) * sigmoids[:, 0] + sigmoids[:, 1]))
    if p.shape[1] == 1:
        return np.column_stack([1 - p[:, 0], p[:, 0]])
    total = p.sum(axis=1, keepdims=True)
    # If every sigmoid underflows to zero, the probabilities are uniform instead of 0/0.
    return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / p.shape[1])
