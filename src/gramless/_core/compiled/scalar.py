"""Scalar functions that the compiler can vectorise in loops: maximum, minimum and the float32 exponential.

The compiler does not vectorise Python's `max`, because its result for NaN depends on the order of the arguments; `larger`
and `smaller` are LLVM intrinsics with the flag that no argument is NaN. The exponential is a power of two times a
polynomial, with an error of at most two units in the last place, for the arguments that kernels need: at most zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from gramless._core.compiled import simd
from gramless._core.compiled.compiler import numba

# exp(x) = 2^k exp(r) with r = x - k log 2. -log 2 is the sum of two constants, so that the product of k with the first
# constant is exact (Cody and Waite 1980).
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH = np.float32(-0.693359375)
_LN2_LOW = np.float32(2.12194440e-4)
SMALLEST = np.float32(-69.0)
"""Argument below which `exp32` returns zero: exp(-69) is 1e-30, below the rounding error of float32 sums of kernel values.
Products of smaller values and coefficients could be subnormal numbers, with which many processors are 100 times slower."""
# Minimax polynomial of (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2, highest power first (Moshier, Cephes library, 1992).
_P = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def _without_nan(name: str) -> Any:
    @intrinsic
    def function(context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = arguments[0].type
            return simd.call(builder, f"llvm.{name}.{simd.suffix(kind)}", kind, *arguments, fastmath=("nnan", "nsz"))

        return a(a, a), generate

    return function


larger = _without_nan("maxnum")
"""Maximum of two numbers of the same type; the result is undefined if one is NaN."""

smaller = _without_nan("minnum")
"""Minimum of two numbers of the same type; the result is undefined if one is NaN."""


@intrinsic
def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return `a * b + c` rounded once; fast-math flags of the calling loop do not change the order of these operations."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return simd.call(builder, "llvm.fma.f32", simd.F32, *arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@numba.njit(inline="always")
def exp32(x: Any) -> Any:
    """Return `exp(x)` for a float32 `x` of at most zero."""
    is_nonzero = x >= SMALLEST
    x = larger(x, SMALLEST)
    k: Any = np.rint(x * _LOG2E)
    r: Any = _fma(k, _LN2_LOW, _fma(k, _LN2_HIGH, x))  # type: ignore[call-arg]
    p = _fma(_P[0], r, _P[1])
    p = _fma(p, r, _P[2])
    p = _fma(p, r, _P[3])
    p = _fma(p, r, _P[4])
    p = _fma(p, r, _P[5])
    p = _fma(p * r, r, r) + np.float32(1.0)
    value = p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    return value if is_nonzero else np.float32(0.0)
