"""Data larger than memory, read in batches.

A `Stream` reads the rows of an array, a CSV, Parquet or npz file, or an iterable of batches, in batches of any size; a
`np.memmap` is never read at once. The next batch is read while the current batch is used. Every row is validated while it is
read, and errors name the file and the row. The memory is that of two batches, for any number of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.validation import missing_mask
from gramless.streaming.delimited import CsvSource
from gramless.streaming.npz import NpzSource
from gramless.streaming.parquet import ParquetSource
from gramless.streaming.reservoir import Reservoir, draw
from gramless.streaming.sources import ArraySource, IterableSource, RowBlock, Source

T = TypeVar("T")

_END = object()
_FILE_TYPES: dict[tuple[str, ...], Callable[[Path, Any], Source]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"): CsvSource,
    (".parquet", ".pq"): ParquetSource,
    (".npz",): NpzSource,
}


@dataclass
class StreamBatch:
    """Consecutive rows of a stream; `start` is the index in the stream of the first row."""

    X: Array
    y: Any
    weights: np.ndarray | None
    start: int

    def __len__(self) -> int:
        return int(self.X.shape[0])


class Stream:
    """Rows and targets that are read in batches, for data larger than memory.

    Parameters
    ----------
    data : array, path, or iterable of batches
        An array or `np.memmap` of shape (n, d); the path of a `.csv`, `.csv.gz`, `.parquet` or `.npz` file; or an iterable
        of `(X, y)` or `(X, y, sample_weight)`, or a function that returns such an iterable for each pass over the rows.
    y : array, str or None, default=None
        If `data` is an array, the targets. If `data` is a file, the name or position of the target column (in an npz file,
        the name of the array of targets); None uses the column `"y"`, `"target"` or `"label"`.
    sample_weight : array, optional
        If `data` is an array, the weight of each row.
    n_rows : int or None, default=None
        If `data` is an iterable of batches, the total number of rows, if known: progress messages then show the remaining
        time, and `solver="auto"` can choose the solver by the number of rows.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None if unknown.

    See Also
    --------
    gramless.NystromLSSVC : Fits a stream in one pass.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import Stream
    >>> stream = Stream((np.ones((3, 2)) * i, np.arange(3)) for i in range(4))
    >>> [len(batch) for batch in stream.batches(5)]
    [5, 5, 2]
    """

    def __init__(self, data: Any, y: Any = None, sample_weight: Any = None, n_rows: int | None = None):
        self._source = _open(data, y, sample_weight, n_rows)

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if unknown."""
        return self._source.n_rows

    @property
    def name(self) -> str:
        """Description of the source for messages."""
        return self._source.name

    @property
    def repeatable(self) -> bool:
        """Whether the rows can be read more than once; False for generators."""
        return self._source.repeatable

    @property
    def indexable(self) -> bool:
        """Whether rows can be read in any order at the same cost; True for arrays in memory."""
        return isinstance(self._source, ArraySource) and not isinstance(self._source.X, np.memmap)

    def identity(self) -> tuple[Any, ...]:
        """Return a value that identifies the data set, without reading all rows.

        Returns
        -------
        tuple
            Tuples of two streams are equal if the source, the size and a sample of the rows are equal.
        """
        return self._source.identity()

    def first(self) -> Array:
        """Return the features of the first row; `batches` yields this row again.

        Returns
        -------
        array of shape (1, d)
            Features of the first row.
        """
        X, y, _ = self._source.peek(1)
        if X.shape[0] == 0:
            raise ValueError(f"{self.name} has no rows")
        if X.shape[1] == 0:
            raise ValueError(f"{self.name} has 0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        return X

    def take(self, idx: np.ndarray) -> RowBlock:
        """Return rows of an array by their numbers.

        Parameters
        ----------
        idx : array of int
            Row numbers; a stream that is not an array raises ValueError.

        Returns
        -------
        tuple
            Features, targets and weights of the rows `idx`.
        """
        if not isinstance(self._source, ArraySource):
            raise ValueError(f"rows cannot be taken by number from {self.name}; pass an array")
        return self._source.take(idx)

    def batches(self, size: int, start: int = 0, prepare: Callable[[Array], Array] | None = None) -> Iterator[StreamBatch]:
        """Yield the rows in batches; the next batch is read while the current batch is used.

        Parameters
        ----------
        size : int
            Rows per batch; the last batch may be smaller.
        start : int, default=0
            Index of the first row to read.
        prepare : callable, optional
            Function that the reading thread applies to the features of each batch.

        Returns
        -------
        iterator of StreamBatch
            The batches in order.
        """
        return read_ahead(self._checked(size, start, prepare))

    def _checked(self, size: int, start: int, prepare: Callable[[Array], Array] | None) -> Iterator[StreamBatch]:
        position = start
        for rows in self._source.read(size, start):
            X, y, weights = rows
            n = int(X.shape[0])
            self._check(rows, range(position, position + n))
            yield StreamBatch(X if prepare is None else prepare(X), y, weights, position)
            position += n

    def _check(self, rows: RowBlock, numbers: Sequence[int]) -> None:
        """Raise ValueError if a value is not finite or a weight is negative; `numbers` are row indices for the message."""
        X, y, weights = rows
        bad = _not_finite(X)
        if bad is not None:
            raise ValueError(f"{self._source.row(numbers[bad[0]])} has NaN or infinity{self._source.column(bad[1])}")
        bad_target = _not_finite_target(y)
        if bad_target is not None:
            raise ValueError(f"{self._source.row(numbers[bad_target])} has a target that is missing, NaN or infinite")
        if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
            at = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
            raise ValueError(f"{self._source.row(numbers[at])} has the weight {weights[at]!r}; weights are at least 0")

    def sample(self, n: int, rng: np.random.RandomState, batch_rows: int = 4096) -> RowBlock:
        """Draw rows uniformly without replacement, and return the rows in the order of the stream.

        Arrays are indexed, and files and lists of batches are read once. If the data is a generator, the result is the first
        `n` rows, which `batches` yields again.

        Parameters
        ----------
        n : int
            Number of rows to draw; a stream with fewer rows returns all rows.
        rng : RandomState
            Random number generator.
        batch_rows : int, default=4096
            Rows read at a time.

        Returns
        -------
        tuple
            Features, targets and weights of the drawn rows.
        """
        source = self._source
        if isinstance(source, ArraySource):
            idx = draw(source.length, n, rng)
            rows = source.take(idx)
            self._check(rows, idx.tolist())
            return rows
        if not source.repeatable:
            rows = source.peek(n)
            self._check(rows, range(rows[0].shape[0]))
            return rows
        sample = Reservoir(n)
        for batch in self.batches(batch_rows):
            sample.add((batch.X, batch.y, batch.weights), rng.random_sample(len(batch)))
        if sample.rows is None:
            raise ValueError(f"{self.name} has no rows")
        return sample.rows


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield the items of an iterable in order; a thread reads the next item while the current item is used."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="gramless-read-ahead") as reader:
        ahead: Future[Any] = reader.submit(next, iterator, _END)
        while (item := ahead.result()) is not _END:
            ahead = reader.submit(next, iterator, _END)
            yield item


def is_stream_like(X: Any) -> bool:
    """Return whether `X` is a stream, a path, an array on disk, an iterable of batches or a function that returns one."""
    if isinstance(X, (Stream, str, os.PathLike, np.memmap)):
        return True
    if callable(X):
        return True
    if hasattr(X, "shape") or hasattr(X, "__array__") or hasattr(X, "__dataframe__"):
        return False
    if isinstance(X, (list, tuple)):
        return bool(X) and all(
            isinstance(batch, tuple) and len(batch) in (2, 3) and hasattr(batch[0], "shape") for batch in X
        )
    return hasattr(X, "__iter__")


def _open(data: Any, y: Any, sample_weight: Any, n_rows: int | None) -> Source:
    if isinstance(data, (str, os.PathLike)):
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is accepted only with arrays; for a file, pass an iterable of (X, y, sample_weight) batches"
            )
        return _open_file(Path(data), y)
    if hasattr(data, "shape") and len(data.shape) == 2:
        return ArraySource(data, y, sample_weight)
    if callable(data) or (hasattr(data, "__iter__") and not hasattr(data, "shape")):
        if y is not None or sample_weight is not None:
            raise ValueError("batches have their own targets and weights: pass (X, y) or (X, y, sample_weight) and no y")
        return IterableSource(data, n_rows)
    raise TypeError(
        f"cannot read rows from {type(data).__name__}: pass a two-dimensional array, the path of a .csv, .parquet or .npz "
        "file, an iterable of (X, y) batches, or a function that returns one"
    )


