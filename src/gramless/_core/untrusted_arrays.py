"""Checks of arrays that are read from files.

Compiled loops do not check bounds: a CSR matrix with a column index out of range makes them read and write other memory.
The format, index range, shape and size of every array from a file are therefore checked once, when the array is read.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp


def build_checked_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...]) -> sp.csr_matrix:
    """Return the CSR matrix with the given arrays, or raise `ValueError` if the arrays are inconsistent."""
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"the file contains a sparse matrix of invalid shape {shape}")
    matrix = sp.csr_matrix((np.asarray(data), np.asarray(indices), np.asarray(indptr)), shape=shape)
    check_sparse_arrays(matrix)
    return matrix


def check_sparse_arrays(matrix: Any) -> None:
    """Raise `ValueError` if an index or pointer of a CSR or CSC matrix is out of bounds or a value is not finite."""
    if matrix.format not in ("csr", "csc"):
        raise ValueError(f"the file contains a sparse matrix in the format {matrix.format!r}; accepted: 'csr', 'csc'")
    lines = matrix.shape[0 if matrix.format == "csr" else 1]
    if matrix.data.ndim != 1 or matrix.indices.ndim != 1 or matrix.indptr.shape != (lines + 1,):
        raise ValueError("the file contains a sparse matrix with inconsistent sizes of its arrays")
    # SciPy's `check_format` accepts a last pointer beyond the stored values.
    if matrix.indptr[0] != 0 or not 0 <= matrix.indptr[-1] <= min(len(matrix.indices), len(matrix.data)):
        raise ValueError("the file contains a sparse matrix with pointers outside of its values")
    matrix.check_format(full_check=True)
    if matrix.data.dtype.kind not in "biuf" or not np.isfinite(matrix.data).all():
        raise ValueError("the file contains a sparse matrix with values that are not finite numbers")


def unzipped_bytes(archive: zipfile.ZipFile) -> int:
    """Return the size in bytes of the uncompressed members of a zip file, including nested `.npz` archives.

    Raises `ValueError` for an array that is shorter than its header states.
    """
    total = 0
    for member in archive.infolist():
        total += member.file_size
        if member.filename.endswith(".npz"):
            with archive.open(member) as file, zipfile.ZipFile(io.BytesIO(file.read(member.file_size))) as inner:
                total += unzipped_bytes(inner)
        elif member.filename.endswith(".npy"):
            with archive.open(member) as opened:
                _check_size(opened, member.file_size)  # type: ignore[arg-type]
    return total


def read_npy_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the dtype in the header of a `.npy` file."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _check_size(file: BinaryIO, size: int) -> None:
    shape, dtype = read_npy_header(file)
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"the file contains an array of dtype {dtype}; object and structured arrays are not accepted")
    declared = dtype.itemsize * math.prod(shape)
    if not 0 <= declared <= size:
        raise ValueError(f"the file contains an array of shape {shape} in only {size:,} bytes")
