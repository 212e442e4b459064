"""Regularised least squares learnt online, a mini-batch at a time, with a step size that comes from the loss itself.

    L(A, b) = 1/n [ 1/2 sum_i w_i ||z_i - A^T phi_i - b||^2 + (1 / C) (1/2 tr(A^T P A) - tr(A^T Q)) ]

A mini-batch gives an unbiased gradient, `-phi^T (z - A^T phi - b) / batch` plus the regulariser's, which is applied once for
several batches where `P` is large. Kernel features have a curvature `H = mean phi phi^T` whose eigenvalues fall by many
orders of magnitude, and a plain gradient step must fit the largest: it learns nothing of the rest. So the leading
eigenvectors `V` of `H` on a subsample are flattened to the first one that is left,

    g <- g - V (1 - v_{q+1} / v) V^T g,     v the curvature of the whole loss along V,

(Ma and Belkin 2017), and the step is `batch / (max ||phi||^2 + (batch - 1) v_{q+1})`, both measured after flattening on rows
that the eigenvectors have not seen. No step size needs to be given. A loss that grows beyond that of the zero model, or is
not a number, sends the iterate back to the last good one and halves the step.

A few rows far from all others can be a hundred times as loud (`||phi||^2` after flattening) as most, and would make the step
small for all. With `soften` the step is that of a mean row, times four, and a louder row counts for `loudest / (decay
loudness)` of its weight: it moves the model as far as it may, no further. As the step dies down all weights return to one,
so the minimum that is approached stays that of the loss; about a third of the epochs get as close to it.

Cost: O(p (k + q)) for each row, O(s^2 p + s^3) once for a subsample of s rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array

OPTIMIZERS = ("sgd", "averaged_sgd", "adam")
SUBSAMPLE = 2000
_MOST_EIGENVECTORS = 160
_STEPS_BETWEEN_SNAPSHOTS = 20
_WORSE_THAN_NOTHING = 4.0
_MOST_HALVINGS = 40
_ADAM_SHARE = 0.3
_LOUD = 4.0


class OnlineLeastSquares:
    """The iterate, its preconditioner and its step size.

    Parameters
    ----------
    n_features, n_targets : int
    optimizer : {"sgd", "averaged_sgd", "adam"}
    penalty : callable(A) -> P A
    linear : array of shape (n_features, n_targets), or None
        `Q`.
    penalty_every : int
        Batches for each of which the regulariser's gradient is applied once, so many times as strong.
    soften : bool
        Whether rows far louder than most count for less as long as the step is large. Only for a step that dies down.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        *,
        optimizer: str,
        penalty: Callable[[Array], Array],
        linear: Array = None,
        penalty_every: int = 1,
        soften: bool = False,
        reference: Array,
    ):
        self.optimizer = optimizer
        self.penalty = penalty
        self.linear = linear
        self.penalty_every = penalty_every
        self.soften = soften
        self.A = xa.zeros((n_features, n_targets), reference)
        self.b = xa.zeros((1, n_targets), reference)
        self.step = 0.0
        self.n_steps = 0
        self.halvings = 0
        self._V: Array = None
        self._D: Array = None
        self._loudest = np.inf
        self._mean: tuple[Array, Array, int] | None = None
        self._moments: Any = None
        self._good: tuple[Array, Array] = (self.A + 0, self.b + 0)
        self._nothing = 0.0
        self._failures = 0

    def prepare(self, features: Array, ridge: float, batch: int) -> None:
        """Measure the curvature on a subsample: eigenvectors from one half of it, the step size from the other.

        Parameters
        ----------
        features : array of shape (s, n_features)
        ridge : float
            `1 / (C n)`.
        batch : int
            Rows in a mini-batch.
        """
        xp = xa.namespace(features)
        G = xp.concat([features, xp.ones_like(features[:, :1])], axis=1)
        s = int(G.shape[0])
        half = max(1, s // 2) if s > 3 else s
        first, second = G[:half], (G[half:] if s > 3 else G)
        gram = xa.astype(first @ first.T, np.float64) / half
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

    def loudness(self, F: Array) -> Array:
        """Squared norm of each row of `F` after flattening: how far a step on it alone overshoots."""
        xp = xa.namespace(F)
        norms = xp.sum(F * F, axis=1) + 1
        if self._V is None:
            return norms
        along = F @ self._V[:-1] + self._V[-1:]
        return norms - (along * along @ self._D)[:, 0]

    def _penalised(self, v: Array) -> Array:
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

    def softened(self, weights: Array, loudness: Array, decay: float) -> Array:
        """Row weights under which no row is louder than a step of this `decay` allows; `weights` itself where none is."""
        if weights is not None:
            loudness = loudness * weights
        if decay * float(loudness.max()) <= self._loudest:
            return weights
        xp = xa.namespace(loudness)
        factors = self._loudest / xp.clip(decay * loudness, min=self._loudest)
        return factors if weights is None else weights * factors

    def update(self, F: Array, Z: Array, weights: Array, ridge: float, decay: float = 1.0) -> float:
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

    def copy(self) -> OnlineLeastSquares:
        """Another one that goes on from here. Steps replace arrays and write into none, so that the two may share them."""
        other = object.__new__(OnlineLeastSquares)
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("an online learner holds functions of its machine and does not travel; save the fitted machine")


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
