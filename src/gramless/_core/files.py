"""Atomic writing of files: other processes see the old file or the complete new file."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS_PER_DAY = 86_400.0


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that is renamed to `path` at the end of the context, or removed after an error.

    Temporary files of killed processes are removed first.
    """
    remove_partial_files(path)
    part = path.with_name(f"{_stem(path)}{_host()}-{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield part
        os.replace(part, path)
    except OSError as reason:
        reason.filename = str(path)  # the error for a full disk has no file name
        raise
    finally:
        part.unlink(missing_ok=True)


def remove_partial_files(path: Path) -> None:
    """Remove temporary files of `path` if their process has ended, and temporary files of other hosts after a day."""
    pattern = re.compile(re.escape(_stem(path)) + r"([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.partial")
    try:
        found = [(entry, pattern.fullmatch(entry.name)) for entry in os.scandir(path.parent)]
    except OSError:  # the error of writing to the folder will report the reason
        return
    for entry, match in found:
        if match is None:
            continue
        with suppress(OSError):  # another process may remove the file at the same time
            age = time.time() - entry.stat().st_mtime
            if not _is_alive(int(match[2])) if match[1] == _host() else age > _SECONDS_PER_DAY:
                os.unlink(entry)


def _stem(path: Path) -> str:
    """Return the file name cut to 200 bytes, because with the suffix a name must not exceed the limit of 255 bytes."""
    return path.name.encode()[:200].decode(errors="ignore") + "."


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:  # a process of another user raises PermissionError
        return not isinstance(error, ProcessLookupError)
    return True
