"""Sparse rows on a GPU, stored as CSR and converted to dense rows when they are indexed.

A GPU multiplies dense tiles many times faster than sparse rows, but sparse rows take a fraction of the memory. Each product
converts only the rows that it needs: O(m d) memory for m rows of d features at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa


class SparseRows:
    """CSR rows on a device; `rows[index]` is a dense tensor."""

    def __init__(self, X: Any, device: str):
        X = xa.canonical_csr(X)
        self.shape = X.shape
        parts = X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data
        tensors: Any = [xa.to_device(part, device) for part in parts]
        self._start, self._column, self._value = tensors
        self.dtype = self._value.dtype
        self.device = self._value.device

    def __len__(self) -> int:
        return int(self.shape[0])

    def element_size(self) -> int:
        """Return the size of one value in bytes."""
        return int(self._value.element_size())

    def __getitem__(self, index: Any) -> Any:
        torch = xa.import_torch()
        rows = torch.arange(len(self), device=self.device)[index]
        first, length = self._start[rows], self._start[rows + 1] - self._start[rows]
        here = torch.repeat_interleave(torch.arange(len(rows), device=self.device), length)
        # Position of each stored value within its row.
        within = torch.arange(len(here), device=self.device) - torch.repeat_interleave(length.cumsum(0) - length, length)
        entries = first[here] + within
        out = torch.zeros((len(rows), self.shape[1]), dtype=self.dtype, device=self.device)
        out[here, self._column[entries]] = self._value[entries]
        return out


def rows_on_device(X: Any, device: str, budget: float) -> Any:
    """Copy the rows to a device: as a tensor, or as `SparseRows` if dense rows would take more than `budget` bytes."""
    if not xa.is_sparse(X):
        return xa.to_device(X, device)
    if X.shape[0] * X.shape[1] * X.dtype.itemsize <= budget:
        return xa.to_device(X.toarray(), device)
    return SparseRows(X, device)
