"""Regularised least squares by stochastic gradient descent, with a step size derived from the loss.

    L(A, b) = 1/n [ 1/2 sum_i w_i ||z_i - A^T phi_i - b||^2 + (1 / C) (1/2 tr(A^T P A) - tr(A^T Q)) ]

The curvature `H = mean phi phi^T` of kernel features has eigenvalues of very different size, and a plain gradient step is
limited by the largest. The leading eigenvalues of `H` on a subsample, with eigenvectors `V`, are therefore reduced to the
next eigenvalue, `g <- g - V (1 - v_{q+1} / v) V^T g`, where `v` is the curvature of the full loss along `V` (Ma and Belkin,
"Diving into the shallows", 2017). The step is `batch / (max ||phi||^2 + (batch - 1) v_{q+1})`, measured after equalisation
on rows that were not used for the eigenvectors. If the loss exceeds a multiple of that of the zero model, or is not a
number, the coefficients return to the last snapshot and the step is halved. With `learning_rate` all steps have that size
and no direction is equalised: plain stochastic gradient descent.

A few rows can have a hundred times the squared norm of most rows and would make the step small for all. With `limit_norms`
the step is derived from four times the mean squared norm, and the weight of a row above that limit is reduced accordingly.
As the step decreases all weights return to one, so the minimum is that of the loss; a third of the epochs suffices.

`Q` are the targets of the landmarks (`loss="dual"`) or zero (`loss="primal"`). The product with `P` is computed once for
several batches. Cost: O(p (k + q)) for each row, O(s^2 p + s^3) once for a subsample of s rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE
from gramless.approximation.features import FeatureMap, Features
from gramless.linalg.operators import nbytes_cached
from gramless.streaming.learners.base import LearnedCoefficients, Learner, LearnerState, LeftOutRows
from gramless.streaming.tuning import TUNING, StreamingTuning

OPTIMIZERS = ("sgd", "averaged_sgd", "adam")
LOSSES = ("dual", "primal")
ALL_FEATURES = "features of all rows"
# Matrices of float64 at the peak of an eigendecomposition: the matrix, the eigenvectors, workspace.
_EIGEN_MATRICES = 4
# Attributes of `GradientState` that have other names in model files of version 0.1.0.
_NAMES_0_1 = {"soften": "limit_norms", "loudest": "norm_limit", "good": "snapshot", "nothing": "zero_loss"}


@dataclass(eq=False, repr=False)
class GradientDescent(Learner):
    """Learner that descends along stochastic gradients; `rows_measured` random rows determine the step size."""

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

    def memory(self, p: int, itemsize: int, n_rows: int | None) -> dict[str, int]:
        s = self.rows_measured if n_rows is None else min(n_rows, self.rows_measured)
        return {"curvature": 2 * s * p * itemsize + _EIGEN_MATRICES * 8 * (s // 2) ** 2}

    def optional_memory(
        self, feature_map: FeatureMap, p: int, itemsize: int, n_rows: int | None, budget: int, left: int
    ) -> dict[str, int]:
        parts: dict[str, int] = {}
        if feature_map.keeps_penalty:
            gram = nbytes_cached(p, itemsize, CPU_TILE)
            parts["kernel matrix of the points"] = gram if gram <= budget // self.tuning.penalty_share else 0
        left -= sum(parts.values())
        size = 0 if n_rows is None else n_rows * p * itemsize
        return {ALL_FEATURES: size if size <= min(budget // 2, left) else 0, **parts}

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
        # A product with P costs p / batch times the two products of a step: limit it to about half of the work.
        every = features.n_features // (2 * self.batch_size)
        if self.learning_rate is None:
            every = min(self.tuning.penalty_batches, every)
        state = GradientState(
            features.n_features,
            n_targets,
            optimizer=self.optimizer,
            linear=None if self.loss == "primal" else own_targets,
            penalty_every=1 if features.identity_penalty else max(1, every),
            # The reduced weights return to one as the step decreases, which needs a known number of rows.
            limit_norms=self.optimizer == "sgd" and known and self.epochs > 1 and self.learning_rate is None,
            learning_rate=self.learning_rate,
            C=float(self.C),
            batch=int(self.batch_size),
            n_rows=n_rows,
            known=known,
            epochs=self.epochs,
            reference=Phi,
            tuning=self.tuning,
        )
        state.attach(features, budget)
        state.prepare(Phi)
        return state

    def restore(self, state: dict[str, Any], reference: Array | None = None) -> GradientState:
        return GradientState.from_state(state, reference)

    def solve(self, state: GradientState, features: Features, left_out: LeftOutRows | None = None) -> LearnedCoefficients:
        A, b = (xa.to_numpy(part) for part in state.solution())
        return LearnedCoefficients(A, b, float(self.C), features.jitter)


class GradientState(LearnerState):
    """Coefficients, preconditioner and step size of gradient descent with `batch` rows per step.

    The step decreases towards the end of `epochs` passes over `n_rows` rows if `known`. `linear` is `Q`. The gradient of the
    penalty is applied once for `penalty_every` batches.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        *,
        optimizer: str,
        C: float = 1.0,
        batch: int = 64,
        n_rows: int = 1,
        epochs: int = 1,
        known: bool = True,
        linear: Array | None = None,
        penalty_every: int = 1,
        limit_norms: bool = False,
        learning_rate: float | None = None,
        reference: Array,
        tuning: StreamingTuning = TUNING,
    ):
        self._tuning = tuning
        self.optimizer = optimizer
        self._penalty_product: Callable[[Array], Array] = _no_penalty
        self.linear = linear
        self.penalty_every = penalty_every
        self.limit_norms = limit_norms
        self.learning_rate = learning_rate
        self.C, self.batch = C, batch
        self.n_rows, self.epochs, self.known = n_rows, epochs, known
        self.rows_seen = self.rows_before = 0
        self._loss, self._batches = 0.0, 0
        self.A = xa.zeros((n_features, n_targets), reference)
        self.b = xa.zeros((1, n_targets), reference)
        self.step = 0.0
        self.n_steps = 0
        self.halvings = 0
        self._V: Array | None = None
        self._D: Any = None
        self._norm_limit = np.inf
        self._mean: tuple[Array, Array, int] | None = None
        self._moments: Any = None
        self._snapshot: tuple[Array, Array] = (self.A + 0, self.b + 0)
        self._zero_loss = 0.0
        self._failures = 0

    @property
    def n_targets(self) -> int:
        return int(self.A.shape[1])

    def attach(self, features: Features, budget: int) -> None:
        self._penalty_product = lambda A: features.penalty_product(A, budget // self._tuning.penalty_share)

    def prepare(self, features: Array) -> None:
        """Derive the eigenvectors from one half of a subsample of features, and the step size from the other half.

        With `learning_rate` the steps are those of plain gradient descent, all of this size.
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
        # At most a tenth of the number of rows, because further eigenvectors of the sample differ from those of the data.
        noise = 10 * float(np.finfo(xa.numpy_dtype(features)).eps) * top[0]
        q = min(self._tuning.equalised_eigenvectors, half // 10, int(np.count_nonzero(top > noise)) - 1)
        if q > 0:
            leading = xa.astype(U[:, -q - 1 :], xa.numpy_dtype(features))
            V = (first.T @ leading) * xa.like(1.0 / np.sqrt(half * top[: q + 1][::-1]), features)
            pulls = xa.to_numpy(xp.sum(V * self._penalised(V), axis=0)).astype(np.float64)
            # The curvature of the full loss, because along some eigenvectors the penalty has the larger curvature.
            curvatures = top[: q + 1][::-1] + ridge * np.maximum(pulls, 0.0)
            shares = np.maximum(0.0, 1.0 - curvatures[0] / curvatures[1:])
            self._V, self._D = V[:, 1:] + 0, xa.like(shares, features)[:, None]
        norms = xa.to_numpy(self.squared_norms(second[:, :-1])).astype(np.float64)
        largest = _largest_eigenvalue(lambda v: self._equalised(second.T @ (second @ v) / int(second.shape[0])), second)
        together = (batch - 1) * largest
        largest_norm = float(norms.max())
        if self.limit_norms:
            limit = max(together, self._tuning.norm_factor * float(norms.mean()))
            largest_norm = self._norm_limit = min(largest_norm, limit)
        curvature = (largest_norm + together) / batch
        regular = _largest_eigenvalue(lambda v: self._equalised(self._penalised(v)), second)
        self.step = 1.0 / (curvature + ridge * self.penalty_every * regular)

    def measure(self, Phi: Array) -> Array | None:
        """Return the squared norm of each row if the weights of rows with large norms are reduced."""
        return self.squared_norms(Phi) if self.limit_norms else None

    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Make one step for each mini-batch of rows in random order."""
        count = int(Phi.shape[0])
        n = self.n_rows if self.known else self.rows_seen + count
        total = self.epochs * self.n_rows if self.known else None
        for start in range(0, count, self.batch):
            rows = slice(start, min(start + self.batch, count))
            progress = 0.0 if total is None else self.rows_seen / total
            # A constant step would leave the noise of the gradient in the solution, so the step decreases.
            constant = self.optimizer == "averaged_sgd" or self.learning_rate is not None
            decay = 1.0 if constant else max(self._tuning.last_step, min(1.0, 2 * (1 - progress)))
            counted = None if weights is None else weights[rows]
            if measured is not None:
                counted = self.reduced_weights(counted, measured[rows], decay)
            self._loss += self.update(Phi[rows], Z[rows], counted, 1.0 / (self.C * n), decay)
            self._batches += 1
            if progress >= 0.5 or total is None:
                self.average()
            self.rows_seen += rows.stop - rows.start

    def end_pass(self) -> dict[str, float]:
        """Return the mean loss of the batches of this pass before their steps, and the step size."""
        record = {"loss": self._loss / max(1, self._batches), "step": self.step}
        self._loss, self._batches = 0.0, 0
        self.n_rows, self.rows_before, self.known = self.rows_seen - self.rows_before, self.rows_seen, True
        return record

    def reopen(self) -> None:
        self.known = False
        self._loss, self._batches = 0.0, 0

    def squared_norms(self, F: Array) -> Array:
        """Return the squared norm of each row of `F` after equalisation, which limits the step on that row alone."""
        xp = xa.namespace(F)
        norms = xp.sum(F * F, axis=1) + 1
        if self._V is None:
            return norms
        along = F @ self._V[:-1] + self._V[-1:]
        return norms - (along * along @ self._D)[:, 0]

    def _penalised(self, v: Array) -> Array:
        xp = xa.namespace(v)
        return xp.concat([self._penalty_product(v[:-1]), xp.zeros_like(v[-1:])], axis=0)

    def _equalised(self, g: Array) -> Array:
        return g if self._V is None else g - self._V @ (self._D * (self._V.T @ g))

    def _half_equalised(self, g: Array) -> Array:
        """Return the product with the symmetric square root of the preconditioner."""
        return g if self._V is None else g - self._V @ ((1 - (1 - self._D) ** 0.5) * (self._V.T @ g))

    def widen(self, n_targets: int) -> None:
        xp = xa.namespace(self.A)
        more = n_targets - int(self.A.shape[1])

        def wider(x: Array) -> Array:
            return xp.concat([x, xa.zeros((int(x.shape[0]), more), x)], axis=1)

        self.A, self.b = wider(self.A), wider(self.b)
        self._snapshot = (wider(self._snapshot[0]), wider(self._snapshot[1]))
        if self.linear is not None and self.linear.shape[1] < n_targets:
            self.linear = wider(self.linear)
        if self._mean is not None:
            self._mean = (wider(self._mean[0]), wider(self._mean[1]), self._mean[2])
        self._moments = None

    def reduced_weights(self, weights: Array | None, norms: Array, decay: float) -> Array | None:
        """Return row weights with which no squared norm exceeds the limit of a step that is multiplied by `decay`."""
        if weights is not None:
            norms = norms * weights
        if decay * float(norms.max()) <= self._norm_limit:
            return weights
        xp = xa.namespace(norms)
        factors = self._norm_limit / xp.clip(decay * norms, min=self._norm_limit)
        return factors if weights is None else weights * factors

    def update(self, F: Array, Z: Array, weights: Array | None, ridge: float, decay: float = 1.0) -> float:
        """Make one step, multiplied by `decay`, on a mini-batch and return the loss of the batch before the step."""
        xp = xa.namespace(F)
        n = int(F.shape[0])
        R = Z - F @ self.A - self.b
        if weights is not None:
            weighted = R * weights[:, None]
            zero_loss = float(xp.sum(Z * Z * weights[:, None])) / n
        else:
            weighted, zero_loss = R, float(xp.sum(Z * Z)) / n
        loss = float(xp.sum(weighted * R)) / n
        self._zero_loss = max(self._zero_loss, zero_loss)
        if not np.isfinite(loss) or loss > self._tuning.divergence_factor * self._zero_loss:
            self._return_to_snapshot()
            return self._zero_loss
        self._failures = 0
        if self.n_steps % self._tuning.snapshot_steps == 0 and loss <= self._zero_loss:
            self._snapshot = (self.A + 0, self.b + 0)
        g = xp.concat([F.T @ weighted, xp.sum(weighted, axis=0)[None, :]], axis=0) / -n
        if self.n_steps % self.penalty_every == 0:
            pull = self._penalty_product(self.A)
            pull = pull if self.linear is None else pull - self.linear
            g[:-1] += (ridge * self.penalty_every) * pull
        change = self._change(g, decay)
        self.A = self.A + change[:-1]
        self.b = self.b + change[-1:]
        self.n_steps += 1
        return loss

    def _change(self, g: Array, decay: float) -> Array:
        if self.optimizer != "adam":
            return self._equalised(g) * (-self.step * decay)
        # Adam in the coordinates B of A = P^(1/2) B, in which the curvature is equal in all directions. Dividing the entries
        # of the equalised gradient itself would undo the equalisation.
        xp = xa.namespace(g)
        g = self._half_equalised(g)
        if self._moments is None:
            # The entries of the direction of Adam are about 1 for any gradient, so the rate is a fraction of the first step.
            rate = self._tuning.adam_fraction * self.step * float(xp.sum(g * g) / (g.shape[0] * g.shape[1])) ** 0.5
            self._moments = (xp.zeros_like(g), xp.zeros_like(g), 0, rate, self.step)
        m, v, t, rate, first_step = self._moments
        m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
        self._moments = (m, v, t, rate, first_step)
        direction = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-12)
        return self._half_equalised(direction) * (-rate * decay * self.step / first_step)

    def _return_to_snapshot(self) -> None:
        """Restore the last snapshot and halve the step after divergence."""
        if self.halvings >= self._tuning.halvings:
            raise ArithmeticError("the loss increases for every step size: check that the features are finite and scaled")
        # If the snapshot diverges too, start again from the zero model.
        keep = 0.0 if self._failures else 1.0
        self.A, self.b = self._snapshot[0] * keep, self._snapshot[1] * keep
        self.step /= 2
        self.halvings += 1
        self._failures += 1
        if self._moments is not None:
            m, v, t, rate, first_step = self._moments
            self._moments = (m * 0, v, t, rate, first_step)
        self._mean = None

    def average(self) -> None:
        """Add the coefficients to the mean that `solution` returns, if the optimizer averages."""
        if self.optimizer != "averaged_sgd":
            return
        A, b, count = (0.0, 0.0, 0) if self._mean is None else self._mean
        self._mean = (A + (self.A - A) / (count + 1), b + (self.b - b) / (count + 1), count + 1)

    def solution(self) -> tuple[Array, Array]:
        """Return coefficients and biases: their mean if the optimizer averages, else the last ones."""
        return (self.A, self.b[0]) if self._mean is None else (self._mean[0], self._mean[1][0])

    def copy(self) -> GradientState:
        """Return a copy that shares the arrays, because steps replace arrays and never write into them."""
        other = object.__new__(GradientState)
        other.__dict__.update(self.__dict__)
        return other

    def state(self) -> dict[str, Any]:
        stored = {
            name.lstrip("_"): value for name, value in self.__dict__.items() if name not in ("_penalty_product", "_tuning")
        }
        state = {key: value for key, value in stored.items() if value is not None and not isinstance(value, tuple)}
        for name, group in stored.items():
            if isinstance(group, tuple):
                state |= {f"{name}_{i}": part for i, part in enumerate(group)}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any], reference: Array | None = None) -> GradientState:
        """Return a state from the result of `state`, as arrays like `reference`; `attach` sets its features."""
        for old, new in _NAMES_0_1.items():
            state = {f"{new}{key[len(old) :]}" if key.rstrip("_01") == old else key: part for key, part in state.items()}
        reference = state["A"] if reference is None else reference
        restored = cls(*state["A"].shape, optimizer=state["optimizer"], reference=reference)
        for name in restored.__dict__.keys() - {"_penalty_product", "_tuning"}:
            key = name.lstrip("_")
            group = [_restored(state[k], reference) for k in (f"{key}_{i}" for i in range(len(state))) if k in state]
            setattr(restored, name, tuple(group) if group else _restored(state.get(key), reference))
        return restored

    def __getstate__(self) -> dict[str, Any]:
        # Files and other processes get NumPy arrays; the function for the penalty is attached again.
        return {key: xa.to_numpy(value) if hasattr(value, "shape") else value for key, value in self.state().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(GradientState.from_state(state).__dict__)


def _no_penalty(A: Array) -> Array:
    raise RuntimeError("attach the features before adding rows")


def _restored(value: Any, reference: Array) -> Any:
    return xa.like(value, reference) if getattr(value, "ndim", 0) else value


def _largest_eigenvalue(apply: Callable[[Array], Array], reference: Array, iterations: int = 12) -> float:
    """Return 1.1 times the largest eigenvalue by power iteration, which approaches it from below."""
    p = int(reference.shape[1])
    v = xa.like(np.random.RandomState(0).normal(size=(p, 1)), reference)
    value = 0.0
    for _ in range(iterations):
        v = v / (xa.norm(v) or 1.0)
        v = apply(v)
        value = xa.norm(v)
    return 1.1 * value
