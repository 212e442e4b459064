"""Delimited text (.csv, .tsv, .txt, .data; also packed by gzip or bzip2) as tables of numbers and words, in pieces.

A column is numbers when everything in it is one or says that it is missing; the decimal mark may be a comma where another
mark parts the columns. The C parser of pandas does the work without Python's lock, so reading ahead costs the computation
little.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.columns import import_reader

MARKS = ",;\t|"
# Missing wherever they stand; among numbers also the gaps, which are words in a column of words.
NOT_KNOWN = ("", "?", "NaN", "nan")
GAPS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none", "-", ".")


def separator_of(path: Path, marks: str = MARKS) -> str:
    """The mark that parts the columns: the one that makes most columns, equally many in each of the first lines."""
    try:
        with open_text(path) as file:
            lines = file.read(64_000).splitlines()[:50]
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as reason:
        raise ValueError(_why(path, reason)) from reason
    if not lines or not lines[0]:
        raise ValueError(f"{path} is empty, or begins with an empty line")
    counts = {}
    for mark in marks:
        try:
            found = {len(row) for row in csv.reader(lines[:-1] or lines, delimiter=mark, skipinitialspace=True) if row}
        except csv.Error:
            continue
        if len(found) == 1 and max(found) > 1:
            counts[mark] = max(found)
    return max(counts, key=lambda mark: counts[mark]) if counts else max(marks, key=lines[0].count)


def open_text(path: Path) -> io.TextIOBase:
    """The file as text, unpacked; a byte order mark is no part of it."""
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def frames(
    path: Path, separator: str, size: int | None, *, words: Collection[str] = (), names: Sequence[str] | None = None
) -> Iterator[Any]:
    """Pieces of at most `size` rows as pandas tables; None reads the file in one piece.

    Parameters
    ----------
    path : Path
        The file.
    separator : str
        What parts the columns.
    size : int or None
        Rows of a piece.
    words : collection of str
        Columns that are words whatever is in them: a piece of "01", "02", "2A" may look like numbers.
    names : sequence of str, optional
        Names of the columns of a file without a heading.

    Yields
    ------
    DataFrame
        The next rows, numbered from the first of the file.
    """
    pd = import_reader("pandas")
    options: dict[str, Any] = {
        "sep": separator,
        "encoding": "utf-8-sig",
        # Words that pandas would take for missing values ("None", "NA") are categories like any other here.
        "na_values": list(NOT_KNOWN),
        "keep_default_na": False,
        "skipinitialspace": True,
        "low_memory": False,
        "dtype": dict.fromkeys(words, str),
    }
    if names is not None:
        options |= {"names": list(names), "header": None}
    try:
        if names is None:
            _refuse_twins(path, separator)
        if size is None:
            yield _with_numbers(pd.read_csv(path, **options), separator, words, path)
            return
        with pd.read_csv(path, chunksize=size, **options) as reader:
            yield from (_with_numbers(frame, separator, words, path) for frame in reader)
    except pd.errors.EmptyDataError as reason:
        raise ValueError(f"{path} is empty") from reason
    except (pd.errors.ParserError, csv.Error, EOFError, OSError, UnicodeDecodeError, zlib.error) as reason:
        raise ValueError(_why(path, reason)) from reason


def _refuse_twins(path: Path, separator: str) -> None:
    """pandas would call the second of two columns of one name by another one, and so give away the target."""
    with open_text(path) as file:
        heading = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
    named = [name.strip() for name in heading if name.strip()]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has more than one column named {', '.join(map(repr, twice))}: rename them")


def as_numbers(known: Any, separator: str) -> Any | None:
    """A column of texts as numbers, or None where one of them is none."""
    pd = import_reader("pandas")
    if separator != "," and known.str.fullmatch(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?").all():
        known = known.str.replace(",", ".", regex=False)
    try:
        return pd.to_numeric(known).astype(np.float64)
    except (TypeError, ValueError):
        return None


def _with_numbers(frame: Any, separator: str, words: Collection[str], path: Path) -> Any:
    """The frame with those columns as numbers that pandas took for words because of their gaps or decimal commas."""
    pd = import_reader("pandas")
    if len(frame) and not isinstance(frame.index, pd.RangeIndex):
        # pandas takes what is too much for names of the rows, and every heading would stand over its neighbour's values.
        raise ValueError(f"{path}: rows have more values than the heading has names; name the columns that have no name")
    for name in frame.columns:
        column = frame[name]
        if name in words or pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            continue
        known = column.dropna().astype(str)
        known = known[~known.isin(GAPS)]
        if known.empty or as_numbers(known.iloc[:100], separator) is None:
            continue
        numbers = as_numbers(known, separator)
        if numbers is not None:
            frame[name] = numbers.reindex(column.index)
    return frame


def _why(path: Path, reason: Exception) -> str:
    if isinstance(reason, UnicodeDecodeError):
        return (
            f"{path} cannot be read as a table: it is not UTF-8 text. Save it again as UTF-8 (in Excel: CSV UTF-8), "
            "or convert it, as with iconv -f WINDOWS-1252 -t UTF-8"
        )
    return f"{path} cannot be read as a table: {str(reason).strip()}"
