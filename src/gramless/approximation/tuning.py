"""Thresholds of clustering and landmark selection; each comment gives the unit and the origin of the number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ApproximationTuning:
    """Sizes and limits that change the cost of an algorithm, not its result."""

    # Fractions of the centroids that may be excluded from the bound of spherical k-means; the cheapest one is used.
    excluded_fractions: tuple[float, ...] = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
    # Columns. A matrix product with few columns costs as much as one with this many more.
    product_overhead_columns: int = 12
    # Fraction of the full matrix product above which the full product is simpler and no slower than bounds.
    largest_bounded_work: float = 0.9
    # Entries of the largest kernel block of a landmark rule: 128 MB in float32.
    block_entries: int = 2**25
    # Float64 copies of a block that a rule allocates: kernel values, the solution of a triangular system, and a transposed
    # copy of each.
    block_copies: int = 4


TUNING = ApproximationTuning()
