"""Rows of a delimited text file (.csv, .tsv, .txt, also gzipped), parsed block by block.

The header, where the first line is one, and the delimiter are found from the first line; every column but the target must
be numbers. Arrow parses without Python's lock, so reading ahead costs the computation little. When it refuses a block, the
file is read again slowly up to the row at fault, so that the message can name it.
"""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.columns import import_pyarrow, matrix, target_column
from gramless.streaming.sources import TARGET_NAMES, Rows, file_identity, is_number, rebatch

_DELIMITERS = (",", ";", "\t", " ")
_BLOCK_BYTES = 4 << 20
_ROWS_AT_A_TIME = 8192
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
        self.names = [field.strip() for field in fields] if self.has_header else [f"column {i}" for i in range(len(fields))]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"{path} has two columns of the same name in its first line")
        if not self.has_header and target is None:
            raise ValueError(
                f"{path} has no header line: say which column holds the targets with y=position (-1 is the last)"
            )
        self.target = target_column(self.names, target, path)

    def _open(self) -> Any:
        # Spreadsheets mark UTF-8 with a byte order mark, which is no part of the first name or number.
        if self.path.name.endswith(".gz"):
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return open(self.path, encoding="utf-8-sig", newline="")

    def read(self, size: int, start: int) -> Iterator[Rows]:
        # Arrow could skip rows unread, but counts empty lines among them, which are none.
        return rebatch(self._pieces(), size, start)

    def _pieces(self) -> Iterator[Rows]:
        arrow = import_pyarrow("pyarrow")
        types = {name: arrow.float64() for i, name in enumerate(self.names) if i != self.target}
        seen, whole = 0, False
        try:
            for block in self._blocks(types):
                whole = arrow.types.is_integer(block.schema.field(self.target).type)
                yield *matrix(block, self.target), None
                seen += block.num_rows
            return
        except arrow.ArrowInvalid as error:
            refused = error
        if whole:
            # The first block's targets were whole numbers, and Arrow expects no others: here may come the first fraction.
            try:
                yield from rebatch(self._fractions(types), _ROWS_AT_A_TIME, seen)
                return
            except arrow.ArrowInvalid as error:
                refused = error
        raise ValueError(self._explain(str(refused))) from refused

    def _fractions(self, types: dict[str, Any]) -> Iterator[Rows]:
        arrow = import_pyarrow("pyarrow")
        for block in self._blocks({**types, self.names[self.target]: arrow.float64()}):
            yield *matrix(block, self.target), None

    def _blocks(self, types: dict[str, Any]) -> Any:
        reader = import_pyarrow("pyarrow.csv")
        return reader.open_csv(
            self.path,
            reader.ReadOptions(
                use_threads=False, block_size=_BLOCK_BYTES, column_names=self.names, skip_rows=int(self.has_header)
            ),
            reader.ParseOptions(delimiter=self.delimiter),
            reader.ConvertOptions(column_types=types, null_values=list(_MISSING), strings_can_be_null=True),
        )

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Number and fields of every line that is a row: not the header, and not an empty one."""
        with self._open() as file:
            lines = csv.reader(file, delimiter=self.delimiter)
            yield from itertools.islice(((lines.line_num, fields) for fields in lines if fields), int(self.has_header), None)

    def _explain(self, reason: str) -> str:
        """The row that Arrow refused, in words."""
        text_target = None
        for index, (line, fields) in enumerate(self._lines()):
            row = f"{self.path}, row {index + 1} (line {line})"
            if len(fields) != len(self.names):
                return f"{row} has {len(fields)} columns; the file has {len(self.names)}"
            for i, field in enumerate(fields):
                if i != self.target and not is_number(field) and field not in _MISSING:
                    return f"{row} has {field!r}{self._named(i)}, which is not a number"
            if text_target is None and not is_number(fields[self.target]):
                text_target = f"{row} has the target {fields[self.target]!r}, unlike the rows before it"
        return text_target or f"{self.path} cannot be read: {reason}"

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
