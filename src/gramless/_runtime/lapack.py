"""LAPACK's factorisations in place, without Python's lock, so that several run side by side in threads.

SciPy's wrappers hold the lock of the interpreter while LAPACK works: two threads that factor small matrices take as long as
one. The same routines are at hand as C functions (`scipy.linalg.cython_lapack`), and what ctypes calls runs without the
lock.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

_LETTER = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_POINTER, _TEXT = ctypes.c_void_p, ctypes.c_char_p


@cache
def _routine(name: str, texts: int) -> tuple[Any, Any]:
    """A routine that takes so many letters, a size, a matrix, its leading dimension and a place for its answer."""
    capsule = cython_lapack.__pyx_capi__[name]
    text_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    text_of.restype, text_of.argtypes = _TEXT, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = _POINTER, [ctypes.py_object, _TEXT]
    signature = text_of(capsule)
    integer = ctypes.c_int if b" int *" in signature else ctypes.c_int64  # SciPy may be built with long integers
    kind = ctypes.CFUNCTYPE(None, *[_TEXT] * texts, _POINTER, _POINTER, _POINTER, _POINTER)
    return kind(pointer_of(capsule, signature)), integer


def _call(name: str, letters: list[bytes], A: np.ndarray) -> int:
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.flags.f_contiguous or not A.flags.writeable:
        raise ValueError("a square matrix in the order of columns is needed, and one that may be written to")
    routine, integer = _routine(_LETTER[A.dtype] + name, len(letters))
    n, failed = integer(len(A)), integer(0)
    routine(*letters, ctypes.byref(n), A.ctypes.data, ctypes.byref(n), ctypes.byref(failed))
    return int(failed.value)


def factor_lower_in_place(A: np.ndarray) -> int:
    """The lower Cholesky factor over the lower triangle of a column-major `A`; gives the first pivot that fails, or 0."""
    return _call("potrf", [b"L"], A)


def invert_lower_in_place(L: np.ndarray) -> int:
    """The inverse of a lower triangular matrix over its lower triangle, column-major; gives the first zero pivot, or 0."""
    return _call("trtri", [b"L", b"N"], L)


def gram_of_lower_in_place(L: np.ndarray) -> int:
    """`L^T L` of a lower triangular matrix over its lower triangle, column-major, in a third of a product's operations."""
    return _call("lauum", [b"L"], L)
