"""Kaczmarz and matching pursuit on the same block: two projections for one block of rows and one factorisation.

    W <- W + A_s^T (A_s A_s^T)^-1 (Z_s - A_s W)                    (Kaczmarz)
    Q = (A_s A_s^T)^-1 A_s R,  W_s <- W_s + Q,  R <- R - A_s^T Q   (matching pursuit)

for a symmetric matrix, whose columns are its rows. `R` is the residual of the pursuit alone and does not include the
projections. Setting it to `Z - A W` after each Kaczmarz step diverges, because one step reduces the distance in the space of
`W` and the other in the space of the residual. With its own residual the increments of the pursuit tend to zero, and the
projections, which converge from any starting point, see them as a change of that point. The matrix products are those of
either method alone.

Reference: Andrecut 2016, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import State, Step
from gramless.linalg.solvers.block_rows import BlockRows, BlockSolver


class KaczmarzMP(BlockSolver):
    """Hybrid of randomised block Kaczmarz and matching pursuit, for symmetric matrices.

    Parameters
    ----------
    block_size : int, default=2000
        Number of equations in a block. Larger blocks need fewer, more expensive steps.
    tol : float, default=1e-4
        Tolerance at which the solver stops. It is compared, over one pass of the rows, with the relative residual of the
        blocks before their own updates, and with the change of `W` relative to `W` if the residual is below `sqrt(tol)`. A
        solution that no longer changes at a larger residual has not converged.
    max_iter : int, default=200
        Maximum number of solver iterations. One iteration reads one block.
    reuse_blocks : bool, default=False
        Whether to split the rows into blocks once and cache the factored Gram matrices (b^2 numbers each).

    References
    ----------
    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, section 3.4.
    """

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        blocks = BlockRows(op, self.block_size, rng, reuse=self.reuse_blocks, state=state)
        z_norm = xa.norm(Z) or 1.0
        if state:
            R = state["R"]
        else:
            R = Z - op @ W if xa.norm(W) else Z + 0
        while True:
            idx, A, gram = blocks.next()
            before = W
            block_residual = xa.take_rows(Z, idx) - A @ W
            # Both right-hand sides together: each product reads the block from memory once.
            k = Z.shape[1]
            both = gram.solve(xa.namespace(W).concat([block_residual, A @ R], axis=1))
            moves = A.T @ both
            W = W + moves[:, :k]
            W[xa.indices(idx, W)] += both[:, k:]
            R = R - moves[:, k:]
            residual = xa.norm(block_residual) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            change = xa.norm(W - before)
            status = blocks.end_block(residual, change, W, self.tol)
            yield Step(
                W,
                residual,
                status=status,
                state={**blocks.state(), "R": R},
                info={
                    "change": change / (xa.norm(W) or 1.0),
                    "pursuit_residual": xa.norm(R) / z_norm,
                    "jitter": gram.jitter,
                },
            )
