"""Numbers of one finished fit beside its metrics: read off its history or its confusion matrix.

A measure is called with a record and returns a number, or None where the record has none. `label` names it for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Protocol

Record = Mapping[str, Any]


class Measure(Protocol):
    """Anything that makes a number of a record and has a name for people."""

    @property
    def label(self) -> str: ...

    def __call__(self, record: Record) -> float | None: ...


@dataclass(frozen=True)
class StepsTo:
    """The first iteration at which the test error is at or below `error` percent."""

    error: float

    @property
    def label(self) -> str:
        return f"iterations to {self.error:g} % error"

    def __call__(self, record: Record) -> float | None:
        steps = [row["n_iter"] for row in record["history"] if row.get("error") is not None and row["error"] <= self.error]
        return float(steps[0]) if steps else None


@dataclass(frozen=True)
class SecondsPerStep:
    """The time of the fit divided by its iterations."""

    @property
    def label(self) -> str:
        return "seconds per iteration"

    def __call__(self, record: Record) -> float | None:
        return record["metrics"]["seconds"] / record["history"][-1]["n_iter"] if record["history"] else None


@dataclass(frozen=True)
class Fluctuation:
    """The standard deviation of the test error over the second half of the iterations at which it was measured."""

    @property
    def label(self) -> str:
        return "standard deviation of the test error over the second half of the fit"

    def __call__(self, record: Record) -> float | None:
        errors = [row["error"] for row in record["history"] if row.get("error") is not None]
        late = errors[len(errors) // 2 :]
        return stdev(late) if len(late) > 1 else None


@dataclass(frozen=True)
class ChangeSince:
    """How much the test error changed from iteration `n_iter` to the last one, in points, whatever the direction."""

    n_iter: int

    @property
    def label(self) -> str:
        return f"change of the test error after iteration {self.n_iter}"

    def __call__(self, record: Record) -> float | None:
        errors = {row["n_iter"]: row["error"] for row in record["history"] if row.get("error") is not None}
        return abs(errors[max(errors)] - errors[self.n_iter]) if self.n_iter in errors else None


@dataclass(frozen=True)
class TakenFor:
    """The percentage of the test rows of class `true` that were predicted as `predicted`."""

    true: str
    predicted: str

    @property
    def label(self) -> str:
        return f"{self.true} taken for {self.predicted}, %"

    def __call__(self, record: Record) -> float | None:
        confusion = record.get("confusion")
        if not confusion or not {self.true, self.predicted} <= set(confusion["labels"]):
            return None
        row = confusion["counts"][confusion["labels"].index(self.true)]
        return 100 * row[confusion["labels"].index(self.predicted)] / sum(row)
