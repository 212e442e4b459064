"""Find a dataset's file, read it, or say which file to put where."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from gramless.datasets.catalogue import CATALOGUE, Entry
from gramless.datasets.dataset import Dataset, DatasetError
from gramless.datasets.layouts import DIGITS, pooled_layout

ENVIRONMENT_VARIABLE = "GRAMLESS_DATA"


def names() -> tuple[str, ...]:
    """Every name that `load` knows."""
    return ("digits", *CATALOGUE)


def cache_folder() -> Path:
    """Where downloads are kept: ``$XDG_CACHE_HOME/gramless``, by default ``~/.cache/gramless``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gramless"


def search_path(data: str | os.PathLike | None = None) -> list[Path]:
    """Folders looked into, first one first: `data`, ``$GRAMLESS_DATA``, the cache folder."""
    folders = [Path(data)] if data is not None else []
    if os.environ.get(ENVIRONMENT_VARIABLE):
        folders.append(Path(os.environ[ENVIRONMENT_VARIABLE]))
    return [*folders, cache_folder()]


def find(name: str, data: str | os.PathLike | None = None) -> Path | None:
    """The file of dataset `name`, or None where no folder of the search path holds it."""
    candidates = (folder / _entry(name).file for folder in search_path(data))
    return next((path for path in candidates if path.is_file()), None)


def load(
    name: str,
    *,
    data: str | os.PathLike | None = None,
    seed: int = 0,
    test_size: float = 0.25,
) -> Dataset:
    """Load a dataset as plain arrays with its standard split.

    Parameters
    ----------
    name : str
        One of `gramless.datasets.names()`. ``"digits"`` comes with scikit-learn and needs no file.
    data : path-like, optional
        Folder to look into first; then ``$GRAMLESS_DATA``, then the cache folder.
    seed : int, default=0
        Shuffles the rows of a dataset that has no standard split.
    test_size : float, default=0.25
        Share of test rows of a dataset that has no standard split.

    Returns
    -------
    Dataset
        ``x_train, y_train, x_test, y_test`` and the names that go with them.

    Examples
    --------
    >>> from gramless.datasets import load
    >>> load("digits").split
    'random, seed 0'
    """
    if name == "digits":
        return _digits(seed, test_size)
    entry = _entry(name)
    path = find(name, data)
    if path is None:
        raise DatasetError(where_to_put(name, data))
    return entry.layout(_open(path), seed, test_size)


def where_to_put(name: str, data: str | os.PathLike | None = None) -> str:
    """A sentence for people: the file that is missing and the folders it may lie in."""
    entry = _entry(name)
    folders = ", ".join(str(folder) for folder in search_path(data))
    return (
        f"dataset {name!r} is not on this machine: put {entry.file} ({entry.original}) into one of "
        f"{folders}, or point --data or ${ENVIRONMENT_VARIABLE} at the folder that holds it"
    )


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise DatasetError(f"unknown dataset {name!r}; known are {', '.join(names())}")
    return CATALOGUE[name]


def _digits(seed: int, test_size: float) -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    read = pooled_layout("digits", image_shape=(8, 8), class_names=DIGITS)
    return read({"x": bunch.data.astype(np.float32), "y": bunch.target}, seed, test_size)


def _open(path: Path) -> dict[str, np.ndarray]:
    # Never unpickled: a file from a stranger may hold numbers and text, nothing that runs.
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as reason:
        raise DatasetError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
