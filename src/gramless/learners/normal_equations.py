"""Ridge regression from sums alone: what one pass over the rows has to remember.

With features `phi_i` (p of them), targets `z_i` and weights `w_i`, the minimiser of

    sum_i w_i ||z_i - A^T phi_i - b||^2 + ridge * tr(A^T P A)

depends on the data only through

    S = sum w phi phi^T,   T = sum w phi z^T,   s = sum w phi,   t = sum w z,   N = sum w

which add up in any order and in any grouping of the rows. `NormalEquations` holds these sums in float64: `update` adds a
batch (O(b p^2) time), `merge` adds another accumulator, `decay` makes the past count less. `whiten` changes to coordinates
in which the penalty `P = L L^T` is the identity, centres (the bias `b` is not penalised) and diagonalises

    L^-1 (S - s s^T / N) L^-T = Q diag(v) Q^T

after which each ridge costs O(p k): see `gramless.learners.whitened`.

Rounding. Batches of float32 features are multiplied in float64: summed in float32, a product over n rows carries an error of
about `eps sqrt(n)` in every direction, which the whitening divides by the small eigenvalues of `P` (a smooth kernel on 300
landmarks then predicts noise). What remains is the rounding of the features themselves; directions of `P` below it carry no
information, and the jitter added to `P` is at that level (`whiten` says how much).

Memory: `8 p^2` bytes, and `16 kB` for each feature while float32 batches come in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.blas

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless.learners.whitened import WhitenedRidge

# Rows converted to float64 at a time: each product reads and writes all of S, so not too few.
_CONVERTED_ROWS = 2048
# Rounding of a feature, in units of eps. On digits in float32, 0.03 to 1 come equally close to the float64 solution;
# more than that is a bias that shows.
_FEATURE_ERROR = 1.0


class NormalEquations:
    """Sums of a weighted least-squares problem, in float64, that add up batch by batch.

    Parameters
    ----------
    n_features : int
    n_targets : int
    reference : array, optional
        An array of the library and device to keep the sums on; NumPy by default.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.learners.normal_equations import NormalEquations
    >>> X = np.arange(6.0)[:, None]
    >>> first, second = NormalEquations(1, 1), NormalEquations(1, 1)
    >>> first.update(X[:2], 2 * X[:2] + 1)
    >>> second.update(X[2:], 2 * X[2:] + 1)
    >>> coef, intercept = first.merge(second).solve(ridge=1e-9)
    >>> coef.round(6), intercept.round(6)
    (array([[2.]]), array([1.]))
    """

    def __init__(self, n_features: int, n_targets: int, reference: Array = None):
        self._reference = np.empty(0) if reference is None else reference
        self.n_rows = 0
        """Rows seen, whatever their weights."""
        self.weight = 0.0
        """The sum of the weights."""
        self.eps = float(np.finfo(np.float64).eps)
        """Relative precision of the features added so far."""
        self._upper = self._zeros(n_features, n_features)  # the strict lower triangle (in its own order) stays zero
        self._cross = self._zeros(n_features, n_targets)
        self._features = self._zeros(n_features, 1)
        self._targets = self._zeros(1, n_targets)
        self._scratch: np.ndarray | None = None

    def _zeros(self, *shape: int) -> Array:
        if xa.is_torch(self._reference):
            return xa.zeros(shape, self._reference, np.float64)
        # Column-major: BLAS's symmetric update adds into it without a copy.
        return np.zeros(shape, order="F")

    @property
    def n_features(self) -> int:
        return int(self._cross.shape[0])

    @property
    def n_targets(self) -> int:
        return int(self._cross.shape[1])

    def update(self, features: Array, targets: Array, weights: Array = None) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        features : array of shape (b, n_features)
            float32 or float64, on the accumulator's device.
        targets : array of shape (b, n_targets)
        weights : array of shape (b,), optional
            At least 0; ones by default.
        """
        if tuple(features.shape) != (targets.shape[0], self.n_features) or targets.shape[1] != self.n_targets:
            raise ValueError(
                f"a batch of features {tuple(features.shape)} and targets {tuple(targets.shape)} does not fit "
                f"{self.n_features} features and {self.n_targets} targets"
            )
        b = int(features.shape[0])
        if b == 0:
            return
        if xa.device_of(features) != xa.device_of(self._upper):  # loaded from a file, or merged from another device
            self.__dict__.update(NormalEquations.from_state(self.state(), features).__dict__)
        self.n_rows += b
        self.eps = max(self.eps, float(np.finfo(xa.numpy_dtype(features)).eps))
        if xa.is_torch(features) or xa.numpy_dtype(features) == np.float64:
            self._add(xa.astype(features, np.float64), _double(targets), _double(weights))
            return
        if self._scratch is None:
            self._scratch = np.empty((_CONVERTED_ROWS, self.n_features))
        for start in range(0, b, _CONVERTED_ROWS):
            rows = slice(start, min(b, start + _CONVERTED_ROWS))
            F = self._scratch[: rows.stop - start]
            F[...] = features[rows]
            self._add(F, _double(targets[rows]), None if weights is None else _double(weights[rows]))

    def _add(self, F: Array, Z: Array, weights: Array) -> None:
        xp = xa.namespace(F)
        root = xp.ones_like(Z[:, :1])
        if weights is None:
            self.weight += int(F.shape[0])
        else:
            self.weight += float(xp.sum(weights))
            root = weights[:, None] ** 0.5
            F, Z = F * root, Z * root
        cross = F.T @ xp.concat([Z, root], axis=1)
        self._cross += cross[:, :-1]
        self._features += cross[:, -1:]
        self._targets += xp.sum(Z * root, axis=0)[None, :]
        if xa.is_torch(F):
            self._upper += F.T @ F
        else:
            # The transpose of a row-major block is column-major: BLAS adds one triangle of the product without a copy.
            scipy.linalg.blas.dsyrk(1.0, np.ascontiguousarray(F).T, beta=1.0, c=self._upper, overwrite_c=1)

    def decay(self, factor: float) -> None:
        """Multiply the weight of everything seen so far by `factor` (exponential forgetting)."""
        self.weight *= factor
        for total in (self._upper, self._cross, self._features, self._targets):
            total *= factor

    def merge(self, other: NormalEquations) -> NormalEquations:
        """Add the sums of `other`, which stays as it is; returns self."""
        if (other.n_features, other.n_targets) != (self.n_features, self.n_targets):
            raise ValueError(
                f"cannot merge sums of {other.n_features} features and {other.n_targets} targets into sums of "
                f"{self.n_features} and {self.n_targets}"
            )
        self.n_rows += other.n_rows
        self.weight += other.weight
        self.eps = max(self.eps, other.eps)
        self._upper += xa.like(other._upper, self._upper)
        self._cross += xa.like(other._cross, self._upper)
        self._features += xa.like(other._features, self._upper)
        self._targets += xa.like(other._targets, self._upper)
        return self

    def widen(self, n_targets: int) -> None:
        """Make room for targets that were zero in every row so far, such as the indicator of a class first met now."""
        for name in ("_cross", "_targets"):
            old = getattr(self, name)
            new = self._zeros(old.shape[0], n_targets)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def whiten(self, penalty: Array = None) -> WhitenedRidge:
        """The problem in coordinates where the penalty and `S` are both diagonal: O(p^3), then any ridge is cheap.

        Parameters
        ----------
        penalty : array of shape (n_features, n_features), optional
            Positive semi-definite, float64; the identity by default.
        """
        if self.weight <= 0:
            raise ValueError("no rows with a positive weight were added: there is nothing to solve")
        S = self._upper if xa.is_torch(self._upper) else np.triu(self._upper) + np.triu(self._upper, 1).T
        return WhitenedRidge(
            S,
            self._cross,
            self._features,
            self._targets,
            self.weight,
            penalty=penalty,
            relative_jitter=_FEATURE_ERROR * self.n_features**0.5 * self.eps,
        )

    def solve(self, ridge: float, penalty: Array = None) -> tuple[Array, Array]:
        """Coefficients `(n_features, n_targets)` and biases `(n_targets,)` at one ridge, in float64."""
        return self.whiten(penalty).solve(ridge)

    def state(self) -> dict[str, Any]:
        """Everything as arrays and numbers, for a file or another process."""
        return {
            "upper": self._upper,
            "cross": self._cross,
            "features": self._features,
            "targets": self._targets,
            "n_rows": self.n_rows,
            "weight": self.weight,
            "eps": self.eps,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], reference: Array = None) -> NormalEquations:
        """The accumulator that `state` was taken from, on `reference`'s library and device."""
        p, k = state["cross"].shape
        new = cls(p, k, reference)
        for name in ("upper", "cross", "features", "targets"):
            getattr(new, f"_{name}")[...] = xa.like(state[name], new._upper)
        new.n_rows, new.weight, new.eps = int(state["n_rows"]), float(state["weight"]), float(state["eps"])
        return new

    def __getstate__(self) -> dict[str, Any]:
        # NumPy travels between processes and into files, wherever the sums were kept.
        return {key: xa.to_numpy(value) if hasattr(value, "shape") else value for key, value in self.state().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(NormalEquations.from_state(state).__dict__)


def _double(x: Array) -> Array:
    return None if x is None else xa.astype(x, np.float64)
