"""Distinguish images from tables by the name of a path."""

from __future__ import annotations

import os
from pathlib import Path

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def is_pictures(path: Path) -> bool:
    """Return True if a path is an image file or a folder."""
    return os.path.isdir(path) or path.suffix.lower() in ENDINGS
