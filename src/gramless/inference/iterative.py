"""The Gaussian process of a machine with too many rows for a factorisation.

    k(x)^T A^-1 k(x)  ->  k(x)^T v_j,     v_j the j-th iterate of conjugate gradients for A v = k(x)

grows with every iteration towards the exact value, so the variance falls towards its own. What is still to come is
`r^T A^-1 r` for the residual `r`, and the preconditioner `P`, which the iterations apply to it anyway, knows it nearly:

    r^T A^-1 r <= r^T P^-1 r (ridge + damping) / ridge          since A >= P - damping

A second iteration says how fast these forms fall, and the rest of a geometric series is the better estimate where the
damping is large. The iterations end when the smaller of the two is at most `tol` of every variance, and it is taken off. All
new rows of a batch are solved at once. A product with so many columns is dear, and the preconditioner has as many landmarks
as cost about as much as one.

The leave-one-out residuals come from an estimate of the diagonal of the inverse by random signs, which the first batch of
new rows takes along: a product computes the kernel's values once for all columns. With so many rows, leaving one out moves
no other prediction, and the interval is that of the plain jackknife. The log determinant comes from Lanczos' method on
random signs:

    log det A = E n sum_j tau_j^2 log theta_j,     theta, tau eigenvalues and first components of tridiagonal matrices

Cost: O(n^2 (d + m)) an iteration where the matrix is streamed, for a batch of m new rows; a handful of iterations.

References
----------
Gardner, Pleiss, Bindel, Weinberger, Wilson, "GPyTorch: blackbox matrix-matrix Gaussian process inference", 2018.
Ubaru, Chen, Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.inference.jackknife import LeftOut
from gramless.inference.leave_one_out import N_PROBES, diagonal_from, diagonal_probes, planned_preconditioner
from gramless.inference.posterior import Batch, Machine, log_likelihood, process_scale
from gramless.linalg.operators import KernelOperator, evaluate
from gramless.linalg.planning.plan import Plan, make_plan, sizes
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers import CG, solve

_NEW_ROWS = 256
_FEWEST_NEW_ROWS = 16
_LANCZOS_STEPS = 60
_LANCZOS_PROBES = 16


class IterativePosterior:
    """The process by conjugate gradients.

    Parameters
    ----------
    machine : Machine
    budget : int
        Bytes that may be held.
    tol : float, default=1e-2
        The largest part of a variance by which it may still fall, as estimated: half of it is the error of a deviation.
    random_state : int, RandomState or None, default=None
        Draws landmarks and signs.
    """

    exact = False

    def __init__(self, machine: Machine, budget: int, *, tol: float = 1e-2, random_state: Any = None):
        self.machine = machine
        self.tol = tol
        self.rng = check_random_state(random_state)
        n, d = machine.points.shape
        dtype = xa.numpy_dtype(machine.coef)
        self.plan, self.at_once = _plan(n, d, dtype, machine, budget)
        self.op = machine.operator(dtype, cache=self.plan.cached)
        self.preconditioner = planned_preconditioner(self.op, self.plan, self.rng)
        self._known: _Known | None = None

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[Batch]:
        """Means and variances of new rows, some at a time; no smoothing weights.

        Parameters
        ----------
        X : array of shape (m, d)
            Where the machine is, in its dtype.
        variances : bool, default=True
            Whether they are asked for: without them a new row costs no iterations, and they are not numbers.

        Yields
        ------
        Batch
        """
        machine = self.machine
        n = self.op.shape[0]
        for rows in slices(int(X.shape[0]), self.at_once):
            some = X[rows]
            K = evaluate(machine.kernel, some, self.op.X).T
            prior = xa.to_numpy(machine.kernel.diag(some)).astype(np.float64)
            values = xa.to_numpy(K).astype(np.float64)
            left = prior - self._explained(K, prior) if variances else np.full_like(prior, np.nan)
            if variances and machine.fit_intercept:
                left += (1.0 - self.u @ values) ** 2 / self.total
            means = values.T @ machine.coef.astype(np.float64) + machine.intercept
            yield Batch(rows, means, np.maximum(left, 0.0), np.zeros((means.shape[0], n)))

    def _explained(self, K: Array, prior: np.ndarray) -> np.ndarray:
        """`k(x)^T A^-1 k(x)` for each new row; the first time, what the random signs say is found with it."""
        m = len(prior)
        probes = np.empty((self.op.shape[0], 0)) if self._known else diagonal_probes(self.op.shape[0], self.rng)
        columns = xa.namespace(K).concat([K, xa.like(probes, K)], axis=1)
        forms = _Forms(columns, self.op, self.preconditioner)

        def open_part(values: np.ndarray) -> np.ndarray:
            """What may still come, as a part of the variance of a new row and of a probe's whole form."""
            whole = np.append(np.maximum(prior - values[:m], 1e-6 * prior), np.maximum(values[m:], 1e-300))
            return forms.to_come / whole

        def settled(W: Array, record: dict[str, Any]) -> bool:
            forms.update(W)
            return bool(np.all(open_part(forms.values) <= self.tol))

        W = solve(self.op, columns, CG(tol=1e-6, preconditioner=forms), callback=settled, random_state=self.rng).W
        if self._known is None:
            self._known = _Known.of(self.machine, *diagonal_from(self.op, probes, W[:, m:]))
        left = float(np.max(open_part(forms.values), initial=0.0))
        if left > self.tol:
            warnings.warn(
                f"the iterations for standard deviations ended early: a variance may still fall by {left:.0%}. Use a "
                "smaller C or dtype='float64'",
                ConvergenceWarning,
                stacklevel=2,
            )
            return forms.values[:m]
        return (forms.values + forms.to_come)[:m]

    def _probed(self) -> _Known:
        if self._known is None:
            self._explained(xa.zeros((self.op.shape[0], 0), self.op.reference), np.empty(0))
        assert self._known is not None
        return self._known

    @property
    def u(self) -> np.ndarray:
        """`A^-1 1`."""
        return self._probed().u

    @property
    def total(self) -> float:
        """The sum of `u`."""
        return float(self.u.sum())

    @property
    def inverse_diagonal(self) -> np.ndarray:
        """Of the inverse of the (bordered) matrix, estimated."""
        return self._probed().inverse_diagonal

    @property
    def left_out(self) -> LeftOut:
        """What leaving out each row does to it; to others it does nothing."""
        return self._probed().left_out

    @property
    def scale(self) -> np.ndarray:
        """`s` for each output."""
        return self._probed().scale

    def log_likelihood(self) -> tuple[np.ndarray, float]:
        """The log marginal likelihood of each output, and the standard error of its random part.

        Returns
        -------
        values : ndarray of shape (k,)
        error : float
        """
        determinant, error = self._log_determinant()

        def times(V: np.ndarray) -> np.ndarray:
            return xa.to_numpy(self.op @ xa.like(V, self.op.reference)).astype(np.float64)

        return log_likelihood(self.machine, times, determinant, self.total, self.scale), 0.5 * error

    def _log_determinant(self) -> tuple[float, float]:
        n = self.op.shape[0]
        Q = self.rng.choice(np.array([-1.0, 1.0]), size=(n, _LANCZOS_PROBES)) / n**0.5
        before, beta = np.zeros_like(Q), np.zeros(_LANCZOS_PROBES)
        alphas, betas = [], []
        for _ in range(min(_LANCZOS_STEPS, n)):
            V = xa.to_numpy(self.op @ xa.like(Q, self.op.reference)).astype(np.float64) - beta * before
            alpha = np.sum(Q * V, axis=0)
            V -= alpha * Q
            beta = np.linalg.norm(V, axis=0)
            alphas.append(alpha)
            betas.append(beta)
            before, Q = Q, V / np.maximum(beta, np.finfo(np.float64).tiny)
        traces = [_quadrature(np.array(alphas)[:, p], np.array(betas)[:-1, p]) for p in range(_LANCZOS_PROBES)]
        return n * float(np.mean(traces)), n * float(np.std(traces, ddof=1)) / _LANCZOS_PROBES**0.5


