"""Array operations that the array API standard lacks, for NumPy arrays, torch tensors and SciPy sparse matrices.

Other modules call operations of the standard through `namespace(x)`. This module provides products written to a given
buffer, in-place elementwise functions, factorisations that overwrite their input, and copies between devices.
"""

from __future__ import annotations

import importlib.util
import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.lib.stride_tricks import as_strided

from gramless._core import grid as _grid
from gramless._core.device import Device
from gramless._core.threads import blas_threads, one_blas_thread
from gramless._core.tiled_factor import add_lower_gram_, factor_lower_
from gramless._core.tuning import TUNING

try:
    from array_api_compat import array_namespace, is_torch_array
except ImportError:  # scikit-learn contains a copy of array_api_compat
    from sklearn.externals.array_api_compat import array_namespace, is_torch_array


Array: TypeAlias = Any
"""A NumPy array or torch tensor; some functions also accept SciPy CSR matrices or `gramless._core.grid.GridRows`."""


class NotPositiveDefiniteError(ArithmeticError):
    """Raised by a Cholesky factorisation at a pivot that is not positive."""


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace (of NumPy or torch) of the dense arrays among `arrays`."""
    dense = [a for a in arrays if a is not None and not sp.issparse(a)]
    return array_namespace(*dense) if dense else array_namespace(np.empty(0))


def is_torch(x: Any) -> TypeGuard[Any]:
    """Return True for torch tensors, without importing torch."""
    return is_torch_array(x)


def is_sparse(x: Any) -> TypeGuard[Any]:
    """Return True for SciPy sparse matrices and arrays."""
    return sp.issparse(x)


def is_grid(x: Any) -> bool:
    """Return True if `x` is a `GridRows` matrix, whose entries are stored as bytes."""
    return isinstance(x, _grid.GridRows)


def import_torch() -> Any:
    """Import and return torch; raise `ImportError` with the installation command if torch is not installed."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "device other than 'cpu' needs torch: pip install 'gramless[gpu]' (or leave device='cpu')"
        ) from error
    return torch


def device_of(x: Array) -> str:
    """Return the device of `x` as text: `"cpu"` for NumPy and sparse data; `"torch:cpu"`, `"cuda:0"` etc. for tensors."""
    if not is_torch(x):
        return "cpu"
    return "torch:cpu" if x.device.type == "cpu" else str(x.device)


def resolve_device(device: Device, X: Array | None = None) -> str:
    """Return the device that the parameter `device` selects for `X`: `"cpu"`, `"torch:cpu"` or `"cuda:<index>"`."""
    if device is None or device == "auto":
        if is_torch(X):
            return device_of(X)
        if device == "auto" and importlib.util.find_spec("torch") is not None:
            return "cuda:0" if import_torch().cuda.is_available() else "cpu"
        return "cpu"
    name = str(device)
    if name == "cpu":
        return "torch:cpu" if is_torch(X) else "cpu"
    if name == "torch:cpu":
        return name
    if name == "cuda" or name.startswith("cuda:"):
        torch = import_torch()
        if not torch.cuda.is_available():
            raise ValueError(f"device={device!r}, but torch finds no CUDA device here; use device='cpu' or 'auto'")
        return "cuda:0" if name == "cuda" else name
    raise ValueError(f"unknown device {device!r}; known: 'auto', 'cpu', 'torch:cpu', 'cuda', 'cuda:0', ...")


def to_device(x: Array, device: str, dtype: Any = None) -> Array:
    """Return `x` on a device that `resolve_device` returned, in a NumPy `dtype`; return `x` itself if nothing changes.

    Sparse rows become dense tensors on every device except `"cpu"`.
    """
    if sp.issparse(x):
        if device != "cpu":
            return _dense_on_device(x, device, dtype)
        return x if dtype is None else x.astype(dtype, copy=False)
    if device == "cpu":
        host = to_numpy(x)
        return host if dtype is None else host.astype(dtype, copy=False)
    torch = import_torch()
    target = "cpu" if device == "torch:cpu" else device
    kind = None if dtype is None else getattr(torch, np.dtype(dtype).name)
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        x = x.copy()  # torch warns if a tensor shares the memory of a read-only array
    return torch.as_tensor(x, device=target, dtype=kind)


