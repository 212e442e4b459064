"""Sources of the rows of a stream: base class, arrays, iterables of batches, and functions that all file sources use."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from gramless._core import arrays as xa
from gramless._core.checkpoint import fingerprint
from gramless.streaming.tuning import TUNING

RowBlock = tuple[Any, Any, Any]
"""Features, targets and weights (or None) of consecutive rows."""

_Block = TypeVar("_Block", bound=tuple[Any, ...])

TARGET_NAMES = ("y", "target", "label")
"""Names by which the target column of a file is found if the user gives no name."""


class Source(ABC):
    """Source of rows in a fixed order; `n_rows` is None if the number of rows is unknown."""

    name: str
    n_rows: int | None = None
    repeatable: bool = True
    """Whether the rows can be read more than once."""

    @abstractmethod
    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        """Yield the rows in blocks of `size` rows, beginning with the row of index `start`."""

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """Return a value that identifies the data set: different data sets have different values."""

    @abstractmethod
    def row(self, index: int) -> str:
        """Return a description of the position of a row for error messages."""

    def column(self, index: int) -> str:
        """Return the part of an error message that names a column, such as ` in column 3`."""
        return f" in column {index}"

    def peek(self, n: int) -> RowBlock:
        """Return the first `n` rows, which `read` yields again; raise ValueError if the source has no rows."""
        first = next(self._first_blocks(n), None)
        if first is None:
            raise ValueError(f"{self.name} has no rows")
        return first

    def _first_blocks(self, size: int) -> Iterator[RowBlock]:
        """Yield the rows from the first row on in blocks of `size` rows; `read` yields the same rows again."""
        return self.read(size, 0)


class ArraySource(Source):
    """Rows of an array in memory or on disk."""

    def __init__(self, X: Any, y: Any, weights: Any = None):
        # Data frames and sparse formats other than CSR are converted, because they do not index rows by position.
        self.X = X.tocsr() if sp.issparse(X) else np.asarray(X) if hasattr(X, "columns") else X
        self.y = y if y is None or xa.is_torch(y) else np.asarray(y)
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        self.length = self.n_rows = int(X.shape[0])
        self.name = f"the array on disk {X.filename}" if getattr(X, "filename", None) else "X"
        for name, values in (("y", self.y), ("sample_weight", self.weights)):
            if values is not None and len(values) != self.n_rows:
                raise ValueError(
                    f"Found input variables with inconsistent numbers of samples: X {self.n_rows}, {name} {len(values)}"
                )

    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        for at in range(start, self.length, size):
            yield self.take(slice(at, at + size))

    def take(self, idx: slice | np.ndarray) -> RowBlock:
        return rows_of((self.X, self.y, self.weights), idx)

    def identity(self) -> tuple[Any, ...]:
        # Only a few rows at equal distances are hashed, because hashing every row would read all data.
        compared = np.unique(np.linspace(0, self.length - 1, min(TUNING.compared_rows, self.length)).astype(np.int64))
        X, y, weights = self.take(compared)
        file = getattr(self.X, "filename", None)
        place = file_identity("array", Path(file)) if file else ("array",)
        return (*place, tuple(self.X.shape), str(self.X.dtype), str(getattr(y, "dtype", None)), fingerprint(X, y, weights))

    def row(self, index: int) -> str:
        return f"row {index} of {self.name}"

    def peek(self, n: int) -> RowBlock:
        return self.take(np.arange(min(n, self.length)))


class IterableSource(Source):
    """Rows of an iterable of batches, split and joined to batches of the requested size.

    A function that returns an iterable is called for each pass over the rows.
    """

    name = "the iterable of batches"

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]], n_rows: int | None = None):
        self.n_rows = n_rows
        self._batches = batches
        self.repeatable = callable(batches) or iter(batches) is not batches
        self._first_row_of_batch: list[int] = []

    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        return rebatch(self._counted(), size, start)

    def _iterate(self) -> Iterator[Any]:
        """Return a new iterator over the batches."""
        return iter(self._batches() if callable(self._batches) else self._batches)

    def _counted(self) -> Iterator[RowBlock]:
        """Yield all batches; raise ValueError if their total number of rows is not `n_rows`."""
        seen = 0
        for piece in self._pieces(self._iterate()):
            seen += int(piece[0].shape[0])
            if self.n_rows is not None and seen > self.n_rows:
                break
            yield piece
        if self.n_rows not in (None, seen):
            raise ValueError(f"the batches have {seen} rows or more, and n_rows is {self.n_rows}")

    def _pieces(self, batches: Iterable[Any]) -> Iterator[RowBlock]:
        seen, width = 0, None
        self._first_row_of_batch = []
        for number, batch in enumerate(batches):
            if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
                raise TypeError(f"batch {number} is not (X, y) or (X, y, sample_weight) but {type(batch).__name__}")
            X, y, weights = batch if len(batch) == 3 else (*batch, None)
            if y is None:
                raise ValueError(f"batch {number} has no targets: batches are (X, y) or (X, y, sample_weight)")
            X = X if xa.is_torch(X) else X.tocsr() if sp.issparse(X) else np.asarray(X)
            y = y if xa.is_torch(y) else np.asarray(y)
            if X.ndim != 2:
                raise ValueError(f"X of batch {number} has {X.ndim} dimensions; batches are (n_samples, n_features)")
            width = width or int(X.shape[1])
            if X.shape[1] != width:
                raise ValueError(f"batch {number} has {X.shape[1]} columns, and earlier batches have {width}")
            if not xa.is_torch(X) and X.dtype.kind not in "biuf":
                X = _as_numbers(X, f"batch {number}")
            weights = None if weights is None else np.asarray(weights, dtype=np.float64)
            for what, values in (("targets", y), ("weights", weights)):
                if values is not None and len(values) != X.shape[0]:
                    raise ValueError(f"batch {number} has {X.shape[0]} rows and {len(values)} {what}")
            self._first_row_of_batch.append(seen)
            seen += int(X.shape[0])
            yield X, y, weights

    def _first_blocks(self, size: int) -> Iterator[RowBlock]:
        return rebatch(self._pieces(self._first_batches()), size, 0)

    def _first_batches(self) -> Iterator[Any]:
        """Yield the batches from the first batch on; the next pass yields the same batches again, also for a generator."""
        iterator = self._iterate()
        taken: list[Any] = []
        if not self.repeatable:
            self._batches = itertools.chain(taken, iterator)
        for batch in iterator:
            taken.append(batch)
            yield batch

    def identity(self) -> tuple[Any, ...]:
        if isinstance(self._batches, list | tuple):
            sizes = [rows[0].shape for rows in self._pieces(self._batches)]
            compared = np.unique(np.linspace(0, len(sizes) - 1, min(TUNING.compared_rows, len(sizes))).astype(np.int64))
            picked = [rows_of(rows, slice(1)) for rows in self._pieces([self._batches[i] for i in compared])]
            return ("batches", sizes, fingerprint(picked))
        first = itertools.islice(self._first_batches(), 1)
        return ("iterable", fingerprint([rows_of(rows, slice(TUNING.compared_rows)) for rows in self._pieces(first)]))

    def row(self, index: int) -> str:
        batch = int(np.searchsorted(self._first_row_of_batch, index, side="right")) - 1
        return f"row {index - self._first_row_of_batch[batch]} of batch {batch}" if batch >= 0 else f"row {index}"


def import_reader(name: str) -> Any:
    """Import a package that reads files; raise ImportError with the command that installs it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("CSV and Parquet files need pandas and pyarrow: pip install 'gramless[files]'") from error


