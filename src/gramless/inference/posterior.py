"""The Gaussian process that a least-squares machine is.

Least squares with kernel `K` and ridge `1 / C` is the posterior mean of a Gaussian process with covariance `s K`, noise
`s / (C w_i)` and, with an intercept, a constant of unknown size. With `A = K + diag(1 / (C w))`, `u = A^-1 1`, `t = sum u`:

    var f(x) / s = k(x, x) - k(x)^T A^-1 k(x) + (1 - u^T k(x))^2 / t          (the last term with an intercept only)
    h(x)         = A^-1 k(x) + (1 - u^T k(x)) u / t                           smoothing weights: f(x) = sum_i h_i(x) y_i
    r_i          = a_i / p_i,  p = diag(A^-1) - u^2 / t                  leave-one-out residuals, of variance s / p_i

so `s`, the mean of `r_i^2 p_i`, makes the leave-one-out residuals as large as the process says. The likelihood is

    log p(y) = -1/2 (a^T y / s + log det A + n log(2 pi s))

and with an intercept the restricted one: `n - 1` for `n`, and `log t` more. Everything is in float64.

`ExactPosterior` holds the Cholesky factor: O(n^3) once, O(n^2) for each new row, 8 n^2 bytes; `uncertainty.iterative` is for
more rows than that.

References
----------
Rasmussen, Williams, "Gaussian processes for machine learning", 2006, sections 2.2, 2.7 and 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate
from gramless._core.threads import slices
from gramless.inference.jackknife import LeftOut
from gramless.kernels.base import Kernel
from gramless.linalg.operators import KernelOperator, evaluate

# Entries of a batch's matrices, of new rows by training rows: 64 MB each.
_ENTRIES_AT_A_TIME = 1 << 23


@dataclass(frozen=True)
class Machine:
    """A fitted least-squares machine, as far as its process is concerned.

    Attributes
    ----------
    kernel : Kernel
    points : array of shape (n, d)
        The rows it was fitted on.
    coef : ndarray of shape (n, k)
    intercept : ndarray of shape (k,)
    ridge : float
        `1 / C`.
    weights : ndarray of shape (n,) or None
    fit_intercept : bool
    device : str
    """

    kernel: Kernel
    points: Array
    coef: np.ndarray
    intercept: np.ndarray
    ridge: float
    weights: np.ndarray | None = None
    fit_intercept: bool = True
    device: str = "cpu"

    def operator(self, dtype: Any = np.float64, **settings: Any) -> KernelOperator:
        """The matrix `A` of the machine.

        Parameters
        ----------
        dtype : dtype, default=float64
        **settings
            Of `KernelOperator`.

        Returns
        -------
        KernelOperator
        """
        ridge = self.ridge if self.weights is None else self.ridge / self.weights
        return KernelOperator(xa.to_device(self.points, self.device, dtype), self.kernel, ridge, **settings)


@dataclass(frozen=True)
class Batch:
    """What the process says of some new rows."""

    rows: slice
    means: np.ndarray
    """Shape (m, k)."""
    variances: np.ndarray
    """Of the function, divided by `s`; shape (m,)."""
    weights: np.ndarray
    """Smoothing weights of the rows that `left_out` speaks of; shape (m, number of those rows)."""


class ExactPosterior:
    """The process by one Cholesky factorisation.

    Parameters
    ----------
    machine : Machine
    """

    exact = True

    def __init__(self, machine: Machine):
        self.machine = machine
        op = machine.operator()
        self.points = op.X
        self.factor = xa.cholesky_(op.dense(np.float64))
        n = int(self.factor.shape[0])
        inverse = xa.invert_lower_(xa.lower_triangle(self.factor + 0.0))
        diagonal = xa.to_numpy(xa.square_norms(inverse.T))
        del inverse
        self.log_determinant = 2.0 * float(
            np.log(np.abs(xa.to_numpy(xa.namespace(self.factor).linalg.diagonal(self.factor)))).sum()
        )
        self.u = xa.to_numpy(xa.cholesky_solve(self.factor, xa.zeros((n, 1), self.factor) + 1.0))[:, 0]
        self.total = float(self.u.sum())
        if machine.fit_intercept:
            diagonal = diagonal - self.u**2 / self.total
        self.left_out = LeftOut.from_solution(machine.coef, diagonal, machine.ridge, machine.weights)
        self.inverse_diagonal = diagonal
        self.scale = process_scale(machine.coef, diagonal, machine.weights)

    def log_likelihood(self) -> tuple[np.ndarray, float]:
        """The log marginal likelihood of each output, and its standard error: zero, since it is exact.

        Returns
        -------
        values : ndarray of shape (k,)
        error : float
        """
        return log_likelihood(self.machine, self.factor_times, self.log_determinant, self.total, self.scale), 0.0

    def factor_times(self, V: np.ndarray) -> np.ndarray:
        """`A V`, from the factor.

        Parameters
        ----------
        V : ndarray of shape (n, k)

        Returns
        -------
        ndarray of shape (n, k)
        """
        L = xa.namespace(self.factor).tril(self.factor)
        return xa.to_numpy(L @ (L.T @ xa.like(V, L)))

    @staticmethod
    def memory(n: int, d: int, device: str) -> MemoryEstimate:
        """What the factor, its inverse and a batch of new rows take.

        Parameters
        ----------
        n, d : int
        device : str

        Returns
        -------
        MemoryEstimate
        """
        batch = 8 * max(_ENTRIES_AT_A_TIME, n) * 8
        return MemoryEstimate({"factor and inverse": 2 * n * n * 8, "new rows": batch, "points": 2 * n * d * 8}, device)

    def batches(self, X: Array, *, variances: bool = True) -> Iterator[Batch]:
        """Means, variances and smoothing weights of new rows, some at a time.

        Parameters
        ----------
        X : array of shape (m, d)
            Where the machine is, in float64.
        variances : bool, default=True
            Whether they are asked for; here the smoothing weights give them for nothing.

        Yields
        ------
        Batch
        """
        machine = self.machine
        for rows in slices(int(X.shape[0]), max(1, _ENTRIES_AT_A_TIME // len(self.u))):
            some = X[rows]
            K = evaluate(machine.kernel, some, self.points)
            half = xa.solve_triangular(self.factor, K.T)
            left = xa.to_numpy(machine.kernel.diag(some)) - xa.to_numpy(xa.square_norms(half.T))
            weights = xa.to_numpy(xa.solve_triangular(self.factor, half, transposed=True).T)
            values = xa.to_numpy(K)
            if machine.fit_intercept:
                missing = 1.0 - values @ self.u
                left = left + missing**2 / self.total
                weights = weights + np.outer(missing, self.u / self.total)
            means = values @ machine.coef.astype(np.float64) + machine.intercept
            yield Batch(rows, means, np.maximum(left, 0.0), weights)


def process_scale(coef: np.ndarray, inverse_diagonal: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """`s` for each output: how much larger the leave-one-out residuals are than those of a process of scale one.

    Parameters
    ----------
    coef : ndarray of shape (n, k)
    inverse_diagonal : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None

    Returns
    -------
    ndarray of shape (k,)
    """
    squares = np.asarray(coef, dtype=np.float64) ** 2 / inverse_diagonal[:, None]
    return np.average(squares, axis=0, weights=weights)


def log_likelihood(
    machine: Machine, times: Callable[[np.ndarray], np.ndarray], log_determinant: float, total: float, scale: np.ndarray
) -> np.ndarray:
    """The (restricted) log marginal likelihood of each output.

    Parameters
    ----------
    machine : Machine
    times : callable
        `V -> A V`.
    log_determinant : float
        Of `A`.
    total : float
        `1^T A^-1 1`.
    scale : ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (k,)
    """
    coef = machine.coef.astype(np.float64)
    fit = np.sum(coef * times(coef), axis=0)  # a^T (y - b) = a^T A a
    n = len(coef) - (1 if machine.fit_intercept else 0)
    lost = np.log(total) if machine.fit_intercept else 0.0
    return -0.5 * (fit / scale + log_determinant + lost + n * np.log(2 * np.pi * scale))
