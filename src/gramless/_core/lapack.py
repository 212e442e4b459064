"""In-place LAPACK factorisations that release Python's global interpreter lock (GIL).

SciPy's wrappers hold the GIL while LAPACK works, so that two threads factor small matrices no faster than one thread. The
same routines are available as C functions (`scipy.linalg.cython_lapack`), and calls through ctypes release the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from gramless._core.tuning import TUNING

_LETTER = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_POINTER, _TEXT = ctypes.c_void_p, ctypes.c_char_p


@cache
def _routine(module: Any, name: str, texts: int, pointers: int) -> tuple[Any, Any]:
    """Return a BLAS or LAPACK routine with the given numbers of string and pointer arguments, and its integer type."""
    capsule = module.__pyx_capi__[name]
    text_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    text_of.restype, text_of.argtypes = _TEXT, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = _POINTER, [ctypes.py_object, _TEXT]
    signature = text_of(capsule)
    integer = ctypes.c_int if b" int *" in signature else ctypes.c_int64  # SciPy may be built with 64-bit integers
    kind = ctypes.CFUNCTYPE(None, *[_TEXT] * texts, *[_POINTER] * pointers)
    return kind(pointer_of(capsule, signature)), integer


def _checked(A: np.ndarray) -> np.ndarray:
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.flags.f_contiguous or not A.flags.writeable:
        raise ValueError("expected a writeable square matrix in column-major order")
    return A


def _call(name: str, letters: list[bytes], A: np.ndarray, start: int = 0, size: int | None = None) -> int:
    """Call a LAPACK routine for the diagonal block of `size` rows from row `start`, by default all of `A`; return `info`."""
    n = len(_checked(A))
    routine, integer = _routine(cython_lapack, _LETTER[A.dtype] + name, len(letters), 4)
    rows, leading, failed = integer(n if size is None else size), integer(max(1, n)), integer(0)
    place = A.ctypes.data + A.itemsize * (n + 1) * start
    routine(*letters, ctypes.byref(rows), place, ctypes.byref(leading), ctypes.byref(failed))
    return int(failed.value)


def _multiply_below(A: np.ndarray, start: int, half: int, size: int) -> None:
    """Set `A_21 = -A_22 A_21 A_11` in the diagonal block of `size` rows from row `start`, where `A_11` has `half` rows."""
    n = len(A)
    routine, integer = _routine(cython_blas, _LETTER[A.dtype] + "trmm", 4, 7)
    number = ctypes.c_float if A.dtype == np.float32 else ctypes.c_double
    rows, columns, leading = integer(size - half), integer(half), integer(n)
    first = A.ctypes.data + A.itemsize * (n + 1) * start
    below, second = first + A.itemsize * half, first + A.itemsize * (n + 1) * half
    for side, triangle, factor in ((b"L", second, number(-1.0)), (b"R", first, number(1.0))):
        sizes = (ctypes.byref(rows), ctypes.byref(columns), ctypes.byref(factor))
        routine(side, b"L", b"N", b"N", *sizes, triangle, ctypes.byref(leading), below, ctypes.byref(leading))


def factor_lower_in_place(A: np.ndarray) -> int:
    """Replace the lower triangle of a column-major `A` by its Cholesky factor; return 0, or the number of a pivot <= 0."""
    return _call("potrf", [b"L"], A)


def invert_lower_in_place(L: np.ndarray) -> int:
    """Replace a column-major lower triangular matrix by its inverse; return 0, or the number of the first zero pivot.

    Matrices of the sizes in `TUNING.recursion_rows` are halved recursively. Most operations are then products of triangular
    blocks, up to twice as fast as LAPACK's routine.
    """
    n = len(_checked(L))
    if n > TUNING.recursion_rows[1]:
        return _call("trtri", [b"L", b"N"], L)
    return _invert_recursively(L, 0, n)


def _invert_recursively(L: np.ndarray, start: int, size: int) -> int:
    """Invert the diagonal block of `size` rows from row `start`. (A recursive closure would keep `L` in memory.)"""
    if size <= TUNING.recursion_rows[0]:
        failed = _call("trtri", [b"L", b"N"], L, start, size)
        return failed and failed + start
    half = -(-size // 2 // 8) * 8
    failed = _invert_recursively(L, start, half) or _invert_recursively(L, start + half, size - half)
    if not failed:
        _multiply_below(L, start, half, size)
    return failed


def gram_of_lower_in_place(L: np.ndarray) -> int:
    """Replace the lower triangle of a column-major `L` by the lower triangle of `L^T L`, in n^3 / 3 operations."""
    return _call("lauum", [b"L"], L)
