"""Tables from files: CSV, Parquet, svmlight and npz, whole or in batches.

What a file is follows from its name; `.gz` and `.bz2` are opened as they are. Dense data becomes a pandas
DataFrame whose columns are found again by name, svmlight a sparse matrix. Nothing is unpickled.

In a CSV file a column is numbers when everything in it is one or says that it is missing; the decimal mark may be a
comma where another mark parts the columns.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from gramless.program.errors import InputError

KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}
BATCH = 20_000
# Among numbers these are gaps; in a column of words they are words.
GAPS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none", "-", ".")


@dataclass(frozen=True)
class Rows:
    """Inputs, and the target where the file has it; `counts_from` is the number of an svmlight file's first column."""

    X: Any
    y: np.ndarray | None
    counts_from: int | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])


def kind_of(path: Path) -> str:
    """Which format a file name announces."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".bz2"):
        suffixes.pop()
    if not suffixes or suffixes[-1] not in KINDS:
        raise InputError(f"{path}: cannot tell what this file is; known endings are {', '.join(KINDS)} (also .gz, .bz2)")
    return KINDS[suffixes[-1]]


def read(path: Path, target: str | None) -> Rows:
    """The whole file; `target` is left out of the inputs."""
    return next(batches(path, target, size=None))


def batches(
    path: Path,
    target: str | None,
    *,
    size: int | None = BATCH,
    n_features: int | None = None,
    counts_from: int | None = None,
    words: Collection[str] = (),
    held_out: bool = False,
) -> Iterator[Rows]:
    """The file in pieces of at most `size` rows; None reads it in one piece.

    Parameters
    ----------
    path : Path
    target : str or None
        The column that is left out of the inputs.
    size : int or None
    n_features, counts_from : int or None
        Columns of the sparse matrix, and whether the first one is number 0 or 1; as in the file when None.
    words : collection of str
        Columns of a CSV file that are words whatever is in them: a piece of "01", "02", "2A" may look like numbers.
    held_out : bool
        Of an npz file with a training and a test half, read the latter; a target that names a half decides.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    if not path.is_file():
        raise InputError(f"{path} is a pipe or a device: save what comes out of it to a file first")
    kind = kind_of(path)
    if kind == "csv":
        yield from (_split_target(frame, target, path) for frame in _csv(path, size, words))
    elif kind == "parquet":
        yield from (_split_target(frame, target, path) for frame in _parquet(path, size))
    elif kind == "npz":
        yield from _pieces(_npz(path, target, held_out), size)
    else:
        yield from _pieces(_svmlight(path, n_features, counts_from), size)


def _split_target(frame: pd.DataFrame, target: str | None, path: Path) -> Rows:
    if target is None:
        return Rows(frame, None)
    if target not in frame.columns:
        raise InputError(f"{path} has no column {target!r}; it has {listed(frame.columns)}")
    return Rows(frame.drop(columns=target), _answers(frame[target]))


def _answers(column: pd.Series) -> np.ndarray:
    """Plain numbers also of the types of pandas that have a missing value of their own."""
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return column.to_numpy()
    if column.hasnans:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", column.dtype))


def _csv(path: Path, size: int | None, words: Collection[str]) -> Iterator[pd.DataFrame]:
    try:
        separator = _separator(path)
        options: dict[str, Any] = {
            "sep": separator,
            # Words that pandas would take for missing values ("None", "NA") are categories like any other here.
            "na_values": ["", "?", "NaN", "nan"],
            "keep_default_na": False,
            "skipinitialspace": True,
            "low_memory": False,
            "dtype": dict.fromkeys(words, str),
        }
        if size is None:
            yield _with_numbers(pd.read_csv(path, **options), separator, words, path)
            return
        with pd.read_csv(path, chunksize=size, **options) as reader:
            yield from (_with_numbers(frame, separator, words, path) for frame in reader)
    except pd.errors.EmptyDataError as reason:
        raise InputError(f"{path} is empty") from reason
    except UnicodeDecodeError as reason:
        raise InputError(
            f"{path} cannot be read as a table: it is not UTF-8 text. Save it again as UTF-8 (in Excel: CSV UTF-8), "
            "or convert it, as with iconv -f WINDOWS-1252 -t UTF-8"
        ) from reason
    except (pd.errors.ParserError, csv.Error, EOFError, OSError, zlib.error) as reason:
        raise InputError(f"{path} cannot be read as a table: {str(reason).strip()}") from reason


def _with_numbers(frame: pd.DataFrame, separator: str, words: Collection[str], path: Path) -> pd.DataFrame:
    """The frame with those columns as numbers that pandas took for words because of their gaps or decimal commas."""
    if len(frame) and not isinstance(frame.index, pd.RangeIndex):
        # pandas takes what is too much for names of the rows, and every heading would stand over its neighbour's values.
        raise InputError(f"{path}: rows have more values than the heading has names; name the columns that have no name")
    for name in frame.columns:
        column = frame[name]
        if name in words or pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            continue
        known = column.dropna().astype(str)
        known = known[~known.isin(GAPS)]
        if known.empty or _as_numbers(known.iloc[:100], separator) is None:
            continue
        numbers = _as_numbers(known, separator)
        if numbers is not None:
            frame[name] = numbers.reindex(column.index)
    return frame


