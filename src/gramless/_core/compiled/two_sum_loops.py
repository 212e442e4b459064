"""The loop of sequential minimal optimisation where two sums are fixed; imported only when such a machine is fitted.

The positive variables keep their sum and the negative ones keep theirs, so a pair is moved on one side of zero:
`solve_pairs` of `smo_loops` with the extremes of each side apart, and with steps that end at zero.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba
from gramless._core.compiled.smo_loops import _BLOCK, _MASKED, _MIN_CURVATURE, _extremes, _gains, _largest, _step


@numba.njit(cache=True, nogil=True)
def _mask(beta: float, lower: float, upper: float, masks: np.ndarray, k: int) -> None:
    """What is added to the slope of a variable: nothing where it may move, a large number where it may not.

    Rows of `masks`: to rise and to fall on the side above zero, to rise and to fall on the side below.
    """
    masks[0, k] = 0.0 if beta >= 0.0 and beta < upper else -_MASKED
    masks[1, k] = 0.0 if beta > 0.0 else _MASKED
    masks[2, k] = 0.0 if beta < 0.0 else -_MASKED
    masks[3, k] = 0.0 if beta <= 0.0 and beta > lower else _MASKED


@numba.njit(cache=True, nogil=True)
def _best(tops: np.ndarray) -> int:
    best = 0
    for b in range(1, tops.size):
        if tops[b] > tops[best]:
            best = b
    return best


@numba.njit(cache=True, nogil=True)
def solve_pairs_of_two_sums(
    K: np.ndarray,
    slope: np.ndarray,
    beta: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tol: float,
    max_iter: int,
) -> tuple[int, float]:
    """Maximise over the working set in place; gives the number of pairs moved and the violation that is left.

    Each iteration takes the side with the wider gap, raises its variable with the largest slope and lowers the partner on
    the same side that promises the largest gain.
    """
    q = slope.size
    whole = q - q % _BLOCK
    n_blocks = (q + _BLOCK - 1) // _BLOCK
    masks = np.empty((4, q))
    gain = np.empty(q, dtype=np.float32)
    diagonal = np.empty(q, dtype=np.float32)
    tops = np.empty((2, n_blocks))
    bests = np.empty(n_blocks, dtype=np.float32)
    for k in range(q):
        diagonal[k] = K[k, k]
        _mask(beta[k], lower[k], upper[k], masks, k)
    bottoms = np.full(2, _MASKED)
    for start in range(0, q, _BLOCK):
        stop = min(start + _BLOCK, q)
        for side in range(2):
            lowest = _extremes(slope, masks[2 * side], masks[2 * side + 1], start, stop, tops[side])
            bottoms[side] = min(bottoms[side], lowest)

    iterations = 0
    while True:
        above, below = _best(tops[0]), _best(tops[1])
        gap_above, gap_below = tops[0, above] - bottoms[0], tops[1, below] - bottoms[1]
        side = 0 if gap_above >= gap_below else 1
        gap = max(gap_above, gap_below)
        if iterations >= max_iter or not gap > tol:
            break
        best = above if side == 0 else below
        top, rise, fall = tops[side, best], masks[2 * side], masks[2 * side + 1]
        i = best * _BLOCK
        while i < min(best * _BLOCK + _BLOCK, q) - 1 and slope[i] + rise[i] != top:
            i += 1
        row_i = K[i]
        for start in range(0, whole, _BLOCK):
            _gains(row_i, slope, fall, diagonal, top, diagonal[i], start, start + _BLOCK, gain, bests)
        if whole < q:
            _gains(row_i, slope, fall, diagonal, top, diagonal[i], whole, q, gain, bests)
        j = _largest(gain, bests, q)
        row_j = K[j]

        curvature = max(np.float64(K[i, i]) + np.float64(K[j, j]) - 2.0 * np.float64(row_i[j]), _MIN_CURVATURE)
        step = (top - (slope[j] + fall[j])) / curvature
        end_i = 0.0 if beta[i] < 0.0 else upper[i]
        end_j = 0.0 if beta[j] > 0.0 else lower[j]
        room_i = end_i - beta[i]
        room_j = beta[j] - end_j
        step = min(step, room_i, room_j)
        # A bound that is reached is reached exactly: rounding must not leave a variable a hair inside it.
        beta[i] = end_i if step == room_i else beta[i] + step
        beta[j] = end_j if step == room_j else beta[j] - step
        _mask(beta[i], lower[i], upper[i], masks, i)
        _mask(beta[j], lower[j], upper[j], masks, j)

        bottoms[:] = _MASKED
        for start in range(0, q, _BLOCK):
            stop = min(start + _BLOCK, q)
            lowest = _step(row_i, row_j, step, slope, masks[0], masks[1], start, stop, tops[0])
            bottoms[0] = min(bottoms[0], lowest)
            lowest = _extremes(slope, masks[2], masks[3], start, stop, tops[1])
            bottoms[1] = min(bottoms[1], lowest)
        iterations += 1
    return iterations, gap
