"""Accelerated approximate sketch-and-project: block coordinate descent with a preconditioned block solve and momentum.

Each step draws a block `B` of `b` rows, measures its equations at the extrapolated point `U`, solves the block
approximately with the Nyström preconditioner of its own diagonal block, and combines three sequences as Nesterov's method
does:

    D = P_B^-1 (A[B] U - Z[B]) / L
    W = U - I_B D,    V = q V + (1 - q) U - g I_B D,    U = a V + (1 - a) W

with `q = 1 - sqrt(mu / nu)`, `g = 1 / sqrt(mu nu)`, `a = 1 / (1 + g nu)`, `nu = n / b`, and `L` the largest eigenvalue of
the preconditioned block, from a few power iterations (Rathore, Frangella, Udell 2024). O(b n d) for each step on a streamed
matrix, no `n^2` memory. It is for matrices of which one product is already too long to wait for: it makes progress after
`b / n` of a product.

Momentum is guarded: the residual of fresh blocks is a free estimate of the whole, and when its running mean rises, the
sequences are restarted with a larger `mu`, which is less momentum; without momentum the step is a descent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.precomputed import Precomputed
from gramless.linalg.operators.base import Operator
from gramless.linalg.operators.landmark_columns import LocalColumns
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers.base import Solver, Status, Step
from gramless.linalg.solvers.block_rows import check_block_size

_POWER_ITERATIONS = 10
# The power method approaches the largest eigenvalue from below.
_SAFETY = 1.2
_SMOOTHING = 0.9
_RISE = 1.5
# Where the operator has no ridge, or does not tell it, the smallest curvature is taken this far below the damping.
_UNKNOWN_FLOOR = 1e-3


def default_block_size(n: int) -> int:
    """Rows in a block of a system of `n`."""
    return max(256, n // 60)


class SketchProject(Solver):
    """Block coordinate descent for kernel systems, with momentum.

    Parameters
    ----------
    tol : float, default=1e-2
        Stop when the smoothed relative residual of fresh blocks is at most this.
    max_iter : int, default=5000
        Steps; `n / block_size` of them read the matrix once.
    block_size : int or None, default=None
        Rows in a block; None is `n / 60`, at least 256.
    rank : int or None, default=None
        Landmarks of each block's preconditioner; None is `b / 16`, at least `sqrt(10 b)`.
    momentum : bool, default=True
        Whether the steps are extrapolated as in Nesterov's method.

    See Also
    --------
    CG : Fewer iterations, each of which reads the whole matrix.

    References
    ----------
    Rathore, Frangella and Udell, "Have ASkotch: a neat solution for large-scale kernel ridge regression", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.linalg.operators import KernelOperator
    >>> from gramless.linalg.solvers import SketchProject, solve
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> op = KernelOperator(X, RBF(gamma=1.0), ridge=0.1)
    >>> result = solve(op, np.ones((400, 1)), SketchProject(tol=1e-3, block_size=100), random_state=0)
    >>> bool(np.linalg.norm(op @ result.W - 1) < 0.01 * 20)
    True
    """

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

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        n = op.shape[0]
        b = min(n, default_block_size(n) if self.block_size is None else check_block_size(self.block_size))
        scale = np.sqrt(b / n) * (xa.norm(Z) or 1.0)
        state = state or {}
        V, U = state.get("V", W + 0), state.get("U", W + 0)
        mu, smooth, best = state.get("mu", 0.0), state.get("smooth", 0.0), state.get("best", np.inf)
        count = int(state.get("count", 0))
        while True:
            block = _draw(n, b, rng)
            R = op.rows_times(block, U) - xa.take_rows(Z, block)
            residual = xa.norm(R) / scale
            count += 1
            smooth = _SMOOTHING * smooth + (1 - _SMOOTHING) * residual
            estimate = smooth / (1 - _SMOOTHING**count)
            direction, stiffness = self._block_step(op, block, R, rng)
            if not mu:
                mu = min(1.0, stiffness)
            if estimate > _RISE * best or not np.isfinite(estimate):
                # The sequences overshot: no momentum in this step, and less of it from here on.
                mu, V, U = min(1.0, 4 * mu), W + 0, W + 0
                smooth, count, best = 0.0, 0, np.inf
                R = op.rows_times(block, U) - xa.take_rows(Z, block)
                direction, _ = self._block_step(op, block, R, rng)
            elif count > 1 / (1 - _SMOOTHING):
                best = min(best, estimate)
            W, V, U = self._combine(W, V, U, xa.indices(block, W), direction, mu, n / b)
            converged = count > 1 / (1 - _SMOOTHING) and estimate <= self.tol
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
        # Python numbers: NumPy scalars would make float32 sequences float64.
        q, g = 1 - float(np.sqrt(mu / nu)), 1 / float(np.sqrt(mu * nu))
        a = 1 / (1 + g * nu)
        V = q * V + (1 - q) * U
        V[at] -= g * direction
        return W, V, a * V + (1 - a) * W

    def _block_step(self, op: Operator, block: np.ndarray, R: Array, rng: np.random.RandomState) -> tuple[Array, float]:
        """The preconditioned, safely scaled step on the block, and its smallest to largest curvature."""
        b = len(block)
        A = op.diagonal_block(block)
        # Half of the block at most: what is left out, ridge included, is what the damping is measured on.
        rank = min(max(1, b // 2), self.rank or max(b // 16, int(np.sqrt(10 * b)) + 1))
        nothing = xa.zeros((b,), A)
        columns = LocalColumns(A, Precomputed(), np.sort(rng.permutation(b)[:rank]))
        P = NystromPreconditioner(columns, nothing, rng=rng)
        v = xa.like(rng.standard_normal((b, 1)), R)
        largest = 1.0
        for _ in range(_POWER_ITERATIONS):
            v = v / xa.norm(v)
            v = P @ (A @ v)
            largest = xa.norm(v)
        floor = (float(op.ridge.min()) if "ridge" in op.capabilities else 0.0) or _UNKNOWN_FLOOR * P.damping
        return (P @ R) / (_SAFETY * largest), floor / (floor + P.damping) / (_SAFETY * largest)


def _draw(n: int, b: int, rng: np.random.RandomState) -> np.ndarray:
    """`b` of `n` rows without replacement, sorted; to permute all of a million takes 30 ms, a third of a step on a GPU."""
    if 4 * b <= n:
        drawn = rng.randint(n, size=2 * b)
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= b:
            return np.sort(drawn[np.sort(first)[:b]])
    return np.sort(rng.permutation(n)[:b])