def _as_numbers(known: pd.Series, separator: str) -> pd.Series | None:
    if separator != "," and known.str.fullmatch(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?").all():
        known = known.str.replace(",", ".", regex=False)
    try:
        return pd.to_numeric(known).astype(np.float64)
    except (TypeError, ValueError):
        return None


def _separator(path: Path) -> str:
    with _open_text(path) as file:
        sample = file.read(64_000)
    lines = sample.splitlines()[:50]
    if not lines:
        raise InputError(f"{path} is empty")
    counts = {}
    for mark in ",;\t|":
        found = [len(row) for row in csv.reader(lines[:-1] or lines, delimiter=mark)]
        if found and min(found) == max(found) and found[0] > 1:
            counts[mark] = found[0]
    if counts:
        return max(counts, key=lambda mark: counts[mark])
    return max(",;\t|", key=lines[0].count)


def _open_text(path: Path) -> io.TextIOBase:
    # utf-8-sig: a byte order mark before a quoted heading would hide its quotes.
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    if path.suffix.lower() == ".bz2":
        return bz2.open(path, "rt", encoding="utf-8-sig")
    return open(path, encoding="utf-8-sig")


def _parquet(path: Path, size: int | None) -> Iterator[pd.DataFrame]:
    import pyarrow
    import pyarrow.parquet

    def frame(table: Any) -> pd.DataFrame:
        fields = [
            field.with_type(pyarrow.float64()) if pyarrow.types.is_decimal(field.type) else field for field in table.schema
        ]
        made = table.cast(pyarrow.schema(fields, table.schema.metadata)).to_pandas().reset_index(drop=True)
        made.columns = made.columns.map(str)
        return made

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InputError(f"{path} has more than one column named {listed(twice)}: rename them")
            if size is None:
                yield frame(file.read())
                return
            for batch in file.iter_batches(batch_size=size):
                yield frame(pyarrow.Table.from_batches([batch]))
    except (pyarrow.ArrowException, OSError) as reason:
        raise InputError(f"{path} cannot be read as Parquet: {reason}") from reason


def _npz(path: Path, target: str | None, held_out: bool) -> Rows:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, AttributeError) as reason:
        # AttributeError: a bare .npy array under the name of an archive has no `files`
        raise InputError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
    halves = ["", "_test", "_train"] if held_out else ["", "_train", "_test"]
    if target is not None and target.endswith(("_train", "_test")):
        halves = [target[target.rindex("_") :], ""]
    x_key = next((x + half for half in halves for x in ("X", "x") if x + half in arrays), None)
    if x_key is None:
        raise InputError(f"{path} has no array named X, x, X_train, x_train, X_test or x_test; it has {listed(arrays)}")
    if target is not None and target not in arrays:
        raise InputError(f"{path} has no array {target!r}; it has {listed(arrays)}")
    y_key = "y" + x_key[1:] if target is None else target
    x = arrays[x_key]
    if x.ndim == 0:
        raise InputError(f"{path}: {x_key} is a single value, not an array with a row for each sample")
    x = x.reshape(len(x), int(np.prod(x.shape[1:])))
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])])
    y = arrays.get(y_key)
    if y is not None and y.shape == (len(x), 1):
        y = y[:, 0]
    if y is not None and y.shape != (len(x),):
        raise InputError(f"{path}: {y_key} has shape {y.shape} for {len(x)} rows")
    return Rows(frame, y)


def _svmlight(path: Path, n_features: int | None, counts_from: int | None) -> Rows:
    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(str(path), zero_based=True)
    except (ValueError, OSError, EOFError, zlib.error) as reason:
        raise InputError(f"{path} cannot be read as svmlight: {reason}") from reason
    lowest = int(x.indices.min()) if x.nnz else 0
    if counts_from is None:
        counts_from = min(lowest, 1)
    elif lowest < counts_from:
        raise InputError(f"{path} numbers its columns from 0, and the model was trained on a file that numbers them from 1")
    width = x.shape[1] - counts_from
    if n_features is not None and width > n_features:
        raise InputError(f"{path} has {width:,} columns, and the model was trained on {n_features:,}")
    shape = (x.shape[0], width if n_features is None else n_features)
    return Rows(scipy.sparse.csr_matrix((x.data, x.indices - counts_from, x.indptr), shape=shape), y, counts_from)


def _pieces(rows: Rows, size: int | None) -> Iterator[Rows]:
    if size is None:
        yield rows
        return
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        x = rows.X.iloc[part] if isinstance(rows.X, pd.DataFrame) else rows.X[part]
        yield Rows(x, None if rows.y is None else rows.y[part], rows.counts_from)


def listed(names: Any, most: int = 20) -> str:
    """Names for a sentence, the first ones of many."""
    every = [repr(str(name)) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
