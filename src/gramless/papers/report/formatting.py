"""Conversion of numbers, metrics, parameters and claims to text, and choice of the setting that represents an experiment.

The headline of an experiment is one setting, with the mean and standard deviation of its test error over the seeds: the
declared setting, else the setting with the smallest cross-validated error, else the setting with the smallest mean error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.papers.experiments.claims import Check, ClaimResult
from gramless.papers.experiments.declarations import Comparison, Printed, Reference, Spec
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
    "landmarks": "landmark rule",  # not "landmarks", which is the label of n_landmarks
}
PERCENTAGES = {name for name, label in LABELS.items() if label.endswith("%")}

CHOSEN_ON_THE_TEST_ROWS = "smallest mean error on the test rows, which is optimistic"
CHOSEN_BY_CROSS_VALIDATION = "smallest cross-validated error on the training rows"
THE_ONLY_ONE = "the only setting"
_MOST_VALUES_SHOWN = 3  # largest number of measured values in the row of a claim; the comparisons list all values


@dataclass(frozen=True)
class Headline:
    """Setting (`point`) that represents an experiment, and how the setting was chosen."""

    point: Point
    chosen: str


def headline(spec: Spec, records: Iterable[Record], where: Mapping[str, Any] | None = None) -> Headline | None:
    """Return the headline of the fits whose parameters contain `where` (by default of all fits), or None without fits."""
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
    """Group items by key, in order of appearance."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def varying_among(grid: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the parameters that differ between points of a grid, or that some points lack."""
    keys = dict.fromkeys(key for params in grid for key in params)
    return tuple(key for key in keys if len({repr(params[key]) if key in params else None for params in grid}) > 1)


def paper_value(references: Iterable[Reference], params: Mapping[str, Any], metric: str) -> Reference | None:
    """Return the paper's value for these parameters; if several values match, the value with the most parameters."""
    matching = [r for r in references if r.metric == metric and contains(params, r.params)]
    return max(matching, key=lambda reference: len(reference.params), default=None)


