"""Numbers and codes as columns of comparable size.

    "standard"   mean 0, standard deviation 1
    "quantile"   each number's rank among the training rows, as a quantile of the normal distribution
    "log"        the signed logarithm of columns that are skewed, then standardised

Gaps are filled with the median and have an indicator column of their own where the training rows had any. A column with two
values, and one column for each level of a category, are indicators: neither scaled nor transformed, so that a difference in
one counts about as much as a standard deviation in a number.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.preprocessing import QuantileTransformer

from gramless.tables.columns import Encoded

WAYS = ("standard", "quantile", "log")
# Beyond three standard deviations an outlier's rank says no more.
_CLIP = 3.0
# scikit-learn's: what is so close to the ends counts as an end, and has this rank.
_SMALLEST_RANK = 1e-7
_QUANTILES = 1000
_SKEWED = 1.0
# A spread of so small a share of the largest value is rounding.
_HARDLY = 1e-9
_SAMPLE = 100_000
# Few enough for what is computed on the way to stay in the processor's caches.
_ROWS_AT_A_TIME = 1024


def has_skewed_numbers(encoded: Encoded) -> bool:
    """Whether "log" would change any column."""
    numbers = encoded.numbers[:_SAMPLE]
    return bool((np.abs(skewness(numbers)) > _SKEWED).any()) if numbers.size else False


def skewness(numbers: np.ndarray) -> np.ndarray:
    """The third standardised moment of each column, gaps apart; 0 for a column that hardly varies."""
    known = ~np.isnan(numbers)
    count = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, numbers, 0.0)
    centred = np.where(known, numbers - centred.sum(axis=0) / count, 0.0)
    variance = (centred**2).sum(axis=0) / count
    varies = variance > (_HARDLY * np.abs(np.where(known, numbers, 0.0)).max(axis=0, initial=0.0)) ** 2
    return np.where(varies, (centred**3).sum(axis=0) / count / np.where(varies, variance, 1.0) ** 1.5, 0.0)


def normal_ranks(X: np.ndarray, fitted: QuantileTransformer) -> np.ndarray:
    """What `fitted.transform(X)` gives for a normal distribution, without the checks that cost a single row milliseconds.

    The rank of a value among the quantiles is the mean of the ones from below and from above, which differ where quantiles
    are equal. All columns are interpolated at once: for a few rows calls are what takes time.
    """
    ranks = np.empty_like(X)
    for start in range(0, len(X), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        ranks[rows] = _ranks(X[rows], fitted.quantiles_, fitted.references_)
    return ndtri(np.minimum(np.maximum(ranks, _SMALLEST_RANK), 1 - _SMALLEST_RANK))


def _ranks(X: np.ndarray, quantiles: np.ndarray, references: np.ndarray) -> np.ndarray:
    columns = np.arange(X.shape[1])
    end = len(references) - 1
    lower = np.empty(X.shape, dtype=np.intp)
    upper = np.empty(X.shape, dtype=np.intp)
    for k, (own, values) in enumerate(zip(quantiles.T, X.T, strict=True)):
        lower[:, k] = own.searchsorted(values, "right")  # after the last quantile that is no more than the value,
        upper[:, k] = own.searchsorted(values, "left")  # and the first that is no less
    lower = np.minimum(np.maximum(lower - 1, 0), end - 1)
    upper = np.minimum(np.maximum(upper, 1), end)
    with np.errstate(all="ignore"):  # at the ends, where quantiles may be equal and ranks are known
        left, low = quantiles[lower, columns], references[lower]
        from_below = (references[lower + 1] - low) / (quantiles[lower + 1, columns] - left) * (X - left) + low
        right, high = quantiles[upper, columns], references[upper]
        from_above = (high - references[upper - 1]) / (right - quantiles[upper - 1, columns]) * (X - right) + high
        ranks = 0.5 * (from_below + from_above)
    first, last = quantiles[0], quantiles[-1]
    ranks[last < X + _SMALLEST_RANK] = 1.0
    ranks[first > X - _SMALLEST_RANK] = 0.0
    return ranks


class Preparation(BaseEstimator):
    """One way of preparing encoded rows; fitted on training rows, called on any.

    Parameters
    ----------
    way : {"standard", "quantile", "log"}
    n_levels : list of int
        Levels of each category.
    random_state : int
        Of the rows that quantiles are taken from, where there are very many.
    """

    def __init__(self, way: str = "standard", n_levels: list[int] | None = None, random_state: int = 0):
        self.way = way
        self.n_levels = n_levels
        self.random_state = random_state

    def fit(self, encoded: Encoded) -> Preparation:
        """Learn medians, quantiles, means and spreads."""
        numbers = encoded.numbers
        n, d = numbers.shape
        gaps = np.isnan(numbers)
        self.with_gaps_ = np.flatnonzero(gaps.any(axis=0))
        self.medians_ = np.array([np.median(numbers[~gaps[:, k], k]) if not gaps[:, k].all() else 0.0 for k in range(d)])
        filled = np.where(gaps, self.medians_, numbers)
        low = filled.min(axis=0) if n else np.zeros(d)
        high = filled.max(axis=0) if n else np.zeros(d)
        self.two_valued_ = ((filled == low) | (filled == high)).all(axis=0)
        self.low_, self.range_ = low, np.where(high > low, high - low, 1.0)
        self.logged_ = np.abs(skewness(numbers[:_SAMPLE])) > _SKEWED if self.way == "log" and d else np.zeros(d, bool)
        self.centres_ = self.medians_
        spread = np.median(np.abs(filled - self.centres_), axis=0) if n else np.ones(d)
        self.units_ = np.where(spread > 0, spread, np.where(filled.std(axis=0) > 0, filled.std(axis=0), 1.0))
        if self.way == "quantile" and d:
            self.quantiles_ = QuantileTransformer(
                n_quantiles=min(_QUANTILES, n),
                output_distribution="normal",
                subsample=_SAMPLE,
                random_state=self.random_state,
            ).fit(filled)
        shaped = self._shaped(filled)
        self.means_ = np.where(self.two_valued_, 0.0, shaped.mean(axis=0))
        deviations = shaped.std(axis=0)
        varies = deviations > _HARDLY * np.abs(shaped).max(axis=0, initial=0.0)
        self.scales_ = np.where(self.two_valued_ | ~varies, 1.0, deviations)
        return self

    def _shaped(self, filled: np.ndarray) -> np.ndarray:
        """Before centring and scaling."""
        shaped = filled
        if self.way == "quantile" and filled.shape[1]:
            shaped = np.minimum(np.maximum(normal_ranks(filled, self.quantiles_), -_CLIP), _CLIP)
        elif self.way == "log":
            units = (filled - self.centres_) / self.units_
            shaped = np.where(self.logged_, np.sign(units) * np.log1p(np.abs(units)), filled)
        return np.where(self.two_valued_, (filled - self.low_) / self.range_, shaped)

    def __call__(self, encoded: Encoded) -> np.ndarray:
        """The prepared rows, float64, C order."""
        numbers = encoded.numbers
        gaps = np.isnan(numbers)
        shaped = (self._shaped(np.where(gaps, self.medians_, numbers)) - self.means_) / self.scales_
        pieces = [shaped, gaps[:, self.with_gaps_].astype(np.float64)]
        for column, count in zip(encoded.codes.T, self.n_levels or [], strict=True):
            pieces.append((column[:, None] == np.arange(count)[None, :]).astype(np.float64))
        return np.ascontiguousarray(np.hstack(pieces))
