"""The datasets of the papers and benchmarks as NumPy arrays, with their standard splits into training and test rows.

>>> from gramless.papers.datasets import load
>>> load("digits").x_test.shape
(450, 64)

The file `datasets.toml` declares the datasets. Each dataset is one `.npz` file, searched in the folder given by the user, in
`$GRAMLESS_DATA` and in the cache folder. A missing `.npz` file is built from the published files, which pooch downloads.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from gramless._core.files import atomic_write
from gramless.papers import formats

ENVIRONMENT_VARIABLE = "GRAMLESS_DATA"
TIMEOUT = (10, 30)  # seconds to connect, and to wait for the next bytes
RETRIES = 2

Progress = Callable[[str, int, int | None], None]
"""Progress callback of a download: file name, bytes received, bytes in total or None if unknown."""


class DatasetError(RuntimeError):
    """Error of a dataset that is missing, cannot be downloaded or has unexpected contents."""


@dataclass(frozen=True)
class Dataset:
    """Arrays of one dataset, split into training and test rows.

    Each image is a flat row of pixels, and `image_shape` is the height, the width and the number of channels of the images.
    `class_names` follow the order of the sorted labels. `categorical` are the indices of columns with category codes.
    `split` is "original" for the published split into training and test rows, or a description of a random split.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    image_shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    categorical: tuple[int, ...] = ()
    task: str = "classification"
    split: str = "original"

    @classmethod
    def bundled(cls, name: str) -> Dataset:
        """Return a dataset that is part of scikit-learn, such as "breast_cancer"; all rows are training rows."""
        import sklearn.datasets  # the import takes 0.1 s

        x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        return cls(name.replace("_", " "), **formats.decode_unsplit({"x": x, "y": y}))

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and labels of all rows, training rows first."""
        return np.concatenate([self.x_train, self.x_test]), np.concatenate([self.y_train, self.y_test])

    def resplit(self, test_size: float | int, *, seed: int = 0) -> Dataset:
        """Shuffle all rows and split them again, stratified by class; `test_size` is a fraction or a number of rows."""
        x, y = self.pooled()
        stratified = self.task == "classification" and np.unique(y, return_counts=True)[1].min() > 1
        parts = train_test_split(x, y, test_size=test_size, random_state=seed, stratify=y if stratified else None)
        arrays = dict(zip(("x_train", "x_test", "y_train", "y_test"), parts, strict=True))
        return replace(self, **arrays, split=f"random, seed {seed}")

    def sample(self, n: int, *, seed: int = 0) -> Dataset:
        """Return a dataset with at most `n` training rows, drawn at random without replacement, and all test rows."""
        n_train = len(self.y_train)
        rows = np.sort(np.random.default_rng(seed).choice(n_train, size=min(n, n_train), replace=False))
        return replace(self, x_train=self.x_train[rows], y_train=self.y_train[rows])

    def only(self, labels: Sequence[int]) -> Dataset:
        """Return a dataset with only the training and test rows of the classes `labels`."""
        train, test = np.isin(self.y_train, labels), np.isin(self.y_test, labels)
        names = self.class_names
        if names is not None:
            known = np.unique(self.pooled()[1])
            names = tuple(name for name, label in zip(names, known, strict=True) if label in labels)
        kept: dict[str, Any] = {"x_train": self.x_train[train], "y_train": self.y_train[train]}
        return replace(self, **kept, x_test=self.x_test[test], y_test=self.y_test[test], class_names=names)


@dataclass(frozen=True)
class Entry:
    """Declaration of one dataset in `datasets.toml`; the comment at the top of that file describes the fields."""

    file: str
    source: str
    urls: Sequence[tuple[str, str | None]]
    read: Callable[[Sequence[Path]], dict[str, np.ndarray]]
    digest: str
    decode: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] = formats.decode_split
    fields: Mapping[str, Any] = field(default_factory=dict)
    text_file: str = ""

    def dataset(self, name: str, arrays: Mapping[str, np.ndarray]) -> Dataset:
        """Return the dataset whose stored arrays are `arrays`, with class labels as integers."""
        fields = {**self.decode(arrays), **self.fields}
        if fields.get("task") != "regression":
            fields |= {key: fields[key].astype(np.int64) for key in ("y_train", "y_test")}
        return Dataset(name=name, **fields)


def with_inherited(own: Mapping[str, Any], declared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a declaration and, recursively, the missing fields from the declaration that `like` names."""
    inherited = with_inherited(declared[own["like"]], declared) if "like" in own else {}
    return {key: value for key, value in {**inherited, **own}.items() if key != "like"}


def _read_catalogue() -> dict[str, Entry]:
    declared = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))
    entries = {}
    for name, own in declared.items():
        values = with_inherited(own, declared)
        values["urls"] = [(*address, None)[:2] for address in values["urls"]]
        for key in {"read", "decode"} & values.keys():
            arguments = dict(values[key])
            values[key] = partial(getattr(formats, arguments.pop("function")), **arguments)
        fields = values.get("fields", {})
        values["fields"] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
        entries[name] = Entry(**values)
    return entries


CATALOGUE = _read_catalogue()


def names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return ("digits", *CATALOGUE)


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise DatasetError(f"unknown dataset {name!r}; known are {', '.join(names())}")
    return CATALOGUE[name]


