"""Find, download and load datasets.

A dataset is one `.npz` file, searched in the given folder, then `$GRAMLESS_DATA`, then the cache folder. A missing file is
built from the published files, which pooch downloads and checks.
"""

from __future__ import annotations

import errno
import gzip
import os
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gramless._core.files import atomic_write
from gramless.papers.datasets import formats
from gramless.papers.datasets.catalogue import CATALOGUE, Entry, digest
from gramless.papers.datasets.dataset import Dataset, DatasetError

ENVIRONMENT_VARIABLE = "GRAMLESS_DATA"
TIMEOUT = (10, 30)  # seconds to connect, and to wait for the next bytes
RETRIES = 2

Progress = Callable[[str, int, int | None], None]
"""Progress callback of a download: file name, bytes received, bytes in total or None if unknown."""


def names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return ("digits", *CATALOGUE)


def cache_folder() -> Path:
    """Return the folder of downloaded datasets: `$XDG_CACHE_HOME/gramless`, by default `~/.cache/gramless`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gramless"


def search_path(data: str | os.PathLike | None = None) -> list[Path]:
    """Return the folders in which datasets are searched: `data`, `$GRAMLESS_DATA`, the cache folder."""
    folders = [Path(data)] if data is not None else []
    if os.environ.get(ENVIRONMENT_VARIABLE):
        folders.append(Path(os.environ[ENVIRONMENT_VARIABLE]))
    return [*folders, cache_folder()]


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
    """Load a dataset, and download it if no folder of the search path has it and `download` is true.

    `seed` and `test_size` are used only for datasets without a standard split. "digits" is part of scikit-learn.
    """
    if name == "digits":
        dataset = _digits()
    else:
        path = obtain(name, data=data, progress=progress) if download else find(name, data)
        if path is None:
            raise DatasetError(where_to_put(name, data))
        dataset = _read_archive(name, path)
    return dataset if len(dataset.y_test) else dataset.resplit(test_size, seed=seed)


def obtain(name: str, *, data: str | os.PathLike | None = None, progress: Progress | None = None) -> Path | None:
    """Return the file of a dataset, downloaded if necessary; None for "digits", which has no file.

    The arrays of the published files are compared with the known digest and written to the cache folder in one step; the
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
        arrays = _read_published(name, files)
        with atomic_write(target) as part, open(part, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    finally:
        for file_path in files:
            file_path.unlink(missing_ok=True)
    return target


def fetch(url: str, folder: Path, name: str, checksum: str | None, *, progress: Progress | None = None) -> Path:
    """Download `url` to `folder/name` unless that file exists and has the checksum ("sha256:..." or "md5:...")."""
    try:
        import pooch
        import requests
    except ImportError as reason:
        raise DatasetError(f"the download of {url} needs pooch: pip install 'gramless[cli]'") from reason

    pooch.get_logger().setLevel("ERROR")
    cache = pooch.create(folder, base_url="", registry={name: checksum}, urls={name: url}, retry_if_failed=RETRIES)
    downloader = pooch.HTTPDownloader(
        progressbar=False if progress is None else _ProgressBar(name, progress),
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},  # the length and the checksum are those of the uncompressed file
    )
    try:
        return Path(cache.fetch(name, downloader=downloader))
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
    """Progress bar with pooch's interface that calls a function."""

    def __init__(self, name: str, progress: Progress):
        self.name = name
        self.progress = progress
        self.total = 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, length: int) -> None:  # pooch assigns this attribute at every attempt
        self._total, self._done = length, 0

    def update(self, size: int) -> None:
        # pooch counts the last, shorter block as a full one.
        self._done = min(self._done + size, self._total) if self._total else self._done + size
        self.progress(self.name, self._done, self._total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def where_to_put(name: str, data: str | os.PathLike | None = None) -> str:
    """Return an error message with the missing file and the folders in which it is searched."""
    entry = _entry(name)
    folders = ", ".join(str(folder) for folder in search_path(data))
    return (
        f"dataset {name!r} was not found: put {entry.file} ({entry.source}) into one of {folders}, or set --data or "
        f"${ENVIRONMENT_VARIABLE} to the folder that contains it"
    )


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise DatasetError(f"unknown dataset {name!r}; known are {', '.join(names())}")
    return CATALOGUE[name]


def _read_published(name: str, files: Sequence[Path]) -> dict[str, np.ndarray]:
    entry = _entry(name)
    try:
        arrays = entry.read(files)
    except (ValueError, KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as reason:
        raise DatasetError(f"the published files of {name!r} cannot be read and were deleted: {reason}") from reason
    if digest(arrays) != entry.digest:
        raise DatasetError(f"the published files of {name!r} have other values than expected and were deleted")
    return arrays


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset.unsplit(
        bunch.data.astype(np.float32),
        bunch.target.astype(np.int64),
        name="digits",
        image_shape=(8, 8),
        class_names=tuple("0123456789"),
    )


def _read_archive(name: str, path: Path) -> Dataset:
    if path.name == _entry(name).text_file:
        with gzip.open(path, "rt", encoding="ascii") as text:
            return _entry(name).dataset(name, formats.parse_bank(text.read()))
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as reason:
        raise DatasetError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
    try:
        return _entry(name).dataset(name, arrays)
    except KeyError as reason:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise DatasetError(
            f"{path} is another file of that name: it has no array {reason}, only {found}. Move it to another folder to "
            "download the original, or set --data to another folder"
        ) from reason
