"""Thresholds of leave-one-out, calibration and uncertainty, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InferenceTuning:
    """Tunable numbers of `gramless.inference`; tests pass another instance with `dataclasses.replace`."""

    calibrated_max_points: int = 10_000
    """Points up to which `probability="auto"` fits a temperature: leave-one-out then takes about as long as the fit."""
    batch_entries: int = 1 << 23
    """Entries of the matrices of new rows by training rows: 64 MB each."""
    new_rows: int = 256
    """New rows that conjugate gradients solve for at a time."""
    fewest_new_rows: int = 16
    """Smallest number of new rows to solve for at a time; a memory budget for fewer raises a `MemoryError`."""
    variance_tol: float = 1e-2
    """Relative error of a variance at which the iterations of conjugate gradients end."""
    variance_iterations: int = 200
    """Largest number of these iterations."""
    one_pass_new_rows: int = 1024
    """Largest number of new rows that a one-pass regressor processes at a time: 4 MB of features for 500 landmarks."""
    interval_entries: int = 1 << 19
    """Entries of the matrices of new rows by training rows from which intervals are computed: 4 MB each, six at a time."""
    lanczos_steps: int = 60
    """Lanczos iterations for the log determinant."""
    lanczos_probes: int = 16
    """Random sign vectors for the log determinant."""
    bootstrap_draws: int = 200
    """Bootstrap samples for the optimism of a selected setting."""


TUNING = InferenceTuning()
