"""Kernel expansion f(x) = sum_i a_i K(x, b_i) + c of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.threads import slices
from gramless.kernels import Kernel
from gramless.linalg.operators import evaluate

# Largest number of rows whose kernel values are computed at a time, and largest size of these values in bytes.
BLOCK_ROWS = 4096
BLOCK_BYTES = 256 * 2**20


def block_rows(n_points: int, block_bytes: int) -> int:
    """Return the number of rows whose kernel values with the points, in both precisions, take `block_bytes`."""
    return max(1, min(BLOCK_ROWS, block_bytes // (12 * n_points)))


@dataclass(frozen=True)
class KernelExpansion:
    """`x -> K(x, points) @ coef + bias`; coef has shape (n_points, n_outputs)."""

    kernel: Kernel
    points: Any
    coef: Any
    bias: Any
    block_bytes: int = BLOCK_BYTES

    def __call__(self, X: Any) -> Any:
        """Return the scores of rows, summed in float64, on the device of the rows."""
        out = xa.empty((len(X), self.coef.shape[1]), X, np.float64)
        coef, bias = (xa.astype(part, np.float64) for part in (self.coef, self.bias))
        for rows in slices(len(X), block_rows(len(self.points), self.block_bytes)):
            out[rows] = xa.astype(evaluate(self.kernel, X[rows], self.points), np.float64) @ coef + bias
        return out


def expansion_of(model: Any, action: str) -> KernelExpansion:
    """Return the expansion of a fitted model with dense points; ValueError if it cannot be compiled or compressed."""
    missing = [name for name in ("kernel_", "points_", "dual_coef_", "intercept_") if not hasattr(model, name)]
    if missing:
        check_is_fitted(model)
        raise ValueError(f"{type(model).__name__} is not a kernel expansion with {missing[0]}, and cannot be {action}")
    if not model.kernel_.uses_points or not isinstance(model.points_, np.ndarray | sp.spmatrix | sp.sparray):
        raise ValueError(f"{type(model).__name__} does not have its points in memory, and cannot be {action}")
    points: Any = model.points_
    points = np.asarray(points.toarray() if sp.issparse(points) else points)
    return KernelExpansion(model.kernel_, points, model.dual_coef_, np.asarray(model.intercept_))
