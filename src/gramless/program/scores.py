"""Scores on held-out rows, each with an interval and beside what a constant guess would score.

Intervals say how far a figure would move with other test rows, not with other training rows. For shares
they come from the binomial law (Wilson's form, which is honest near 0 and 1 too), for errors of quantities
from 1,000 resamplings. SciPy computes both.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table
from scipy import stats

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
