"""Gaussian process of a one-pass model, computed from sums over the training rows and from a sample of the rows.

A least-squares model on features `phi` with the identity as penalty is the posterior mean of a process with covariance
`s phi(x) . phi(y)`, noise variance `s ridge` and a constant with a flat prior. With the sums of `RidgeSums` (mean m of the p
features, centred scatter `Q diag(v) Q^T`, N rows) and `u = Q^T (phi(x) - m)`:

    h(x) = 1 / N + sum_j u_j^2 / (v_j + ridge)                         leverage of a row
    var f(x) / s = ridge h(x) + unexplained(x),     unexplained(x) = k(x, x) - |phi(x)|^2

The unexplained variance is small near the landmarks and `k(x, x)` far from all landmarks. Divided by `s`, the variance of
`f` at a training row given the other rows is `ridge h / (1 - h) + unexplained`, and the variance of the leave-one-out
residual is `ridge / (1 - h) + unexplained`. Cost: O(p^3) once, O(p^2) for each row.

A one-pass regressor stores a uniform sample of up to 8,192 training rows, for which leave-one-out residuals are computed:

    r_i = (y_i - f(x_i)) / (1 - h_i),     f_-i(x) = f(x) - r_i h_i(x),     h_i(x) = w_i (1 / N + u_i . u(x))

The intervals are the jackknife+ of the stored rows, and the scale `s` is estimated from the residuals. The features
represent landmarks better than new rows, so landmarks among the stored rows are not used, unless most stored rows are
landmarks. The interval of a new row costs O(stored rows) in addition to the variance.

References: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.1 and 8.3; Snelson and
Ghahramani, "Sparse Gaussian processes using pseudo-inputs", 2006, for the unexplained variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless.approximation.features.base import Features
from gramless.approximation.features.landmark_map import LandmarkFeatures
from gramless.inference.intervals import GaussianProcess, ProcessBatch, score_thresholds
from gramless.inference.leave_one_out import LeaveOneOut
from gramless.inference.tuning import TUNING
from gramless.kernels import Kernel
from gramless.linalg.operators.jitter import jittered_cholesky, rounding_of
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.learners.training_pass import LearningPass, OnePassModel

# Lower bound on one minus the leverage: a row with leverage 1 determines its own fitted value, and the variance given the
# other rows is not defined.
SMALLEST_FREEDOM = 1e-10


@dataclass(frozen=True)
class FeatureProcess:
    """Leverages and variances of rows, given the sums over the training rows."""

    mean: np.ndarray
    """Mean feature, shape (p,); zeros for a model without a constant."""
    root: np.ndarray
    """`R` with `(scatter + ridge I)^-1 = R R^T`, in the coordinates of the features."""
    ridge: float
    """Noise variance divided by the scale `s` of the covariance."""
    constant: float
    """`1 / N`, or zero for a model without a constant."""
    white: np.ndarray | None = None
    """Matrix that converts the penalty to the identity; None if the penalty is the identity."""

    @classmethod
    def from_sums(cls, sums: RidgeSums, ridge: float, *, penalty: Any = None, constant: bool = True) -> FeatureProcess:
        """Return the process in float64 on the CPU; the default penalty is the identity."""
        upper, total = xa.to_numpy(sums.upper), xa.to_numpy(sums.feature_sum)
        scatter = np.triu(upper) + np.triu(upper, 1).T
        mean = total[:, 0] / sums.weight if constant else np.zeros(len(total))
        scatter -= sums.weight * np.outer(mean, mean)
        L = None
        if penalty is not None:
            K = xa.to_numpy(penalty)
            L, _ = jittered_cholesky(K, rounding_of(K, sums.eps))
            half = solve_triangular(L, scatter, lower=True)
            scatter = solve_triangular(L, half.T, lower=True)
        scatter[np.diag_indices_from(scatter)] += ridge
        factor, _ = jittered_cholesky((scatter + scatter.T) / 2, 0.0)
        root = solve_triangular(factor, np.eye(len(factor)), lower=True).T
        white = None
        if L is not None:
            root = solve_triangular(L, root, lower=True, trans="T")
            white = solve_triangular(L, np.eye(len(L)), lower=True).T
        return cls(mean, root, float(ridge), 1.0 / sums.weight if constant else 0.0, white)

    def project(self, Phi: np.ndarray) -> np.ndarray:
        """Return rows in coordinates in which the squared norm of a row is its leverage minus `constant`."""
        return (np.asarray(Phi, dtype=np.float64) - self.mean) @ self.root

    def square_norms(self, Phi: np.ndarray) -> np.ndarray:
        """Return `|phi|^2` of each row in coordinates in which the penalty is the identity."""
        whitened = np.asarray(Phi, dtype=np.float64) if self.white is None else Phi @ self.white
        return np.einsum("ij,ij->i", whitened, whitened)

    def leverages(self, Phi: np.ndarray) -> np.ndarray:
        """Return the leverage `h` of each row."""
        U = self.project(Phi)
        return self.constant + np.einsum("ij,ij->i", U, U)

    def variances(self, Phi: np.ndarray, unexplained: np.ndarray | float = 0.0) -> np.ndarray:
        """Return the variance `var f / s` of the function at each new row."""
        return self.ridge * self.leverages(Phi) + unexplained

    def variances_without(self, Phi: np.ndarray, unexplained: np.ndarray | float = 0.0) -> np.ndarray:
        """Return the variance `var f / s` of the function at each training row, given the other rows."""
        h = self.leverages(Phi)
        return self.ridge * h / np.maximum(1.0 - h, SMALLEST_FREEDOM) + unexplained


@dataclass(frozen=True)
class OnePassProcess(GaussianProcess):
    """Gaussian process of a one-pass regressor, with the leave-one-out residuals of the stored rows."""

    model: OnePassModel
    features: Features
    process: FeatureProcess
    projected: np.ndarray
    """Stored rows in the coordinates of `FeatureProcess.project`, of shape (n, p)."""
    leave_one_out: LeaveOneOut
    freedom: np.ndarray
    """One minus the leverage of each stored row."""
    unexplained: np.ndarray
    """Variance of the kernel that the features do not represent, for each stored row."""
    scale: np.ndarray
    """Scale `s` of the covariance, for each output."""
    rows_per_batch: int
    """Number of new rows that are processed at a time."""

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[ProcessBatch]:
        """Yield the process at new rows in batches; if `variances` is False, the variances are NaN."""
        process, kernel = self.process, self.features.kernel
        for rows in slices(int(X.shape[0]), self.rows_per_batch):
            block = X[rows]
            Phi = xa.to_numpy(self.features(block)).astype(np.float64)
            smoothing = self.leave_one_out.weights * (process.constant + process.project(Phi) @ self.projected.T)
            unknown = np.full(len(Phi), np.nan)
            found = process.variances(Phi, _unexplained(process, kernel, block, Phi)) if variances else unknown
            yield ProcessBatch(_values(self.model, block), found, smoothing)

    def width_ratios(self, batch: ProcessBatch) -> np.ndarray:
        """Return the standard deviation at each of m new rows divided by that at each of n stored rows, as (m, n)."""
        own = self.process.ridge / self.freedom + self.unexplained
        return np.sqrt((batch.variances + self.process.ridge)[:, None] / own)


def fit_process(learning: LearningPass, model: OnePassModel, budget: int) -> OnePassProcess | None:
    """Return the process of a training pass in float64 on the CPU; None if the pass has no sums or no stored rows.

    The process and a batch of new rows take at most `budget` bytes; if that is not possible, `MemoryError` is raised.
    """
    if not isinstance(learning.state, RidgeSums) or learning.sample is None or learning.sample.rows is None:
        return None
    features = learning.features
    X, y, weights = learning.sample.rows
    rows_per_batch = process_batch_rows(
        X.shape[0], X.shape[1], len(learning.state.feature_sum), learning.targets.n_columns, budget
    )
    process = FeatureProcess.from_sums(learning.state, 1.0 / model.C, penalty=features.penalty())
    used = np.flatnonzero(weights > 0)
    if isinstance(features, LandmarkFeatures):
        used = used[_not_landmarks(X, features.points)[used]]
    X, y, weights = xa.take_rows(X, used), y[used], np.asarray(weights[used], dtype=np.float64)
    rows = learning.format.convert(X)
    unexplained, projected = np.empty(len(used)), np.empty((len(used), len(process.mean)))
    for part in slices(len(used), rows_per_batch):
        Phi = xa.to_numpy(features(rows[part])).astype(np.float64)
        unexplained[part] = _unexplained(process, model.features.kernel, rows[part], Phi)
        projected[part] = process.project(Phi)
    errors = learning.targets.matrix(y) - _values(model, rows)
    leverages = weights * (process.constant + np.einsum("ij,ij->i", projected, projected))
    freedom = np.maximum(1.0 - leverages, SMALLEST_FREEDOM)
    residuals = errors / freedom[:, None]
    scale = np.average(residuals**2 / (process.ridge / freedom + unexplained)[:, None], axis=0, weights=weights)
    left_out = LeaveOneOut(residuals, residuals, weights)
    return OnePassProcess(model, features, process, projected, left_out, freedom, unexplained, scale, rows_per_batch)


def process_batch_rows(n: int, d: int, p: int, k: int, budget: int) -> int:
    """Return the number of new rows in a batch, for n stored rows of d columns, p features and k outputs."""
    parts = {
        "stored rows": 2 * n * d * 8 + n * (p + 6 * k) * 8,
        "matrices of the features": 6 * p * p * 8,
        # Smoothing weights of the stored rows, and the features from which the weights are computed.
        "new row": (4 * n + 6 * p) * 8,
        "intervals": 6 * 8 * TUNING.interval_entries,
    }
    memory = MemoryEstimate(parts)
    memory.check(budget, "use fewer landmarks or components, or raise memory_budget")
    return 1 + min(TUNING.one_pass_new_rows, (budget - memory.nbytes) // parts["new row"])


def _not_landmarks(X: Any, points: Any) -> np.ndarray:
    """Return the mask of rows that are not landmarks; all True if most rows are landmarks."""
    sparse = xa.is_sparse(X) or xa.is_sparse(points)
    known = set(_row_keys(points, points.dtype, sparse=sparse))
    others = np.array([key not in known for key in _row_keys(X, points.dtype, sparse=sparse)], dtype=bool)
    return others if 2 * np.count_nonzero(others) >= len(others) else np.ones(len(others), dtype=bool)


def _row_keys(X: Any, dtype: np.dtype, *, sparse: bool) -> list[bytes]:
    """Return bytes for each row that are equal for equal rows: the values, or with `sparse` the nonzero values."""
    if not sparse:
        return [row.tobytes() for row in np.ascontiguousarray(X, dtype=dtype)]
    rows = sp.csr_matrix(X, dtype=dtype, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    columns = rows.indices.astype(np.int64)
    return [columns[a:b].tobytes() + rows.data[a:b].tobytes() for a, b in pairwise(rows.indptr.tolist())]


def _unexplained(process: FeatureProcess, kernel: Kernel, rows: Array, Phi: np.ndarray) -> np.ndarray:
    """Return `k(x, x) - |phi(x)|^2` of each row, at least zero."""
    own = xa.to_numpy(kernel.diag(rows)).astype(np.float64)
    return np.maximum(own - process.square_norms(Phi), 0.0)


def _values(model: OnePassModel, rows: Array) -> np.ndarray:
    """Return the predicted values in float64, shape (m, k)."""
    coef = xa.like(model.coef, rows.data if xa.is_sparse(rows) else rows)
    return xa.to_numpy(model.features.scores(rows, coef)).astype(np.float64) + model.intercept


def constant_width_intervals(model: OnePassModel, rows: Array, coverage: float) -> np.ndarray:
    """Return intervals of equal width, shape (m, k, 2), from the residuals that a finished model stores."""
    assert model.calibration is not None
    residuals, weights = model.calibration
    lengths = score_thresholds(np.abs(residuals.T), coverage, weights)
    means = _values(model, rows)
    return np.stack([means - lengths, means + lengths], axis=2)
