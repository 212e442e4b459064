"""Scores on held-out rows, each with a confidence interval and the score of a constant prediction.

The intervals describe the variation over test rows, not over training rows. They are Wilson's binomial interval for the
accuracy, quantiles of 1,000 bootstrap samples for regression, and intervals from standard errors for the other scores.

The importance of a column is the mean increase of a loss if its values are permuted (Breiman, "Random forests", 2001). If
the time budget does not suffice for all columns, the columns are first ranked by a less accurate criterion, the mean change
of the predictions of a few rows under one permutation, and the importance is measured for the highest-ranked columns only.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import metrics

RESAMPLINGS = 1000
MOST_DRAWN = 5_000_000  # largest number of row indices in a batch of bootstrap samples; about 40 MB
MOST_SHOWN = 20  # largest number of classes for which a confusion matrix is computed
QUANTITY_METRICS = ("R²", "root mean squared error", "mean absolute error")
LEVEL = 0.95
Z = float(stats.norm.ppf((1 + LEVEL) / 2))


@dataclass(frozen=True)
class Score:
    """Value of one metric on held-out rows, its confidence interval, and the value of a constant prediction."""

    metric: str
    value: float
    low: float
    high: float
    baseline: float

    def as_json(self) -> dict[str, Any]:
        """Return the score as JSON; an undefined value (R² of equal targets) is null."""
        return {key: None if value != value else value for key, value in asdict(self).items()}


def score(y: np.ndarray, predicted: np.ndarray, *, task: str, guess: Any, seed: int = 0) -> list[Score]:
    """Return the scores of predicted labels or numbers; `guess` is the constant prediction from the training rows."""
    if task == "classification":
        return _class_scores(y, predicted, guess)
    return _quantity_scores(y, predicted, guess, np.random.default_rng(seed))


def constant_prediction(y: np.ndarray, task: str, *, median: bool = False) -> dict[str, Any]:
    """Return as JSON the mean or `median` of a numeric target, or the most frequent class and the class frequencies."""
    if task == "regression":
        return {"guess": float(np.median(y) if median else np.mean(y))}
    values, counts = np.unique(y, return_counts=True)
    return {"guess": values[counts.argmax()].item(), "class_shares": (counts / len(y)).tolist()}


def error_bound(predicted: np.ndarray, y: np.ndarray, share: float) -> float | None:
    """Return the value that a fraction `share` of absolute errors on new rows do not exceed; None if `y` is too short.

    The bound is the conformal quantile of Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005.
    """
    wrong = np.sort(np.abs(np.asarray(predicted, dtype=np.float64) - y))
    place = int(np.ceil(share * (len(wrong) + 1)))
    return float(wrong[place - 1]) if place <= len(wrong) else None


def _with_normal_interval(metric: str, value: float, error: float, baseline: float, highest: float = 1.0) -> Score:
    """Return a score with the normal interval of its standard error `error`, clipped to [0, `highest`]."""
    low, high = max(value - Z * error, 0.0), min(value + Z * error, highest)
    return Score(metric, float(value), float(low), float(high), float(baseline))


def _class_scores(y: np.ndarray, predicted: np.ndarray, guess: Any) -> list[Score]:
    right = y == predicted
    interval = stats.binomtest(int(right.sum()), len(y)).proportion_ci(LEVEL, "wilson")
    low, high = map(float, interval)
    accuracy = Score("accuracy", float(right.mean()), low, high, float(np.mean(y == guess)))
    labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    shares = np.bincount(codes, right) / counts
    # Variance of the accuracy in a class after adding about two correct and two wrong rows (Agresti and Coull, 1998).
    adjusted = (shares * counts + Z**2 / 2) / (counts + Z**2)
    error = np.sqrt(np.sum(adjusted * (1 - adjusted) / (counts + Z**2))) / len(labels)
    return [accuracy, _with_normal_interval("balanced accuracy", shares.mean(), error, np.mean(labels == guess))]


def log_loss(y: np.ndarray, classes: np.ndarray, probabilities: np.ndarray, shares: np.ndarray) -> Score:
    """Return the log loss of `probabilities`, whose columns are the sorted `classes`.

    The constant prediction is `shares`, the class frequencies in training. The probability of a class that is not in
    `classes` is 0, which is replaced by the machine epsilon.
    """
    place = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    known = classes[place] == y

    def losses(given: np.ndarray) -> np.ndarray:
        return -np.log(np.where(known, given, 0.0).clip(np.finfo(np.float64).eps, 1.0))

    ours = losses(np.take_along_axis(probabilities, place[:, None], axis=1)[:, 0])
    error = stats.sem(ours) if len(y) > 1 else np.nan
    return _with_normal_interval("log loss", ours.mean(), error, losses(shares[place]).mean(), np.inf)


def roc_auc(y: np.ndarray, positive: Any, probabilities: np.ndarray) -> Score | None:
    """Return the area under the ROC curve, or None if all rows or no rows are of the class `positive`.

    The interval is based on DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver
    operating characteristic curves", 1988.
    """
    is_positive = y == positive
    m, n = int(is_positive.sum()), int((~is_positive).sum())
    if m == 0 or n == 0:
        return None
    ranks = stats.rankdata(probabilities)
    above = (ranks[is_positive] - stats.rankdata(probabilities[is_positive])) / n
    below = 1 - (ranks[~is_positive] - stats.rankdata(probabilities[~is_positive])) / m
    variance = sum(part.var(ddof=1) / len(part) for part in (above, below) if len(part) > 1)
    return _with_normal_interval("ROC AUC", above.mean(), np.sqrt(variance), 0.5)


def probability_scores(y: np.ndarray, classes: np.ndarray, probabilities: np.ndarray, shares: np.ndarray) -> list[Score]:
    """Return the scores of `probabilities`, whose columns are `classes`; `shares` are class frequencies in training."""
    order = np.argsort(classes)  # sort again: the caller may have converted numeric classes to strings
    scores: list[Score | None] = [log_loss(y, classes[order], probabilities[:, order], shares[order])]
    if len(classes) == 2:
        rare = rare_class(shares)
        scores += [roc_auc(y, classes[1], probabilities[:, 1]), average_precision(y, classes[rare], probabilities[:, rare])]
    return [one for one in scores if one is not None]


def rare_class(shares: np.ndarray) -> int:
    """Return the index (0 or 1) of the less frequent of two classes, or 1 if both classes are equally frequent."""
    return 0 if shares[0] < shares[1] else 1


def average_precision(y: np.ndarray, positive: Any, probabilities: np.ndarray) -> Score | None:
    """Return the average precision of the class `positive`, or None if all rows or no rows are of this class.

    The interval is the logit interval of Boyd, Eng and Page, "Area under the precision-recall curve: point estimates and
    confidence intervals", 2013. The score of a constant prediction is the relative frequency of the class.
    """
    is_positive = y == positive
    m = int(is_positive.sum())
    if m in (0, len(y)):
        return None
    area = float(metrics.average_precision_score(is_positive, probabilities))
    inside = min(max(area, 0.5 / m), 1 - 0.5 / m) if m > 1 else 0.5
    middle, half = np.log(inside / (1 - inside)), Z / np.sqrt(m * inside * (1 - inside))
    low, high = 1 / (1 + np.exp(-middle + half)), 1 / (1 + np.exp(-middle - half))
    name = f"average precision of {positive}"
    return Score(name, area, float(min(low, area)), float(max(high, area)), float(is_positive.mean()))


def confusion(y: np.ndarray, predicted: np.ndarray) -> dict[str, Any] | None:
    """Return the confusion matrix, with true classes as rows; None for one class or more than `MOST_SHOWN` classes."""
    labels, codes = np.unique(np.concatenate([y, predicted]), return_inverse=True)
    if not 2 <= len(labels) <= MOST_SHOWN:
        return None
    # Class indices instead of labels, because scikit-learn treats labels such as 0.5 as the target of a regression.
    return {"classes": labels.tolist(), "counts": metrics.confusion_matrix(codes[: len(y)], codes[len(y) :]).tolist()}


def verdict(scores: list[Score], task: str) -> str | None:
    """Return a warning if the model is not significantly better than a constant prediction; else None."""
    by_name = {one.metric: one for one in scores}
    decisive = next(by_name[name] for name in ("R²", "log loss", "accuracy") if name in by_name)
    if decisive.metric == "log loss":
        is_better = decisive.high < decisive.baseline
    else:
        is_better = decisive.low > (0 if task == "regression" else decisive.baseline)
    if is_better:
        return None
    constant = "a constant" if task == "regression" else "the most common class"
    return (
        f"On the held-out rows, this model is not significantly better than always predicting {constant} "
        f"({decisive.metric} {decisive.value:.3g}, {decisive.low:.3g} to {decisive.high:.3g}; the constant has "
        f"{decisive.baseline:.3g})."
    )


def _quantity_scores(y: np.ndarray, predicted: np.ndarray, guess: float, rng: np.random.Generator) -> list[Score]:
    drawn = np.empty((len(QUANTITY_METRICS), 0))
    if len(y) > 1:
        options = {"paired": True, "n_resamples": RESAMPLINGS, "batch": max(1, MOST_DRAWN // len(y)), "rng": rng}
        with warnings.catch_warnings():
            # R² of a bootstrap sample may be undefined if there are few rows; such samples are left out below.
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            found = stats.bootstrap((y, predicted), _quantity_metrics, method="percentile", **options)
        drawn = found.bootstrap_distribution
    values = _quantity_metrics(y, predicted)
    baselines = _quantity_metrics(y, np.full(len(y), float(guess)))
    scores = []
    for name, value, resampled, baseline in zip(QUANTITY_METRICS, values, drawn, baselines, strict=True):
        defined = resampled[~np.isnan(resampled)]
        low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if len(defined) else (np.nan, np.nan)
        scores.append(Score(name, float(value), float(low), float(high), float(baseline)))
    return scores


def _quantity_metrics(y: np.ndarray, predicted: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return R², root mean squared error and mean absolute error, stacked along the first axis, of each bootstrap sample."""
    wrong = predicted - y
    squares = np.mean(wrong**2, axis=axis)
    variance = np.var(y, axis=axis)
    # Treat a variance of the size of rounding errors as zero: R² of a bootstrap sample of one repeated row is undefined.
    spread = variance > (8 * np.finfo(np.float64).eps) ** 2 * np.mean(y**2, axis=axis)
    r2 = 1 - np.divide(squares, variance, out=np.full_like(squares, np.nan), where=spread)
    return np.stack([r2, np.sqrt(squares), np.mean(np.abs(wrong), axis=axis)])


