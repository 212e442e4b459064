"""Calibration of a least-squares classifier on leave-one-out scores, at the end of a fit or at the first request.

A classifier keeps the class of each training row. The leave-one-out scores follow from its points and coefficients in closed
form (O(n^3) time and n^2 numbers), and the sigmoids or the temperature from those scores. Up to
`InferenceTuning.calibrated_max_points` rows that takes about as long as the fit, so `probability="auto"` calibrates when
probabilities are first requested; with more rows, or less memory, its temperature is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.inference.jackknife import LeaveOneOut
from gramless.inference.leave_one_out import exact_diagonal
from gramless.inference.platt import fit_sigmoids
from gramless.inference.prediction_sets import adaptive_scores
from gramless.inference.probabilities import class_probabilities
from gramless.inference.temperature import fit_temperature
from gramless.inference.tuning import TUNING, InferenceTuning
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator
from gramless.linalg.planning.plan import leave_one_out_memory


@dataclass(frozen=True)
class Calibration:
    """Parameters that convert scores to probabilities, and calibration scores for prediction sets."""

    sigmoids: np.ndarray | None
    temperature: Any
    """One number, or one for each label of a multilabel problem."""
    true_scores: np.ndarray | None
    """Adaptive score of the true class of each row; None for multilabel problems."""


def calibrate(
    scores: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    method: str | bool,
    weights: np.ndarray | None,
    rng: np.random.RandomState,
) -> Calibration:
    """Fit the parameters of a probability method to leave-one-out scores; two-dimensional `codes` are label indicators."""
    multilabel = codes.ndim == 2
    problems = [(scores[:, [j]], codes[:, j]) for j in range(n_classes)] if multilabel else [(scores, codes)]
    sigmoids: np.ndarray | None = None
    temperature: Any = np.ones(n_classes) if multilabel else 1.0
    if method == "sigmoid":
        sigmoids = np.concatenate([fit_sigmoids(s, c, 2 if multilabel else n_classes, weights) for s, c in problems])
    elif method in ("temperature", "auto"):
        fitted = [fit_temperature(s, c.astype(np.intp), weights) for s, c in problems]
        temperature = np.array(fitted) if multilabel else fitted[0]
    if multilabel:
        return Calibration(sigmoids, temperature, None)
    probabilities = class_probabilities(scores, sigmoids=sigmoids, temperature=temperature)
    adaptive = adaptive_scores(probabilities, rng.random_sample(len(codes)))
    return Calibration(sigmoids, temperature, adaptive[np.arange(len(codes)), codes])


def leave_one_out_on_demand(
    kernel: Kernel,
    points: Array,
    coef: np.ndarray,
    targets: np.ndarray,
    C: float,
    weights: np.ndarray | None,
    device: str,
    budget: int,
    tuning: InferenceTuning = TUNING,
) -> np.ndarray | None:
    """Return exact leave-one-out scores of the points, or None if they would cost more than the fit.

    A row of weight w stands for w copies, one of which is left out.
    """
    m, d = points.shape
    if m > tuning.calibrated_max_points or not kernel.uses_points or not kernel.thread_safe:
        return None
    dtype = xa.numpy_dtype(coef)
    if leave_one_out_memory(m, d, targets.shape[1], dtype, device).nbytes > budget:
        return None
    ridge = 1.0 / (C * (np.ones(m) if weights is None else weights))
    diagonal, u = exact_diagonal(KernelOperator(xa.to_device(points, device, dtype), kernel, ridge))
    return targets - LeaveOneOut.from_solution(coef, diagonal - u**2 / u.sum(), 1.0 / C, weights).residuals
