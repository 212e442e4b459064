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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_PARTLY_FAILED = 1
EXIT_BAD_INPUT = 3
EXIT_OUT_OF_MEMORY = 4
EXIT_CANNOT_WRITE = 5
EXIT_INTERRUPTED = 130

_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


PICTURE_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class InputError(Exception):
    """Error in a file, a column or an option of the user; the message states the cause and how to correct the error."""


def explain(reason: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code of an expected error, such as invalid input; None for a defect of the program."""
    if isinstance(reason, KeyboardInterrupt):
        return "interrupted", EXIT_INTERRUPTED
    # Errors of `gramless.papers` are recognised by the name of their module, because the import of their classes is slow.
    is_from_papers = isinstance(reason, RuntimeError) and type(reason).__module__.startswith("gramless.papers.")
    if isinstance(reason, InputError) or is_from_papers:
        return str(reason), EXIT_BAD_INPUT
    if isinstance(reason, MemoryError):
        return f"out of memory: {reason}" if str(reason) else "out of memory", EXIT_OUT_OF_MEMORY
    if not isinstance(reason, OSError):
        return None
    name = reason.filename
    if reason.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {name}" if name else ""
        return f"the disk is full{where}: delete files, or choose another disk with --out", EXIT_CANNOT_WRITE
    if reason.errno == errno.EFBIG:
        where = name or "the output"
        return f"{where} exceeds the largest file size: choose another disk with --out", EXIT_CANNOT_WRITE
    if reason.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"not permitted: {name or reason}", EXIT_CANNOT_WRITE
    return (f"{name}: {reason.strerror}", EXIT_CANNOT_WRITE) if name and reason.errno in _WRONG_PATH else None


def check_writable(path: Path, *inputs: Path) -> None:
    """Raise `InputError` or `OSError` if `path` cannot be written or is one of the input files."""
    mode = _mode(path)
    if mode is not None and stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder: give --out the name of a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise InputError(f"{path} is a pipe or a device, which would be replaced: give --out the name of a file")
    for given in inputs:
        if mode is not None and given.exists() and os.path.samefile(path, given):
            raise InputError(f"--out {path} is also an input and would be replaced: give it another name")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for {path.name}: create it, or give another --out")
    try:
        with tempfile.TemporaryFile(dir=path.parent) as trial:
            trial.write(bytes(4096))
    except OSError as reason:
        reason.filename = str(path)
        raise


def readable(given: str | Path) -> Path:
    """Return the path of a readable file, or raise `InputError`."""
    path = Path(given)
    mode = _mode(path)
    if mode is None:
        raise InputError(f"there is no file {path}")
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is a pipe or a device: save its output to a file first")
    return path


def is_stream(path: Path) -> bool:
    """Return True if a path is a pipe or a device."""
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    """Return the mode of a file (its type and permissions), or None if the file does not exist."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as reason:  # the name is too long or has a NUL character, or a folder is not accessible
        raise InputError(f"{path} cannot be used: {getattr(reason, 'strerror', None) or reason}") from reason


@contextmanager
def input_errors(beginning: str = "", *further: type[Exception]) -> Iterator[None]:
    """Context manager that converts `ValueError` and the errors `further` to `InputError` with the prefix `beginning`."""
    kinds: tuple[type[Exception], ...] = (ValueError, *further)
    try:
        yield
    except kinds as reason:
        raise InputError(f"{beginning}{reason}") from reason


def require(*packages: str, extra: str) -> None:
    """Raise `InputError` if an optional package is not installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise InputError(f"this needs the package {missing[0]}: pip install 'gramless[{extra}]'")


def check_share(option: str, share: float | None) -> None:
    """Raise `InputError` if the value of an option is not a fraction between 0 and 1 (exclusive) or None."""
    if share is not None and not 0 < share < 1:
        raise InputError(f"{option} takes a fraction between 0 and 1, such as 0.9; got {share:g}")


def is_pictures(path: Path) -> bool:
    """Return True if a path is an image file or a folder."""
    return os.path.isdir(path) or path.suffix.lower() in PICTURE_EXTENSIONS
