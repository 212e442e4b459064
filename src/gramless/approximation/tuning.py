"""Thresholds of clustering and landmark selection; each comment gives the unit and the origin of the number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ApproximationTuning:
    """Sizes and limits that change the cost of an algorithm, not its result."""

    # Fractions of the centroids that may be excluded from the bound of spherical k-means; the fraction with the least work
    # is used.
    excluded_fractions: tuple[float, ...] = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
    # Number of columns. A matrix product with few columns takes as long as if it had this many more columns.
    product_overhead_columns: int = 12
    # Fraction of the work of the full matrix product above which bounds are not used, because the full product is as fast.
    largest_bounded_work: float = 0.9
    # Largest number of entries of a kernel block in a landmark rule; 2^25 entries take 128 MB in float32.
    block_entries: int = 2**25
    # Number of float64 arrays of the size of a block that a rule allocates: kernel values, the solution of a triangular
    # system, and a transposed copy of each.
    block_copies: int = 4


TUNING = ApproximationTuning()
