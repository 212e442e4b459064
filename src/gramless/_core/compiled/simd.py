"""Building blocks for compiled loops whose sums stay in vector registers.

A matrix product reaches the peak rate of the processor only if a small tile of the result stays in registers while the
operands are read. Compilers do not generate such code from plain loops, so the innermost loops are written with LLVM vector
types, which numba compiles. A vector has `LANES` numbers of 32 bits or half as many of 64 bits; `LANES` is 16 with AVX-512
and 8 with AVX2. Callers use other code if `lanes()` is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()


@cache
def available(*features: str) -> bool:
    """Return True if numba compiles for a processor with these features, such as `"avx512vnni"`.

    numba uses the features in `NUMBA_CPU_FEATURES`, by default those of the host; False if only `NUMBA_CPU_NAME` is set.
    """
    import numba

    settings: Any = numba.config
    if settings.DISABLE_JIT or not settings.ENABLE_AVX:
        return False
    if settings.CPU_FEATURES is not None:
        return {f"+{feature}" for feature in features} <= set(settings.CPU_FEATURES.split(","))
    host = binding.get_host_cpu_features()
    return not settings.CPU_NAME and all(host.get(feature, False) for feature in features)


def lanes() -> int:
    """Return the number of 32-bit lanes of a vector: 16 with AVX-512, 8 with AVX2 and FMA, 0 otherwise."""
    if available("avx512f"):
        return 16
    return 8 if available("avx2", "fma") else 0


LANES = lanes() or 8
INTEGERS = ir.VectorType(I32, LANES)
FLOATS = ir.VectorType(F32, LANES)
HALF_FLOATS = ir.VectorType(F32, LANES // 2)
DOUBLES = ir.VectorType(F64, LANES // 2)


def pointer(builder: Any, address: Any, to: Any) -> Any:
    """Return an integer address as a typed pointer."""
    return builder.inttoptr(address, to.as_pointer())


def at(builder: Any, base: Any, offset: Any) -> Any:
    """Return the pointer `base + offset`, where `offset` is a number of elements: an int or an LLVM value."""
    return builder.gep(base, [ir.Constant(I64, offset) if isinstance(offset, int) else offset])


def times(builder: Any, value: Any, factor: int) -> Any:
    return builder.mul(value, ir.Constant(I64, factor))


def load(builder: Any, base: Any, kind: Any) -> Any:
    """Load a vector from memory that is aligned to four bytes only."""
    value = builder.load(builder.bitcast(base, kind.as_pointer()))
    value.align = 4
    return value


def store(builder: Any, value: Any, base: Any) -> None:
    builder.store(value, builder.bitcast(base, value.type.as_pointer())).align = 4


def broadcast(builder: Any, scalar: Any) -> Any:
    """Return a vector with the scalar in every lane."""
    count = LANES // 2 if scalar.type == F64 else LANES
    undefined = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, count), [0] * count))


def prefetch(builder: Any, base: Any) -> None:
    """Prefetch the cache line at an address, which may be outside of the array."""
    address = builder.bitcast(base, ir.IntType(8).as_pointer())
    call(builder, "llvm.prefetch", ir.VoidType(), address, *(ir.Constant(I32, number) for number in (0, 3, 1)))


def call(builder: Any, name: str, result: Any, *arguments: Any, fastmath: tuple[str, ...] = ()) -> Any:
    """Generate a call of an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments, fastmath=fastmath)


