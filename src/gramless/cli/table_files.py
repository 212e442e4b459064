"""Read tables from CSV, Parquet, Excel, Feather, JSON-lines, svmlight and npz files, completely or in batches.

The name of a file determines its format; `.gz` and `.bz2` text files are decompressed. Dense data is returned as a pandas
DataFrame, svmlight data as a sparse matrix. No data is unpickled. `gramless.streaming` reads CSV and Parquet files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from gramless._core.memory import format_bytes, free_memory
from gramless._core.threads import slices
from gramless.cli.errors import InputError, input_errors, is_stream, readable, require
from gramless.streaming import parquet, text
from gramless.tables.column_types import LARGEST_NUMBER, number_format

_EXTENSIONS = {
    "csv": (".csv", ".tsv", ".txt", ".data"),
    "parquet": (".parquet", ".pq"),
    "excel": (".xlsx",),
    "feather": (".feather", ".arrow"),
    "jsonl": (".jsonl", ".ndjson"),
    "npz": (".npz",),
    "svmlight": (".svm", ".svmlight", ".libsvm"),
}
FORMATS = {extension: kind for kind, extensions in _EXTENSIONS.items() for extension in extensions}
# Formats that are read in batches; files of other formats are read at once.
BATCH_FORMATS = ("csv", "parquet", "feather")
# Formats in which predictions can be written.
OUTPUT_FORMATS = ("csv", "parquet", "excel", "jsonl")
# First bytes of standard input, and the file extension of the format that these bytes identify.
_SIGNATURES = {b"PAR1": ".parquet", b"PK\x03\x04": ".xlsx", b"ARRO": ".feather"}
# Rows per batch; a batch with a hundred columns takes tens of megabytes.
BATCH_ROWS = 20_000
# Number of dense vectors, with one value per column of a sparse matrix, that preprocessing allocates; counted in the code.
_DENSE_VECTORS = 4


@dataclass(frozen=True)
class FileRows:
    """Rows of a file: inputs, the target or None, and for svmlight files the index of the first column (0 or 1)."""

    X: Any
    y: np.ndarray | None
    first_column: int | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Any) -> FileRows:
        """Return the rows at the given positions."""
        return FileRows(select_rows(self.X, rows), None if self.y is None else self.y[rows], self.first_column)

    def parts(self, size: int | None) -> Iterator[FileRows]:
        """Yield parts of at most `size` rows, or one part if `size` is None; a file without rows gives one empty part."""
        n = max(1, len(self))
        return map(self.take, slices(n, size or n))


def file_format(path: Path) -> str:
    """Return the format of a file, which is determined by the file extension."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".bz2"):
        suffixes.pop()
    if not suffixes or suffixes[-1] not in FORMATS:
        raise InputError(f"{path}: unknown file format; known extensions are {', '.join(FORMATS)} (also .gz, .bz2)")
    return FORMATS[suffixes[-1]]


def output_format(out: Path | None) -> str:
    """Return the format in which predictions are written to `out`; CSV if `out` is None or has no file extension."""
    suffix = "" if out is None or is_stream(out) else out.suffix.lower()
    kind = FORMATS.get(suffix, "unknown" if suffix else "csv")
    if kind not in OUTPUT_FORMATS:
        known = ", ".join(name for name, its in FORMATS.items() if its in OUTPUT_FORMATS)
        raise InputError(f"predictions cannot be written to {out}; known extensions are {known}")
    return kind


