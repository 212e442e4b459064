"""Prediction intervals and standard deviations of one-pass regressors, from their sums and a sample of their rows.

The sums determine the Gaussian process of the model (`FeatureProcess`). The stored rows, a uniform sample of at most some
thousand, give the leave-one-out residuals in closed form:

    r_i = (y_i - f(x_i)) / (1 - h_i),     f_-i(x) = f(x) - r_i h_i(x),     h_i(x) = w_i (1 / N + u_i . u(x))

The intervals are the jackknife+ of the sampled rows, and the scale `s` of the process is estimated from their residuals.
Landmarks are represented better by the features than new rows are, so rows that are landmarks are excluded from the
residuals if at least as many other rows are stored.

Cost: O(p^3) once, O(p^2) for each new row, and O(stored rows) more for an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.approximation.features import Features, LandmarkFeatures
from gramless.inference.feature_process import SMALLEST_FREEDOM, FeatureProcess
from gramless.inference.jackknife import check_coverage, jackknife_plus
from gramless.inference.prediction_sets import score_threshold
from gramless.kernels import Kernel
from gramless.streaming.learners import LearningPass, OnePassModel, RidgeSums

_ROWS_PER_BLOCK = 1024  # 4 MB of features in float64 for 500 landmarks


@dataclass(frozen=True)
class OnePassProcess:
    """Gaussian process of a one-pass regressor, with the leave-one-out residuals of the stored rows."""

    model: OnePassModel
    features: Features
    process: FeatureProcess
    projected: np.ndarray
    """Stored rows in the coordinates of the process, shape (n, p)."""
    residuals: np.ndarray
    """Leave-one-out residuals, shape (n, k)."""
    weights: np.ndarray
    freedom: np.ndarray
    """One minus the leverage of each stored row."""
    unexplained: np.ndarray
    """Variance of the kernel that the features do not represent, for each stored row."""
    scale: np.ndarray
    """`s` of each output."""


def fit_process(learning: LearningPass, model: OnePassModel) -> OnePassProcess | None:
    """Return the process of a pass in float64 on the host; None if the pass has no sums or no stored rows."""
    if not isinstance(learning.state, RidgeSums) or learning.sample is None or learning.sample.rows is None:
        return None
    features = learning.features
    process = FeatureProcess.from_sums(learning.state, 1.0 / model.C, penalty=features.penalty())
    X, y, weights = learning.sample.rows
    used = np.flatnonzero(weights > 0)
    if isinstance(features, LandmarkFeatures):
        used = used[_not_landmarks(X, features.points)[used]]
    X, y, weights = xa.take_rows(X, used), y[used], np.asarray(weights[used], dtype=np.float64)
    rows = learning.format.convert(X)
    Phi = xa.to_numpy(features(rows)).astype(np.float64)
    unexplained = _unexplained(process, model.features.kernel, rows, Phi)
    projected = process.project(Phi)
    errors = learning.targets.matrix(y) - _values(model, rows)
    leverages = weights * (process.constant + np.einsum("ij,ij->i", projected, projected))
    freedom = np.maximum(1.0 - leverages, SMALLEST_FREEDOM)
    residuals = errors / freedom[:, None]
    scale = np.average(residuals**2 / (process.ridge / freedom + unexplained)[:, None], axis=0, weights=weights)
    return OnePassProcess(model, features, process, projected, residuals, weights, freedom, unexplained, scale)


def _not_landmarks(X: Any, points: Any) -> np.ndarray:
    """Return the mask of rows that are not landmarks; all True if most rows are landmarks."""
    if xa.is_sparse(X) or xa.is_sparse(points):
        return np.ones(X.shape[0], dtype=bool)
    known = {row.tobytes() for row in np.ascontiguousarray(points)}
    others = np.array([row.tobytes() not in known for row in np.ascontiguousarray(X, dtype=points.dtype)], dtype=bool)
    return others if 2 * np.count_nonzero(others) >= len(others) else np.ones(len(others), dtype=bool)


def _unexplained(process: FeatureProcess, kernel: Kernel, rows: Array, Phi: np.ndarray) -> np.ndarray:
    """Return `k(x, x) - |phi(x)|^2` of each row, at least zero."""
    own = xa.to_numpy(kernel.diag(rows)).astype(np.float64)
    return np.maximum(own - process.square_norms(Phi), 0.0)


def _values(model: OnePassModel, rows: Array) -> np.ndarray:
    """Return the predicted values in float64, shape (m, k)."""
    coef = xa.like(model.coef, rows.data if xa.is_sparse(rows) else rows)
    return xa.to_numpy(model.features.scores(rows, coef)).astype(np.float64) + model.intercept


def standard_deviations(found: OnePassProcess, rows: Array) -> np.ndarray:
    """Return the standard deviation of the function at new rows, in units of the values, shape (m, k)."""
    features, out = found.features, np.empty((int(rows.shape[0]), len(found.scale)))
    for part in slices(int(rows.shape[0]), _ROWS_PER_BLOCK):
        Phi = xa.to_numpy(features(rows[part])).astype(np.float64)
        variances = found.process.variances(Phi, _unexplained(found.process, features.kernel, rows[part], Phi))
        out[part] = np.sqrt(variances[:, None] * found.scale)
    return out


def constant_width_intervals(model: OnePassModel, rows: Array, coverage: float) -> np.ndarray:
    """Return intervals of equal width, shape (m, k, 2), from the residuals that a finished model stores."""
    check_coverage(coverage)
    if model.calibration is None:
        raise ValueError("the finished model has no residuals: fit it anew, with method='exact'")
    residuals, weights = model.calibration
    lengths = [score_threshold(np.abs(column), coverage, weights) for column in residuals.T]
    means = _values(model, rows)
    return np.stack([means - lengths, means + lengths], axis=2)


def prediction_intervals(found: OnePassProcess, rows: Array, coverage: float, *, local: bool) -> np.ndarray:
    """Return jackknife+ intervals, shape (m, k, 2); with `local` their width follows the standard deviation."""
    check_coverage(coverage)
    process, features = found.process, found.features
    weights = None if (found.weights == 1).all() else found.weights
    own = process.ridge / found.freedom + found.unexplained
    out = np.empty((int(rows.shape[0]), len(found.scale), 2))
    for part in slices(int(rows.shape[0]), _ROWS_PER_BLOCK):
        block = rows[part]
        Phi = xa.to_numpy(features(block)).astype(np.float64)
        smoothing = found.weights * (process.constant + process.project(Phi) @ found.projected.T)
        ratio: Any = 1.0
        if local:
            variances = process.variances(Phi, _unexplained(process, features.kernel, block, Phi)) + process.ridge
            ratio = np.sqrt(variances[:, None] / own)
        means = _values(found.model, block)
        for j in range(len(found.scale)):
            residuals = found.residuals[:, j]
            centre = means[:, [j]] - residuals * smoothing
            out[part, j, 0], out[part, j, 1] = jackknife_plus(centre, np.abs(residuals) * ratio, coverage, weights)
    return out
