"""Momentum that never increases the residual: a step is improved by the directions of earlier steps.

The residual `R` is reduced along a direction `D` (one for each column). If `R` is orthogonal to the earlier directions
`P_1, ..., P_m`, the part of `D` that is orthogonal to them minimises it over the span of all:

    D' = D - sum_i P_i <P_i, D>,   P = D' / ||D'||,   R <- R - P <P, R>

This is heavy-ball momentum with optimal coefficients; the residual is at most that of the plain step. O(m n k) time and
2 m n k numbers.
"""

from __future__ import annotations

from typing import Any

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.linalg.tuning import TUNING


class Directions:
    """The last `limit` directions of a solver, orthonormal column by column; `state` continues an earlier `state()`."""

    def __init__(self, limit: int, state: dict[str, Any] | None = None):
        self.limit = int(limit)
        self._past: list[tuple[Array, Array]] = []
        while state and f"direction_{len(self._past)}" in state:
            at = len(self._past)
            self._past.append((state[f"direction_{at}"], state[f"image_{at}"]))

    def state(self) -> dict[str, Any]:
        """Return the directions, each as two matrices."""
        found: dict[str, Any] = {}
        for at, (direction, image) in enumerate(self._past):
            found |= {f"direction_{at}": direction, f"image_{at}": image}
        return found

    def drop(self) -> None:
        """Drop all directions, after the residual was replaced by the true one."""
        self._past = []

    def add(self, direction: Array, image: Array) -> tuple[Array, Array]:
        """Return `direction` orthogonal to the earlier ones with unit norm, and store it.

        `image` has the coefficients of the direction, and is combined in the same way.
        """
        left, left_image = direction, image
        for earlier, earlier_image in self._past:
            share = column_dots(earlier, direction)
            left = left - earlier * share
            left_image = left_image - earlier_image * share
        before, after = column_dots(direction, direction), column_dots(left, left)
        xp = xa.namespace(after)
        if self._past:
            # A column with a smaller new part takes the plain step and drops its earlier directions.
            fresh = after > TUNING.new_direction_fraction * before
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
    """Return the inner products of the columns of `A` and `B`, summed in float64."""
    xp = xa.namespace(A)
    return xa.astype(xp.sum(A * B, axis=0, dtype=xp.float64), xa.numpy_dtype(A))
