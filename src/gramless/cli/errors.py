"""Errors for people, and the exit code each ends the program with.

0 all went well; 1 the work was done but part of it failed; 2 the command line is wrong; 3 an input cannot
be used; 4 out of memory; 5 the disk is full or cannot be written; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

EXIT_PARTLY_FAILED = 1
EXIT_BAD_INPUT = 3
EXIT_OUT_OF_MEMORY = 4
EXIT_CANNOT_WRITE = 5
EXIT_INTERRUPTED = 130

_NO_SUCH_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


class InputError(Exception):
    """A file, a column or an option that cannot be used; the message says which and what would help."""


def explain(reason: BaseException) -> tuple[str, int] | None:
    """A sentence and an exit code for an error that is not a defect of this program; None for any other."""
    from gramless.papers.datasets import DatasetError
    from gramless.papers.experiments import ResultsError

    if isinstance(reason, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(reason, InputError | DatasetError | ResultsError):
        return str(reason), EXIT_BAD_INPUT
    if isinstance(reason, MemoryError):
        said = str(reason) or "the system has no more memory to give"
        return f"out of memory: {said}", EXIT_OUT_OF_MEMORY
    if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {reason.filename}" if reason.filename else ""
        return f"the disk is full{where}: make room, or write to another one with --out", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.errno == errno.EFBIG:
        where = reason.filename or "what is written"
        return f"{where} is larger than a file may be here: write to another place with --out", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"not permitted: {reason.filename or reason}", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.filename and reason.errno in _NO_SUCH_PLACE:
        return f"{reason.filename}: {reason.strerror}", EXIT_CANNOT_WRITE
    return None


def check_writable(path: Path, *inputs: Path) -> None:
    """Fail before the work and not after it where its result cannot be written, or would replace what it is made from."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        kind = None
    except OSError as reason:
        raise InputError(f"--out cannot be {shortened(path)}: {reason.strerror}") from reason
    if kind is not None and stat.S_ISDIR(kind):
        raise InputError(f"{path} is a folder: give --out the name of a file")
    if kind is not None and not stat.S_ISREG(kind):
        raise InputError(f"{path} is a pipe or a device, which would be replaced: give --out the name of a file")
    for given in inputs:
        if kind is not None and given.exists() and os.path.samefile(path, given):
            raise InputError(f"--out {path} is also an input and would be replaced: give it another name")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for {path.name}: make it, or give another --out")
    try:
        with tempfile.TemporaryFile(dir=path.parent) as trial:
            trial.write(bytes(4096))
    except OSError as reason:
        reason.filename = str(path)
        raise


def check_readable(path: Path) -> None:
    """Say what is wrong with the name of an input."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError as reason:
        raise InputError(f"there is no file {path}") from reason
    except (OSError, ValueError) as reason:  # too long, a folder that may not be entered, a NUL
        raise InputError(f"{shortened(path)} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason
    if stat.S_ISDIR(kind):
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not stat.S_ISREG(kind):
        raise InputError(f"{path} is a pipe or a device: save what comes out of it to a file first")


def shortened(path: Path) -> str:
    """A path for a sentence."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:120]}... ({len(text)} characters)"
