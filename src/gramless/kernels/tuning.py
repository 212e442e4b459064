"""Thresholds of the kernel functions; each comment gives the unit and the origin of the number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTuning:
    """Sizes at which kernels change their algorithm; the kernel values of two algorithms differ by rounding only."""

    # Squared norm of the mean, divided by the variance. Above this ratio `||x||^2 + ||y||^2 - 2 <x, y>` loses more than two
    # decimal digits, so the mean, which is estimated from `offset_rows` rows, is subtracted from the data.
    offset_ratio: float = 16.0
    offset_rows: int = 64
    # Squared distances below this number of rounding errors (eps times the largest squared norm) are recomputed from
    # differences: `near_strip_rows` rows and at most `differences_per_step` coordinates (2 MB in float64) at a time.
    near_roundings: float = 256.0
    near_strip_rows: int = 64
    differences_per_step: int = 1 << 18
    # Coordinates (rows * columns * features). Up to this number, distances take less time if they are computed from
    # differences than if they are computed from a matrix product.
    few_differences: int = 1 << 14
    # Smallest number of kernel values of a block that is computed by compiled code. Importing numba and loading compiled
    # loops takes about 1 s once per process; NumPy computes a Gaussian block of this size in about 1 ms (20 features,
    # float64). Smaller blocks always use NumPy and SciPy.
    compiled_values: int = 1 << 18
    # Replaces `compiled_values` for callers that have already loaded compiled loops (the dual solvers). For smaller blocks
    # the call of compiled code takes more time than it saves.
    compiled_values_if_loaded: int = 1 << 12
    # Smallest number of points of a model for which compiled code is used. The number of rows has no influence, so that
    # the values of a row do not depend on the batch that contains it. With this number of points, a batch of 256 rows has
    # `compiled_values` kernel values.
    compiled_points: int = 1 << 10
    # Largest size of a row in bytes for the compiled loop. Longer rows do not stay in the first-level cache (32 KB) while
    # the sums of a register tile are computed.
    longest_row_bytes: int = 1 << 12
    # Largest rounding error of `gamma ||x - y||^2` that is accepted without a warning: it changes kernel values by 10 %.
    largest_rounding: float = 0.1
    # Bound on the difference between equal numbers and their computed mean, in rounding errors (eps times the magnitude).
    mean_roundings: float = 16.0
    # Number of entries that are converted to float64 at a time for the variance: 8 MB.
    variance_values: int = 2**20


TUNING = KernelTuning()