def cache_folder() -> Path:
    """Return the folder of downloaded datasets: `$XDG_CACHE_HOME/gramless`, by default `~/.cache/gramless`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gramless"


def search_path(data: str | os.PathLike | None = None) -> list[Path]:
    """Return the folders in which datasets are searched: `data`, `$GRAMLESS_DATA`, the cache folder."""
    return [Path(folder) for folder in (data, os.environ.get(ENVIRONMENT_VARIABLE)) if folder] + [cache_folder()]


def find(name: str, data: str | os.PathLike | None = None) -> Path | None:
    """Return the file of a dataset, or None if no folder of the search path has it."""
    entry = _entry(name)
    candidates = (folder / file for folder in search_path(data) for file in (entry.file, entry.text_file) if file)
    return next((path for path in candidates if path.is_file()), None)


def load(
    name: str,
    *,
    data: str | os.PathLike | None = None,
    seed: int = 0,
    test_size: float = 0.25,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load a dataset; if no folder of the search path has its file and `download` is True, download the file.

    `seed` and `test_size` are used only for datasets without a standard split. The dataset "digits" is part of scikit-learn.
    """
    if name == "digits":
        dataset = Dataset.bundled(name)
        arrays = {key: getattr(dataset, key).astype(np.float32) for key in ("x_train", "x_test")}
        dataset = replace(dataset, **arrays, image_shape=(8, 8), class_names=tuple("0123456789"))
    else:
        path = obtain(name, data=data, progress=progress) if download else find(name, data)
        if path is None:
            raise DatasetError(where_to_put(name, data))
        dataset = _read_stored(name, path)
    return dataset if len(dataset.y_test) else dataset.resplit(test_size, seed=seed)


def _read_stored(name: str, path: Path) -> Dataset:
    entry = _entry(name)
    if path.name == entry.text_file:
        with gzip.open(path, "rt", encoding="ascii") as text:
            return entry.dataset(name, formats.parse_bank(text.read()))
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as reason:
        raise DatasetError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
    try:
        return entry.dataset(name, arrays)
    except KeyError as reason:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise DatasetError(
            f"{path} is another file of that name: it has no array {reason}, only {found}. Move it to another folder to "
            "download the original, or set --data to another folder"
        ) from reason


def obtain(name: str, *, data: str | os.PathLike | None = None, progress: Progress | None = None) -> Path | None:
    """Return the file of a dataset, downloaded if necessary; None for "digits", which has no file.

    The arrays in the published files are compared with the declared digest and written to one file in the cache folder. The
    published files are then deleted.
    """
    if name == "digits":
        return None
    path = find(name, data)
    if path is not None:
        return path
    entry = _entry(name)
    target = cache_folder() / entry.file
    folder = cache_folder() / "originals"
    try:
        files = [
            fetch(url, folder, f"{target.stem}-{number}", checksum, progress=progress)
            for number, (url, checksum) in enumerate(entry.urls)
        ]
    except DatasetError as reason:
        raise DatasetError(f"{reason}. {where_to_put(name, data)}") from reason
    except OSError as reason:
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DatasetError(f"cannot write to {folder}: {reason.strerror}. {where_to_put(name, data)}") from reason
    try:
        arrays = entry.read(files)
    except (ValueError, KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as reason:
        raise DatasetError(f"the published files of {name!r} cannot be read and were deleted: {reason}") from reason
    finally:
        for published in files:
            published.unlink(missing_ok=True)
    if digest(arrays) != entry.digest:
        raise DatasetError(f"the published files of {name!r} have other values than expected and were deleted")
    with atomic_write(target) as part, open(part, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return target


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of the names, types, shapes and bytes of arrays, independent of how a file compresses them."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def fetch(url: str, folder: Path, name: str, checksum: str | None, *, progress: Progress | None = None) -> Path:
    """Download `url` to `folder/name` unless that file exists and has the checksum ("sha256:..." or "md5:...")."""
    try:
        import pooch
        import requests
    except ImportError as reason:
        raise DatasetError(f"the download of {url} needs pooch: pip install 'gramless[cli]'") from reason

    def download(*arguments: Any) -> None:
        """Attempt the download once, with a new progress bar."""
        bar = False if progress is None else _ProgressBar(name, progress)
        # "identity" prevents compression by the server: length and checksum refer to the uncompressed file.
        pooch.HTTPDownloader(bar, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"})(*arguments)

    pooch.get_logger().setLevel("ERROR")
    cache = pooch.create(folder, base_url="", registry={name: checksum}, urls={name: url}, retry_if_failed=RETRIES)
    try:
        return Path(cache.fetch(name, downloader=download))
    except requests.Timeout as reason:
        raise DatasetError(f"could not download {url}: the server does not answer") from reason
    except requests.exceptions.ChunkedEncodingError as reason:
        raise DatasetError(f"could not download {url}: the connection was closed before the end of the file") from reason
    except requests.HTTPError as reason:
        raise DatasetError(f"could not download {url}: {reason}") from reason
    except requests.RequestException as reason:
        raise DatasetError(f"could not download {url}: the server cannot be reached") from reason
    except ValueError as reason:
        raise DatasetError(f"could not download {url}: the checksum differs from the published one") from reason


class _ProgressBar:
    """Object with the interface of pooch's progress bars that calls a progress callback."""

    def __init__(self, name: str, progress: Progress):
        self._report, self._done = partial(progress, name), 0
        self.total = 0  # pooch sets this attribute to the length of the file

    def update(self, size: int) -> None:
        # pooch counts the last block of the file as a full block, although it may be shorter.
        self._done = min(self._done + size, self.total or sys.maxsize)
        self._report(self._done, self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def where_to_put(name: str, data: str | os.PathLike | None = None) -> str:
    """Return an error message with the name of the missing file and the folders in which the file is searched."""
    entry = _entry(name)
    folders = ", ".join(str(folder) for folder in search_path(data))
    return (
        f"dataset {name!r} was not found: put {entry.file} ({entry.source}) into one of {folders}, or set --data or "
        f"${ENVIRONMENT_VARIABLE} to the folder that contains it"
    )
