"""Momentum that cannot do harm: a step is improved by the directions of the steps before it.

A residual `R` is made smaller along a direction `D` (one for each column). If it is already orthogonal to the earlier
directions `P_1, ..., P_m`, it is made as small as the span of all of them allows by moving along what is new in `D`:

    D' = D - sum_i P_i <P_i, D>,   P = D' / ||D'||,   R <- R - P <P, R>

This is heavy-ball momentum with the best coefficients at each step; the residual after it is at most that after the plain
step, so whatever converges without it converges with it. O(m n k) time and 2 m n k numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array

# What is left of a direction after its projections carries their rounding, which a short remainder would enlarge: a column
# with less than this (squared) share of something new takes the plain step and drops what was before.
_LEAST_NEW = 1e-2


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

    def drop(self) -> None:
        """Drop all directions: the goal has moved."""
        self._past = []

    def add(self, direction: Array, image: Array) -> tuple[Array, Array]:
        """Make `direction` orthogonal to the earlier ones and of unit norm, and keep it.

        `image` holds the coefficients that the direction comes from, and is combined in the same way. Returns both.
        """
        left, left_image = direction, image
        for earlier, earlier_image in self._past:
            share = column_dots(earlier, direction)
            left = left - earlier * share
            left_image = left_image - earlier_image * share
        before, after = column_dots(direction, direction), column_dots(left, left)
        xp = xa.namespace(after)
        if self._past:
            fresh = after > _LEAST_NEW * before
            left, left_image = xp.where(fresh, left, direction), xp.where(fresh, left_image, image)
            after = xp.where(fresh, after, before)
            zero = xp.zeros_like(after)
            self._past = [(xp.where(fresh, old, zero), xp.where(fresh, of, zero)) for old, of in self._past]
        factor = xp.where(after > 0, 1.0 / xp.sqrt(xp.where(after > 0, after, xp.ones_like(after))), after)
        left, left_image = left * factor, left_image * factor
        if self.limit:
            self._past = [*self._past, (left, left_image)][-self.limit :]
        return left, left_image


def column_dots(A: Array, B: Array) -> Array:
    """The inner product of each column of `A` with that of `B`, summed in float64."""
    xp = xa.namespace(A)
    return xa.astype(xp.sum(A * B, axis=0, dtype=xp.float64), xa.numpy_dtype(A))
