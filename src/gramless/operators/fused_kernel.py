"""The Triton kernel behind `gramless.operators.fused`; imported only where Triton and a CUDA device are there."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gramless._array import Array


@triton.jit
def _fused(
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
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    KIND: tl.constexpr,
    DEGREE: tl.constexpr,
    STRIP: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    SECOND: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * STRIP + tl.arange(0, STRIP)
    outputs = tl.arange(0, WIDTH)
    features = tl.arange(0, STEP)
    total = tl.zeros((STRIP, WIDTH), tl.float32)
    x_norms = tl.load(X_NORMS + rows)
    for start in tl.range(0, m, TILE):
        columns = start + tl.arange(0, TILE).to(tl.int64)
        products = tl.zeros((STRIP, TILE), tl.float32)
        for k in tl.range(0, D, STEP):
            x = tl.load(X + rows[:, None] * D + (k + features)[None, :])
            y = tl.load(Y + columns[None, :] * D + (k + features)[:, None])
            products = tl.dot(x, y, products)
        if KIND == 0:
            base = products * gamma + coef0
            values = base
            for _ in tl.static_range(DEGREE - 1):
                values = values * base
        else:
            y_norms = tl.load(Y_NORMS + columns)
            squares = tl.maximum(x_norms[:, None] + y_norms[None, :] - 2.0 * products, 0.0)
            if KIND == 1:
                values = tl.exp(-gamma * squares)
            else:
                values = tl.exp(-gamma * tl.sqrt(squares))
        v = tl.load(V + columns[:, None] * WIDTH + outputs[None, :])
        total = tl.dot(values, v, total, input_precision=SECOND)
    tl.store(OUT + rows[:, None] * WIDTH + outputs[None, :], total * scale)


def launch(
    X: Array,
    Y: Array,
    V: Array,
    out: Array,
    x_norms: Array,
    y_norms: Array,
    form: Any,
    strip: int,
    tile: int,
    step: int,
    second: str,
) -> None:
    """`out = K(X, Y) @ V` for operands padded to whole strips, tiles and steps."""
    _fused[(X.shape[0] // strip,)](
        X,
        Y,
        V,
        out,
        x_norms,
        y_norms,
        Y.shape[0],
        form.gamma,
        form.coef0,
        form.scale,
        D=X.shape[1],
        WIDTH=V.shape[1],
        KIND=form.kind,
        DEGREE=form.degree,
        STRIP=strip,
        TILE=tile,
        STEP=step,
        SECOND=second,
        num_stages=4,
        num_warps=8 if strip == 128 else 4,
    )
