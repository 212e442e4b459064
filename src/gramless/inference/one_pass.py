"""Intervals and standard deviations of one-pass regressors, from their sums and a sample of their rows.

The sums give the Gaussian process of the model (`gramless.inference.feature_process`). The rows that the pass has kept, a
uniform sample of at most some thousand, give what sums cannot: residuals, each of the model without its row, in closed form.

    r_i = (y_i - f(x_i)) / (1 - h_i),     f_-i(x) = f(x) - r_i h_i(x),     h_i(x) = w_i (1 / N + u_i . u(x))

so that the jackknife+ is that of the sampled rows, and the scale `s` of the process is the one that their residuals have.
Rows that are landmarks themselves are better known to the features than new rows are, and are left out of the residuals
where at least as many others are there.

Cost: O(p^3) once, O(p^2) for each new row, and O(rows kept) more for an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.threads import slices
from gramless._core.validation import check_X
from gramless.inference.feature_process import FeatureProcess
from gramless.inference.jackknife import check_coverage, jackknife_plus
from gramless.inference.prediction_sets import score_threshold
from gramless.streaming.learners.driver import FINISHED, Pass
from gramless.streaming.learners.ridge_sums import RidgeSums

_ROWS_AT_A_TIME = 1024
_LEAST_FREEDOM = 1e-10


@dataclass(frozen=True)
class OnePassProcess:
    """What a pass knows of its own errors.

    Attributes
    ----------
    process : FeatureProcess
        From the sums.
    projected : ndarray of shape (n, p)
        The kept rows in the coordinates of the process.
    residuals : ndarray of shape (n, k)
        Of the model without each row.
    weights : ndarray of shape (n,)
        Of the kept rows.
    freedom : ndarray of shape (n,)
        One minus the leverage of each.
    rest : ndarray of shape (n,)
        The variance of what the features cannot express at each.
    scale : ndarray of shape (k,)
        `s` of each output.
    """

    process: FeatureProcess
    projected: np.ndarray
    residuals: np.ndarray
    weights: np.ndarray
    freedom: np.ndarray
    rest: np.ndarray
    scale: np.ndarray


def process_of(model: Any) -> OnePassProcess:
    """The process of a fitted one-pass regressor; kept with its pass until more rows come.

    Parameters
    ----------
    model : NystromLSSVR or FourierLSSVR
        Fitted.

    Returns
    -------
    OnePassProcess
        In float64, on the host.
    """
    check_is_fitted(model, "intercept_")
    parts = model.parts()
    solved = model.pass_.model(*parts)
    kept = vars(model).get("_posterior")
    if kept is not None and kept[0] is solved:
        return kept[1]
    state: Pass = model.pass_.settled(*parts)
    if not isinstance(state.run, RidgeSums) or state.sample is None or state.sample.rows is None:
        raise ValueError(
            f"{type(model).__name__} has no sums over its rows: this needs method='exact', and a model that finish() was "
            "not called on"
        )
    features = state.features
    assert features is not None
    process = FeatureProcess.of(state.run, 1.0 / solved.C, penalty=features.penalty())
    X, y, weights = state.sample.rows
    used = np.flatnonzero(weights > 0)
    used = used[_not_landmarks(X, getattr(features, "points", None))[used]]
    X, y, weights = xa.take_rows(X, used), y[used], np.asarray(weights[used], dtype=np.float64)
    rows = state.prepare(X)
    Phi = xa.to_numpy(features(rows)).astype(np.float64)
    rest = _rest(process, solved.features.kernel, rows, Phi)
    projected = process.project(Phi)
    errors = state.targets.matrix(y) - _scores(solved, rows)
    free = np.maximum(1.0 - weights * (process.constant + np.einsum("ij,ij->i", projected, projected)), _LEAST_FREEDOM)
    residuals = errors / free[:, None]
    scale = np.average(residuals**2 / (process.ridge / free + rest)[:, None], axis=0, weights=weights)
    found = OnePassProcess(process, projected, residuals, weights, free, rest, scale)
    model._posterior = (solved, found)
    return found


def keep_residuals(model: Any) -> None:
    """Keep what intervals of one width need with the solved model, before its sums go.

    Parameters
    ----------
    model : NystromLSSVR, FourierLSSVR or BudgetLSSVR
        Fitted; one without sums has nothing to keep.
    """
    state: Pass = model.pass_
    if state.phase != FINISHED and state.sample is not None and isinstance(state.settled(*model.parts()).run, RidgeSums):
        found = process_of(model)
        state.model(*model.parts()).calibration = found.residuals, found.weights


def _not_landmarks(X: Any, points: Any) -> np.ndarray:
    """Which rows are no landmarks; all where most are."""
    if points is None or xa.is_sparse(X) or xa.is_sparse(points):
        return np.ones(X.shape[0], dtype=bool)
    known = {row.tobytes() for row in np.ascontiguousarray(points)}
    others = np.array([row.tobytes() not in known for row in np.ascontiguousarray(X, dtype=points.dtype)], dtype=bool)
    return others if 2 * np.count_nonzero(others) >= len(others) else np.ones(len(others), dtype=bool)


def _rest(process: FeatureProcess, kernel: Any, rows: Any, Phi: np.ndarray) -> np.ndarray:
    own = xa.to_numpy(kernel.diag(rows)).astype(np.float64)
    return np.maximum(own - process.square_norms(Phi), 0.0)


def _scores(solved: Any, rows: Any) -> np.ndarray:
    coef = xa.like(solved.coef, rows.data if xa.is_sparse(rows) else rows)
    return xa.to_numpy(solved.features.scores(rows, coef)).astype(np.float64) + solved.intercept


def _new_rows(model: Any, X: Any) -> Any:
    feature_map = model.parts()[0]
    checked = check_X(model, X, dtype=np.dtype(model.pass_.dtype), reset=False, accept_sparse=feature_map.accepts_sparse)
    return model.pass_.prepare(checked, type(model).__name__)


def standard_deviations(model: Any, X: Any) -> np.ndarray:
    """The standard deviation of the function at new rows, for each output.

    Parameters
    ----------
    model : NystromLSSVR or FourierLSSVR
        Fitted.
    X : array of shape (m, d)
        Rows.

    Returns
    -------
    ndarray of shape (m, k)
        In units of the values.
    """
    found, rows = process_of(model), _new_rows(model, X)
    features = model.pass_.settled(*model.parts()).features
    out = np.empty((int(rows.shape[0]), len(found.scale)))
    for part in slices(int(rows.shape[0]), _ROWS_AT_A_TIME):
        Phi = xa.to_numpy(features(rows[part])).astype(np.float64)
        variances = found.process.variances(Phi, _rest(found.process, features.kernel, rows[part], Phi))
        out[part] = np.sqrt(variances[:, None] * found.scale)
    return out


def prediction_intervals(model: Any, X: Any, coverage: float, *, local: bool) -> np.ndarray:
    """Intervals that contain the value of a new row with probability `coverage`.

    Parameters
    ----------
    model : NystromLSSVR or FourierLSSVR
        Fitted.
    X : array of shape (m, d)
        Rows.
    coverage : float
        Between 0 and 1.
    local : bool
        Whether a residual counts relative to the standard deviation where it was made.

    Returns
    -------
    ndarray of shape (m, k, 2)
        Lower and upper ends.
    """
    check_coverage(coverage)
    kept = model.pass_.solved.calibration if model.pass_.phase == FINISHED else None
    if kept is not None and not local:
        rows = _new_rows(model, X)
        residuals, weights = kept
        lengths = [score_threshold(np.abs(column), coverage, weights) for column in residuals.T]
        means = _scores(model.pass_.solved, rows)
        return np.stack([means - lengths, means + lengths], axis=2)
    found, rows = process_of(model), _new_rows(model, X)
    solved, process = model.pass_.model(*model.parts()), found.process
    features = model.pass_.settled(*model.parts()).features
    counted = None if (found.weights == 1).all() else found.weights
    own = process.ridge / found.freedom + found.rest
    out = np.empty((int(rows.shape[0]), len(found.scale), 2))
    for part in slices(int(rows.shape[0]), _ROWS_AT_A_TIME):
        some = rows[part]
        Phi = xa.to_numpy(features(some)).astype(np.float64)
        smoothing = found.weights * (process.constant + process.project(Phi) @ found.projected.T)
        ratio: Any = 1.0
        if local:
            there = process.variances(Phi, _rest(process, features.kernel, some, Phi)) + process.ridge
            ratio = np.sqrt(there[:, None] / own)
        means = _scores(solved, some)
        for j in range(len(found.scale)):
            residuals = found.residuals[:, j]
            centre = means[:, [j]] - residuals * smoothing
            out[part, j, 0], out[part, j, 1] = jackknife_plus(centre, np.abs(residuals) * ratio, coverage, counted)
    return out
