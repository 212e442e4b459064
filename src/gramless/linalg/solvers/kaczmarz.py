"""Randomised block Kaczmarz: project on the solutions of one random block of equations at a time.

    W <- W + A_s^T (A_s A_s^T)^-1 (Z_s - A_s W)

The distance to the solution never grows, whatever the blocks, and shrinks by a constant factor in the mean; for single rows
drawn with probability proportional to their squared norm the factor for each step is 1 - 1 / (||A||_F ||A^-1||)^2. One step
reads b rows and holds them: O(b n d + b^2 n) time for a kernel of d features, b n numbers.

References: Strohmer and Vershynin 2009; Andrecut 2016, eqs. (31)-(47).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, Step
from gramless.linalg.solvers.block_gram import BlockGrams
from gramless.linalg.solvers.block_rows import BlockRows, check_block_size, end_of_pass
from gramless.linalg.solvers.momentum import column_dots

_NORMS_AT_ONCE = 512


class Kaczmarz(Solver):
    """Randomised Kaczmarz projections, by blocks or by single rows.

    Parameters
    ----------
    block_size : int, default=2000
        Equations in a block; 1 is the classical method. Larger blocks need fewer steps, and each costs more.
    sampling : {"uniform", "norm"}, default="uniform"
        Rows from a random permutation, reshuffled when it is used up, or (single rows only) drawn with probability
        proportional to their squared norm, which costs one pass over the matrix beforehand.
    tol : float, default=1e-4
        Stop when, over one pass of the rows, the relative residual of the blocks before their own updates is at most this,
        or the changes of `W` together are, relative to `W`, and the residual is at most the root of this. A solution that
        stands still at a larger residual has not converged.
    max_iter : int, default=200
        Limit on blocks.
    reuse_blocks : bool, default=False
        Cut the rows into blocks once and keep their factored Gram matrices (b^2 numbers each). A step then costs 0.6 of
        what it did where rows are computed and 0.4 where they come from a cached matrix (8,000 rows, blocks of 800). It
        takes more steps: with 20 blocks of 5,000 digits, 120 steps leave a residual of 0.21 instead of 0.16.

    See Also
    --------
    MatchingPursuit : The same rows of a symmetric matrix, in the space of the residual.
    KaczmarzMP : Both steps on each block.

    Notes
    -----
    There is no momentum here. A heavy ball of 0.2 gained nothing on the same digits, one of 0.6 diverged; the best
    coefficients can be had without knowing the solution, but only by trusting inner products from earlier steps, whose
    rounding they enlarge from step to step. `MatchingPursuit`, which can measure them, has it.

    References
    ----------
    Strohmer and Vershynin, "A randomized Kaczmarz algorithm with exponential convergence", 2009.

    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (31)-(47).

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import Kaczmarz, solve
    >>> A = np.diag(np.arange(1.0, 7.0)) + 1.0
    >>> result = solve(DenseOperator(A), A @ np.ones((6, 1)), Kaczmarz(block_size=2, tol=1e-8), random_state=0)
    >>> result.converged, bool(np.allclose(result.W, 1.0))
    (True, True)
    """

    requires = ("rows",)

    def __init__(
        self,
        block_size: int = 2000,
        *,
        sampling: str = "uniform",
        tol: float = 1e-4,
        max_iter: int = 200,
        reuse_blocks: bool = False,
    ):
        self.block_size = block_size
        self.sampling = sampling
        self.tol = tol
        self.max_iter = max_iter
        self.reuse_blocks = reuse_blocks

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        blocks = BlockRows(
            op, self.block_size, rng, reuse=self.reuse_blocks, probabilities=self._probabilities(op), state=state
        )
        grams = BlockGrams(self.reuse_blocks)
        xp, z_norm = xa.namespace(W), xa.norm(Z) or 1.0
        left, moved = (state["left"], state["moved"]) if state else (0.0, 0.0)
        while True:
            number, idx, A = blocks.next()
            gram = grams.of(number, A)
            R = xa.take_rows(Z, idx) - A @ W
            Y = gram.solve(R)
            D = A.T @ Y
            # <W* - W, D> is known without knowing W*, because A (W* - W) = R: the step has its exact length even where
            # the jitter made D fall short of the projection.
            long = column_dots(D, D)
            step = D * (column_dots(Y, R) / xp.where(long > 0, long, xp.ones_like(long)))
            W = W + step
            # R predates its own update: a free estimate where a true residual would cost a pass.
            residual = xa.norm(R) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            change = xa.norm(step)
            left, moved = left + residual**2 / blocks.n_blocks, moved + change**2
            status = None
            if blocks.pass_ends:
                # The squared changes of a pass add up to what the squared distance to the solution lost in it.
                status = end_of_pass(self.tol, left**0.5, moved**0.5 / (xa.norm(W) or 1.0))
                left = moved = 0.0
            yield Step(
                W,
                residual,
                status=status,
                state={**blocks.state(), "left": left, "moved": moved},
                info={"change": change / (xa.norm(W) or 1.0), "jitter": gram.jitter},
            )

    def _probabilities(self, op: Operator) -> np.ndarray | None:
        if self.sampling == "uniform":
            return None
        if self.sampling != "norm":
            raise ValueError(f"sampling must be 'uniform' or 'norm', got {self.sampling!r}")
        if check_block_size(self.block_size) != 1 or self.reuse_blocks:
            raise ValueError("sampling='norm' draws single rows: it needs block_size=1 and reuse_blocks=False")
        squares = np.empty(op.shape[0])
        for part in slices(op.shape[0], _NORMS_AT_ONCE):
            squares[part] = xa.to_numpy(xa.square_norms(op.rows(np.arange(part.start, part.stop))))
        return np.asarray(squares / squares.sum())
