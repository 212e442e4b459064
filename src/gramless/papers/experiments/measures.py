"""Measures: numbers computed from the record of a fit, beyond its metrics.

The comparisons of the claims name the functions of this module: `measure = ["late_mean", 100]` is `late_mean(100)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from gramless.papers.experiments.results import Record

Errors = dict[int, float]
"""Test error in percent by iteration."""


@dataclass(frozen=True)
class Measure:
    """Number computed from a record, or None if the record does not have the values that it needs.

    `metric` is the metric whose course it summarises, with which the report shows the paper's value. The tolerance of a
    difference is that of two settings.
    """

    label: str
    compute: Callable[[Record], float | None]
    metric: str = ""
    is_difference: bool = False

    def __call__(self, record: Record) -> float | None:
        return self.compute(record)


def at_step(n_iter: int) -> Measure:
    """Return the measure of the test error at iteration `n_iter`."""
    return _of_errors(f"error after iteration {n_iter}, %", lambda errors: errors.get(n_iter), "error")


def late_mean(steps: int) -> Measure:
    """Return the measure of the mean test error of the last iterations; None if there are less than twice as many."""
    return _of_errors(
        f"mean error of the last {steps} iterations, %",
        lambda errors: fmean(_late(errors, steps)) if _late(errors, steps) else None,
        "error",
    )


def early_mean(steps: int) -> Measure:
    """Return the measure of the mean test error of the first iterations, which is lower the faster a solver converges."""
    return _of_errors(
        f"mean error of the first {steps} iterations, %",
        lambda errors: fmean(errors[n] for n in errors if n <= steps) if max(errors) >= steps else None,
    )


def fluctuation(steps: int) -> Measure:
    """Return the measure of the standard deviation of the test error over the last iterations."""
    return _of_errors(
        f"standard deviation of the test error over the last {steps} iterations, %",
        lambda errors: stdev(_late(errors, steps)) if len(_late(errors, steps)) > 1 else None,
    )


def change_since(n_iter: int) -> Measure:
    """Return the measure of the absolute change of the test error from iteration `n_iter` to the last one."""
    return _of_errors(
        f"change of the test error after iteration {n_iter}, %",
        lambda errors: abs(errors[max(errors)] - errors[n_iter]) if n_iter in errors else None,
    )


def _of_errors(label: str, compute: Callable[[Errors], float | None], metric: str = "") -> Measure:
    def from_history(record: Record) -> float | None:
        errors = {row["n_iter"]: row["error"] for row in record["history"] if row.get("error") is not None}
        return compute(errors) if errors else None

    return Measure(label, from_history, metric)


def _late(errors: Errors, steps: int) -> list[float]:
    last = max(errors)
    return [error for n_iter, error in errors.items() if n_iter > last - steps] if last >= 2 * steps else []


def confused_with(true: str, predicted: str) -> Measure:
    """Return the measure of the percentage of the test rows of class `true` that were predicted as `predicted`."""
    return Measure(f"{true} predicted as {predicted}, %", lambda record: _shares(record).get((true, predicted)))


def lead_of_pair(*pair: str) -> Measure:
    """Return the measure of the smaller confusion of a pair of classes minus the largest of all other pairs, in percent."""

    def lead(record: Record) -> float | None:
        errors = {classes: share for classes, share in _shares(record).items() if classes[0] != classes[1]}
        own = [errors.pop(classes) for classes in (pair, pair[::-1]) if classes in errors]
        return min(own) - max(errors.values()) if own else None

    return Measure(f"confusion of {' and '.join(pair)} beyond any other, %", lead, is_difference=True)


def class_error(name: str) -> Measure:
    """Return the measure of the percentage of the test rows of a class that were misclassified."""

    def error(record: Record) -> float | None:
        right = _shares(record).get((name, name))
        return None if right is None else 100 - right

    return Measure(f"error of {name}, %", error)


def easier_by(name: str) -> Measure:
    """Return the measure of the error of all classes minus that of one class, in percentage points."""

    def difference(record: Record) -> float | None:
        error = class_error(name)(record)
        return None if error is None else record["metrics"]["balanced_error"] - error

    return Measure(f"error of all digits minus that of {name}, percentage points", difference, is_difference=True)


def error_of_final_prediction() -> Measure:
    """Return the measure of the error of votes in one-vs-one, and of the most probable class in one-vs-rest."""

    def error(record: Record) -> float | None:
        return record["metrics"].get("error" if record["params"]["strategy"] == "ovo" else "error_of_probabilities")

    return Measure("error of the final prediction, %", error)


def cost_of_classes() -> Measure:
    """Return the measure of the time to solve the equations for all classes, relative to two classes."""

    def factor(record: Record) -> float | None:
        metrics = record["metrics"]
        return metrics["solution_seconds"] / metrics["two_class_seconds"] if "two_class_seconds" in metrics else None

    return Measure("CPU seconds for 26 classes over CPU seconds for two", factor)


def training_error_change() -> Measure:
    """Return the measure of the change of the training error from the first to the last step."""
    return Measure("change of the training error (fraction) over the steps", _change_of("training_error"))


def test_error_change() -> Measure:
    """Return the measure of the change of the test error from the first to the last step."""
    label = "change of the test error over the steps, percentage points"
    return Measure(label, _change_of("error"), is_difference=True)


def _change_of(key: str) -> Callable[[Record], float | None]:
    def change(record: Record) -> float | None:
        course = [row[key] for row in record["history"] if key in row]
        return course[-1] - course[0] if course else None

    return change


def _shares(record: Record) -> dict[tuple[str, ...], float]:
    """Return the confusion matrix of a record in percent of the true classes, by true and predicted class."""
    confusion = record.get("confusion") or {"labels": (), "counts": ()}
    names: Sequence[str] = confusion["labels"]
    return {
        (true, predicted): 100 * count / max(1, sum(row))
        for true, row in zip(names, confusion["counts"], strict=True)
        for predicted, count in zip(names, row, strict=True)
    }
