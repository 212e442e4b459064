"""Numbers, metrics and parameters as text, and the setting that represents an experiment.

The headline of an experiment is one setting, with the mean and standard deviation of its test error over the seeds: the
declared one, else the one with the smallest cross-validated error, else the one with the smallest mean test error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.papers.experiments.declarations import Reference, Spec
from gramless.papers.experiments.results import Point, Record, contains, points

LABELS = {
    "error": "test error, %",
    "accuracy": "test accuracy, %",
    "balanced_error": "balanced error, %",
    "balanced_accuracy": "balanced accuracy, %",
    "train_accuracy": "training accuracy, %",
    "cv_error": "cross-validated error, %",
    "cv_accuracy": "cross-validated accuracy, %",
    "seconds": "seconds to fit",
    "cpu_seconds": "processor seconds to fit",
    "predict_seconds": "seconds to predict",
    "feature_seconds": "seconds for features",
    "peak_mb": "peak memory, MB",
    "n_iter": "iteration",
    "residual": "relative residual",
    "error_of_probabilities": "error of the most probable class, %",
    "kernel_error": "kernel error, %",
    "violation_share": "discarded patterns that would return, %",
    "c_times_L_squared": "c L²",
    "landmarks": "landmark rule",  # the label of n_landmarks is "landmarks"
}
PERCENTAGES = {name for name, label in LABELS.items() if label.endswith("%")}

CHOSEN_ON_THE_TEST_ROWS = "smallest mean error on the test rows, which is optimistic"
CHOSEN_BY_CROSS_VALIDATION = "smallest cross-validated error on the training rows"
THE_ONLY_ONE = "the only setting"


@dataclass(frozen=True)
class Headline:
    """Point that represents an experiment, and how it was chosen."""

    point: Point
    chosen: str


def headline(spec: Spec, records: Iterable[Record], where: Mapping[str, Any] | None = None) -> Headline | None:
    """Return the headline of the fits, or of those that have the parameters `where`."""
    candidates = [point for point in points(records) if contains(point.params, where or {}) and point.values("error")]
    if not candidates:
        return None
    declared = [one for one in candidates if spec.headline is not None and contains(one.params, spec.headline)]
    if declared and (spec.headline_reason or len(candidates) > 1):
        return Headline(declared[0], spec.headline_reason)
    if len(candidates) == 1:
        return Headline(candidates[0], THE_ONLY_ONE)
    validated = [point for point in candidates if point.values("cv_error")]
    if validated:
        return Headline(min(validated, key=lambda point: point.mean("cv_error") or 0.0), CHOSEN_BY_CROSS_VALIDATION)
    return Headline(min(candidates, key=lambda point: point.mean("error") or 0.0), CHOSEN_ON_THE_TEST_ROWS)


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Return the items by key, in order of appearance."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def varying_among(grid: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the parameters that differ between points of a grid, or that some points lack."""
    keys = dict.fromkeys(key for params in grid for key in params)
    return tuple(key for key in keys if len({repr(params[key]) if key in params else None for params in grid}) > 1)


def paper_value(references: Iterable[Reference], params: Mapping[str, Any], metric: str) -> Reference | None:
    """Return the paper's value for these parameters, the most specific one if several match."""
    matching = [r for r in references if r.metric == metric and r.matches(params)]
    return max(matching, key=lambda reference: len(reference.params), default=None)


def name_of(params: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the name of a series: strings as they are, numbers with the name of their parameter."""
    given = [(key, params[key]) for key in keys if params.get(key) is not None]
    return ", ".join(v.replace("_", " ") if isinstance(v, str) else parameter(key, v) for key, v in given)


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
    return f"{number:,.0f}" if key == "peak_mb" else plain_number(number)


def plain_number(number: Any) -> str:
    """Return integers in full and other numbers with three significant digits; other values as text."""
    if isinstance(number, str):
        return number.replace("_", " ")
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return str(number)
    if abs(number) < 1e6 and (number == int(number) or abs(number) >= 1000):
        return f"{number:,.0f}"
    return f"{number:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def duration(seconds: float) -> str:
    """Return seconds with a unit of suitable size."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is one."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def date(seconds: float) -> str:
    """Return the day of a time in seconds since 1970, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def memory(megabytes: float) -> str:
    """Return megabytes, or gigabytes from 1,000 MB on."""
    return f"{megabytes:,.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.2f} GB"


def mean_and_spread(metric: str, point: Point) -> str:
    """Return the mean of a metric over the seeds, with the standard deviation if there are several."""
    spread = point.spread(metric)
    return value(metric, point.mean(metric)) + (f" ± {value(metric, spread)}" if spread is not None else "")


def setting(given: Any) -> str:
    """Return the value of a parameter as a cell of a table."""
    if isinstance(given, bool):
        return "yes" if given else "no"
    return "–" if given is None else plain_number(given)


def parameters(params: Mapping[str, Any]) -> str:
    """Return the parameters of a grid point on one line."""
    return ", ".join(parameter(name, given) for name, given in params.items()) or "all"


def parameter(name: str, given: Any) -> str:
    """Return a parameter with its value; a boolean as its name, or "no" and its name."""
    if isinstance(given, bool):
        return label(name) if given else f"no {label(name)}"
    return f"{label(name)} {plain_number(given)}"
