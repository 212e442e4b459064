"""What a least-squares machine is asked to reproduce.

Two classes are one column of -1 and +1; more are one column for each class, 1 for its own samples and 0 for the rest. Values
are standardised: the bias absorbs any shift and the solution is linear in the targets, so that this changes nothing, except
that outputs of every size are solved to the same relative accuracy, in float32 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def class_targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """The target matrix of class indices.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless._core.targets.columns import class_targets
    >>> class_targets(np.array([0, 1]), 2).ravel(), class_targets(np.array([0, 2]), 3)
    (array([-1.,  1.]), array([[1., 0., 0.],
           [0., 0., 1.]]))
    """
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.eye(n_classes)[codes]


def scores_to_labels(classes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the class of the largest score; for two classes, the class that the sign of the score selects."""
    if len(classes) == 2:
        return classes[(scores.reshape(-1) > 0).astype(int)]
    return classes[scores.argmax(axis=1)]


def split_bias(solution: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and bias from the solution of `A [V, u] = [Z, 1]`.

    The bias is the multiplier that makes the coefficients sum to zero: `b = sum V / sum u`, `a = V - u b`.
    """
    V, u = solution[:, :-1], solution[:, -1:]
    # Sums of n terms of both signs: float64 or the bias loses the digits that the solution has.
    total = u.sum(dtype=np.float64)
    # A solver that could not begin has left everything at zero: no coefficients, no bias.
    bias = V.sum(0, dtype=np.float64) / total if total or V.any() else np.zeros(V.shape[1])
    return V - u * bias.astype(V.dtype), bias.astype(V.dtype)


@dataclass(frozen=True)
class Standardised:
    """Values shifted to mean 0 and scaled to a mean absolute value of 1, column by column.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless._core.targets.columns import Standardised
    >>> targets = Standardised.of(np.array([[99.0], [101.0], [103.0]]))
    >>> targets.Z.ravel().tolist(), targets.model(np.ones((3, 1)), np.zeros(1))[1].tolist()
    ([-1.5, 0.0, 1.5], [101.0])
    """

    Z: np.ndarray
    shift: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None, *, shifted: bool = True) -> Standardised:
        """Standardise `values` of shape (n, k); a constant column is only shifted, none without a bias to take the shift."""
        shift = np.average(values, axis=0, weights=weights) if shifted else np.zeros(values.shape[1])
        spread = np.average(np.abs(values - shift), axis=0, weights=weights)
        spread = np.where(spread > 0, spread, 1.0)
        return cls((values - shift) / spread, shift, spread)

    def model(self, coef: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and bias for the values, from those for `Z`; the bias in float64, whose digits a large mean needs."""
        return (coef * self.spread).astype(coef.dtype), bias.astype(np.float64) * self.spread + self.shift
