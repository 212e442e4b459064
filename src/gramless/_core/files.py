"""Files that are whole or not there, written by one process at a time."""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DAY = 86_400.0


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; what was written takes its name at the end, and is gone after an error.

    What processes that were killed left behind at such places is removed first.
    """
    remove_partial_files(path)
    part = path.with_name(f"{_stem(path)}{_host()}-{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield part
        os.replace(part, path)
    except OSError as reason:
        reason.filename = str(path)  # a full disk does not say where
        raise
    finally:
        part.unlink(missing_ok=True)


def remove_partial_files(path: Path) -> None:
    """Remove the partial files of `path` whose writers are no more; those of other machines after a day."""
    mine = re.compile(re.escape(_stem(path)) + r"([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.partial")
    try:
        found = [(entry, mine.fullmatch(entry.name)) for entry in os.scandir(path.parent)]
    except OSError:  # a folder that cannot be read is said where it is written to
        return
    for entry, named in found:
        if named is None:
            continue
        with suppress(OSError):  # another process may clean up too
            gone = not _is_alive(int(named[2])) if named[1] == _host() else time.time() - entry.stat().st_mtime > _DAY
            if gone:
                os.unlink(entry)


class Lock:
    """Keeps other processes, and other threads of this one, from what `path` stands for.

    The lock is a file beside `path`, which the system lets go of when its holder ends, however it ends. A thread that asks
    again has it already: what it did before has ended, by an error or by Ctrl-C.

    Parameters
    ----------
    path : Path
        What is guarded; it need not exist.
    refusal : str
        What the error of the second one says.
    """

    _held: dict[Path, tuple[int, BinaryIO, Lock]] = {}
    _guard = threading.Lock()

    def __init__(self, path: Path, refusal: str):
        self._beside = path.with_name(path.name + ".lock").resolve()
        with Lock._guard:
            thread, file, _ = Lock._held.get(self._beside, (0, None, None))
            if file is not None and thread != threading.get_ident() and thread in {t.ident for t in threading.enumerate()}:
                raise RuntimeError(refusal)
            Lock._held[self._beside] = (threading.get_ident(), file or self._taken(refusal), self)

    def _taken(self, refusal: str) -> BinaryIO:
        while True:
            file = open(self._beside, "a+b")  # noqa: SIM115 (it stays open as long as the lock is held)
            try:
                _lock(file.fileno())
                if os.path.samestat(os.stat(self._beside), os.fstat(file.fileno())):
                    return file
            except FileNotFoundError:
                pass
            except OSError as reason:
                file.close()
                raise RuntimeError(refusal) from reason
            file.close()  # of a holder who removed it in the meantime: once more

    def release(self) -> None:
        """Let go, and leave nothing behind."""
        with Lock._guard:
            _, file, holder = Lock._held.get(self._beside, (0, None, None))
            if file is not None and holder is self:
                del Lock._held[self._beside]
                self._beside.unlink(missing_ok=True)
                file.close()


def _lock(file: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _stem(path: Path) -> str:
    """The name, shortened so that what follows it fits: names of files have at most 255 bytes."""
    return path.name.encode()[:200].decode(errors="ignore") + "."


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
