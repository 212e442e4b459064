"""Shapley values of the columns of a table: how much each column moves a prediction away from the mean prediction.

    v(S) = mean over background rows b of f(x_S, b_rest)      prediction f for the columns S of x and the other columns of b
    phi_j = mean over orders of the columns of v(columns up to j) - v(columns before j)

The values phi_j of all columns add up to the prediction for x minus the mean prediction for the background rows. Each
background row gives one unbiased estimate of all phi_j: from all subsets of columns if the table has few columns, else from
one random order of the columns and its reverse (Mitchell, Cooper, Frank and Holmes, "Sampling permutations for Shapley value
estimation", 2022). The reported errors are standard errors of the mean of these estimates. Each pair of an explained row and
a background row of d columns takes 2 (d + 1) predictions, or 2^d if 2^d is at most `EXACT_SUBSETS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import numpy as np

from gramless.tables.column_types import Encoded

# Largest number of column subsets that are all evaluated. Tables of up to six columns have at most 64 subsets; an order of
# six columns and its reverse would take 14 predictions for each background row.
EXACT_SUBSETS = 64


@dataclass(frozen=True)
class Attributions:
    """Contributions of the columns of a table to predictions.

    Parameters
    ----------
    names : list of str
        Names of the columns.
    values : ndarray of shape (n, n_columns) or (n, n_columns, n_classes)
        Contribution of each column to each prediction; `base` plus the contributions of all columns is the prediction.
    errors : ndarray
        Standard errors of `values` due to the random choice of background rows and column orders, of the shape of `values`.
    base : ndarray of shape (n,) or (n, n_classes)
        Mean prediction for the background rows that are drawn for each explained row.
    """

    names: list[str]
    values: np.ndarray
    errors: np.ndarray
    base: np.ndarray


def shapley_values(
    predict: Callable[[Encoded], np.ndarray],
    rows: Encoded,
    background: Encoded,
    places: dict[str, tuple[np.ndarray, np.ndarray]],
    n_samples: int,
    rng: np.random.RandomState,
) -> Attributions:
    """Return Shapley values of all columns for `rows`; `places` has the positions of each column in the encoded rows."""
    d = len(places)
    means, errors, bases = [], [], []
    for row in range(len(rows)):
        order = rng.permutation(len(background))[:n_samples]
        exact = 2**d <= EXACT_SUBSETS
        rank = np.empty(0) if exact else np.argsort([rng.permutation(d) for _ in order], axis=1)
        masks = np.broadcast_to(_subsets(d), (len(order), 2**d, d)) if exact else _prefixes(rank)
        outputs = predict(_mixed(rows.take([row]), background.take(order), masks, list(places.values())))
        outputs = outputs.reshape(*masks.shape[:2], -1)
        estimates = _from_subsets(outputs, masks[0]) if exact else _from_prefixes(outputs, rank)
        means.append(estimates.mean(axis=0))
        errors.append(estimates.std(axis=0, ddof=1) / len(order) ** 0.5)
        bases.append(outputs[:, 0].mean(axis=0))
    found = [np.array(part) for part in (means, errors, bases)]
    has_classes = found[0].shape[-1] > 1
    return Attributions(list(places), *(part if has_classes else part[..., 0] for part in found))


def _subsets(d: int) -> np.ndarray:
    """Return all subsets of d columns as boolean masks; the first mask is the empty subset."""
    return (np.arange(2**d)[:, None] >> np.arange(d)) % 2 == 1


def _prefixes(rank: np.ndarray) -> np.ndarray:
    """Return masks of the first 0, 1, ... d columns in the order of their ranks, then such masks for the reversed order."""
    steps, ranks = np.arange(rank.shape[1] + 1)[:, None], rank[:, None, :]
    return np.concatenate([ranks < steps, ranks >= rank.shape[1] - steps], axis=1)


def _mixed(row: Encoded, background: Encoded, masks: np.ndarray, places: list[tuple[np.ndarray, np.ndarray]]) -> Encoded:
    """Return a copy of each background row for each mask, with the values of `row` in the columns of the mask."""
    n, m, _ = masks.shape
    numbers, codes = (np.repeat(part, m, axis=0) for part in (background.numbers, background.codes))
    flat = masks.reshape(n * m, -1)
    for column, (of_numbers, of_codes) in enumerate(places):
        chosen = np.flatnonzero(flat[:, column])
        numbers[np.ix_(chosen, of_numbers)] = row.numbers[0, of_numbers]
        codes[np.ix_(chosen, of_codes)] = row.codes[0, of_codes]
    return Encoded(numbers, codes)


def _from_subsets(outputs: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the Shapley values for each background row from the predictions for all subsets of columns."""
    d = masks.shape[1]
    sizes = masks.sum(axis=1)
    weights = np.array([factorial(s) * factorial(d - s - 1) / factorial(d) if s < d else 0.0 for s in range(d + 1)])
    found = []
    for column in range(d):
        without = np.flatnonzero(~masks[:, column])
        gains = outputs[:, without + (1 << column)] - outputs[:, without]
        found.append(np.einsum("s,bsk->bk", weights[sizes[without]], gains))
    return np.stack(found, axis=1)


def _from_prefixes(outputs: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the change of the prediction by adding each column, averaged over an order of the columns and its reverse."""
    gains = np.diff(outputs, axis=1)
    # The masks of the reversed order follow the d + 1 masks of the order, and add the column of rank d - 1 first.
    steps = (rank[:, :, None], 2 * rank.shape[1] - rank[:, :, None])
    return np.mean([np.take_along_axis(gains, step, axis=1) for step in steps], axis=0)
