"""Temperature scaling: one number that turns scores into calibrated probabilities.

    P(y = c | x) = exp(s_c / T) / sum_j exp(s_j / T)

`T` is chosen by maximum likelihood on scores that the model did not fit (leave-one-out ones). One row more is counted,
spread over all rows and classes alike, so that a few rows which the scores order perfectly do not make the model certain.
The likelihood is concave in `1 / T`, so its slope has one zero. The order of the classes stays, so `predict` and
`predict_proba` agree. O(n k) for each of about forty steps.

References
----------
Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax


def centred_scores(scores: np.ndarray) -> np.ndarray:
    """Scores with one column for each class; a single score for two classes becomes its two halves.

    Parameters
    ----------
    scores : ndarray of shape (n,), (n, 1) or (n, k)

    Returns
    -------
    ndarray of shape (n, k)
    """
    scores = np.asarray(scores, dtype=np.float64).reshape(len(scores), -1)
    return np.column_stack([-scores[:, 0], scores[:, 0]]) / 2 if scores.shape[1] == 1 else scores


def fit_temperature(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The temperature of the largest likelihood.

    Parameters
    ----------
    scores : ndarray of shape (n,), (n, 1) or (n, k)
    codes : ndarray of shape (n,)
        The true class of each row.
    weights : ndarray of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.inference.temperature import fit_temperature
    >>> T = fit_temperature(np.array([2.0, 2.0, 2.0, -2.0]), np.array([1, 1, 0, 0]))
    >>> float(round(1 / (1 + np.exp(-2.0 / T)), 2))  # three of four rows, and half of one more, have their score's sign
    0.7
    """
    s = centred_scores(scores)
    w = np.ones(len(s)) if weights is None else np.asarray(weights, dtype=np.float64)
    rows = np.arange(len(s))
    scale = np.abs(s).max()
    if not scale > 0:
        return 1.0

    def slope(beta: float) -> float:
        """How fast minus the log likelihood rises with `beta`: the score expected minus that of the true class."""
        expected = np.sum(softmax(s * (beta / scale), axis=1) * s, axis=1)
        return float(w @ (expected - s[rows, codes]) + w @ (expected - s.mean(axis=1)) / w.sum())

    low, high = 1e-3, 1e4
    if slope(low) >= 0 or slope(high) <= 0:
        return scale / (low if slope(low) >= 0 else high)
    return float(scale / brentq(slope, low, high, xtol=1e-13))


def left_out_temperature(model: Any, targets: Any) -> float:
    """The temperature of the leave-one-out scores of a one-pass model, fitted once and kept in `model.temperature`.

    Parameters
    ----------
    model : gramless.streaming.learners.Model
    targets : LabelTargets
        In whose columns the model's targets are encoded.

    Returns
    -------
    float
    """
    if model.temperature is None:
        scores, encoded, weights = model.left_out
        _, columns = targets.sorted()
        model.temperature = fit_temperature(scores, np.argsort(columns)[encoded], weights)
    return model.temperature


def temperature_probabilities(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Class probabilities at a temperature.

    Parameters
    ----------
    scores : ndarray of shape (n,), (n, 1) or (n, k)
    temperature : float

    Returns
    -------
    ndarray of shape (n, k)
    """
    return softmax(centred_scores(scores) / temperature, axis=1)
