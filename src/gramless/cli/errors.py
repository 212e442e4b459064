"""Errors with messages for users, the exit codes of the program, and checks of paths.

Exit codes: 0 success; 1 partial failure; 2 wrong command line; 3 unusable input; 4 out of memory; 5 the disk is full or
cannot be written; 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
import tempfile
from pathlib import Path

EXIT_PARTLY_FAILED = 1
EXIT_BAD_INPUT = 3
EXIT_OUT_OF_MEMORY = 4
EXIT_CANNOT_WRITE = 5
EXIT_INTERRUPTED = 130

_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


PICTURE_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class InputError(Exception):
    """Error of a file, a column or an option; the message names it and describes how to correct the error."""


def explain(reason: BaseException) -> tuple[str, int] | None:
    """Return message and exit code of an error that is not a defect of the program; None for other errors."""
    if isinstance(reason, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    if isinstance(reason, InputError) or (isinstance(reason, RuntimeError) and _is_from_papers(reason)):
        return str(reason), EXIT_BAD_INPUT
    if isinstance(reason, MemoryError):
        return f"out of memory: {reason}" if str(reason) else "out of memory", EXIT_OUT_OF_MEMORY
    if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {reason.filename}" if reason.filename else ""
        return f"the disk is full{where}: delete files, or choose another disk with --out", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.errno == errno.EFBIG:
        where = reason.filename or "the output"
        return f"{where} exceeds the largest file size: choose another disk with --out", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"not permitted: {reason.filename or reason}", EXIT_CANNOT_WRITE
    if isinstance(reason, OSError) and reason.filename and reason.errno in _WRONG_PATH:
        return f"{reason.filename}: {reason.strerror}", EXIT_CANNOT_WRITE
    return None


def _is_from_papers(reason: RuntimeError) -> bool:
    """Return True for errors of `gramless.papers`, which is imported here only, because the import is slow."""
    from gramless.papers.datasets import DatasetError
    from gramless.papers.experiments.results import ResultsError

    return isinstance(reason, DatasetError | ResultsError)


def check_writable(path: Path, *inputs: Path) -> None:
    """Raise `InputError` or `OSError` if `path` cannot be written or is one of the input files."""
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
        raise InputError(f"there is no folder {path.parent} for {path.name}: create it, or give another --out")
    try:
        with tempfile.TemporaryFile(dir=path.parent) as trial:
            trial.write(bytes(4096))
    except OSError as reason:
        reason.filename = str(path)
        raise


def check_readable(path: Path) -> None:
    """Raise `InputError` if a path is not a readable file."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError as reason:
        raise InputError(f"there is no file {path}") from reason
    except (OSError, ValueError) as reason:  # the name is too long or has a NUL character, or a folder is not accessible
        raise InputError(f"{shortened(path)} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason
    if stat.S_ISDIR(kind):
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not stat.S_ISREG(kind):
        raise InputError(f"{path} is a pipe or a device: save its output to a file first")


def shortened(path: Path) -> str:
    """Return a path for a message, shortened if the path is long."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:120]}... ({len(text)} characters)"


def require(*packages: str, extra: str) -> None:
    """Raise `InputError` if an optional package is not installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise InputError(f"this needs the package {missing[0]}: pip install 'gramless[{extra}]'")


def check_share(option: str, share: float | None) -> None:
    """Raise `InputError` if a share does not lie between 0 and 1."""
    if share is not None and not 0 < share < 1:
        raise InputError(f"{option} takes a share between 0 and 1, such as 0.9; got {share:g}")


def is_pictures(path: Path) -> bool:
    """Return True if a path is an image file or a folder."""
    return os.path.isdir(path) or path.suffix.lower() in PICTURE_EXTENSIONS


def is_stream(out: Path) -> bool:
    """Return True if a path is a pipe or a device."""
    try:
        return out.exists() and not out.is_file() and not out.is_dir()
    except OSError:  # the name is too long
        return False
