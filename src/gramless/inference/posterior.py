"""The Gaussian process whose posterior mean a least-squares model is.

Least squares with kernel `K` and ridge `1 / C` is the posterior mean of a Gaussian process with covariance `s K`, noise
variance `s / (C w_i)` and, with an intercept, a constant of unknown size. With `A = K + diag(1 / (C w))`, `u = A^-1 1`,
`t = sum u`:

    var f(x) / s = k(x, x) - k(x)^T A^-1 k(x) + (1 - u^T k(x))^2 / t          (the last term with an intercept only)
    h(x)         = A^-1 k(x) + (1 - u^T k(x)) u / t                           smoothing weights: f(x) = sum_i h_i(x) y_i
    r_i          = a_i / p_i,  p = diag(A^-1) - u^2 / t                  leave-one-out residuals, of variance s / p_i
    log p(y)     = -1/2 (a^T y / s + log det A + n log(2 pi s))          with an intercept n - 1 for n, and log t added

and `s` is the mean of `r_i^2 p_i`. `ExactPosterior` stores the Cholesky factor in float64: O(n^3) once, O(n^2) for each new
row, 8 n^2 bytes; `gramless.inference.iterative` is for more rows.

Reference: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.2, 2.7 and 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless.inference.intervals import ProcessBatch
from gramless.inference.leave_one_out import LeaveOneOut
from gramless.inference.tuning import TUNING
from gramless.kernels.base import Kernel
from gramless.linalg.operators import KernelOperator, evaluate

# Arrays of new rows by training rows in float64: kernel values, two solutions, their copies, smoothing weights.
_COPIES_OF_NEW_ROWS = 8


@dataclass(frozen=True)
class LeastSquaresModel:
    """A fitted least-squares regressor: kernel, training rows, coefficients, `ridge = 1 / C` and weights."""

    kernel: Kernel
    points: Array
    coef: np.ndarray
    intercept: np.ndarray
    ridge: float
    weights: np.ndarray | None = None
    fit_intercept: bool = True
    device: str = "cpu"

    def operator(self, dtype: Any = np.float64, *, cache: bool = False) -> KernelOperator:
        """Return the matrix `A` of the model."""
        ridge = self.ridge if self.weights is None else self.ridge / self.weights
        return KernelOperator(xa.to_device(self.points, self.device, dtype), self.kernel, ridge, cache=cache)


class ExactPosterior:
    """The posterior by one Cholesky factorisation."""

    exact = True

    def __init__(self, model: LeastSquaresModel, budget: int | None = None):
        self.model = model
        n, d = model.points.shape
        left = np.inf if budget is None else budget - self.memory(n, d, model.device).nbytes
        self._rows_per_batch = 1 + int(min(TUNING.batch_entries / n, left / (8 * n * _COPIES_OF_NEW_ROWS)))
        op = model.operator()
        self.points = op.X
        self.factor = xa.cholesky_(op.dense(np.float64))
        n = int(self.factor.shape[0])
        inverse = xa.invert_lower_(xa.lower_triangle(self.factor + 0.0))
        diagonal = xa.to_numpy(xa.square_norms(inverse.T))
        del inverse
        self.u = xa.to_numpy(xa.cholesky_solve(self.factor, xa.zeros((n, 1), self.factor) + 1.0))[:, 0]
        self.total = float(self.u.sum())
        if model.fit_intercept:
            diagonal = diagonal - self.u**2 / self.total
        self.leave_one_out = LeaveOneOut.from_solution(model.coef, diagonal, model.ridge, model.weights)
        self.inverse_diagonal = diagonal
        self.scale = process_scale(model.coef, diagonal, model.weights)

    @staticmethod
    def memory(n: int, d: int, device: str) -> MemoryEstimate:
        """Estimate the memory of the factor, its inverse, one new row and its intervals."""
        parts = {
            "factor and inverse": 2 * n * n * 8,
            "points": 2 * n * d * 8,
            "a new row": 8 * n * _COPIES_OF_NEW_ROWS,
            "intervals": 6 * 8 * TUNING.interval_entries,
        }
        return MemoryEstimate(parts, device)

    @cached_property
    def log_likelihood(self) -> tuple[np.ndarray, float]:
        """Log marginal likelihood of each output, and its standard error, which is zero."""
        diagonal = xa.to_numpy(xa.namespace(self.factor).linalg.diagonal(self.factor))
        determinant = 2.0 * float(np.log(np.abs(diagonal)).sum())

        def times(V: np.ndarray) -> np.ndarray:
            L = xa.namespace(self.factor).tril(self.factor)
            return xa.to_numpy(L @ (L.T @ xa.like(V, L)))

        return log_likelihood(self.model, times, determinant, self.total, self.scale), 0.0

    def width_ratios(self, batch: ProcessBatch) -> np.ndarray:
        """Return the ratios of the standard deviations of values at new rows and at training rows, of shape (m, n)."""
        return width_ratios(self.model, self.inverse_diagonal, batch)

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[ProcessBatch]:
        """Yield the posterior at new float64 rows in batches; `variances` has no effect here, since they cost nothing."""
        model = self.model
        for rows in slices(int(X.shape[0]), self._rows_per_batch):
            part = X[rows]
            K = evaluate(model.kernel, part, self.points)
            half = xa.solve_triangular(self.factor, K.T)
            left = xa.to_numpy(model.kernel.diag(part)) - xa.to_numpy(xa.square_norms(half.T))
            weights = xa.to_numpy(xa.solve_triangular(self.factor, half, transposed=True).T)
            values = xa.to_numpy(K)
            if model.fit_intercept:
                missing = 1.0 - values @ self.u
                left = left + missing**2 / self.total
                weights = weights + np.outer(missing, self.u / self.total)
            means = values @ model.coef.astype(np.float64) + model.intercept
            yield ProcessBatch(rows, means, np.maximum(left, 0.0), weights)


def width_ratios(model: LeastSquaresModel, inverse_diagonal: np.ndarray, batch: ProcessBatch) -> np.ndarray:
    """Return the ratios of the standard deviations of values at new rows and at training rows, of shape (m, n)."""
    # Variance of a single value predicted from the other rows; a row of weight w is the mean of w values.
    weights = 1.0 if model.weights is None else np.asarray(model.weights, dtype=np.float64)
    own = 1.0 / inverse_diagonal + model.ridge * (1.0 - 1.0 / weights)
    changes = 0.0 if batch.weights is None else batch.weights**2 / inverse_diagonal
    return np.sqrt((batch.variances[:, None] + model.ridge + changes) / own)


def process_scale(coef: np.ndarray, inverse_diagonal: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return `s` for each output: the mean squared leave-one-out residual relative to that of a process with `s = 1`."""
    squares = np.asarray(coef, dtype=np.float64) ** 2 / inverse_diagonal[:, None]
    return np.average(squares, axis=0, weights=weights)


def log_likelihood(
    model: LeastSquaresModel,
    times: Callable[[np.ndarray], np.ndarray],
    log_determinant: float,
    total: float,
    scale: np.ndarray,
) -> np.ndarray:
    """Return the (restricted) log marginal likelihood of each output; `times(V)` is `A V` and `total` is `1^T A^-1 1`.

    It is infinite for an output that the constant fits exactly, whose process has the scale zero.
    """
    coef = model.coef.astype(np.float64)
    fit = np.sum(coef * times(coef), axis=0)  # a^T (y - b) = a^T A a
    n = len(coef) - (1 if model.fit_intercept else 0)
    constant = np.log(total) if model.fit_intercept else 0.0
    positive = np.where(scale > 0, scale, 1.0)
    values = -0.5 * (fit / positive + log_determinant + constant + n * np.log(2 * np.pi * positive))
    return np.where(scale == 0, np.inf, values)