def _open_file(path: Path, target: Any) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    is_column = isinstance(target, (str, int, np.integer)) and not isinstance(target, bool)
    if target is not None and not is_column:
        raise TypeError(f"with a file, y is the name or position of a column, not {type(target).__name__}")
    for endings, source in _FILE_TYPES.items():
        if path.name.lower().endswith(endings):
            return source(path, target)
    raise ValueError(f"{path} has an unknown file type; known: .csv, .csv.gz, .tsv, .txt, .parquet, .npz")


def _not_finite(X: Array) -> tuple[int, int] | None:
    """Return the row and column of the first value that is NaN or infinite, or None if all values are finite."""
    values = X.data if xa.is_sparse(X) else X
    if xa.is_torch(values):
        if not values.is_floating_point() or bool(values.isfinite().all()):
            return None
        values = xa.to_numpy(values)
    elif values.dtype.kind != "f" or np.isfinite(np.add.reduce(values, axis=None, dtype=np.float64)):
        return None  # a finite sum proves finite values and needs no temporary array
    bad = ~np.isfinite(values)
    if not bad.any():
        return None
    if xa.is_sparse(X):
        at = int(np.flatnonzero(bad)[0])
        return int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
    row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return int(row), int(column)


def _not_finite_target(y: Any) -> int | None:
    if y is None:
        return None
    bad = missing_mask(xa.to_numpy(y))
    return int(np.argmax(bad)) if bad.any() else None
