"""The claims of a paper, the comparisons that test them on the records of finished fits, and the verdicts.

A claim is reproduced ("yes") if all of its comparisons hold, "partly" if only a subset holds, and "no" if none holds. A
comparison takes the mean over the seeds of one setting and a value of the paper or the mean of another setting on the same
device. Unless a comparison declares a tolerance, the tolerance is

- against a value of the paper: one standard error of a proportion of the test rows, sqrt(p (100 - p) / n) percent for a
  value of p percent on n rows;
- against another setting: one standard deviation of that setting over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Protocol

from gramless.papers.experiments.results import Point, Record, contains, points

ByExperiment = Mapping[tuple[str, str], Sequence[Record]]
"""Records by paper and experiment."""

RELATIONS = ("near", "below", "above", "at most", "at least")
VERDICTS = ("yes", "partly", "no", "not run", "not tested")


class Measure(Protocol):
    """Function that computes a number from a record, or returns None if the record does not have the values it needs."""

    @property
    def label(self) -> str: ...

    def __call__(self, record: Record) -> float | None: ...


@dataclass(frozen=True)
class StepsTo:
    """The first iteration at which the test error is at most `error` percent."""

    error: float

    @property
    def label(self) -> str:
        return f"iterations to {self.error:g} % error"

    def __call__(self, record: Record) -> float | None:
        return next((float(n_iter) for n_iter, error in _errors(record).items() if error <= self.error), None)


@dataclass(frozen=True)
class SecondsPerStep:
    """The time of the fit divided by the number of iterations."""

    label = "seconds per iteration"

    def __call__(self, record: Record) -> float | None:
        return record["metrics"]["seconds"] / record["history"][-1]["n_iter"] if record["history"] else None


@dataclass(frozen=True)
class Fluctuation:
    """The standard deviation of the test error over the second half of the iterations at which it was measured."""

    label = "standard deviation of the test error over the second half of the fit"

    def __call__(self, record: Record) -> float | None:
        errors = list(_errors(record).values())
        late = errors[len(errors) // 2 :]
        return stdev(late) if len(late) > 1 else None


@dataclass(frozen=True)
class ChangeSince:
    """The absolute change of the test error, in percentage points, from iteration `n_iter` to the last iteration."""

    n_iter: int

    @property
    def label(self) -> str:
        return f"change of the test error after iteration {self.n_iter}"

    def __call__(self, record: Record) -> float | None:
        errors = _errors(record)
        return abs(errors[max(errors)] - errors[self.n_iter]) if self.n_iter in errors else None


@dataclass(frozen=True)
class ConfusedWith:
    """The percentage of the test rows of class `true` that were predicted as `predicted`."""

    true: str
    predicted: str

    @property
    def label(self) -> str:
        return f"{self.true} predicted as {self.predicted}, %"

    def __call__(self, record: Record) -> float | None:
        confusion = record.get("confusion")
        if not confusion or not {self.true, self.predicted} <= set(confusion["labels"]):
            return None
        row = confusion["counts"][confusion["labels"].index(self.true)]
        return 100 * row[confusion["labels"].index(self.predicted)] / sum(row)


def _errors(record: Record) -> dict[int, float]:
    """Return the test error by iteration."""
    return {row["n_iter"]: row["error"] for row in record["history"] if row.get("error") is not None}


@dataclass(frozen=True)
class Comparison:
    """Condition of a claim: the setting `one` of an experiment stands in `relation` to `other`.

    `other` is a value of the paper, or the parameters of another setting of `other_experiment` (by default of the same
    experiment). With `along`, the two are compared at each value of that parameter. With `factor`, the ratio of the two is
    compared with `factor`; otherwise their difference is compared with 0. `within` is the tolerance.
    """

    experiment: str
    one: Mapping[str, Any]
    relation: str
    other: Mapping[str, Any] | float
    measure: str | Measure = "error"
    along: str | None = None
    factor: float | None = None
    within: float | None = None
    other_experiment: str | None = None

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"unknown relation {self.relation!r}; known are {', '.join(RELATIONS)}")

    def holds(self, gap: float, tolerance: float) -> bool:
        """Return True if the difference, or the ratio minus `factor`, satisfies the relation."""
        return {
            "near": abs(gap) <= tolerance,
            "below": gap < -tolerance,
            "above": gap > tolerance,
            "at most": gap <= tolerance,
            "at least": gap >= -tolerance,
        }[self.relation]


@dataclass(frozen=True)
class Claim:
    """Paraphrased claim of a paper, its place in the paper, and the comparisons that test it (possibly none)."""

    name: str
    statement: str
    where: str
    comparisons: tuple[Comparison, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Check:
    """Result of one comparison at one value of `along` on one device."""

    comparison: Comparison
    one: Point
    other: Point | float
    at: Any
    tolerance: float

    @property
    def measured(self) -> float:
        """Return the mean of our setting."""
        return _mean(self.one, self.comparison.measure)

    @property
    def reference(self) -> float:
        """Return the value of the paper or the mean of the other setting."""
        return _mean(self.other, self.comparison.measure) if isinstance(self.other, Point) else self.other

    @property
    def gap(self) -> float:
        """Return the difference, or the ratio minus the factor of the comparison."""
        factor = self.comparison.factor
        return self.measured - self.reference if factor is None else self.measured / self.reference - factor

    @property
    def holds(self) -> bool:
        """Return True if the comparison holds."""
        return self.comparison.holds(self.gap, self.tolerance)


def check_claim(claim: Claim, paper: str, found: ByExperiment) -> tuple[str, list[Check]]:
    """Return the verdict on a claim, one of `VERDICTS`, and the checks from which it follows."""
    checks = [check for comparison in claim.comparisons for check in check_comparison(comparison, paper, found)]
    if not claim.comparisons:
        return "not tested", checks
    if not checks:
        return "not run", checks
    n_holding = sum(check.holds for check in checks)
    return "yes" if n_holding == len(checks) else "partly" if n_holding else "no", checks


def check_comparison(comparison: Comparison, paper: str, found: ByExperiment) -> list[Check]:
    """Return the checks of a comparison for which there are finished fits."""
    here = _points(comparison.experiment, paper, found)
    measure, along = comparison.measure, comparison.along or ""
    ones = [point for point in here if contains(point.params, comparison.one) and point.values(measure)]
    if not isinstance(comparison.other, Mapping):
        value = float(comparison.other)
        return [
            Check(comparison, one, value, one.params.get(along), _tolerance_of_value(comparison, value, one)) for one in ones
        ]
    there = here
    if comparison.other_experiment is not None:
        there = _points(comparison.other_experiment, paper, found)
    checks = []
    for one in ones:
        for other in there:
            comparable = other.device == one.device and contains(other.params, comparison.other) and other.values(measure)
            tolerance = comparison.within if comparison.within is not None else other.spread(measure)
            if comparable and tolerance is not None and other.params.get(along) == one.params.get(along):
                checks.append(Check(comparison, one, other, one.params.get(along), tolerance))
    return checks


def _points(experiment: str, paper: str, found: ByExperiment) -> list[Point]:
    """Return the successful fits of `name`, or of `paper/name`."""
    other_paper, _, name = experiment.rpartition("/")
    return points(record for record in found.get((other_paper or paper, name), ()) if record["status"] == "done")


def _tolerance_of_value(comparison: Comparison, value: float, point: Point) -> float:
    if comparison.within is not None:
        return comparison.within
    cross_validated = isinstance(comparison.measure, str) and comparison.measure.startswith("cv_")
    n_rows = point.records[0]["data"]["n_train" if cross_validated else "n_test"]
    return 100 * math.sqrt(max(value / 100 * (1 - value / 100), 0.0) / n_rows)


def _mean(point: Point, measure: str | Measure) -> float:
    mean = point.mean(measure)
    assert mean is not None, "the point of a check has no value of the measure"
    return mean
