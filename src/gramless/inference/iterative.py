"""The Gaussian process of a least-squares model with too many rows for a factorisation.

    k(x)^T A^-1 k(x)  ->  k(x)^T v_j,     v_j the j-th iterate of conjugate gradients for A v = k(x)

grows with every iteration towards the exact value, so the variance falls. The missing part is `r^T A^-1 r` for the residual
`r`, and the preconditioner `P`, which each iteration applies to `r` anyway, bounds it:

    r^T A^-1 r <= r^T P^-1 r (ridge + damping) / ridge          since A >= P - damping

From the second iteration on, the rest of a geometric series is a better estimate if the damping is large. The iterations end
when the smaller of the two is at most `tol` of every variance, and that value is subtracted. All new rows of a batch are
solved together. The diagonal of the inverse is estimated with random signs, which share the products of the first batch.
With so many rows, leaving one out changes no other prediction, and the interval is that of the plain jackknife. The log
determinant is `E n sum_j tau_j^2 log theta_j` over random signs, with eigenvalues `theta` and first components `tau` of the
tridiagonal matrices of Lanczos' method. Cost: O(n^2 (d + m)) for each iteration and batch of m new rows.

References: Gardner et al., "GPyTorch: blackbox matrix-matrix Gaussian process inference", 2018; Ubaru, Chen, Saad, "Fast
estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017.
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
from gramless._core.threads import slices
from gramless._core.validation import warn_caller
from gramless.inference.intervals import ProcessBatch
from gramless.inference.leave_one_out import LeaveOneOut, diagonal_from_probes, diagonal_probes
from gramless.inference.posterior import ExactPosterior, LeastSquaresModel, log_likelihood, process_scale, width_ratios
from gramless.inference.tuning import TUNING, InferenceTuning
from gramless.linalg.least_squares import planned_preconditioner
from gramless.linalg.operators import KernelOperator, evaluate
from gramless.linalg.planning.plan import SolverPlan, make_plan, problem_size
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers import CG, solve
from gramless.linalg.tuning import TUNING as LINALG_TUNING
from gramless.linalg.tuning import LinalgTuning


class IterativePosterior:
    """The posterior by conjugate gradients, within `budget` bytes.

    `tol` is the largest fraction of a variance by which it may still fall, as estimated: half of it is the relative error of
    a standard deviation. `n_landmarks` is that of the preconditioner, and `max_iter` limits the iterations.
    """

    exact = False

    def __init__(
        self,
        model: LeastSquaresModel,
        budget: int,
        *,
        tol: float = 1e-2,
        random_state: Any = None,
        n_landmarks: int | None = None,
        max_iter: int = 200,
        tuning: InferenceTuning = TUNING,
    ):
        self.model = model
        self.tol = tol
        self.max_iter = max_iter
        self.tuning = tuning
        self.rng = check_random_state(random_state)
        dtype = xa.numpy_dtype(model.coef)
        self.plan, self.rows_per_batch = _plan_batches(model, dtype, budget, n_landmarks, tuning)
        self.op = model.operator(dtype, cache=self.plan.cached)
        self.preconditioner = planned_preconditioner(self.op, self.plan, self.rng)
        self._estimates: _ProbeEstimates | None = None

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[ProcessBatch]:
        """Yield the posterior at new rows in batches, without smoothing weights.

        Without `variances` a new row costs no iterations, and its variance is NaN.
        """
        model = self.model
        for rows in slices(int(X.shape[0]), self.rows_per_batch):
            part = X[rows]
            K = evaluate(model.kernel, part, self.op.X).T
            prior = xa.to_numpy(model.kernel.diag(part)).astype(np.float64)
            values = xa.to_numpy(K).astype(np.float64)
            left = prior - self._explained(K, prior) if variances else np.full_like(prior, np.nan)
            if variances and model.fit_intercept:
                left += (1.0 - self.u @ values) ** 2 / self.total
            means = values.T @ model.coef.astype(np.float64) + model.intercept
            yield ProcessBatch(rows, means, np.maximum(left, 0.0), None)

    def width_ratios(self, batch: ProcessBatch) -> np.ndarray:
        """Return the ratios of the standard deviations of values at new rows and at training rows, of shape (m, n)."""
        return width_ratios(self.model, self.inverse_diagonal, batch)

    def _explained(self, K: Array, prior: np.ndarray) -> np.ndarray:
        """Return `k(x)^T A^-1 k(x)` for each new row; the first call also solves for the random signs."""
        m, n = len(prior), self.op.shape[0]
        probes = np.empty((n, 0)) if self._estimates else diagonal_probes(n, self.rng)
        columns = xa.namespace(K).concat([K, xa.like(probes, K)], axis=1)
        forms = _QuadraticForms(columns, self.op, self.preconditioner)

        def missing_fraction(values: np.ndarray) -> np.ndarray:
            """Missing part relative to the variance of a new row, or to the form of a probe."""
            total = np.append(np.maximum(prior - values[:m], 1e-6 * prior), np.maximum(values[m:], 1e-300))
            return forms.missing / total

        def converged(W: Array, record: dict[str, Any]) -> bool:
            forms.update(W)
            return bool(np.all(missing_fraction(forms.values) <= self.tol))

        solver = CG(tol=1e-6, max_iter=self.max_iter, preconditioner=forms)
        W = solve(self.op, columns, solver, callback=converged, random_state=self.rng).W
        if self._estimates is None:
            self._estimates = _ProbeEstimates.of(self.model, *diagonal_from_probes(self.op, probes, W[:, m:]))
        left = float(np.max(missing_fraction(forms.values), initial=0.0))
        if left > self.tol:
            warn_caller(
                f"the iterations for standard deviations ended early: a variance may still fall by {left:.0%}. Use a "
                "smaller C or dtype='float64'",
                ConvergenceWarning,
            )
            return forms.values[:m]
        return (forms.values + forms.missing)[:m]

    @property
    def estimates(self) -> _ProbeEstimates:
        """Estimates from random signs, computed at the first request."""
        if self._estimates is None:
            self._explained(xa.zeros((self.op.shape[0], 0), self.op.reference), np.empty(0))
        assert self._estimates is not None
        return self._estimates

    @property
    def u(self) -> np.ndarray:
        """`A^-1 1`."""
        return self.estimates.u

    @property
    def total(self) -> float:
        """Sum of `u`."""
        return float(self.u.sum())

    @property
    def inverse_diagonal(self) -> np.ndarray:
        """Estimated diagonal of the inverse of the (bordered) matrix."""
        return self.estimates.inverse_diagonal

    @property
    def leave_one_out(self) -> LeaveOneOut:
        """Effect of leaving out each row; the change of other predictions is zero."""
        return self.estimates.leave_one_out

    @property
    def scale(self) -> np.ndarray:
        """`s` for each output."""
        return self.estimates.scale

    @cached_property
    def log_likelihood(self) -> tuple[np.ndarray, float]:
        """Log marginal likelihood of each output, and the standard error of its random part."""
        determinant, error = self._log_determinant()

        def times(V: np.ndarray) -> np.ndarray:
            return xa.to_numpy(self.op @ xa.like(V, self.op.reference)).astype(np.float64)

        return log_likelihood(self.model, times, determinant, self.total, self.scale), 0.5 * error

    def _log_determinant(self) -> tuple[float, float]:
        n, n_probes = self.op.shape[0], self.tuning.lanczos_probes
        Q = self.rng.choice(np.array([-1.0, 1.0]), size=(n, n_probes)) / n**0.5
        before, beta = np.zeros_like(Q), np.zeros(n_probes)
        alphas, betas = [], []
        for _ in range(min(self.tuning.lanczos_steps, n)):
            V = xa.to_numpy(self.op @ xa.like(Q, self.op.reference)).astype(np.float64) - beta * before
            alpha = np.sum(Q * V, axis=0)
            V -= alpha * Q
            beta = np.linalg.norm(V, axis=0)
            alphas.append(alpha)
            betas.append(beta)
            before, Q = Q, V / np.maximum(beta, np.finfo(np.float64).tiny)
        traces = [_quadrature(np.array(alphas)[:, p], np.array(betas)[:-1, p]) for p in range(n_probes)]
        return n * float(np.mean(traces)), n * float(np.std(traces, ddof=1)) / n_probes**0.5


Posterior = ExactPosterior | IterativePosterior


def make_posterior(
    model: LeastSquaresModel, budget: int, *, random_state: Any = None, tuning: LinalgTuning = LINALG_TUNING
) -> Posterior:
    """Return the process by a factorisation if that fits the budget, else by conjugate gradients."""
    n, d = model.points.shape
    fits = n <= tuning.exact_leave_one_out_max_rows and ExactPosterior.memory(n, d, model.device).nbytes <= budget
    return ExactPosterior(model, budget) if fits else IterativePosterior(model, budget, random_state=random_state)


@dataclass(frozen=True)
class _ProbeEstimates:
    """Estimates of the process from random signs."""

    u: np.ndarray
    inverse_diagonal: np.ndarray
    leave_one_out: LeaveOneOut
    scale: np.ndarray

    @classmethod
    def of(cls, model: LeastSquaresModel, diagonal: np.ndarray, u: np.ndarray) -> _ProbeEstimates:
        if model.fit_intercept:
            diagonal = diagonal - u**2 / u.sum()
        exact = LeaveOneOut.from_solution(model.coef, diagonal, model.ridge, model.weights)
        leave_one_out = LeaveOneOut(exact.residuals, np.zeros_like(exact.changes), exact.weights)
        return cls(u, diagonal, leave_one_out, process_scale(model.coef, diagonal, model.weights))


class _QuadraticForms:
    """The forms `b^T A^-1 b` of all columns `b` during conjugate gradients, and their missing parts.

    An instance is passed to CG as the preconditioner, so that it receives every residual. For an iterate `w` with the
    residual `r = b - A w`, `w^T (b + r)` is `b^T A^-1 b` minus the squared error of `w` in the norm of `A`, whatever the
    first iterate was; `w^T b` alone is that only if the first iterate is zero.
    """

    def __init__(self, columns: Array, op: KernelOperator, preconditioner: NystromPreconditioner | None):
        self.columns = xa.astype(columns, np.float64)
        self.preconditioner = preconditioner
        ridge = float(xa.to_numpy(op.ridge).min())
        # Without a preconditioner the form is r^T r, and A is at least the ridge.
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
        if self._updates > 1:  # the first change, from zero, is no measure of the rate of convergence
            ratio = np.divide(now, earlier, out=np.ones_like(now), where=earlier > 0)
            series = np.divide(ratio, 1.0 - ratio, out=np.full_like(ratio, np.inf), where=ratio < 1)
            self.missing = np.fmin(self.missing, np.abs(self.values - before) * series)


def _column_sums(A: Array, B: Array) -> np.ndarray:
    """Return the diagonal of `A^T B`, for `A` in float64."""
    return xa.to_numpy(xa.namespace(A).sum(A * B, axis=0))


def _plan_batches(
    model: LeastSquaresModel, dtype: Any, budget: int, n_landmarks: int | None, tuning: InferenceTuning
) -> tuple[SolverPlan, int]:
    """Return the plan of the solves within the budget, and the number of new rows in a batch."""
    n, d = model.points.shape

    def planned(columns: int, m: int | str) -> SolverPlan:
        size = problem_size(n, d, columns + LINALG_TUNING.n_probes + 1, dtype, model.device, model.kernel)
        return make_plan(size, "cg", budget, n_landmarks=m)

    rows = tuning.new_rows
    while True:
        try:
            plain = planned(rows, "auto" if n_landmarks is None else n_landmarks)
            break
        except MemoryError:
            rows //= 2
            if rows < tuning.fewest_new_rows:
                raise
    if n_landmarks is not None:
        return plain, rows
    # A product is 2 n^2 rows operations in single precision; the preconditioner n m^2 in double, half as many at half the
    # rate. The two are balanced.
    balanced = planned(rows, min(n // 2, int((n * rows) ** 0.5)))
    fits = balanced.cached == plain.cached and balanced.memory.nbytes <= budget
    return (balanced if fits else plain), rows


def _quadrature(diagonal: np.ndarray, off_diagonal: np.ndarray) -> float:
    """Return `e_1^T log(T) e_1` of a tridiagonal matrix `T`."""
    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return float(vectors[0] ** 2 @ np.log(np.maximum(values, np.finfo(np.float64).tiny)))
