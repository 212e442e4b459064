"""Prediction intervals from leave-one-out models, without refitting.

For a least-squares machine with bordered inverse `M^-1`, coefficients `a` and smoothing weights `h(x) = M^-1 [k(x); 1]`
(the prediction is `f(x) = sum_i h_i(x) y_i`), the model without row i is known in closed form:

    r_i = y_i - f_-i(x_i) = a_i / (M^-1)_ii            f_-i(x) = f(x) - r_i h_i(x)

Jackknife+ takes quantiles of `f_-i(x) -+ |r_i|` over the rows. For exchangeable rows the interval of nominal coverage
`1 - alpha` covers a new value with probability at least `1 - 2 alpha`, and in practice about `1 - alpha`, whatever the
distribution. A row of weight `w > 1` stands for `w` copies, of which one is left out:

    r_i = g a_i / (w - 1 + g (M^-1)_ii / w)            f_-i(x) = f(x) - g a_i / (w (w - 1) + g (M^-1)_ii) h_i(x)

with `g = 1 / C`; it counts `w` times in the quantiles, so weights equal repetition.

Cost: O(n) for each new row once `h` is there, beside a sort.

References
----------
Barber, Candes, Ramdas, Tibshirani, "Predictive inference with the jackknife+", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LeftOut:
    """What leaving out each row does.

    Attributes
    ----------
    residuals : ndarray of shape (n, k)
        `y_i - f_-i(x_i)`.
    changes : ndarray of shape (n, k)
        `f_-i(x) = f(x) - changes_i h_i(x)`.
    weights : ndarray of shape (n,)
        How many rows each row stands for.
    """

    residuals: np.ndarray
    changes: np.ndarray
    weights: np.ndarray

    @classmethod
    def from_solution(
        cls, coef: np.ndarray, inverse_diagonal: np.ndarray, ridge: float, weights: np.ndarray | None = None
    ) -> LeftOut:
        """From the coefficients and the diagonal of the inverse of the bordered matrix.

        Parameters
        ----------
        coef : ndarray of shape (n, k)
        inverse_diagonal : ndarray of shape (n,)
        ridge : float
            `1 / C`.
        weights : ndarray of shape (n,), optional

        Returns
        -------
        LeftOut
        """
        coef = np.asarray(coef, dtype=np.float64).reshape(len(inverse_diagonal), -1)
        p = np.asarray(inverse_diagonal, dtype=np.float64)[:, None]
        w = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=np.float64)
        rest = np.maximum(w - 1.0, 0.0)[:, None]
        kept = np.maximum(w, 1.0)[:, None]  # a row of weight at most one is left out whole
        residuals = ridge * coef / (rest + ridge * p / kept)
        changes = ridge * coef / (kept * rest + ridge * p)
        return cls(residuals, changes, w)


def weighted_order_statistic(values: np.ndarray, weights: np.ndarray | None, rank: float, n: float) -> np.ndarray:
    """The smallest value of each row below or at which rows of total weight `rank` lie; infinite where `rank > n`.

    Parameters
    ----------
    values : ndarray of shape (m, n)
    weights : ndarray of shape (n,) or None
        None counts each value once.
    rank : float
    n : float
        The total weight.

    Returns
    -------
    ndarray of shape (m,)
    """
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
    """Lower and upper ends of the jackknife+ intervals.

    Parameters
    ----------
    centre : ndarray of shape (m, n)
        `f_-i(x)` for each new row x and each training row i.
    lengths : ndarray of shape (n,) or (m, n)
        `|r_i|`, or that times the ratio of the local scales.
    coverage : float
        Between 0 and 1.
    weights : ndarray of shape (n,), optional
        How many rows each training row stands for.

    Returns
    -------
    lower, upper : ndarray of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.inference.jackknife import jackknife_plus
    >>> lower, upper = jackknife_plus(np.zeros((1, 9)), np.arange(1.0, 10.0), 0.8)
    >>> float(lower[0]), float(upper[0])
    (-8.0, 8.0)
    """
    check_coverage(coverage)
    n = float(centre.shape[1] if weights is None else weights.sum())
    rank = np.ceil(coverage * (n + 1) - 1e-9)
    upper = weighted_order_statistic(centre + lengths, weights, rank, n)
    lower = -weighted_order_statistic(lengths - centre, weights, rank, n)
    return lower, upper


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that is no share.

    Parameters
    ----------
    coverage : float
    """
    if not isinstance(coverage, (float, np.floating)) or not 0 < coverage < 1:
        raise ValueError(f"coverage must be a number between 0 and 1, such as 0.9; got {coverage!r}")
