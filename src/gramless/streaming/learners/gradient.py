"""Regularised least squares by stochastic gradient descent, with a step size derived from the loss.

    L(A, b) = 1/n [ 1/2 sum_i w_i ||z_i - A^T phi_i - b||^2 + (1 / C) (1/2 tr(A^T P A) - tr(A^T Q)) ]

The curvature `H = mean phi phi^T` of kernel features has eigenvalues of very different size, and the largest eigenvalue
limits a plain gradient step. A preconditioner therefore reduces the q leading eigenvalues of `H` on a subsample, with
eigenvectors `V`, to the next eigenvalue: `g <- g - V (1 - v_{q+1} / v) V^T g`, where `v` is the curvature of the full loss
along `V` (Ma and Belkin, "Diving into the shallows", 2017). After this equalisation, the size of a step is
`batch / (max ||phi||^2 + (batch - 1) v_{q+1})`, computed from rows that were not used for the eigenvectors. If the loss
exceeds a multiple of the loss of the zero model, or is not a number, the coefficients return to the last snapshot and the
step is halved. If `learning_rate` is given, it is the size of all steps, without equalisation (plain SGD).

A few rows can have a hundred times the squared norm of most rows and would make the step small for all rows. With
`limit_norms` the step is computed for four times the mean squared norm, and rows above this limit get smaller weights. As
the step decreases, all rows return to full weight, so the same loss is minimised as without limit, in a third of the epochs.

`Q` are the targets of the landmarks (`loss="dual"`) or zero (`loss="primal"`). The product with `P` is computed once for
several batches. Cost for p features and k outputs: O(p (k + q)) for each row, O(s^2 p + s^3) once for s subsampled rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE
from gramless.approximation.features.base import FeatureMap, Features
from gramless.linalg.operators import nbytes_cached
from gramless.streaming.learners.base import LearnedCoefficients, Learner, LearnerState, LeftOutRows, PassSize
from gramless.streaming.tuning import TUNING, StreamingTuning

OPTIMIZERS = ("sgd", "averaged_sgd", "adam")
LOSSES = ("dual", "primal")
ALL_FEATURES = "features of all rows"
# Number of float64 matrices in memory at the peak of an eigendecomposition: the matrix, the eigenvectors, workspace.
_EIGEN_MATRICES = 4
# Attributes of `GradientState` that have other names in model files of version 0.1.0.
_NAMES_0_1 = {
    "soften": "limit_norms",
    "loudest": "norm_limit",
    "nothing": "zero_loss",
    "V": "eigenvectors",
    "D": "shares",
    "mean_2": "n_averaged",
    "moments_0": "moment_1",
    "moments_1": "moment_2",
    "moments_2": "n_moments",
    "moments_3": "adam_rate",
    "moments_4": "first_step",
}
# Arrays of coefficients and biases that are stored as two separate arrays in model files of version 0.1.0.
_PAIRS_0_1 = {"W": ("A", "b"), "mean": ("mean_0", "mean_1"), "snapshot": ("good_0", "good_1")}


@dataclass(eq=False, repr=False)
class GradientDescent(Learner):
    """Learner by stochastic gradient descent; `rows_measured` random rows determine the step size."""

    merges = False
    shuffles = True

    C: float | str = 1.0
    _: KW_ONLY
    optimizer: str = "sgd"
    batch_size: int = 64
    epochs: int = 30
    loss: str = "primal"
    learning_rate: float | None = None
    rows_measured: int = 2000
    tuning: StreamingTuning = TUNING

    def check(self) -> None:
        if self.C == "loo":
            raise ValueError("C='loo' needs the exact sums: use method='exact' or NystromLSSVC")
        if self.learning_rate is not None and self.optimizer == "adam":
            raise ValueError("learning_rate sets the steps of optimizer='sgd' or 'averaged_sgd', got optimizer='adam'")

    def memory(self, p: int, size: PassSize) -> dict[str, int]:
        s = self.rows_measured if size.n is None else min(size.n, self.rows_measured)
        return {"curvature": 2 * s * p * size.dtype.itemsize + _EIGEN_MATRICES * 8 * (s // 2) ** 2}

    def optional_memory(self, feature_map: FeatureMap, p: int, size: PassSize, budget: int, left: int) -> dict[str, int]:
        parts: dict[str, int] = {}
        itemsize = size.dtype.itemsize
        if feature_map.keeps_penalty:
            gram = nbytes_cached(p, itemsize, CPU_TILE)
            parts["kernel matrix of the points"] = gram if gram <= budget // self.tuning.penalty_share else 0
        left -= sum(parts.values())
        cache = (size.n or 0) * p * itemsize
        return {ALL_FEATURES: cache if cache <= min(budget // 2, left) else 0, **parts}

    def begin(
        self,
        features: Features,
        Phi: Array,
        n_targets: int,
        *,
        n_rows: int,
        known: bool = True,
        budget: int = 0,
        own_targets: Array | None = None,
    ) -> GradientState:
        # A product with P costs p / (2 batch) times as much as the two products of a step. With one product with P in
        # p / (2 batch) steps, this product takes half of the time.
        every = features.n_features // (2 * self.batch_size)
        if self.learning_rate is None:
            every = min(self.tuning.penalty_batches, every)
        state = GradientState(
            xa.zeros((features.n_features + 1, n_targets), Phi),
            optimizer=self.optimizer,
            linear=None if self.loss == "primal" else own_targets,
            penalty_every=1 if features.identity_penalty else max(1, every),
            # Reduced weights return to one only if the step decreases, which needs a known number of rows.
            limit_norms=self.optimizer == "sgd" and known and self.epochs > 1 and self.learning_rate is None,
            learning_rate=self.learning_rate,
            C=float(self.C),
            batch=int(self.batch_size),
            n_rows=n_rows,
            known=known,
            epochs=self.epochs,
            tuning=self.tuning,
        )
        state.attach(features, budget)
        state.prepare(Phi)
        return state

    def solve(self, state: GradientState, features: Features, left_out: LeftOutRows | None = None) -> LearnedCoefficients:
        W = xa.to_numpy(state.W if state.mean is None else state.mean)
        return LearnedCoefficients(W[:-1], W[-1], float(self.C), features.jitter)


@dataclass(eq=False)
class GradientState(LearnerState):
    """Coefficients, preconditioner and step size of gradient descent with `batch` rows per step.

    `W` has the coefficients of the features and, in the last row, the biases. If `known`, the step size decreases towards
    the end of `epochs` passes over `n_rows` rows. `linear` is `Q` of the loss. The gradient of the penalty is added once for
    `penalty_every` batches. The preconditioner reduces the eigenvalues of `eigenvectors` by the fractions `shares`.
    """

    W: Array
    _: KW_ONLY
    optimizer: str
    C: float = 1.0
    batch: int = 64
    n_rows: int = 1
    epochs: int = 1
    known: bool = True
    linear: Array | None = None
    penalty_every: int = 1
    limit_norms: bool = False
    learning_rate: float | None = None
    tuning: StreamingTuning = TUNING
    features: Features | None = None
    penalty_bytes: int = 0
    rows_seen: int = 0
    rows_before: int = 0
    loss: float = 0.0
    batches: int = 0
    step: float = 0.0
    n_steps: int = 0
    halvings: int = 0
    failures: int = 0
    zero_loss: float = 0.0
    norm_limit: float = np.inf
    eigenvectors: Any = None
    shares: Any = None
    snapshot: Any = None
    mean: Any = None
    n_averaged: int = 0
    moment_1: Any = None
    moment_2: Any = None
    n_moments: int = 0
    adam_rate: float = 0.0
    first_step: float = 0.0

    def __post_init__(self) -> None:
        self.snapshot = self.W + 0

    @property
    def n_targets(self) -> int:
        return int(self.W.shape[1])

    def attach(self, features: Features, budget: int) -> None:
        self.features, self.penalty_bytes = features, budget // self.tuning.penalty_share

    def prepare(self, features: Array) -> None:
        """Derive the eigenvectors from one half of a subsample of features, and the step size from the other half.

        If `learning_rate` is given, it is the size of all steps, and no eigenvectors are computed.
        """
        if self.learning_rate is not None:
            self.step = self.learning_rate
            return
        ridge, batch = 1.0 / (self.C * self.n_rows), self.batch
        xp = xa.namespace(features)
        G = xp.concat([features, xp.ones_like(features[:, :1])], axis=1)
        s = int(G.shape[0])
        half = max(1, s // 2) if s > 3 else s
        first, second = G[:half], (G[half:] if s > 3 else G)
        gram = xa.astype(first @ first.T, np.float64)
        gram /= half
        values, U = xa.eigh(gram)
        top = xa.to_numpy(values)[::-1]
        # At most one eigenvector for ten rows, because further eigenvectors of the sample differ from those of all rows.
        noise = 10 * float(np.finfo(xa.numpy_dtype(features)).eps) * top[0]
        q = min(self.tuning.equalised_eigenvectors, half // 10, int(np.count_nonzero(top > noise)) - 1)
        if q > 0:
            leading = xa.astype(U[:, -q - 1 :], xa.numpy_dtype(features))
            V = (first.T @ leading) * xa.like(1.0 / np.sqrt(half * top[: q + 1][::-1]), features)
            pulls = xa.to_numpy(xp.sum(V * self._penalised(V), axis=0)).astype(np.float64)
            # The curvature includes the penalty, which along some eigenvectors has more curvature than the squared error.
            curvatures = top[: q + 1][::-1] + ridge * np.maximum(pulls, 0.0)
            shares = np.maximum(0.0, 1.0 - curvatures[0] / curvatures[1:])
            self.eigenvectors, self.shares = V[:, 1:] + 0, xa.like(shares, features)[:, None]
        norms = xa.to_numpy(self.squared_norms(second[:, :-1])).astype(np.float64)
        largest = _largest_eigenvalue(lambda v: self._equalised(second.T @ (second @ v) / int(second.shape[0])), second)
        together = (batch - 1) * largest
        largest_norm = float(norms.max())
        if self.limit_norms:
            limit = max(together, self.tuning.norm_factor * float(norms.mean()))
            largest_norm = self.norm_limit = min(largest_norm, limit)
        curvature = (largest_norm + together) / batch
        regular = _largest_eigenvalue(lambda v: self._equalised(self._penalised(v)), second)
        self.step = 1.0 / (curvature + ridge * self.penalty_every * regular)

    def measure(self, Phi: Array) -> Array | None:
        """Return the squared norm of each row if `limit_norms` is True, else None."""
        self._move_to(Phi)
        return self.squared_norms(Phi) if self.limit_norms else None

    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Make one gradient step for each mini-batch of the rows, which must be in random order."""
        self._move_to(Phi)
        count = int(Phi.shape[0])
        n = self.n_rows if self.known else self.rows_seen + count
        total = self.epochs * self.n_rows if self.known else None
        for start in range(0, count, self.batch):
            rows = slice(start, min(start + self.batch, count))
            progress = 0.0 if total is None else self.rows_seen / total
            # A constant step would leave the noise of the gradient in the solution, so the step decreases.
            constant = self.optimizer == "averaged_sgd" or self.learning_rate is not None
            decay = 1.0 if constant else max(self.tuning.last_step, min(1.0, 2 * (1 - progress)))
            counted = None if weights is None else weights[rows]
            if measured is not None:
                counted = self.reduced_weights(counted, measured[rows], decay)
            self.loss += self.update(Phi[rows], Z[rows], counted, 1.0 / (self.C * n), decay)
            self.batches += 1
            if progress >= 0.5 or total is None:
                self.average()
            self.rows_seen += rows.stop - rows.start

    def end_pass(self) -> dict[str, float]:
        """Return the mean loss of the batches of this epoch, computed before each step, and the step size."""
        record = {"loss": self.loss / max(1, self.batches), "step": self.step}
        self.loss, self.batches = 0.0, 0
        self.n_rows, self.rows_before, self.known = self.rows_seen - self.rows_before, self.rows_seen, True
        return record

    def reopen(self) -> None:
        self.known = False
        self.loss, self.batches = 0.0, 0

    def squared_norms(self, F: Array) -> Array:
        """Return the squared norm of each row of the features `F` (with a constant feature) after equalisation."""
        xp = xa.namespace(F)
        norms = xp.sum(F * F, axis=1) + 1
        V = self.eigenvectors
        if V is None:
            return norms
        along = F @ V[:-1] + V[-1:]
        return norms - (along * along @ self.shares)[:, 0]

    def _penalty_product(self, A: Array) -> Array:
        if self.features is None:
            raise RuntimeError("attach the features before adding rows")
        return self.features.penalty_product(A, self.penalty_bytes)

    def _penalised(self, v: Array) -> Array:
        xp = xa.namespace(v)
        return xp.concat([self._penalty_product(v[:-1]), xp.zeros_like(v[-1:])], axis=0)

    def _equalised(self, g: Array, *, half: bool = False) -> Array:
        """Return the product of the preconditioner (with `half`, of its symmetric square root) and `g`."""
        V, shares = self.eigenvectors, self.shares
        if V is None:
            return g
        return g - V @ ((1 - (1 - shares) ** 0.5 if half else shares) * (V.T @ g))

    def widen(self, n_targets: int) -> None:
        for name in ("W", "snapshot", "mean", "linear"):
            old = getattr(self, name)
            if old is not None and old.shape[1] < n_targets:
                zeros = xa.zeros((int(old.shape[0]), n_targets - int(old.shape[1])), old)
                setattr(self, name, xa.namespace(old).concat([old, zeros], axis=1))
        self.moment_1 = None

    def reduced_weights(self, weights: Array | None, norms: Array, decay: float) -> Array | None:
        """Return row weights that are reduced so that no weighted squared norm times `decay` exceeds `norm_limit`."""
        if weights is not None:
            norms = norms * weights
        if decay * float(norms.max()) <= self.norm_limit:
            return weights
        xp = xa.namespace(norms)
        factors = self.norm_limit / xp.clip(decay * norms, min=self.norm_limit)
        return factors if weights is None else weights * factors

    def update(self, F: Array, Z: Array, weights: Array | None, ridge: float, decay: float = 1.0) -> float:
        """Make one step, with the step size multiplied by `decay`, on a mini-batch; return the loss before the step."""
        xp = xa.namespace(F)
        n = int(F.shape[0])
        R = Z - F @ self.W[:-1] - self.W[-1:]
        if weights is not None:
            weighted = R * weights[:, None]
            zero_loss = float(xp.sum(Z * Z * weights[:, None])) / n
        else:
            weighted, zero_loss = R, float(xp.sum(Z * Z)) / n
        loss = float(xp.sum(weighted * R)) / n
        self.zero_loss = max(self.zero_loss, zero_loss)
        if not np.isfinite(loss) or loss > self.tuning.divergence_factor * self.zero_loss:
            self._return_to_snapshot()
            return self.zero_loss
        self.failures = 0
        if self.n_steps % self.tuning.snapshot_steps == 0 and loss <= self.zero_loss:
            self.snapshot = self.W + 0
        g = xp.concat([F.T @ weighted, xp.sum(weighted, axis=0)[None, :]], axis=0) / -n
        if self.n_steps % self.penalty_every == 0:
            pull = self._penalty_product(self.W[:-1])
            pull = pull if self.linear is None else pull - self.linear
            g[:-1] += (ridge * self.penalty_every) * pull
        self.W = self.W + self._change(g, decay)
        self.n_steps += 1
        return loss

    def _change(self, g: Array, decay: float) -> Array:
        if self.optimizer != "adam":
            return self._equalised(g) * (-self.step * decay)
        # Adam runs in coordinates in which the leading eigenvalues are equal: the coefficients are the square root of the
        # preconditioner times the coordinates. In other coordinates, Adam's division of each entry would undo this equality.
        xp = xa.namespace(g)
        g = self._equalised(g, half=True)
        if self.moment_1 is None:
            # The entries of Adam's direction are about 1 for a gradient of any norm, so the rate is a fraction of the root
            # mean square change of a coefficient in a first step of plain gradient descent.
            self.adam_rate = self.tuning.adam_fraction * self.step * float(xp.sum(g * g) / (g.shape[0] * g.shape[1])) ** 0.5
            self.moment_1, self.moment_2, self.n_moments, self.first_step = xp.zeros_like(g), xp.zeros_like(g), 0, self.step
        self.moment_1 = 0.9 * self.moment_1 + 0.1 * g
        self.moment_2 = 0.999 * self.moment_2 + 0.001 * g * g
        self.n_moments += 1
        means = self.moment_1 / (1 - 0.9**self.n_moments), self.moment_2 / (1 - 0.999**self.n_moments)
        direction = means[0] / (means[1] ** 0.5 + 1e-12)
        return self._equalised(direction, half=True) * (-self.adam_rate * decay * self.step / self.first_step)

    def _return_to_snapshot(self) -> None:
        """Restore the last snapshot and halve the step after divergence."""
        if self.halvings >= self.tuning.halvings:
            raise ArithmeticError("the loss increases for every step size: check that the features are finite and scaled")
        # If the fit diverges again from the snapshot, it starts again from the zero model.
        self.W = self.snapshot * (0.0 if self.failures else 1.0)
        self.step /= 2
        self.halvings += 1
        self.failures += 1
        if self.moment_1 is not None:
            self.moment_1 = self.moment_1 * 0
        self.mean, self.n_averaged = None, 0

    def average(self) -> None:
        """Update the running mean of the coefficients if the optimizer is `"averaged_sgd"`."""
        if self.optimizer != "averaged_sgd":
            return
        mean = 0.0 if self.mean is None else self.mean
        self.n_averaged += 1
        self.mean = mean + (self.W - mean) / self.n_averaged

    def copy(self) -> GradientState:
        """Return a copy that shares the arrays, because steps replace arrays and never write into them."""
        other = object.__new__(GradientState)
        vars(other).update(vars(self))
        return other

    def _move_to(self, reference: Array) -> None:
        """Move the arrays, which are NumPy arrays after they were read from a file, to the device of `reference`."""
        if xa.device_of(self.W) != xa.device_of(reference):
            arrays = {name: value for name, value in vars(self).items() if getattr(value, "ndim", 0)}
            vars(self).update({name: xa.like(value, reference) for name, value in arrays.items()})

    def __getstate__(self) -> dict[str, Any]:
        # Files and other processes get NumPy arrays. The features and their memory are left out; `attach` sets both again.
        left_out = ("tuning", "features", "penalty_bytes")
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return {name: xa.to_numpy(value) if hasattr(value, "shape") else value for name, value in kept.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {_NAMES_0_1.get(name, name): value for name, value in state.items()}
        for name, (A, b) in _PAIRS_0_1.items():
            if A in state:
                state[name] = np.concatenate([state.pop(A), state.pop(b)])
        vars(self).update(state)


def _largest_eigenvalue(apply: Callable[[Array], Array], reference: Array, iterations: int = 12) -> float:
    """Return 1.1 times the result of power iteration, which approaches the largest eigenvalue from below."""
    p = int(reference.shape[1])
    v = xa.like(np.random.RandomState(0).normal(size=(p, 1)), reference)
    value = 0.0
    for _ in range(iterations):
        v = v / (xa.norm(v) or 1.0)
        v = apply(v)
        value = xa.norm(v)
    return 1.1 * value
