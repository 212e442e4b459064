"""A dual problem on a matrix that is held, with shrinking.

Most variables soon sit at a bound with a slope that keeps them there. They are set aside: the pairwise solver goes on with a
compact copy of the matrix for the others, and when those are optimal the slopes of the rest are brought up to date, in one
product, and judged again. An iteration then costs O(active), not O(q). A variable set aside by mistake comes back.
"""

from __future__ import annotations

import numpy as np

# Below this many variables a copy saves nothing; above this share of them neither.
_WORTH_SHRINKING = 256
_LARGEST_SHARE = 0.6


def solve_shrinking(
    K: np.ndarray,
    slope: np.ndarray,
    beta: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tol: float,
    max_iter: int,
) -> int:
    """Maximise in place (`slope` and `beta` are updated); gives the number of pairs moved."""
    from gramless._compiled.smo_loops import solve_working_set

    q = slope.size
    if q < _WORTH_SHRINKING:
        return solve_working_set(K, slope, beta, lower, upper, tol, max_iter)
    moves = 0
    pause = q // 4
    while True:
        # Among all: at the start to find out who matters, later to let in those who were set aside too early.
        moves += solve_working_set(K, slope, beta, lower, upper, tol, min(pause, max_iter - moves))
        may_rise, may_fall = beta < upper, beta > lower
        top = np.max(slope, where=may_rise, initial=-np.inf)
        bottom = np.min(slope, where=may_fall, initial=np.inf)
        if not top - bottom > tol or moves >= max_iter:
            return moves
        settled = (~may_rise & (slope > top)) | (~may_fall & (slope < bottom))
        active = np.flatnonzero(~settled)
        if active.size > _LARGEST_SHARE * q:
            pause *= 2
            continue
        values, slopes = beta[active], slope[active]
        before = values.copy()
        part = np.ascontiguousarray(K[active][:, active])
        moves += solve_working_set(part, slopes, values, lower[active], upper[active], tol, max_iter - moves)
        moved = np.flatnonzero(values != before)
        if not moved.size:
            pause *= 2
            continue
        slope -= (values - before)[moved] @ K[active[moved]]
        beta[active] = values