def target_column(names: Sequence[str], target: str | int | None, path: Path) -> int:
    """Return the position of the target column, given by name or position; None searches for one of `TARGET_NAMES`."""
    if isinstance(target, (int, np.integer)):
        if not -len(names) <= target < len(names):
            raise ValueError(f"{path} has {len(names)} columns; column {target} does not exist")
        return int(target) % len(names)
    wanted = (target,) if target is not None else TARGET_NAMES
    found = [i for i, name in enumerate(names) if name in wanted]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    if target is None:
        raise ValueError(
            f"{path} has {'no' if not found else 'more than one'} column named {', '.join(map(repr, TARGET_NAMES))}: "
            f"pass the target column as y='name' or y=position; the columns are {shown}"
        )
    raise ValueError(
        f"{path} has {'no column' if not found else 'several columns'} named {target!r}; the columns are {shown}"
    )


def rows_of(block: _Block, idx: slice | np.ndarray) -> _Block:
    """Return a tuple with the rows `idx` of each array in `block`; None in place of an array stays None."""
    return tuple(None if part is None else xa.take_rows(part, idx) for part in block)  # type: ignore[return-value]


def rebatch(pieces: Iterable[RowBlock], size: int, start: int) -> Iterator[RowBlock]:
    """Yield blocks of `size` rows from blocks of any size, without the first `start` rows."""
    waiting: list[RowBlock] = []
    count = 0
    for piece in pieces:
        n = int(piece[0].shape[0])
        skipped = min(start, n)
        start -= skipped
        at = skipped
        while at < n:
            stop = min(n, at + size - count)
            waiting.append(rows_of(piece, slice(at, stop)))
            count += stop - at
            at = stop
            if count == size:
                yield concatenate(waiting)
                waiting, count = [], 0
    if count:
        yield concatenate(waiting)


def concatenate(pieces: list[RowBlock]) -> RowBlock:
    """Join blocks of rows; rows of a block without weights get weight 1 if another block has weights."""
    if len(pieces) == 1:
        return pieces[0]
    weights = None
    if any(piece[2] is not None for piece in pieces):
        weights = np.concatenate([np.ones(piece[0].shape[0]) if piece[2] is None else piece[2] for piece in pieces])
    return _stack([piece[0] for piece in pieces]), _stack([piece[1] for piece in pieces]), weights


def _stack(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    if any(xa.is_sparse(part) for part in parts):
        return sp.vstack([part if xa.is_sparse(part) else sp.csr_matrix(xa.to_numpy(part)) for part in parts], format="csr")
    return xa.namespace(parts[0]).concat(parts, axis=0)


def _as_numbers(X: np.ndarray, where: str) -> np.ndarray:
    try:
        return X.astype(np.float64)
    except (ValueError, TypeError) as error:
        for i, row in enumerate(X):
            for j, value in enumerate(row):
                if not is_number(value):
                    raise ValueError(
                        f"row {i} of {where} has {str(value)!r} in column {j}, which is not a number"
                    ) from error
        raise


def is_number(value: Any) -> bool:
    """Return whether `float` can convert the value."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def file_identity(kind: str, path: Path) -> tuple[Any, ...]:
    """Return a tuple of `kind` and the path, size and modification time of a file."""
    stat = path.stat()
    return (kind, str(path.resolve()), stat.st_size, stat.st_mtime_ns)
