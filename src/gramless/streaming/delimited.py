"""Rows of a delimited text file (.csv, .tsv, .txt, also gzipped), parsed block by block.

The header, where the first line is one, and the delimiter are found from the first line; every column but the target must
be numbers. Arrow parses without Python's lock, so reading ahead costs the computation little. When it refuses a block, the
file is read again slowly up to the row at fault, so that the message can name it.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.columns import import_pyarrow, matrix, target_column
from gramless.streaming.sources import TARGET_NAMES, Rows, file_identity, is_number, rebatch

_DELIMITERS = (",", ";", "\t", " ")
_BLOCK_BYTES = 4 << 20
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")


class CsvSource:
    """A delimited text file."""

    n_rows = None  # counting lines would be a pass of its own
    repeatable = True

    def __init__(self, path: Path, target: str | int | None = None):
        self.path = path
        self.name = str(path)
        with self._open() as file:
            first = file.readline().rstrip("\r\n")
        if not first:
            raise ValueError(f"{path} is empty, or begins with an empty line")
        self.delimiter = max(_DELIMITERS, key=first.count)
        fields = next(csv.reader([first], delimiter=self.delimiter))
        self.has_header = _is_header(fields, target)
        self.names = fields if self.has_header else [f"column {i}" for i in range(len(fields))]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"{path} has two columns of the same name in its first line")
        if not self.has_header and target is None:
            raise ValueError(
                f"{path} has no header line: say which column holds the targets with y=position (-1 is the last)"
            )
        self.target = target_column(self.names, target, path)

    def _open(self) -> Any:
        if self.path.name.endswith(".gz"):
            return gzip.open(self.path, "rt", encoding="utf-8", newline="")
        return open(self.path, encoding="utf-8", newline="")

    def read(self, size: int, start: int) -> Iterator[Rows]:
        # Arrow skips the first rows without converting them, so nothing is left for `rebatch` to skip.
        return rebatch(self._pieces(start), size, 0)

    def _pieces(self, start: int) -> Iterator[Rows]:
        arrow, reader = import_pyarrow("pyarrow"), import_pyarrow("pyarrow.csv")
        features = {name: arrow.float64() for i, name in enumerate(self.names) if i != self.target}
        try:
            table = reader.open_csv(
                self.path,
                reader.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK_BYTES,
                    column_names=self.names,
                    skip_rows=int(self.has_header),
                    skip_rows_after_names=start,
                ),
                reader.ParseOptions(delimiter=self.delimiter),
                reader.ConvertOptions(column_types=features, null_values=list(_MISSING), strings_can_be_null=True),
            )
            for block in table:
                X, y = matrix(block, self.target)
                yield X, y, None
        except arrow.ArrowInvalid as error:
            if "Empty CSV file" in str(error) and start:
                return  # every row was skipped
            raise ValueError(self._explain(str(error), start)) from error

    def _explain(self, reason: str, start: int) -> str:
        """The row that Arrow refused, in words."""
        text_target = None
        with self._open() as file:
            for index, fields in enumerate(csv.reader(file, delimiter=self.delimiter)):
                row = index - int(self.has_header)
                if row < start or not fields:
                    continue
                if len(fields) != len(self.names):
                    return f"{self.row(row)} has {len(fields)} columns; the file has {len(self.names)}"
                for i, field in enumerate(fields):
                    if i != self.target and not is_number(field) and field not in _MISSING:
                        return f"{self.row(row)} has {field!r}{self._named(i)}, which is not a number"
                if text_target is None and not is_number(fields[self.target]):
                    text_target = f"{self.row(row)} has the target {fields[self.target]!r}, unlike the rows before it"
        return text_target or f"{self.path} cannot be read: {reason}"

    def identity(self) -> tuple[Any, ...]:
        return (*file_identity("csv", self.path), self.target)

    def row(self, index: int) -> str:
        return f"{self.path}, row {index + 1} (line {index + 1 + int(self.has_header)})"

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
    return bool(words - labels) or any(fields[i] in TARGET_NAMES for i in words)
