"""Interface between a server and a model: the input columns, and the scores of a table with these columns.

A table is a dict of arrays, one per column: float64 with NaN for numbers, objects with NaN for categories and texts,
datetime64 with NaT for dates. `gramless.deployment.serving.requests` validates the rows of a request and converts them
to a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np

Table = dict[str, np.ndarray]


class RequestError(Exception):
    """Error of a request, with the reason and the HTTP status of the response."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class InputColumn:
    """Input column of a model, with the median or mode, the range and the categories of its training values if known.

    `format` is the format of numbers or dates in strings, as in `TableColumns.formats_`; "" for plain numbers and ISO dates.
    """

    name: str
    kind: Literal["number", "category", "date", "text"]
    typical: Any = None
    low: Any = None
    high: Any = None
    levels: tuple[str, ...] = ()
    allows_missing: bool = True
    format: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the column as a JSON object without the fields that are unknown."""
        return {
            key: value for key, value in asdict(self).items() if value not in (None, ()) and (key, value) != ("format", "")
        }


@dataclass(frozen=True)
class Scores:
    """Predictions for the rows of a table, with probabilities, intervals and novelty flags if the model computes them.

    `unusual` lists, for each row, the columns with values outside of the training range or with unseen categories.
    """

    predictions: np.ndarray
    probabilities: np.ndarray | None = None
    intervals: np.ndarray | None = None
    novel: np.ndarray | None = None
    unusual: list[list[dict[str, str]]] | None = None

    def rows(self, start: int, stop: int) -> Scores:
        """Return the scores of the rows from `start` to `stop`."""
        parts: dict[str, Any] = {key: None if part is None else part[start:stop] for key, part in vars(self).items()}
        return Scores(**parts)


class Scorer(Protocol):
    """Interface of a model that can be served; `about` is a JSON object that describes the training of the model."""

    task: str
    columns: Sequence[InputColumn]
    classes: list[Any] | None
    about: dict[str, Any]

    def score(self, table: Table) -> Scores:
        """Return the scores of a table that has the columns of the model."""
        ...


def row_count(table: Table) -> int:
    """Return the number of rows of a table."""
    return len(next(iter(table.values())))


def with_typical_values(table: Table, columns: Sequence[InputColumn]) -> tuple[Table, list[InputColumn]]:
    """Append, for each column with a typical value, a copy of all rows with this column set to its typical value."""
    n = row_count(table)
    varied = [column for column in columns if column.typical is not None]
    extended = {name: np.tile(values, 1 + len(varied)) for name, values in table.items()}
    for k, column in enumerate(varied, start=1):
        typical = np.datetime64(column.typical, "us") if column.kind == "date" else column.typical
        extended[column.name][k * n : (k + 1) * n] = typical
    return extended, varied


def effects_of_columns(task: str, scores: Scores, varied: Sequence[InputColumn], n: int) -> list[list[dict[str, Any]]]:
    """Return the effect of each column on the first `n` predictions, sorted by decreasing absolute value.

    The effect is the difference between the prediction (for a classifier, the probability of the predicted class) and the
    prediction with the typical value of the column. `scores` are the scores of the table returned by `with_typical_values`.
    For a classifier without probabilities, the lists of effects are empty.
    """
    if scores.probabilities is not None:
        best, rows = scores.probabilities[:n].argmax(axis=1), np.arange(n)
        values = scores.probabilities.reshape(1 + len(varied), n, -1)[:, rows, best]
    elif task == "regression":
        values = np.asarray(scores.predictions, dtype=np.float64).reshape(1 + len(varied), n)
    else:
        return [[] for _ in range(n)]
    changes = (values[0] - values[1:]).T.tolist()
    return [
        sorted(
            ({"column": column.name, "change": change} for column, change in zip(varied, row, strict=True)),
            key=lambda effect: -abs(effect["change"]),
        )
        for row in changes
    ]
