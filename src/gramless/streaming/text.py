"""Delimited text (.csv, .tsv, .txt, .data; also compressed by gzip or bzip2), read in blocks of rows as data frames.

A column is numeric if all its values are numbers or missing. The decimal separator may be a comma if another character
separates the columns. The C parser of pandas releases Python's global lock, so reading ahead in a thread costs little time.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gramless._core.missing_text import ALWAYS_MISSING, MISSING_NUMBERS
from gramless.streaming.sources import import_reader

DELIMITERS = ",;\t|"


def find_delimiter(path: Path, candidates: str = DELIMITERS) -> str:
    """Return the delimiter that gives the most columns, of those that give the same number of columns in all first lines."""
    try:
        with open_text(path) as file:
            lines = file.read(64_000).splitlines()[:50]
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as reason:
        raise ValueError(_message(path, reason)) from reason
    if not lines or not lines[0]:
        raise ValueError(f"{path} is empty, or begins with an empty line")
    counts = {}
    for mark in candidates:
        try:
            found = {len(row) for row in csv.reader(lines[:-1] or lines, delimiter=mark, skipinitialspace=True) if row}
        except csv.Error:
            continue
        if len(found) == 1 and max(found) > 1:
            counts[mark] = max(found)
    return max(counts, key=lambda mark: counts[mark]) if counts else max(candidates, key=lines[0].count)


def open_text(path: Path) -> io.TextIOBase:
    """Open a file as text, decompressed and without a byte order mark."""
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def frames(
    path: Path,
    separator: str,
    size: int | None,
    *,
    strings: Collection[str] = (),
    names: Sequence[str] | None = None,
    rename_repeated: bool = False,
) -> Iterator[Any]:
    """Yield data frames of at most `size` rows (all rows if None), with consecutive row numbers.

    Columns in `strings` stay strings, because "01" looks numeric although later rows may have "2A". `names` are the column
    names of a file without a header. Repeated names raise ValueError, or with `rename_repeated` become "a", "a.1".
    """
    pd = import_reader("pandas")
    options: dict[str, Any] = {
        "sep": separator,
        "encoding": "utf-8-sig",
        # Strings that pandas reads as missing by default ("None", "NA") are categories here.
        "na_values": list(ALWAYS_MISSING),
        "keep_default_na": False,
        "skipinitialspace": True,
        "low_memory": False,
        "dtype": dict.fromkeys(strings, str),
    }
    if names is not None:
        options |= {"names": list(names), "header": None}
    try:
        _check_width(path, separator, names)
        repeated = [] if names is not None or rename_repeated else repeated_names(path, separator)
        if repeated:
            # pandas would rename repeated columns, so that a copy of the target could become a feature.
            raise ValueError(f"{path} has more than one column named {', '.join(map(repr, repeated))}: rename them")
        if size is None:
            yield _with_numbers(pd.read_csv(path, **options), separator, strings)
            return
        with pd.read_csv(path, chunksize=size, **options) as reader:
            yield from (_with_numbers(frame, separator, strings) for frame in reader)
    except pd.errors.EmptyDataError as reason:
        raise ValueError(f"{path} is empty") from reason
    except (pd.errors.ParserError, csv.Error, EOFError, OSError, UnicodeDecodeError, zlib.error) as reason:
        raise ValueError(_message(path, reason)) from reason


def repeated_names(path: Path, separator: str) -> list[str]:
    """Return the column names that occur more than once in the header of a file."""
    with open_text(path) as file:
        header = next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
    named = [name.strip() for name in header if name.strip()]
    return sorted({name for name in named if named.count(name) > 1})


def _check_width(path: Path, separator: str, names: Sequence[str] | None) -> None:
    """Raise ValueError if the first row has more values than the header has names.

    pandas would use the surplus values as row names, which shifts the column names by one column.
    """
    with open_text(path) as file, suppress(csv.Error):  # `csv` raises an error for long cells, which pandas reads
        rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
        header = next(rows, []) if names is None else names
        if len(next(filter(None, rows), [])) > len(header):
            raise ValueError(f"{path}: rows have more values than the header has names; name all columns")


def as_numbers(known: Any, separator: str) -> Any | None:
    """Return a column of strings as numbers, or None if a string is not a number."""
    pd = import_reader("pandas")
    if separator != "," and known.str.fullmatch(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?").all():
        known = known.str.replace(",", ".", regex=False)
    try:
        return pd.to_numeric(known).astype(np.float64)
    except (TypeError, ValueError):
        return None


def _with_numbers(frame: Any, separator: str, strings: Collection[str]) -> Any:
    """Convert to numbers the columns that pandas read as strings because of missing values or decimal commas."""
    pd = import_reader("pandas")
    for name in frame.columns:
        column = frame[name]
        if name in strings or pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            continue
        known = column.dropna().astype(str)
        known = known[~known.isin(MISSING_NUMBERS)]
        if known.empty or as_numbers(known.iloc[:100], separator) is None:
            continue
        numbers = as_numbers(known, separator)
        if numbers is not None:
            frame[name] = numbers.reindex(column.index)
    return frame


def _message(path: Path, reason: Exception) -> str:
    problem = str(reason).strip()
    if isinstance(reason, UnicodeDecodeError):
        with open(path, "rb") as file:
            encoding = "UTF-16" if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "WINDOWS-1252"
        problem = (
            "it is not UTF-8 text. Save it again as UTF-8 (in Excel: CSV UTF-8), or convert it, as with "
            f"iconv -f {encoding} -t UTF-8"
        )
    elif (found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", problem)) is not None:
        problem = f"line {found[2]} has {found[3]} values, and the first line has {found[1]}: correct or remove that line"
    return f"{path} cannot be read as a table: {problem}"
