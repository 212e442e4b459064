"""Compiled loops of sequential minimal optimisation (SMO); imported only when a support vector machine is fitted.

`solve_pairs` solves a problem whose kernel matrix is in memory; each iteration reads two rows of the matrix, O(q) for q
variables. LLVM does not vectorise an arg-max over all variables. The loops therefore compute the best value of each block of
64 variables, which LLVM vectorises, and then search the index of the best value within the best block only.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba
from gramless._core.compiled.scalar import larger, smaller

# These fast-math flags assume that no NaN occurs, so variables are excluded by a large finite number, not by infinity.
_VECTORISE = {"nnan", "nsz", "reassoc", "contract", "arcp"}
_EXCLUDED = 1e300
# Lower bound of the curvature of a pair of variables, because equal points have curvature zero; the value of LIBSVM.
_MIN_CURVATURE = 1e-12
_BLOCK = 64  # variables in a block
_COLUMNS = 2048  # columns that `add_rows` adds at a time: 16 KB in float64, half of a first-level cache


@numba.njit(cache=True, nogil=True)
def _set_offsets(
    beta: float, lower: float, upper: float, epsilon: float, rise: np.ndarray, fall: np.ndarray, k: int
) -> None:
    """Set `rise[:, k]` and `fall[:, k]`, which are added to the slope of variable `k` for a step up and for a step down.

    `rise` and `fall` have one row for each fixed sum of variables. A large number excludes a variable that cannot move.
    """
    if rise.shape[0] == 1:
        rise[0, k] = -_EXCLUDED if beta >= upper else epsilon if beta < 0.0 else -epsilon
        fall[0, k] = _EXCLUDED if beta <= lower else -epsilon if beta > 0.0 else epsilon
    else:
        rise[0, k] = 0.0 if beta >= 0.0 and beta < upper else -_EXCLUDED
        fall[0, k] = 0.0 if beta > 0.0 else _EXCLUDED
        rise[1, k] = 0.0 if beta < 0.0 else -_EXCLUDED
        fall[1, k] = 0.0 if beta <= 0.0 and beta > lower else _EXCLUDED


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _extremes(slope, rise, fall, start, stop, tops):
    """Store the largest slope for a step up in a block in `tops[block]`; return the smallest slope for a step down."""
    top, bottom = -_EXCLUDED, _EXCLUDED
    for k in range(np.uint64(start), np.uint64(stop)):
        top = larger(top, slope[k] + rise[k])
        bottom = smaller(bottom, slope[k] + fall[k])
    tops[start // _BLOCK] = top
    return bottom


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _gains(row, slope, fall, diagonal, top, diagonal_i, start, stop, gain, bests):
    """Store the gain of pairing the chosen variable with each variable of a block, and the best gain of the block."""
    best = np.float32(-1.0)
    for k in range(np.uint64(start), np.uint64(stop)):
        difference = np.float32(larger(top - (slope[k] + fall[k]), 0.0))
        curvature = larger(diagonal_i + diagonal[k] - np.float32(2.0) * np.float32(row[k]), np.float32(_MIN_CURVATURE))
        value = difference * difference / curvature
        gain[k] = value
        best = larger(best, value)
    bests[start // _BLOCK] = best


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _step(row_i, row_j, step, slope, rise, fall, start, stop, tops):
    """Update the slopes of a block after a step of a pair; then store and return the same extreme slopes as `_extremes`."""
    top, bottom = -_EXCLUDED, _EXCLUDED
    for k in range(np.uint64(start), np.uint64(stop)):
        value = slope[k] - step * (np.float64(row_i[k]) - np.float64(row_j[k]))
        slope[k] = value
        top = larger(top, value + rise[k])
        bottom = smaller(bottom, value + fall[k])
    tops[start // _BLOCK] = top
    return bottom


@numba.njit(cache=True, nogil=True)
def _best_block(bests):
    """Return the index of the first block with the largest best value."""
    best = 0
    for b in range(1, bests.size):
        if bests[b] > bests[best]:
            best = b
    return best


@numba.njit(cache=True, nogil=True)
def solve_pairs(
    K: np.ndarray,
    slope: np.ndarray,
    beta: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    epsilon: float,
    tol: float,
    max_iter: int,
    n_sums: int = 1,
) -> tuple[int, float]:
    """Maximise the dual over the working set, in place; return the number of iterations and the remaining violation.

    `slope` is the gradient `linear - K beta` without the term of `epsilon`. Each iteration raises the variable with the
    largest slope and lowers the partner with the largest gain (slope difference squared over curvature), until no two slopes
    differ by more than `tol`. With `n_sums=2` the sum of the positive variables and the sum of the negative variables
    are fixed: both variables of a pair have one sign, the one with the larger slope difference; `epsilon` is ignored.
    """
    q = slope.size
    whole = q - q % _BLOCK
    n_blocks = (q + _BLOCK - 1) // _BLOCK
    rise, fall = np.empty((n_sums, q)), np.empty((n_sums, q))
    gain = np.empty(q, dtype=np.float32)
    diagonal = np.empty(q, dtype=np.float32)
    tops, bottoms = np.empty((n_sums, n_blocks)), np.full(n_sums, _EXCLUDED)
    bests = np.empty(n_blocks, dtype=np.float32)
    for k in range(q):
        diagonal[k] = K[k, k]
        _set_offsets(beta[k], lower[k], upper[k], epsilon, rise, fall, k)
    for side in range(n_sums):
        for start in range(0, q, _BLOCK):
            lowest = _extremes(slope, rise[side], fall[side], start, min(start + _BLOCK, q), tops[side])
            bottoms[side] = min(bottoms[side], lowest)

    rise_0, fall_0, tops_0 = rise[0], fall[0], tops[0]
    iterations = 0
    while True:
        side, best = 0, _best_block(tops_0)
        gap, rise_i, fall_j = tops_0[best] - bottoms[0], rise_0, fall_0
        if n_sums == 2:
            other = _best_block(tops[1])
            if tops[1, other] - bottoms[1] > gap:
                side, best = 1, other
                gap, rise_i, fall_j = tops[1, best] - bottoms[1], rise[1], fall[1]
        if iterations >= max_iter or not gap > tol:
            break
        top = tops[side, best]
        i = best * _BLOCK
        while i < min(best * _BLOCK + _BLOCK, q) - 1 and slope[i] + rise_i[i] != top:
            i += 1
        row_i = K[i]
        for start in range(0, whole, _BLOCK):
            _gains(row_i, slope, fall_j, diagonal, top, diagonal[i], start, start + _BLOCK, gain, bests)
        if whole < q:
            _gains(row_i, slope, fall_j, diagonal, top, diagonal[i], whole, q, gain, bests)
        best = _best_block(bests)
        j = best * _BLOCK
        while j < min(best * _BLOCK + _BLOCK, q) - 1 and gain[j] != bests[best]:
            j += 1
        row_j = K[j]

        curvature = max(np.float64(K[i, i]) + np.float64(K[j, j]) - 2.0 * np.float64(row_i[j]), _MIN_CURVATURE)
        step = (top - (slope[j] + fall_j[j])) / curvature
        # If epsilon is positive, the slope jumps where a variable crosses zero, so a step ends at zero.
        end_i = 0.0 if beta[i] < 0.0 else upper[i]
        end_j = 0.0 if beta[j] > 0.0 else lower[j]
        room_i = end_i - beta[i]
        room_j = beta[j] - end_j
        step = min(step, room_i, room_j)
        # A variable that reaches its bound is set to the exact bound, because rounding could leave it slightly inside.
        beta[i] = end_i if step == room_i else beta[i] + step
        beta[j] = end_j if step == room_j else beta[j] - step
        _set_offsets(beta[i], lower[i], upper[i], epsilon, rise, fall, i)
        _set_offsets(beta[j], lower[j], upper[j], epsilon, rise, fall, j)

        bottom = _EXCLUDED
        for start in range(0, whole, _BLOCK):
            bottom = min(bottom, _step(row_i, row_j, step, slope, rise_0, fall_0, start, start + _BLOCK, tops_0))
        if whole < q:
            bottom = min(bottom, _step(row_i, row_j, step, slope, rise_0, fall_0, whole, q, tops_0))
        bottoms[0] = bottom
        if n_sums == 2:
            bottom = _EXCLUDED
            for start in range(0, q, _BLOCK):
                bottom = min(bottom, _extremes(slope, rise[1], fall[1], start, min(start + _BLOCK, q), tops[1]))
            bottoms[1] = bottom
        iterations += 1
    return iterations, gap


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def add_rows(rows: np.ndarray, slots: np.ndarray, weights: np.ndarray, total: np.ndarray, first: int, last: int) -> None:
    """Add `weights @ rows[slots, first:last]` to `total[first:last]` in float64.

    Columns are processed in blocks that fit in the cache. Adding four rows at a time saves reads and writes of `total`.
    """
    by_four = slots.size - slots.size % 4
    for start in range(first, last, _COLUMNS):
        stop = min(start + _COLUMNS, last)
        for r in range(0, by_four, 4):
            a, b, c, d = rows[slots[r]], rows[slots[r + 1]], rows[slots[r + 2]], rows[slots[r + 3]]
            wa, wb, wc, wd = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
            for k in range(np.uint64(start), np.uint64(stop)):
                total[k] += (wa * a[k] + wb * b[k]) + (wc * c[k] + wd * d[k])
        for r in range(by_four, slots.size):
            row, weight = rows[slots[r]], weights[r]
            for k in range(np.uint64(start), np.uint64(stop)):
                total[k] += weight * row[k]


@numba.njit(cache=True, nogil=True)
def gather(rows: np.ndarray, slots: np.ndarray, columns: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """Set `out[at[r]] = rows[slots[r], columns]` for every `r`."""
    for r in range(slots.size):
        row = rows[slots[r]]
        target = out[at[r]]
        for c in range(columns.size):
            target[c] = row[columns[c]]


@numba.njit(cache=True, nogil=True)
def scatter(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, out: np.ndarray) -> None:
    """Set `out[rows[r], columns[c]] = values[r, c]` for every `r` and `c`."""
    for r in range(rows.size):
        row = values[r]
        target = out[rows[r]]
        for c in range(columns.size):
            target[columns[c]] = row[c]


@numba.njit(cache=True, nogil=True)
def mirror(out: np.ndarray, done: np.ndarray, n: int) -> None:
    """Set `out[r, done[c]] = out[done[c], r]` for every `r < n`, in square blocks that fit in the cache."""
    for c0 in range(0, done.size, _BLOCK):
        for r0 in range(0, n, _BLOCK):
            for r in range(r0, min(r0 + _BLOCK, n)):
                target = out[r]
                for c in range(c0, min(c0 + _BLOCK, done.size)):
                    target[done[c]] = out[done[c], r]
