"""Class probabilities from scores, and the one definition of the parameter `probability` of all classifiers.

    "softmax"      exp(s_c) / sum_j exp(s_j), without any fitted parameter
    "temperature"  the softmax of s / T, with T fitted to scores of rows that the model did not see
    "sigmoid"      1 / (1 + exp(a_c s_c + b_c)) for each class, fitted to such scores, normalised to sum to one
    "auto"         "temperature" if leave-one-out scores cost no more than the fit, else "softmax"
    False          no `predict_proba`

Leave-one-out scores exist for exact least-squares solutions only. Estimators without them accept a subset:

    LSSVC, LSSVCCV                     all
    NystromLSSVC, FourierLSSVC         all with method="exact"; "auto" is "softmax", since leave-one-out scores need a second
                                       pass over the rows
    BudgetLSSVC, RiSVOClassifier       "auto", which is "softmax", "softmax" and False
    PrototypeLSSVC                     those of the model on the prototypes; "auto" is "softmax"
    KernelSVC                          False (default, as in scikit-learn), "sigmoid" and True, fitted by cross-validation

None of the methods changes `predict`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless.inference.platt import sigmoid_probabilities
from gramless.inference.temperature import temperature_probabilities

METHODS = ("auto", "softmax", "sigmoid", "temperature")
"""All methods that convert scores to probabilities."""
LEAVE_ONE_OUT_METHODS = ("sigmoid", "temperature")
"""Methods that are always fitted to leave-one-out scores; `"auto"` is fitted to them only if they are cheap."""


def probability_constraint(*methods: str) -> list[Any]:
    """Return the parameter constraint of `probability` for an estimator that has these methods."""
    return [StrOptions(set(methods)), Options(bool, {False})]


def has_probabilities(estimator: Any) -> bool:
    """Return True if `predict_proba` is available, else raise an `AttributeError` that names the parameter to set."""
    if estimator.probability is False:
        raise AttributeError("predict_proba needs probability='softmax' or 'sigmoid'; this estimator has probability=False")
    return True


def class_probabilities(scores: np.ndarray, *, sigmoids: np.ndarray | None = None, temperature: float = 1.0) -> np.ndarray:
    """Return probabilities of shape (n, n_classes): normalised sigmoids if they are given, else a softmax."""
    scores = scores.astype(np.float64)
    return temperature_probabilities(scores, temperature) if sigmoids is None else sigmoid_probabilities(scores, sigmoids)


class ProbabilityMixin:
    """Conversion of scores to probabilities by the parameter `probability` of a classifier."""

    probability: str | bool

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Return the class probabilities of scores."""
        if self.probability == "sigmoid":
            check_is_fitted(self, "sigmoids_", msg="%(name)s has no sigmoids, which are fitted at the end of fit")
            return class_probabilities(scores, sigmoids=self.sigmoids_)  # type: ignore[attr-defined]
        if self.probability == "temperature":
            check_is_fitted(self, "temperature_", msg="%(name)s has no temperature, which is fitted at the end of fit")
        temperature = 1.0 if self.probability == "softmax" else getattr(self, "temperature_", 1.0)
        return class_probabilities(scores, temperature=temperature)


def label_probabilities(
    scores: np.ndarray, *, sigmoids: np.ndarray | None = None, temperature: np.ndarray | float = 1.0
) -> np.ndarray:
    """Return the probability of each label of a multilabel problem, each between zero and one on its own."""
    scores = scores.astype(np.float64)
    if sigmoids is not None:
        return expit(-(scores * sigmoids[:, 0] + sigmoids[:, 1]))
    return expit(scores / temperature)
