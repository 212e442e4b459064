"""Random blocks of rows, for the solvers that read a matrix a block at a time.

A random permutation is cut into blocks, which are used one after another; when it is used up the rows are shuffled again,
so every row is seen about once in every n / block_size steps. With `reuse` the rows are cut once and only the order of the
blocks is shuffled, so that what was computed for a block can serve again. The permutation and the position in it are the
state: a solve that is taken up again reads the same blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core.arrays import Array
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Status

# Blocks smaller than this are fetched together: one product computes their kernel values at the speed of a matrix product
# where single rows would run at the speed of memory.
_ROWS_AT_ONCE = 256


def end_of_pass(tol: float, residual: float, change: float) -> Status | None:
    """Whether a pass over all blocks was the last one: solved, or standing still at a residual that is no solution.

    A solution that hardly changes is one where the residual agrees to half of the digits asked for. Where it does not, the
    matrix is singular to the precision in the directions that are left, and more passes do not help.

    Parameters
    ----------
    tol : float
    residual : float
        Relative to the right-hand side.
    change : float
        Of the solution in the pass, relative to the solution.
    """
    if residual <= tol or (change <= tol and residual <= tol**0.5):
        return Status.CONVERGED
    return Status.STANDS_STILL if change <= tol else None


class BlockRows:
    """An endless sequence of blocks of rows of an operator.

    Parameters
    ----------
    op : Operator
    block_size : int
    rng : RandomState
    reuse : bool, default=False
        Cut the rows once; every row belongs to one block for good.
    probabilities : ndarray of shape (n,), optional
        Draw single rows with replacement with these probabilities, instead of shuffling.
    state : dict, optional
        What `state()` gave.
    """

    def __init__(
        self,
        op: Operator,
        block_size: int,
        rng: np.random.RandomState,
        *,
        reuse: bool = False,
        probabilities: np.ndarray | None = None,
        state: dict[str, Any] | None = None,
    ):
        self.op = op
        self.n = op.shape[0]
        self.block_size = min(check_block_size(block_size), self.n)
        self.rng = rng
        self.reuse = reuse
        self.probabilities = probabilities
        self.n_blocks = -(-self.n // self.block_size) if reuse else self.n // self.block_size
        if reuse:
            self.block_size = -(-self.n // self.n_blocks)
        # Without reuse, what is left over waits for the next shuffle; with it, the last block overlaps the one before.
        self._starts = np.minimum(np.arange(self.n_blocks) * self.block_size, self.n - self.block_size)
        self._order: np.ndarray | None = None
        self._visits = np.arange(self.n_blocks)
        self._position = self.n_blocks
        self._buffer: Array | None = None
        self._fetched: int | None = None
        if state:
            self._order, self._visits = np.asarray(state["order"]), np.asarray(state["visits"])
            self._position = int(state["position"])

    def state(self) -> dict[str, Any]:
        """Where the sequence stands."""
        return {"order": self._order, "visits": self._visits, "position": self._position}

    @property
    def pass_ends(self) -> bool:
        """Whether the block just given was the last one before the next shuffle."""
        return self._position == self.n_blocks

    def next(self) -> tuple[int, np.ndarray, Array]:
        """The block's number, the indices of its rows, and the rows; the rows are valid until the next call."""
        if self._position == self.n_blocks:
            self._shuffle()
        # A block that recurs must have the same bits each time, and those may depend on the rows beside it.
        together = 1 if self.reuse else max(1, _ROWS_AT_ONCE // self.block_size)
        first = self._position - self._position % together
        if self._fetched != first:
            self._fetch(np.concatenate([self._block(k) for k in self._visits[first : first + together]]))
            self._fetched = first
        number = int(self._visits[self._position])
        start = (self._position - first) * self.block_size
        self._position += 1
        assert self._buffer is not None
        return number, self._block(number), self._buffer[start : start + self.block_size]

    def _block(self, number: int) -> np.ndarray:
        assert self._order is not None
        start = self._starts[number]
        # Sorted rows are gathered from memory in order.
        return np.sort(self._order[start : start + self.block_size])

    def _shuffle(self) -> None:
        if self.probabilities is not None:
            self._order = self.rng.choice(self.n, size=self.n, p=self.probabilities)
        elif self._order is None or not self.reuse:
            self._order = self.rng.permutation(self.n)
        if self.reuse:
            self._visits = self.rng.permutation(self.n_blocks)
        self._position = 0
        self._fetched = None

    def _fetch(self, idx: np.ndarray) -> None:
        if self._buffer is not None and len(idx) <= self._buffer.shape[0]:
            # A block of a gigabyte that is allocated anew for each step spends its time in page faults.
            self.op.rows(idx, out=self._buffer[: len(idx)])
        else:
            self._buffer = self.op.rows(idx)


def check_block_size(block_size: Any) -> int:
    """A positive whole number, or an error that says so."""
    if isinstance(block_size, bool) or not isinstance(block_size, int | np.integer) or block_size < 1:
        raise ValueError(f"block_size must be an integer of at least 1, got {block_size!r}")
    return int(block_size)
