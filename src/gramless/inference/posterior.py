"""Gaussian process whose posterior mean is the prediction of a least-squares model.

Least squares with kernel `K` and ridge `1 / C` is the posterior mean of a Gaussian process with covariance `s K`, noise
variance `s / (C w_i)` and, with an intercept, a constant with a flat prior. With `A = K + diag(1 / (C w))`, `u = A^-1 1`,
`t = sum u`:

    var f(x) / s = k(x, x) - k(x)^T A^-1 k(x) + (1 - u^T k(x))^2 / t          (the last term with an intercept only)
    h(x)         = A^-1 k(x) + (1 - u^T k(x)) u / t                           smoothing weights: f(x) = sum_i h_i(x) y_i
    r_i          = a_i / p_i,  p = diag(A^-1) - u^2 / t                  leave-one-out residuals, of variance s / p_i
    log p(y)     = -1/2 (a^T y / s + log det A + n log(2 pi s))          with an intercept n - 1 for n, and log t added

and `s` is the mean of `r_i^2 p_i`. `ExactPosterior` stores the Cholesky factor in float64: O(n^3) once, O(n^2) for each new
row, 8 n^2 bytes. `IterativePosterior` is for more rows. With the j-th iterate `v_j` of conjugate gradients for `A v = k(x)`,

    k(x)^T v_j  ->  k(x)^T A^-1 k(x)

grows with every iteration towards the exact value, so the computed variance decreases. The missing part is `r^T A^-1 r` for
the residual `r`. The preconditioner `P`, which each iteration applies to `r` anyway, gives an upper bound:

    r^T A^-1 r <= r^T P^-1 r (ridge + damping) / ridge          since A >= P - damping

For large damping, a geometric series of the changes of `k(x)^T v_j` estimates the missing part better than the bound, from
the second iteration on. The iterations end when the smaller value is at most `tol` times each variance, and subtract it. All
new rows of a batch are solved together. The first batch also solves for random signs, which estimate the diagonal of the
inverse. With so many rows, leaving out a row hardly changes other predictions, so the plain jackknife is used. The log
determinant is `E n sum_j tau_j^2 log theta_j` over random signs, with eigenvalues `theta` and first components `tau` of the
tridiagonal matrices of Lanczos' method. Cost: O(n^2 (d + m)) for each iteration and batch of m new rows.

References: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.2, 2.7 and 5.4; Gardner et
al., "GPyTorch: blackbox matrix-matrix Gaussian process inference", 2018; Ubaru, Chen, Saad, "Fast estimation of tr(f(A)) via
stochastic Lanczos quadrature", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless._core.validation import warn_caller
from gramless.inference.intervals import GaussianProcess, ProcessBatch
from gramless.inference.leave_one_out import LeaveOneOut, diagonal_and_u, diagonal_from_probes, diagonal_probes
from gramless.inference.tuning import TUNING, InferenceTuning
from gramless.kernels.base import Kernel
from gramless.linalg.least_squares import planned_preconditioner
from gramless.linalg.operators import KernelOperator, evaluate
from gramless.linalg.operators.nystrom import NystromPreconditioner
from gramless.linalg.planning.plan import ProblemSize, SolverPlan, make_plan
from gramless.linalg.solvers import CG, solve
from gramless.linalg.tuning import TUNING as LINALG_TUNING
from gramless.linalg.tuning import LinalgTuning

# Number of arrays of new rows by training rows in float64: kernel values, two solutions, their copies, smoothing weights.
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


class _Posterior(GaussianProcess):
    """Quantities of a Gaussian process that follow from the diagonal of `A^-1` and from `u = A^-1 1`."""

    model: LeastSquaresModel
    op: KernelOperator
    rows_per_batch: int

    @property
    def inverse_diagonal_and_u(self) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal of `A^-1`, and `u`."""
        raise NotImplementedError

    @property
    def u(self) -> np.ndarray:
        """`A^-1 1`."""
        return self.inverse_diagonal_and_u[1]

    @property
    def inverse_diagonal(self) -> np.ndarray:
        """`p`: diagonal of the inverse of `A`, which is bordered by ones if the model has an intercept."""
        diagonal, u = self.inverse_diagonal_and_u
        return diagonal - u**2 / u.sum() if self.model.fit_intercept else diagonal

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[ProcessBatch]:
        """Yield the posterior at new rows in batches, in the precision of the operator.

        Without `variances`, an iterative posterior needs no iterations, and its variances are NaN.
        """
        model = self.model
        for rows in slices(int(X.shape[0]), self.rows_per_batch):
            part = X[rows]
            K = evaluate(model.kernel, part, self.op.X)
            prior = xa.to_numpy(model.kernel.diag(part)).astype(np.float64)
            explained, weights = self._solved(K, prior, variances)
            left, values = prior - explained, xa.to_numpy(K).astype(np.float64)
            if model.fit_intercept and (variances or weights is not None):  # else `u`, which may be costly, is not needed
                missing = 1.0 - values @ self.u
                left = left + missing**2 / self.u.sum()
                weights = None if weights is None else weights + np.outer(missing, self.u / self.u.sum())
            means = values @ model.coef.astype(np.float64) + model.intercept
            yield ProcessBatch(means, np.maximum(left, 0.0), weights)

    def _solved(self, K: Array, prior: np.ndarray, variances: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return `k(x)^T A^-1 k(x)` and the smoothing weights `A^-1 k(x)` of new rows with kernel values `K`."""
        raise NotImplementedError

    @cached_property
    def leave_one_out(self) -> LeaveOneOut:  # type: ignore[override]
        """Effect of leaving out each row."""
        model = self.model
        return LeaveOneOut.from_solution(model.coef, self.inverse_diagonal, model.ridge, model.weights)

    @cached_property
    def scale(self) -> np.ndarray:  # type: ignore[override]
        """`s` for each output: the mean squared leave-one-out residual, divided by its expected value for `s = 1`."""
        squares = np.asarray(self.model.coef, dtype=np.float64) ** 2 / self.inverse_diagonal[:, None]
        return np.average(squares, axis=0, weights=self.model.weights)

    def width_ratios(self, batch: ProcessBatch) -> np.ndarray:
        """Return the standard deviation at each of m new rows divided by that at each of n training rows, as (m, n)."""
        # Variance of a single value predicted from the other rows; a row of weight w is the mean of w values.
        weights = 1.0 if self.model.weights is None else np.asarray(self.model.weights, dtype=np.float64)
        own = 1.0 / self.inverse_diagonal + self.model.ridge * (1.0 - 1.0 / weights)
        changes = 0.0 if batch.weights is None else batch.weights**2 / self.inverse_diagonal
        return np.sqrt((batch.variances[:, None] + self.model.ridge + changes) / own)

    @cached_property
    def log_likelihood(self) -> tuple[np.ndarray, float]:
        """(Restricted) log marginal likelihood of each output, and the standard error of the estimated part.

        The likelihood is infinite for an output that the constant fits exactly, where the scale is zero.
        """
        determinant, error = self._log_determinant()
        coef = self.model.coef.astype(np.float64)
        fit = np.sum(coef * self._times(coef), axis=0)  # a^T (y - b) = a^T A a
        n = len(coef) - (1 if self.model.fit_intercept else 0)
        constant = np.log(self.u.sum()) if self.model.fit_intercept else 0.0
        positive = np.where(self.scale > 0, self.scale, 1.0)
        values = -0.5 * (fit / positive + determinant + constant + n * np.log(2 * np.pi * positive))
        return np.where(self.scale == 0, np.inf, values), 0.5 * error

    def _log_determinant(self) -> tuple[float, float]:
        """Return the logarithm of the determinant of `A`, and its standard error."""
        raise NotImplementedError

    def _times(self, V: np.ndarray) -> np.ndarray:
        return xa.to_numpy(self.op @ xa.like(V, self.op.reference)).astype(np.float64)


class ExactPosterior(_Posterior):
    """Posterior computed by one Cholesky factorisation."""

    def __init__(self, model: LeastSquaresModel, budget: int | None = None):
        self.model = model
        n, d = model.points.shape
        left = np.inf if budget is None else budget - self.memory(n, d, model.device).nbytes
        self.rows_per_batch = 1 + int(min(TUNING.batch_entries / n, left / (8 * n * _COPIES_OF_NEW_ROWS)))
        self.op = model.operator()
        self.factor = xa.cholesky_(self.op.dense(np.float64))

    @cached_property
    def inverse_diagonal_and_u(self) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal of `A^-1`, and `u`."""
        return diagonal_and_u(xa.invert_lower_(xa.lower_triangle(self.factor + 0.0)))

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

    def _log_determinant(self) -> tuple[float, float]:
        diagonal = xa.to_numpy(xa.namespace(self.factor).linalg.diagonal(self.factor))
        return 2.0 * float(np.log(np.abs(diagonal)).sum()), 0.0

    def _solved(self, K: Array, prior: np.ndarray, variances: bool) -> tuple[np.ndarray, np.ndarray]:
        half = xa.solve_triangular(self.factor, K.T)
        return xa.to_numpy(xa.square_norms(half.T)), xa.to_numpy(xa.solve_triangular(self.factor, half, transposed=True).T)


class IterativePosterior(_Posterior):
    """Posterior computed by conjugate gradients, within `budget` bytes.

    The iterations end when the estimated error of every variance is at most `tuning.variance_tol` times the variance; the
    relative error of a standard deviation is half of this error.
    """

    def __init__(self, model: LeastSquaresModel, budget: int, *, random_state: Any = None, tuning: InferenceTuning = TUNING):
        self.model = model
        self.tuning = tuning
        self.rng = check_random_state(random_state)
        dtype = xa.numpy_dtype(model.coef)
        self.plan, self.rows_per_batch = _plan_batches(model, dtype, budget, tuning)
        self.op = model.operator(dtype, cache=self.plan.cached)
        self.preconditioner = planned_preconditioner(self.op, self.plan, self.rng)
        self._estimates: tuple[np.ndarray, np.ndarray] | None = None

    def _solved(self, K: Array, prior: np.ndarray, variances: bool) -> tuple[np.ndarray, None]:
        return self._explained(K.T, prior) if variances else np.full_like(prior, np.nan), None

    def _explained(self, K: Array, prior: np.ndarray) -> np.ndarray:
        """Return `k(x)^T A^-1 k(x)` for each new row; the first call also solves for the random signs."""
        m, n, tol = len(prior), self.op.shape[0], self.tuning.variance_tol
        probes = np.empty((n, 0)) if self._estimates else diagonal_probes(n, self.rng)
        columns = xa.namespace(K).concat([K, xa.like(probes, K)], axis=1)
        forms = _QuadraticForms(columns, self.op, self.preconditioner)

        def missing_fraction(values: np.ndarray) -> np.ndarray:
            """Return the missing part divided by the variance (new rows) or by the form (columns of random signs)."""
            total = np.append(np.maximum(prior - values[:m], 1e-6 * prior), np.maximum(values[m:], 1e-300))
            return forms.missing / total

        def converged(W: Array, record: dict[str, Any]) -> bool:
            forms.update(W)
            return bool(np.all(missing_fraction(forms.values) <= tol))

        solver = CG(tol=1e-6, max_iter=self.tuning.variance_iterations, preconditioner=forms)
        W = solve(self.op, columns, solver, callback=converged, random_state=self.rng).W
        if self._estimates is None:
            self._estimates = diagonal_from_probes(self.op, probes, W[:, m:])
        left = float(np.max(missing_fraction(forms.values), initial=0.0))
        if left > tol:
            warn_caller(
                f"the iterations for standard deviations ended early: a variance may still fall by {left:.0%}. Use a "
                "smaller C or dtype='float64'",
                ConvergenceWarning,
            )
            return forms.values[:m]
        return (forms.values + forms.missing)[:m]

    @property
    def inverse_diagonal_and_u(self) -> tuple[np.ndarray, np.ndarray]:
        """Estimated diagonal of `A^-1`, and `u`, computed at the first request."""
        if self._estimates is None:
            self._explained(xa.zeros((self.op.shape[0], 0), self.op.reference), np.empty(0))
        assert self._estimates is not None
        return self._estimates

    def _log_determinant(self) -> tuple[float, float]:
        n, n_probes = self.op.shape[0], self.tuning.lanczos_probes
        Q = self.rng.choice(np.array([-1.0, 1.0]), size=(n, n_probes)) / n**0.5
        before, beta = np.zeros_like(Q), np.zeros(n_probes)
        alphas, betas = [], []
        for _ in range(min(self.tuning.lanczos_steps, n)):
            V = self._times(Q) - beta * before
            alpha = np.sum(Q * V, axis=0)
            V -= alpha * Q
            beta = np.linalg.norm(V, axis=0)
            alphas.append(alpha)
            betas.append(beta)
            before, Q = Q, V / np.maximum(beta, np.finfo(np.float64).tiny)
        traces = [_quadrature(np.array(alphas)[:, p], np.array(betas)[:-1, p]) for p in range(n_probes)]
        return n * float(np.mean(traces)), n * float(np.std(traces, ddof=1)) / n_probes**0.5


def make_posterior(
    model: LeastSquaresModel, budget: int, *, random_state: Any = None, tuning: LinalgTuning = LINALG_TUNING
) -> ExactPosterior | IterativePosterior:
    """Return the exact posterior if the factor fits the budget and the rows are not too many, else the iterative one."""
    n, d = model.points.shape
    fits = n <= tuning.exact_leave_one_out_max_rows and ExactPosterior.memory(n, d, model.device).nbytes <= budget
    return ExactPosterior(model, budget) if fits else IterativePosterior(model, budget, random_state=random_state)


class _QuadraticForms:
    """Quadratic forms `b^T A^-1 b` of all columns `b` during conjugate gradients, and their estimated errors `missing`.

    An instance is passed to CG as the preconditioner, so that it receives every residual. For an iterate `w` with the
    residual `r = b - A w`, `w^T (b + r)` is `b^T A^-1 b` minus the squared error of `w` in the norm of `A`, for any first
    iterate; `w^T b` has this property only if the first iterate is zero.
    """

    def __init__(self, columns: Array, op: KernelOperator, preconditioner: NystromPreconditioner | None):
        self.columns = xa.astype(columns, np.float64)
        self.preconditioner = preconditioner
        ridge = float(xa.to_numpy(op.ridge).min())
        # Without a preconditioner the form is r^T r, and the eigenvalues of A are at least the ridge.
        self.bound = 1.0 / ridge if preconditioner is None else 1.0 + preconditioner.damping / ridge
        self.residual_forms: list[np.ndarray] = []
        self.values = np.zeros(columns.shape[1])
        self.missing = np.full(columns.shape[1], np.inf)
        self._updates = 0

    def __matmul__(self, R: Array) -> Array:
        step = R + 0 if self.preconditioner is None else self.preconditioner @ R
        self.residual = xa.astype(R, np.float64) + 0
        self.residual_forms.append(np.maximum(_column_sums(self.residual, step), 0.0))
        return step

    def update(self, W: Array) -> None:
        """Update the forms with an iterate whose residual was the last one received."""
        self._updates += 1
        if len(self.residual_forms) <= self._updates:  # the residual was too small for another iteration
            self.values, self.missing = _column_sums(self.columns, W), np.zeros_like(self.values)
            return
        before, self.values = self.values, _column_sums(self.columns + self.residual, W)
        earlier, now = self.residual_forms[-2:]
        self.missing = now * self.bound
        if self._updates > 1:  # at the first update `before` is zero, not the form of an iterate
            ratio = np.divide(now, earlier, out=np.ones_like(now), where=earlier > 0)
            series = np.divide(ratio, 1.0 - ratio, out=np.full_like(ratio, np.inf), where=ratio < 1)
            self.missing = np.fmin(self.missing, np.abs(self.values - before) * series)


def _column_sums(A: Array, B: Array) -> np.ndarray:
    """Return the diagonal of `A^T B`, for `A` in float64."""
    return xa.to_numpy(xa.namespace(A).sum(A * B, axis=0))


def _plan_batches(model: LeastSquaresModel, dtype: Any, budget: int, tuning: InferenceTuning) -> tuple[SolverPlan, int]:
    """Return the plan of the solves within the budget, and the number of new rows in a batch."""
    n, d = model.points.shape

    def planned(columns: int, m: int | str) -> SolverPlan:
        size = ProblemSize(n, d, columns + LINALG_TUNING.n_probes + 1, dtype, model.device, model.kernel)
        return make_plan(size, CG(n_landmarks=m), budget)

    rows = tuning.new_rows
    while True:
        try:
            plain = planned(rows, "auto")
            break
        except MemoryError:
            rows //= 2
            if rows < tuning.fewest_new_rows:
                raise
    # A product with the matrix takes `2 n^2 rows` operations in single precision. A preconditioner of m landmarks takes
    # `n m^2` operations in double precision, at half the rate. With `m = sqrt(n rows)` both times are equal.
    balanced = planned(rows, min(n // 2, int((n * rows) ** 0.5)))
    fits = balanced.cached == plain.cached and balanced.memory.nbytes <= budget
    return (balanced if fits else plain), rows


def _quadrature(diagonal: np.ndarray, off_diagonal: np.ndarray) -> float:
    """Return `e_1^T log(T) e_1` of a tridiagonal matrix `T`."""
    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return float(vectors[0] ** 2 @ np.log(np.maximum(values, np.finfo(np.float64).tiny)))
