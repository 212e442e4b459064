"""Tunable limits of the package: sizes of model files and the settings of the compression."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeploymentTuning:
    """Limits and settings with their units and origins."""

    # zlib level. Level 1 shrinks one-hot columns and images to 1/6 - 1/10 of their size; higher levels gain little.
    compression_level: int = 1
    # Nesting depth of objects in a file; the deepest models of the tests have about 30.
    max_nesting: int = 200
    # Contents of a model file may take this many bytes, or this many times the size of the file if that is more. Models
    # shrink by less than this factor; files forged to fill the memory shrink by 1,000 and more.
    max_unpacked_bytes: int = 256 * 2**20
    max_compression_ratio: int = 50


TUNING = DeploymentTuning()
