"""The Gaussian process of a model that is linear in some features, from sums over its rows.

A least-squares model on features `phi` with the identity as their penalty is the posterior mean of a process with covariance
`s phi(x) . phi(y)`, noise of variance `s ridge` and a constant of unknown size. With the sums of
`gramless.streaming.learners.ridge_sums` (mean feature m, centred scatter `Q diag(v) Q^T`, N rows) and `u = Q^T (phi(x) -
m)`:

    h(x) = 1 / N + sum_j u_j^2 / (v_j + ridge)                         leverage of a row
    var f(x) / s = ridge h(x) + rest(x),  rest(x) = k(x, x) - |phi(x)|^2

The rest is the variance of what the features cannot express: near the landmarks it is small, far from everything it is all
of the kernel's. For a row that is among those summed, the variance seen from the others is

    ridge h / (1 - h) + rest

and that of its leave-one-out residual `ridge / (1 - h) + rest`, both times `s`.

Cost: O(p^3) once, O(p^2) for each row, whatever the number of rows summed.

References
----------
Rasmussen, Williams, "Gaussian processes for machine learning", 2006, sections 2.1 and 8.3; Snelson, Ghahramani, "Sparse
Gaussian processes using pseudo-inputs", 2006, for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from gramless._core import arrays as xa
from gramless.linalg.operators.jitter import jittered_cholesky, rounding_of
from gramless.streaming.learners.ridge_sums import RidgeSums

# A row that alone decides its own fitted value has leverage 1: what the others say of it is everything and nothing.
_LEAST_FREEDOM = 1e-10


@dataclass(frozen=True)
class FeatureProcess:
    """What sums of features say of other rows.

    Attributes
    ----------
    mean : ndarray of shape (p,)
        The mean feature; zeros where there is no constant.
    root : ndarray of shape (p, p)
        `R` with `(scatter + ridge I)^-1 = R R^T`, in the coordinates of the features.
    ridge : float
        The noise's variance beside the kernel's.
    constant : float
        `1 / N`, or zero where there is no constant.
    white : ndarray of shape (p, p) or None
        What makes the penalty of the features the identity; None where it is.
    """

    mean: np.ndarray
    root: np.ndarray
    ridge: float
    constant: float
    white: np.ndarray | None = None

    @classmethod
    def of(cls, sums: RidgeSums, ridge: float, *, penalty: Any = None, constant: bool = True) -> FeatureProcess:
        """From the sums over the rows.

        Parameters
        ----------
        sums : RidgeSums
            Of the features.
        ridge : float
            `1 / C`.
        penalty : ndarray of shape (p, p), optional
            Where it is not the identity.
        constant : bool, default=True
            Whether the model has a bias.

        Returns
        -------
        FeatureProcess
            In float64, on the host.
        """
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
        """Rows in coordinates whose inner products are leverages.

        Parameters
        ----------
        Phi : ndarray of shape (n, p)
            Features of any rows.

        Returns
        -------
        ndarray of shape (n, p)
            In float64.
        """
        return (np.asarray(Phi, dtype=np.float64) - self.mean) @ self.root

    def square_norms(self, Phi: np.ndarray) -> np.ndarray:
        """`|phi|^2` of rows, in coordinates where the penalty is the identity.

        Parameters
        ----------
        Phi : ndarray of shape (n, p)
            Features of any rows.

        Returns
        -------
        ndarray of shape (n,)
            What the features express of the kernel's `k(x, x)`.
        """
        whitened = np.asarray(Phi, dtype=np.float64) if self.white is None else Phi @ self.white
        return np.einsum("ij,ij->i", whitened, whitened)

    def leverages(self, Phi: np.ndarray) -> np.ndarray:
        """`h` of rows with features `Phi`.

        Parameters
        ----------
        Phi : ndarray of shape (n, p)
            Features of any rows.

        Returns
        -------
        ndarray of shape (n,)
            At least zero.
        """
        U = self.project(Phi)
        return self.constant + np.einsum("ij,ij->i", U, U)

    def variances(self, Phi: np.ndarray, rest: np.ndarray | float = 0.0) -> np.ndarray:
        """`var f / s` of new rows.

        Parameters
        ----------
        Phi : ndarray of shape (n, p)
            Their features.
        rest : ndarray of shape (n,), optional
            What the features cannot express.

        Returns
        -------
        ndarray of shape (n,)
            At least zero.
        """
        return self.ridge * self.leverages(Phi) + rest

    def variances_without(self, Phi: np.ndarray, rest: np.ndarray | float = 0.0) -> np.ndarray:
        """`var f / s` of rows that are among those summed, each seen from the others.

        Parameters
        ----------
        Phi : ndarray of shape (n, p)
            Their features.
        rest : ndarray of shape (n,), optional
            What the features cannot express.

        Returns
        -------
        ndarray of shape (n,)
            At least zero.
        """
        h = self.leverages(Phi)
        return self.ridge * h / np.maximum(1.0 - h, _LEAST_FREEDOM) + rest