@contextmanager
def standard_input(data: Path) -> Iterator[Path]:
    """Yield `data`, or for "-" a temporary copy of standard input, as CSV unless its first bytes identify another format."""
    if data != Path("-"):
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        start = sys.stdin.buffer.read(4)
        suffix = _SIGNATURES.get(start, ".jsonl" if start[:1] == b"{" else ".csv")
        path = Path(folder, f"standard-input{suffix}")
        with open(path, "wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def read_file(path: Path, target: str | None) -> FileRows:
    """Return all rows of a file, with the column `target` separated from the input columns."""
    return next(batches(path, target, size=None))


def batches(
    path: Path,
    target: str | None,
    *,
    size: int | None = BATCH_ROWS,
    n_features: int | None = None,
    first_column: int | None = None,
    strings: Collection[str] = (),
    held_out: bool = False,
) -> Iterator[FileRows]:
    """Yield the file in batches of at most `size` rows, or as one batch if `size` is None.

    The index of each batch has the row numbers of the file, from 0. `n_features` and `first_column` (0 or 1) describe a
    sparse matrix; if they are None, the file determines them. The columns `strings` of a CSV file are read as strings: in
    one batch, codes such as "01", "02", "2A" may look like numbers. With `held_out`, the test rows of an npz file are read,
    unless the name of the array `target` ends in "_train" or "_test".
    """
    readable(path)
    kind, first = file_format(path), 0
    parts: Iterator[FileRows]
    if kind in BATCH_FORMATS:
        parts = (_split_target(frame, target, path) for frame in _frames(path, kind, size, strings, target))
    elif kind in ("excel", "jsonl"):
        parts = _split_target(_whole_frame(path, kind), target, path).parts(size)
    elif kind == "npz":
        parts = _npz(path, target, held_out).parts(size)
    else:
        parts = _svmlight(path, n_features, first_column).parts(size)
    for part in parts:
        if isinstance(part.X, pd.DataFrame):
            part.X.index = pd.RangeIndex(first, first + len(part))
        first += len(part)
        yield part


def _frames(path: Path, kind: str, size: int | None, strings: Collection[str], target: str | None) -> Iterator[pd.DataFrame]:
    with input_errors():
        if kind != "csv":
            yield from parquet.frames(path, size) if kind == "parquet" else parquet.feather_frames(path, size)
            return
        separator = text.find_delimiter(path)
        repeated = text.repeated_names(path, separator)
        if target in repeated:
            raise InputError(
                f"{path} has more than one column named {target!r}, and one of them is to be predicted: rename them"
            )
        if repeated:
            warnings.warn(
                f"{path} has more than one column named {quoted_names(repeated)}; the second is read as '{repeated[0]}.1'",
                stacklevel=2,
            )
        yield from text.frames(path, separator, size, strings=strings, rename_repeated=True)


def _whole_frame(path: Path, kind: str) -> pd.DataFrame:
    """Return the table of an Excel file (the first sheet) or of a JSON-lines file, which are not read in batches."""
    if kind == "excel":
        require("openpyxl", extra="cli")
    with _reading(path, "a table"):
        if kind == "excel":
            frame = pd.read_excel(path, keep_default_na=False, na_values=list(text.ALWAYS_MISSING))
        else:
            with text.open_text(path) as file:
                records = [json.loads(line) for line in file if line.strip()]
            if not all(isinstance(record, dict) for record in records):
                raise ValueError(
                    "a line is not a JSON object: write one object, with the names of the columns, for each row"
                )
            frame = pd.DataFrame.from_records(records)
    return frame.set_axis(frame.columns.map(str), axis="columns")


def _reading(path: Path, kind: str) -> Any:
    """Return a context manager that converts the errors of file readers to `InputError`."""
    # AttributeError: NumPy reads a .npy file that is named .npz as an array, which has no attribute `files`.
    errors = (TypeError, AttributeError, OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
    return input_errors(f"{path} cannot be read as {kind}: ", *errors)


def _split_target(frame: pd.DataFrame, target: str | None, path: Path) -> FileRows:
    if target is None:
        return FileRows(frame, None)
    if target not in frame.columns:
        raise InputError(f"{path} has no column {target!r}; it has {quoted_names(frame.columns)}")
    column = frame[target]
    if column.dtype == object and column.map(lambda value: isinstance(value, list | dict | np.ndarray)).any():
        raise InputError(f"{path}: column {target!r} has nested values, and a model takes numbers and strings")
    return FileRows(frame.drop(columns=target), column.to_numpy())


def quantities(y: np.ndarray, name: str) -> np.ndarray:
    """Return a target as float64; raise `InputError` if a value is not a number, is infinite or is too large."""
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise InputError(f"{name} is not a number everywhere: {reason}{amounts_hint(y)}") from reason
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} is infinite in {int((~np.isfinite(numbers)).sum()):,} rows: leave those cells empty")
    if not np.abs(numbers).max() < LARGEST_NUMBER:
        raise InputError(f"{name} has numbers that are too large to compute with: divide them by their unit")
    return numbers


def amounts_hint(y: np.ndarray) -> str:
    """Return the end of an error message on a target: advice on amounts such as "$1,200", or its first non-numeric value."""
    texts = y[pd.to_numeric(pd.Series(y), errors="coerce").isna().to_numpy()].tolist()
    if texts and number_format(texts) is not None:
        return f"; to predict amounts such as {texts[0]!r}, write them as plain numbers, such as 1234.5"
    return f", and the value {texts[0]!r} is not a number" if 0 < len(texts) < len(y) / 2 else ""


def labels(y: np.ndarray) -> np.ndarray:
    """Return a target as class labels; integral floats become integers, since missing values convert integers to floats."""
    if y.dtype.kind == "f" and np.array_equal(y, np.round(y)) and np.abs(y).max(initial=0.0) < 2**53:
        return y.astype(np.int64)
    return y if y.dtype.kind in "iufbU" else np.array([str(value) for value in y])


def _npz(path: Path, target: str | None, held_out: bool) -> FileRows:
    with _reading(path, "a NumPy archive without pickles"), open(path, "rb") as file, np.load(file) as archive:
        arrays = {key: archive[key] for key in archive.files}
    halves = ["", "_test", "_train"] if held_out else ["", "_train", "_test"]
    if target is not None and target.endswith(("_train", "_test")):
        halves = [target[target.rindex("_") :], ""]
    x_key = next((x + half for half in halves for x in ("X", "x") if x + half in arrays), None)
    if x_key is None:
        raise InputError(
            f"{path} has no array named X, x, X_train, x_train, X_test or x_test; it has {quoted_names(arrays)}"
        )
    if target is not None and target not in arrays:
        raise InputError(f"{path} has no array {target!r}; it has {quoted_names(arrays)}")
    y_key = "y" + x_key[1:] if target is None else target
    x, y = arrays[x_key], arrays.get(y_key)
    for key in (x_key, y_key):
        if key in arrays and arrays[key].dtype.kind not in "biufSU":
            raise InputError(f"{path}: {key} has dtype {arrays[key].dtype}, and a model takes numbers and strings")
    if x.ndim == 0:
        raise InputError(f"{path}: {x_key} is a single value, not an array with a row for each sample")
    x = x.reshape(len(x), int(np.prod(x.shape[1:])))
    if y is not None and y.shape not in ((len(x),), (len(x), 1)):
        raise InputError(f"{path}: {y_key} has shape {y.shape} for {len(x)} rows")
    return FileRows(pd.DataFrame(x).add_prefix("x"), None if y is None else y.reshape(len(x)))


def _svmlight(path: Path, n_features: int | None, first_column: int | None) -> FileRows:
    from sklearn.datasets import load_svmlight_file

    with _reading(path, "svmlight"):
        x, y = load_svmlight_file(str(path), zero_based=True)
    unusable = ~(np.abs(x.data) < LARGEST_NUMBER)
    if unusable.any():
        row = int(np.searchsorted(x.indptr, np.flatnonzero(unusable)[0], side="right"))
        raise InputError(f"{path}, row {row:,}: a value is not finite, or too large to compute with")
    if _DENSE_VECTORS * 8 * x.shape[1] > free_memory() / 10:
        raise InputError(
            f"{path} numbers columns up to {x.shape[1] - 1:,}: vectors of that length take {format_bytes(8 * x.shape[1])} "
            "each. Number the columns that occur from 1 on"
        )
    lowest = int(x.indices.min()) if x.nnz else 0
    if first_column is None:
        first_column = min(lowest, 1)
    elif lowest < first_column:
        raise InputError(f"{path} numbers its columns from 0, and the model was trained on a file that numbers them from 1")
    width = x.shape[1] - first_column
    if n_features is not None and width > n_features:
        raise InputError(f"{path} has {width:,} columns, and the model was trained on {n_features:,}")
    shape = (x.shape[0], width if n_features is None else n_features)
    return FileRows(scipy.sparse.csr_matrix((x.data, x.indices - first_column, x.indptr), shape=shape), y, first_column)


def select_rows(X: Any, rows: Any) -> Any:
    """Return rows of a DataFrame or matrix by position."""
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def first_names(names: Any, most: int) -> str:
    """Return the first `most` names for a message, followed by the number of further names."""
    listed = list(map(str, names))
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def quoted_names(names: Any) -> str:
    """Return the first 20 names in quotes for a message, followed by the number of further names."""
    return first_names([repr(str(name)) for name in names], 20)


def checksum(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
