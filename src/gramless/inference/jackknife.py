"""Prediction intervals from leave-one-out models, without refitting.

For a least-squares model with bordered inverse `M^-1`, coefficients `a` and smoothing weights `h(x) = M^-1 [k(x); 1]` (the
prediction is `f(x) = sum_i h_i(x) y_i`), the model without row i is known in closed form:

    r_i = y_i - f_-i(x_i) = a_i / (M^-1)_ii            f_-i(x) = f(x) - r_i h_i(x)

The jackknife+ takes quantiles of `f_-i(x) -+ |r_i|` over the rows. For exchangeable rows the interval of nominal coverage
`1 - alpha` covers a new value with probability at least `1 - 2 alpha`, and in practice about `1 - alpha`, for any
distribution. A row of weight `w > 1` stands for `w` copies, one of which is left out: with `g = 1 / C`,

    r_i = g a_i / (w - 1 + g (M^-1)_ii / w)            f_-i(x) = f(x) - g a_i / (w (w - 1) + g (M^-1)_ii) h_i(x)

and the row counts `w` times in the quantiles. Cost: O(n) for each new row once `h` is known, and a sort.

Reference: Barber, Candes, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LeaveOneOut:
    """Effect of leaving out each row: its residual, and the change of other predictions."""

    residuals: np.ndarray
    """`y_i - f_-i(x_i)`, of shape (n, k)."""
    changes: np.ndarray
    """Factors in `f_-i(x) = f(x) - changes_i h_i(x)`, of shape (n, k)."""
    weights: np.ndarray
    """Number of copies that each row stands for."""

    @classmethod
    def from_solution(
        cls, coef: np.ndarray, inverse_diagonal: np.ndarray, ridge: float, weights: np.ndarray | None = None
    ) -> LeaveOneOut:
        """Compute the effect from coefficients, the diagonal of the inverse of the bordered matrix, and `ridge = 1 / C`."""
        coef = np.asarray(coef, dtype=np.float64).reshape(len(inverse_diagonal), -1)
        p = np.asarray(inverse_diagonal, dtype=np.float64)[:, None]
        w = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=np.float64)
        rest = np.maximum(w - 1.0, 0.0)[:, None]
        copies = np.maximum(w, 1.0)[:, None]  # a row of weight at most one is left out entirely
        residuals = ridge * coef / (rest + ridge * p / copies)
        changes = ridge * coef / (copies * rest + ridge * p)
        return cls(residuals, changes, w)


def weighted_order_statistic(values: np.ndarray, weights: np.ndarray | None, rank: float, n: float) -> np.ndarray:
    """Return for each row the smallest value up to which the weights sum to `rank`; infinite if `rank` exceeds `n`."""
    if rank > n * (1 + 1e-12):
        return np.full(len(values), np.inf)
    if weights is None:
        k = max(int(np.ceil(rank - 1e-9)), 1) - 1
        return np.partition(values, k, axis=1)[:, k]
    order = np.argsort(values, axis=1, kind="stable")
    reached = np.cumsum(weights[order], axis=1)
    first = np.argmax(reached >= rank - 1e-9 * n, axis=1)
    rows = np.arange(len(values))
    return values[rows, order[rows, first]]


def jackknife_plus(
    centre: np.ndarray, lengths: np.ndarray, coverage: float, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of the intervals of new rows.

    `centre` of shape (m, n) has `f_-i(x)` for each new row x and training row i; `lengths` of shape (n,) or (m, n) has
    `|r_i|`, which may be scaled to the new row; `weights` are numbers of copies of the training rows.
    """
    check_coverage(coverage)
    n = float(centre.shape[1] if weights is None else weights.sum())
    rank = np.ceil(coverage * (n + 1) - 1e-9)
    upper = weighted_order_statistic(centre + lengths, weights, rank, n)
    lower = -weighted_order_statistic(lengths - centre, weights, rank, n)
    return lower, upper


def check_coverage(coverage: float) -> None:
    """Raise a `ValueError` if the coverage is not a number between 0 and 1."""
    if not isinstance(coverage, (float, np.floating)) or not 0 < coverage < 1:
        raise ValueError(f"coverage must be a number between 0 and 1, such as 0.9; got {coverage!r}")
