"""The datasets of `load`, which the file `catalogue.toml` declares."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gramless.papers.datasets import formats
from gramless.papers.datasets.dataset import Dataset


@dataclass(frozen=True)
class Entry:
    """One dataset; the comment in `catalogue.toml` describes the fields."""

    file: str
    source: str
    urls: Sequence[tuple[str, str | None]]
    read: Callable[[Sequence[Path]], dict[str, np.ndarray]]
    digest: str
    decode: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] = formats.decode_split
    fields: Mapping[str, Any] = field(default_factory=dict)
    text_file: str = ""

    def dataset(self, name: str, arrays: Mapping[str, np.ndarray]) -> Dataset:
        """Return the dataset of stored arrays, with integer labels."""
        fields = {**self.decode(arrays), **self.fields}
        if fields.get("task") != "regression":
            fields |= {key: fields[key].astype(np.int64) for key in ("y_train", "y_test")}
        return Dataset(name=name, **fields)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of the names, types, shapes and bytes of arrays, independent of how a file compresses them."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _read_catalogue() -> dict[str, Entry]:
    declared = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    entries = {}
    for name, own in declared.items():
        values = {**declared.get(own.get("like"), {}), **own}
        values.pop("like", None)
        values["urls"] = [(*address, None)[:2] for address in values["urls"]]
        for key in {"read", "decode"} & values.keys():
            arguments = dict(values[key])
            values[key] = partial(getattr(formats, arguments.pop("function")), **arguments)
        fields = values.get("fields", {})
        values["fields"] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        entries[name] = Entry(**values)
    return entries


CATALOGUE = _read_catalogue()
