"""Class probabilities from least-squares scores: a softmax with two slopes and an offset for each class.

    P(c | x) = softmax_c( a p_c + b log max(p_c, floor) + o_c ),      p_c = the least-squares estimate of P(c | x)

Least squares on class indicators estimates the probabilities themselves, for which `a = 0, b = 1` is correct; large margins
need the steeper logistic form, `b = 0`. Slopes and offsets maximise the likelihood of leave-one-out scores times a Gaussian
prior. This convex problem has `2 + n_classes` unknowns and takes about twenty L-BFGS steps of O(n k). `temperature_losses`
is called for many models, so it fits only `a`, by Newton's method.

Reference: Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with Dirichlet
calibration", 2019.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

# Smallest probability that least-squares scores distinguish from zero.
_FLOOR = 1e-3
# Precisions of the Gaussian priors on the offsets and on the slopes, which keep both finite for separable rows. Platt's
# smoothed targets keep them finite too, but the log loss on new rows was 36 % higher (geometric mean over ten tables).
_OFFSET_PRIOR = 1.0
_SLOPE_PRIOR = 0.1
# Largest number of Newton steps for the slope of `temperature_losses`; the steps end earlier at `_SLOPE_TOLERANCE`.
_NEWTON_STEPS = 8
# Relative accuracy of the slope; the relative error of the loss is about the square of this number.
_SLOPE_TOLERANCE = 1e-4
# Upper bound of the slope, because separable rows have no finite best slope.
_LARGEST_SLOPE = 60.0


def estimates(scores: np.ndarray) -> np.ndarray:
    """Return least-squares estimates of the class probabilities, of shape (n, k); estimates may be outside of [0, 1]."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        positive = (1 + scores.reshape(-1)) / 2
        return np.column_stack([1 - positive, positive])
    return scores


def _inputs(scores: np.ndarray) -> np.ndarray:
    p = estimates(np.asarray(scores, dtype=np.float64))
    logs = np.log(np.maximum(p, _FLOOR))
    return np.stack([p, logs - logs.mean(axis=1, keepdims=True)], axis=2)


def fit_link(scores: np.ndarray, codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the parameters `[a, b, o_1, ..., o_k]` fitted to scores of rows that the model was not fitted on."""
    F = _inputs(scores)
    n = len(codes)
    rows = np.arange(n)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    total = float(w.sum())

    def loss(t: np.ndarray) -> tuple[float, np.ndarray]:
        slopes, offsets = t[:2], t[2:]
        z = F @ slopes + offsets
        z -= z.max(axis=1, keepdims=True)
        P = np.exp(z)
        sums = P.sum(axis=1)
        P /= sums[:, None]
        value = w @ (np.log(sums) - z[rows, codes])
        value += _OFFSET_PRIOR / 2 * offsets @ offsets + _SLOPE_PRIOR / 2 * slopes @ slopes
        P[rows, codes] -= 1.0
        P *= w[:, None]
        gradient = np.concatenate(
            [np.einsum("ij,ijf->f", P, F) + _SLOPE_PRIOR * slopes, P.sum(axis=0) + _OFFSET_PRIOR * offsets]
        )
        return value / total, gradient / total

    start = np.concatenate([[1.0, 1.0], np.zeros(n_classes)])
    # A negative slope would reverse the order of the scores.
    bounds = [(0.0, None)] * 2 + [(None, None)] * n_classes
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100}).x


def link_scores(scores: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Return the log probabilities, up to an additive constant for each row, of shape (n, n_classes)."""
    return _inputs(scores) @ link[:2] + link[2:]


def link_probabilities(scores: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Return the class probabilities of shape (n, n_classes)."""
    return softmax(link_scores(scores, link), axis=1)


def _relative_to_largest(scores: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return class estimates minus the largest of the row, of shape (n_classes, n), and the entries of the true classes."""
    p = np.ascontiguousarray(estimates(scores).T)
    p -= p.max(axis=0)
    return p, p[codes, np.arange(len(codes))]


def _best_slope(p: np.ndarray, own: np.ndarray, weights: np.ndarray | None) -> float:
    a, P = 2.0, np.empty_like(p)
    for _ in range(_NEWTON_STEPS):
        np.exp(np.multiply(a, p, out=P), out=P)
        total = P.sum(axis=0)
        P *= p
        mean = P.sum(axis=0) / total
        slope = _average(mean - own, weights)
        curvature = _average(np.einsum("ij,ij->j", P, p) / total - mean**2, weights)
        before = a
        a = float(np.clip(a - slope / max(curvature, 1e-12), a / 3, min(3 * a, _LARGEST_SLOPE)))
        a = max(a, 1e-3)
        if abs(a - before) < _SLOPE_TOLERANCE * a:
            break
    return a


def temperature_losses(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the log loss of each row for `softmax(a p)`, with the slope `a` that minimises the mean log loss."""
    p, own = _relative_to_largest(scores, codes)
    a = _best_slope(p, own, weights)
    return np.log(np.exp(a * p).sum(axis=0)) - a * own


def temperature_loss_and_slopes(
    scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the mean of `temperature_losses` and its gradient by the scores; the derivative by the optimal `a` is zero."""
    p, own = _relative_to_largest(scores, codes)
    a = _best_slope(p, own, weights)
    P = np.exp(a * p)
    total = P.sum(axis=0)
    loss = _average(np.log(total) - a * own, weights)
    P *= a / total
    P[codes, np.arange(len(codes))] -= a
    P *= 1.0 / len(codes) if weights is None else weights / weights.sum()
    slopes = P.T
    return loss, slopes if scores.ndim == 2 and scores.shape[1] > 1 else ((slopes[:, 1] - slopes[:, 0]) / 2).reshape(
        scores.shape
    )


def _average(values: np.ndarray, weights: np.ndarray | None) -> float:
    return float(values.mean() if weights is None else weights @ values / weights.sum())
