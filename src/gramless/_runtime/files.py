"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; what was written takes its name at the end, and is gone after an error."""
    part = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield part
        os.replace(part, path)
    except OSError as reason:
        reason.filename = str(path)  # a full disk does not say where
        raise
    finally:
        part.unlink(missing_ok=True)
