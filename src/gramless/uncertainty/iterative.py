"""The Gaussian process of a machine with too many rows for a factorisation.

    k(x)^T A^-1 k(x)  ->  k(x)^T v_j,     v_j the j-th iterate of conjugate gradients for A v = k(x)

grows with every iteration towards the exact value, so the variance falls towards its own. What is still to come is estimated
from the last changes, as the rest of a geometric series, and the iterations end when it is at most `tol` of every variance.
All new rows of a batch are solved at once. A product with so many columns is dear, so the preconditioner has more landmarks
than that of a fit: as many as cost about as much as one product.

The leave-one-out residuals come from an estimate of the diagonal of the inverse by random signs; with so many rows, leaving
one out moves no other prediction, and the interval is that of the plain jackknife. The log determinant comes from Lanczos'
method on random signs:

    log det A = E n sum_j tau_j^2 log theta_j,     theta, tau eigenvalues and first components of tridiagonal matrices

Cost: O(n^2 (d + m)) an iteration where the matrix is streamed, for a batch of m new rows; a handful of iterations.

References
----------
Gardner, Pleiss, Bindel, Weinberger, Wilson, "GPyTorch: blackbox matrix-matrix Gaussian process inference", 2018.
Ubaru, Chen, Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from sklearn.utils import check_random_state

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import slices
from gramless.calibration.leave_one_out import estimated_diagonal, planned_preconditioner
from gramless.operators import evaluate
from gramless.planning.plan import Plan, make_plan, sizes
from gramless.solvers import CG, solve
from gramless.uncertainty.jackknife import LeftOut
from gramless.uncertainty.posterior import Batch, Machine, log_likelihood, process_scale

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
        diagonal, self.u = estimated_diagonal(self.op, self.preconditioner, self.rng)
        self.total = float(self.u.sum())
        self.inverse_diagonal = diagonal - self.u**2 / self.total if machine.fit_intercept else diagonal
        whole = LeftOut.from_solution(machine.coef, self.inverse_diagonal, machine.ridge, machine.weights)
        self.left_out = LeftOut(whole.residuals, np.zeros_like(whole.changes), whole.weights)
        self.scale = process_scale(machine.coef, self.inverse_diagonal, machine.weights)

    def batches(self, X: Array) -> Iterator[Batch]:
        """Means and variances of new rows, some at a time; no smoothing weights.

        Parameters
        ----------
        X : array of shape (m, d)
            Where the machine is, in its dtype.

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
            variances = prior - self._explained(K, values, prior)
            if machine.fit_intercept:
                variances += (1.0 - self.u @ values) ** 2 / self.total
            means = values.T @ machine.coef.astype(np.float64) + machine.intercept
            yield Batch(rows, means, np.maximum(variances, 0.0), np.zeros((means.shape[0], n)))

    def _explained(self, K: Array, values: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """`k(x)^T A^-1 k(x)` for each new row."""
        last, changes = np.zeros(len(prior)), []

        def settled(W: Array, record: dict[str, Any]) -> bool:
            nonlocal last
            now = np.sum(values * xa.to_numpy(W), axis=0)
            changes.append(np.abs(now - last))
            last = now
            if len(changes) < 3:  # the first change is from nothing: it says little of how fast the others fall
                return False
            before, change = changes[-2:]
            ratio = np.divide(change, before, out=np.zeros_like(change), where=before > 0)
            to_come = change * ratio / np.maximum(1.0 - ratio, 1e-12)
            return bool(np.all((ratio < 1) & (to_come <= self.tol * np.maximum(prior - now, 1e-6 * prior))))

        solver = CG(tol=1e-6, preconditioner=self.preconditioner)
        W = solve(self.op, K, solver, callback=settled, random_state=self.rng).W
        return np.sum(values * xa.to_numpy(W), axis=0)

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


def _plan(n: int, d: int, dtype: Any, machine: Machine, budget: int) -> tuple[Plan, int]:
    """How new rows are solved for within the budget, and how many at once."""

    def planned(columns: int, n_landmarks: int | str = "auto") -> Plan:
        s = sizes(n, d, columns, dtype, machine.device, machine.kernel)
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
    # m^2 n operations in double precision take as long as a product, n^2 at_once in single precision, where m is this.
    wide = planned(at_once, min(n // 2, int((n * at_once / 2) ** 0.5)))
    worthwhile = wide.n_landmarks > plain.n_landmarks and wide.cached == plain.cached and wide.memory.nbytes <= budget
    return (wide if worthwhile else plain), at_once


def _quadrature(diagonal: np.ndarray, off_diagonal: np.ndarray) -> float:
    """`e_1^T log(T) e_1` of a tridiagonal matrix."""
    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return float(vectors[0] ** 2 @ np.log(np.maximum(values, np.finfo(np.float64).tiny)))
