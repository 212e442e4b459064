"""Scores on held-out rows, each with an interval and beside what a constant guess would score.

Intervals say how far a figure would move with other test rows, not with other training rows. For shares
they come from the binomial law (Wilson's form, which is honest near 0 and 1 too), for errors of quantities
from 1,000 resamplings. SciPy computes both.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from rich.table import Table

RESAMPLINGS = 1000
MOST_DRAWN = 5_000_000  # resamplings at once times rows
LEVEL = 0.95
Z = float(stats.norm.ppf((1 + LEVEL) / 2))


@dataclass(frozen=True)
class Score:
    """One metric on held-out rows."""

    metric: str
    value: float
    low: float
    high: float
    baseline: float

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, in which a figure that does not exist (R² of equal answers) is null."""
        return {key: None if value != value else value for key, value in asdict(self).items()}


def score(y: np.ndarray, predicted: np.ndarray, *, task: str, guess: Any, seed: int = 0) -> list[Score]:
    """All metrics of a task; `guess` is the largest class or the mean of the training rows."""
    if task == "classification":
        return _class_scores(y, predicted, guess)
    return _quantity_scores(y, predicted, guess, np.random.default_rng(seed))


def error_bound(predicted: np.ndarray, y: np.ndarray, share: float) -> float | None:
    """How far off a prediction is at most, for this share of rows like these: a quantile of the held-out errors.

    One place further out than the plain quantile, so that the share holds for rows still to come (Vovk, Gammerman and
    Shafer, "Algorithmic learning in a random world", 2005). None where the rows are too few to say.
    """
    wrong = np.sort(np.abs(np.asarray(predicted, dtype=np.float64) - y))
    place = int(np.ceil(share * (len(wrong) + 1)))
    return float(wrong[place - 1]) if place <= len(wrong) else None


