"""Functions shared by estimators: build the kernel, and convert scores to labels and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._core.targets.columns import scores_to_labels
from gramless.inference.probabilities import class_probabilities, has_probabilities
from gramless.kernels import Kernel, as_kernel
from gramless.kernels.tags import set_input_tags

__all__ = [
    "has_probabilities",
    "kernel_from_settings",
    "scores_to_labels",
    "scores_to_probabilities",
    "set_input_tags",
    "set_single_output",
]


def kernel_from_settings(estimator: Any) -> Kernel:
    """Return the kernel given by the parameters `kernel`, `gamma`, `degree` and `coef0` of an estimator."""
    settings = {name: value for name, value in vars(estimator).items() if name in ("gamma", "degree", "coef0")}
    return as_kernel(estimator.kernel, **settings)


def set_single_output(model: Any, single: bool) -> None:
    """Set whether `predict` of a regressor returns a vector (one output) or a matrix."""
    model._single_output = single


def scores_to_probabilities(model: Any, scores: np.ndarray) -> np.ndarray:
    """Return class probabilities by the method that the parameter `probability` of the model selects."""
    if model.probability == "sigmoid":
        check_is_fitted(model, "sigmoids_", msg="%(name)s has no sigmoids, which are fitted at the end of fit")
        return class_probabilities(scores, sigmoids=model.sigmoids_)
    if model.probability == "temperature":
        check_is_fitted(model, "temperature_", msg="%(name)s has no temperature, which is fitted at the end of fit")
        return class_probabilities(scores, temperature=model.temperature_)
    if model.probability == "auto":
        return class_probabilities(scores, temperature=getattr(model, "temperature_", 1.0))
    return class_probabilities(scores)
