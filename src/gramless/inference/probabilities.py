"""Class probabilities from scores: the parameter `probability` of all classifiers, and the calibration of its methods.

    "softmax"      exp(s_c) / sum_j exp(s_j), without any fitted parameter
    "temperature"  the softmax of s / T, with T fitted to scores of rows that the model did not see
    "sigmoid"      1 / (1 + exp(a_c s_c + b_c)) for each class, normalised to sum to one; a and b are fitted like T
    "auto"         "temperature" if leave-one-out scores cost no more than the fit, else "softmax"
    False          no `predict_proba`

Leave-one-out scores exist for exact least-squares solutions only. Other estimators accept a subset of the methods:

    LSSVC                              all
    NystromLSSVC, FourierLSSVC         "softmax" and False; "temperature" and "sigmoid" from the sums over the rows
    BudgetLSSVC, RiSVOClassifier       "softmax" and False
    PrototypeLSSVC                     "softmax", "sigmoid" of the model on the prototypes, and False
    KernelSVC                          False (default, as in scikit-learn), "sigmoid" and True, fitted by cross-validation

None of the methods changes `predict`.

The temperature is the maximum likelihood estimate; one pseudo-row, spread evenly over all rows and classes, keeps it
positive if the scores separate the classes of a few rows perfectly. The log likelihood is concave in `1 / T`, so its
derivative has one root, found in about forty steps of O(n k). The sigmoids are fitted by Newton's method in a trust region:
O(n) for each of about ten steps. `couple` combines the probabilities `r_ij = P(i | i or j)` of all pairs of classes by
minimising `sum_ij (r_ji p_i - r_ij p_j)^2` over the simplex: one linear system of k + 1 unknowns for each row.

References: Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", 2017; Platt, "Probabilistic outputs for
support vector machines", 1999; Lin, Lin, Weng, "A note on Platt's probabilistic outputs", 2007; Wu, Lin, Weng, "Probability
estimates for multi-class classification by pairwise coupling", 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, softmax
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless.inference.intervals import adaptive_scores

METHODS = ("auto", "softmax", "sigmoid", "temperature")
"""All methods that convert scores to probabilities."""
LEAVE_ONE_OUT_METHODS = ("sigmoid", "temperature")
"""Methods that are always fitted to leave-one-out scores; `"auto"` is fitted to these scores only if they are cheap."""

# Clipping of pairwise probabilities, as in LIBSVM.
_MIN_PAIRWISE_PROBABILITY = 1e-7


def probability_constraint(*methods: str) -> list[Any]:
    """Return the parameter constraint of `probability` for an estimator that accepts these methods and False."""
    return [StrOptions(set(methods)), Options(bool, {False})]


def has_probabilities(estimator: Any) -> bool:
    """Return True if `predict_proba` is available, else raise an `AttributeError` that names the parameter to set."""
    if estimator.probability is False:
        raise AttributeError("predict_proba needs probability='softmax' or 'sigmoid'; this estimator has probability=False")
    return True


def probabilities(
    scores: np.ndarray, *, multilabel: bool = False, sigmoids: np.ndarray | None = None, temperature: Any = 1.0
) -> np.ndarray:
    """Return class probabilities, which sum to one, or label probabilities of a multilabel problem, which need not.

    The probabilities are sigmoids of the scores if `sigmoids` are given, else a softmax (for labels a logistic function) of
    the scores divided by the temperature.
    """
    scores = scores.astype(np.float64)
    if multilabel:
        return expit(scores / temperature if sigmoids is None else -(scores * sigmoids[:, 0] + sigmoids[:, 1]))
    if sigmoids is None:
        return softmax(centred_scores(scores) / temperature, axis=1)
    return sigmoid_probabilities(scores, sigmoids)


def probabilities_by_method(estimator: Any, scores: np.ndarray) -> np.ndarray:
    """Return class or label probabilities of scores, by the parameter `probability` of a fitted classifier."""
    multilabel = getattr(estimator, "multilabel_", False)
    if estimator.probability == "sigmoid":
        check_is_fitted(estimator, "sigmoids_", msg="%(name)s has no sigmoids, which are fitted at the end of fit")
        return probabilities(scores, multilabel=multilabel, sigmoids=estimator.sigmoids_)
    if estimator.probability == "temperature":
        check_is_fitted(estimator, "temperature_", msg="%(name)s has no temperature, which is fitted at the end of fit")
    temperature = 1.0 if estimator.probability == "softmax" else getattr(estimator, "temperature_", 1.0)
    return probabilities(scores, multilabel=multilabel, temperature=temperature)


@dataclass(frozen=True)
class Calibration:
    """Parameters that convert scores to probabilities, and calibration scores for prediction sets."""

    sigmoids: np.ndarray | None
    temperature: Any
    """One number, or one for each label of a multilabel problem."""
    true_scores: np.ndarray | None
    """Adaptive score of the true class of each row; None for multilabel problems."""


def calibrate(
    scores: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    method: str | bool,
    weights: np.ndarray | None,
    rng: np.random.RandomState,
) -> Calibration:
    """Fit the parameters of a probability method to leave-one-out scores; two-dimensional `codes` are label indicators."""
    multilabel = codes.ndim == 2
    problems = [(scores[:, [j]], codes[:, j]) for j in range(n_classes)] if multilabel else [(scores, codes)]
    sigmoids: np.ndarray | None = None
    temperature: Any = np.ones(n_classes) if multilabel else 1.0
    if method == "sigmoid":
        sigmoids = np.concatenate([fit_sigmoids(s, c, 2 if multilabel else n_classes, weights) for s, c in problems])
    elif method in ("temperature", "auto"):
        fitted = [fit_temperature(s, c.astype(np.intp), weights) for s, c in problems]
        temperature = np.array(fitted) if multilabel else fitted[0]
    if multilabel:
        return Calibration(sigmoids, temperature, None)
    unseen = probabilities(scores, sigmoids=sigmoids, temperature=temperature)
    adaptive = adaptive_scores(unseen, rng.random_sample(len(codes)))
    return Calibration(sigmoids, temperature, adaptive[np.arange(len(codes)), codes])


def centred_scores(scores: np.ndarray) -> np.ndarray:
    """Return scores with one column for each class; a single score `s` for two classes is converted to `-s / 2, s / 2`."""
    scores = np.asarray(scores, dtype=np.float64).reshape(len(scores), -1)
    return np.column_stack([-scores[:, 0], scores[:, 0]]) / 2 if scores.shape[1] == 1 else scores


def fit_temperature(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the temperature of maximum likelihood for the true classes `codes`."""
    s = centred_scores(scores)
    w = np.ones(len(s)) if weights is None else np.asarray(weights, dtype=np.float64)
    rows = np.arange(len(s))
    scale = np.abs(s).max()
    if not scale > 0:
        return 1.0

    def slope(beta: float) -> float:
        """Return the derivative of minus the log likelihood: the expected score minus the score of the true class."""
        expected = np.sum(softmax(s * (beta / scale), axis=1) * s, axis=1)
        return float(w @ (expected - s[rows, codes]) + w @ (expected - s.mean(axis=1)) / w.sum())

    low, high = 1e-3, 1e4
    if slope(low) >= 0 or slope(high) <= 0:
        return scale / (low if slope(low) >= 0 else high)
    return float(scale / brentq(slope, low, high, xtol=1e-13))


