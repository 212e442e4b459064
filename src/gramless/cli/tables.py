"""Tables from files: CSV, Parquet, svmlight and npz, whole or in batches.

What a file is follows from its name; `.gz` and `.bz2` are opened as they are. Dense data becomes a pandas
DataFrame whose columns are found again by name, svmlight a sparse matrix. Nothing is unpickled.

CSV and Parquet files are read as `gramless.streaming` reads them for a `Stream`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from gramless._core.memory import format_bytes, free_memory
from gramless.cli.errors import InputError, check_readable
from gramless.streaming import parquet, text

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
_VECTORS = 4
LARGEST = float(np.sqrt(np.finfo(np.float64).max)) / 2**20  # the squares of many such numbers can be added up


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
    check_readable(path)
    kind = kind_of(path)
    if kind in ("csv", "parquet"):
        yield from (_split_target(frame, target, path) for frame in _frames(path, kind, size, words))
    elif kind == "npz":
        yield from _pieces(_npz(path, target, held_out), size)
    else:
        yield from _pieces(_svmlight(path, n_features, counts_from), size)


def _frames(path: Path, kind: str, size: int | None, words: Collection[str]) -> Iterator[pd.DataFrame]:
    try:
        if kind == "parquet":
            yield from parquet.frames(path, size)
        else:
            yield from text.frames(path, text.find_delimiter(path), size, strings=words)
    except ValueError as reason:
        raise InputError(str(reason)) from reason


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
    for key in (x_key, y_key):
        if key in arrays and arrays[key].dtype.kind not in "biufSU":
            raise InputError(f"{path}: {key} holds {arrays[key].dtype}, and a model takes numbers and words")
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
    unusable = ~(np.abs(x.data) < LARGEST)
    if unusable.any():
        row = int(np.searchsorted(x.indptr, np.flatnonzero(unusable)[0], side="right"))
        raise InputError(f"{path}, row {row:,}: a value is not finite, or too large to compute with")
    # The preparation holds some dense vectors as long as a row.
    if _VECTORS * 8 * x.shape[1] > free_memory() / 10:
        raise InputError(
            f"{path} numbers columns up to {x.shape[1] - 1:,}: vectors of that length take {format_bytes(8 * x.shape[1])} "
            "each. Number the columns that occur from 1 on"
        )
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
