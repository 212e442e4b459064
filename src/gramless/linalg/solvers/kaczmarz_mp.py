"""Kaczmarz and matching pursuit on the same block: two projections for one block of rows and one factorisation.

    W <- W + A_s^T (A_s A_s^T)^-1 (Z_s - A_s W)                    (Kaczmarz)
    Q = (A_s A_s^T)^-1 A_s R,  W_s <- W_s + Q,  R <- R - A_s^T Q   (matching pursuit)

for a symmetric matrix, whose columns are its rows. `R` is the pursuit's own residual: it knows the pursuit's increments and
not the projections. Setting it to `Z - A W` after each Kaczmarz step diverges, because one step shortens the distance in the
space of `W` and the other in the space of the residual; with its own residual the pursuit's increments die out and what
they add is seen, as a change of the starting point, by projections that converge from anywhere. Costs the same matrix
products as either method alone.

Reference: Andrecut 2016, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, Step
from gramless.linalg.solvers.block_gram import BlockGrams
from gramless.linalg.solvers.block_rows import BlockRows, end_of_pass


class KaczmarzMP(Solver):
    """The hybrid of randomised block Kaczmarz and matching pursuit, for symmetric matrices.

    Parameters
    ----------
    block_size : int, default=2000
        Equations in a block. Larger blocks need fewer steps, and each costs more.
    tol : float, default=1e-4
        Stop when, over one pass of the rows, the relative residual of the blocks before their own updates is at most this,
        or the changes of `W` together are, relative to `W`, and the residual is at most the root of this. A solution that
        stands still at a larger residual has not converged.
    max_iter : int, default=200
        Limit on blocks.
    reuse_blocks : bool, default=False
        Cut the rows into blocks once and keep their factored Gram matrices; see `Kaczmarz`.

    See Also
    --------
    Kaczmarz : The first of the two steps alone.
    MatchingPursuit : The second one alone.

    References
    ----------
    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, section 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import KaczmarzMP, solve
    >>> A = np.diag(np.arange(1.0, 7.0)) + 1.0
    >>> result = solve(DenseOperator(A), A @ np.ones((6, 1)), KaczmarzMP(block_size=2, tol=1e-8), random_state=0)
    >>> result.converged, bool(np.allclose(result.W, 1.0))
    (True, True)
    """

    requires = ("rows",)

    def __init__(self, block_size: int = 2000, *, tol: float = 1e-4, max_iter: int = 200, reuse_blocks: bool = False):
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.reuse_blocks = reuse_blocks

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        blocks = BlockRows(op, self.block_size, rng, reuse=self.reuse_blocks, state=state)
        grams = BlockGrams(self.reuse_blocks)
        z_norm = xa.norm(Z) or 1.0
        if state:
            R, left, moved = state["R"], state["left"], state["moved"]
        else:
            R, left, moved = (Z - op @ W if xa.norm(W) else Z + 0), 0.0, 0.0
        while True:
            number, idx, A = blocks.next()
            gram = grams.of(number, A)
            before = W
            here = xa.take_rows(Z, idx) - A @ W
            # Both right-hand sides at once: each product reads the block from memory a single time.
            k = Z.shape[1]
            both = gram.solve(xa.namespace(W).concat([here, A @ R], axis=1))
            moves = A.T @ both
            W = W + moves[:, :k]
            W[xa.indices(idx, W)] += both[:, k:]
            R = R - moves[:, k:]
            residual = xa.norm(here) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            change = xa.norm(W - before)
            left, moved = left + residual**2 / blocks.n_blocks, moved + change**2
            status = None
            if blocks.pass_ends:
                status = end_of_pass(self.tol, left**0.5, moved**0.5 / (xa.norm(W) or 1.0))
                left = moved = 0.0
            yield Step(
                W,
                residual,
                status=status,
                state={**blocks.state(), "R": R, "left": left, "moved": moved},
                info={
                    "change": change / (xa.norm(W) or 1.0),
                    "pursuit_residual": xa.norm(R) / z_norm,
                    "jitter": gram.jitter,
                },
            )
