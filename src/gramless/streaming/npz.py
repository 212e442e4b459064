"""Rows of an array of features and an array of targets in an npz archive, decompressed while they are read.

A row-major array is read in batches. A column-major array is read at once, in its stored dtype; column-major features of
more than 1 GiB raise MemoryError. Object arrays, which would need unpickling, raise ValueError.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.sources import RowBlock, Source, file_identity
from gramless.streaming.tuning import TUNING

_PAIRS = (("X", "y"), ("x", "y"), ("x_train", "y_train"), ("X_train", "y_train"), ("data", "target"))


class NpzSource(Source):
    """Source of the rows of an npz file with an array of features and an array of targets."""

    def __init__(self, path: Path, target: str | None = None):
        self.path = path
        self.name = str(path)
        try:
            with zipfile.ZipFile(path) as archive:
                members = {name.removesuffix(".npy") for name in archive.namelist()}
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is not a complete npz file: {error}") from error
        pairs = [pair for pair in _PAIRS if set(pair) <= members and target in (None, pair[1])]
        if not pairs:
            wanted = "pair such as X and y" if target is None else f"features for the targets {target!r}"
            raise ValueError(f"{path} has no {wanted}; its arrays are {', '.join(map(repr, sorted(members)))}")
        self._X, self._y = pairs[0]
        (shape, column_major, dtype), (target_shape, _, _) = self._header(self._X), self._header(self._y)
        if len(shape) < 2 or dtype.kind not in "biuf":
            raise ValueError(f"{path}: {self._X!r} has shape {shape} and type {dtype}; expected numbers in rows")
        if target_shape[:1] != shape[:1]:
            raise ValueError(
                f"{path}: {self._X!r} has {shape[0]} rows and {self._y!r} has {target_shape[0] if target_shape else 'none'}"
            )
        self.n_rows = int(shape[0])
        self._column_major: dict[str, np.ndarray] = {}
        if column_major:
            nbytes = int(np.prod(shape)) * dtype.itemsize
            if nbytes > TUNING.largest_column_major:
                raise MemoryError(
                    f"{path}: {self._X!r} is stored column by column and takes {nbytes / 1e9:.1f} GB when read at once; "
                    "store it in row order (np.ascontiguousarray) to read it in batches"
                )

    def _header(self, key: str) -> tuple[tuple[int, ...], bool, np.dtype]:
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{key}.npy") as member:
            return _read_header(member)

    def read(self, size: int, start: int) -> Iterator[RowBlock]:
        for X, y in zip(self._rows(self._X, size, start), self._rows(self._y, size, start), strict=True):
            yield X.reshape(len(X), -1), y, None

    def _rows(self, key: str, size: int, start: int) -> Iterator[np.ndarray]:
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{key}.npy") as member:
            shape, column_major, dtype = _read_header(member)
            if dtype.hasobject:
                raise ValueError(f"{self.path}: {key!r} has Python objects, which are not loaded: store numbers or strings")
            if column_major and len(shape) > 1:
                if key not in self._column_major:
                    self._column_major[key] = np.frombuffer(member.read(), dtype).reshape(shape, order="F")
                yield from (self._column_major[key][at : at + size] for at in range(start, shape[0], size))
                return
            row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
            member.seek(start * row_bytes, 1)
            for at in range(start, shape[0], size):
                n = min(size, shape[0] - at)
                data = member.read(n * row_bytes)
                if len(data) < n * row_bytes:
                    raise ValueError(f"{self.path}: {key!r} ends at row {at + len(data) // row_bytes} of {shape[0]}")
                yield np.frombuffer(data, dtype).reshape(n, *shape[1:])

    def identity(self) -> tuple[Any, ...]:
        return (*file_identity("npz", self.path), self._X, self._y)

    def row(self, index: int) -> str:
        return f"{self.path}, row {index + 1} of {self._X!r}"


def _read_header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(member)
