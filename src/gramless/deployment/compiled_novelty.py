"""How unlike the training rows a few rows are, at once: everything that does not change computed before.

    nu(x) = k(x, x) - |P k(x)|^2        P = M^(1/2) L^-1,  M = I - ridge (Phi^T Phi + ridge I)^-1

is the variance of `NystromNovelty` on the kernel values `k(x)` with the landmarks, whose Gram matrix is `L L^T`. One product
with P takes the place of a triangular solution and a product with the root of the sums: half of the memory that a single row
has to read. O(m d + m^2) for each row, O(m^3) once, for m landmarks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigh, solve_triangular

from gramless._core.threads import slices
from gramless.deployment.compiled import kernel_values

_ROWS_AT_A_TIME = 512


def compiled_novelty(detector: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The flags of a fitted novelty detector for single rows and small batches, without checks.

    Parameters
    ----------
    detector : NystromNovelty
        Fitted to dense rows.

    Returns
    -------
    callable(X) -> ndarray of bool of shape (n,)
        Which rows, finite and of float64, `detector.predict` flags, up to rounding.

    See Also
    --------
    compiled : Predictions of a kernel expansion.
    """
    features, process = detector.features_, detector._process
    kernel = features.kernel_
    points = np.asarray(features.points_, dtype=np.float64)
    root = process.root
    shares, directions = eigh(np.eye(len(root)) - process.ridge * (root @ root.T))
    half = directions * np.sqrt(np.maximum(shares, 0.0))
    product = np.ascontiguousarray(solve_triangular(features.factor_, half, lower=True, trans="T"))
    values, usual = kernel_values(kernel, points, points), -detector.offset_

    def novel(X: np.ndarray) -> np.ndarray:
        flags = np.empty(len(X), dtype=bool)
        for rows in slices(len(X), _ROWS_AT_A_TIME):
            part = X[rows]
            seen = values(part) @ product
            flags[rows] = np.asarray(kernel.diag(part)) - np.einsum("ij,ij->i", seen, seen) > usual
        return flags

    return novel
