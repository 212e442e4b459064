"""One border for data larger than memory.

A `Stream` is rows in a fixed order, read in batches of any size from any row on, with the next batch read while the current
one is used. It comes from an array (a `np.memmap` is never read as a whole), a CSV, Parquet or npz file, or an iterable of
`(X, y)` or `(X, y, sample_weight)` batches. Every row is checked once, as it passes: the error names the file and the row.
Memory: two batches, whatever the number of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.validation import missing_mask
from gramless.streaming.read_ahead import read_ahead
from gramless.streaming.reservoir import Reservoir
from gramless.streaming.sources import ArraySource, IterableSource, Rows, Source


@dataclass
class Batch:
    """Consecutive rows.

    Parameters
    ----------
    X : array of shape (n, d)
        The features.
    y : array of shape (n,)
        The targets.
    weights : array of shape (n,) or None
        The weights, where rows have them.
    start : int
        Position of the first row in the stream.

    See Also
    --------
    gramless.Stream : Where batches come from.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.streaming import Batch
    >>> len(Batch(np.ones((3, 2)), np.ones(3), None, start=0))
    3
    """

    X: Array
    y: Any
    weights: np.ndarray | None
    start: int

    def __len__(self) -> int:
        return int(self.X.shape[0])


class Stream:
    """Rows and their targets, read in batches.

    Parameters
    ----------
    data : array, path, or iterable of batches
        An array or `np.memmap` of shape (n, d); the path of a `.csv`, `.csv.gz`, `.parquet` or `.npz` file; or an iterable
        of `(X, y)` or `(X, y, sample_weight)`.
    y : array, str or None, default=None
        With an array, the targets. With a file, the name or position of the column (the name of the array, in an npz
        file) that holds them; None takes `"y"`, `"target"` or `"label"`, whichever is there.
    sample_weight : array, optional
        With an array, one weight for each row.

    Attributes
    ----------
    n_rows : int or None
        How many rows there are, where that is known before reading them.

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

    def __init__(self, data: Any, y: Any = None, sample_weight: Any = None):
        self._source = _open(data, y, sample_weight)

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is known before reading them."""
        return self._source.n_rows

    @property
    def name(self) -> str:
        """Where the rows come from, in words."""
        return self._source.name

    @property
    def repeatable(self) -> bool:
        """Whether the rows can be read a second time: not those of a generator."""
        return self._source.repeatable

    @property
    def indexable(self) -> bool:
        """Whether rows can be taken in any order at no cost: those of arrays in memory."""
        return isinstance(self._source, ArraySource) and not isinstance(self._source.X, np.memmap)

    def identity(self) -> tuple[Any, ...]:
        """Tell this data from other data, without reading it all.

        Returns
        -------
        tuple
            Equal for equal data.
        """
        return self._source.identity()

    def first(self) -> Array:
        """Look at the first row, which is still read afterwards.

        Returns
        -------
        array of shape (1, d)
            Its features.
        """
        X, y, _ = self._source.peek(1)
        if X.shape[0] == 0:
            raise ValueError(f"{self.name} has no rows")
        if X.shape[1] == 0:
            raise ValueError(f"{self.name} has 0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        return X

    def take(self, idx: np.ndarray) -> Rows:
        """Take rows by their numbers; only arrays can.

        Parameters
        ----------
        idx : array of int
            The numbers.

        Returns
        -------
        tuple
            Features, targets and weights of these rows.
        """
        if not isinstance(self._source, ArraySource):
            raise ValueError(f"rows cannot be taken by number from {self.name}; pass an array")
        return self._source.take(idx)

    def batches(self, size: int, start: int = 0, prepare: Callable[[Array], Array] | None = None) -> Iterator[Batch]:
        """Read the rows in batches, the next one while the current one is used.

        Parameters
        ----------
        size : int
            Rows of a batch; the last one may be shorter.
        start : int, default=0
            The first row to read.
        prepare : callable, optional
            Applied to the features by the thread that reads.

        Returns
        -------
        iterator of Batch
            The batches in order.
        """
        return read_ahead(self._checked(size, start, prepare))

    def _checked(self, size: int, start: int, prepare: Callable[[Array], Array] | None) -> Iterator[Batch]:
        position, width = start, None
        for rows in self._source.read(size, start):
            X, y, weights = rows
            width = X.shape[1] if width is None else width
            self._check(X, y, weights, position, width)
            yield Batch(X if prepare is None else prepare(X), y, weights, position)
            position += int(X.shape[0])

    def _check(self, X: Array, y: Any, weights: Any, position: int, width: int) -> None:
        n = int(X.shape[0])
        if X.shape[1] != width:
            raise ValueError(f"{self._source.row(position)} has {X.shape[1]} columns, those before it have {width}")
        for name, values in (("targets", y), ("weights", weights)):
            if values is not None and len(values) != n:
                raise ValueError(f"{self._source.row(position)} begins a batch of {n} rows with {len(values)} {name}")
        bad = _not_finite(X)
        if bad is not None:
            raise ValueError(f"{self._source.row(position + bad[0])} holds NaN or infinity{self._source.column(bad[1])}")
        bad_target = _not_finite_target(y)
        if bad_target is not None:
            raise ValueError(f"{self._source.row(position + bad_target)} has a target that is missing, NaN or infinite")
        if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
            at = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
            raise ValueError(f"{self._source.row(position + at)} has the weight {weights[at]!r}; weights are at least 0")

    def sample(self, n: int, rng: np.random.RandomState, batch_rows: int = 4096) -> Rows:
        """Draw rows uniformly without replacement, in the order they come in.

        An array is indexed, a file or a list of batches is read through once; of a generator, whose rows come only once,
        the first `n` rows are taken, and are read again by `batches`.

        Parameters
        ----------
        n : int
            How many; all, where there are fewer.
        rng : RandomState
            Draws them.
        batch_rows : int, default=4096
            Rows that are read at a time.

        Returns
        -------
        tuple
            Features, targets and weights of these rows.
        """
        source = self._source
        if isinstance(source, ArraySource):
            idx = np.sort(rng.permutation(source.length)[: min(n, source.length)])
            rows = source.take(idx)
            self._check_sample(rows, idx)
            return rows
        if not source.repeatable:
            rows = source.peek(n)
            self._check(*rows, position=0, width=rows[0].shape[1])
            return rows
        return self._reservoir(n, rng, batch_rows)

    def _check_sample(self, rows: Rows, idx: np.ndarray) -> None:
        bad = _not_finite(rows[0])
        if bad is not None:
            raise ValueError(f"{self._source.row(int(idx[bad[0]]))} holds NaN or infinity{self._source.column(bad[1])}")

    def _reservoir(self, n: int, rng: np.random.RandomState, batch_rows: int) -> Rows:
        kept = Reservoir(n)
        for batch in self.batches(batch_rows):
            kept.add((batch.X, batch.y, batch.weights), rng.random_sample(len(batch)))
        if kept.rows is None:
            raise ValueError(f"{self.name} has no rows")
        return kept.rows


def is_stream_like(X: Any) -> bool:
    """Say whether `X` is for a `Stream` to read rather than an array-like for scikit-learn's checks.

    Parameters
    ----------
    X : object
        What a user gave.

    Returns
    -------
    bool
        True for streams, paths, arrays on disk and iterables of batches.

    See Also
    --------
    gramless.Stream : Reads it.

    Examples
    --------
    >>> from gramless.streaming import is_stream_like
    >>> is_stream_like("train.csv"), is_stream_like([[0.0, 1.0]])
    (True, False)
    """
    if isinstance(X, (Stream, str, os.PathLike, np.memmap)):
        return True
    if hasattr(X, "shape") or hasattr(X, "__array__") or hasattr(X, "__dataframe__"):
        return False
    if isinstance(X, (list, tuple)):
        return bool(X) and all(
            isinstance(batch, tuple) and len(batch) in (2, 3) and hasattr(batch[0], "shape") for batch in X
        )
    return hasattr(X, "__iter__")


def _open(data: Any, y: Any, sample_weight: Any) -> Source:
    if isinstance(data, (str, os.PathLike)):
        if sample_weight is not None:
            raise ValueError("sample_weight goes with arrays; for a file, pass an iterable of (X, y, sample_weight) batches")
        return _open_file(Path(data), y)
    if hasattr(data, "shape") and len(data.shape) == 2:
        return ArraySource(data, y, sample_weight)
    if hasattr(data, "__iter__") and not hasattr(data, "shape"):
        if y is not None or sample_weight is not None:
            raise ValueError("batches carry their own targets and weights: pass (X, y) or (X, y, sample_weight) and no y")
        return IterableSource(data)
    raise TypeError(
        f"cannot stream from {type(data).__name__}: pass an array of two dimensions, the path of a .csv, .parquet or .npz "
        "file, or an iterable of (X, y) batches"
    )


def _open_file(path: Path, target: Any) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    names_a_column = isinstance(target, (str, int, np.integer)) and not isinstance(target, bool)
    if target is not None and not names_a_column:
        raise TypeError(f"with a file, y is the name or position of a column, not {type(target).__name__}")
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")):
        from gramless.streaming.delimited import CsvSource

        return CsvSource(path, target)
    if name.endswith((".parquet", ".pq")):
        from gramless.streaming.parquet import ParquetSource

        return ParquetSource(path, target)
    if name.endswith(".npz"):
        from gramless.streaming.npz import NpzSource

        return NpzSource(path, target)
    raise ValueError(f"{path} is of no known kind; known: .csv, .csv.gz, .tsv, .txt, .parquet, .npz")


def _not_finite(X: Array) -> tuple[int, int] | None:
    """Row and column of the first value that is NaN or infinite."""
    values = X.data if xa.is_sparse(X) else X
    if xa.is_torch(values):
        if not values.is_floating_point() or bool(values.isfinite().all()):
            return None
        values = xa.to_numpy(values)
    elif values.dtype.kind != "f" or np.isfinite(np.add.reduce(values, axis=None, dtype=np.float64)):
        return None  # the sum of finite numbers in float64 is finite but for absurd sizes, and costs no temporary
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
