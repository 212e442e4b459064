"""Accelerated approximate sketch-and-project: block coordinate descent with a preconditioned block solve and momentum.

Each step draws a block `B` of `b` rows, computes their residual at the extrapolated point `U`, solves the block
approximately with the Nyström preconditioner `P_B` of the diagonal block, and combines three sequences as Nesterov does:

    D = P_B^-1 (A[B] U - Z[B]) / L
    W = U - I_B D,    V = q V + (1 - q) U - g I_B D,    U = a V + (1 - a) W

with `q = 1 - sqrt(mu / nu)`, `g = 1 / sqrt(mu nu)`, `a = 1 / (1 + g nu)`, `nu = n / b`, `mu` the ratio of smallest to
largest curvature, and `L` the largest eigenvalue of the preconditioned block, from power iterations (Rathore, Frangella,
Udell 2024). A step takes O(b n d) time on a streamed matrix, and no `n^2` memory. The method is for matrices so large that
even one product takes too long: a step costs only the fraction `b / n` of a product.

The residuals of new blocks estimate the full residual. If the running mean of these residuals rises, the sequences restart
with a larger `mu` and so with less momentum; without momentum each step is a descent step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE_INTEGER
from gramless.kernels.precomputed import Precomputed
from gramless.linalg.operators.base import Operator
from gramless.linalg.operators.nystrom import LocalColumns, NystromPreconditioner
from gramless.linalg.solvers.base import NON_NEGATIVE, Solver, State, Status, Step
from gramless.linalg.tuning import TUNING


def default_block_size(n: int) -> int:
    """Return the default number of rows in a block of a system with `n` rows."""
    return max(256, n // 60)


class SketchProject(Solver):
    """Accelerated block coordinate descent for kernel systems.

    Parameters
    ----------
    tol : float, default=1e-2
        Tolerance at which the solver stops. It is the smoothed relative residual of new blocks.
    max_iter : int, default=5000
        Maximum number of solver iterations. `n / block_size` iterations read the matrix once.
    block_size : int or None, default=None
        Number of rows in a block; None is `n / 60`, at least 256.
    rank : int or None, default=None
        Number of landmarks of the preconditioner of each block; None is `block_size / 16`, at least `sqrt(10 * block_size)`.
    momentum : bool, default=True
        Whether the steps are extrapolated as in Nesterov's method.

    References
    ----------
    Rathore, Frangella and Udell, "Have ASkotch: a neat solution for large-scale kernel ridge regression", 2024.
    """

    _parameter_constraints = {
        "tol": [NON_NEGATIVE],
        "max_iter": [POSITIVE_INTEGER],
        "block_size": [POSITIVE_INTEGER, None],
        "rank": [POSITIVE_INTEGER, None],
        "momentum": ["boolean"],
    }
    requires = ("spd", "rows_times", "diagonal_block")

    def __init__(
        self,
        *,
        tol: float = 1e-2,
        max_iter: int = 5000,
        block_size: int | None = None,
        rank: int | None = None,
        momentum: bool = True,
    ):
        self.tol = tol
        self.max_iter = max_iter
        self.block_size = block_size
        self.rank = rank
        self.momentum = momentum

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        n = op.shape[0]
        b = min(n, default_block_size(n) if self.block_size is None else self.block_size)
        scale = np.sqrt(b / n) * (xa.norm(Z) or 1.0)
        state = state or {}
        V, U = state.get("V", W + 0), state.get("U", W + 0)
        mu, smooth, best = state.get("mu", 0.0), state.get("smooth", 0.0), state.get("best", np.inf)
        count, past = int(state.get("count", 0)), TUNING.residual_smoothing
        while True:
            block = _draw(n, b, rng)
            residual, direction, stiffness = self._block_step(op, Z, U, block, rng)
            residual /= scale
            count += 1
            smooth = past * smooth + (1 - past) * residual
            estimate = smooth / (1 - past**count)
            if not mu:
                mu = min(1.0, stiffness)
            if estimate > TUNING.residual_rise * best or not np.isfinite(estimate):
                # The sequences overshot: no momentum in this step, and less momentum in later ones.
                mu, V, U = min(1.0, 4 * mu), W + 0, W + 0
                smooth, count, best = 0.0, 0, np.inf
                _, direction, _ = self._block_step(op, Z, U, block, rng)
            elif count > 1 / (1 - past):
                best = min(best, estimate)
            W, V, U = self._combine(W, V, U, xa.indices(block, W), direction, mu, n / b)
            converged = count > 1 / (1 - past) and estimate <= self.tol
            yield Step(
                W,
                estimate,
                status=Status.CONVERGED if converged else None,
                state={"V": V, "U": U, "mu": mu, "smooth": smooth, "best": float(best), "count": count},
                info={"mu": mu},
            )
            if converged:
                return

    def _combine(
        self, W: Array, V: Array, U: Array, at: Any, direction: Array, mu: float, nu: float
    ) -> tuple[Array, Array, Array]:
        W = U + 0
        W[at] -= direction
        if not self.momentum:
            return W, W, W
        # Python numbers, because NumPy scalars would convert float32 sequences to float64.
        q, g = 1 - float(np.sqrt(mu / nu)), 1 / float(np.sqrt(mu * nu))
        a = 1 / (1 + g * nu)
        V = q * V + (1 - q) * U
        V[at] -= g * direction
        return W, V, a * V + (1 - a) * W

    def _block_step(
        self, op: Operator, Z: Array, U: Array, block: np.ndarray, rng: np.random.RandomState
    ) -> tuple[float, Array, float]:
        """Return the norm of the block's residual at `U`, the step `D`, and the ratio of smallest to largest curvature."""
        b, R, A = len(block), op.rows_times(block, U) - xa.take_rows(Z, block), op.diagonal_block(block)
        # At most half of the block's rows are landmarks, because the others determine the damping, which includes the ridge.
        rank = min(max(1, b // 2), self.rank or max(b // 16, int(np.sqrt(10 * b)) + 1))
        columns = LocalColumns(A, Precomputed(), np.sort(rng.permutation(b)[:rank]))
        P = NystromPreconditioner(columns, xa.zeros((b,), A), rng=rng)
        v = xa.like(rng.standard_normal((b, 1)), R)
        largest = 1.0
        for _ in range(TUNING.power_iterations):
            v = v / xa.norm(v)
            v = P @ (A @ v)
            largest = xa.norm(v)
        floor = (float(op.ridge.min()) if "ridge" in op.capabilities else 0.0) or TUNING.curvature_floor * P.damping
        scale = TUNING.power_safety * largest
        return xa.norm(R), (P @ R) / scale, floor / (floor + P.damping) / scale


def _draw(n: int, b: int, rng: np.random.RandomState) -> np.ndarray:
    """Return `b` of `n` sorted row numbers, drawn without replacement.

    Permuting a million numbers takes 30 ms, a third of a GPU step: up to n / 4 rows are drawn by rejecting duplicates.
    """
    if 4 * b <= n:
        drawn = rng.randint(n, size=2 * b)
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= b:
            return np.sort(drawn[np.sort(first)[:b]])
    return np.sort(rng.permutation(n)[:b])
