"""Triton kernels of `gramless.linalg.operators.fused`; imported only if Triton and a CUDA device are available."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def kernel_function(products, x_norms, y_norms, gamma, coef0, KIND: tl.constexpr, DEGREE: tl.constexpr):
    """Return a tile of kernel values, in registers, computed from inner products and squared norms."""
    if KIND == 0:
        base = products * gamma + coef0
        values = base
        for _ in tl.static_range(DEGREE - 1):
            values = values * base
    else:
        squares = tl.maximum(x_norms[:, None] + y_norms[None, :] - 2.0 * products, 0.0)
        t = gamma * (squares if KIND == 1 else tl.sqrt(squares))
        values = tl.exp(-t)
        if KIND == 3:
            values = values * (1.0 + t)
        if KIND == 4:
            values = values * (1.0 + t + t * t / 3.0)
    return values


@triton.jit
def _values(
    X,
    Y,
    X_NORMS,
    Y_NORMS,
    rows,
    columns,
    gamma,
    coef0,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    KIND: tl.constexpr,
    DEGREE: tl.constexpr,
    STRIP: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
):
    """Compute one tile of the kernel matrix in registers."""
    LENGTH: tl.constexpr = PART * PARTS
    # If each number is the sum of two parts (high, low), an inner product needs three products: high by high, high by low
    # and low by high. The product low by low is omitted.
    DEPTH: tl.constexpr = PART if PARTS == 1 else 3 * PART
    features = tl.arange(0, STEP)
    products = tl.zeros((STRIP, TILE), tl.float32)
    for k in tl.range(0, DEPTH, STEP):
        left = k
        right = k
        if PARTS == 2:
            left = tl.where(k < PART, k, k - PART)
            right = tl.where(k < 2 * PART, k, k - 2 * PART)
        x = tl.load(X + rows[:, None] * LENGTH + (left + features)[None, :])
        y = tl.load(Y + columns[None, :] * LENGTH + (right + features)[:, None])
        products = tl.dot(x, y, products)
    x_norms = tl.load(X_NORMS + rows)
    y_norms = tl.load(Y_NORMS + columns)
    return kernel_function(products, x_norms, y_norms, gamma, coef0, KIND, DEGREE)


@triton.jit
def _product(
    X,
    Y,
    V,
    OUT,
    X_NORMS,
    Y_NORMS,
    m,
    gamma,
    coef0,
    scale,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    KIND: tl.constexpr,
    DEGREE: tl.constexpr,
    STRIP: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * STRIP + tl.arange(0, STRIP)
    outputs = tl.arange(0, WIDTH)
    total = tl.zeros((STRIP, WIDTH), tl.float32)
    lost = tl.zeros((STRIP, WIDTH), tl.float32)
    for start in tl.range(0, m, TILE):
        columns = start + tl.arange(0, TILE).to(tl.int64)
        values = _values(X, Y, X_NORMS, Y_NORMS, rows, columns, gamma, coef0, PART, PARTS, KIND, DEGREE, STRIP, TILE, STEP)
        v = tl.load(V + columns[:, None] * WIDTH + outputs[None, :])
        high = values.to(tl.bfloat16)
        low = (values - high.to(tl.float32)).to(tl.bfloat16)
        # Tensor cores truncate sums instead of rounding them, and the bias grows with the number of terms. Each tile
        # therefore has its own sum, and Kahan's compensated summation adds the sums of the tiles.
        part = tl.dot(low, v, tl.dot(high, v)) - lost
        new = total + part
        lost = (new - total) - part
        total = new
    tl.store(OUT + rows[:, None] * WIDTH + outputs[None, :], total * scale)


@triton.jit
def _block(
    X,
    Y,
    OUT,
    X_NORMS,
    Y_NORMS,
    m,
    gamma,
    coef0,
    scale,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    KIND: tl.constexpr,
    DEGREE: tl.constexpr,
    STRIP: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * STRIP + tl.arange(0, STRIP)
    columns = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    values = _values(X, Y, X_NORMS, Y_NORMS, rows, columns, gamma, coef0, PART, PARTS, KIND, DEGREE, STRIP, TILE, STEP)
    tl.store(OUT + rows[:, None] * m + columns[None, :], values * scale)


def launch_product(left: Any, right: Any, V: Any, out: Any, form: Any, strip: int, tile: int, step: int) -> None:
    """Set `out = K(left, right) @ V` for operands padded to full strips, tiles and steps, with at least two steps."""
    arguments = _arguments(left, right, form, strip, tile, step)
    warps = 8 if strip == 128 else 4
    _product[(left.data.shape[0] // strip,)](V=V, OUT=out, WIDTH=V.shape[1], **arguments, num_stages=3, num_warps=warps)


def launch_block(left: Any, right: Any, out: Any, form: Any, strip: int, tile: int, step: int) -> None:
    """Set `out = K(left, right)`; as in `launch_product`, the kernel values are those of the rounded points."""
    grid = left.data.shape[0] // strip, right.data.shape[0] // tile
    _block[grid](OUT=out, **_arguments(left, right, form, strip, tile, step), num_stages=3, num_warps=8)


def _arguments(left: Any, right: Any, form: Any, strip: int, tile: int, step: int) -> dict[str, Any]:
    """Return the arguments that `_product` and `_block` have in common."""
    points = {"X": left.data, "Y": right.data, "X_NORMS": left.norms, "Y_NORMS": right.norms, "m": right.data.shape[0]}
    function = {"gamma": form.gamma, "coef0": form.coef0, "scale": form.scale, "KIND": form.kind, "DEGREE": form.degree}
    return {**points, **function, "PART": left.width, "PARTS": left.parts, "STRIP": strip, "TILE": tile, "STEP": step}
