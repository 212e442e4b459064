"""Randomised block matching pursuit: let one random block of columns explain what is left of the targets.

    Q = (A_s^T A_s)^-1 A_s^T R,   W_s <- W_s + Q,   R <- R - A_s Q

with the `n x b` block `A_s` of columns. The residual `R = Z - A W` never grows, whatever the blocks. It is least squares by
block coordinates; for a symmetric matrix it reads the same rows as Kaczmarz, which works in the space of `W` where this one
works in the space of the residual: O(b n d + b^2 n) time for a kernel of d features, b n numbers.

References: Mallat and Zhang 1993; Andrecut 2016, eqs. (56)-(60).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, Status, Step
from gramless.linalg.solvers.block_gram import BlockGrams
from gramless.linalg.solvers.block_rows import BlockRows, end_of_pass
from gramless.linalg.solvers.momentum import Directions, column_dots

# After this many restarts from a true residual without halving it, the arithmetic has no more digits to give.
_STALLED_RESTARTS = 2


class MatchingPursuit(Solver):
    """Randomised block matching pursuit, for symmetric matrices.

    Parameters
    ----------
    block_size : int, default=2000
        Columns in a block. Larger blocks need fewer steps, and each costs more.
    tol : float, default=1e-4
        Stop when the true relative residual is at most this, or when the changes of `W` over one pass of the blocks
        together are, relative to `W`, and the residual is at most the root of this. A solution that stands still at a larger
        residual has not converged.
    max_iter : int, default=200
        Limit on blocks.
    reuse_blocks : bool, default=False
        Cut the columns into blocks once and keep their factored Gram matrices (b^2 numbers each). A step then costs 0.6 of
        what it did where the matrix is computed and 0.4 where it is cached (8,000 rows, blocks of 800). It takes more
        steps: with 20 blocks of 5,000 digits, 100 steps bring the residual to 0.156 instead of 0.118.
    momentum : int, default=0
        Past steps whose directions improve the next one; the residual after each step is at most what it would be
        without. With 10 the same residuals took a quarter fewer steps (0.113 after 80), with 30 and `reuse_blocks`
        as many as the plain method without reuse. Each costs two matrices of the size of `W` and 1 % of a step.

    See Also
    --------
    Kaczmarz : The same rows of a symmetric matrix, in the space of the solution.
    KaczmarzMP : Both steps on each block.

    References
    ----------
    Mallat and Zhang, "Matching pursuits with time-frequency dictionaries", 1993.

    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (56)-(60).

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import MatchingPursuit, solve
    >>> A = np.diag(np.arange(1.0, 7.0)) + 1.0
    >>> result = solve(DenseOperator(A), A @ np.ones((6, 1)), MatchingPursuit(block_size=2, tol=1e-8), random_state=0)
    >>> result.converged, bool(np.allclose(result.W, 1.0))
    (True, True)
    """

    requires = ("rows",)

    def __init__(
        self,
        block_size: int = 2000,
        *,
        tol: float = 1e-4,
        max_iter: int = 200,
        reuse_blocks: bool = False,
        momentum: int = 0,
    ):
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.reuse_blocks = reuse_blocks
        self.momentum = momentum

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        blocks = BlockRows(op, self.block_size, rng, reuse=self.reuse_blocks, state=state)
        grams, directions = BlockGrams(self.reuse_blocks), Directions(self.momentum, state)
        z_norm = xa.norm(Z) or 1.0
        if state:
            R, moved, best_true, stalled = state["R"], state["moved"], state["best_true"], state["stalled"]
        else:
            R = Z - op @ W if xa.norm(W) else Z + 0
            moved, best_true, stalled = 0.0, np.inf, 0
        while stalled < _STALLED_RESTARTS:
            number, idx, A = blocks.next()
            gram = grams.of(number, A)
            Q = gram.solve(A @ R)
            coefficients = xa.zeros(tuple(W.shape), W)
            coefficients[xa.indices(idx, W)] = Q
            # Without jitter and momentum the length along the direction would be that of Q; found anew, it makes the
            # residual smaller or leaves it whatever the rounding of the Gram matrix.
            direction, change = directions.add(A.T @ Q, coefficients)
            length = column_dots(direction, R)
            R = R - direction * length
            change = change * length
            W = W + change
            residual, size = xa.norm(R) / z_norm, xa.norm(change)
            moved += size**2
            status = None
            if residual <= self.tol:
                # The recurrence drifts in float32: the true residual decides, and is where a next step would start.
                R = Z - op @ W
                directions.drop()
                residual = xa.norm(R) / z_norm
                status = Status.CONVERGED if residual <= self.tol else None
                stalled = stalled + 1 if residual > 0.5 * best_true else 0
                best_true = min(best_true, residual)
            if blocks.pass_ends:
                status = status or end_of_pass(self.tol, residual, moved**0.5 / (xa.norm(W) or 1.0))
                moved = 0.0
            numbers = {"moved": moved, "best_true": float(best_true), "stalled": stalled}
            yield Step(
                W,
                residual,
                status=status,
                state={**blocks.state(), **directions.state(), **numbers, "R": R},
                info={"change": size / (xa.norm(W) or 1.0), "jitter": gram.jitter},
            )
