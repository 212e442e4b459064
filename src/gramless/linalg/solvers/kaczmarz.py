"""Randomised block projections: Kaczmarz, matching pursuit, and a hybrid of both.

Block Kaczmarz projects on the solutions of one random block of equations at a time:

    W <- W + A_s^T (A_s A_s^T)^-1 (Z_s - A_s W)

The distance to the solution never grows, and shrinks by a constant factor in expectation. If single rows are drawn with
probability proportional to their squared norm, a step multiplies the expected squared distance by at most 1 - 1 / (||A||_F
||A^-1||)^2. A step reads and stores b rows, i.e. b n numbers, and takes O(b n d + b^2 n) time for a kernel of d features.

Block matching pursuit fits the residual by one random block of columns at a time:

    Q = (A_s^T A_s)^-1 A_s^T R,   W_s <- W_s + Q,   R <- R - A_s Q

with the `n x b` block `A_s` of columns. The residual `R = Z - A W` never grows. This is block coordinate descent for least
squares. For a symmetric matrix `A_s^T` is a block of rows, so a step takes the time and memory of a Kaczmarz step, but
projects the residual instead of `W`.

Momentum improves a step of the pursuit by the directions of earlier steps and never increases the residual. A step reduces
`R` along a direction `D` (one for each column). If `R` is orthogonal to the earlier directions `P_1, ..., P_m`, a step along
the part `D'` of `D` that is orthogonal to them minimises `R` over the span of all these directions:

    D' = D - sum_i P_i <P_i, D>,   P = D' / ||D'||,   R <- R - P <P, R>

This is heavy-ball momentum with optimal coefficients; the residual is at most that of the step along `D`. Momentum takes
O(m n k) time for each step and stores 2 m n k numbers.

The hybrid takes a Kaczmarz step and a pursuit step for each block of rows of a symmetric matrix, with one factorisation. Its
pursuit has a residual of its own, without the Kaczmarz projections: with the residual `Z - A W` the hybrid would diverge,
because Kaczmarz steps reduce the distance in the space of `W` and pursuit steps in the space of the residual. With its own
residual, the increments of the pursuit tend to zero. Such increments do not prevent the convergence of the Kaczmarz steps,
which converge from any starting point. A step of the hybrid reads its block as often as a step of either method alone.

References: Strohmer and Vershynin 2009; Mallat and Zhang 1993; Andrecut 2016, eqs. (31)-(60) and section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import State, Status, Step, residual_of
from gramless.linalg.solvers.block_rows import BlockRows, BlockSolver, column_dots
from gramless.linalg.tuning import TUNING


class Kaczmarz(BlockSolver):
    """Randomised Kaczmarz projections, by blocks or by single rows.

    Parameters
    ----------
    block_size : int, default=2000
        Number of equations in a block; 1 is the classical method. Larger blocks need fewer, more expensive steps.
    sampling : {"uniform", "norm"}, default="uniform"
        `"uniform"` reads the rows in random order, shuffled again after each pass. `"norm"`, only for `block_size=1`, draws
        rows with probability proportional to their squared norm, which takes one pass over the matrix beforehand.
    tol : float, default=1e-4
        Tolerance at which the solver stops. It bounds the relative residual of the blocks before their updates, over one
        pass of the rows; if this residual is at most `sqrt(tol)`, it suffices that the relative change of `W` in the pass is
        below `tol`. A solution that no longer changes at a larger residual has not converged.
    max_iter : int, default=200
        Maximum number of solver iterations. One iteration reads one block.
    reuse_blocks : bool, default=False
        Whether to split the rows into blocks once and cache the factored Gram matrices (b^2 numbers each).

    Notes
    -----
    With `reuse_blocks` a step takes 0.6 of the time on a streamed matrix and 0.4 on a cached matrix (8,000 rows, blocks
    of 800), but more steps are needed: for 5,000 digits in 20 blocks, 120 steps leave a residual of 0.21 instead of 0.16.
    Only `MatchingPursuit` has momentum. For Kaczmarz steps on these digits, heavy-ball momentum of 0.2 saved nothing and
    momentum of 0.6 diverged. Optimal coefficients would need inner products of earlier steps, whose rounding errors grow
    from step to step.

    References
    ----------
    Strohmer and Vershynin, "A randomized Kaczmarz algorithm with exponential convergence", 2009.

    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (31)-(47).
    """

    _parameter_constraints = {**BlockSolver._parameter_constraints, "sampling": [StrOptions({"uniform", "norm"})]}

    def __init__(
        self,
        block_size: int = 2000,
        *,
        sampling: str = "uniform",
        tol: float = 1e-4,
        max_iter: int = 200,
        reuse_blocks: bool = False,
    ):
        super().__init__(block_size, tol=tol, max_iter=max_iter, reuse_blocks=reuse_blocks)
        self.sampling = sampling

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        blocks = BlockRows(
            op, self.block_size, rng, reuse=self.reuse_blocks, probabilities=self._probabilities(op), state=state
        )
        xp, z_norm = xa.namespace(W), xa.norm(Z) or 1.0
        while True:
            idx, A, gram = blocks.next()
            R = xa.take_rows(Z, idx) - A @ W
            Y = gram.solve(R)
            D = A.T @ Y
            # For the solution W*, <W* - W, D> = <R, Y> because A (W* - W) = R. The best step along D is therefore
            # D <R, Y> / <D, D>, which corrects a D that is too short because of the jitter.
            squares = column_dots(D, D)
            step = D * (column_dots(Y, R) / xp.where(squares > 0, squares, xp.ones_like(squares)))
            W = W + step
            # R is the residual of the block before the update: an estimate of the full residual without a pass over A.
            residual = xa.norm(R) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            yield blocks.step(W, residual, xa.norm(step), self.tol, jitter=gram.jitter)

    def _probabilities(self, op: Operator) -> np.ndarray | None:
        if self.sampling == "uniform":
            return None
        if self.block_size != 1 or self.reuse_blocks:
            raise ValueError("sampling='norm' draws single rows: it needs block_size=1 and reuse_blocks=False")
        squares = np.empty(op.shape[0])
        for part in slices(op.shape[0], TUNING.norm_rows):
            squares[part] = xa.to_numpy(xa.square_norms(op.rows(np.arange(part.start, part.stop))))
        return np.asarray(squares / squares.sum())


class MatchingPursuit(BlockSolver):
    """Randomised block matching pursuit, for symmetric matrices.

    Parameters
    ----------
    block_size : int, default=2000
        Number of columns in a block. Larger blocks need fewer, more expensive steps.
    tol : float, default=1e-4
        Tolerance at which the solver stops. It bounds the true relative residual; if the residual is at most `sqrt(tol)`, it
        suffices that the relative change of `W` over one pass of the blocks is below `tol`. A solution that no longer
        changes at a larger residual has not converged.
    max_iter : int, default=200
        Maximum number of solver iterations. One iteration reads one block.
    reuse_blocks : bool, default=False
        Whether to split the rows into blocks once and cache the factored Gram matrices (b^2 numbers each).
    momentum : int, default=0
        Number of past steps whose directions improve the next step; the residual is at most that of a step without momentum.

    Notes
    -----
    With `reuse_blocks` a step takes 0.6 of the time on a streamed matrix and 0.4 on a cached matrix (8,000 rows, blocks
    of 800), but more steps are needed: for 5,000 digits in 20 blocks, 100 steps leave a residual of 0.156 instead of 0.118.
    On these digits, `momentum=10` saves a quarter of the steps (a residual of 0.113 after 80 steps), and `momentum=30` with
    `reuse_blocks` needs as many steps as the method without momentum and reuse. Each past step takes the memory of two
    matrices of the size of `W`, and 1 % of the time of a step.

    References
    ----------
    Mallat and Zhang, "Matching pursuits with time-frequency dictionaries", 1993.

    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (56)-(60).
    """

    _parameter_constraints = {
        **BlockSolver._parameter_constraints,
        "momentum": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        block_size: int = 2000,
        *,
        tol: float = 1e-4,
        max_iter: int = 200,
        reuse_blocks: bool = False,
        momentum: int = 0,
    ):
        super().__init__(block_size, tol=tol, max_iter=max_iter, reuse_blocks=reuse_blocks)
        self.momentum = momentum

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        blocks = BlockRows(op, self.block_size, rng, reuse=self.reuse_blocks, state=state)
        state, z_norm = state or {}, xa.norm(Z) or 1.0
        R = state["R"] if state else residual_of(op, Z, W)
        best_true, stalled = state.get("best_true", np.inf), state.get("stalled", 0)
        # The directions of past steps, orthonormal column by column, and their coefficients in `W`.
        past: list[tuple[Array, Array]] = []
        while f"direction_{len(past)}" in state:
            past.append((state[f"direction_{len(past)}"], state[f"image_{len(past)}"]))
        while stalled < TUNING.stalled_restarts:
            idx, A, gram = blocks.next()
            Q = gram.solve(A @ R)
            coefficients = xa.zeros(tuple(W.shape), W)
            coefficients[xa.indices(idx, W)] = Q
            # Without jitter and momentum the length of the step would be that of Q. The length is recomputed, so that
            # rounding of the Gram matrix cannot increase the residual.
            direction, change, past = _orthonormal(A.T @ Q, coefficients, past)
            past = [*past, (direction, change)][-self.momentum :] if self.momentum else []
            length = column_dots(direction, R)
            R = R - direction * length
            change = change * length
            W = W + change
            residual, status = xa.norm(R) / z_norm, None
            if residual <= self.tol:
                # The updated residual drifts in float32, so the true residual is computed and replaces it.
                R, past = Z - op @ W, []
                residual = xa.norm(R) / z_norm
                status = Status.CONVERGED if residual <= self.tol else None
                stalled = stalled + 1 if residual > 0.5 * best_true else 0
                best_true = min(best_true, residual)
            saved = {"R": R, "best_true": float(best_true), "stalled": stalled}
            for at, (old, of) in enumerate(past):
                saved |= {f"direction_{at}": old, f"image_{at}": of}
            step = blocks.step(W, residual, xa.norm(change), self.tol, state=saved, jitter=gram.jitter)
            yield replace(step, status=status or step.status)


def _orthonormal(
    direction: Array, image: Array, past: list[tuple[Array, Array]]
) -> tuple[Array, Array, list[tuple[Array, Array]]]:
    """Return `direction` made orthogonal to `past` directions and of unit norm, its image, and past directions still in use.

    `image` has the coefficients for which `A image = direction`, and is combined in the same way as the direction.
    """
    left, left_image = direction, image
    for earlier, earlier_image in past:
        share = column_dots(earlier, direction)
        left = left - earlier * share
        left_image = left_image - earlier_image * share
    before, after = column_dots(direction, direction), column_dots(left, left)
    xp = xa.namespace(after)
    if past:
        # If only a small part of a column is orthogonal to `past`, it takes a step without momentum and drops its past.
        fresh = after > TUNING.new_direction_fraction * before
        left, left_image = xp.where(fresh, left, direction), xp.where(fresh, left_image, image)
        after = xp.where(fresh, after, before)
        zero = xp.zeros_like(after)
        past = [(xp.where(fresh, old, zero), xp.where(fresh, of, zero)) for old, of in past]
    factor = xp.where(after > 0, 1.0 / xp.sqrt(xp.where(after > 0, after, xp.ones_like(after))), after)
    return left * factor, left_image * factor, past


class KaczmarzMP(BlockSolver):
    """Hybrid of randomised block Kaczmarz and matching pursuit, for symmetric matrices.

    Parameters
    ----------
    block_size : int, default=2000
        Number of equations in a block. Larger blocks need fewer, more expensive steps.
    tol : float, default=1e-4
        Tolerance at which the solver stops. It bounds the relative residual of the blocks before their updates, over one
        pass of the rows; if this residual is at most `sqrt(tol)`, it suffices that the relative change of `W` in the pass is
        below `tol`. A solution that no longer changes at a larger residual has not converged.
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
        z_norm, R = xa.norm(Z) or 1.0, state["R"] if state else residual_of(op, Z, W)
        while True:
            idx, A, gram = blocks.next()
            before = W
            block_residual = xa.take_rows(Z, idx) - A @ W
            # Both residuals are multiplied together, so that each product reads the block from memory once.
            k = Z.shape[1]
            both = gram.solve(xa.namespace(W).concat([block_residual, A @ R], axis=1))
            moves = A.T @ both
            W = W + moves[:, :k]
            W[xa.indices(idx, W)] += both[:, k:]
            R = R - moves[:, k:]
            residual = xa.norm(block_residual) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            info = {"pursuit_residual": xa.norm(R) / z_norm, "jitter": gram.jitter}
            yield blocks.step(W, residual, xa.norm(W - before), self.tol, state={"R": R}, **info)
