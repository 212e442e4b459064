"""Formatting of numbers, metrics and parameters as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LABELS = {
    "error": "test error, %",
    "accuracy": "test accuracy, %",
    "balanced_error": "balanced error, %",
    "balanced_accuracy": "balanced accuracy, %",
    "train_accuracy": "training accuracy, %",
    "cv_error": "cross-validated error, %",
    "cv_accuracy": "cross-validated accuracy, %",
    "seconds": "seconds to fit",
    "predict_seconds": "seconds to predict",
    "feature_seconds": "seconds for features",
    "peak_mb": "peak memory, MB",
    "n_iter": "iteration",
    "residual": "relative residual",
    "error_of_probabilities": "error of the most probable class, %",
    "kernel_error": "kernel error, %",
    "landmarks": "landmark rule",  # the label of n_landmarks is "landmarks"
}
PERCENTAGES = {name for name, label in LABELS.items() if label.endswith("%")}


def label(key: str) -> str:
    """Return the heading of a metric or a parameter."""
    return LABELS.get(key, key.removeprefix("n_").replace("_", " "))


def value(key: str, number: Any) -> str:
    """Return a metric as a cell of a table."""
    if not isinstance(number, int | float) or isinstance(number, bool):
        return "–" if number is None else str(number)
    if key in PERCENTAGES:
        return f"{number:.2f}"
    if key.endswith("seconds"):
        return duration(number)
    if key == "peak_mb":
        return f"{number:,.0f}"
    return plain_number(number)


def plain_number(number: Any) -> str:
    """Return integers in full and other numbers with three significant digits; other values as text."""
    if isinstance(number, str):
        return number.replace("_", " ")
    if isinstance(number, bool) or not isinstance(number, int | float):
        return str(number)
    if not math.isfinite(number):
        return str(number)
    if number == int(number) and abs(number) < 1e6:
        return f"{int(number):,}"
    if 1e-3 <= abs(number) < 1e6:
        return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return f"{number:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def duration(seconds: float) -> str:
    """Return seconds with a unit of suitable size."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is one."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def memory(megabytes: float) -> str:
    """Return megabytes, or gigabytes from 1,000 MB on."""
    return f"{megabytes:,.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.2f} GB"


def comparison(metric: str, ours: float | None, theirs: float | None, where: str = "") -> list[dict[str, str]]:
    """Return two cells of a table: the value at `where` in the paper, and the difference of our value from it."""
    if ours is None or theirs is None:
        return [{"text": "–", "small": "", "kind": "dim"}] * 2
    difference = f"{ours - theirs:+.2f}".replace("-", "−")
    return [{"text": value(metric, theirs), "small": where, "kind": "dim"}, {"text": difference, "small": "", "kind": "dim"}]


def mean_and_spread(metric: str, mean: float | None, spread: float | None) -> str:
    """Return the mean over the seeds, with the standard deviation if there are several."""
    return value(metric, mean) + (f" ± {value(metric, spread)}" if spread is not None else "")


def parameters(params: Mapping[str, Any]) -> str:
    """Return the parameters of a grid point on one line."""
    return ", ".join(parameter(name, given) for name, given in params.items()) or "all"


def parameter(name: str, given: Any) -> str:
    """Return a parameter with its value; a boolean as its name, or "no" and its name."""
    if isinstance(given, bool):
        return label(name) if given else f"no {label(name)}"
    return f"{label(name)} {plain_number(given)}"
