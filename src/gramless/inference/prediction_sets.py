"""Sets of classes that contain the true one with a chosen probability.

A class's score on a row is the probability of all classes that are more probable, plus a share `u` of its own:

    s(x, y) = sum_{c: p_c > p_y} p_c + u p_y,     u uniform on [0, 1]

The threshold is the quantile of the scores of the true classes on rows that the model did not see (leave-one-out ones); the
set of a new row holds every class whose score does not exceed it. Rows that are hard get large sets, easy ones small ones.
The random share makes the coverage exact where the probabilities have jumps: without it (`u = 1`) the sets are larger and
never empty, and cover at least as often as asked. Sets for a larger coverage contain those for a smaller one.

Cost: O(n k log k) for n rows and k classes.

References
----------
Romano, Sesia, Candes, "Classification with valid and adaptive coverage", 2020.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless.inference.jackknife import check_coverage, weighted_order_statistic


def adaptive_scores(probabilities: np.ndarray, u: np.ndarray | float = 1.0) -> np.ndarray:
    """The score of every class on every row.

    Parameters
    ----------
    probabilities : ndarray of shape (n, k)
    u : ndarray of shape (n,) or float, default=1.0
        The share of a class's own probability that counts.

    Returns
    -------
    ndarray of shape (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.inference.prediction_sets import adaptive_scores
    >>> adaptive_scores(np.array([[0.5, 0.25, 0.25]])).round(2)
    array([[0.5 , 0.75, 1.  ]])
    """
    p = np.asarray(probabilities, dtype=np.float64)
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(sorted_p, axis=1) - sorted_p
    share = np.asarray(u, dtype=np.float64)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, before + (share[:, None] if share.ndim else share) * sorted_p, axis=1)
    return scores


def score_threshold(true_scores: np.ndarray, coverage: float, weights: np.ndarray | None = None) -> float:
    """The score at or below which a share `coverage` of new rows lies.

    Parameters
    ----------
    true_scores : ndarray of shape (n,)
        Scores of the true classes.
    coverage : float
    weights : ndarray of shape (n,), optional

    Returns
    -------
    float
        Infinite where there are too few rows for the coverage.
    """
    check_coverage(coverage)
    n = float(len(true_scores) if weights is None else weights.sum())
    rank = np.ceil(coverage * (n + 1) - 1e-9)
    return float(weighted_order_statistic(np.asarray(true_scores)[None, :], weights, rank, n)[0])


def prediction_sets(
    probabilities: np.ndarray,
    true_scores: np.ndarray,
    codes: np.ndarray,
    coverage: float,
    *,
    per_class: bool = False,
    random_state: Any = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """The set of each new row.

    Parameters
    ----------
    probabilities : ndarray of shape (m, k)
        Of the classes on new rows.
    true_scores : ndarray of shape (n,)
        Scores of the true classes of rows that the model did not see.
    codes : ndarray of shape (n,)
        Those classes.
    coverage : float
        Between 0 and 1.
    per_class : bool, default=False
        Whether every class is to be covered with that probability, or all rows together.
    random_state : int, RandomState or None, default=None
        Draws the share of a class's own probability that counts.
    weights : ndarray of shape (n,), optional
        How many rows each of the `n` stands for.

    Returns
    -------
    ndarray of bool of shape (m, k)
        Which classes are in.
    """
    k = probabilities.shape[1]
    limits = class_thresholds(true_scores, codes, k, coverage, per_class=per_class, weights=weights)
    share = check_random_state(random_state).random_sample(len(probabilities))
    return adaptive_scores(probabilities, share) <= limits


def class_thresholds(
    true_scores: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    coverage: float,
    *,
    per_class: bool = False,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """One threshold for each class: the same for all, or from the rows of each class alone.

    Parameters
    ----------
    true_scores : ndarray of shape (n,)
        Scores of the true classes, from `adaptive_scores`.
    codes : ndarray of shape (n,)
        The true class of each row.
    n_classes : int
    coverage : float
    per_class : bool, default=False
        Whether every class is to be covered with that probability, or all rows together.
    weights : ndarray of shape (n,), optional

    Returns
    -------
    ndarray of shape (k,)
    """
    if not per_class:
        return np.full(n_classes, score_threshold(true_scores, coverage, weights))
    members = [codes == c for c in range(n_classes)]
    return np.array([score_threshold(true_scores[m], coverage, None if weights is None else weights[m]) for m in members])
