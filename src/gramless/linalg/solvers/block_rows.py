"""Random blocks of rows for solvers that read a matrix one block at a time.

A random permutation of the rows is split into blocks, which are used one after another. Then the rows are shuffled again, so
every row is read about once in n / block_size steps. With `reuse` the rows are split once and only the order of the blocks
is shuffled, so that the factor of a block can be cached. The permutation and the position in it are saved as state, so that
a resumed solve reads the same blocks.

`BlockGram` is the factored Gram matrix of a block `A` of b rows, for the projection `P = A^T (A A^T)^-1 A`. The condition
number of `A A^T` is the square of that of `A`. The rows are therefore scaled to unit norm (which does not change `P`), and
`A A^T` is factored in float64. A jitter as large as the rounding errors of `A A^T` keeps the eigenvalues above the exact
values, so a step falls short of the projection. A block takes O(b^2 n + b^3) time and stores b^2 numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE_INTEGER
from gramless.linalg.operators.base import Operator
from gramless.linalg.operators.jitter import jittered_cholesky
from gramless.linalg.solvers.base import NON_NEGATIVE, Solver, State, Status, Step
from gramless.linalg.tuning import TUNING


class BlockSolver(Solver):
    """Base class of the solvers that read one random block of rows in each iteration, until they converge."""

    _parameter_constraints: dict[str, Any] = {
        "block_size": [POSITIVE_INTEGER],
        "tol": [NON_NEGATIVE],
        "max_iter": [POSITIVE_INTEGER],
        "reuse_blocks": ["boolean"],
    }
    requires = ("rows",)

    def __init__(self, block_size: int = 2000, *, tol: float = 1e-4, max_iter: int = 200, reuse_blocks: bool = False):
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.reuse_blocks = reuse_blocks


class BlockRows:
    """An endless sequence of blocks of rows of an operator, with sums of residuals over the current pass over the rows.

    With `reuse`, every row stays in the same block, and the factored Gram matrices of the blocks are cached. With
    `probabilities`, rows are drawn with replacement instead of shuffled. The argument `state` is an earlier result of the
    method `state`, from which the sequence continues.
    """

    def __init__(
        self,
        op: Operator,
        block_size: int,
        rng: np.random.RandomState,
        *,
        reuse: bool = False,
        probabilities: np.ndarray | None = None,
        state: State = None,
    ):
        self.op = op
        self.n = op.shape[0]
        self.block_size = min(int(block_size), self.n)
        self.rng = rng
        self.reuse = reuse
        self.probabilities = probabilities
        self.n_blocks = -(-self.n // self.block_size) if reuse else self.n // self.block_size
        if reuse:
            self.block_size = -(-self.n // self.n_blocks)
        # Rows that fill no block are skipped until the next shuffle; with `reuse` the last block overlaps the one before.
        self._starts = np.minimum(np.arange(self.n_blocks) * self.block_size, self.n - self.block_size)
        self._order, self._visits = np.empty(0, np.intp), np.arange(self.n_blocks)
        self._position, self._fetched = self.n_blocks, -1
        self._buffer: Array | None = None
        self._grams: dict[int, BlockGram] = {}
        # Sums over the blocks of the pass: squared residuals divided by the number of blocks, and squared changes of W.
        self._residual = self._change = 0.0
        if state:
            self._order, self._visits = np.asarray(state["order"]), np.asarray(state["visits"])
            self._position = int(state["position"])
            self._residual, self._change = state.get("left", 0.0), state.get("moved", 0.0)

    def state(self) -> dict[str, Any]:
        """Return the permutation, the position in the permutation, and the sums over the current pass."""
        sums = {"left": self._residual, "moved": self._change}
        return {"order": self._order, "visits": self._visits, "position": self._position, **sums}

    @property
    def pass_ends(self) -> bool:
        """Whether the most recent block was the last block of a pass, so that the rows are shuffled next."""
        return self._position == self.n_blocks

    def next(self) -> tuple[np.ndarray, Array, BlockGram]:
        """Return the row indices of the next block, its rows (valid until the next call) and their factored Gram matrix."""
        if self.pass_ends:
            self._shuffle()
        # A reused block is computed alone: its values must not change, and rounding depends on the rows computed with it.
        together = 1 if self.reuse else max(1, TUNING.fetched_rows // self.block_size)
        first = self._position - self._position % together
        if self._fetched != first:
            idx = np.concatenate([self._block(k) for k in self._visits[first : first + together]])
            if self._buffer is None or len(idx) > self._buffer.shape[0]:
                self._buffer = self.op.rows(idx)
            else:
                # The buffer is reused, because page faults of a new block of a gigabyte would dominate the time of a step.
                self.op.rows(idx, out=self._buffer[: len(idx)])
            self._fetched = first
        number, start = int(self._visits[self._position]), (self._position - first) * self.block_size
        self._position += 1
        assert self._buffer is not None
        rows = self._buffer[start : start + self.block_size]
        gram = self._grams.get(number)
        if gram is None:
            # Cached factors take b^2 numbers for each block, in the precision of the data.
            gram = BlockGram(rows, xa.numpy_dtype(rows) if self.reuse else np.float64)
        if self.reuse:
            self._grams[number] = gram
        return self._block(number), rows, gram

    def step(
        self, W: Array, residual: float, change: float, tol: float, *, state: dict[str, Any] | None = None, **info: float
    ) -> Step:
        """Return the step with solution `W`, relative residual and norm of the change of `W`.

        A solution has converged if the residual of a pass is at most `tol`, or if the relative change of `W` in the pass is
        at most `tol` and the residual at most `sqrt(tol)`. A small change at a larger residual means that the matrix is
        numerically singular in the remaining directions, so that more passes do not help: the solver has stagnated.
        """
        info, status = {"change": change / (xa.norm(W) or 1.0), **info}, None
        self._residual, self._change = self._residual + residual**2 / self.n_blocks, self._change + change**2
        if self.pass_ends:
            # The squared changes of a pass sum to the decrease of the squared distance of W to the solution.
            of_pass, moved = self._residual**0.5, self._change**0.5 / (xa.norm(W) or 1.0)
            self._residual = self._change = 0.0
            if of_pass <= tol or (moved <= tol and of_pass <= tol**0.5):
                status = Status.CONVERGED
            elif moved <= tol:
                status = Status.STAGNATED
        return Step(W, residual, status=status, state={**self.state(), **(state or {})}, info=info)

    def _block(self, number: int) -> np.ndarray:
        start = self._starts[number]
        # Row numbers are sorted so that the rows are read from memory in order.
        return np.sort(self._order[start : start + self.block_size])

    def _shuffle(self) -> None:
        if self.probabilities is not None:
            self._order = self.rng.choice(self.n, size=self.n, p=self.probabilities)
        elif not self._order.size or not self.reuse:
            self._order = self.rng.permutation(self.n)
        if self.reuse:
            self._visits = self.rng.permutation(self.n_blocks)
        self._position, self._fetched = 0, -1


class BlockGram:
    """The Cholesky factor of `A A^T` for one block, stored in `dtype`; `jitter` applies to rows scaled to unit norm."""

    def __init__(self, A: Array, dtype: Any = np.float64):
        eps = float(np.finfo(xa.numpy_dtype(A)).eps)
        with np.errstate(over="ignore", invalid="ignore"):
            # NumPy detects that both factors are the same matrix and computes only one triangle of the product.
            G = xa.astype(xa.matmul(A, A.T), np.float64)
        xp = xa.namespace(G)
        norms = xp.sqrt(xp.linalg.diagonal(G))
        if not bool(xp.all(xp.isfinite(norms))):  # the diagonal bounds all entries
            raise FloatingPointError(
                f"the squares of the kernel's values overflow {xa.numpy_dtype(A).name}: scale the data, lower the kernel's "
                "degree or coefficients, or use dtype='float64'"
            )
        self._scale = 1.0 / xp.where(norms > 0, norms, xp.ones_like(norms))
        G *= self._scale
        G *= self._scale[:, None]
        L, self.jitter = jittered_cholesky(G, jitter=2.0 * eps * float(np.sqrt(A.shape[0])))
        self._factor = xa.astype(L, dtype)

    def solve(self, B: Array) -> Array:
        """Return `(A A^T)^-1 B` in the dtype of `B`."""
        dtype = xa.numpy_dtype(self._factor)
        scale = xa.astype(self._scale, dtype)[:, None]
        return xa.astype(scale * xa.cholesky_solve(self._factor, scale * xa.astype(B, dtype)), xa.numpy_dtype(B))


def column_dots(A: Array, B: Array) -> Array:
    """Return the inner products of the columns of `A` and `B`, summed in float64."""
    xp = xa.namespace(A)
    return xa.astype(xp.sum(A * B, axis=0, dtype=xp.float64), xa.numpy_dtype(A))
