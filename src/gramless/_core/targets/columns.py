"""Target matrices of least-squares models.

For two classes the target matrix has one column of -1 and +1, for more classes one indicator column per class. Regression
targets are standardised, so that outputs of every magnitude are solved to the same relative accuracy, also in float32. The
model stays the same, because the intercept absorbs the shift and the solution is linear in the targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def class_targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the target matrix for the class indices `codes` of the rows."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.eye(n_classes)[codes]


def scores_to_labels(classes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the class of the largest score in each row; for two classes, the class that the sign of the score selects."""
    if len(classes) == 2:
        return classes[(scores.reshape(-1) > 0).astype(int)]
    return classes[scores.argmax(axis=1)]


def split_bias(solution: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients and the intercept from the solution `[V, u]` of `A [V, u] = [Z, 1]` for targets `Z`.

    The intercept `b = sum V / sum u` makes the coefficients `a = V - u b` sum to zero.
    """
    V, u = solution[:, :-1], solution[:, -1:]
    # Terms of both signs nearly cancel in these sums, so that float32 sums would lose digits of the intercept.
    total = u.sum(dtype=np.float64)
    # A solver that stopped before its first step returns zeros.
    bias = V.sum(0, dtype=np.float64) / total if total or V.any() else np.zeros(V.shape[1])
    return V - u * bias.astype(V.dtype), bias.astype(V.dtype)


@dataclass(frozen=True)
class Standardised:
    """Regression targets shifted to mean 0 and scaled to a mean absolute value of 1 in each column."""

    Z: np.ndarray
    shift: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None, *, shifted: bool = True) -> Standardised:
        """Standardise `values` of shape (n, k); constant columns are not scaled, and `shifted=False` omits the shift."""
        shift = np.average(values, axis=0, weights=weights) if shifted else np.zeros(values.shape[1])
        spread = np.average(np.abs(values - shift), axis=0, weights=weights)
        spread = np.where(spread > 0, spread, 1.0)
        return cls((values - shift) / spread, shift, spread)

    def model(self, coef: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert a model of the targets `Z` to the original scale; the intercept is float64, because means may be large."""
        return (coef * self.spread).astype(coef.dtype), bias.astype(np.float64) * self.spread + self.shift
