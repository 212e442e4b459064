"""Rows of a delimited text file (.csv, .tsv, .txt, also compressed), read in blocks of rows by `gramless.streaming.text`.

All columns except the target must be numeric, so the first line is a header if it has a string in one of these columns. If a
block has a value that is not numeric, the file is parsed again line by line, so that the error message can name the row.
"""

from __future__ import annotations

import csv
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless._core.missing_text import ALWAYS_MISSING, MISSING_NUMBERS
from gramless.streaming import text
from gramless.streaming.sources import TARGET_NAMES, RowBlock, Source, file_identity, is_number, rebatch, target_column
from gramless.streaming.tuning import TUNING

_MISSING = (*ALWAYS_MISSING, *MISSING_NUMBERS)


class CsvSource(Source):
    """Source of the rows of a delimited text file; `n_rows` is None, because counting the lines would read the full file."""

    def __init__(self, path: Path, target: str | int | None = None, piece_rows: int = TUNING.file_rows):
        self.path = path
        self.name = str(path)
        self.piece_rows = piece_rows
        self.delimiter = text.find_delimiter(path, text.DELIMITERS + " ")
        with text.open_text(path) as file:
            fields = next(csv.reader(file, delimiter=self.delimiter, skipinitialspace=True))
        self.has_header = _is_header(fields, target)
        self.names = [field.strip() for field in fields] if self.has_header else [f"column {i}" for i in range(len(fields))]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"{path} has two columns of the same name in its first line")
        if not self.has_header and target is None:
            raise ValueError(f"{path} has no header line: pass the position of the target column as y (-1 is the last)")
        self.target = target_column(self.names, target, path)

    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        return rebatch(self._pieces(), size, start)

    def _pieces(self) -> Iterator[RowBlock]:
        target = self.names[self.target]
        names = None if self.has_header else self.names
        numbers: bool | None = None
        try:
            for frame in text.frames(self.path, self.delimiter, self.piece_rows, strings=[target], names=names):
                frame.columns = self.names
                column = frame.pop(target)
                y = _numeric_targets(column, self.delimiter)
                # The first block determines whether targets are numbers: a later block may have only the labels "1" and "2".
                numbers = y is not None if numbers is None else numbers
                if any(kind.kind not in "iuf" for kind in frame.dtypes) or (numbers and y is None):
                    raise ValueError(f"{self.path} has a value that is not a number")
                X = frame.to_numpy(np.float64)
                if np.isnan(X).any() or column.isna().any():
                    self._check_row_lengths()
                yield X, y if numbers else column.to_numpy(dtype=object, na_value=None), None
        except ValueError as error:
            if isinstance(error.__cause__, OSError | EOFError | UnicodeDecodeError | zlib.error):
                raise
            raise ValueError(self._explain(str(error))) from error

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the fields of every row, without the header and empty lines."""
        with text.open_text(self.path) as file:
            lines = csv.reader(file, delimiter=self.delimiter, skipinitialspace=True)
            yield from itertools.islice(((lines.line_num, fields) for fields in lines if fields), int(self.has_header), None)

    def _check_row_lengths(self) -> None:
        """Raise ValueError if a row has too few fields: pandas would add missing values to the row without an error."""
        for index, (line, fields) in enumerate(self._lines()):
            if len(fields) != len(self.names):
                raise ValueError(self._wrong_width(index, line, fields))

    def _wrong_width(self, index: int, line: int, fields: list[str]) -> str:
        return f"{self.path}, row {index + 1} (line {line}) has {len(fields)} columns; the file has {len(self.names)}"

    def _explain(self, reason: str) -> str:
        """Return a message that names the first invalid row of the file, or `reason` if every row is valid."""
        text_target = None
        for index, (line, fields) in enumerate(self._lines()):
            row = f"{self.path}, row {index + 1} (line {line})"
            if len(fields) != len(self.names):
                return self._wrong_width(index, line, fields)
            for i, field in enumerate(fields):
                if i != self.target and not self._is_numeric(field) and field not in _MISSING:
                    return f"{row} has {field!r}{self._named(i)}, which is not a number"
            if text_target is None and not self._is_numeric(fields[self.target]):
                text_target = f"{row} has the target {fields[self.target]!r}, unlike the rows before it"
        return text_target or reason

    def _is_numeric(self, field: str) -> bool:
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


def _is_header(fields: list[str], target: str | int | None) -> bool:
    """Return whether the fields of the first line are column names: strings in columns other than the target."""
    strings = {i for i, field in enumerate(fields) if not is_number(field) and field not in _MISSING}
    if isinstance(target, str):
        return bool(strings)
    if target is not None:
        labels = {target % len(fields)}
    else:  # the target column is unknown: a single string among numbers is assumed to be a label
        labels = strings if len(strings) == 1 < len(fields) else set()
    return bool(strings - labels) or any(fields[i].strip() in TARGET_NAMES for i in strings)


def _numeric_targets(column: Any, separator: str) -> np.ndarray | None:
    """Return targets as integers if all of them are integers, else as floats; None if a target is not a number."""
    known = column.dropna()
    known = known[~known.isin(MISSING_NUMBERS)]
    numbers = text.as_numbers(known.astype(str), separator)
    if numbers is None:
        return None
    if len(known) == len(column) and known.str.fullmatch(r"\s*[+-]?\d{1,18}\s*").all():
        return known.to_numpy(dtype=object).astype(np.int64)
    return numbers.reindex(column.index).to_numpy(np.float64)
