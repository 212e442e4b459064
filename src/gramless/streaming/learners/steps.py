"""Regularised least squares learnt in steps, a mini-batch at a time, with a step size that comes from the loss itself.

    L(A, b) = 1/n [ 1/2 sum_i w_i ||z_i - A^T phi_i - b||^2 + (1 / C) (1/2 tr(A^T P A) - tr(A^T Q)) ]

A mini-batch gives an unbiased gradient, `-phi^T (z - A^T phi - b) / batch` plus the regulariser's, which is applied once for
several batches where `P` is large. Kernel features have a curvature `H = mean phi phi^T` whose eigenvalues fall by many
orders of magnitude, and a plain gradient step must fit the largest: it learns nothing of the rest. So the leading
eigenvectors `V` of `H` on a subsample are flattened to the first one that is left,

    g <- g - V (1 - v_{q+1} / v) V^T g,     v the curvature of the whole loss along V,

(Ma and Belkin, "Diving into the shallows", 2017), and the step is `batch / (max ||phi||^2 + (batch - 1) v_{q+1})`, both
measured after flattening on rows that the eigenvectors have not seen. No step size needs to be given. A loss that grows
beyond that of the zero model, or is not a number, sends the iterate back to the last good one and halves the step.

A few rows far from all others can be a hundred times as loud (`||phi||^2` after flattening) as most, and would make the step
small for all. With `soften` the step is that of a mean row, times four, and a louder row counts for `loudest / (decay
loudness)` of its weight: it moves the model as far as it may, no further. As the step dies down all weights return to one,
so the minimum that is approached stays that of the loss; about a third of the epochs get as close to it.

With points that have targets of their own (`loss="dual"`), `Q` is those targets; `loss="primal"` leaves that term out.

Cost: O(p (k + q)) for each row, O(s^2 p + s^3) once for a subsample of s rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE
from gramless._core.validation import check_choice, check_positive
from gramless.approximation.features import FeatureMap, Features
from gramless.linalg.operators import nbytes_cached
from gramless.streaming.learners.base import Fit, Learner, LeftOut, Run

OPTIMIZERS = ("sgd", "averaged_sgd", "adam")
LOSSES = ("dual", "primal")
ALL_FEATURES = "features of all rows"
_MOST_EIGENVECTORS = 160
_STEPS_BETWEEN_SNAPSHOTS = 20
_WORSE_THAN_NOTHING = 4.0
_MOST_HALVINGS = 40
_ADAM_SHARE = 0.3
_LOUD = 4.0
_LAST_STEP = 0.02
_MOST_BATCHES_PER_PENALTY = 50
# Matrices of float64 that an eigendecomposition holds at its peak: the matrix, the vectors, work.
_EIGEN_MATRICES = 4
# The matrix of the penalty is kept where it takes no more than this part of the memory budget.
_SHARE_OF_PENALTY = 4


class Steps(Learner):
    """Stochastic gradient steps.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the errors against the regulariser.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        `"averaged_sgd"` returns the mean of the iterates of the second half.
    batch_size : int, default=64
        Rows in a step.
    epochs : int, default=30
        Passes over rows that can be read again.
    loss : {"primal", "dual"}, default="primal"
        `"dual"` adds the term of the points' own targets, where they have some.
    rows_measured : int, default=2000
        Rows of which the curvature is measured; the step comes from them.

    See Also
    --------
    Sums : the exact minimiser, in one pass.

    References
    ----------
    Ma and Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.approximation.features import FourierMap
    >>> from gramless.streaming.learners import Steps
    >>> X = np.linspace(0, 3, 50)[:, None]
    >>> features = FourierMap(n_components=20).begin(X, None, np.random.RandomState(0))
    >>> learner = Steps(C=1e3, batch_size=10)
    >>> run = learner.begin(features, features(X), 1, n_rows=50)
    >>> for _ in range(30):
    ...     run.add(features(X), np.sin(X))
    ...     record = run.end_pass()
    >>> sorted(record)
    ['loss', 'step']
    """

    merges = False
    shuffles = True

    def __init__(
        self,
        C: float | str = 1.0,
        *,
        optimizer: str = "sgd",
        batch_size: int = 64,
        epochs: int = 30,
        loss: str = "primal",
        rows_measured: int = 2000,
    ):
        self.C = C
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.epochs = epochs
        self.loss = loss
        self.rows_measured = rows_measured

    def check(self) -> None:
        if self.C == "loo":
            raise ValueError("C='loo' needs the exact sums: use method='exact' or NystromLSSVC")
        check_positive("C", self.C)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("loss", self.loss, LOSSES)
        check_positive("epochs", self.epochs, integer=True)
        check_positive("batch_size", self.batch_size, integer=True)

    def memory(self, p: int, itemsize: int, n_rows: int | None) -> dict[str, int]:
        s = self.rows_measured if n_rows is None else min(n_rows, self.rows_measured)
        return {"curvature": 2 * s * p * itemsize + _EIGEN_MATRICES * 8 * (s // 2) ** 2}

    def optional_memory(
        self, feature_map: FeatureMap, p: int, itemsize: int, n_rows: int | None, budget: int, left: int
    ) -> dict[str, int]:
        parts: dict[str, int] = {}
        if feature_map.keeps_penalty:
            gram = nbytes_cached(p, itemsize, CPU_TILE)
            parts["kernel matrix of the points"] = gram if gram <= budget // _SHARE_OF_PENALTY else 0
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
    ) -> StepsRun:
        # A product with P costs p / batch times the two products of a step: leave it about half of the work.
        every = features.n_features // (2 * self.batch_size)
        run = StepsRun(
            features.n_features,
            n_targets,
            optimizer=self.optimizer,
            linear=None if self.loss == "primal" else own_targets,
            penalty_every=1 if features.identity_penalty else max(1, min(_MOST_BATCHES_PER_PENALTY, every)),
            # The weights of loud rows come back as the step dies down, which it does where the end is known.
            soften=self.optimizer == "sgd" and known and self.epochs > 1,
            C=float(self.C),
            batch=int(self.batch_size),
            n_rows=n_rows,
            known=known,
            epochs=self.epochs,
            reference=Phi,
        )
        run.attach(features, budget)
        run.prepare(Phi)
        return run

    def restore(self, state: dict[str, Any], reference: Array | None = None) -> StepsRun:
        return StepsRun.from_state(state, reference)

    def solve(self, run: StepsRun, features: Features, left_out: LeftOut | None = None) -> Fit:
        A, b = (xa.to_numpy(part) for part in run.solution())
        return Fit(A, b, float(self.C), features.jitter)


class StepsRun(Run):
    """The iterate, its preconditioner and its step size.

    Parameters
    ----------
    n_features, n_targets : int
    optimizer : {"sgd", "averaged_sgd", "adam"}
    C : float
    batch : int
        Rows in a step.
    n_rows : int
        Rows of the data; those at hand where more will come.
    epochs : int
        How often they will come.
    known : bool
        Whether `n_rows` is known: if so, the step dies down towards the end.
    linear : array of shape (n_features, n_targets), or None
        `Q`.
    penalty_every : int
        Batches for which together the regulariser's gradient is applied once, so many times as strong.
    soften : bool
        Whether rows far louder than most count for less as long as the step is large. Only for a step that dies down.
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
        soften: bool = False,
        reference: Array,
    ):
        self.optimizer = optimizer
        self.penalty: Callable[[Array], Array] | None = None
        self.linear = linear
        self.penalty_every = penalty_every
        self.soften = soften
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
        self._loudest = np.inf
        self._mean: tuple[Array, Array, int] | None = None
        self._moments: Any = None
        self._good: tuple[Array, Array] = (self.A + 0, self.b + 0)
        self._nothing = 0.0
        self._failures = 0

    @property
    def n_targets(self) -> int:
        return int(self.A.shape[1])

    def attach(self, features: Features, budget: int) -> None:
        self.penalty = lambda A: features.penalty_product(A, budget // _SHARE_OF_PENALTY)

    def prepare(self, features: Array) -> None:
        """Measure the curvature on features of a subsample: eigenvectors from one half of it, the step from the other."""
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
        # Fewer than a tenth of the rows: beyond, the sample's eigenvectors are not those of the data.
        noise = 10 * float(np.finfo(xa.numpy_dtype(features)).eps) * top[0]
        q = min(_MOST_EIGENVECTORS, half // 10, int(np.count_nonzero(top > noise)) - 1)
        if q > 0:
            leading = xa.astype(U[:, -q - 1 :], xa.numpy_dtype(features))
            V = (first.T @ leading) * xa.like(1.0 / np.sqrt(half * top[: q + 1][::-1]), features)
            pulls = xa.to_numpy(xp.sum(V * self._penalised(V), axis=0)).astype(np.float64)
            # The curvature of the whole loss along each: where the regulariser's is the larger part, it is what to flatten.
            curvatures = top[: q + 1][::-1] + ridge * np.maximum(pulls, 0.0)
            shares = np.maximum(0.0, 1.0 - curvatures[0] / curvatures[1:])
            self._V, self._D = V[:, 1:] + 0, xa.like(shares, features)[:, None]
        norms = xa.to_numpy(self.loudness(second[:, :-1])).astype(np.float64)
        largest = _largest_eigenvalue(lambda v: self._flattened(second.T @ (second @ v) / int(second.shape[0])), second)
        together = (batch - 1) * largest
        loudest = float(norms.max())
        if self.soften:
            loudest = self._loudest = min(loudest, max(together, _LOUD * float(norms.mean())))
        curvature = (loudest + together) / batch
        regular = _largest_eigenvalue(lambda v: self._flattened(self._penalised(v)), second)
        self.step = 1.0 / (curvature + ridge * self.penalty_every * regular)

    def measure(self, Phi: Array) -> Array | None:
        """The loudness of each row, where loud rows are softened."""
        return self.loudness(Phi) if self.soften else None

    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Steps on mini-batches of some rows in random order."""
        count = int(Phi.shape[0])
        n = self.n_rows if self.known else self.rows_seen + count
        total = self.epochs * self.n_rows if self.known else None
        for start in range(0, count, self.batch):
            rows = slice(start, min(start + self.batch, count))
            progress = 0.0 if total is None else self.rows_seen / total
            # A constant step hovers around the solution at the height of the gradient's noise: let it die down.
            decay = 1.0 if self.optimizer == "averaged_sgd" else max(_LAST_STEP, min(1.0, 2 * (1 - progress)))
            counted = None if weights is None else weights[rows]
            if measured is not None:
                counted = self.softened(counted, measured[rows], decay)
            self._loss += self.update(Phi[rows], Z[rows], counted, 1.0 / (self.C * n), decay)
            self._batches += 1
            if progress >= 0.5 or total is None:
                self.average()
            self.rows_seen += rows.stop - rows.start

    def end_pass(self) -> dict[str, float]:
        """The mean loss of the batches of this pass as they came, and the step."""
        record = {"loss": self._loss / max(1, self._batches), "step": self.step}
        self._loss, self._batches = 0.0, 0
        self.n_rows, self.rows_before, self.known = self.rows_seen - self.rows_before, self.rows_seen, True
        return record

    def reopen(self) -> None:
        self.known = False
        self._loss, self._batches = 0.0, 0

    def loudness(self, F: Array) -> Array:
        """Squared norm of each row of `F` after flattening: how far a step on it alone overshoots."""
        xp = xa.namespace(F)
        norms = xp.sum(F * F, axis=1) + 1
        if self._V is None:
            return norms
        along = F @ self._V[:-1] + self._V[-1:]
        return norms - (along * along @ self._D)[:, 0]

    def _penalised(self, v: Array) -> Array:
        assert self.penalty is not None
        xp = xa.namespace(v)
        return xp.concat([self.penalty(v[:-1]), xp.zeros_like(v[-1:])], axis=0)

    def _flattened(self, g: Array) -> Array:
        return g if self._V is None else g - self._V @ (self._D * (self._V.T @ g))

    def _half_flattened(self, g: Array) -> Array:
        """The symmetric square root of `_flattened`."""
        return g if self._V is None else g - self._V @ ((1 - (1 - self._D) ** 0.5) * (self._V.T @ g))

    def widen(self, n_targets: int) -> None:
        """Make room for targets first met now."""
        xp = xa.namespace(self.A)
        more = n_targets - int(self.A.shape[1])

        def wider(x: Array) -> Array:
            return xp.concat([x, xa.zeros((int(x.shape[0]), more), x)], axis=1)

        self.A, self.b = wider(self.A), wider(self.b)
        self._good = (wider(self._good[0]), wider(self._good[1]))
        if self.linear is not None and self.linear.shape[1] < n_targets:
            self.linear = wider(self.linear)
        if self._mean is not None:
            self._mean = (wider(self._mean[0]), wider(self._mean[1]), self._mean[2])
        self._moments = None

    def softened(self, weights: Array | None, loudness: Array, decay: float) -> Array | None:
        """Row weights under which no row is louder than a step of this `decay` allows; `weights` itself where none is."""
        if weights is not None:
            loudness = loudness * weights
        if decay * float(loudness.max()) <= self._loudest:
            return weights
        xp = xa.namespace(loudness)
        factors = self._loudest / xp.clip(decay * loudness, min=self._loudest)
        return factors if weights is None else weights * factors

    def update(self, F: Array, Z: Array, weights: Array | None, ridge: float, decay: float = 1.0) -> float:
        """One step on a mini-batch; returns the batch's loss before it. `decay` scales the step."""
        xp = xa.namespace(F)
        n = int(F.shape[0])
        R = Z - F @ self.A - self.b
        if weights is not None:
            weighted = R * weights[:, None]
            nothing = float(xp.sum(Z * Z * weights[:, None])) / n
        else:
            weighted, nothing = R, float(xp.sum(Z * Z)) / n
        loss = float(xp.sum(weighted * R)) / n
        self._nothing = max(self._nothing, nothing)
        if not np.isfinite(loss) or loss > _WORSE_THAN_NOTHING * self._nothing:
            self._go_back()
            return self._nothing
        self._failures = 0
        if self.n_steps % _STEPS_BETWEEN_SNAPSHOTS == 0 and loss <= self._nothing:
            self._good = (self.A + 0, self.b + 0)
        g = xp.concat([F.T @ weighted, xp.sum(weighted, axis=0)[None, :]], axis=0) / -n
        if self.n_steps % self.penalty_every == 0:
            assert self.penalty is not None
            pull = self.penalty(self.A) if self.linear is None else self.penalty(self.A) - self.linear
            g[:-1] += (ridge * self.penalty_every) * pull
        change = self._change(g, decay)
        self.A = self.A + change[:-1]
        self.b = self.b + change[-1:]
        self.n_steps += 1
        return loss

    def _change(self, g: Array, decay: float) -> Array:
        if self.optimizer != "adam":
            return self._flattened(g) * (-self.step * decay)
        # Adam in the coordinates B of A = P^(1/2) B, where the curvature is flat: dividing entries of the flattened gradient
        # itself would tilt it back.
        xp = xa.namespace(g)
        g = self._half_flattened(g)
        if self._moments is None:
            # Its direction has entries of about 1 however small the gradient becomes: a share of the first plain step.
            rate = _ADAM_SHARE * self.step * float(xp.sum(g * g) / (g.shape[0] * g.shape[1])) ** 0.5
            self._moments = (xp.zeros_like(g), xp.zeros_like(g), 0, rate, self.step)
        m, v, t, rate, made_for = self._moments
        m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
        self._moments = (m, v, t, rate, made_for)
        direction = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-12)
        return self._half_flattened(direction) * (-rate * decay * self.step / made_for)

    def _go_back(self) -> None:
        """Answer a diverging loss: the last good iterate, half the step."""
        if self.halvings >= _MOST_HALVINGS:
            raise ArithmeticError("the loss grows however small the step is: are the features finite and of sane size?")
        # The last good iterate may be bad for another batch; the zero model never is.
        keep = 0.0 if self._failures else 1.0
        self.A, self.b = self._good[0] * keep, self._good[1] * keep
        self.step /= 2
        self.halvings += 1
        self._failures += 1
        if self._moments is not None:
            m, v, t, rate, made_for = self._moments
            self._moments = (m * 0, v, t, rate, made_for)
        self._mean = None

    def average(self) -> None:
        """Take the iterate into the mean that `solution` returns, for the averaged optimizer."""
        if self.optimizer != "averaged_sgd":
            return
        A, b, count = (0.0, 0.0, 0) if self._mean is None else self._mean
        self._mean = (A + (self.A - A) / (count + 1), b + (self.b - b) / (count + 1), count + 1)

    def solution(self) -> tuple[Array, Array]:
        """Coefficients and biases: the mean where one is kept, else the iterate."""
        return (self.A, self.b[0]) if self._mean is None else (self._mean[0], self._mean[1][0])

    def copy(self) -> StepsRun:
        """Another run that goes on from here. Steps replace arrays and write into none: the two share them."""
        other = object.__new__(StepsRun)
        other.__dict__.update(self.__dict__)
        return other

    def state(self) -> dict[str, Any]:
        held = {name.lstrip("_"): value for name, value in self.__dict__.items() if name != "penalty"}
        state = {key: value for key, value in held.items() if value is not None and not isinstance(value, tuple)}
        for name, group in held.items():
            if isinstance(group, tuple):
                state |= {f"{name}_{i}": part for i, part in enumerate(group)}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any], reference: Array | None = None) -> StepsRun:
        """The run that `state` was taken from, in the library and on the device of `reference`; not yet attached."""
        reference = state["A"] if reference is None else reference
        run = cls(*state["A"].shape, optimizer=state["optimizer"], reference=reference)
        for name in run.__dict__:
            key = name.lstrip("_")
            group = [_restored(state[k], reference) for k in (f"{key}_{i}" for i in range(len(state))) if k in state]
            setattr(run, name, tuple(group) if group else _restored(state.get(key), reference))
        return run

    def __getstate__(self) -> dict[str, Any]:
        # NumPy travels between processes and into files; what computes the penalty is attached again.
        return {key: xa.to_numpy(value) if hasattr(value, "shape") else value for key, value in self.state().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(StepsRun.from_state(state).__dict__)


def _restored(value: Any, reference: Array) -> Any:
    return xa.like(value, reference) if getattr(value, "ndim", 0) else value


def _largest_eigenvalue(apply: Callable[[Array], Array], reference: Array, iterations: int = 12) -> float:
    """Power iteration on `v -> apply(v)`, a tenth on top for what it has not yet found."""
    p = int(reference.shape[1])
    v = xa.like(np.random.RandomState(0).normal(size=(p, 1)), reference)
    value = 0.0
    for _ in range(iterations):
        v = v / (xa.norm(v) or 1.0)
        v = apply(v)
        value = xa.norm(v)
    return 1.1 * value