def score_table(scores: list[Score], title: str) -> Table:
    """The scores for a person."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE, header_style="bold")
    table.add_column("score")
    for heading in ("value", "95 % interval", "a constant guess"):
        table.add_column(heading, justify="right")
    for one in scores:
        figures = [f"{number:,.4g}" for number in (one.value, one.low, one.high, one.baseline)]
        table.add_row(one.metric, f"[bold]{figures[0]}[/bold]", f"{figures[1]} to {figures[2]}", figures[3])
    return table


def _class_scores(y: np.ndarray, predicted: np.ndarray, guess: Any) -> list[Score]:
    right = y == predicted
    members = [y == label for label in np.unique(y)]
    counts = np.array([mask.sum() for mask in members])
    shares = np.array([right[mask].mean() for mask in members])
    interval = stats.binomtest(int(right.sum()), len(y)).proportion_ci(LEVEL, "wilson")
    spread = np.sqrt(np.sum(_variance(shares, counts))) / len(members)
    balanced = shares.mean()
    return [
        Score("accuracy", float(right.mean()), float(interval.low), float(interval.high), float(np.mean(y == guess))),
        Score(
            "balanced accuracy",
            float(balanced),
            float(max(balanced - Z * spread, 0)),
            float(min(balanced + Z * spread, 1)),
            float(np.mean([np.mean(y[mask] == guess) for mask in members])),
        ),
    ]


def log_loss(y: np.ndarray, classes: np.ndarray, chances: np.ndarray, shares: np.ndarray) -> Score:
    """Mean of minus the logarithm of the probability that the true class was given; less is better.

    Parameters
    ----------
    y : array of shape (n,)
    classes : array of shape (k,)
        Sorted.
    chances : array of shape (n, k)
    shares : array of shape (k,)
        How common each class is in training: a constant guess. A class that training never met has probability zero,
        and zero counts as the smallest number that can be added to one.
    """
    place = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    met = classes[place] == y

    def losses(given: np.ndarray) -> np.ndarray:
        return -np.log(np.where(met, given, 0.0).clip(np.finfo(np.float64).eps, 1.0))

    ours = losses(np.take_along_axis(chances, place[:, None], axis=1)[:, 0])
    mean = float(ours.mean())
    half = Z * float(stats.sem(ours, ddof=min(1, len(y) - 1)))
    return Score("log loss", mean, max(mean - half, 0.0), mean + half, float(losses(shares[place]).mean()))


def roc_auc(y: np.ndarray, positive: Any, chances: np.ndarray) -> Score | None:
    """How often a row of the positive class has a higher probability than one of the other; None where one is missing.

    The interval is that of DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver
    operating characteristic curves", 1988.
    """
    is_positive = y == positive
    m, n = int(is_positive.sum()), int((~is_positive).sum())
    if m == 0 or n == 0:
        return None
    ranks = stats.rankdata(chances)
    above = (ranks[is_positive] - stats.rankdata(chances[is_positive])) / n
    below = 1 - (ranks[~is_positive] - stats.rankdata(chances[~is_positive])) / m
    area = float(above.mean())
    spread = float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in (above, below) if len(part) > 1)))
    return Score("ROC AUC", area, max(area - Z * spread, 0.0), min(area + Z * spread, 1.0), 0.5)


def verdict(scores: list[Score], task: str) -> str | None:
    """A plain sentence where the model is no better than a constant answer, as far as these rows can tell; else None."""
    by_name = {one.metric: one for one in scores}
    if task == "regression":
        decisive = by_name["R²"]
        worse = not decisive.low > 0
    elif "log loss" in by_name:
        decisive = by_name["log loss"]
        worse = not decisive.high < decisive.baseline
    else:
        decisive = by_name["accuracy"]
        worse = not decisive.low > decisive.baseline
    constant = "the mean" if task == "regression" else "the most common class"
    if not worse:
        return None
    return (
        f"As far as the held-out rows can tell, this model is no better than always answering with {constant} "
        f"({decisive.metric} {decisive.value:.3g}, {decisive.low:.3g} to {decisive.high:.3g}; the constant has "
        f"{decisive.baseline:.3g})."
    )


def _variance(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Of each share, with two right and two wrong rows added: without them no mistakes would mean no doubt."""
    n = counts + Z**2
    adjusted = (shares * counts + Z**2 / 2) / n
    return adjusted * (1 - adjusted) / n


def _quantity_scores(y: np.ndarray, predicted: np.ndarray, guess: float, rng: np.random.Generator) -> list[Score]:
    with warnings.catch_warnings():
        # Some resampling of few rows has no R²: it is left out below.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        drawn = stats.bootstrap(
            (y, predicted),
            _quantity_metrics,
            paired=True,
            n_resamples=RESAMPLINGS,
            batch=max(1, MOST_DRAWN // len(y)),
            method="percentile",
            rng=rng,
        ).bootstrap_distribution
    values = _quantity_metrics(y, predicted)
    baselines = _quantity_metrics(y, np.full(len(y), float(guess)))
    scores = []
    for name, value, found, baseline in zip(QUANTITY_METRICS, values, drawn, baselines, strict=True):
        found = found[~np.isnan(found)]
        low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if len(found) else (np.nan, np.nan)
        scores.append(Score(name, float(value), float(low), float(high), float(baseline)))
    return scores


QUANTITY_METRICS = ("R²", "root mean squared error", "mean absolute error")


def _quantity_metrics(y: np.ndarray, predicted: np.ndarray, axis: int = -1) -> np.ndarray:
    """The metrics of each sample, of which there may be many along the first axis."""
    wrong = predicted - y
    squares = np.mean(wrong**2, axis=axis)
    variance = np.var(y, axis=axis)
    # What rounding leaves of a difference of equals is no spread: a resampling of one row over and over has no R².
    spread = variance > (8 * np.finfo(np.float64).eps) ** 2 * np.mean(y**2, axis=axis)
    r2 = 1 - np.divide(squares, variance, out=np.full_like(squares, np.nan), where=spread)
    return np.stack([r2, np.sqrt(squares), np.mean(np.abs(wrong), axis=axis)])
