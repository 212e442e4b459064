"""Sets of classes that contain the true class with a given probability.

The score of a class on a row is the probability of all classes that are more probable, plus a fraction `u` of its own:

    s(x, y) = sum_{c: p_c > p_y} p_c + u p_y,     u uniform on [0, 1]

The threshold is a quantile of the scores of the true classes on rows that the model was not fitted on (leave-one-out);
the set of a new row contains every class whose score does not exceed it. Rows that are hard to classify get large sets. The
random fraction makes the coverage exact if the probabilities have jumps: with `u = 1` the sets are larger, never empty, and
cover at least as often. Sets of a larger coverage contain those of a smaller one. Cost: O(n k log k) for n rows and k
classes.

Reference: Romano, Sesia, Candes, "Classification with valid and adaptive coverage", 2020.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless.inference.jackknife import check_coverage, weighted_order_statistic


def adaptive_scores(probabilities: np.ndarray, u: np.ndarray | float = 1.0) -> np.ndarray:
    """Return the score of every class on every row; `u` is one number, or one for each row."""
    p = np.asarray(probabilities, dtype=np.float64)
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(sorted_p, axis=1) - sorted_p
    fraction = np.asarray(u, dtype=np.float64)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, before + (fraction[:, None] if fraction.ndim else fraction) * sorted_p, axis=1)
    return scores


def score_threshold(true_scores: np.ndarray, coverage: float, weights: np.ndarray | None = None) -> float:
    """Return the score that a fraction `coverage` of new rows does not exceed; infinite if there are too few rows."""
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
    """Return which classes are in the set of each new row, from the scores of the true classes `codes` of unseen rows."""
    k = probabilities.shape[1]
    limits = class_thresholds(true_scores, codes, k, coverage, per_class=per_class, weights=weights)
    fraction = check_random_state(random_state).random_sample(len(probabilities))
    return adaptive_scores(probabilities, fraction) <= limits


def class_thresholds(
    true_scores: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    coverage: float,
    *,
    per_class: bool = False,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return one threshold for each class: equal ones, or with `per_class` from the rows of each class alone."""
    if not per_class:
        return np.full(n_classes, score_threshold(true_scores, coverage, weights))
    members = [codes == c for c in range(n_classes)]
    return np.array([score_threshold(true_scores[m], coverage, None if weights is None else weights[m]) for m in members])
