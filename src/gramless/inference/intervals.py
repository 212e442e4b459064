"""Prediction intervals and prediction sets from leave-one-out models, without refitting.

For a least-squares model with the inverse `M^-1` of the bordered matrix, coefficients `a` and smoothing weights
`h(x) = M^-1 [k(x); 1]` (the prediction is `f(x) = sum_i h_i(x) y_i`), the model without row i is known in closed form:

    r_i = y_i - f_-i(x_i) = a_i / (M^-1)_ii            f_-i(x) = f(x) - r_i h_i(x)

The jackknife+ takes quantiles of `f_-i(x) -+ |r_i|` over the training rows i. For exchangeable rows the interval of nominal
coverage `1 - alpha` covers a new value with probability at least `1 - 2 alpha`, and in practice about `1 - alpha`, for any
distribution. Once `h` is known, a new row costs O(n), or O(n log n) with weights.

A prediction set contains classes. The score of a class for a row is the total probability of all more probable classes, plus
a fraction `u` of the probability of the class:

    s(x, y) = sum_{c: p_c > p_y} p_c + u p_y,     u uniform on [0, 1]

The threshold is a quantile of the scores of the true classes on rows that the model was not fitted on; the set of a new row
contains every class whose score does not exceed the threshold. The random fraction prevents equal scores, which makes the
coverage exact; with `u = 1` the sets are larger, never empty, and contain the true class at least as often. Cost: O(n k log
k) for n rows and k classes.

References: Barber, Candes, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021; Romano, Sesia, Candes,
"Classification with valid and adaptive coverage", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.inference.leave_one_out import LeaveOneOut
from gramless.inference.tuning import TUNING


@dataclass(frozen=True)
class ProcessBatch:
    """Posterior of a Gaussian process at a batch of m new rows."""

    means: np.ndarray
    """Posterior means of the k outputs, of shape (m, k)."""
    variances: np.ndarray
    """Variance of the function divided by the scale of the process, of shape (m,)."""
    weights: np.ndarray | None
    """Smoothing weights of the training rows, of shape (m, n); None if leaving out a row changes no other prediction."""

    def part(self, rows: slice) -> ProcessBatch:
        """Return the posterior at a slice of the rows of the batch."""
        weights = None if self.weights is None else self.weights[rows]
        return ProcessBatch(self.means[rows], self.variances[rows], weights)


class GaussianProcess:
    """Gaussian process whose posterior mean is a fitted regressor, with the leave-one-out residuals of the regressor."""

    scale: np.ndarray
    """Factor `s` of the covariance, for each output."""
    leave_one_out: LeaveOneOut
    """Effect of leaving out each training row."""

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[ProcessBatch]:
        """Yield the posterior at new rows in batches; the variances may be NaN if `variances` is False."""
        raise NotImplementedError

    def width_ratios(self, batch: ProcessBatch) -> np.ndarray:
        """Return the standard deviation at each of m new rows divided by that at each of n training rows, as (m, n)."""
        raise NotImplementedError


def standard_deviations(process: GaussianProcess, X: Array) -> np.ndarray:
    """Return the standard deviation of the function at new rows, of shape (m, k)."""
    variances = np.concatenate([batch.variances for batch in process.batches(X)])
    return np.sqrt(variances[:, None] * process.scale)


def prediction_intervals(
    process: GaussianProcess, X: Array, coverage: float, *, local: bool, factor: float = 1.0
) -> np.ndarray:
    """Return jackknife+ intervals of shape (m, k, 2); residuals are multiplied by `factor`.

    With `local`, a residual is scaled by the ratio of the standard deviations at the new row and at the residual's own row.
    """
    check_coverage(coverage)
    ends = []
    for batch in process.batches(X, variances=local):
        left_out = process.leave_one_out  # not before the loop: the first batch of an iterative process estimates it
        lengths = np.abs(left_out.residuals) * factor
        if batch.weights is None and not local:
            widths = score_thresholds(lengths.T, coverage, left_out.copies)
            ends.append(np.stack([batch.means - widths, batch.means + widths], axis=2))
            continue
        for rows in slices(len(batch.means), max(1, TUNING.interval_entries // len(left_out.weights))):
            part = batch.part(rows)
            ratios = process.width_ratios(part) if local else 1.0
            outputs = []
            for own, changes, means in zip(lengths.T, left_out.changes.T, part.means.T, strict=True):
                centre = means[:, None] - (0.0 if part.weights is None else changes * part.weights)
                outputs.append(np.stack(jackknife_plus(centre, own * ratios, coverage, left_out.copies), axis=1))
            ends.append(np.stack(outputs, axis=1))
    return np.concatenate(ends)


def score_thresholds(scores: np.ndarray, coverage: float, weights: np.ndarray | None = None) -> np.ndarray:
    """Return for each row of `scores` the threshold that a fraction `coverage` of new scores does not exceed.

    `weights` has the number of copies that each column stands for. Too few columns for `coverage` give infinity.
    """
    check_coverage(coverage)
    n = float(scores.shape[1] if weights is None else weights.sum())
    rank = np.ceil(coverage * (n + 1) - 1e-9)
    if rank > n * (1 + 1e-12):
        return np.full(len(scores), np.inf)
    if weights is None:
        k = max(int(rank), 1) - 1
        return np.partition(scores, k, axis=1)[:, k]
    order = np.argsort(scores, axis=1, kind="stable")
    first = np.argmax(np.cumsum(weights[order], axis=1) >= rank - 1e-9 * n, axis=1)
    rows = np.arange(len(scores))
    return scores[rows, order[rows, first]]


def jackknife_plus(
    centre: np.ndarray, lengths: np.ndarray, coverage: float, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of the intervals of new rows.

    `centre` of shape (m, n) has `f_-i(x)` for each new row x and training row i; `lengths` of shape (n,) or (m, n) has
    `|r_i|`, which may be scaled for each new row; `weights` has the number of copies that each training row stands for.
    """
    upper = score_thresholds(centre + lengths, coverage, weights)
    return -score_thresholds(lengths - centre, coverage, weights), upper


def check_coverage(coverage: float) -> None:
    """Raise a `ValueError` if the coverage is not a number between 0 and 1."""
    if not isinstance(coverage, (float, np.floating)) or not 0 < coverage < 1:
        raise ValueError(f"coverage must be a number between 0 and 1, such as 0.9; got {coverage!r}")


def adaptive_scores(probabilities: np.ndarray, u: np.ndarray | float = 1.0) -> np.ndarray:
    """Return the score of every class for every row; `u` is one fraction, or one fraction for each row."""
    p = np.asarray(probabilities, dtype=np.float64)
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(sorted_p, axis=1) - sorted_p
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, before + np.reshape(u, (-1, 1)) * sorted_p, axis=1)
    return scores


def prediction_sets(
    probabilities: np.ndarray,
    true_scores: np.ndarray,
    codes: np.ndarray,
    coverage: float,
    *,
    per_class: bool = False,
    random_state: Any = None,
) -> np.ndarray:
    """Return a mask of the classes in the set of each new row, from scores of the true classes `codes` of left-out rows."""
    groups = [true_scores[codes == c] for c in range(probabilities.shape[1])] if per_class else [true_scores]
    limits = [score_thresholds(group[None, :], coverage)[0] for group in groups]
    fraction = check_random_state(random_state).random_sample(len(probabilities))
    return adaptive_scores(probabilities, fraction) <= limits
