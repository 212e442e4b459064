"""Momentum that cannot do harm: a step is improved by the directions of the steps before it.

A projection method moves along a direction `D` (one for each column) to the nearest point to its goal. If the goal's
distance is already orthogonal to earlier directions `P_1, ..., P_m`, the nearest point in the span of all of them is
found by making `D` orthogonal to each and moving along what is left:

    D' = D - sum_i P_i <P_i, D>,   P = D' / ||D'||,   step = P <goal, P>

This is heavy-ball momentum with the best coefficients at each step; the distance after it is at most that after the plain
step, so whatever converges without it converges with it. O(m n k) time and m n k numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless import _array as xa
from gramless._array import Array


class Directions:
    """The last directions of a method, orthonormal column by column.

    Parameters
    ----------
    limit : int
        How many are kept; none is no momentum.
    state : dict, optional
        What `state()` gave.
    """

    def __init__(self, limit: int, state: dict[str, Any] | None = None):
        if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0:
            raise ValueError(f"momentum must be a number of past steps, an integer of at least 0, got {limit!r}")
        self.limit = int(limit)
        self._past: list[tuple[Array, Array]] = []
        while state and f"direction_{len(self._past)}" in state:
            at = len(self._past)
            self._past.append((state[f"direction_{at}"], state[f"image_{at}"]))

    def state(self) -> dict[str, Any]:
        """The directions, each as two matrices."""
        found: dict[str, Any] = {}
        for at, (direction, image) in enumerate(self._past):
            found |= {f"direction_{at}": direction, f"image_{at}": image}
        return found

    def forget(self) -> None:
        """Drop all directions: the goal has moved."""
        self._past = []

    def add(self, direction: Array, image: Array) -> tuple[Array, Array, Array]:
        """Make `direction` orthogonal to the earlier ones and of unit norm, and keep it.

        `image` is what the direction is in another space (the coefficients that a change of the residual comes from),
        and is combined in the same way. Returns both and the factor, one for each column, that normalised them.
        """
        before = column_dots(direction, direction)
        left, left_image = direction, image
        for earlier, earlier_image in self._past:
            share = column_dots(earlier, direction)
            left = left - earlier * share
            left_image = left_image - earlier_image * share
        after = column_dots(left, left)
        xp = xa.namespace(after)
        # Of a direction that the earlier ones contain, only rounding is left.
        floor = (100 * float(np.finfo(xa.numpy_dtype(direction)).eps)) ** 2
        usable = after > floor * before
        factor = xp.where(usable, 1.0 / xp.sqrt(xp.where(usable, after, xp.ones_like(after))), xp.zeros_like(after))
        left, left_image = left * factor, left_image * factor
        if self.limit:
            self._past = [*self._past, (left, left_image)][-self.limit :]
        return left, left_image, factor


def column_dots(A: Array, B: Array) -> Array:
    """The inner product of each column of `A` with that of `B`, summed in float64."""
    xp = xa.namespace(A)
    return xa.astype(xp.sum(A * B, axis=0, dtype=xp.float64), xa.numpy_dtype(A))