@dataclass(frozen=True)
class ImportanceTuning:
    """Sample sizes and time budgets of the permutation importance of columns."""

    # Number of rows, and of permutations of each column, with which the standard error of an importance is a few percent of
    # the loss.
    rows: int = 500
    permutations: int = 3
    # Number of rows on which columns are ranked before the measurement, at less than a tenth of the cost of measuring them.
    screen_rows: int = 60
    # Number of columns whose importance is measured even if the time budget is too small.
    min_columns: int = 5
    # Multiplications per second of kernel evaluations: 1.8e10, measured for 4,000 support points of 303 columns on one core,
    # and rounded to a power of two.
    operations_per_second: float = 2.0**34
    # Fraction of `--time` for the importance of columns (`share`); without `--time`, the time for the importance of columns
    # as a multiple of the default time budget of the fit (`default_share`).
    share: float = 0.2
    default_share: float = 1.0


TUNING = ImportanceTuning()


@dataclass(frozen=True)
class Metric:
    """Loss, a function of targets, predictions and classes, and the name of the score that corresponds to the loss."""

    loss: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    score_name: str
    of_probabilities: bool = False
    task: str = "classification"


def _ranking_loss(score: Callable[..., float]) -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """Return the loss 1 - `score`, where `score` is computed for the rarer of two classes, or averaged over more classes."""

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
"""Losses of the permutation importance, by the names that the option `--metric` accepts."""


