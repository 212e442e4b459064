"""Thresholds of the kernel functions; each comment gives the unit and the origin of the number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTuning:
    """Sizes at which kernels change their algorithm; values differ by rounding only."""

    # Squared norm of the mean in units of the variance. Above it, `||x||^2 + ||y||^2 - 2 <x, y>` loses more than two decimal
    # digits, and the data is shifted to its mean, which is estimated from `offset_rows` rows.
    offset_ratio: float = 16.0
    offset_rows: int = 64
    # Rounding errors (eps times the largest squared norm). Smaller squared distances are recomputed from differences, in
    # strips of rows and at most `differences_per_step` coordinates (2 MB in float64) at a time.
    near_roundings: float = 256.0
    near_strip_rows: int = 64
    differences_per_step: int = 1 << 18
    # Coordinates (rows * columns * features). Up to this number, computing differences takes less time than the matrix
    # product form.
    few_differences: int = 1 << 14
    # Kernel values of a block. Importing numba and loading compiled loops takes about 1 s once per process; NumPy computes
    # a Gaussian block of this size in about 1 ms (20 features, float64). Smaller blocks always use NumPy and SciPy.
    compiled_values: int = 1 << 18
    # Kernel values of a block. The same bound for callers that have already loaded compiled loops (the dual solvers): for
    # smaller blocks the call takes more time than it saves.
    compiled_values_if_loaded: int = 1 << 12
    # Points of a model. Blocks with at least this number of points use compiled code for any number of rows, and others
    # never do, so that the values of a row do not depend on the batch that contains it. 1,024 points and 256 rows are
    # `compiled_values` values.
    compiled_points: int = 1 << 10
    # Bytes of a row. Longer rows do not stay in the first-level cache (32 KB) while a register tile is summed.
    longest_row_bytes: int = 1 << 12
    # Largest rounding error of `gamma ||x - y||^2` that is accepted without a warning: kernel values change by 10 %.
    largest_rounding: float = 0.1
    # Rounding errors (eps times the magnitude). Bound on the difference between equal numbers and their mean.
    mean_roundings: float = 16.0
    # Values. Number of entries converted to float64 at a time for the variance: 8 MB.
    variance_values: int = 2**20


TUNING = KernelTuning()