@dataclass(frozen=True)
class _Known:
    """What random signs say of the process."""

    u: np.ndarray
    inverse_diagonal: np.ndarray
    left_out: LeftOut
    scale: np.ndarray

    @classmethod
    def of(cls, machine: Machine, diagonal: np.ndarray, u: np.ndarray) -> _Known:
        if machine.fit_intercept:
            diagonal = diagonal - u**2 / u.sum()
        whole = LeftOut.from_solution(machine.coef, diagonal, machine.ridge, machine.weights)
        left_out = LeftOut(whole.residuals, np.zeros_like(whole.changes), whole.weights)
        return cls(u, diagonal, left_out, process_scale(machine.coef, diagonal, machine.weights))


class _Forms:
    """The forms `b^T A^-1 b` of all columns `b` while conjugate gradients run, and what they still lack.

    It stands in the preconditioner's place and sees every residual.
    """

    def __init__(self, columns: Array, op: KernelOperator, preconditioner: NystromPreconditioner | None):
        self.columns = xa.astype(columns, np.float64)
        self.preconditioner = preconditioner
        ridge = float(xa.to_numpy(op.ridge).min())
        # Without a preconditioner r^T r is measured, and A is at least the ridge.
        self.most = 1.0 / ridge if preconditioner is None else 1.0 + preconditioner.damping / ridge
        self.seen: list[np.ndarray] = []
        self.values = np.zeros(columns.shape[1])
        self.to_come = np.full(columns.shape[1], np.inf)
        self._updates = 0

    def __matmul__(self, R: Array) -> Array:
        step = R + 0 if self.preconditioner is None else self.preconditioner @ R
        self.seen.append(np.maximum(_column_sums(xa.astype(R, np.float64), step), 0.0))
        return step

    def update(self, W: Array) -> None:
        """Take notice of an iterate, whose residual the preconditioner has just seen."""
        before, self.values = self.values, _column_sums(self.columns, W)
        self._updates += 1
        if len(self.seen) <= self._updates:  # the last residual was too small to go on from
            self.to_come = np.zeros_like(self.values)
            return
        earlier, now = self.seen[-2:]
        self.to_come = now * self.most
        if self._updates > 1:  # the first change is from nothing: it says little of how fast the others fall
            ratio = np.divide(now, earlier, out=np.ones_like(now), where=earlier > 0)
            rest = np.abs(self.values - before) * np.divide(
                ratio, 1.0 - ratio, out=np.full_like(ratio, np.inf), where=ratio < 1
            )
            self.to_come = np.fmin(self.to_come, rest)


