"""The dual problem of every support vector machine, in signed variables.

    maximise    linear' beta - beta' K beta / 2 - epsilon sum |beta|
    subject to  lower <= beta <= upper,  sum beta = constant,  with lower <= 0 <= upper

Classification has `beta_i = y_i alpha_i`, `linear = y`, `epsilon = 0` and the box `[0, C_i]` or `[-C_i, 0]` by the sign of
`y_i`. Regression has the box `[-C_i, C_i]`, `linear = y` and the half width `epsilon` of the tube.

With `slope = linear - K beta`, raising a variable gains `slope - epsilon` (`slope + epsilon` while it is negative) and
lowering it costs `slope + epsilon` (`slope - epsilon` while it is positive). The point is optimal if no gain exceeds a cost;
the largest gain minus the smallest cost is the violation of the optimality conditions (Keerthi et al. 2001).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BoxQP:
    """Data of a dual problem; the module docstring has the formula."""

    linear: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    epsilon: float = 0.0
    # A feasible starting point, zero if None; solvers keep the sum of its variables.
    start: np.ndarray | None = None
    # `K @ start` if known, else None.
    K_start: np.ndarray | None = None

    @classmethod
    def classification(cls, y: np.ndarray, C: np.ndarray, start: np.ndarray | None = None) -> BoxQP:
        """Return the problem of a two-class SVM with labels +1 and -1 and upper bounds `C` of the multipliers."""
        zero = np.zeros_like(C)
        return cls(y.astype(np.float64), np.where(y > 0, zero, -C), np.where(y > 0, C, zero), start=start)

    @classmethod
    def regression(cls, y: np.ndarray, C: np.ndarray, epsilon: float, start: np.ndarray | None = None) -> BoxQP:
        """Return the problem of epsilon-insensitive regression with bounds `C` on the absolute multipliers."""
        return cls(y.astype(np.float64), -C, C, epsilon, start)

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.linear.size

    def restricted(self, idx: np.ndarray, slope: np.ndarray, start: np.ndarray) -> BoxQP:
        """Return the problem over the variables `idx` alone; its linear term is the slope at its start."""
        return BoxQP(slope[idx], self.lower[idx], self.upper[idx], self.epsilon, start)

    def move_pairs(self, K: np.ndarray, slope: np.ndarray, beta: np.ndarray, tol: float, max_moves: int) -> int:
        """Move at most `max_moves` pairs of variables in place on the full matrix `K`; return the number of moves."""
        from gramless._core.compiled.smo_loops import solve_pairs

        return solve_pairs(K, slope, beta, self.lower, self.upper, self.epsilon, tol, max_moves)[0]

    def slope(self, K_beta: np.ndarray) -> np.ndarray:
        """Return the gradient of the smooth part of the objective."""
        return self.linear - K_beta

    def gains(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return the gain of raising each variable; minus infinity at the upper bound."""
        gain = slope - np.copysign(self.epsilon, beta + 0.0) if self.epsilon else slope
        return np.where(beta < self.upper, gain, -np.inf)

    def costs(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return the cost of lowering each variable; infinity at the lower bound."""
        cost = slope + np.copysign(self.epsilon, -beta + 0.0) if self.epsilon else slope
        return np.where(beta > self.lower, cost, np.inf)

    def extremes(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """Return the largest gain and the smallest cost."""
        top = np.max(self.gains(beta, slope), initial=-np.inf)
        bottom = np.min(self.costs(beta, slope), initial=np.inf)
        return float(top), float(bottom)

    def violation(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """Return the violation of the optimality conditions: 0 if no variable can move or improve, NaN if a slope is NaN."""
        top, bottom = self.extremes(beta, slope)
        return 0.0 if np.isinf(top) or np.isinf(bottom) else max(top - bottom, 0.0)

    def is_free(self, beta: np.ndarray) -> np.ndarray:
        """Return which variables are strictly inside their box, and not at the kink of `epsilon |beta|`."""
        at_kink = beta == 0 if self.epsilon else False
        return (beta > self.lower) & (beta < self.upper) & ~np.asarray(at_kink)

    def bias(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """Return the mean gain of the free variables, or the middle of the admissible interval if none is free."""
        free = self.is_free(beta)
        if free.any():
            return float(self.gains(beta, slope)[free].mean())
        bounds = [value for value in self.extremes(beta, slope) if np.isfinite(value)]
        return float(np.mean(bounds)) if bounds else 0.0

    def tube_width(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """Return the multiplier of `sum |beta|`: the half width of the tube."""
        return self.epsilon

    def objective(self, beta: np.ndarray, slope: np.ndarray) -> float:
        """Return the value of the objective."""
        return float(0.5 * (self.linear @ beta + slope @ beta) - self.epsilon * np.abs(beta).sum())


@dataclass(frozen=True)
class DualSolution:
    """The point at which a dual solver stopped."""

    beta: np.ndarray
    bias: float
    objective: float
    # Largest gain minus smallest cost; at most the tolerance if converged.
    violation: float
    # Pairs of variables moved.
    n_iter: int
    converged: bool
    # The multiplier of `sum |beta|`.
    tube_width: float = 0.0

    @classmethod
    def at(cls, qp: BoxQP, beta: np.ndarray, K_beta: np.ndarray, n_iter: int, tol: float) -> DualSolution:
        """Evaluate the problem at a point."""
        slope = qp.slope(K_beta)
        violation = qp.violation(beta, slope)
        bias, objective = qp.bias(beta, slope), qp.objective(beta, slope)
        return cls(beta, bias, objective, violation, n_iter, violation <= tol, qp.tube_width(beta, slope))
