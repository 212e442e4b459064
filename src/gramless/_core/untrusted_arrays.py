"""Arrays that files bring, checked before anything computes with them.

Compiled loops trust their arrays: a CSR matrix whose indices leave its columns reads and writes beyond its memory. So what
comes from a file is checked once, when it is read: format, ranges, shapes, sizes.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp


def build_checked_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...]) -> sp.csr_matrix:
    """A CSR matrix of parts that fit together; ValueError where they do not."""
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"a sparse matrix of shape {shape}")
    matrix = sp.csr_matrix((np.asarray(data), np.asarray(indices), np.asarray(indptr)), shape=shape)
    check_sparse_arrays(matrix)
    return matrix


def check_sparse_arrays(matrix: Any) -> None:
    """Raise ValueError where an index or a pointer of a CSR or CSC matrix leaves its bounds, or a value is not finite."""
    if matrix.format not in ("csr", "csc"):
        raise ValueError(f"a sparse matrix in the form {matrix.format!r}, which no model has")
    lines = matrix.shape[0 if matrix.format == "csr" else 1]
    if matrix.data.ndim != 1 or matrix.indices.ndim != 1 or matrix.indptr.shape != (lines + 1,):
        raise ValueError("a sparse matrix whose parts do not fit together")
    # Cut to the stored values first: SciPy would trust a last pointer that lies beyond them.
    if matrix.indptr[0] != 0 or not 0 <= matrix.indptr[-1] <= min(len(matrix.indices), len(matrix.data)):
        raise ValueError("a sparse matrix whose pointers leave its values")
    matrix.check_format(full_check=True)
    if matrix.data.dtype.kind not in "biuf" or not np.isfinite(matrix.data).all():
        raise ValueError("a sparse matrix with values that are not finite numbers")


def unzipped_bytes(archive: zipfile.ZipFile) -> int:
    """What the members of a zip file take when they are read; archives and arrays among them say what they need in turn.

    A member that holds less than the array that it announces is refused.
    """
    total = 0
    for member in archive.infolist():
        total += member.file_size
        if member.filename.endswith(".npz"):
            with archive.open(member) as file, zipfile.ZipFile(io.BytesIO(file.read(member.file_size))) as inner:
                total += unzipped_bytes(inner)
        elif member.filename.endswith(".npy"):
            with archive.open(member) as opened:
                _check_announced(opened, member.file_size)  # type: ignore[arg-type]
    return total


def _check_announced(file: BinaryIO, size: int) -> None:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"an array of {dtype}, which no model has")
    announced = dtype.itemsize
    for side in shape:
        announced *= side
    if not 0 <= announced <= size:
        raise ValueError(f"an array of shape {shape} in {size:,} bytes")
