"""Selection of validation rows for early stopping."""

from __future__ import annotations

import numpy as np


def hold_out(
    rows: np.ndarray, fraction: float, rng: np.random.RandomState, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split `rows` at random; return sorted training rows and sorted validation rows, about `fraction` of all rows.

    With `classes` (the class of each data row) the split is stratified, and each class keeps at least one training row.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1, got {fraction!r}")
    n_held_out = max(1, round(fraction * len(rows)))
    shuffled = rng.permutation(rows)
    if classes is not None:
        shuffled = shuffled[np.argsort(classes[shuffled], kind="stable")]
    # Evenly spaced positions among rows sorted by class give each class its fraction.
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[((np.arange(n_held_out) + 0.5) * len(rows) / n_held_out).astype(int)] = True
    if classes is not None:
        for label in np.setdiff1d(classes[shuffled], classes[shuffled[~chosen]]):
            chosen[np.flatnonzero(classes[shuffled] == label)[0]] = False
    if chosen.sum() < 1 or (~chosen).sum() < 2:
        raise ValueError(f"early_stopping needs more than {len(rows)} samples to hold out a validation part")
    return np.sort(shuffled[~chosen]), np.sort(shuffled[chosen])
