"""Downloads that can be stopped: resumed where they were, checked, and put in place in one move.

pooch keeps the file, checks its sum and renames it into place; what it lacks is going on with half a file,
which is the downloader below. A partial file lies beside the final one with the tag by which the server
knows its version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gramless.datasets.dataset import DatasetError

Progress = Callable[[str, int, int | None], None]

CHUNK = 1 << 16
TIMEOUT = (10, 30)
TRIES = 3


def fetch(url: str, folder: Path, name: str, checksum: str | None, *, progress: Progress | None = None) -> Path:
    """Download `url` to ``folder/name`` unless it is there with the right checksum; return the path.

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
    """
    try:
        import pooch
        import requests
    except ImportError as reason:
        raise DatasetError(
            f"downloading {url} needs pooch: pip install 'gramless[cli]', or put the file there yourself"
        ) from reason

    pooch.get_logger().setLevel("ERROR")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Path(pooch.retrieve(url, checksum, fname=name, path=folder, downloader=Resuming(folder / name, progress)))
    except requests.RequestException as reason:
        raise DatasetError(f"could not download {url}: {_plainly(reason)}") from reason
    except ValueError as reason:
        raise DatasetError(f"what {url} sent is not the published file (its checksum differs); nothing was kept") from reason


class Resuming:
    """A downloader for pooch that goes on with a partial file and tries again when the connection drops."""

    def __init__(self, target: Path, progress: Progress | None):
        self.target = target
        self.part = target.with_name(target.name + ".partial")
        self.tag = target.with_name(target.name + ".partial-tag")
        self.progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        """Fill `output_file` with what `url` holds."""
        import requests

        for attempt in range(1, TRIES + 1):
            try:
                self._receive(url)
                break
            except (requests.ConnectionError, requests.Timeout, _CutShort) as reason:
                if attempt == TRIES or not self.part.exists():
                    raise requests.ConnectionError(str(reason)) from reason
        self.tag.unlink(missing_ok=True)
        # pooch made an empty file to be filled; the finished part takes its place.
        os.replace(self.part, output_file)

    def _receive(self, url: str) -> None:
        import requests

        done = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if done and self.tag.exists():
            headers |= {"Range": f"bytes={done}-", "If-Range": self.tag.read_text()}
        else:
            done = 0
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:  # the part is complete, or of another version: start over
                self.part.unlink(missing_ok=True)
                raise _CutShort("the server does not continue this download")
            answer.raise_for_status()
            if answer.status_code != 206:
                done = 0
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length is not None else None
            version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            if version is None:
                self.tag.unlink(missing_ok=True)
            else:
                self.tag.write_text(version)
            try:
                with open(self.part, "ab" if done else "wb") as file:
                    for chunk in answer.iter_content(CHUNK):
                        file.write(chunk)
                        done += len(chunk)
                        if self.progress is not None:
                            self.progress(self.target.name, done, total)
            except requests.exceptions.ChunkedEncodingError as reason:
                of = "" if total is None else f" of {total:,}"
                raise _CutShort(f"the connection ended after {done:,}{of} bytes") from reason


class _CutShort(Exception):
    """Fewer bytes than announced."""


def _plainly(reason: Exception) -> str:
    import requests

    if isinstance(reason, requests.Timeout):
        return "the server does not answer"
    if isinstance(reason, requests.HTTPError):
        return str(reason)
    if isinstance(reason, requests.ConnectionError):
        text = str(reason)
        return text if text.startswith("the ") else "the server cannot be reached"
    return str(reason)