def accumulate(
    builder: Any, steps: Any, n_sums: int, kind: Any, step: Callable[[Any, Sequence[Any]], Sequence[Any]]
) -> Sequence[Any]:
    """Generate a loop of `sums = step(k, sums)` over k < steps (at least k = 0) from `n_sums` zero sums; return `sums`."""
    before = builder.block
    loop = builder.append_basic_block("loop")
    after = builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(I64)
    k.add_incoming(ir.Constant(I64, 0), before)
    zero = ir.Constant(kind, [0 if kind == INTEGERS else 0.0] * kind.count)
    sums = [builder.phi(kind) for _ in range(n_sums)]
    for value in sums:
        value.add_incoming(zero, before)
    new = step(k, sums)
    following = builder.add(k, ir.Constant(I64, 1))
    k.add_incoming(following, builder.block)
    for value, replacement in zip(sums, new, strict=True):
        value.add_incoming(replacement, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
    builder.position_at_end(after)
    return new


def tile_step(
    builder: Any,
    strip: Any,
    panel: Any,
    shape: tuple[int, int],
    vectors: Sequence[int],
    kind: Any,
    add: Callable[[Any, Any, Any, Any], Any],
) -> Callable[[Any, Sequence[Any]], Sequence[Any]]:
    """Return a step of `accumulate` for a strip and a panel of `shape[0]` and `shape[1]` rows, stored feature by feature.

    The step replaces each sum by `add(builder, sum, x, y)`: x is the feature k of a row of the strip, broadcast to a vector,
    and y is a vector with the feature k of several rows of the panel.
    """

    def step(k: Any, sums: Sequence[Any]) -> Sequence[Any]:
        here = at(builder, panel, times(builder, k, shape[1]))
        right = [load(builder, at(builder, here, kind.count * v), kind) for v in vectors]
        here = at(builder, strip, times(builder, k, shape[0]))
        new: list[Any] = []
        for i in range(shape[0]):
            left = broadcast(builder, builder.load(at(builder, here, i)))
            new += [add(builder, total, left, y) for total, y in zip(sums[i * len(right) :], right, strict=False)]
        return new

    return step


def _vectors(entry: Any, number: Any) -> tuple[Any, Any]:
    """Return the vector types in which entries of a tile are loaded and summed, given the dtypes of the tile and of V."""
    if number == types.float32:
        return FLOATS, FLOATS
    return DOUBLES if entry == types.float64 else HALF_FLOATS, DOUBLES


def product(multiply: Callable[..., None], widths: Sequence[int]) -> Any:
    """Return an intrinsic that multiplies `entries` by a few columns V and keeps all sums in registers.

    The intrinsic runs the code that `multiply` generates for the argument `columns`, one of `widths`. One call computes one
    group of columns, which starts at the given addresses. `entry` and `number` only pass the dtypes of the tile and of V.
    """

    @intrinsic
    def times_columns(
        context: Any, entries: Any, stride: Any, V: Any, steps: Any, out: Any, entry: Any, number: Any, columns: Any
    ) -> Any:
        address = types.uintp
        signature = types.void(address, types.intp, address, types.intp, address, entry, number, types.intp)
        stored, summed = _vectors(entry, number)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            entries = pointer(builder, arguments[0], stored.element)
            V, out = (pointer(builder, arguments[i], summed.element) for i in (2, 4))
            for width in widths:
                with builder.if_then(builder.icmp_signed("==", arguments[7], ir.Constant(I64, width))):
                    multiply(builder, entries, arguments[1], V, arguments[3], out, stored, summed, width)
            return context.get_dummy_value()

        return signature, generate

    return times_columns


def suffix(kind: Any) -> str:
    """Return the suffix of LLVM intrinsics for a floating-point number or a vector of such numbers."""
    element = getattr(kind, "element", kind)
    return f"{'' if element is kind else f'v{kind.count}'}f{64 if element == F64 else 32}"


def add_lanes(builder: Any, vector: Any, start: Any) -> Any:
    """Return `start` plus the sum of the lanes, in any order."""
    name = f"llvm.vector.reduce.fadd.{suffix(vector.type)}"
    return call(builder, name, start.type, start, vector, fastmath=("reassoc",))


# Bits of the control register MXCSR: flush subnormal results to zero, and treat subnormal operands as zero.
_FLUSH_TO_ZERO, _OPERANDS_AS_ZERO = 1 << 15, 1 << 6


def _transfer(builder: Any, name: str, place: Any) -> None:
    bytes_ = builder.bitcast(place, ir.IntType(8).as_pointer())
    call(builder, f"llvm.x86.sse.{name}", ir.VoidType(), bytes_)


@intrinsic
def flush_subnormals(context: Any) -> Any:
    """Make the calling thread treat subnormal numbers as zero; return the previous mode for `restore_subnormals`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, I32)
        _transfer(builder, "stmxcsr", place)
        before = builder.load(place)
        builder.store(builder.or_(before, ir.Constant(I32, _FLUSH_TO_ZERO | _OPERANDS_AS_ZERO)), place)
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
