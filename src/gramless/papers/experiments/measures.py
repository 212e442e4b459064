"""Measures: numbers computed from the record of a fit, in addition to the metrics in the record.

The comparisons of the claims name the functions of this module: `measure = ["late_mean", 100]` is `late_mean(100)`, and
`late_mean(100)(record)` is the number, or None if the record does not have the values that the measure needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from gramless.papers.experiments.results import Record


@dataclass(frozen=True)
class Measure:
    """Function of the record of a fit that returns a number, or None if the record does not have the required values.

    `metric` is the metric that the measure summarises over the iterations; the report shows the paper's value beside this
    metric. With `is_difference`, comparisons use the tolerance of a difference between two settings.
    """

    label: str
    compute: Callable[[Record], float | None]
    metric: str = ""
    is_difference: bool = False

    def __call__(self, record: Record) -> float | None:
        return self.compute(record)


def _measure(label: str, **fields: Any) -> Callable[[Callable[..., float | None]], Callable[..., Measure]]:
    """Return a decorator: a function `f(record, *arguments)` becomes `f(*arguments)`, which returns a `Measure`."""

    def decorate(function: Callable[..., float | None]) -> Callable[..., Measure]:
        return lambda *arguments: Measure(label.format(*arguments), lambda record: function(record, *arguments), **fields)

    return decorate


def _errors(record: Record) -> dict[int, float]:
    """Return the test error in percent by iteration."""
    return {row["n_iter"]: row["error"] for row in record["history"] if row.get("error") is not None}


def _late(record: Record, steps: int) -> list[float]:
    """Return the test errors of the last `steps` iterations; an empty list if the fit has fewer than `2 * steps`."""
    errors = _errors(record)
    last = max(errors, default=0)
    return [error for n_iter, error in errors.items() if n_iter > last - steps] if last >= 2 * steps else []


@_measure("error after iteration {}, %", metric="error")
def at_step(record: Record, n_iter: int) -> float | None:
    """Measure the test error at iteration `n_iter`."""
    return _errors(record).get(n_iter)


@_measure("mean error of the last {} iterations, %", metric="error")
def late_mean(record: Record, steps: int) -> float | None:
    """Measure the mean test error of the last `steps` iterations."""
    late = _late(record, steps)
    return fmean(late) if late else None


@_measure("mean error of the first {} iterations, %")
def early_mean(record: Record, steps: int) -> float | None:
    """Measure the mean test error of the first `steps` iterations, which is lower for solvers that converge faster."""
    errors = _errors(record)
    return fmean(errors[n] for n in errors if n <= steps) if max(errors, default=0) >= steps else None


@_measure("standard deviation of the test error over the last {} iterations, %")
def fluctuation(record: Record, steps: int) -> float | None:
    """Measure the standard deviation of the test error over the last `steps` iterations."""
    late = _late(record, steps)
    return stdev(late) if len(late) > 1 else None


@_measure("change of the test error after iteration {}, %")
def change_since(record: Record, n_iter: int) -> float | None:
    """Measure the absolute change of the test error from iteration `n_iter` to the last iteration."""
    errors = _errors(record)
    return abs(errors[max(errors)] - errors[n_iter]) if n_iter in errors else None


@_measure("{} predicted as {}, %")
def confused_with(record: Record, true: str, predicted: str) -> float | None:
    """Measure the percentage of the test rows of class `true` that were predicted as `predicted`."""
    return _shares(record).get((true, predicted))


@_measure("confusion of {} and {} beyond any other, %", is_difference=True)
def lead_of_pair(record: Record, *pair: str) -> float | None:
    """Measure the smaller of the two confusion rates within a pair of classes minus the largest rate of any other pair."""
    errors = {classes: share for classes, share in _shares(record).items() if classes[0] != classes[1]}
    own = [errors.pop(classes) for classes in (pair, pair[::-1]) if classes in errors]
    return min(own) - max(errors.values()) if own else None


@_measure("error of {}, %")
def class_error(record: Record, name: str) -> float | None:
    """Measure the percentage of the test rows of a class that were misclassified."""
    right = _shares(record).get((name, name))
    return None if right is None else 100 - right


@_measure("error of all digits minus that of {}, percentage points", is_difference=True)
def easier_by(record: Record, name: str) -> float | None:
    """Measure the balanced error of all classes minus the error of one class, in percentage points."""
    error = class_error(name)(record)
    return None if error is None else record["metrics"]["balanced_error"] - error


@_measure("error of the final prediction, %")
def error_of_final_prediction(record: Record) -> float | None:
    """Measure the error of the final prediction: the vote in one-vs-one, the most probable class in one-vs-rest."""
    return record["metrics"].get("error" if record["params"]["strategy"] == "ovo" else "error_of_probabilities")


@_measure("CPU seconds for 26 classes over CPU seconds for two")
def cost_of_classes(record: Record) -> float | None:
    """Measure the CPU time to solve the equations for all classes, divided by the CPU time for two classes."""
    metrics = record["metrics"]
    return metrics["solution_seconds"] / metrics["two_class_seconds"] if "two_class_seconds" in metrics else None


@_measure("change of the training error (fraction) over the steps")
def training_error_change(record: Record) -> float | None:
    """Measure the change of the training error from the first to the last step."""
    return _change(record, "training_error")


@_measure("change of the test error over the steps, percentage points", is_difference=True)
def test_error_change(record: Record) -> float | None:
    """Measure the change of the test error from the first to the last step."""
    return _change(record, "error")


def _change(record: Record, key: str) -> float | None:
    course = [row[key] for row in record["history"] if key in row]
    return course[-1] - course[0] if course else None


def _shares(record: Record) -> dict[tuple[str, ...], float]:
    """Return the confusion matrix in percent of the rows of each true class, as a dict by true and predicted class."""
    confusion = record.get("confusion") or {"labels": (), "counts": ()}
    names: Sequence[str] = confusion["labels"]
    return {
        (true, predicted): 100 * count / max(1, sum(row))
        for true, row in zip(names, confusion["counts"], strict=True)
        for predicted, count in zip(names, row, strict=True)
    }
