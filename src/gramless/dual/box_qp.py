"""The dual problem of every support vector machine, in signed variables.

    maximise    linear' beta - beta' K beta / 2
    subject to  lower <= beta <= upper,  sum beta = 0

Classification has `beta_i = y_i alpha_i`, `linear = y` and the box `[0, C_i]` or `[-C_i, 0]` by the sign of `y_i`.
Regression has two variables for each sample, `linear = y -+ epsilon`; `sample` says which kernel row a variable
belongs to.

With `slope = linear - K beta`, a point is optimal when no variable that may rise has a larger slope than one that may
fall; the difference of the two extremes is the violation of the Karush-Kuhn-Tucker conditions (Keerthi et al. 2001).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BoxQP:
    """One dual problem; see the module's formula."""

    linear: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    sample: np.ndarray | None = None
    start: np.ndarray | None = None
    """A feasible point to start from; zero when not given."""

    @classmethod
    def classification(cls, y: np.ndarray, C: np.ndarray, start: np.ndarray | None = None) -> BoxQP:
        """`y` is +1 or -1, `C` the upper bound of each multiplier."""
        zero = np.zeros_like(C)
        return cls(y.astype(np.float64), np.where(y > 0, zero, -C), np.where(y > 0, C, zero), start=start)

    @classmethod
    def regression(cls, y: np.ndarray, C: np.ndarray, epsilon: float) -> BoxQP:
        """Epsilon-insensitive regression: first the variables that push up, then those that push down."""
        n, zero = y.size, np.zeros_like(C)
        return cls(
            np.concatenate([y - epsilon, y + epsilon]),
            np.concatenate([zero, -C]),
            np.concatenate([C, zero]),
            sample=np.concatenate([np.arange(n), np.arange(n)]),
        )

    @property
    def size(self) -> int:
        return self.linear.size

    def rows_of(self, variables: np.ndarray) -> np.ndarray:
        """The kernel row of each variable."""
        return variables if self.sample is None else self.sample[variables]

    def slope(self, K_beta: np.ndarray) -> np.ndarray:
        """The gradient of the objective, from `K beta` over the samples."""
        return self.linear - (K_beta if self.sample is None else K_beta[self.sample])

    def extremes(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """The largest slope among variables that may rise, the smallest among those that may fall."""
        top = np.max(slope, where=beta < self.upper, initial=-np.inf)
        bottom = np.min(slope, where=beta > self.lower, initial=np.inf)
        return float(top), float(bottom)

    def violation(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """How far the extremes overlap: zero at the optimum and where nothing can move, NaN where a slope is."""
        top, bottom = self.extremes(beta, slope)
        return 0.0 if np.isinf(top) or np.isinf(bottom) else max(top - bottom, 0.0)

    def bias(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """The mean slope of the variables strictly inside their box, else the middle of the admissible interval."""
        free = (beta > self.lower) & (beta < self.upper)
        if free.any():
            return float(slope[free].mean())
        bounds = [value for value in self.extremes(beta, slope) if np.isfinite(value)]
        return float(np.mean(bounds)) if bounds else 0.0

    def objective(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """`linear' beta - beta' K beta / 2`."""
        return float(0.5 * (self.linear @ beta + slope @ beta))


@dataclass(frozen=True)
class DualSolution:
    """What a dual solver found."""

    beta: np.ndarray
    bias: float
    objective: float
    violation: float
    """The difference of the two extreme slopes; at most the tolerance when converged."""
    n_iter: int
    """Pairs of variables moved."""
    converged: bool

    @classmethod
    def at(cls, qp: BoxQP, beta: np.ndarray, K_beta: np.ndarray, n_iter: int, tol: float) -> DualSolution:
        """The solution record of a point."""
        slope = qp.slope(K_beta)
        violation = qp.violation(beta, slope)
        bias, objective = qp.bias(beta, slope), qp.objective(beta, slope)
        return cls(beta, bias, objective, violation, n_iter, violation <= tol)
