"""What a least-squares machine is asked to reproduce.

Two classes are one column of -1 and +1; more are one column for each class, 1 for its own samples and 0 for the rest.
"""

from __future__ import annotations

import numpy as np


def class_targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """The target matrix of class indices.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.targets.columns import class_targets
    >>> class_targets(np.array([0, 1]), 2).ravel(), class_targets(np.array([0, 2]), 3)
    (array([-1.,  1.]), array([[1., 0., 0.],
           [0., 0., 1.]]))
    """
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.eye(n_classes)[codes]


def split_bias(solution: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and bias from the solution of `A [V, u] = [Z, 1]`.

    The bias is the multiplier that makes the coefficients sum to zero: `b = sum V / sum u`, `a = V - u b`.
    """
    V, u = solution[:, :-1], solution[:, -1:]
    # Sums of n terms of both signs: float64 or the bias loses the digits that the solution has.
    bias = V.sum(0, dtype=np.float64) / u.sum(dtype=np.float64)
    return V - u * bias.astype(V.dtype), bias.astype(V.dtype)
