"""The rows that early stopping holds out."""

from __future__ import annotations

import numpy as np


def hold_out(
    rows: np.ndarray, fraction: float, rng: np.random.RandomState, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split `rows` in two sorted parts, the second one with about `fraction` of them.

    With `classes` (one for each row of the data) each class gives its share, and keeps at least one row to train on.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless._core.targets.holdout import hold_out
    >>> train, held_out = hold_out(np.arange(10), 0.2, np.random.RandomState(0), np.repeat([0, 1], 5))
    >>> len(train), len(held_out)
    (8, 2)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1, got {fraction!r}")
    n_held_out = max(1, round(fraction * len(rows)))
    shuffled = rng.permutation(rows)
    if classes is not None:
        shuffled = shuffled[np.argsort(classes[shuffled], kind="stable")]
    # Evenly spaced through rows that are ordered by class: every class in proportion.
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[((np.arange(n_held_out) + 0.5) * len(rows) / n_held_out).astype(int)] = True
    if classes is not None:
        for label in np.setdiff1d(classes[shuffled], classes[shuffled[~chosen]]):
            chosen[np.flatnonzero(classes[shuffled] == label)[0]] = False
    if chosen.sum() < 1 or (~chosen).sum() < 2:
        raise ValueError(f"early_stopping needs more than {len(rows)} samples to hold some out")
    return np.sort(shuffled[~chosen]), np.sort(shuffled[chosen])
