"""The only file that asks whether an array is NumPy, torch or a SciPy sparse matrix.

Everything the array API standard covers is called through `namespace(x)`; this file holds what the standard lacks:
products into a given buffer, in-place elementwise functions, factorisations that overwrite their input, and moving between
devices.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import Any, Protocol, TypeGuard, cast

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.lib.stride_tricks import as_strided

from gramless._core import grid as _grid
from gramless._core.device import Device
from gramless._core.threads import blas_threads, one_blas_thread
from gramless._core.tiled_factor import add_lower_gram_, factor_lower_

try:
    from array_api_compat import array_namespace
except ImportError:  # a machine with scikit-learn alone: its vendored copy is the same code
    from sklearn.externals.array_api_compat import array_namespace


# Bytes in a line of the cache, and in an array for which it does not matter where it begins.
_LINE = 64
_FEW_BYTES = 1 << 14
# Up to so many rows a factorisation takes some milliseconds on one core: tiles and threads would take longer.
_FACTORED_WHOLE = 1024


class Array(Protocol):
    """What NumPy arrays and torch tensors have in common, and nothing else: the rest is a function of this file or of
    `namespace(x)`.

    CSR matrices and rows kept as bytes (`gramless._core.grid`) take its place where a function says that it takes them.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Array: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Array: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __array__(self) -> np.ndarray: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __neg__(self) -> Array: ...
    def __invert__(self) -> Array: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __add__(self, other: Any, /) -> Array: ...
    def __radd__(self, other: Any, /) -> Array: ...
    def __sub__(self, other: Any, /) -> Array: ...
    def __rsub__(self, other: Any, /) -> Array: ...
    def __mul__(self, other: Any, /) -> Array: ...
    def __rmul__(self, other: Any, /) -> Array: ...
    def __truediv__(self, other: Any, /) -> Array: ...
    def __rtruediv__(self, other: Any, /) -> Array: ...
    def __pow__(self, other: Any, /) -> Array: ...
    def __matmul__(self, other: Any, /) -> Array: ...
    def __lt__(self, other: Any, /) -> Array: ...
    def __le__(self, other: Any, /) -> Array: ...
    def __gt__(self, other: Any, /) -> Array: ...
    def __ge__(self, other: Any, /) -> Array: ...
    def __and__(self, other: Any, /) -> Array: ...
    def max(self) -> Any: ...
    def min(self) -> Any: ...
    def sum(self) -> Any: ...
    def mean(self) -> Any: ...
    def reshape(self, size: int, /, *sizes: int) -> Array: ...


class NotPositiveDefiniteError(ArithmeticError):
    """A Cholesky factorisation met a pivot that is not positive."""


def cast_numpy(x: Array) -> np.ndarray:
    """`x` itself, for types alone: where it can be no tensor, and has those of NumPy's methods that are called."""
    return cast(np.ndarray, x)


def namespace(*arrays: Array) -> Any:
    """The array API namespace (NumPy's or torch's) of the dense arrays among `arrays`."""
    dense = [a for a in arrays if a is not None and not sp.issparse(a)]
    return array_namespace(*dense) if dense else array_namespace(np.empty(0))


# Sparse rows become dense on a device through host memory of this size.
_PIECE_BYTES = 2**26


def is_torch(x: Any) -> TypeGuard[Any]:
    """Whether `x` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_sparse(x: Any) -> TypeGuard[Any]:
    return sp.issparse(x)


def is_grid(x: Any) -> TypeGuard[Any]:
    """Whether `x` is rows kept as bytes, see `gramless._core.grid`."""
    return isinstance(x, _grid.GridRows)


def import_torch() -> Any:
    """Import torch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "device other than 'cpu' needs torch: pip install 'gramless[gpu]' (or leave device='cpu')"
        ) from error
    return torch


def device_of(x: Array) -> str:
    """`"cpu"` for NumPy and sparse data, `"torch:cpu"`, `"cuda:0"`, ... for tensors."""
    if not is_torch(x):
        return "cpu"
    return "torch:cpu" if x.device.type == "cpu" else str(x.device)


def resolve_device(device: Device, X: Array | None = None) -> str:
    """Turn the user's `device` into one of `"cpu"`, `"torch:cpu"`, `"cuda:i"`."""
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
    """Move `x` to a resolved device, converting to `dtype` (a NumPy dtype); no copy when nothing changes.

    Sparse rows are dense on any device but the CPU.
    """
    if sp.issparse(x):
        if device != "cpu":
            return _dense_on_device(x, device, dtype)
        return x if dtype is None else cast_numpy(x).astype(dtype, copy=False)
    if device == "cpu":
        host = to_numpy(x)
        return host if dtype is None else host.astype(dtype, copy=False)
    torch = import_torch()
    target = "cpu" if device == "torch:cpu" else device
    kind = None if dtype is None else getattr(torch, np.dtype(dtype).name)
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        x = x.copy()  # torch warns about tensors over read-only memory
    return torch.as_tensor(x, device=target, dtype=kind)


