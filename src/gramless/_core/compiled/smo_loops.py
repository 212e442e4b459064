"""Compiled loops of sequential minimal optimisation; imported only when a support vector machine is fitted.

`solve_pairs` is SMO on a problem small enough to hold its Gram matrix: each iteration reads two rows of it, O(q). Its loops
are plain reductions over blocks of 64, first the value of each block and then, in the best block alone, the index: that form
vectorises and an arg-max over all does not.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba
from gramless._core.compiled.scalar import larger, smaller

# Infinities are kept out (a large finite number masks) so that these flags stay sound.
_VECTORISE = {"nnan", "nsz", "reassoc", "contract", "arcp"}
_MASKED = 1e300
_MIN_CURVATURE = 1e-12
_BLOCK = 64
_COLUMNS = 2048


@numba.njit(cache=True, nogil=True)
def _to_rise(beta: float, upper: float, epsilon: float) -> float:
    """What is added to the slope of a variable that may rise; very negative where it may not."""
    if beta >= upper:
        return -_MASKED
    return epsilon if beta < 0.0 else -epsilon


@numba.njit(cache=True, nogil=True)
def _to_fall(beta: float, lower: float, epsilon: float) -> float:
    if beta <= lower:
        return _MASKED
    return -epsilon if beta > 0.0 else epsilon


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _extremes(slope, rise, fall, start, stop, tops):
    """The largest rising slope of a block into `tops`; gives the smallest falling one."""
    top, bottom = -_MASKED, _MASKED
    for k in range(np.uint64(start), np.uint64(stop)):
        top = larger(top, slope[k] + rise[k])
        bottom = smaller(bottom, slope[k] + fall[k])
    tops[start // _BLOCK] = top
    return bottom


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def _gains(row, slope, fall, diagonal, top, diagonal_i, start, stop, gain, bests):
    """What lowering each variable of a block against the chosen one promises, and the best of the block."""
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
    """Slopes of a block after a step, with its largest rising one into `tops`; gives the smallest falling one."""
    top, bottom = -_MASKED, _MASKED
    for k in range(np.uint64(start), np.uint64(stop)):
        value = slope[k] - step * (np.float64(row_i[k]) - np.float64(row_j[k]))
        slope[k] = value
        top = larger(top, value + rise[k])
        bottom = smaller(bottom, value + fall[k])
    tops[start // _BLOCK] = top
    return bottom


@numba.njit(cache=True, nogil=True)
def _largest(values, blocks, n):
    """Where the largest of all values is, from the largest of each block."""
    best = 0
    for b in range(1, blocks.size):
        if blocks[b] > blocks[best]:
            best = b
    for k in range(best * _BLOCK, min(best * _BLOCK + _BLOCK, n)):
        if values[k] == blocks[best]:
            return k
    return best * _BLOCK


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
) -> tuple[int, float]:
    """Maximise over the working set in place; gives the number of pairs moved and the violation that is left.

    `slope` is the gradient `linear - K beta` without the term of `epsilon`. Each iteration raises the variable with the
    largest slope and lowers the partner that promises the largest gain (slope difference squared over curvature), until no
    two differ by more than `tol`.
    """
    q = slope.size
    whole = q - q % _BLOCK
    n_blocks = (q + _BLOCK - 1) // _BLOCK
    rise = np.empty(q)
    fall = np.empty(q)
    gain = np.empty(q, dtype=np.float32)
    diagonal = np.empty(q, dtype=np.float32)
    tops = np.empty(n_blocks)
    bests = np.empty(n_blocks, dtype=np.float32)
    for k in range(q):
        diagonal[k] = K[k, k]
        rise[k] = _to_rise(beta[k], upper[k], epsilon)
        fall[k] = _to_fall(beta[k], lower[k], epsilon)
    bottom = _MASKED
    for start in range(0, q, _BLOCK):
        bottom = min(bottom, _extremes(slope, rise, fall, start, min(start + _BLOCK, q), tops))

    iterations = 0
    while True:
        best = 0
        for b in range(1, n_blocks):
            if tops[b] > tops[best]:
                best = b
        top = tops[best]
        if iterations >= max_iter or not top - bottom > tol:
            break
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
        # The slope jumps where a variable crosses zero (epsilon), so a step ends there.
        end_i = 0.0 if beta[i] < 0.0 else upper[i]
        end_j = 0.0 if beta[j] > 0.0 else lower[j]
        room_i = end_i - beta[i]
        room_j = beta[j] - end_j
        step = min(step, room_i, room_j)
        # A bound that is reached is reached exactly: rounding must not leave a variable a hair inside it.
        beta[i] = end_i if step == room_i else beta[i] + step
        beta[j] = end_j if step == room_j else beta[j] - step
        rise[i] = _to_rise(beta[i], upper[i], epsilon)
        fall[i] = _to_fall(beta[i], lower[i], epsilon)
        rise[j] = _to_rise(beta[j], upper[j], epsilon)
        fall[j] = _to_fall(beta[j], lower[j], epsilon)

        bottom = _MASKED
        for start in range(0, whole, _BLOCK):
            bottom = min(bottom, _step(row_i, row_j, step, slope, rise, fall, start, start + _BLOCK, tops))
        if whole < q:
            bottom = min(bottom, _step(row_i, row_j, step, slope, rise, fall, whole, q, tops))
        iterations += 1
    return iterations, top - bottom


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def add_rows(rows: np.ndarray, slots: np.ndarray, weights: np.ndarray, total: np.ndarray, first: int, last: int) -> None:
    """`total[first:last] += weights @ rows[slots, first:last]`, accumulated in double precision.

    One cache-sized strip of columns at a time, and four rows for each pass over it: the strip is read and written four
    times less often.
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
    """`out[at[r]] = rows[slots[r], columns]`."""
    for r in range(slots.size):
        row = rows[slots[r]]
        target = out[at[r]]
        for c in range(columns.size):
            target[c] = row[columns[c]]


@numba.njit(cache=True, nogil=True)
def gather_columns(K: np.ndarray, idx: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """`out[r, at] = K[idx[r], idx[at]]` for every `r`."""
    for r in range(idx.size):
        row = K[idx[r]]
        target = out[r]
        for c in range(at.size):
            target[at[c]] = row[idx[at[c]]]


@numba.njit(cache=True, nogil=True)
def scatter(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, out: np.ndarray) -> None:
    """`out[rows[r], columns[c]] = values[r, c]`."""
    for r in range(rows.size):
        row = values[r]
        target = out[rows[r]]
        for c in range(columns.size):
            target[columns[c]] = row[c]


@numba.njit(cache=True, nogil=True)
def mirror(out: np.ndarray, done: np.ndarray, n: int) -> None:
    """`out[r, done[c]] = out[done[c], r]` for every `r < n`, a square of the cache at a time."""
    for c0 in range(0, done.size, _BLOCK):
        for r0 in range(0, n, _BLOCK):
            for r in range(r0, min(r0 + _BLOCK, n)):
                target = out[r]
                for c in range(c0, min(c0 + _BLOCK, done.size)):
                    target[done[c]] = out[done[c], r]
