"""Tables from files: CSV, Parquet, svmlight and npz, whole or in batches.

What a file is follows from its name; `.gz` and `.bz2` are opened as they are. Dense data becomes a pandas
DataFrame whose columns are found again by name, svmlight a sparse matrix. Nothing is unpickled.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zipfile
from collections.abc import Iterator
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


@dataclass(frozen=True)
class Rows:
    """Inputs, and the target where the file has it."""

    X: Any
    y: np.ndarray | None

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


def read(path: Path, target: str | None, *, n_features: int | None = None) -> Rows:
    """The whole file; `target` is left out of the inputs."""
    return next(batches(path, target, size=None, n_features=n_features))


def batches(path: Path, target: str | None, *, size: int | None = BATCH, n_features: int | None = None) -> Iterator[Rows]:
    """The file in pieces of at most `size` rows; None reads it in one piece."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    kind = kind_of(path)
    if kind == "csv":
        yield from (_split_target(frame, target, path) for frame in _csv(path, size))
    elif kind == "parquet":
        yield from (_split_target(frame, target, path) for frame in _parquet(path, size))
    elif kind == "npz":
        yield from _pieces(_npz(path, target), size)
    else:
        yield from _pieces(_svmlight(path, n_features), size)


def _split_target(frame: pd.DataFrame, target: str | None, path: Path) -> Rows:
    if target is None:
        return Rows(frame, None)
    if target not in frame.columns:
        raise InputError(f"{path} has no column {target!r}; it has {listed(frame.columns)}")
    return Rows(frame.drop(columns=target), frame[target].to_numpy())


def _csv(path: Path, size: int | None) -> Iterator[pd.DataFrame]:
    try:
        separator = _separator(path)
        # Words that pandas would take for missing values ("None", "NA") are categories like any other here.
        options: dict[str, Any] = {"sep": separator, "na_values": ["", "?", "NaN", "nan"], "keep_default_na": False}
        if size is None:
            yield pd.read_csv(path, low_memory=False, **options)
            return
        with pd.read_csv(path, chunksize=size, low_memory=False, **options) as reader:
            yield from reader
    except pd.errors.EmptyDataError as reason:
        raise InputError(f"{path} is empty") from reason
    except (pd.errors.ParserError, UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as reason:
        raise InputError(f"{path} cannot be read as a table: {str(reason).strip()}") from reason


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
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".bz2":
        return bz2.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def _parquet(path: Path, size: int | None) -> Iterator[pd.DataFrame]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if size is None:
                yield file.read().to_pandas()
                return
            for batch in file.iter_batches(batch_size=size):
                yield batch.to_pandas()
    except (pyarrow.ArrowException, OSError) as reason:
        raise InputError(f"{path} cannot be read as Parquet: {reason}") from reason


def _npz(path: Path, target: str | None) -> Rows:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as reason:
        raise InputError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
    x_key = next((key for key in ("X", "x", "x_train") if key in arrays), None)
    if x_key is None:
        raise InputError(f"{path} has no array named X, x or x_train; it has {listed(arrays)}")
    y_key = target if target is not None else next((k for k in ("y", "y_train") if k in arrays), None)
    if y_key is not None and y_key not in arrays:
        raise InputError(f"{path} has no array {y_key!r}; it has {listed(arrays)}")
    x = arrays[x_key].reshape(len(arrays[x_key]), -1)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])])
    y = arrays[y_key] if y_key is not None else None
    if y is not None and y.shape != (len(x),):
        raise InputError(f"{path}: {y_key} has shape {y.shape} for {len(x)} rows")
    return Rows(frame, y)


def _svmlight(path: Path, n_features: int | None) -> Rows:
    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(str(path), n_features=n_features)
    except (ValueError, OSError, EOFError) as reason:
        raise InputError(f"{path} cannot be read as svmlight: {reason}") from reason
    return Rows(scipy.sparse.csr_matrix(x), y)


def _pieces(rows: Rows, size: int | None) -> Iterator[Rows]:
    if size is None:
        yield rows
        return
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        x = rows.X.iloc[part] if isinstance(rows.X, pd.DataFrame) else rows.X[part]
        yield Rows(x, None if rows.y is None else rows.y[part])


def listed(names: Any, most: int = 20) -> str:
    """Names for a sentence, the first ones of many."""
    every = [repr(str(name)) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
