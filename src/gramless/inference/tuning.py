"""Thresholds of leave-one-out, calibration and uncertainty, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InferenceTuning:
    """Tunable numbers of `gramless.inference`; tests pass another instance with `dataclasses.replace`."""

    calibrated_max_points: int = 10_000
    """Number of points up to which `probability="auto"` fits a temperature: leave-one-out then takes as long as the fit."""
    batch_entries: int = 1 << 23
    """Largest number of entries of a matrix of new rows by training rows: 64 MB in float64."""
    new_rows: int = 256
    """Number of new rows whose systems conjugate gradients solve at a time."""
    fewest_new_rows: int = 16
    """Smallest number of new rows at a time; a memory budget that is too small for this number raises a `MemoryError`."""
    variance_tol: float = 1e-2
    """Relative error of a variance at which the iterations of conjugate gradients end."""
    variance_iterations: int = 200
    """Largest number of iterations of conjugate gradients for variances."""
    one_pass_new_rows: int = 1024
    """Largest number of new rows that a one-pass regressor processes at a time: 4 MB of features for 500 landmarks."""
    interval_entries: int = 1 << 19
    """Largest number of entries of a matrix for intervals (new rows by training rows): 4 MB in float64, six at a time."""
    lanczos_steps: int = 60
    """Number of Lanczos iterations for the log determinant."""
    lanczos_probes: int = 16
    """Number of random sign vectors for the log determinant."""
    bootstrap_draws: int = 200
    """Number of bootstrap samples for the estimate of `optimism`."""


TUNING = InferenceTuning()