def importance(
    model: Any,
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
    """Return the permutation importance (increase of the loss) of each measured column, in descending order.

    The time budget `seconds` determines the number of measured columns, by the constant `tuning.operations_per_second`. No
    further column is measured after `deadline`, a value of `time.perf_counter`.
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


def row_cost(model: Any) -> int:
    """Return the number of multiplications for the prediction of one row: number of support points times columns."""
    estimator = model.estimator
    members = getattr(estimator, "members_", [])
    if members:
        return sum(len(member.points) and max(map(len, member.points)) * member.points[0].shape[1] for member in members)
    single = getattr(estimator, "model_", None) or estimator
    points = next((getattr(single, name) for name in ("points_", "support_vectors_") if hasattr(single, name)), None)
    return 1 if points is None else int(np.prod(np.shape(points)))


def _permuted(rows: pd.DataFrame, name: Any, order: np.ndarray) -> pd.DataFrame:
    """Return one copy of the rows for each permutation in `order`, with the values of the column `name` permuted."""
    copies = pd.concat([rows] * (len(order) // len(rows)), ignore_index=True)
    copies[name] = rows[name].iloc[order].array
    return copies


def _most_influential(
    predict: Callable[..., np.ndarray], rows: pd.DataFrame, names: list[Any], rng: np.random.Generator, deadline: float
) -> list[Any]:
    """Return the columns in descending order of the mean change of the predictions under a permutation of the column."""
    base, order = predict(rows), rng.permutation(len(rows))
    changes = []
    for name in names:
        if time.perf_counter() > deadline:
            break
        there = predict(_permuted(rows, name, order))
        changes.append(np.mean(there != base if base.dtype.kind in "OUSb" else np.abs(there - base)))
    return [names[k] for k in np.argsort(-np.array(changes), kind="stable")]
