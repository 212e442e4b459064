"""Compiled loops of sequential minimal optimisation; imported only when a support vector machine is fitted.

`solve_working_set` is SMO on a problem small enough to hold its Gram matrix: each iteration reads two rows of it,
O(q). Its loops are written as plain reductions, value first and index after, because that form vectorises and an
arg-max does not.
"""

from __future__ import annotations

import numba
import numpy as np

# Infinities are kept out (a large finite number masks) so that these flags stay sound.
_VECTORISE = {"nnan", "nsz", "reassoc", "contract", "arcp"}
_MASKED = 1e300
_MIN_CURVATURE = 1e-12
_COLUMNS = 2048


@numba.njit(cache=True, nogil=True, fastmath=_VECTORISE)
def solve_working_set(
    K: np.ndarray,
    slope: np.ndarray,
    beta: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tol: float,
    max_iter: int,
) -> int:
    """Maximise over the working set in place; gives the number of pairs moved.

    `slope` is the gradient `linear - K beta`. Each iteration raises the variable with the largest slope and lowers the
    partner that promises the largest gain (slope difference squared over curvature), until no two differ by more than `tol`.
    """
    q = slope.size
    rise = np.empty(q)  # 0 where beta may rise, very negative where it may not
    fall = np.empty(q)
    gain = np.empty(q)
    diagonal = np.empty(q)
    top = -_MASKED
    bottom = _MASKED
    for k in range(q):
        diagonal[k] = K[k, k]
        rise[k] = 0.0 if beta[k] < upper[k] else -_MASKED
        fall[k] = 0.0 if beta[k] > lower[k] else _MASKED
        top = max(top, slope[k] + rise[k])
        bottom = min(bottom, slope[k] + fall[k])

    iterations = 0
    while iterations < max_iter and top - bottom > tol:
        i = 0
        while i < q - 1 and slope[i] + rise[i] != top:
            i += 1
        row_i = K[i]
        best = -1.0
        for k in range(q):
            difference = max(top - (slope[k] + fall[k]), 0.0)
            curvature = max(diagonal[i] + diagonal[k] - 2.0 * row_i[k], _MIN_CURVATURE)
            gain[k] = difference * difference / curvature
            best = max(best, gain[k])
        j = 0
        while j < q - 1 and gain[j] != best:
            j += 1
        row_j = K[j]

        step = (top - slope[j]) / max(diagonal[i] + diagonal[j] - 2.0 * row_i[j], _MIN_CURVATURE)
        room_i = upper[i] - beta[i]
        room_j = beta[j] - lower[j]
        step = min(step, room_i, room_j)
        # A bound that is reached is reached exactly: rounding must not leave a variable a hair inside it.
        beta[i] = upper[i] if step == room_i else beta[i] + step
        beta[j] = lower[j] if step == room_j else beta[j] - step
        rise[i] = 0.0 if beta[i] < upper[i] else -_MASKED
        fall[i] = 0.0 if beta[i] > lower[i] else _MASKED
        rise[j] = 0.0 if beta[j] < upper[j] else -_MASKED
        fall[j] = 0.0 if beta[j] > lower[j] else _MASKED

        top = -_MASKED
        bottom = _MASKED
        for k in range(q):
            value = slope[k] - step * (row_i[k] - row_j[k])
            slope[k] = value
            top = max(top, value + rise[k])
            bottom = min(bottom, value + fall[k])
        iterations += 1
    return iterations


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def add_rows(rows: np.ndarray, slots: np.ndarray, weights: np.ndarray, total: np.ndarray) -> None:
    """`total += weights @ rows[slots]`, accumulated in double precision.

    One cache-sized strip of columns at a time, and four rows for each pass over it: the strip is read and written four
    times less often.
    """
    by_four = slots.size - slots.size % 4
    for start in range(0, total.size, _COLUMNS):
        stop = min(start + _COLUMNS, total.size)
        for r in range(0, by_four, 4):
            a, b, c, d = rows[slots[r]], rows[slots[r + 1]], rows[slots[r + 2]], rows[slots[r + 3]]
            wa, wb, wc, wd = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
            for k in range(start, stop):
                total[k] += (wa * a[k] + wb * b[k]) + (wc * c[k] + wd * d[k])
        for r in range(by_four, slots.size):
            row, weight = rows[slots[r]], weights[r]
            for k in range(start, stop):
                total[k] += weight * row[k]


@numba.njit(cache=True, nogil=True)
def gather(rows: np.ndarray, slots: np.ndarray, columns: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """`out[at[r]] = rows[slots[r], columns]`."""
    for r in range(slots.size):
        row = rows[slots[r]]
        target = out[at[r]]
        for c in range(columns.size):
            target[c] = row[columns[c]]
