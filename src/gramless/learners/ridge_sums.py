"""Least squares on features, from sums over the rows: add rows, take rows away, merge sums, solve.

For features `phi(x)` and targets `z`, the minimiser of

    sum_i w_i ||z_i - W^T phi(x_i) - b||^2 + ridge ||W||^2

depends on the data through a few sums only (`RidgeSums`), so rows can come in any order, in any number of pieces,
from any number of machines, and leave again: O(m^2) for each row, m^2 numbers in all, everything in float64.

Landmarks make features of a kernel: with `K(G, G) = L L^T`,

    phi(x) = L^-1 k(G, x),    f(x) = W^T phi(x) = (L^-T W)^T k(G, x)

for which `||W||^2` is the norm of `f`. The sums are taken of these features, not of kernel values: those would square the
condition number of `K(G, G)` once more, and the ridge would drown in the rounding of sums of products of large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array

_EPS = float(np.finfo(np.float64).eps)
# Jitter of K(G, G) in units of the data's rounding: kernel values are not known better than that.
_JITTER = 10.0
_ATTEMPTS = 12


class LandmarkFeatures:
    """`phi(x) = L^-1 k(G, x)` for landmarks `G`.

    Parameters
    ----------
    K : array of shape (m, m)
        The landmarks' kernel matrix, float64; overwritten.
    dtype : dtype
        The precision in which kernel values of other points will come. Directions of the feature space whose length is
        within its rounding carry nothing but rounding; the jitter keeps them from being blown up.

    Attributes
    ----------
    jitter : float
        What was added to the diagonal of `K`.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.learners.ridge_sums import LandmarkFeatures
    >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> phi = LandmarkFeatures(K.copy(), np.float64).features(K)
    >>> bool(np.allclose(phi @ phi.T, K))
    True
    """

    def __init__(self, K: Array, dtype: Any):
        xp = xa.namespace(K)
        mean = float(xp.mean(xp.linalg.diagonal(K)))
        if not np.isfinite(mean):
            raise ValueError("the kernel matrix of the landmarks is not finite; scale the features or choose another kernel")
        self.jitter = _JITTER * float(np.finfo(np.dtype(dtype)).eps) * (mean if mean > 0 else 1.0)
        for attempt in range(_ATTEMPTS):
            try:
                self.L = xp.tril(xa.cholesky_(xa.add_diagonal_(K + 0, self.jitter)))
                return
            except xa.NotPositiveDefiniteError as error:
                if attempt == _ATTEMPTS - 1:
                    raise np.linalg.LinAlgError(
                        f"the landmarks' kernel matrix is not positive semi-definite ({error}): is the kernel a kernel?"
                    ) from error
                self.jitter *= 10

    def features(self, K: Array) -> Array:
        """Features of points from their `(n, m)` kernel values to the landmarks, float64."""
        return xa.solve_triangular(self.L, xa.astype(K, np.float64).T).T

    def coefficients(self, W: Array) -> Array:
        """Coefficients of the landmarks' kernel functions: `L^-T W`."""
        return xa.solve_triangular(self.L, W, transposed=True)


@dataclass
class Solution:
    """Weights of the features, bias, and how well they are determined."""

    W: Array
    bias: Array
    condition: float
    """Condition number of the regularised matrix, estimated."""
    jitter: float
    """What had to be added to the ridge before the matrix could be factored; zero unless something is wrong."""