def copied_ahead(x: Array, device: str, dtype: Any) -> Array:
    """Copy a NumPy array to a CUDA device, in a NumPy `dtype`, while CUDA kernels run; return other arrays unchanged.

    A copy in the CUDA stream of the kernels would wait for all kernels that other threads have started before.
    """
    if not device.startswith("cuda") or not isinstance(x, np.ndarray):
        return x
    torch, stream = import_torch(), _copy_stream(device)
    pinned = torch.empty(x.shape, dtype=getattr(torch, np.dtype(dtype).name), pin_memory=True)
    pinned.numpy()[...] = x
    with torch.cuda.stream(stream):
        copied = pinned.to(device, non_blocking=True)
    stream.synchronize()
    # Without this call torch's allocator may reuse the memory for the next copy before kernels have read this copy.
    copied.record_stream(torch.cuda.default_stream(device))
    return copied


@cache
def _copy_stream(device: str) -> Any:
    """Return the CUDA stream for copies to a device; all copies share one, because torch caches memory for each stream."""
    return import_torch().cuda.Stream(device)


def _dense_on_device(X: Any, device: str, dtype: Any) -> Array:
    """Convert sparse rows to a dense tensor on a device, a few rows at a time to bound the temporary memory."""
    torch = import_torch()
    kind = np.dtype(X.dtype if dtype is None else dtype)
    target = "cpu" if device == "torch:cpu" else device
    out = torch.empty(X.shape, dtype=getattr(torch, kind.name), device=target)
    step = max(1, TUNING.conversion_bytes // max(1, X.shape[1] * kind.itemsize))
    rows = X.tocsr()
    for start in range(0, X.shape[0], step):
        part = rows[start : start + step].toarray().astype(kind, copy=False)
        out[start : start + step] = torch.as_tensor(part, device=target)
    return out


def to_numpy(x: Array) -> np.ndarray:
    """Return `x` as a NumPy array in host memory."""
    return x.detach().cpu().numpy() if is_torch(x) else np.asarray(x)


def in_namespace_of(x: Array, reference: Any) -> Array:
    """Return `x` unchanged if `reference` is a tensor, else as a NumPy array."""
    return x if is_torch(reference) else to_numpy(x)


def like(x: Any, reference: Array) -> Array:
    """Return `x` as an array with the namespace, device and dtype of `reference`."""
    if is_torch(reference):
        return import_torch().as_tensor(x, device=reference.device, dtype=reference.dtype)
    return np.asarray(x, dtype=reference.dtype)


def numpy_dtype(x: Array) -> np.dtype:
    """Return the NumPy dtype of a NumPy array, sparse matrix or tensor."""
    return np.dtype(str(x.dtype).removeprefix("torch."))


def astype(x: Array, dtype: Any) -> Array:
    """Convert `x` to a NumPy dtype; an array that has the dtype already is not copied."""
    if is_torch(x):
        return x.to(getattr(import_torch(), np.dtype(dtype).name))
    return x.astype(dtype, copy=False)


def to_half(x: Array, name: str) -> Array:
    """Convert a tensor to the half-precision dtype `"float16"` or `"bfloat16"`."""
    if not is_torch(x) or name not in ("float16", "bfloat16"):
        raise ValueError(f"half-precision storage is 'float16' or 'bfloat16', of tensors (device='cuda'); got {name!r}")
    return x.to(getattr(import_torch(), name))


def device_out_of_memory(x: Array) -> tuple[type[BaseException], ...]:
    """Return the exception types that torch raises if the GPU of a tensor has no free memory; an empty tuple for arrays."""
    return (import_torch().cuda.OutOfMemoryError,) if is_torch(x) else ()


def release_device_memory() -> None:
    """Free the unused GPU memory that torch's allocator caches."""
    import_torch().cuda.empty_cache()


def empty(shape: tuple[int, ...], reference: Array, dtype: Any = None) -> Array:
    """Return an uninitialised array with the namespace and device of `reference`, and with its dtype if `dtype` is None."""
    if is_torch(reference):
        torch = import_torch()
        kind = reference.dtype if dtype is None else getattr(torch, np.dtype(dtype).name)
        return torch.empty(shape, dtype=kind, device=reference.device)
    return empty_aligned(shape, reference.dtype if dtype is None else dtype)


def empty_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialised NumPy array; a large array starts at the boundary of a cache line.

    A large array of `np.empty` starts 16 bytes after such a boundary. Every second vector load then crosses a boundary, and
    compiled products take 50 % more time.
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes < TUNING.aligned_bytes:
        return np.empty(shape, kind)
    line = 64  # bytes of a cache line
    memory = np.empty(nbytes + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + nbytes].view(kind).reshape(shape)


def zeros(shape: tuple[int, ...], reference: Array, dtype: Any = None) -> Array:
    """Return an array of zeros with the namespace and device of `reference`, and with its dtype if `dtype` is None."""
    out = empty(shape, reference, dtype)
    out[...] = 0
    return out


def canonical_csr(X: Any) -> Any:
    """Convert a sparse matrix `X` to CSR with sorted and unique column indices; `X` is unchanged."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def copied(x: Array, out: Array | None) -> Array:
    """Return a copy of `x`, written into `out` if given."""
    if out is None:
        return x + 0
    out[...] = x
    return out


def take_rows(x: Array, idx: Any) -> Array:
    """Return the rows of `x` that `idx`, a slice or a NumPy integer array, selects."""
    if isinstance(idx, slice):
        return x if idx == slice(None) else x[idx]  # SciPy would copy all rows of a sparse matrix
    return x[indices(idx, x)] if is_torch(x) else x[idx]


def submatrix(x: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """Return the submatrix of `x` with the given rows and columns."""
    return x[indices(rows, x)[:, None], indices(columns, x)]


def indices(idx: np.ndarray, reference: Array) -> Array:
    """Return a NumPy index array on the device of `reference`."""
    if is_torch(reference):
        return import_torch().as_tensor(np.asarray(idx), device=reference.device)
    return np.asarray(idx)


def check_same_columns(X: Array, Y: Array) -> None:
    """Raise `ValueError` if `X` and `Y` have different numbers of columns, because compiled loops do not check bounds."""
    if X.shape[1] != Y.shape[1]:
        raise ValueError(f"rows with {X.shape[1]} columns cannot be compared with rows with {Y.shape[1]} columns")


def dot(X: Array, Y: Array, out: Array | None = None) -> Array:
    """Return `X @ Y.T` as a dense block, written into `out` if given; `X` and `Y` may be CSR matrices or `GridRows`."""
    check_same_columns(X, Y)
    if is_grid(X) and is_grid(Y):
        from gramless._core.compiled.integer_products import integer_products

        block = np.empty((len(X), len(Y)), X.dtype) if out is None else out
        integer_products(X.codes, X.scale, X.offset, Y.codes, Y.scale, Y.offset, X.shape[1], *as_flat(block))
        return block
    X, Y = (side.astype(side.dtype) if is_grid(side) else side for side in (X, Y))
    if is_sparse(X) or is_sparse(Y):
        from gramless._core import sparse as _sparse

        return _sparse.dot(X, Y, out)
    return matmul(X, Y.T, out=out)


def as_flat(block: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the memory of a block with contiguous rows as a 1D view, and the distance between row starts in elements.

    Compiled loops need a contiguous array for vectorisation, and `block` may be a part of a larger matrix.
    """
    stride = block.strides[0] // block.itemsize
    return as_strided(block, (max(0, block.shape[0] - 1) * stride + block.shape[1],), (block.itemsize,)), stride


def has_contiguous_rows(block: Array) -> bool:
    """Return whether a block is a NumPy array whose rows are contiguous and do not overlap."""
    if not isinstance(block, np.ndarray):
        return False
    return block.strides[1] == block.itemsize and block.strides[0] >= block.shape[1] * block.itemsize


def matmul(A: Array, B: Array, out: Array | None = None) -> Array:
    """Return `A @ B`, written into `out` if given."""
    if is_torch(A):
        return import_torch().matmul(A, B, out=out)
    return np.matmul(A, B, out=out)


def square_norms(X: Array) -> Array:
    """Return the squared Euclidean norm of each row."""
    if is_grid(X):
        return X.square_norms()
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    if is_torch(X):
        return import_torch().einsum("ij,ij->i", X, X)
    return np.einsum("ij,ij->i", X, X)


def exp_(x: Array) -> Array:
    """Replace every entry by its exponential, in place."""
    return x.exp_() if is_torch(x) else np.exp(x, out=x)


def tanh_(x: Array) -> Array:
    """Replace every entry by its hyperbolic tangent, in place."""
    return x.tanh_() if is_torch(x) else np.tanh(x, out=x)


def sqrt_(x: Array) -> Array:
    """Replace every entry by its square root, in place."""
    return x.sqrt_() if is_torch(x) else np.sqrt(x, out=x)


def clip_below_(x: Array, low: float) -> Array:
    """Raise every entry to at least `low`, in place."""
    return x.clamp_(min=low) if is_torch(x) else np.maximum(x, low, out=x)


def clip_above_(x: Array, high: float) -> Array:
    """Lower every entry to at most `high`, in place."""
    return x.clamp_(max=high) if is_torch(x) else np.minimum(x, high, out=x)


def integer_power_(x: Array, exponent: int) -> Array:
    """Raise every entry to an integer power, in place, by repeated squaring: faster than NumPy's call of `pow` per entry."""
    if exponent == 0:
        x[...] = 1
        return x
    base = None
    while exponent > 1:
        if exponent % 2 and base is None:
            base = x + 0
        elif exponent % 2:
            base *= x
        x *= x
        exponent //= 2
    if base is not None:
        x *= base
    return x


def add_diagonal_(A: Array, values: Any) -> Array:
    """Add a number or a vector to the diagonal of `A`, in place."""
    diagonal = _diagonal_view(A)
    diagonal += values
    return A


def set_diagonal_(A: Array, values: Any) -> Array:
    """Replace the diagonal of `A` by a number or a vector, in place."""
    _diagonal_view(A)[...] = values
    return A


def _diagonal_view(A: Array) -> Array:
    # np.einsum returns a writeable view of the diagonal for every memory order.
    return A.diagonal() if is_torch(A) else np.einsum("ii->i", A)


def cholesky_(A: Array) -> Array:
    """Return the lower Cholesky factor of `A`; if `A` is a NumPy array, the factor overwrites its lower triangle only.

    Raises `NotPositiveDefiniteError` if a pivot is not positive.
    """
    if is_torch(A):
        L, info = import_torch().linalg.cholesky_ex(A)
        if int(info) != 0:
            raise NotPositiveDefiniteError(f"pivot {int(info)} of {A.shape[0]} is not positive")
        return L
    workers, flags = blas_threads(), A.flags
    with one_blas_thread():
        if A.shape[0] > TUNING.untiled_rows and flags.c_contiguous and flags.writeable:
            factor, info = A.T, factor_lower_(A, workers)
        else:
            (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (A,))
            # LAPACK is column-major, so the upper factor of the transposed view is the lower factor of A, without a copy.
            factor, info = potrf(A.T, lower=0, overwrite_a=1, clean=0)
    if info != 0:
        raise NotPositiveDefiniteError(f"pivot {info} of {A.shape[0]} is not positive")
    finite = np.isfinite(np.einsum("ii->i", factor))
    if not finite.all():  # LAPACK reports no error for a NaN pivot
        raise NotPositiveDefiniteError(f"pivot {int(finite.argmin()) + 1} of {A.shape[0]} is not finite")
    return factor.T


def jittered_cholesky_copy(A: Array, jitter: float) -> Array:
    """Return the lower Cholesky factor of `A + jitter I` in one new matrix; `A` is unchanged, even after an error."""
    if not is_torch(A):
        return cholesky_(add_diagonal_(A + 0, jitter))
    diagonal = A.diagonal().clone()  # no full copy of `A`, to save memory: torch writes the factor to a new matrix
    try:
        return cholesky_(add_diagonal_(A, jitter))
    finally:
        A.diagonal().copy_(diagonal)


def lower_triangle(A: Array) -> Array:
    """Set the strict upper triangle of `A` to zero, in place."""
    if is_torch(A):
        return A.tril_()
    for i in range(A.shape[0]):
        A[i, i + 1 :] = 0
    return A


def invert_lower_(L: Array) -> Array:
    """Return the inverse of a lower triangular `L`, with zeros above its diagonal; a NumPy `L` is overwritten."""
    if is_torch(L):
        torch = import_torch()
        return torch.linalg.solve_triangular(L, torch.eye(L.shape[0], dtype=L.dtype, device=L.device), upper=False)
    (trtri,) = scipy.linalg.get_lapack_funcs(("trtri",), (L,))
    with _one_thread_if_small(L.shape[0]):
        inverse, info = trtri(L.T, lower=0, overwrite_c=1)
    if info != 0:
        raise NotPositiveDefiniteError(f"pivot {info} of {L.shape[0]} is zero")
    return lower_triangle(inverse.T)


def add_gram_(S: Array, B: Array) -> Array:
    """Add `B^T B` to the lower triangle of a float64 matrix `S` in place; the upper triangle becomes invalid."""
    if is_torch(S):
        m = S.shape[0]
        width = max(2048, m // 8)
        for i in range(0, m, width):
            S[i:, i : i + width].addmm_(B[:, i:].T, B[:, i : i + width])
        return S
    workers = blas_threads()
    if workers > 1 and B.shape[0] * B.shape[1] ** 2 >= TUNING.untiled_rows**3 and S.flags.writeable:
        with one_blas_thread():
            add_lower_gram_(S, B, workers)
        return S
    # The transposed views of row-major B and S are column-major, so BLAS updates the upper triangle of S^T in place.
    with _one_thread_if_small(S.shape[0]):
        return scipy.linalg.blas.dsyrk(1.0, B.T, beta=1.0, c=S.T, overwrite_c=1).T


def cholesky_solve(L: Array, B: Array) -> Array:
    """Return the solution of `A X = B` from the lower Cholesky factor `L` of `A`; the upper triangle of `L` is not read."""
    if is_torch(L):
        return import_torch().cholesky_solve(B, L)
    (potrs,) = scipy.linalg.get_lapack_funcs(("potrs",), (L, B))
    with _one_thread_if_small(L.shape[0]):
        X, info = potrs(L.T, B, lower=0)
    if info != 0:
        raise ValueError(f"potrs: argument {-info} is illegal")
    return np.ascontiguousarray(X)


def solve_triangular(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return `L^-1 B`, or `L^-T B` if `transposed`, for a lower triangular `L`."""
    if is_torch(L):
        return import_torch().linalg.solve_triangular(L.T if transposed else L, B, upper=transposed)
    with _one_thread_if_small(L.shape[0]):
        return scipy.linalg.solve_triangular(L, B, lower=True, trans=1 if transposed else 0, check_finite=False)


def eigh(A: Array) -> tuple[Array, Array]:
    """Return the eigenvalues (ascending) and eigenvectors of a symmetric matrix."""
    if is_torch(A):
        values, vectors = import_torch().linalg.eigh(A)
        return values, vectors
    with _one_thread_if_small(A.shape[0]):
        return scipy.linalg.eigh(A, overwrite_a=True, check_finite=False)


def _one_thread_if_small(n: int) -> AbstractContextManager[None]:
    """Return a context that limits BLAS to one thread for matrices of at most `TUNING.untiled_rows` rows."""
    return one_blas_thread() if n <= TUNING.untiled_rows else nullcontext()


def norm(x: Array) -> float:
    """Return the Frobenius norm of `x`; the squares are summed in float64 to avoid overflow."""
    if is_torch(x):
        torch = import_torch()
        return float(torch.linalg.vector_norm(x, dtype=torch.float64))
    flat = np.asarray(x).reshape(-1)
    return float(np.sqrt(np.einsum("i,i->", flat, flat, dtype=np.float64)))


def row_argmax(A: Array) -> tuple[Array, Array]:
    """Return the column index and the value of the largest entry of each row."""
    if is_torch(A):
        values, columns = A.max(dim=1)
        return columns, values
    columns = A.argmax(axis=1)
    return columns, np.take_along_axis(A, columns[:, None], axis=1)[:, 0]


def move_rows_(sums: Array, X: Array, old: Array, new: Array, weights: Array) -> Array:
    """For every i, subtract `weights[i] * X[i]` from `sums[old[i]]` (unless `old[i] < 0`) and add it to `sums[new[i]]`."""
    if is_torch(X):
        totals: Any = sums
        changed = (old != new).nonzero()[:, 0]
        moved = changed[old[changed] >= 0]
        totals.index_add_(0, new[changed], (X[changed] * weights[changed, None]).to(sums.dtype))
        return totals.index_add_(0, old[moved], (X[moved] * -weights[moved, None]).to(sums.dtype))
    from gramless._core.compiled.scatter import move_rows

    move_rows(sums, X, old, new, weights)
    return sums