def fit_sigmoid(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return slope and offset of the sigmoid for the rows that are `positive`."""
    s = np.asarray(scores, dtype=np.float64)
    w = np.ones_like(s) if weights is None else np.asarray(weights, dtype=np.float64)
    n_positive, n_negative = w[positive].sum(), w[~positive].sum()
    # Platt's targets, the posterior means under a uniform prior, keep the slope finite for separable data.
    t = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    size = np.abs(s).max() or 1.0
    s = s / size  # so that convergence does not depend on the scale of the scores

    def loss(x: np.ndarray) -> float:
        f = x[0] * s + x[1]
        return float(w @ (np.logaddexp(0.0, f) - (1 - t) * f))

    def gradient(x: np.ndarray) -> np.ndarray:
        slope = w * (expit(x[0] * s + x[1]) - (1 - t))
        return np.array([slope @ s, slope.sum()])

    def hessian(x: np.ndarray) -> np.ndarray:
        p = expit(x[0] * s + x[1])
        curvature, rows = w * p * (1 - p), np.stack([s, np.ones_like(s)])
        return (rows * curvature) @ rows.T

    start, tol = [0.0, np.log((n_negative + 1) / (n_positive + 1))], 1e-8 * max(1.0, w.sum())
    a, b = minimize(loss, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": tol}).x
    return float(a / size), float(b)


def fit_sigmoids(scores: np.ndarray, codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return rows `(a, b)`: one sigmoid for each class, or one sigmoid for the second of two classes."""
    columns = [1] if n_classes == 2 else range(n_classes)
    scores = scores.reshape(len(codes), -1)
    return np.array([fit_sigmoid(scores[:, j], codes == c, weights) for j, c in enumerate(columns)])


def sigmoid_probabilities(scores: np.ndarray, sigmoids: np.ndarray) -> np.ndarray:
    """Return class probabilities: one-vs-rest sigmoids of the scores, normalised to sum to one."""
    p = expit(-(scores.reshape(len(scores), -1) * sigmoids[:, 0] + sigmoids[:, 1]))
    if p.shape[1] == 1:
        return np.column_stack([1 - p[:, 0], p[:, 0]])
    total = p.sum(axis=1, keepdims=True)
    # If every sigmoid underflows to zero, the probabilities are uniform instead of 0/0.
    return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / p.shape[1])


def couple(pairwise: np.ndarray, n_classes: int) -> np.ndarray:
    """Return class probabilities from `pairwise[:, j]`, the probability of the first class of the j-th pair of classes."""
    n, k = pairwise.shape[0], n_classes
    pairwise = np.clip(pairwise, _MIN_PAIRWISE_PROBABILITY, 1 - _MIN_PAIRWISE_PROBABILITY)
    r = np.zeros((n, k, k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        r[:, i, j] = pairwise[:, column]
        r[:, j, i] = 1 - pairwise[:, column]
    system = np.zeros((n, k + 1, k + 1))
    system[:, :k, :k] = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(k)
    system[:, diagonal, diagonal] = np.sum(r**2, axis=1)
    system[:, :k, k] = system[:, k, :k] = 1
    right = np.zeros((n, k + 1, 1))
    right[:, k] = 1
    shares = np.clip(np.linalg.solve(system, right)[:, :k, 0], 0, None)
    return shares / shares.sum(axis=1, keepdims=True)
