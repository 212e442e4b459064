"""Subnormal numbers taken for zero while a loop sums, on x86 processors.

Numbers below 1e-38 in single precision are stored in another form, with which many processors compute a hundred times as
slowly. Products of the kernel values of points far apart with small coefficients are such numbers by the million, and
nothing beside a sum of others. The processor's mode belongs to the thread, and whoever changes it puts it back.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gramless._core.compiled import simd as _simd

# Of the control register: results that are subnormal become zero, and operands that are subnormal count as zero.
_FLUSH, _AS_ZERO = 1 << 15, 1 << 6


def _transfer(builder: Any, name: str, place: Any) -> None:
    bytes_ = builder.bitcast(place, ir.IntType(8).as_pointer())
    _simd.call(builder, f"llvm.x86.sse.{name}", ir.VoidType(), bytes_)


@intrinsic
def flush_subnormals(context: Any) -> Any:
    """Take subnormal numbers for zero from here on; gives the mode before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, _simd.I32)
        _transfer(builder, "stmxcsr", place)
        before = builder.load(place)
        builder.store(builder.or_(before, ir.Constant(_simd.I32, _FLUSH | _AS_ZERO)), place)
        _transfer(builder, "ldmxcsr", place)
        return before

    return types.uint32(), generate


@intrinsic
def restore_subnormals(context: Any, mode: Any) -> Any:
    """Back to the mode that `flush_subnormals` gave."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once_value(builder, arguments[0])
        _transfer(builder, "ldmxcsr", place)
        return context.get_dummy_value()

    return types.void(types.uint32), generate
