"""Standard deviations and prediction intervals of a least-squares regressor from its Gaussian process."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core.arrays import Array
from gramless.inference.iterative import IterativePosterior
from gramless.inference.jackknife import check_coverage, jackknife_plus
from gramless.inference.posterior import ExactPosterior, LeastSquaresModel
from gramless.linalg.tuning import TUNING, LinalgTuning

Posterior = ExactPosterior | IterativePosterior


def make_posterior(
    model: LeastSquaresModel, budget: int, *, random_state: Any = None, tuning: LinalgTuning = TUNING
) -> Posterior:
    """Return the process by a factorisation if that fits the budget, else by conjugate gradients."""
    n, d = model.points.shape
    fits = n <= tuning.exact_leave_one_out_max_rows and ExactPosterior.memory(n, d, model.device).nbytes <= budget
    return ExactPosterior(model) if fits else IterativePosterior(model, budget, random_state=random_state)


def standard_deviations(process: Posterior, X: Array) -> np.ndarray:
    """Return the standard deviation of the function at new rows, of shape (m, k)."""
    variances = np.concatenate([batch.variances for batch in process.batches(X)])
    return np.sqrt(variances[:, None] * process.scale)


def prediction_intervals(process: Posterior, X: Array, coverage: float, *, local: bool, factor: float = 1.0) -> np.ndarray:
    """Return jackknife+ intervals of shape (m, k, 2); residuals are multiplied by `factor`.

    With `local`, each residual is scaled by the ratio of the standard deviations at the new row and at its own row.
    """
    check_coverage(coverage)
    model = process.model
    n_outputs = model.coef.shape[1]
    out = np.empty((int(X.shape[0]), n_outputs, 2))
    for batch in process.batches(X, variances=local):
        left_out = process.leave_one_out  # after the first batch, which computes the estimates of an iterative process
        copies = None if model.weights is None else left_out.weights
        ratio = 1.0
        if local:
            # Variance of a single value predicted from the other rows; a row of weight w is the mean of w values.
            weights = np.ones(len(left_out.weights)) if copies is None else copies
            own = 1.0 / process.inverse_diagonal + model.ridge * (1.0 - 1.0 / weights)
            there = batch.variances[:, None] + model.ridge + batch.weights**2 / process.inverse_diagonal
            ratio = np.sqrt(there / own)
        for j in range(n_outputs):
            centre = batch.means[:, [j]] - left_out.changes[:, j] * batch.weights
            lengths = np.abs(left_out.residuals[:, j]) * ratio * factor
            out[batch.rows, j, 0], out[batch.rows, j, 1] = jackknife_plus(centre, lengths, coverage, copies)
    return out