class RidgeSums:
    """The sums over rows that determine a least-squares fit on `m` features with `k` targets.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.learners.ridge_sums import RidgeSums
    >>> rng = np.random.default_rng(0)
    >>> phi, z = rng.normal(size=(100, 3)), rng.normal(size=(100, 1))
    >>> sums = RidgeSums.of(phi[:60], z[:60])
    >>> sums += RidgeSums.of(phi[60:], z[60:])
    >>> bool(np.allclose(sums.solve(0.1).W, RidgeSums.of(phi, z).solve(0.1).W))
    True
    """

    def __init__(self, gram: Array, cross: Array, feature_sum: Array, target_sum: Array, weight: float, largest: float):
        self.gram = gram
        self.cross = cross
        self.feature_sum = feature_sum
        self.target_sum = target_sum
        self.weight = weight
        self.largest = largest
        """The largest trace the sums have had: what their rounding is relative to."""

    @classmethod
    def of(cls, features: Array, Z: Array, weights: Array = None) -> RidgeSums:
        """The sums over one block of rows, with `weights` where given."""
        phi, Z = xa.astype(features, np.float64), xa.astype(Z, np.float64)
        xp = xa.namespace(phi)
        if weights is None:
            weight, scaled, scaled_Z = float(phi.shape[0]), phi, Z
            gram = phi.T @ phi  # NumPy sees the same array twice and computes one triangle
        else:
            weight = float(xp.sum(weights))
            scaled, scaled_Z = phi * weights[:, None], Z * weights[:, None]
            half = phi * xp.sqrt(weights)[:, None]
            gram = half.T @ half
        trace = float(xp.sum(xp.linalg.diagonal(gram)))
        return cls(gram, phi.T @ scaled_Z, xp.sum(scaled, axis=0), xp.sum(scaled_Z, axis=0), weight, trace)

    @property
    def trace(self) -> float:
        xp = xa.namespace(self.gram)
        return float(xp.sum(xp.linalg.diagonal(self.gram)))

    @property
    def rounding(self) -> float:
        """How far rounding may have moved an eigenvalue of the sums."""
        return _EPS * self.largest

    def __iadd__(self, other: RidgeSums) -> RidgeSums:
        self._combine(other, 1.0)
        self.largest = max(self.largest, other.largest, self.trace)
        return self

    def __isub__(self, other: RidgeSums) -> RidgeSums:
        """Take rows away that were added before."""
        self._combine(other, -1.0)
        return self

    def _combine(self, other: RidgeSums, sign: float) -> None:
        for mine, theirs in (
            (self.gram, other.gram),
            (self.cross, other.cross),
            (self.feature_sum, other.feature_sum),
            (self.target_sum, other.target_sum),
        ):
            if sign > 0:
                mine += theirs
            else:
                mine -= theirs
        self.weight += sign * other.weight

    def solve(self, ridge: float, *, bias: bool = True) -> Solution:
        """Minimise; the bias is not penalised.

        Eliminating the bias first leaves the centred sums, whose regularised matrix is positive definite whenever the ridge
        is above rounding. Where it is not, the least jitter that makes it so is added and reported.
        """
        xp = xa.namespace(self.gram)
        A, B = self.gram + 0, self.cross + 0
        if bias:
            A -= self.feature_sum[:, None] * (self.feature_sum / self.weight)[None, :]
            B -= self.feature_sum[:, None] * (self.target_sum / self.weight)[None, :]
        norm = float(xp.max(xp.sum(xp.abs(A), axis=0))) + ridge
        jitter = 0.0
        for _ in range(_ATTEMPTS):
            try:
                L = xa.cholesky_(xa.add_diagonal_(A + 0, ridge + jitter))
                break
            except xa.NotPositiveDefiniteError:
                jitter = max(10 * jitter, self.rounding, _EPS * norm)
        else:
            raise np.linalg.LinAlgError("the normal equations cannot be factored: the features are not finite")
        W = xa.cholesky_solve(L, B)
        intercept = (self.target_sum - W.T @ self.feature_sum) / self.weight if bias else xa.zeros((B.shape[1],), B)
        return Solution(W, intercept, _condition(L, norm), jitter)


def _condition(L: Array, norm: float) -> float:
    """Condition number in the 1-norm, by LAPACK's estimator: O(m^2)."""
    factor = np.asfortranarray(xa.to_numpy(L))
    (pocon,) = scipy.linalg.get_lapack_funcs(("pocon",), (factor,))
    reciprocal, info = pocon(factor, norm, uplo="L")
    if info != 0:
        raise ValueError(f"pocon: argument {-info} is illegal")
    return 1.0 / reciprocal if reciprocal > 0 else np.inf
