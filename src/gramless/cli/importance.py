"""Permutation importance of columns on rows that the model was not fitted to, within a budget of operations.

The importance of a column is the mean increase of a loss if its values are permuted (Breiman, "Random forests", 2001). If
the budget does not suffice for all columns, the columns are ranked first by the mean change of the predictions of a few rows
under one permutation, which is less accurate but needs no targets, and the importance is measured for the first ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import metrics

from gramless.cli.model import TableModel
from gramless.cli.scores import log_loss, rare_class


@dataclass(frozen=True)
class ImportanceTuning:
    """Sizes of the computation of the importance of columns."""

    # Rows, and permutations of each column: the standard error of an importance is then a few percent of the loss.
    rows: int = 500
    permutations: int = 3
    # Rows on which columns are ranked: a tenth of the cost of a measurement.
    screen_rows: int = 60
    # Columns that are measured for any budget.
    min_columns: int = 5
    # Multiplications per second of kernel evaluations: 1.8e10 measured for 4,000 points of 303 columns on one core, rounded
    # to a power of two.
    operations_per_second: float = 2.0**34
    # Fraction of the time budget for importance; without a time budget, the seconds for importance as a multiple of the
    # default time budget of the fit.
    share: float = 0.2
    default_share: float = 1.0


TUNING = ImportanceTuning()


@dataclass(frozen=True)
class Metric:
    """Function of targets, predictions and classes that is small for good models, and the name of its score."""

    loss: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    score_name: str
    of_probabilities: bool = False
    task: str = "classification"


def _ranking_loss(score: Callable[..., float]) -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """Return 1 minus a score of probabilities, averaged over the classes if there are more than two."""

    def loss(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> float:
        is_class = y[:, None] == classes[None, :]
        columns = [rare_class(is_class.mean(axis=0))] if len(classes) == 2 else np.flatnonzero(is_class.any(axis=0))
        return 1 - float(np.mean([score(is_class[:, k], probabilities[:, k]) for k in columns]))

    return loss


def _balanced_error(y: np.ndarray, predicted: np.ndarray, _: np.ndarray) -> float:
    return 1 - metrics.recall_score(y, predicted, average="macro", zero_division=0)


def _log_loss(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> float:
    return log_loss(y, classes, probabilities, probabilities.mean(axis=0)).value


METRICS = {
    "log-loss": Metric(_log_loss, "log loss", of_probabilities=True),
    "average-precision": Metric(_ranking_loss(metrics.average_precision_score), "average precision", of_probabilities=True),
    "roc-auc": Metric(_ranking_loss(metrics.roc_auc_score), "ROC AUC", of_probabilities=True),
    "accuracy": Metric(lambda y, p, _: 1 - metrics.accuracy_score(y, p), "accuracy"),
    "balanced-accuracy": Metric(_balanced_error, "balanced accuracy"),
    "r2": Metric(lambda y, p, _: float(np.mean((y - p) ** 2) / np.var(y)), "R²", task="regression"),
    "rmse": Metric(lambda y, p, _: metrics.root_mean_squared_error(y, p), "root mean squared error", task="regression"),
    "mae": Metric(lambda y, p, _: metrics.mean_absolute_error(y, p), "mean absolute error", task="regression"),
}
"""Metrics of `--metric`."""


def importance(
    model: TableModel,
    X: pd.DataFrame,
    y: np.ndarray,
    *,
    metric: str,
    seconds: float,
    seed: int,
    notify: Callable[[str], None] = lambda message: None,
    deadline: float = np.inf,
    tuning: ImportanceTuning = TUNING,
) -> dict[str, float]:
    """Return the increase of the loss for each measured column, largest first.

    `seconds` is converted to operations at a nominal speed. After `deadline`, a time of `time.perf_counter`, no
    further column is measured.
    """
    rng = np.random.default_rng(seed)
    sample = rng.permutation(len(y))[: tuning.rows]
    rows, targets = X.iloc[sample], y[sample]
    if len(sample) < 2 or (model.task == "regression" and np.ptp(targets) == 0):
        return {}
    measured = METRICS[metric]
    predict = model.pipeline.predict_proba if measured.of_probabilities else model.pipeline.predict
    classes = model.classes_ if model.task == "classification" else np.empty(0)
    base = measured.loss(targets, predict(rows), classes)
    cost = len(rows) * tuning.permutations * row_cost(model)
    affordable = max(tuning.min_columns, int(seconds * tuning.operations_per_second / cost))
    names = list(X.columns)
    if affordable < len(names):
        notify(f"ranking {len(names)} columns by their influence on predictions")
        names = _most_influential(predict, rows.iloc[: tuning.screen_rows], names, rng, deadline)[:affordable]
    found = {}
    for number, name in enumerate(names):
        if time.perf_counter() > deadline:
            break
        notify(f"importance of columns: {number} of {len(names)}")
        order = np.concatenate([rng.permutation(len(rows)) for _ in range(tuning.permutations)])
        outputs = np.split(predict(_permuted(rows, name, order)), tuning.permutations)
        losses = [measured.loss(targets, one, classes) for one in outputs]
        found[name] = round(float(np.mean(losses)) - base, 6)
    return {str(name): value for name, value in sorted(found.items(), key=lambda pair: -pair[1])}


def row_cost(model: TableModel) -> int:
    """Return the number of multiplications for the prediction of one row: points of the model times columns."""
    estimator = model.estimator
    members = getattr(estimator, "members_", [])
    if members:
        return sum(len(member.points) and max(map(len, member.points)) * member.points[0].shape[1] for member in members)
    single = getattr(estimator, "model_", None) or estimator
    points = next((getattr(single, name) for name in ("points_", "support_vectors_") if hasattr(single, name)), None)
    return 1 if points is None else int(np.prod(np.shape(points)))


def _permuted(rows: pd.DataFrame, name: Any, order: np.ndarray) -> pd.DataFrame:
    """Return copies of the rows, one for each permutation in `order`, in which the values of a column are permuted."""
    copies = pd.concat([rows] * (len(order) // len(rows)), ignore_index=True)
    copies[name] = rows[name].iloc[order].array
    return copies


def _most_influential(
    predict: Callable[..., np.ndarray], rows: pd.DataFrame, names: list[Any], rng: np.random.Generator, deadline: float
) -> list[Any]:
    """Return the columns in descending order of the mean change of the predictions if their values are permuted."""
    base, order = predict(rows), rng.permutation(len(rows))
    changes = []
    for name in names:
        if time.perf_counter() > deadline:
            break
        there = predict(_permuted(rows, name, order))
        changes.append(np.mean(there != base if base.dtype.kind in "OUSb" else np.abs(there - base)))
    return [names[k] for k in np.argsort(-np.array(changes), kind="stable")]
