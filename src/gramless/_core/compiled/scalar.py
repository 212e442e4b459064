"""Scalar functions that loops vectorise over: larger and smaller of two numbers, and the exponential in single precision.

Compilers turn a loop over Python's `max` into scalar code, because a comparison says nothing about NaN; these are LLVM's own
instructions with the promise that no NaN comes. The exponential is a polynomial after the power of two is taken out, correct
to two units in the last place for what kernels ask of it: arguments at or below zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gramless._core.compiled.compiler import numba

# exp(x) = 2^k exp(r), r = x - k log 2; minus log 2 is in two parts so that products with k are exact (Cody and Waite 1980).
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH = np.float32(-0.693359375)
_LN2_LOW = np.float32(2.12194440e-4)
SMALLEST = np.float32(-69.0)
"""Below this, 1e-30, the exponential is zero. No sum of kernel values in single precision sees less, and products of much
smaller numbers with coefficients would be subnormal, for which many processors take a hundred times as long."""
# Coefficients of (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2 for the smallest largest error (Moshier, Cephes library, 1992).
_P = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def _without_nan(name: str) -> Any:
    @intrinsic
    def function(context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = arguments[0].type
            suffix = "f32" if signature.return_type == types.float32 else "f64"
            called = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind, kind]), f"llvm.{name}.{suffix}"
            )
            return builder.call(called, arguments, fastmath=("nnan", "nsz"))

        return a(a, a), generate

    return function


larger = _without_nan("maxnum")
"""The larger of two numbers of one type, neither of them NaN."""

smaller = _without_nan("minnum")
"""The smaller of two numbers of one type, neither of them NaN."""


@intrinsic
def _nearest(context: Any, x: Any) -> Any:
    """The nearest integer, as a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FloatType()
        called = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), "llvm.rint.f32")
        return builder.call(called, arguments)

    return types.float32(types.float32), generate


@intrinsic
def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a * b + c` rounded once, in this very order whatever the caller allows its compiler."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FloatType()
        called = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), "llvm.fma.f32")
        return builder.call(called, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def _from_bits(context: Any, x: Any) -> Any:
    """The float32 that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@numba.njit(inline="always")
def exp32(x: Any) -> Any:
    """`exp(x)` for a float32 `x` of at most zero."""
    counts = x >= SMALLEST
    x = larger(x, SMALLEST)
    k: Any = _nearest(x * _LOG2E)  # type: ignore[call-arg]
    r = _fma(k, _LN2_LOW, _fma(k, _LN2_HIGH, x))
    p = _fma(_P[0], r, _P[1])
    p = _fma(p, r, _P[2])
    p = _fma(p, r, _P[3])
    p = _fma(p, r, _P[4])
    p = _fma(p, r, _P[5])
    p = _fma(p * r, r, r) + np.float32(1.0)
    value = p * _from_bits(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)))
    return value if counts else np.float32(0.0)
