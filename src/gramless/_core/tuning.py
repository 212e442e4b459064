"""Thresholds of the shared infrastructure, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CoreTuning:
    """Tunable numbers of `gramless._core`; the loops in `gramless._core.compiled` have constants of their own."""

    untiled_rows: int = 1024
    """Rows up to which a factorisation takes a few milliseconds on one core, less than the overhead of tiles and threads.
    On one thread the result is also independent of the number of threads."""
    factor_edge: int = 256
    """Rows and columns of a tile of a factorisation. All tasks are tiles, so that results do not depend on the number of
    threads."""
    recursion_rows: tuple[int, int] = (64, 2048)
    """Smallest and largest number of rows of the triangles that are inverted recursively; LAPACK is as fast for others."""
    aligned_bytes: int = 1 << 14
    """Size in bytes from which an array is aligned to cache lines."""
    conversion_bytes: int = 1 << 26
    """Bytes of host memory through which sparse rows are converted to dense rows on a device."""
    dense_column_fraction: float = 50**-0.5
    """Fraction of nonzeros from which a column of a sparse matrix is multiplied as a dense one. With this fraction in both
    matrices the column changes 1/50 of the entries of the block, and a dense product takes 1/50 of the time for each."""
    grid_features: tuple[int, int] = (32, 33_000)
    """Fewest and most features of rows that are stored as bytes: with fewer the encoding takes longer than it saves, and the
    sum of more products of two bytes does not fit in 32 bits."""
    grid_rows: int = 256
    """Fewest rows that are stored as bytes."""
    grid_rows_per_task: int = 2048
    """Rows that one task encodes as bytes."""
    memory_fraction: float = 0.7
    """Fraction of the free memory that a fit may use by default; the rest is for loaded libraries and other processes."""
    seconds_between_calls: float = 0.1
    """Seconds between two progress reports of a computation in threads; they look continuous to a reader."""
    seconds_between_lines: float = 2.0
    """Seconds between two lines of progress, so that a fit of minutes has tens of lines."""


TUNING = CoreTuning()
