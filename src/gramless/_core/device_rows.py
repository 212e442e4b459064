"""Sparse rows on a device: kept as CSR, handed out as dense tiles.

A graphics card multiplies dense tiles many times faster than sparse rows, and holds sparse rows in a fraction of the memory.
So rows stay compressed on the device, and those that a product needs become dense where it needs them: O(m d) memory for m
rows at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa


class SparseRows:
    """CSR rows on a device; `rows[index]` is a dense tensor.

    Parameters
    ----------
    X : scipy.sparse matrix in CSR format
        The rows.
    device : str
        As `gramless._core.arrays.resolve_device` gives it.
    """

    def __init__(self, X: Any, device: str):
        X.sum_duplicates()
        self.shape = X.shape
        tensors: list[Any] = [
            xa.to_device(part, device) for part in (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
        ]
        self._start, self._column, self._value = tensors
        self.dtype = self._value.dtype
        self.device = self._value.device

    def __len__(self) -> int:
        return int(self.shape[0])

    def element_size(self) -> int:
        """Bytes of a number."""
        return int(self._value.element_size())

    def __getitem__(self, index: Any) -> Any:
        torch = xa.import_torch()
        rows = torch.arange(len(self), device=self.device)[index]
        first, length = self._start[rows], self._start[rows + 1] - self._start[rows]
        here = torch.repeat_interleave(torch.arange(len(rows), device=self.device), length)
        # Positions of a row count from its first entry.
        within = torch.arange(len(here), device=self.device) - torch.repeat_interleave(length.cumsum(0) - length, length)
        entries = first[here] + within
        out = torch.zeros((len(rows), self.shape[1]), dtype=self.dtype, device=self.device)
        out[here, self._column[entries]] = self._value[entries]
        return out


def rows_on_device(X: Any, device: str, budget: float) -> Any:
    """The rows of `X` on a device: a tensor, or `SparseRows` where a dense copy takes more than `budget` bytes.

    Parameters
    ----------
    X : ndarray, tensor or CSR matrix of shape (n, d)
        The rows.
    device : str
        Resolved.
    budget : float
        Bytes for a dense copy of sparse rows.

    Returns
    -------
    tensor or SparseRows
        With `len`, `shape`, `dtype`, `device`, and rows by index.
    """
    if not xa.is_sparse(X):
        return xa.to_device(X, device)
    if X.shape[0] * X.shape[1] * X.dtype.itemsize <= budget:
        return xa.to_device(X.toarray(), device)
    return SparseRows(X.tocsr(), device)