def _dense_on_device(X: Any, device: str, dtype: Any) -> Array:
    """Sparse rows as a dense tensor, through pieces of bounded size."""
    torch = import_torch()
    kind = np.dtype(X.dtype if dtype is None else dtype)
    target = "cpu" if device == "torch:cpu" else device
    out = torch.empty(X.shape, dtype=getattr(torch, kind.name), device=target)
    step = max(1, _PIECE_BYTES // max(1, X.shape[1] * kind.itemsize))
    rows = X.tocsr()
    for start in range(0, X.shape[0], step):
        piece = rows[start : start + step].toarray().astype(kind, copy=False)
        out[start : start + step] = torch.as_tensor(piece, device=target)
    return out


def to_numpy(x: Array) -> np.ndarray:
    return x.detach().cpu().numpy() if is_torch(x) else np.asarray(x)


def like(x: Any, reference: Array) -> Array:
    """`x` as an array of `reference`'s library, device and floating dtype."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        return torch.as_tensor(x, device=reference.device, dtype=reference.dtype)
    return np.asarray(x, dtype=reference.dtype)


def numpy_dtype(x: Array) -> np.dtype:
    """The NumPy dtype of a NumPy array, sparse matrix or tensor."""
    return np.dtype(str(x.dtype).removeprefix("torch."))


def astype(x: Array, dtype: Any) -> Array:
    if is_torch(x):
        return x.to(getattr(sys.modules["torch"], np.dtype(dtype).name))
    return cast_numpy(x).astype(dtype, copy=False)


def to_half(x: Array, name: str) -> Array:
    """A tensor in `"float16"` or `"bfloat16"`."""
    if not is_torch(x) or name not in ("float16", "bfloat16"):
        raise ValueError(f"half-precision storage is 'float16' or 'bfloat16', of tensors (device='cuda'); got {name!r}")
    return x.to(getattr(sys.modules["torch"], name))


def device_out_of_memory() -> type[BaseException]:
    """The exception that says that a CUDA device has no memory left; one that nothing raises where torch is not loaded."""
    torch = sys.modules.get("torch")
    return torch.cuda.OutOfMemoryError if torch is not None else _NeverRaised


class _NeverRaised(Exception):
    pass


def release_device_memory() -> None:
    """Give back what torch's allocator keeps for itself."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def empty(shape: tuple[int, ...], reference: Array, dtype: Any = None) -> Array:
    """Uninitialised array of `reference`'s library, device and (unless given) dtype."""
    if is_torch(reference):
        torch = sys.modules["torch"]
        kind = reference.dtype if dtype is None else getattr(torch, np.dtype(dtype).name)
        return torch.empty(shape, dtype=kind, device=reference.device)
    return empty_aligned(shape, reference.dtype if dtype is None else dtype)


def empty_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised NumPy array; a large one begins with a line of the cache.

    NumPy's own begin 16 bytes after one, so that every second vector of a row lies in two lines: compiled products with a
    tile take half as long again.
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes < _FEW_BYTES:
        return np.empty(shape, kind)
    memory = np.empty(nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + nbytes].view(kind).reshape(shape)


def zeros(shape: tuple[int, ...], reference: Array, dtype: Any = None) -> Array:
    out = empty(shape, reference, dtype)
    out[...] = 0
    return out


def take_rows(x: Array, idx: Any) -> Array:
    """Rows of `x`; `idx` is a slice or a NumPy integer array."""
    if isinstance(idx, slice):
        return x[idx]
    if is_torch(x):
        torch = sys.modules["torch"]
        return x[torch.as_tensor(np.asarray(idx), device=x.device)]
    return x[idx]


def submatrix(x: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """The entries of `x` where the chosen rows and columns cross."""
    return x[indices(rows, x)[:, None], indices(columns, x)]


def indices(idx: np.ndarray, reference: Array) -> Array:
    """A NumPy index array as something that indexes `reference` on its own device."""
    if is_torch(reference):
        return sys.modules["torch"].as_tensor(np.asarray(idx), device=reference.device)
    return np.asarray(idx)


def dot(X: Array, Y: Array, out: Array | None = None) -> Array:
    """`X @ Y.T` as a dense block, into `out` where given; either side may be CSR, or rows kept as bytes."""
    if is_grid(X) and is_grid(Y):
        return _grid.dot(X, Y, None if out is None else cast_numpy(out))
    X, Y = (side.astype(side.dtype) if is_grid(side) else side for side in (X, Y))
    if is_sparse(X) or is_sparse(Y):
        from gramless._core import sparse as _sparse

        return _sparse.dot(X, Y, None if out is None else cast_numpy(out))
    return matmul(X, Y.T, out=out)


def as_flat(block: np.ndarray) -> tuple[np.ndarray, int]:
    """The memory that the contiguous rows of a block are in, as one array, and how far apart they begin.

    Compiled loops run on the vector units over parts of one contiguous array, whatever larger block this is a part of.
    """
    stride = block.strides[0] // block.itemsize
    return as_strided(block, (max(0, block.shape[0] - 1) * stride + block.shape[1],), (block.itemsize,)), stride


def matmul(A: Array, B: Array, out: Array | None = None) -> Array:
    """`A @ B` into `out` where given."""
    if is_torch(A):
        return sys.modules["torch"].matmul(A, B, out=out)
    return np.matmul(A, B) if out is None else np.matmul(A, B, out=cast_numpy(out))


def square_norms(X: Array) -> Array:
    """Squared Euclidean norm of each row."""
    if is_grid(X):
        return X.square_norms()
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    if is_torch(X):
        return sys.modules["torch"].einsum("ij,ij->i", X, X)
    return np.einsum("ij,ij->i", X, X)


def exp_(x: Array) -> Array:
    """Exponential in place."""
    return x.exp_() if is_torch(x) else np.exp(x, out=cast_numpy(x))


def tanh_(x: Array) -> Array:
    """Hyperbolic tangent in place."""
    return x.tanh_() if is_torch(x) else np.tanh(x, out=cast_numpy(x))


def sqrt_(x: Array) -> Array:
    """Square root in place."""
    return x.sqrt_() if is_torch(x) else np.sqrt(x, out=cast_numpy(x))


def clip_below_(x: Array, low: float) -> Array:
    """Raise every entry to at least `low`, in place."""
    return x.clamp_(min=low) if is_torch(x) else np.maximum(x, low, out=cast_numpy(x))


def clip_above_(x: Array, high: float) -> Array:
    """Lower every entry to at most `high`, in place."""
    return x.clamp_(max=high) if is_torch(x) else np.minimum(x, high, out=cast_numpy(x))


def integer_power_(x: Array, exponent: int) -> Array:
    """Integer power in place by squaring: NumPy's own float power calls `pow` for each entry."""
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
    """Add a number or a vector to the diagonal, in place."""
    if is_torch(A):
        A.diagonal().add_(values)
    else:
        np.einsum("ii->i", A)[...] += values  # a view of the diagonal whatever the order of the entries
    return A


def cholesky_(A: Array) -> Array:
    """Lower Cholesky factor, written over the lower triangle of a NumPy `A`, whose strict upper triangle stays.

    Raises `NotPositiveDefiniteError` where a pivot is not positive.
    """
    if is_torch(A):
        torch = sys.modules["torch"]
        L, info = torch.linalg.cholesky_ex(A)
        if int(info) != 0:
            raise NotPositiveDefiniteError(f"pivot {int(info)} of {A.shape[0]} is not positive")
        return L
    workers, flags = blas_threads(), cast_numpy(A).flags
    if workers > 1 and A.shape[0] > _FACTORED_WHOLE and flags.c_contiguous and flags.writeable:
        with one_blas_thread():
            info = factor_lower_(cast_numpy(A), workers)
        factor = A.T
    else:
        (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (A,))
        # LAPACK is column-major: the transposed view's upper factor is A's lower one, with no copy.
        factor, info = potrf(A.T, lower=0, overwrite_a=1, clean=0)
    if info != 0:
        raise NotPositiveDefiniteError(f"pivot {info} of {A.shape[0]} is not positive")
    finite = np.isfinite(np.einsum("ii->i", factor))
    if not finite.all():  # LAPACK takes a pivot that is not a number for one that is not negative
        raise NotPositiveDefiniteError(f"pivot {int(finite.argmin()) + 1} of {A.shape[0]} is not finite")
    return factor.T


def jittered_cholesky_copy(A: Array, jitter: float) -> Array:
    """Lower Cholesky factor of `A + jitter I` in one new matrix; `A` is as before, whether that succeeds or not."""
    if not is_torch(A):
        return cholesky_(add_diagonal_(A + 0, jitter))
    diagonal = A.diagonal().clone()  # torch factors out of place: a copy to add to would be a third matrix
    try:
        return cholesky_(add_diagonal_(A, jitter))
    finally:
        A.diagonal().copy_(diagonal)


def lower_triangle(A: Array) -> Array:
    """`A` with its strict upper triangle set to zero, in place."""
    if is_torch(A):
        return A.tril_()
    for i in range(A.shape[0]):
        A[i, i + 1 :] = 0
    return A


def invert_lower_(L: Array) -> Array:
    """The inverse of a lower triangular matrix, over a NumPy `L` itself, zeros above the diagonal."""
    if is_torch(L):
        torch = sys.modules["torch"]
        return torch.linalg.solve_triangular(L, torch.eye(L.shape[0], dtype=L.dtype, device=L.device), upper=False)
    (trtri,) = scipy.linalg.get_lapack_funcs(("trtri",), (L,))
    inverse, info = trtri(L.T, lower=0, overwrite_c=1)
    if info != 0:
        raise NotPositiveDefiniteError(f"pivot {info} of {L.shape[0]} is zero")
    return lower_triangle(inverse.T)


def add_gram_(S: Array, B: Array) -> Array:
    """`S + B^T B` in place, in float64; only the lower triangle is kept up."""
    if is_torch(S):
        m = S.shape[0]
        width = max(2048, m // 8)
        for i in range(0, m, width):
            S[i:, i : i + width].addmm_(B[:, i:].T, B[:, i : i + width])
        return S
    workers = blas_threads()
    if workers > 1 and B.shape[0] * B.shape[1] ** 2 >= _FACTORED_WHOLE**3 and cast_numpy(S).flags.writeable:
        with one_blas_thread():
            add_lower_gram_(cast_numpy(S), cast_numpy(B), workers)
        return S
    # Row-major B and S are column-major B^T and S^T: the upper triangle there is the lower one here, and nothing is copied.
    return scipy.linalg.blas.dsyrk(1.0, B.T, beta=1.0, c=S.T, overwrite_c=1).T


def cholesky_solve(L: Array, B: Array) -> Array:
    """Solve `A X = B` from the lower factor `L` of `A` (only its lower triangle is read)."""
    if is_torch(L):
        return sys.modules["torch"].cholesky_solve(B, L)
    (potrs,) = scipy.linalg.get_lapack_funcs(("potrs",), (L, B))
    X, info = potrs(L.T, B, lower=0)
    if info != 0:
        raise ValueError(f"potrs: argument {-info} is illegal")
    return np.ascontiguousarray(X)


def solve_triangular(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """`L^-1 B`, or `L^-T B` with `transposed`, for a lower triangular `L`."""
    if is_torch(L):
        torch = sys.modules["torch"]
        return torch.linalg.solve_triangular(L.T if transposed else L, B, upper=transposed)
    return scipy.linalg.solve_triangular(L, B, lower=True, trans=1 if transposed else 0, check_finite=False)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending) and eigenvectors of a symmetric matrix."""
    if is_torch(A):
        values, vectors = sys.modules["torch"].linalg.eigh(A)
        return values, vectors
    return scipy.linalg.eigh(A, overwrite_a=True, check_finite=False)


def norm(x: Array) -> float:
    """Frobenius norm, accumulated in float64 so that it cannot overflow in float32."""
    if is_torch(x):
        return float(sys.modules["torch"].linalg.vector_norm(x, dtype=sys.modules["torch"].float64))
    flat = np.asarray(x).reshape(-1)
    return float(np.sqrt(np.einsum("i,i->", flat, flat, dtype=np.float64)))


def row_argmax(A: Array) -> tuple[Array, Array]:
    """Column and value of the largest entry of each row."""
    if is_torch(A):
        values, columns = A.max(dim=1)
        return columns, values
    columns = cast_numpy(A).argmax(axis=1)
    return columns, np.take_along_axis(cast_numpy(A), columns[:, None], axis=1)[:, 0]


def move_rows_(sums: Array, X: Array, old: Array, new: Array, weights: Array) -> Array:
    """Take `weights[i] * X[i]` out of `sums[old[i]]` (unless that is negative) and add it to `sums[new[i]]`, in place."""
    if is_torch(X):
        totals: Any = sums
        changed = (old != new).nonzero()[:, 0]
        had = changed[old[changed] >= 0]
        totals.index_add_(0, new[changed], (X[changed] * weights[changed, None]).to(sums.dtype))
        return totals.index_add_(0, old[had], (X[had] * -weights[had, None]).to(sums.dtype))
    from gramless._core.compiled.scatter import move_rows

    move_rows(*map(cast_numpy, (sums, X, old, new, weights)))
    return sums
