"""Ridge regression from sums over rows, which can be added, subtracted and decayed; solution and leave-one-out residuals.

With features `phi_i` (p of them), targets `z_i` and weights `w_i`, the minimiser of

    sum_i w_i ||z_i - A^T phi_i - b||^2 + ridge * tr(A^T P A)

depends on the data only through `S = sum w phi phi^T`, `T = sum w phi z^T`, `s = sum w phi`, `t = sum w z` and `N = sum w`,
which can be added and subtracted for any subsets of the rows. With `P + jitter I = L L^T`,

    M = L^-1 (S - s s^T / N) L^-T = Q diag(v) Q^T,   g = Q^T L^-1 (T - s t / N)
    A = L^-T (M + ridge I)^-1 L^-1 (T - s t / N) = L^-T Q (v + ridge)^-1 g,     b = t / N - A^T s / N

For one ridge, `A` is computed by Cholesky; for many ridges, in O(p k) for each ridge after `M` was diagonalised. With
`u = Q^T L^-1 (phi - s / N)`, the leverage and the leave-one-out residual of a row with features `phi` are exactly

    h = w (1 / N + sum_j u_j^2 / (v_j + ridge)),      e_loo = (z - A^T phi - b) / (1 - h) .

Rounding: `T` and `t` are sums of `z_i - o`, where `o` is the mean of the first batch, because sums of targets with a large
mean would lose the digits of the deviations from this mean. Float32 features are multiplied in float64, because a sum over n
rows in float32 has an error of about `eps sqrt(n)` in every direction, which whitening divides by the small eigenvalues of
`P`. The penalty gets the jitter `eps sqrt(p) max(diag P)`, where `eps` is the relative precision of the features, because
eigenvalues below the rounding errors of the features contain no information. `M` gets no jitter: if `M` has an eigenvalue
below `-ridge`, Cholesky fails, negative eigenvalues are set to zero, and the solution reports the most negative eigenvalue.

Cost: O(b p^2) for a batch of b rows, O(p^3) to solve, O(p^2) for each row left out. Memory: `8 p^2` bytes, and 16 kB per
feature while float32 batches are added.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg.blas
import scipy.linalg.lapack

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.linalg.operators.jitter import jittered_cholesky, rounding_of
from gramless.streaming.learners.base import LearnerState
from gramless.streaming.tuning import TUNING

_EPS = float(np.finfo(np.float64).eps)
# Lower bound on one minus the leverage. A row with leverage 1 determines its own fitted value, so its leave-one-out residual
# is not defined by the other rows.
_SMALLEST_FREEDOM = 1e-10
_SUMS = ("upper", "cross", "feature_sum", "target_sum")
_ARRAYS = (*_SUMS, "origin")


class RidgeSums(LearnerState):
    """Sums over rows that determine a least-squares fit, in float64; NumPy arrays, or tensors like `reference`.

    `n_rows` counts the rows and `weight` is the sum of their weights. `eps` is the relative precision of the features.
    `largest` is the largest trace of `S` so far, and the rounding errors of `S` are relative to this trace.
    """

    def __init__(self, n_features: int, n_targets: int, reference: Array | None = None):
        self._reference = np.empty(0) if reference is None else reference
        self.n_rows, self.weight, self.eps, self.largest = 0, 0.0, _EPS, 0.0
        self.upper = self._zeros(n_features, n_features)  # the strict lower triangle of a NumPy array stays zero
        self.cross = self._zeros(n_features, n_targets)
        self.feature_sum = self._zeros(n_features, 1)
        self.target_sum = self._zeros(1, n_targets)
        self.origin = self._zeros(1, n_targets)  # subtracted from targets before the targets are added to the sums
        self._scratch: np.ndarray | None = None

    def _zeros(self, *shape: int) -> Array:
        if xa.is_torch(self._reference):
            return xa.zeros(shape, self._reference, np.float64)
        # Column-major, so that BLAS updates the array without a copy.
        return np.zeros(shape, order="F")

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.cross.shape[0])

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return int(self.cross.shape[1])

    @property
    def trace(self) -> float:
        """Trace of `S`."""
        xp = xa.namespace(self.upper)
        return float(xp.sum(xp.linalg.diagonal(self.upper)))

    @property
    def rounding(self) -> float:
        """Bound on the rounding error of the eigenvalues of `S`."""
        return _EPS * self.largest

    def add(self, features: Array, targets: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Add a batch of rows; `measured` is not used."""
        if tuple(features.shape) != (targets.shape[0], self.n_features) or targets.shape[1] != self.n_targets:
            raise ValueError(
                f"a batch of features {tuple(features.shape)} and targets {tuple(targets.shape)} does not fit "
                f"{self.n_features} features and {self.n_targets} targets"
            )
        b = int(features.shape[0])
        if b == 0:
            return
        # The sums may have been read from a file, or merged from another device.
        if xa.device_of(features) != xa.device_of(self.upper):
            self.__dict__.update(RidgeSums.from_state(self.__getstate__(), features).__dict__)
        if self.n_rows == 0:
            self.origin = xa.namespace(targets).mean(xa.astype(targets, np.float64), axis=0)[None, :]
        self.n_rows += b
        self.eps = max(self.eps, float(np.finfo(xa.numpy_dtype(features)).eps))
        if xa.is_torch(features) or xa.numpy_dtype(features) == np.float64:
            double = None if weights is None else xa.astype(weights, np.float64)
            self._add(xa.astype(features, np.float64), xa.astype(targets, np.float64) - self.origin, double)
        else:
            size = TUNING.converted_rows
            if self._scratch is None:
                self._scratch = np.empty((size, self.n_features))
            for start in range(0, b, size):
                rows = slice(start, min(b, start + size))
                F = self._scratch[: rows.stop - start]
                F[...] = features[rows]
                double = None if weights is None else xa.astype(weights[rows], np.float64)
                self._add(F, xa.astype(targets[rows], np.float64) - self.origin, double)
        self.largest = max(self.largest, self.trace)

    def _add(self, F: Array, Z: Array, weights: Array | None) -> None:
        xp = xa.namespace(F)
        root = xp.ones_like(Z[:, :1])
        if weights is None:
            self.weight += int(F.shape[0])
        else:
            self.weight += float(xp.sum(weights))
            root = weights[:, None] ** 0.5
            F, Z = F * root, Z * root
        cross = F.T @ xp.concat([Z, root], axis=1)
        self.cross += cross[:, :-1]
        self.feature_sum += cross[:, -1:]
        self.target_sum += xp.sum(Z * root, axis=0)[None, :]
        if xa.is_torch(F):
            self.upper += F.T @ F
        else:
            # The transpose of a row-major block is column-major, so BLAS adds one triangle of the product without a copy.
            scipy.linalg.blas.dsyrk(1.0, np.ascontiguousarray(F).T, beta=1.0, c=self.upper, overwrite_c=1)

    def merge(self, other: RidgeSums) -> RidgeSums:
        """Add the sums over other rows to these sums, and return these sums."""
        self._combine(other, 1)
        self.eps = max(self.eps, other.eps)
        self.largest = max(self.largest, other.largest, self.trace)
        return self

    def subtract(self, other: RidgeSums) -> RidgeSums:
        """Subtract the sums over rows that were added before, and return the remaining sums."""
        self._combine(other, -1)
        return self

    def _combine(self, other: RidgeSums, sign: int) -> None:
        if (other.n_features, other.n_targets) != (self.n_features, self.n_targets):
            raise ValueError(
                f"cannot merge sums of {other.n_features} features and {other.n_targets} targets into sums of "
                f"{self.n_features} and {self.n_targets}"
            )
        theirs = {name: xa.like(getattr(other, name), self.upper) for name in _ARRAYS}
        if self.n_rows == 0:
            self.origin = theirs["origin"] + 0
        shift = theirs["origin"] - self.origin
        theirs["cross"] = theirs["cross"] + theirs["feature_sum"] @ shift
        theirs["target_sum"] = theirs["target_sum"] + other.weight * shift
        self.n_rows += sign * other.n_rows
        self.weight += sign * other.weight
        for name in _SUMS:
            (operator.iadd if sign > 0 else operator.isub)(getattr(self, name), theirs[name])

    def decay(self, factor: float) -> None:
        """Multiply the weights of all rows so far by `factor`."""
        self.weight *= factor
        for name in _SUMS:
            total = getattr(self, name)
            total *= factor

    def widen(self, n_targets: int) -> None:
        """Add target columns of zeros."""
        for name in ("cross", "target_sum", "origin"):
            old = getattr(self, name)
            new = self._zeros(old.shape[0], n_targets)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def whiten(self, penalty: Array | None = None) -> WhitenedRidge:
        """Return the centred problem in coordinates in which the penalty (default identity) is the identity, in O(p^3)."""
        if self.weight <= 0:
            raise ValueError("no rows with a positive weight were added: there is nothing to solve")
        return WhitenedRidge(self, penalty)

    def solve(self, ridge: float, penalty: Array | None = None) -> RidgeSolution:
        """Return the minimiser for one ridge."""
        return self.whiten(penalty).solve(ridge)

    def copy(self) -> RidgeSums:
        """Return an independent copy."""
        other = object.__new__(RidgeSums)
        vars(other).update(vars(self), _scratch=None)
        for name in _ARRAYS:
            total = getattr(self, name)
            setattr(other, name, total + 0 if xa.is_torch(total) else total.copy(order="F"))
        return other

    @classmethod
    def from_state(cls, state: dict[str, Any], reference: Array | None = None) -> RidgeSums:
        """Return the sums stored by `__getstate__`, as arrays like `reference` (default NumPy)."""
        p, k = state["cross"].shape
        new = cls(p, k, reference)
        for name in _ARRAYS:
            if name in state:  # model files of version 0.1.0 have no origin
                getattr(new, name)[...] = xa.like(state[name], new.upper)
        new.n_rows, new.weight = int(state["n_rows"]), float(state["weight"])
        new.eps, new.largest = float(state["eps"]), float(state["largest"])
        return new

    def __getstate__(self) -> dict[str, Any]:
        # Files and other processes get NumPy arrays, also if the sums are tensors.
        counts = {name: getattr(self, name) for name in ("n_rows", "weight", "eps", "largest")}
        return {name: xa.to_numpy(getattr(self, name)) for name in _ARRAYS} | counts

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(RidgeSums.from_state(state).__dict__)


