"""Triton kernels of sequential minimal optimisation on a CUDA device; imported only if Triton is installed.

`solve_sets` solves the working sets of many problems in parallel, with one Triton program for each problem. All variables of
a working set stay in registers; an iteration reads two rows of the Gram matrix of the set and computes two reductions.
`add_rows` updates the gradients (slopes) of all variables in float64.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gramless._core.compiled.fused_kernel import kernel_function

_MASKED = tl.constexpr(1e300)
_MIN_CURVATURE = tl.constexpr(1e-12)


@triton.jit
def _extremes(top, i, beta, bottom, other_top, other_i, other_beta, other_bottom):
    """Combine two partial reductions to the largest upward slope with its variable, and the smallest downward slope."""
    other = (other_top > top) | ((other_top == top) & (other_i < i))
    return (
        tl.where(other, other_top, top),
        tl.where(other, other_i, i),
        tl.where(other, other_beta, beta),
        tl.minimum(bottom, other_bottom),
    )


@triton.jit
def _partner(gain, j, beta, fall, other_gain, other_j, other_beta, other_fall):
    """Combine two partial reductions to the largest gain with its variable."""
    other = (other_gain > gain) | ((other_gain == gain) & (other_j < j))
    return (
        tl.where(other, other_gain, gain),
        tl.where(other, other_j, j),
        tl.where(other, other_beta, beta),
        tl.where(other, other_fall, fall),
    )


@triton.jit
def _rising(slope, beta, upper, epsilon):
    return tl.where(beta < upper, slope + tl.where(beta < 0.0, epsilon, -epsilon), -_MASKED)


@triton.jit
def _falling(slope, beta, lower, epsilon):
    return tl.where(beta > lower, slope + tl.where(beta > 0.0, -epsilon, epsilon), _MASKED)


@triton.jit
def _solve_sets(GRAM, SLOPE, BETA, LOWER, UPPER, EPSILON, GOAL, MOST, MOVES, Q: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, Q)
    gram = GRAM + p * Q * Q
    slope = tl.load(SLOPE + p * Q + k)
    beta = tl.load(BETA + p * Q + k)
    lower = tl.load(LOWER + p * Q + k)
    upper = tl.load(UPPER + p * Q + k)
    epsilon = tl.load(EPSILON + p)
    goal = tl.load(GOAL + p)
    most = tl.load(MOST + p)
    diagonal = tl.load(gram + k * (Q + 1)).to(tl.float64)
    moves = 0
    fall = _falling(slope, beta, lower, epsilon)
    top, i, beta_i, bottom = tl.reduce((_rising(slope, beta, upper, epsilon), k, beta, fall), 0, _extremes)
    while (moves < most) & (top - bottom > goal):
        row_i = tl.load(gram + i * Q + k).to(tl.float64)
        diagonal_i = tl.load(gram + i * (Q + 1)).to(tl.float64)
        upper_i = tl.load(UPPER + p * Q + i)
        difference = tl.maximum(top - fall, 0.0).to(tl.float32)
        curvature = tl.maximum((diagonal_i + diagonal - 2.0 * row_i).to(tl.float32), _MIN_CURVATURE)
        _, j, beta_j, fall_j = tl.reduce((difference * difference / curvature, k, beta, fall), 0, _partner)
        row_j = tl.load(gram + j * Q + k).to(tl.float64)
        diagonal_j = tl.load(gram + j * (Q + 1)).to(tl.float64)
        lower_j = tl.load(LOWER + p * Q + j)
        between = tl.load(gram + i * Q + j).to(tl.float64)
        step = (top - fall_j) / tl.maximum(diagonal_i + diagonal_j - 2.0 * between, _MIN_CURVATURE)
        # If epsilon is positive, the slope jumps where a variable crosses zero, so a step ends at zero. A variable that
        # reaches its bound is set to the exact bound.
        end_i = tl.where(beta_i < 0.0, 0.0, upper_i)
        end_j = tl.where(beta_j > 0.0, 0.0, lower_j)
        room_i = end_i - beta_i
        room_j = beta_j - end_j
        step = tl.minimum(step, tl.minimum(room_i, room_j))
        beta = tl.where(k == i, tl.where(step == room_i, end_i, beta_i + step), beta)
        beta = tl.where(k == j, tl.where(step == room_j, end_j, beta_j - step), beta)
        slope -= step * (row_i - row_j)
        fall = _falling(slope, beta, lower, epsilon)
        top, i, beta_i, bottom = tl.reduce((_rising(slope, beta, upper, epsilon), k, beta, fall), 0, _extremes)
        moves += 1
    tl.store(BETA + p * Q + k, beta)
    tl.store(MOVES + p, moves)


@triton.jit
def _add_rows(K, ROWS, WEIGHTS, COUNTS, COLUMNS, WHICH, OUT, n, q, stride, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    a = tl.program_id(0).to(tl.int64)
    p = tl.load(WHICH + a)
    place = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = place < n
    columns = tl.load(COLUMNS + p * n + place, mask=valid, other=0)
    count = tl.load(COUNTS + a)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in tl.range(0, count, GROUP):
        # This loop is unrolled, so that the loads of a group of rows overlap; weights beyond the last row are zero.
        for g in tl.static_range(GROUP):
            r = start + g
            weight = tl.load(WEIGHTS + a * q + r, mask=r < count, other=0.0)
            row = tl.load(ROWS + a * q + r, mask=r < count, other=0)
            total += weight * tl.load(K + row * stride + columns).to(tl.float64)
    target = OUT + p * n + place
    tl.store(target, tl.load(target, mask=valid, other=0.0) + total, mask=valid)


@triton.jit
def _add_from_points(
    X,
    NORMS,
    ROWS,
    WEIGHTS,
    OUT,
    count,
    first,
    n,
    gamma,
    coef0,
    scale,
    D: tl.constexpr,
    KIND: tl.constexpr,
    DEGREE: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = place < n
    columns = first + place
    y_norms = tl.load(NORMS + columns, mask=valid, other=0.0)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in tl.range(0, count, GROUP):
        r = start + tl.arange(0, GROUP)
        rows = tl.load(ROWS + r, mask=r < count, other=0)
        weights = tl.load(WEIGHTS + r, mask=r < count, other=0.0)
        x_norms = tl.load(NORMS + rows)
        products = tl.zeros((GROUP, BLOCK), tl.float32)
        for k in tl.range(0, D, STEP):
            features = k + tl.arange(0, STEP)
            x = tl.load(X + rows[:, None] * D + features[None, :])
            y = tl.load(X + columns[None, :] * D + features[:, None], mask=valid[None, :], other=0.0)
            # tf32x3: the sum of three tf32 products has about the accuracy of one float32 product.
            products = tl.dot(x, y, products, input_precision="tf32x3")
        values = kernel_function(products, x_norms, y_norms, gamma, coef0, KIND, DEGREE)
        total += tl.sum(weights[:, None] * values.to(tl.float64), 0)
    target = OUT + place
    tl.store(target, tl.load(target, mask=valid, other=0.0) + total * scale, mask=valid)


def solve_sets(
    gram: Any, slope: Any, beta: Any, lower: Any, upper: Any, epsilon: Any, goal: Any, most: Any, moves: Any
) -> None:
    """Maximise the dual over the working set of each problem; `beta` and `moves` are updated in place.

    All arrays have one row for each problem; the size of a working set must be a power of two.
    """
    q = gram.shape[-1]
    _solve_sets[(len(gram),)](
        gram, slope, beta, lower, upper, epsilon, goal, most, moves, Q=q, num_warps=min(16, max(4, q // 128))
    )


def add_rows(K: Any, rows: Any, weights: Any, counts: Any, columns: Any, which: Any, out: Any) -> None:
    """Compute `out[which[a]] += weights[a, :counts[a]] @ K[rows[a, :counts[a]]][:, columns[which[a]]]` for every `a`."""
    n = columns.shape[1]
    _add_rows[(len(which), triton.cdiv(n, 256))](
        K, rows, weights, counts, columns, which, out, n, rows.shape[1], K.stride(0), GROUP=8, BLOCK=256, num_warps=4
    )


def add_from_points(X: Any, norms: Any, rows: Any, weights: Any, out: Any, first: int, form: Any) -> None:
    """Compute `out += weights @ K(X[rows], X[first : first + len(out)])` without storing kernel values.

    The number of columns of `X` must be a multiple of 16.
    """
    n, d = len(out), X.shape[1]
    _add_from_points[(triton.cdiv(n, 128),)](
        X,
        norms,
        rows,
        weights,
        out,
        len(rows),
        first,
        n,
        form.gamma,
        form.coef0,
        form.scale,
        D=d,
        KIND=form.kind,
        DEGREE=form.degree,
        GROUP=64,
        BLOCK=128,
        STEP=64 if d % 64 == 0 else (32 if d % 32 == 0 else 16),
        num_warps=8,
    )
