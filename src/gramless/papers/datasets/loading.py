"""Find a dataset's file, fetch its original where there is none, or say which file to put where."""

from __future__ import annotations

import errno
import os
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gramless._core.files import replaced
from gramless.papers.datasets.catalogue import CATALOGUE, Entry, digest
from gramless.papers.datasets.dataset import Dataset, DatasetError
from gramless.papers.datasets.download import Progress, fetch
from gramless.papers.datasets.layouts import DIGITS, pooled_layout

ENVIRONMENT_VARIABLE = "GRAMLESS_DATA"


def names() -> tuple[str, ...]:
    """List every name that `load` knows.

    Returns
    -------
    tuple of str
        The names.

    See Also
    --------
    load : Loads one of them.

    Examples
    --------
    >>> from gramless.papers.datasets import names
    >>> names()[:3]
    ('digits', 'mnist', 'cifar10')
    """
    return ("digits", *CATALOGUE)


def cache_folder() -> Path:
    """Name the folder where downloads are kept.

    Returns
    -------
    Path
        ``$XDG_CACHE_HOME/gramless``, by default ``~/.cache/gramless``.

    See Also
    --------
    search_path : All folders looked into.

    Examples
    --------
    >>> from gramless.papers.datasets import cache_folder
    >>> cache_folder().name
    'gramless'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gramless"


def search_path(data: str | os.PathLike | None = None) -> list[Path]:
    """List the folders in which datasets are looked for.

    Parameters
    ----------
    data : path-like, optional
        A folder to look into first.

    Returns
    -------
    list of Path
        First one first: `data`, ``$GRAMLESS_DATA``, the cache folder.

    See Also
    --------
    find : The file of one dataset in these folders.

    Examples
    --------
    >>> from gramless.papers.datasets import search_path
    >>> search_path("mine")[0].name
    'mine'
    """
    folders = [Path(data)] if data is not None else []
    if os.environ.get(ENVIRONMENT_VARIABLE):
        folders.append(Path(os.environ[ENVIRONMENT_VARIABLE]))
    return [*folders, cache_folder()]


def find(name: str, data: str | os.PathLike | None = None) -> Path | None:
    """Find the file of a dataset.

    Parameters
    ----------
    name : str
        One of `names()`.
    data : path-like, optional
        A folder to look into first.

    Returns
    -------
    Path or None
        The file; None where no folder of the search path holds it.

    See Also
    --------
    obtain : Also fetches it.

    Examples
    --------
    >>> import tempfile
    >>> from gramless.papers.datasets import find
    >>> path = find("mnist", data=tempfile.mkdtemp())
    >>> path is None or path.name == "mnist.npz"
    True
    """
    candidates = (folder / _entry(name).file for folder in search_path(data))
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
    """Load a dataset as plain arrays with its standard split.

    Parameters
    ----------
    name : str
        One of `gramless.papers.datasets.names()`. ``"digits"`` comes with scikit-learn and needs no file.
    data : path-like, optional
        Folder to look into first; then ``$GRAMLESS_DATA``, then the cache folder.
    seed : int, default=0
        Shuffles the rows of a dataset that has no standard split.
    test_size : float, default=0.25
        Share of test rows of a dataset that has no standard split.
    download : bool, default=True
        Whether a dataset that is in none of the folders is fetched from its public original into the cache
        folder.
    progress : callable, optional
        Hears ``progress(file, bytes so far, bytes in all or None)`` of a download.

    Returns
    -------
    Dataset
        ``x_train, y_train, x_test, y_test`` and the names that go with them.

    See Also
    --------
    names : What there is.
    obtain : Fetches a dataset without loading it.

    Examples
    --------
    >>> from gramless.papers.datasets import load
    >>> load("digits").split
    'random, seed 0'
    """
    if name == "digits":
        return _digits(seed, test_size)
    entry = _entry(name)
    path = find(name, data)
    if path is None and download:
        path = obtain(name, data=data, progress=progress)
    if path is None:
        raise DatasetError(where_to_put(name, data))
    arrays = _open(path)
    try:
        return entry.layout(arrays, seed, test_size)
    except KeyError as reason:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DatasetError(
            f"{path} is another file of that name: it has no array {reason}, only {held}. Move it away to have the original "
            "fetched, or point --data at another folder"
        ) from reason


def obtain(name: str, *, data: str | os.PathLike | None = None, progress: Progress | None = None) -> Path | None:
    """Make sure that the file of a dataset is here, by download where it is not.

    The originals are read, their values checked, and the result put into the cache folder in one move; the
    downloaded files are removed then.

    Parameters
    ----------
    name : str
        One of `names()`.
    data : path-like, optional
        A folder to look into first.
    progress : callable, optional
        Hears ``progress(file, bytes so far, bytes in all or None)`` of a download.

    Returns
    -------
    Path or None
        The file; None for ``"digits"``, which needs none.

    See Also
    --------
    load : Loads it too.

    Examples
    --------
    >>> from gramless.papers.datasets import obtain
    >>> obtain("digits") is None
    True
    """
    if name == "digits":
        return None
    path = find(name, data)
    if path is not None:
        return path
    entry = _entry(name)
    target = cache_folder() / entry.file
    raw = cache_folder() / "originals"
    try:
        files = [
            fetch(url, raw, f"{target.stem}-{number}", checksum, progress=progress)
            for number, (url, checksum) in enumerate(entry.original.files)
        ]
    except DatasetError as reason:
        raise DatasetError(f"{reason}. {where_to_put(name, data)}") from reason
    except OSError as reason:
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DatasetError(f"nothing can be kept in {raw}: {reason.strerror}. {where_to_put(name, data)}") from reason
    try:
        arrays = entry.original.read(files)
    except (ValueError, KeyError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as reason:
        _remove(files)
        raise DatasetError(f"the original of {name!r} cannot be read: {reason}. Nothing was kept") from reason
    if digest(arrays) != entry.original.digest:
        _remove(files)
        raise DatasetError(
            f"the original of {name!r} holds other values than it should (their checksum differs); nothing was kept"
        )
    with replaced(target) as part, open(part, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    _remove(files)
    return target


def where_to_put(name: str, data: str | os.PathLike | None = None) -> str:
    """A sentence for people: the file that is missing and the folders it may lie in."""
    entry = _entry(name)
    folders = ", ".join(str(folder) for folder in search_path(data))
    return (
        f"dataset {name!r} is not on this machine: put {entry.file} ({entry.about}) into one of "
        f"{folders}, or point --data or ${ENVIRONMENT_VARIABLE} at the folder that holds it"
    )


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise DatasetError(f"unknown dataset {name!r}; known are {', '.join(names())}")
    return CATALOGUE[name]


def _remove(files: Sequence[Path]) -> None:
    for path in files:
        path.unlink(missing_ok=True)


def _digits(seed: int, test_size: float) -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    read = pooled_layout("digits", image_shape=(8, 8), class_names=DIGITS)
    return read({"x": bunch.data.astype(np.float32), "y": bunch.target}, seed, test_size)


def _open(path: Path) -> dict[str, np.ndarray]:
    # Never unpickled: a file from a stranger may hold numbers and text, nothing that runs.
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as reason:
        raise DatasetError(f"{path} cannot be read as a NumPy archive without pickles: {reason}") from reason
