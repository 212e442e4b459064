"""Ridge regression from sums alone: what one pass over the rows has to remember.

With features `phi_i` (p of them), targets `z_i` and weights `w_i`, the minimiser of

    sum_i w_i ||z_i - A^T phi_i - b||^2 + ridge * tr(A^T P A)

depends on the data only through

    S = sum w phi phi^T,   T = sum w phi z^T,   s = sum w phi,   t = sum w z,   N = sum w

which add up in any order and in any grouping of the rows. `NormalEquations` holds these sums in float64: `update` adds a
batch (O(b p^2) time), `merge` adds another accumulator, `decay` makes the past count less. `whiten` changes to coordinates
in which the penalty `P = L L^T` is the identity, centres (the bias `b` is not penalised) and diagonalises

    L^-1 (S - s s^T / N) L^-T = Q diag(v) Q^T

after which each ridge costs O(p k): see `gramless.solvers.whitened`.

Rounding. A float32 batch is multiplied in float32 and added in float64, so the error of `S` does not grow with the number of
batches but is that of one float32 product; it is tracked (`rounding`). Directions of `P` whose share of `S` is below that
error carry no information; the jitter added to `P` is the eigenvalue at which the two are equal, and is stated in the result.

Memory: `8 p^2` bytes, and `4 p^2` more while float32 batches come in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.blas

from gramless import _array as xa
from gramless._array import Array
from gramless.solvers.whitened import WhitenedRidge

# Standard deviation of an entry's error in a blocked float32 product, in units of eps times the entry: measured.
_PRODUCT_ERROR = 1.5


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
    >>> from gramless.solvers import NormalEquations
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
        self.rounding = 0.0
        """Estimate of the spectral norm of the error of `S`, from products in less than float64."""
        self._upper = self._zeros(n_features, n_features)  # the strict lower triangle (in its own order) stays zero
        self._cross = self._zeros(n_features, n_targets)
        self._features = self._zeros(n_features, 1)
        self._targets = self._zeros(1, n_targets)
        self._squares = self._zeros(1, n_targets)
        self._product: np.ndarray | None = None

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
        xp = xa.namespace(features)
        targets = xa.astype(targets, xa.numpy_dtype(features))
        root = xp.ones_like(targets[:, :1])
        if weights is None:
            self.weight += b
        else:
            self.weight += float(xp.sum(xa.astype(weights, np.float64)))
            root = xa.like(weights, features)[:, None] ** 0.5
            features, targets = features * root, targets * root
        self.n_rows += b
        cross = xa.astype(features.T @ xp.concat([targets, root], axis=1), np.float64)
        self._cross += cross[:, :-1]
        self._features += cross[:, -1:]
        double = xa.astype(targets, np.float64)
        self._targets += xp.sum(double * root, axis=0)[None, :]
        self._squares += xp.sum(double * double, axis=0)[None, :]
        self._add_product(features)

    def _add_product(self, features: Array) -> None:
        single = xa.numpy_dtype(features) != np.float64
        if xa.is_torch(features):
            product = features.T @ features
            self._upper += xa.astype(product, np.float64)
        elif not single:
            product = None
            # The transpose of a row-major block is column-major: no copy.
            scipy.linalg.blas.dsyrk(1.0, np.ascontiguousarray(features).T, beta=1.0, c=self._upper, overwrite_c=1)
        else:
            if self._product is None:
                self._product = np.zeros(self._upper.shape, dtype=np.float32, order="F")
            product = scipy.linalg.blas.ssyrk(1.0, np.ascontiguousarray(features).T, c=self._product, overwrite_c=1)
            self._upper += product
        if single:
            trace = float(xa.namespace(product).sum(xa.astype(xa.namespace(product).linalg.diagonal(product), np.float64)))
            p = self.n_features
            error = 2 * p**0.5 * _PRODUCT_ERROR * float(np.finfo(xa.numpy_dtype(features)).eps) * trace / p
            # The errors of different batches are independent: their squares add.
            self.rounding = float(np.hypot(self.rounding, error))

    def decay(self, factor: float) -> None:
        """Multiply the weight of everything seen so far by `factor` (exponential forgetting)."""
        self.weight *= factor
        self.rounding *= factor
        for total in (self._upper, self._cross, self._features, self._targets, self._squares):
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
        self.rounding = float(np.hypot(self.rounding, other.rounding))
        self._upper += xa.like(other._upper, self._upper)
        self._cross += xa.like(other._cross, self._upper)
        self._features += xa.like(other._features, self._upper)
        self._targets += xa.like(other._targets, self._upper)
        self._squares += xa.like(other._squares, self._upper)
        return self

    def widen(self, n_targets: int) -> None:
        """Make room for targets that were zero in every row so far, such as the indicator of a class first met now."""
        for name in ("_cross", "_targets", "_squares"):
            old = getattr(self, name)
            new = self._zeros(old.shape[0], n_targets)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def permute_targets(self, order: np.ndarray) -> None:
        """Put the targets into another order."""
        at = xa.indices(np.asarray(order), self._cross)
        for name in ("_cross", "_targets", "_squares"):
            setattr(self, name, getattr(self, name)[:, at])

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
            least_share=self.rounding * self.n_features / self.weight,
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
            "squares": self._squares,
            "n_rows": self.n_rows,
            "weight": self.weight,
            "rounding": self.rounding,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], reference: Array = None) -> NormalEquations:
        """The accumulator that `state` was taken from, on `reference`'s library and device."""
        new = cls(*state["cross"].shape, reference)
        for name in ("upper", "cross", "features", "targets", "squares"):
            getattr(new, f"_{name}")[...] = xa.like(state[name], new._upper)
        new.n_rows, new.weight, new.rounding = int(state["n_rows"]), float(state["weight"]), float(state["rounding"])
        return new

    def __getstate__(self) -> dict[str, Any]:
        # The float32 buffer is scratch; without it what travels between processes is two thirds.
        return {**self.__dict__, "_product": None}
