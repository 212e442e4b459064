"""How much the choice among settings flatters the residuals of the one that was chosen.

Of many settings the one with the smallest leave-one-out error is kept, and part of why it is smallest is chance. Rows are
drawn with replacement; the setting that is best on them is looked at on the rows that were not drawn, as it will be on new
ones:

    optimism^2 = mean over draws of (mean square residual, on the rows left out, of the setting that is best on the others)
                 / (mean square residual of the setting that is best on all rows)

It needs the squared leave-one-out residuals of all settings and no further fit: O(draws n settings), one product.

Reference: Tsamardinos, Greasidou and Borboudakis (2018), Bootstrapping the out-of-sample predictions for efficient and
accurate cross-validation.
"""

from __future__ import annotations

import numpy as np

_DRAWS = 200


def optimism(squares: np.ndarray, weights: np.ndarray | None = None) -> float:
    """How much larger errors on new rows are expected to be than the leave-one-out errors of the best setting.

    Parameters
    ----------
    squares : ndarray of shape (n, n_settings)
        Squared leave-one-out residuals of the rows under each setting.
    weights : ndarray of shape (n,), optional
        How often each row counts.

    Returns
    -------
    float
        A ratio of root mean squares, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.inference.optimism import optimism
    >>> noise = np.random.default_rng(0).normal(size=(50, 40))  # forty settings, none better than another
    >>> optimism(noise**2) > 1.1, optimism(noise[:, :1] ** 2) < 1.05
    (True, True)
    """
    n = len(squares)
    chance = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    least = float((chance @ squares).min())
    if n < 2 or squares.shape[1] < 2 or not least > 0:
        return 1.0
    rng = np.random.RandomState(0)
    counts = rng.multinomial(n, chance, size=_DRAWS).astype(np.float64)
    left_out = np.where(counts == 0, chance, 0.0)
    some = left_out.sum(axis=1) > 0
    best = (counts[some] @ squares).argmin(axis=1)
    missed = (left_out[some] / left_out[some].sum(axis=1, keepdims=True)) @ squares
    return max(1.0, float(np.sqrt(missed[np.arange(len(best)), best].mean() / least)))
