"""Intervals, standard deviations and the likelihood of a fitted least-squares regressor.

The process behind a model is made when it is first asked for, from the model's own points and coefficients, and kept with
it: exact where the factor of the kernel matrix fits the memory budget, by conjugate gradients where it does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import parse_budget
from gramless._core.validation import check_X
from gramless.inference.iterative import IterativePosterior
from gramless.inference.jackknife import check_coverage, jackknife_plus
from gramless.inference.leave_one_out import EXACT_UP_TO
from gramless.inference.posterior import ExactPosterior, Machine

Posterior = ExactPosterior | IterativePosterior


def posterior_of(model: Any) -> Posterior:
    """The process of a fitted regressor; kept with the model.

    Parameters
    ----------
    model : LSSVR or LSSVRCV

    Returns
    -------
    ExactPosterior or IterativePosterior
    """
    check_is_fitted(model, "dual_coef_")
    kept = getattr(model, "_posterior", None)
    if kept is not None and kept[0] is model.dual_coef_:
        return kept[1]
    if hasattr(model, "compression_"):
        raise ValueError("a compressed model has the points of its training no longer: ask the model it was made from")
    if not model.kernel_.uses_points:
        raise ValueError("a precomputed kernel says nothing of new rows themselves: intervals need the data and a kernel")
    C = getattr(model, "C_", None) or model.C
    machine = Machine(
        model.kernel_,
        model.points_,
        model.dual_coef_,
        model.intercept_,
        1.0 / float(C),
        model._weights,
        getattr(model, "fit_intercept", True),
        model.device_,
    )
    n, d = model.points_.shape
    budget = parse_budget(model.memory_budget, model.device_)
    process: Posterior
    if n <= EXACT_UP_TO and ExactPosterior.memory(n, d, model.device_).nbytes <= budget:
        process = ExactPosterior(machine)
    else:
        process = IterativePosterior(machine, budget, random_state=getattr(model, "random_state", None))
    model._posterior = (model.dual_coef_, process)
    return process


def new_rows(model: Any, process: Posterior, X: Any) -> Array:
    """New rows, checked, where the process is computed.

    Parameters
    ----------
    model : LSSVR or LSSVRCV
    process : ExactPosterior or IterativePosterior
    X : array of shape (m, d)

    Returns
    -------
    array of shape (m, d)
    """
    dtype = np.float64 if process.exact else xa.numpy_dtype(model.dual_coef_)
    checked = check_X(
        model, X, dtype=xa.numpy_dtype(model.dual_coef_), reset=False, accept_sparse=model.kernel_.accepts_sparse
    )
    return xa.to_device(checked, model.device_, dtype)


def standard_deviations(model: Any, X: Any) -> np.ndarray:
    """The standard deviation of the function at new rows, for each output.

    Parameters
    ----------
    model : LSSVR or LSSVRCV
    X : array of shape (m, d)

    Returns
    -------
    ndarray of shape (m, k)
    """
    process = posterior_of(model)
    variances = np.concatenate([batch.variances for batch in process.batches(new_rows(model, process, X))])
    return np.sqrt(variances[:, None] * process.scale)


def prediction_intervals(model: Any, X: Any, coverage: float, *, local: bool) -> np.ndarray:
    """Intervals that contain the value of a new row with probability `coverage`.

    Parameters
    ----------
    model : LSSVR or LSSVRCV
    X : array of shape (m, d)
    coverage : float
    local : bool
        Whether a residual counts relative to the standard deviation where it was made.

    Returns
    -------
    ndarray of shape (m, k, 2)
    """
    check_coverage(coverage)
    process = posterior_of(model)
    machine = process.machine
    rows = new_rows(model, process, X)
    n_outputs = machine.coef.shape[1]
    out = np.empty((int(rows.shape[0]), n_outputs, 2))
    flattered = getattr(model, "optimism_", 1.0)  # a search chose its settings by these residuals
    for batch in process.batches(rows, variances=local):
        left = process.left_out  # known by now: the first batch finds it
        counted = None if machine.weights is None else left.weights
        ratio = 1.0
        if local:
            # The variance of one value, seen from the others; a row of weight w is the mean of w values.
            weights = np.ones(len(left.weights)) if counted is None else counted
            own = 1.0 / process.inverse_diagonal + machine.ridge * (1.0 - 1.0 / weights)
            there = batch.variances[:, None] + machine.ridge + batch.weights**2 / process.inverse_diagonal
            ratio = np.sqrt(there / own)
        for j in range(n_outputs):
            centre = batch.means[:, [j]] - left.changes[:, j] * batch.weights
            lengths = np.abs(left.residuals[:, j]) * ratio * flattered
            out[batch.rows, j, 0], out[batch.rows, j, 1] = jackknife_plus(centre, lengths, coverage, counted)
    return out
