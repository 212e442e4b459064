"""Effects of the levels of a category on the target, cross-fitted on the training rows.

The effect of a level, for total weight `w` and weighted sum `s` of the centred targets of its rows, is the shrunken mean

    s / (w + m),    m = (variance within levels) / (variance of the level means)

This is the best linear prediction of a random effect; both variances are estimated by the method of moments. The effect for
a training row is computed from the other folds, never from its own target; the effect for a new row from all training rows.
A level that did not occur in training has the effect 0, the mean of all rows. Missing values are a level of their own.

Reference: Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in classification and
prediction problems", 2001.
"""

from __future__ import annotations

import numpy as np

# Number of folds: the effect for a training row is computed from about nine tenths of the rows of its level.
_FOLDS = 10
# Smallest shrinkage `m` in mean row weights, so that a level without rows in the other folds has the effect 0, not 0 / 0.
_SMALLEST_SHRINKAGE = 1e-6
# Effects are significant if they improve the prediction of left-out targets by more than this number of standard errors.
_STANDARD_ERRORS = 2.0
# Codes of missing values and of levels that did not occur in training, which index the last two rows of a table of effects.
MISSING, NEW = -1, -2


def level_effects(
    codes: np.ndarray, n_levels: int, Z: np.ndarray, weights: np.ndarray, folds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return effects by level, of shape (n_levels + 2, k), cross-fitted effects by row, and True if they are significant.

    Effects are significant if the cross-fitted effects predict the targets better than the mean by two standard errors.
    """
    size = n_levels + 2
    places = np.where(codes < 0, size + codes, codes)
    centred = Z - np.average(Z, axis=0, weights=weights)
    by_fold = folds * size + places

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(by_fold, weights=values, minlength=_FOLDS * size).reshape(_FOLDS, size)

    w = sums(weights)
    s = np.stack([sums(weights * z) for z in centred.T], axis=-1)
    totals, all_sums = w.sum(axis=0), s.sum(axis=0)
    m = np.maximum(_shrinkage(totals, all_sums, centred, weights), _SMALLEST_SHRINKAGE * weights.mean())
    found = ((all_sums - s) / ((totals - w)[..., None] + m))[folds, places]
    gain = (weights[:, None] * (centred**2 - (centred - found) ** 2)).sum(axis=1)
    is_significant = gain.sum() > _STANDARD_ERRORS * gain.std() * len(gain) ** 0.5
    return all_sums / (totals[:, None] + m), found, bool(is_significant)


def _shrinkage(totals: np.ndarray, sums: np.ndarray, centred: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return variance within levels divided by variance between levels, for each target; infinity if the latter is 0."""
    used = totals > 0
    w, s = totals[used, None], sums[used]
    n, levels = w.sum(), len(w)
    between_sum = (s**2 / w).sum(axis=0)
    within = np.maximum((weights @ centred**2 - between_sum) / max(n - levels, 1), 0.0)
    between = (between_sum - (levels - 1) * within) / max(n - (w**2).sum() / n, np.finfo(float).tiny)
    return np.where(between > 0, within / np.where(between > 0, between, 1.0), np.inf)


def fit_effects(
    codes: np.ndarray, n_levels: list[int], Z: np.ndarray, weights: np.ndarray, seed: int, used: list[bool] | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the effects by level for each column of codes, and the cross-fitted effects of all rows and columns.

    `used` states which columns of codes get effects. If `used` is None, a column gets effects if they are
    significant and need fewer columns than the indicators of its levels.
    """
    folds = np.random.RandomState(seed).randint(_FOLDS, size=len(codes))
    tables, found = [], [np.zeros((len(codes), 0))]
    for k, (column, count) in enumerate(zip(codes.T, n_levels, strict=True)):
        table = np.zeros((count + 2, 0))
        if used[k] if used is not None else Z.shape[1] < count - 1:
            fitted, effects, is_significant = level_effects(column, count, Z, weights, folds)
            if used is not None or is_significant:
                table = fitted
                found.append(effects)
        tables.append(table)
    return tables, np.hstack(found)
