"""Rows of a delimited text file (.csv, .tsv, .txt, also packed), read in pieces as `text` reads tables.

Whether the first line is a heading is found from what it says; every column but the target must be numbers. When a piece
has something else, the file is read again slowly up to the row at fault, so that the message can name it.
"""

from __future__ import annotations

import csv
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming import text
from gramless.streaming.columns import target_column
from gramless.streaming.sources import TARGET_NAMES, Rows, file_identity, is_number, rebatch

_MISSING = (*text.NOT_KNOWN, *text.GAPS)


class CsvSource:
    """A delimited text file."""

    n_rows = None  # counting lines would be a pass of its own
    repeatable = True

    def __init__(self, path: Path, target: str | int | None = None, piece_rows: int = 8192):
        self.path = path
        self.name = str(path)
        self.piece_rows = piece_rows
        self.delimiter = text.separator_of(path, text.MARKS + " ")
        with text.open_text(path) as file:
            fields = next(csv.reader(file, delimiter=self.delimiter, skipinitialspace=True))
        self.has_header = _is_header(fields, target)
        self.names = [field.strip() for field in fields] if self.has_header else [f"column {i}" for i in range(len(fields))]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"{path} has two columns of the same name in its first line")
        if not self.has_header and target is None:
            raise ValueError(
                f"{path} has no header line: say which column holds the targets with y=position (-1 is the last)"
            )
        self.target = target_column(self.names, target, path)

    def read(self, size: int, start: int) -> Iterator[Rows]:
        return rebatch(self._pieces(), size, start)

    def _pieces(self) -> Iterator[Rows]:
        target = self.names[self.target]
        names = None if self.has_header else self.names
        numbers: bool | None = None
        try:
            for frame in text.frames(self.path, self.delimiter, self.piece_rows, words=[target], names=names):
                frame.columns = self.names
                answers = frame.pop(target)
                y = _answers(answers, self.delimiter)
                # The first rows say what targets are: a piece of the labels "1", "2", "A" may look like numbers.
                numbers = y is not None if numbers is None else numbers
                if any(kind.kind not in "iuf" for kind in frame.dtypes) or (numbers and y is None):
                    raise ValueError(f"{self.path} has something that is not a number")
                X = frame.to_numpy(np.float64)
                if np.isnan(X).any() or answers.isna().any():
                    self._refuse_short_rows()
                yield X, y if numbers else answers.to_numpy(dtype=object, na_value=None), None
        except ValueError as refused:
            if isinstance(refused.__cause__, OSError | EOFError | UnicodeDecodeError | zlib.error):
                raise
            raise ValueError(self._explain(str(refused))) from refused

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Number and fields of every line that is a row: not the header, and not an empty one."""
        with text.open_text(self.path) as file:
            lines = csv.reader(file, delimiter=self.delimiter, skipinitialspace=True)
            yield from itertools.islice(((lines.line_num, fields) for fields in lines if fields), int(self.has_header), None)

    def _refuse_short_rows(self) -> None:
        """A row with too few fields reads as one with gaps at its end."""
        for index, (line, fields) in enumerate(self._lines()):
            if len(fields) != len(self.names):
                raise ValueError(self._wrong_width(index, line, fields))

    def _wrong_width(self, index: int, line: int, fields: list[str]) -> str:
        return f"{self.path}, row {index + 1} (line {line}) has {len(fields)} columns; the file has {len(self.names)}"

    def _explain(self, reason: str) -> str:
        """The row that was refused, in words."""
        text_target = None
        for index, (line, fields) in enumerate(self._lines()):
            row = f"{self.path}, row {index + 1} (line {line})"
            if len(fields) != len(self.names):
                return self._wrong_width(index, line, fields)
            for i, field in enumerate(fields):
                if i != self.target and not self._is_known_number(field) and field not in _MISSING:
                    return f"{row} has {field!r}{self._named(i)}, which is not a number"
            if text_target is None and not self._is_known_number(fields[self.target]):
                text_target = f"{row} has the target {fields[self.target]!r}, unlike the rows before it"
        return text_target or reason

    def _is_known_number(self, field: str) -> bool:
        return is_number(field) or (self.delimiter != "," and is_number(field.replace(",", ".")))

    def identity(self) -> tuple[Any, ...]:
        return (*file_identity("csv", self.path), self.target)

    def row(self, index: int) -> str:
        line, _ = next(itertools.islice(self._lines(), index, None))
        return f"{self.path}, row {index + 1} (line {line})"

    def column(self, index: int) -> str:
        return self._named(index + int(index >= self.target))

    def _named(self, column: int) -> str:
        return f" in column {self.names[column]!r}" if self.has_header else f" in column {column}"

    def peek(self, n: int) -> Rows:
        return next(self.read(n, 0), (np.empty((0, len(self.names) - 1)), np.empty(0), None))


def _is_header(fields: list[str], target: str | int | None) -> bool:
    """Whether a first line names the columns; a row has numbers in all of them but perhaps the target's."""
    words = {i for i, field in enumerate(fields) if not is_number(field) and field not in _MISSING}
    if isinstance(target, str):
        return bool(words)
    if target is not None:
        labels = {target % len(fields)}
    else:  # nobody says which column it is: a single word among numbers is a label
        labels = words if len(words) == 1 < len(fields) else set()
    return bool(words - labels) or any(fields[i].strip() in TARGET_NAMES for i in words)


def _answers(column: Any, separator: str) -> np.ndarray | None:
    """Targets as numbers, whole ones as integers; None where one of them is none."""
    known = column.dropna()
    known = known[~known.isin(text.GAPS)]
    numbers = text.as_numbers(known.astype(str), separator)
    if numbers is None:
        return None
    if len(known) == len(column) and known.str.fullmatch(r"\s*[+-]?\d{1,18}\s*").all():
        return known.to_numpy(dtype=object).astype(np.int64)
    return numbers.reindex(column.index).to_numpy(np.float64)
