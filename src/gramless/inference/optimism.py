"""Optimism of the leave-one-out error of the best of many settings.

The setting with the smallest leave-one-out error is selected, and part of the difference is chance. In each bootstrap sample
the setting that is best on the drawn rows is evaluated on the rows that were not drawn:

    optimism^2 = mean over samples of (mean squared residual, on the other rows, of the setting best on the drawn rows)
                 / (mean squared residual of the setting that is best on all rows)

This needs the squared leave-one-out residuals of all settings and no further fit: O(samples n settings).

Reference: Tsamardinos, Greasidou and Borboudakis, "Bootstrapping the out-of-sample predictions for efficient and accurate
cross-validation", 2018.
"""

from __future__ import annotations

import numpy as np

from gramless.inference.tuning import TUNING


def optimism(squares: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the factor, at least 1, by which root mean squared errors on new rows exceed the leave-one-out errors.

    `squares` of shape (n, n_settings) has the squared leave-one-out residuals of all settings.
    """
    n = len(squares)
    chance = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    least = float((chance @ squares).min())
    if n < 2 or squares.shape[1] < 2 or not least > 0:
        return 1.0
    rng = np.random.RandomState(0)
    counts = rng.multinomial(n, chance, size=TUNING.bootstrap_draws).astype(np.float64)
    left_out = np.where(counts == 0, chance, 0.0)
    valid = left_out.sum(axis=1) > 0
    best = (counts[valid] @ squares).argmin(axis=1)
    missed = (left_out[valid] / left_out[valid].sum(axis=1, keepdims=True)) @ squares
    return max(1.0, float(np.sqrt(missed[np.arange(len(best)), best].mean() / least)))
