"""Rows of a Parquet file in batches, and data frames from Parquet and Feather files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gramless._core.validation import working_dtype
from gramless.streaming.sources import RowBlock, Source, file_identity, import_reader, rebatch, target_column
from gramless.streaming.tuning import TUNING


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; raise ValueError if two columns have the same name.

    Row groups are not read ahead, unlike in pyarrow's default, because the memory would grow with the size of the file.
    """
    parquet = import_reader("pyarrow.parquet")
    repeated: list[str] = []
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=TUNING.parquet_buffer) as file:
            names = file.schema_arrow.names
            repeated = sorted({name for name in names if names.count(name) > 1})
            if not repeated:
                yield file
    except MemoryError:
        raise
    except Exception as reason:  # raised by pyarrow, or by pandas for damaged metadata
        raise ValueError(f"{path} is not a complete Parquet file: {reason}") from reason
    if repeated:
        raise ValueError(f"{path} has more than one column named {', '.join(map(repr, repeated))}: rename them")


def frames(path: Path, size: int | None) -> Iterator[Any]:
    """Yield the rows of a Parquet file as data frames of at most `size` rows, or as one data frame if `size` is None."""
    arrow = import_reader("pyarrow")
    with open_parquet(path) as file:
        if size is None:
            yield _frame(file.read())
            return
        for batch in file.iter_batches(batch_size=size):
            yield _frame(arrow.Table.from_batches([batch]))


def feather_frames(path: Path, size: int | None) -> Iterator[Any]:
    """Yield the rows of a Feather file (version 2) as data frames of at most `size` rows, or as one if `size` is None."""
    arrow, ipc = import_reader("pyarrow"), import_reader("pyarrow.ipc")
    try:
        with arrow.OSFile(str(path)) as opened, ipc.open_file(opened) as file:
            if size is None:
                yield _frame(file.read_all())
                return
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                for start in range(0, batch.num_rows, size):
                    yield _frame(arrow.Table.from_batches([batch.slice(start, size)]))
    except (arrow.ArrowException, OSError) as reason:
        raise ValueError(f"{path} is not a complete Feather file: {reason}") from reason


def _frame(table: Any) -> Any:
    """Return an Arrow table as a data frame indexed by row numbers; decimals are converted to floats."""
    arrow = import_reader("pyarrow")
    fields = [field.with_type(arrow.float64()) if arrow.types.is_decimal(field.type) else field for field in table.schema]
    converted = table.cast(arrow.schema(fields, table.schema.metadata)).to_pandas().reset_index(drop=True)
    converted.columns = converted.columns.map(str)
    return converted


class ParquetSource(Source):
    """Source of the rows of a Parquet file; all columns except the target must be numeric."""

    def __init__(self, path: Path, target: str | int | None = None):
        arrow = import_reader("pyarrow")
        self.path = path
        self.name = str(path)
        with open_parquet(path) as file:
            schema, self.n_rows = file.schema_arrow, int(file.metadata.num_rows)
        # pandas stores the index of a data frame as a column of the file, which is not a feature.
        index = set() if schema.pandas_metadata is None else set(map(str, schema.pandas_metadata["index_columns"]))
        self.names = [name for name in schema.names if name not in index or name == target]
        self.target = target_column(self.names, target, path)
        types = arrow.types
        for i, field in enumerate(map(schema.field, self.names)):
            number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
            if i != self.target and not number:
                raise ValueError(
                    f"{path}: column {field.name!r} has type {field.type}, not numbers; encode it or leave it out"
                )
        features = [schema.field(name).type for i, name in enumerate(self.names) if i != self.target]
        # float32 if all features have single precision, by the same rule as for data frames in memory.
        self.dtype = working_dtype(SimpleNamespace(dtypes=[np.dtype(kind.to_pandas_dtype()) for kind in features]), None)

    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        groups: list[int] = []
        before = 0
        with open_parquet(self.path) as file:
            for i in range(file.num_row_groups):
                length = file.metadata.row_group(i).num_rows
                if groups or before + length > start:
                    groups.append(i)
                else:
                    before += length
            yield from rebatch(self._pieces(file, groups), size, start - before)

    def _pieces(self, file: Any, groups: list[int]) -> Iterator[RowBlock]:
        if not groups:
            return
        for table in file.iter_batches(batch_size=TUNING.file_rows, row_groups=groups, columns=self.names):
            X = np.empty((table.num_rows, table.num_columns - 1), self.dtype)
            for j, column in enumerate(column for i, column in enumerate(table.columns) if i != self.target):
                X[:, j] = column.to_numpy(zero_copy_only=False)  # missing values become NaN
            yield X, table.column(self.target).to_numpy(zero_copy_only=False), None

    def identity(self) -> tuple[Any, ...]:
        return (*file_identity("parquet", self.path), self.target)

    def row(self, index: int) -> str:
        return f"{self.path}, row {index + 1}"

    def column(self, index: int) -> str:
        return f" in column {self.names[index + int(index >= self.target)]!r}"
