"""Whether a path is a table or pictures, told without reading it."""

from __future__ import annotations

import os
from pathlib import Path

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def is_pictures(path: Path) -> bool:
    """Whether a path is a picture, or a folder."""
    return os.path.isdir(path) or path.suffix.lower() in ENDINGS
