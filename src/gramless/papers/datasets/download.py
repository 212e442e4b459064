"""Downloads by pooch: checked, tried again when the connection drops, and put in place in one move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gramless.papers.datasets.dataset import DatasetError

Progress = Callable[[str, int, int | None], None]

TIMEOUT = (10, 30)
RETRIES = 2


def fetch(url: str, folder: Path, name: str, checksum: str | None, *, progress: Progress | None = None) -> Path:
    """Download `url` to ``folder/name`` unless it is there with the right checksum.

    Parameters
    ----------
    url : str
        Where the file lies.
    folder : Path
        Where it goes.
    name : str
        Its name there.
    checksum : str or None
        ``"sha256:..."`` or ``"md5:..."``, as published; None where the contents are checked later.
    progress : callable, optional
        Hears ``progress(name, bytes so far, bytes in all or None)``.

    Returns
    -------
    Path
        The file.
    """
    try:
        import pooch
        import requests
    except ImportError as reason:
        raise DatasetError(
            f"downloading {url} needs pooch: pip install 'gramless[cli]', or put the file there yourself"
        ) from reason

    pooch.get_logger().setLevel("ERROR")
    keeper = pooch.create(folder, base_url="", registry={name: checksum}, urls={name: url}, retry_if_failed=RETRIES)
    bar = False if progress is None else _Told(name, progress)
    # As it lies there: what a server packs on its way has another length, and another sum.
    as_it_is = {"Accept-Encoding": "identity"}
    downloader = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT, headers=as_it_is)
    try:
        return Path(keeper.fetch(name, downloader=downloader))
    except requests.Timeout as reason:
        raise DatasetError(f"could not download {url}: the server does not answer") from reason
    except requests.exceptions.ChunkedEncodingError as reason:
        raise DatasetError(f"could not download {url}: the connection ended before the file did") from reason
    except requests.HTTPError as reason:
        raise DatasetError(f"could not download {url}: {reason}") from reason
    except requests.RequestException as reason:
        raise DatasetError(f"could not download {url}: the server cannot be reached") from reason
    except ValueError as reason:
        raise DatasetError(f"what {url} sent is not the published file (its checksum differs); nothing was kept") from reason


class _Told:
    """A progress bar as pooch knows it, which tells a function."""

    def __init__(self, name: str, progress: Progress):
        self.name = name
        self.progress = progress
        self.total = 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, length: int) -> None:  # which pooch sets at every attempt
        self._total, self._done = length, 0

    def update(self, size: int) -> None:
        # pooch counts the last, shorter piece as a whole one.
        self._done = min(self._done + size, self._total) if self._total else self._done + size
        self.progress(self.name, self._done, self._total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass
