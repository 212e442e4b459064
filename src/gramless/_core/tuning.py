"""Thresholds of the shared infrastructure, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CoreTuning:
    """Thresholds of `gramless._core`; each module of `gramless._core.compiled` defines the constants of its loops itself."""

    untiled_rows: int = 1024
    """Largest number of rows of a matrix that is factored by one thread without tiles. This takes a few milliseconds, less
    than the overhead of tiles and threads, and the result does not depend on the number of threads."""
    factor_edge: int = 256
    """Number of rows and of columns of a tile of a factorisation. The division into tiles, and therefore the result, does
    not depend on the number of threads."""
    recursion_rows: tuple[int, int] = (64, 2048)
    """Smallest and largest number of rows of triangular matrices that are inverted recursively, faster than by LAPACK."""
    aligned_bytes: int = 1 << 14
    """Smallest size in bytes of an array that is aligned to cache lines."""
    conversion_bytes: int = 1 << 26
    """Bytes of dense rows in host memory at a time, while sparse rows are converted to dense rows on a device."""
    dense_column_fraction: float = 50**-0.5
    """Smallest fraction of nonzeros of a sparse column that is multiplied as a dense column. With this fraction in both
    matrices a sparse loop changes 1/50 of the entries, but takes 50 times as long for each entry as a dense product."""
    grid_features: tuple[int, int] = (32, 33_000)
    """Smallest and largest number of features of rows that are stored as bytes. With fewer features encoding takes longer
    than it saves; with more features the sum of the products of two bytes may not fit in 32 bits."""
    grid_rows: int = 256
    """Smallest number of rows of a matrix that is stored as bytes."""
    grid_rows_per_task: int = 2048
    """Number of rows that a thread encodes as bytes in one task."""
    memory_fraction: float = 0.7
    """Fraction of the free memory that a fit may use by default; the rest is for loaded libraries and other processes."""
    seconds_between_calls: float = 0.1
    """Seconds between two progress reports of a computation in threads; a display with this interval looks continuous."""
    seconds_between_lines: float = 2.0
    """Seconds between two printed lines of progress: at most 30 lines per minute."""


TUNING = CoreTuning()
