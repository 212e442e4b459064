"""Measured coverage of prediction intervals and prediction sets on rows that the model was not fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless.cli.model import TableModel

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Coverages of the report of a model."""


def measured_coverage(model: TableModel, X: Any, y: np.ndarray, coverage: float) -> dict[str, float]:
    """Return requested and measured coverage, and the mean width of intervals or mean number of classes of sets."""
    truth = model.parse_targets(y)
    if model.task == "regression":
        low, high = model.prediction_intervals(X, coverage).T
        return _found(coverage, (low <= truth) & (truth <= high), high - low)
    sets = model.prediction_sets(X, coverage)
    labels = np.array([str(label) for label in model.classes_])
    right = labels[None, :] == np.array([str(label) for label in truth])[:, None]
    return _found(coverage, (sets & right).any(axis=1), sets.sum(axis=1))


def _found(asked: float, inside: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    return {"asked": asked, "held_out": float(np.mean(inside)), "size": float(np.mean(sizes))}


def can_cover(model: TableModel) -> bool:
    """Return True if the model has prediction intervals or sets."""
    if model.task == "regression":
        return hasattr(model.estimator, "predict_interval")
    return hasattr(model.estimator, "predict_set") and model.has_probabilities