def name_of(params: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the name of a line in a chart from parameter values: strings alone, numbers with the parameter name."""
    given = [(key, params[key]) for key in keys if params.get(key) is not None]
    return ", ".join(v.replace("_", " ") if isinstance(v, str) else parameter(key, v) for key, v in given)


def label(key: str) -> str:
    """Return the heading of a metric or a parameter."""
    return LABELS.get(key, key.removeprefix("n_").replace("_", " "))


def value(key: str, number: Any) -> str:
    """Return the value of a metric as text for a cell of a table."""
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
    """Return a time in seconds as text in milliseconds, seconds, minutes or hours."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is one."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def date(seconds: float) -> str:
    """Return the date in UTC of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def memory(megabytes: float) -> str:
    """Return a size in MB as text in MB, or in GB from 1,000 MB on."""
    return f"{megabytes:,.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.2f} GB"


def mean_and_spread(metric: str, point: Point) -> str:
    """Return the mean of a metric over the seeds as text, with the standard deviation if there are several seeds."""
    spread = point.spread(metric)
    return value(metric, point.mean(metric)) + (f" ± {value(metric, spread)}" if spread is not None else "")


def setting(given: Any) -> str:
    """Return the value of a parameter as text for a cell of a table."""
    if isinstance(given, bool):
        return "yes" if given else "no"
    return "–" if given is None else plain_number(given)


def parameters(params: Mapping[str, Any]) -> str:
    """Return the parameters of a grid point as one line of text."""
    return ", ".join(parameter(name, given) for name, given in params.items()) or "all"


def parameter(name: str, given: Any) -> str:
    """Return a parameter and its value as text; a boolean parameter is its name, preceded by "no" if it is False."""
    if isinstance(given, bool):
        return label(name) if given else f"no {label(name)}"
    return f"{label(name)} {plain_number(given)}"


# Claims


def claim_values(result: ClaimResult, paper: str) -> dict[str, Any]:
    """Return the values for a claim in the report: statement, printed and measured value, verdict, cause and comparisons."""
    claim, checks = result.claim, result.checks
    n_holding = sum(check.holds for check in checks)
    printed = list(dict.fromkeys(str(c.other) for c in claim.comparisons if isinstance(c.other, Printed)))
    return {
        "name": claim.name,
        "anchor": f"claim-{paper}-{claim.name}",
        "statement": claim.statement,
        "where": claim.where,
        "printed": claim.printed
        or (", ".join(printed[:_MOST_VALUES_SHOWN]) + _unit(claim.comparisons) if printed else "in words"),
        "ours": _ours(result),
        "verdict": result.verdict,
        "cause": str(result.cause) + (f" ({result.reading})" if result.verdict == "yes" and result.reading else ""),
        "reason": claim.reason,
        "count": f"{n_holding} of {len(checks)}" if result.verdict == "partly" else "",
        "command": f"gramless reproduce {paper} --claim {claim.name}",
        "estimator": checks[0].one.records[0].get("estimator", "") if checks else "",
        "checks": [_check_values(check) for check in checks],
    }


def _ours(result: ClaimResult) -> str:
    """Return the measured values of a claim, or if there are too many, the number of comparisons that hold."""
    checks = [check for check in result.checks if check.comparison.reading in ("", result.reading)] or list(result.checks)
    if not checks:
        return "–"
    if len(checks) > _MOST_VALUES_SHOWN:
        return f"{sum(check.holds for check in checks)} of {len(checks)} comparisons hold"
    return "; ".join(dict.fromkeys(_measured(check) for check in checks)) + _unit([check.comparison for check in checks])


def _unit(comparisons: Sequence[Comparison]) -> str:
    """Return the percent sign if all values of the comparisons are percentages, else an empty string."""
    return " %" if comparisons and all(_label(c).endswith("%") and c.factor is None for c in comparisons) else ""


def _label(comparison: Comparison) -> str:
    return label(comparison.measure) if isinstance(comparison.measure, str) else comparison.measure.label


def _measured(check: Check) -> str:
    """Return the measured value of a comparison, or for two measured settings both values or their ratio."""
    if not isinstance(check.other, Point):
        return _with_spread(check.one, check.comparison)
    if check.comparison.factor is not None:
        return f"{check.gap + check.comparison.factor:.3g} times"
    return f"{_with_spread(check.one, check.comparison)} against {_with_spread(check.other, check.comparison)}"


def _check_values(check: Check) -> dict[str, str]:
    comparison, factor = check.comparison, check.comparison.factor
    fits = [parameters(comparison.one)] if comparison.one else []
    if comparison.along is not None:
        fits.append(parameter(comparison.along, check.one.params.get(comparison.along)))
    if isinstance(check.other, Point):
        against, reference = "all fits", _with_spread(check.other, comparison)
        if isinstance(comparison.other, Mapping) and comparison.other:
            against = parameters(comparison.other)
    elif isinstance(check.other, Printed):
        against, reference = "the paper", str(check.other)
    else:
        against, reference = "the bound", value(comparison.metric, float(check.other))
    if comparison.other_experiment is not None:
        against = f"{comparison.other_experiment}, {against}"
    expected = comparison.relation + (f" {factor:.3g} times" if factor not in (None, 1.0) else "")
    return {
        "experiment": comparison.experiment,
        "reading": comparison.reading,
        "what": f"{_label(comparison)}: {', '.join(fits) or 'all fits'}",
        "device": check.one.device,
        "seeds": "none needed" if comparison.deterministic else str(check.n_seeds),
        "ours": _with_spread(check.one, comparison),
        "expected": f"{expected}, {against}",
        "theirs": reference,
        "gap": (f"{check.gap:+.3g}" if factor is None else f"ratio {check.gap + factor:.2f}").replace("-", "−"),
        "tolerance": f"{check.tolerance:.3g}",
        "holds": "yes" if check.holds else "no",
    }


def _with_spread(point: Point, comparison: Comparison) -> str:
    """Return mean and standard deviation as text; the deviation determines the digits unless the metric has a format."""
    metric = comparison.metric
    if metric in PERCENTAGES or metric.endswith("seconds"):
        return mean_and_spread(metric, point)
    mean, spread = point.mean(comparison.measure), point.spread(comparison.measure)
    if not mean or not spread:
        return value(metric, mean)
    # Show one significant digit of the standard deviation, or two digits if the first digit is 1.
    digits = max(0, -math.floor(math.log10(spread)) + (f"{spread:e}"[0] == "1"))
    return f"{mean:,.{digits}f} ± {spread:,.{digits}f}"
