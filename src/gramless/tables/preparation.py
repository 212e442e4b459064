"""Conversion of encoded rows to columns of comparable size, by one of three scalings.

    "standard"   mean 0, standard deviation 1
    "quantile"   rank of each number among the training rows, as a quantile of the normal distribution
    "log"        signed logarithm of skewed columns, then standardised

Missing values are replaced by the median; for a column with missing values in training, an additional column has ones where
values are missing. Columns with two values become 0 and 1, and each level of a category becomes an indicator column. In
distances, the difference between 0 and 1 counts about as much as one standard deviation of a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.preprocessing import QuantileTransformer

from gramless.tables.column_types import Encoded

# The constants below are part of the transformations: another value would change the predictions of stored models.
# Normal quantiles are clipped at three standard deviations, because ranks of outliers have little information.
_CLIP = 3.0
# Ranks closer to 0 or 1 than this value are clipped, as in scikit-learn.
_SMALLEST_RANK = 1e-7
_QUANTILES = 1000
# Absolute skewness above which the scaling "log" transforms a column.
_SKEWED = 1.0
# A standard deviation below this share of the largest absolute value is rounding error.
_ROUNDING_SHARE = 1e-9
# Largest number of rows from which quantiles and skewness are computed.
_SAMPLED_ROWS = 100_000


def has_skewed_numbers(encoded: Encoded) -> bool:
    """Return True if the scaling "log" would change any column."""
    numbers = encoded.numbers[:_SAMPLED_ROWS]
    return bool((np.abs(skewness(numbers)) > _SKEWED).any()) if numbers.size else False


def skewness(numbers: np.ndarray) -> np.ndarray:
    """Return the skewness of the known values of each column; 0 for a column that is constant up to rounding."""
    known = ~np.isnan(numbers)
    count = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, numbers, 0.0)
    centred = np.where(known, numbers - centred.sum(axis=0) / count, 0.0)
    variance = (centred**2).sum(axis=0) / count
    varies = variance > (_ROUNDING_SHARE * np.abs(np.where(known, numbers, 0.0)).max(axis=0, initial=0.0)) ** 2
    return np.where(varies, (centred**3).sum(axis=0) / count / np.where(varies, variance, 1.0) ** 1.5, 0.0)


def normal_ranks(X: np.ndarray, fitted: QuantileTransformer) -> np.ndarray:
    """Return `fitted.transform(X)` for a normal distribution, without the input checks, which take milliseconds per call."""
    references, ranks = fitted.references_, np.empty_like(X)
    for k, (quantiles, values) in enumerate(zip(fitted.quantiles_.T, X.T, strict=True)):
        # Interpolations from below and from above differ if quantiles are equal.
        from_below = np.interp(values, quantiles, references)
        from_above = -np.interp(-values, -quantiles[::-1], -references[::-1])
        ranks[:, k] = 0.5 * (from_below + from_above)
    ranks[fitted.quantiles_[-1] < X + _SMALLEST_RANK] = 1.0
    ranks[fitted.quantiles_[0] > X - _SMALLEST_RANK] = 0.0
    return ndtri(np.clip(ranks, _SMALLEST_RANK, 1 - _SMALLEST_RANK))


@dataclass(eq=False, repr=False)
class Preparation(BaseEstimator):
    """Scaling that is fitted on encoded training rows and called on encoded rows.

    `n_levels` has the number of indicators of each category, and `effects` the indices of the effects on the target that are
    used as numbers. `random_state` selects the rows from which quantiles of large tables are computed.
    """

    scaling: str = "standard"
    n_levels: Sequence[int] = ()
    random_state: int = 0
    effects: Sequence[int] = ()

    def numbers(self, encoded: Encoded) -> np.ndarray:
        """Return the numbers of encoded rows and the effects on the target that the parameter `effects` selects."""
        return np.hstack([encoded.numbers, encoded.effects[:, self.effects]]) if self.effects else encoded.numbers

    def fit(self, encoded: Encoded) -> Preparation:
        """Compute the medians, quantiles, means and standard deviations of the columns."""
        numbers = self.numbers(encoded)
        n, d = numbers.shape
        missing = np.isnan(numbers)
        self.with_missing_ = np.flatnonzero(missing.any(axis=0))
        self.medians_ = np.array(
            [np.median(numbers[~missing[:, k], k]) if not missing[:, k].all() else 0.0 for k in range(d)]
        )
        filled = np.where(missing, self.medians_, numbers)
        low, high = filled.min(axis=0), filled.max(axis=0)
        self.two_valued_ = ((filled == low) | (filled == high)).all(axis=0)
        self.low_, self.range_ = low, np.where(high > low, high - low, 1.0)
        self.logged_ = (np.abs(skewness(numbers[:_SAMPLED_ROWS])) > _SKEWED) & (self.scaling == "log")
        spread = np.median(np.abs(filled - self.medians_), axis=0)
        self.units_ = np.where(spread > 0, spread, np.where(filled.std(axis=0) > 0, filled.std(axis=0), 1.0))
        if self.scaling == "quantile" and d:
            self.quantiles_ = QuantileTransformer(
                n_quantiles=min(_QUANTILES, n),
                output_distribution="normal",
                subsample=_SAMPLED_ROWS,
                random_state=self.random_state,
            ).fit(filled)
        shaped = self._shaped(filled)
        self.means_ = np.where(self.two_valued_, 0.0, shaped.mean(axis=0))
        deviations = shaped.std(axis=0)
        varies = deviations > _ROUNDING_SHARE * np.abs(shaped).max(axis=0, initial=0.0)
        self.scales_ = np.where(self.two_valued_ | ~varies, 1.0, deviations)
        return self

    def _shaped(self, filled: np.ndarray) -> np.ndarray:
        """Return the transformed columns, before centring and scaling, of numbers without missing values."""
        shaped = filled
        if self.scaling == "quantile" and filled.shape[1]:
            shaped = np.minimum(np.maximum(normal_ranks(filled, self.quantiles_), -_CLIP), _CLIP)
        elif self.scaling == "log":
            units = (filled - self.medians_) / self.units_
            shaped = np.where(self.logged_, np.sign(units) * np.log1p(np.abs(units)), filled)
        return np.where(self.two_valued_, (filled - self.low_) / self.range_, shaped)

    def __call__(self, encoded: Encoded) -> np.ndarray:
        """Return the scaled columns of encoded rows as a float64 array in C order."""
        numbers = self.numbers(encoded)
        missing = np.isnan(numbers)
        shaped = (self._shaped(np.where(missing, self.medians_, numbers)) - self.means_) / self.scales_
        pieces = [shaped, missing[:, self.with_missing_].astype(np.float64)]
        for column, count in zip(encoded.codes.T, self.n_levels, strict=True):
            pieces.append((column[:, None] == np.arange(count)[None, :]).astype(np.float64))
        return np.ascontiguousarray(np.hstack(pieces))

    @property
    def n_columns(self) -> int:
        """Number of scaled columns."""
        return len(self.medians_) + len(self.with_missing_) + sum(self.n_levels)

    @property
    def groups(self) -> np.ndarray:
        """Group of each scaled column: indicators of one category are a group, which has one learned scale."""
        alone = self.n_columns - sum(self.n_levels)
        of_levels = np.repeat(np.arange(len(self.n_levels)), self.n_levels)
        return np.concatenate([np.arange(alone), alone + of_levels]).astype(np.intp)
