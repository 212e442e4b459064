"""How often intervals and sets of a model hold the truth, on rows that it never saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless.cli.model import TableModel

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Those that a card shows."""


def measured_coverage(model: TableModel, X: Any, y: np.ndarray, coverage: float) -> dict[str, float]:
    """The share of rows whose answer is held, and the mean width of intervals or number of classes in sets.

    Parameters
    ----------
    model : TableModel
        Fitted.
    X : DataFrame or array
        Rows as the pipeline wants them.
    y : ndarray
        Their answers.
    coverage : float
        What is asked for.

    Returns
    -------
    dict
        With "asked", "held_out" and "size".
    """
    truth = model.answers(y)
    if model.task == "regression":
        low, high = model.prediction_intervals(X, coverage).T
        return _found(coverage, (low <= truth) & (truth <= high), high - low)
    sets = model.prediction_sets(X, coverage)
    labels = np.array([str(label) for label in model.classes])
    right = labels[None, :] == np.array([str(label) for label in truth])[:, None]
    return _found(coverage, (sets & right).any(axis=1), sets.sum(axis=1))


def _found(asked: float, inside: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    return {"asked": asked, "held_out": float(np.mean(inside)), "size": float(np.mean(sizes))}


def can_cover(model: TableModel) -> bool:
    """Whether the model has intervals, or sets."""
    machine = model.pipeline.named_steps["machine"]
    if model.task == "regression":
        return hasattr(machine, "predict_interval")
    return hasattr(machine, "predict_set") and model.has_probabilities
