"""Treatment of subnormal numbers as zero during a loop, on x86 processors.

Many processors are about a hundred times slower with subnormal numbers (below 1e-38 in float32). Products of kernel values
of distant points with small coefficients often are subnormal, and too small to change the sums that they are added to. The
mode belongs to the thread, so a loop that sets it also restores the previous mode.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gramless._core.compiled import simd as _simd

# Bits of the control register MXCSR: flush subnormal results to zero, and treat subnormal operands as zero.
_FLUSH_TO_ZERO, _OPERANDS_AS_ZERO = 1 << 15, 1 << 6


def _transfer(builder: Any, name: str, place: Any) -> None:
    bytes_ = builder.bitcast(place, ir.IntType(8).as_pointer())
    _simd.call(builder, f"llvm.x86.sse.{name}", ir.VoidType(), bytes_)


@intrinsic
def flush_subnormals(context: Any) -> Any:
    """Treat subnormal numbers as zero from now on; return the previous mode."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, _simd.I32)
        _transfer(builder, "stmxcsr", place)
        before = builder.load(place)
        builder.store(builder.or_(before, ir.Constant(_simd.I32, _FLUSH_TO_ZERO | _OPERANDS_AS_ZERO)), place)
        _transfer(builder, "ldmxcsr", place)
        return before

    return types.uint32(), generate


@intrinsic
def restore_subnormals(context: Any, mode: Any) -> Any:
    """Restore the mode that `flush_subnormals` returned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once_value(builder, arguments[0])
        _transfer(builder, "ldmxcsr", place)
        return context.get_dummy_value()

    return types.void(types.uint32), generate
