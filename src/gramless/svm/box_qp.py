"""The dual problem of every support vector machine, in signed variables.

    maximise    linear' beta - beta' K beta / 2 - epsilon sum |beta|
    subject to  lower <= beta <= upper,  sum beta = 0,  with lower <= 0 <= upper

Classification has `beta_i = y_i alpha_i`, `linear = y`, `epsilon = 0` and the box `[0, C_i]` or `[-C_i, 0]` by the sign of
`y_i`. Regression has the box `[-C_i, C_i]`, `linear = y` and the tube's `epsilon`: one variable for each sample, where the
textbook has one that pushes up and one that pushes down, of which one is always zero.

With `slope = linear - K beta`, raising a variable gains `slope - epsilon`, or `slope + epsilon` while it is negative;
lowering it costs `slope + epsilon`, or `slope - epsilon` while it is positive. A point is optimal when no variable that may
rise gains more than one that may fall costs; the difference of the two extremes is the violation of the
Karush-Kuhn-Tucker conditions (Keerthi et al. 2001).
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
    epsilon: float = 0.0
    start: np.ndarray | None = None
    """A feasible point to start from; zero when not given. Its sum is what the variables go on to add up to."""
    K_start: np.ndarray | None = None
    """`K @ start` where it is known already."""

    @classmethod
    def classification(cls, y: np.ndarray, C: np.ndarray, start: np.ndarray | None = None) -> BoxQP:
        """`y` is +1 or -1, `C` the upper bound of each multiplier."""
        zero = np.zeros_like(C)
        return cls(y.astype(np.float64), np.where(y > 0, zero, -C), np.where(y > 0, C, zero), start=start)

    @classmethod
    def regression(cls, y: np.ndarray, C: np.ndarray, epsilon: float, start: np.ndarray | None = None) -> BoxQP:
        """Epsilon-insensitive regression on `y`, with `C` the bound of each sample's multiplier on either side."""
        return cls(y.astype(np.float64), -C, C, epsilon, start)

    @property
    def size(self) -> int:
        return self.linear.size

    def part(self, idx: np.ndarray, slope: np.ndarray, start: np.ndarray) -> BoxQP:
        """The problem over some variables alone, the others fixed; its linear term is the slope at its start."""
        return BoxQP(slope[idx], self.lower[idx], self.upper[idx], self.epsilon, start)

    def move_pairs(self, K: np.ndarray, slope: np.ndarray, beta: np.ndarray, tol: float, most: int) -> int:
        """Move up to `most` pairs of variables in place, on the whole matrix `K`; gives how many were moved."""
        from gramless._core.compiled.smo_loops import solve_pairs

        return solve_pairs(K, slope, beta, self.lower, self.upper, self.epsilon, tol, most)[0]

    def slope(self, K_beta: np.ndarray) -> np.ndarray:
        """The gradient of the smooth part of the objective."""
        return self.linear - K_beta

    def rising(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """What raising each variable gains; minus infinity where it may not rise."""
        gain = slope - np.copysign(self.epsilon, beta + 0.0) if self.epsilon else slope
        return np.where(beta < self.upper, gain, -np.inf)

    def falling(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """What lowering each variable costs; infinity where it may not fall."""
        cost = slope + np.copysign(self.epsilon, -beta + 0.0) if self.epsilon else slope
        return np.where(beta > self.lower, cost, np.inf)

    def extremes(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """The largest gain among variables that may rise, the smallest cost among those that may fall."""
        top = np.max(self.rising(beta, slope), initial=-np.inf)
        bottom = np.min(self.falling(beta, slope), initial=np.inf)
        return float(top), float(bottom)

    def violation(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """How far the extremes overlap: zero at the optimum and where nothing can move, NaN where a slope is."""
        top, bottom = self.extremes(beta, slope)
        return 0.0 if np.isinf(top) or np.isinf(bottom) else max(top - bottom, 0.0)

    def inside(self, beta: np.ndarray) -> np.ndarray:
        """Which variables can move either way at the same price."""
        at_corner = beta == 0 if self.epsilon else False
        return (beta > self.lower) & (beta < self.upper) & ~np.asarray(at_corner)

    def bias(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """The mean gain of the variables inside their box, else the middle of the admissible interval."""
        inside = self.inside(beta)
        if inside.any():
            return float(self.rising(beta, slope)[inside].mean())
        bounds = [value for value in self.extremes(beta, slope) if np.isfinite(value)]
        return float(np.mean(bounds)) if bounds else 0.0

    def price(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """What a unit of every |beta| costs: the tube's half width."""
        return self.epsilon

    def objective(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """`linear' beta - beta' K beta / 2 - epsilon sum |beta|`."""
        return float(0.5 * (self.linear @ beta + slope @ beta) - self.epsilon * np.abs(beta).sum())


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
    price: float = 0.0
    """What a unit of every |beta| costs."""

    @classmethod
    def at(cls, qp: BoxQP, beta: np.ndarray, K_beta: np.ndarray, n_iter: int, tol: float) -> DualSolution:
        """The solution record of a point."""
        slope = qp.slope(K_beta)
        violation = qp.violation(beta, slope)
        bias, objective = qp.bias(beta, slope), qp.objective(beta, slope)
        return cls(beta, bias, objective, violation, n_iter, violation <= tol, qp.price(beta, slope))