@dataclass
class RidgeSolution:
    """Minimiser for one ridge, with diagnostics."""

    A: Array
    """Coefficients of the features, shape (p, k)."""
    bias: Array
    """Intercepts, shape (k,)."""
    cut: float
    """Absolute value of the most negative eigenvalue of `M` if Cholesky failed because of this eigenvalue, else zero."""
    condition: float
    """Estimated condition number of `M + ridge I`."""


class WhitenedRidge:
    """Centred problem with the identity as penalty; built by `RidgeSums.whiten`.

    `jitter` is the number added to the diagonal of the penalty, or None without a penalty matrix.
    """

    def __init__(self, sums: RidgeSums, penalty: Array | None = None):
        S = sums.upper if xa.is_torch(sums.upper) else np.triu(sums.upper) + np.triu(sums.upper, 1).T
        self.weight = sums.weight
        self.mean = sums.feature_sum / sums.weight
        deviation = sums.target_sum / sums.weight
        self.target_mean = sums.origin + deviation
        centred = S - (sums.feature_sum @ self.mean.T)
        right = sums.cross - sums.feature_sum @ deviation
        self._L: Array | None = None
        self.jitter: float | None = None
        if penalty is not None:
            penalty = xa.like(penalty, S)
            self._L, self.jitter = jittered_cholesky(penalty, rounding_of(penalty, sums.eps))
            half = xa.solve_triangular(self._L, centred)
            centred = xa.solve_triangular(self._L, half.T + 0)
            right = xa.solve_triangular(self._L, right)
        # Row-major, as `add_diagonal_` requires.
        self._M = xa.empty((int(S.shape[0]), int(S.shape[0])), S)
        self._M[...] = (centred + centred.T) / 2
        self._right = right
        self._Q: Array | None = None

    def _diagonalise(self) -> None:
        """Compute the eigenvectors of `M` on first use, because this is ten times the work of a Cholesky factorisation."""
        if self._Q is not None:
            return
        xp = xa.namespace(self._M)
        values, self._Q = xa.eigh(self._M + 0)
        self._least = float(values[0])
        self._values = xp.where(values > 0, values, xp.zeros_like(values))
        self._g = self._Q.T @ self._right

    def solve(self, ridge: float) -> RidgeSolution:
        """Return the minimiser for one ridge."""
        if not ridge > 0:
            raise ValueError(f"the ridge must be positive, got {ridge!r}")
        factor, cut = None, 0.0
        if self._Q is None:
            try:
                factor = xa.cholesky_(xa.add_diagonal_(self._M + 0, ridge))
            except xa.NotPositiveDefiniteError:
                self._diagonalise()
                cut = -self._least
        if factor is not None:
            A, condition = xa.cholesky_solve(factor, self._right), self._condition(factor, ridge)
        else:
            A = self._Q @ (self._g / (self._values + ridge)[:, None])
            condition = float((self._values[-1] + ridge) / (self._values[0] + ridge))
        if self._L is not None:
            A = xa.solve_triangular(self._L, A, transposed=True)
        return RidgeSolution(A, (self.target_mean - self.mean.T @ A)[0], cut, condition)

    def _condition(self, factor: Array, ridge: float) -> float:
        """Return LAPACK's estimate of the condition number in the 1-norm, in O(p^2) time."""
        xp = xa.namespace(self._M)
        norm = float(xp.max(xp.sum(xp.abs(self._M), axis=0))) + ridge
        reciprocal, _ = scipy.linalg.lapack.dpocon(xa.to_numpy(factor), norm, uplo="L")
        return 1.0 / reciprocal if reciprocal > 0 else np.inf

    def leave_one_out(self, features: Array, targets: Array, ridges: Sequence[float], weights: Array | None = None) -> Array:
        """Return the leave-one-out residuals of rows that are part of the sums, shape (len(ridges), n, k)."""
        self._diagonalise()
        n = int(features.shape[0])
        out = xa.empty((len(ridges), n, int(targets.shape[1])), self._values)
        for rows in slices(n, TUNING.left_out_rows):
            U = xa.astype(features[rows], np.float64) - self.mean.T
            U = U @ self._Q if self._L is None else xa.solve_triangular(self._L, U.T + 0).T @ self._Q
            squares = U * U
            Z = xa.astype(targets[rows], np.float64) - self.target_mean
            for i, ridge in enumerate(ridges):
                inverse = 1.0 / (self._values + ridge)
                leverage = 1.0 / self.weight + squares @ inverse
                if weights is not None:
                    leverage = leverage * xa.like(weights[rows], leverage)
                free = xa.clip_below_(1.0 - leverage, _SMALLEST_FREEDOM)
                out[i, rows] = (Z - U @ (self._g * inverse[:, None])) / free[:, None]
        return out