def _column_sums(A: Array, B: Array) -> np.ndarray:
    """The diagonal of `A^T B`, for `A` in float64."""
    return xa.to_numpy(xa.namespace(A).sum(A * B, axis=0))


def _plan(n: int, d: int, dtype: Any, machine: Machine, budget: int) -> tuple[Plan, int]:
    """How new rows are solved for within the budget, and how many at once."""

    def planned(columns: int, n_landmarks: int | str = "auto") -> Plan:
        s = sizes(n, d, columns + N_PROBES, dtype, machine.device, machine.kernel)
        return make_plan(s, "cg", budget, n_landmarks=n_landmarks)

    at_once = _NEW_ROWS
    while True:
        try:
            plain = planned(at_once)
            break
        except MemoryError:
            at_once //= 2
            if at_once < _FEWEST_NEW_ROWS:
                raise
    # A product is 2 n^2 at_once operations in single precision; n m^2 in double, half as many at half the rate, build it.
    balanced = planned(at_once, min(n // 2, int((n * at_once) ** 0.5)))
    fits = balanced.cached == plain.cached and balanced.memory.nbytes <= budget
    return (balanced if fits else plain), at_once


def _quadrature(diagonal: np.ndarray, off_diagonal: np.ndarray) -> float:
    """`e_1^T log(T) e_1` of a tridiagonal matrix."""
    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return float(vectors[0] ** 2 @ np.log(np.maximum(values, np.finfo(np.float64).tiny)))
