"""Compiled sums over columns that no matrix product computes; imported only when one of them is called.

    city_block   out[i, j] = sum_k |X[i, k] - Y[j, k]|
    differing    out[i, j] = number of k with X[i, k] != Y[j, k]

`X` is copied to strips of eight rows and `Y` to panels of as many rows as a vector register has lanes. The sums of a strip
and a panel stay in registers while the features of both are read in the order in which they are stored. The packed copies
are the only temporary arrays. `benchmarks/cpu_products.py` prints the fraction of the processor's peak rate of additions
that these loops reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from gramless._core.compiled import simd as _simd
from gramless._core.compiled.compiler import numba

_STRIP_ROWS = 8
_VECTOR_BYTES = 4 * _simd.LANES


def _absolute_difference(builder: Any, x: Any, y: Any) -> Any:
    return _simd.call(builder, f"llvm.fabs.{_simd.suffix(x.type)}", x.type, builder.fsub(x, y))


def _differs(builder: Any, x: Any, y: Any) -> Any:
    return builder.uitofp(builder.fcmp_unordered("!=", x, y), x.type)


def _register_tile(term: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an intrinsic that sets `out[8][lanes]` to the sums of `term` over a packed strip and a packed panel."""

    @intrinsic
    def tile(context: Any, strip: Any, panel: Any, steps: Any, out: Any, number: Any) -> Any:
        signature = types.void(types.uintp, types.uintp, types.intp, types.uintp, number)
        kind = _simd.DOUBLES if number == types.float64 else _simd.FLOATS

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            strip, panel, out = (_simd.pointer(builder, arguments[i], kind.element) for i in (0, 1, 3))

            def step(k: Any, sums: Any) -> list[Any]:
                y = _simd.load(builder, _simd.at(builder, panel, _simd.times(builder, k, kind.count)), kind)
                here = _simd.at(builder, strip, _simd.times(builder, k, _STRIP_ROWS))
                new = []
                for i, total in enumerate(sums):
                    x = _simd.broadcast(builder, builder.load(_simd.at(builder, here, i)))
                    new.append(builder.fadd(total, term(builder, x, y)))
                return new

            for i, value in enumerate(_simd.accumulate(builder, arguments[2], _STRIP_ROWS, kind, step)):
                _simd.store(builder, value, _simd.at(builder, out, i * kind.count))
            return context.get_dummy_value()

        return signature, generate

    return tile


_absolute_tile = _register_tile(_absolute_difference)
_differing_tile = _register_tile(_differs)


@numba.njit(cache=True, nogil=True)
def _pack(X: np.ndarray, width: int) -> np.ndarray:
    """Return the rows in groups of `width`, transposed: shape (groups, columns, width), padded with zero rows."""
    n, d = X.shape
    out = np.zeros((-(-n // width), d, width), X.dtype)
    for i in range(n):
        there = out[i // width]
        for k in range(d):
            there[k, i % width] = X[i, k]
    return out


# One function for both sums instead of two closures, because numba does not load closures from its cache on disk.
@numba.njit(cache=True, nogil=True)
def _fill(X: np.ndarray, Y: np.ndarray, flat: np.ndarray, stride: int, absolute: bool) -> None:
    n, m, d = X.shape[0], Y.shape[0], X.shape[1]
    lanes = _VECTOR_BYTES // X.itemsize
    number = X.dtype.type(0)
    strips, panels = _pack(X, _STRIP_ROWS), _pack(Y, lanes)
    values = np.empty((_STRIP_ROWS, lanes), X.dtype)
    for p in range(panels.shape[0]):
        start, stop = p * lanes, min(m, (p + 1) * lanes)
        for s in range(strips.shape[0]):
            if absolute:
                _absolute_tile(strips[s:].ctypes.data, panels[p:].ctypes.data, d, values.ctypes.data, number)
            else:
                _differing_tile(strips[s:].ctypes.data, panels[p:].ctypes.data, d, values.ctypes.data, number)
            for r in range(min(_STRIP_ROWS, n - s * _STRIP_ROWS)):
                first = (s * _STRIP_ROWS + r) * stride + start
                target = flat[first : first + stop - start]
                for j in range(stop - start):
                    target[j] = values[r, j]


def _compute(X: np.ndarray, Y: np.ndarray, out: np.ndarray, absolute: bool) -> None:
    if 0 in out.shape or X.shape[1] == 0:
        out[...] = 0
        return
    # Conversion to one memory layout and one dtype limits numba to one compiled version for each precision.
    rows, others = np.ascontiguousarray(X, out.dtype), np.ascontiguousarray(Y, out.dtype)
    has_rows = out.strides[1] == out.itemsize and out.strides[0] >= out.shape[1] * out.itemsize
    target_block = out if has_rows else np.empty(out.shape, out.dtype)
    stride = target_block.strides[0] // target_block.itemsize
    flat = as_strided(target_block, ((len(target_block) - 1) * stride + target_block.shape[1],), (target_block.itemsize,))
    _fill(rows, others, flat, stride, absolute)
    if target_block is not out:
        out[...] = target_block


def city_block(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Set `out[i, j] = sum_k |X[i, k] - Y[j, k]|`, in the dtype of `out` (float32 or float64)."""
    _compute(X, Y, out, True)


def differing(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Set `out[i, j]` to the number of columns in which `X[i]` and `Y[j]` differ, in the dtype of `out`."""
    _compute(X, Y, out, False)
