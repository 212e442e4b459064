"""Gaussian process of a model that is linear in features, from sums over its rows.

A least-squares model on features `phi` with the identity as penalty is the posterior mean of a process with covariance
`s phi(x) . phi(y)`, noise variance `s ridge` and a constant with a flat prior. With the sums of `RidgeSums` (mean feature m,
centred scatter `Q diag(v) Q^T`, N rows) and `u = Q^T (phi(x) - m)`:

    h(x) = 1 / N + sum_j u_j^2 / (v_j + ridge)                         leverage of a row
    var f(x) / s = ridge h(x) + unexplained(x),     unexplained(x) = k(x, x) - |phi(x)|^2

The unexplained variance is small near the landmarks and `k(x, x)` far from all of them. For a row among those summed, the
variance given the other rows is `ridge h / (1 - h) + unexplained`, and that of its leave-one-out residual
`ridge / (1 - h) + unexplained`, both times `s`. Cost: O(p^3) once, O(p^2) for each row.

References: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.1 and 8.3; Snelson and
Ghahramani, "Sparse Gaussian processes using pseudo-inputs", 2006, for the unexplained variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from gramless._core import arrays as xa
from gramless.linalg.operators.jitter import jittered_cholesky, rounding_of
from gramless.streaming.learners.ridge_sums import RidgeSums

# Lower bound on one minus the leverage: a row with leverage 1 determines its own fitted value, and its variance given the
# other rows is not defined.
SMALLEST_FREEDOM = 1e-10


@dataclass(frozen=True)
class FeatureProcess:
    """Leverages and variances of rows, given the sums over the training rows."""

    mean: np.ndarray
    """Mean feature, shape (p,); zeros for a model without a constant."""
    root: np.ndarray
    """`R` with `(scatter + ridge I)^-1 = R R^T`, in the coordinates of the features."""
    ridge: float
    """Variance of the noise relative to that of the kernel."""
    constant: float
    """`1 / N`, or zero for a model without a constant."""
    white: np.ndarray | None = None
    """Matrix that converts the penalty to the identity; None if the penalty is the identity."""

    @classmethod
    def from_sums(cls, sums: RidgeSums, ridge: float, *, penalty: Any = None, constant: bool = True) -> FeatureProcess:
        """Return the process in float64 on the host; the default penalty is the identity."""
        upper, total = xa.to_numpy(sums.upper), xa.to_numpy(sums.feature_sum)
        scatter = np.triu(upper) + np.triu(upper, 1).T
        mean = total[:, 0] / sums.weight if constant else np.zeros(len(total))
        scatter -= sums.weight * np.outer(mean, mean)
        L = None
        if penalty is not None:
            K = xa.to_numpy(penalty)
            L, _ = jittered_cholesky(K, rounding_of(K, sums.eps))
            half = solve_triangular(L, scatter, lower=True)
            scatter = solve_triangular(L, half.T, lower=True)
        scatter[np.diag_indices_from(scatter)] += ridge
        factor, _ = jittered_cholesky((scatter + scatter.T) / 2, 0.0)
        root = solve_triangular(factor, np.eye(len(factor)), lower=True).T
        white = None
        if L is not None:
            root = solve_triangular(L, root, lower=True, trans="T")
            white = solve_triangular(L, np.eye(len(L)), lower=True).T
        return cls(mean, root, float(ridge), 1.0 / sums.weight if constant else 0.0, white)

    def project(self, Phi: np.ndarray) -> np.ndarray:
        """Return rows in coordinates whose squared norms are leverages."""
        return (np.asarray(Phi, dtype=np.float64) - self.mean) @ self.root

    def square_norms(self, Phi: np.ndarray) -> np.ndarray:
        """Return `|phi|^2` of each row in coordinates in which the penalty is the identity."""
        whitened = np.asarray(Phi, dtype=np.float64) if self.white is None else Phi @ self.white
        return np.einsum("ij,ij->i", whitened, whitened)

    def leverages(self, Phi: np.ndarray) -> np.ndarray:
        """Return `h` of each row."""
        U = self.project(Phi)
        return self.constant + np.einsum("ij,ij->i", U, U)

    def variances(self, Phi: np.ndarray, unexplained: np.ndarray | float = 0.0) -> np.ndarray:
        """Return `var f / s` of new rows."""
        return self.ridge * self.leverages(Phi) + unexplained

    def variances_without(self, Phi: np.ndarray, unexplained: np.ndarray | float = 0.0) -> np.ndarray:
        """Return `var f / s` of summed rows, each given the other rows."""
        h = self.leverages(Phi)
        return self.ridge * h / np.maximum(1.0 - h, SMALLEST_FREEDOM) + unexplained
