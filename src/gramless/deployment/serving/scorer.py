"""What a server needs of a model: the columns it takes, and scores for a table of them.

Rows arrive as JSON, CSV or Arrow and are checked against the columns (`gramless.deployment.serving.bodies`); a scorer then
sees arrays
only: float64 with NaN for numbers, objects with NaN for words, datetime64 for dates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Table = dict[str, np.ndarray]


class RequestError(Exception):
    """A request that cannot be answered: the status of the answer, and a sentence that says why."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Column:
    """One input of a model.

    Parameters
    ----------
    name : str
    kind : {"number", "word", "date"}
    typical : object
        Stands for "nothing special": the median, or the most common word; None where nothing is known.
    low, high : object
        Ends of what training saw; None where that is not known, and for words.
    levels : tuple of str
        The words that training saw.
    gaps : bool
        Whether a value may be missing.
    """

    name: str
    kind: str
    typical: Any = None
    low: Any = None
    high: Any = None
    levels: tuple[str, ...] = ()
    gaps: bool = True

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, without what is not known."""
        known = {"typical": self.typical, "low": self.low, "high": self.high, "levels": list(self.levels) or None}
        return {
            "name": self.name,
            "kind": self.kind,
            "gaps": self.gaps,
            **{key: value for key, value in known.items() if value is not None},
        }


@dataclass(frozen=True)
class Scores:
    """Answers for some rows: predictions, and what else the model knows about them."""

    predictions: np.ndarray
    probabilities: np.ndarray | None = None
    intervals: np.ndarray | None = None
    novel: np.ndarray | None = None

    def rows(self, start: int, stop: int) -> Scores:
        """The answers for some of the rows."""
        parts = (self.predictions, self.probabilities, self.intervals, self.novel)
        return Scores(*(None if part is None else part[start:stop] for part in parts))  # type: ignore[arg-type]


class Scorer(Protocol):
    """A model that can be served."""

    task: str
    columns: Sequence[Column]
    classes: list[Any] | None
    about: dict[str, Any]

    def score(self, table: Table) -> Scores:
        """Answers for every row of a table with the model's columns."""
        ...


@dataclass(frozen=True)
class Moved:
    """Which inputs moved a prediction: how it changes when one of them has its typical value, largest first."""

    changes: list[tuple[str, float]] = field(default_factory=list)


def row_count(table: Table) -> int:
    """Rows of a table."""
    return len(next(iter(table.values())))


def with_typical(table: Table, columns: Sequence[Column]) -> tuple[Table, list[Column]]:
    """The rows, and below them the rows again for each column, in which that column has its typical value.

    Columns without a typical value are passed over.
    """
    n = row_count(table)
    varied = [column for column in columns if column.typical is not None]
    out = {name: np.tile(values, 1 + len(varied)) for name, values in table.items()}
    for place, column in enumerate(varied, start=1):
        values = out[column.name]
        typical = np.datetime64(column.typical, "us") if column.kind == "date" else column.typical
        values[place * n : (place + 1) * n] = typical
    return out, varied


def moved_by(scores: Scores, varied: Sequence[Column], n: int, classes: list[Any] | None) -> list[Moved]:
    """For each of the first `n` rows what each column did: the predicted class's probability, or the value, with the
    column's own value minus that with its typical one.
    """
    if classes is None:
        own = np.asarray(scores.predictions[:n], dtype=np.float64)
        others = np.asarray(scores.predictions[n:], dtype=np.float64).reshape(len(varied), n)
    elif scores.probabilities is not None:
        best = scores.probabilities[:n].argmax(axis=1)
        rows = np.arange(n)
        own = scores.probabilities[rows, best]
        others = scores.probabilities[n:].reshape(len(varied), n, -1)[:, rows, best]
    else:
        return [Moved() for _ in range(n)]
    found = []
    for row in range(n):
        changes = [(column.name, float(own[row] - others[k, row])) for k, column in enumerate(varied)]
        found.append(Moved(sorted(changes, key=lambda change: -abs(change[1]))))
    return found
