"""The dual problem of every support vector machine, in signed variables.

    maximise    linear' beta - beta' K beta / 2 - epsilon sum |beta|
    subject to  lower <= beta <= upper,  sum beta = constant,  with lower <= 0 <= upper

Classification has `beta_i = y_i alpha_i`, `linear = y`, `epsilon = 0` and the box `[0, C_i]` or `[-C_i, 0]` by the sign of
`y_i`. Regression has the box `[-C_i, C_i]`, `linear = y` and the half width `epsilon` of the tube.

With `slope = linear - K beta`, raising a variable gains `slope - epsilon` (`slope + epsilon` if the variable is negative),
and lowering it costs `slope + epsilon` (`slope - epsilon` if the variable is positive). `beta` is optimal if no gain exceeds
a cost; the largest gain minus the smallest cost is the violation of the optimality conditions (Keerthi et al. 2001).

Problems with a parameter `nu` fix two sums, and the multiplier of `sum |beta|` is part of the solution:

    maximise    linear' beta - beta' K beta / 2
    subject to  lower <= beta <= upper,  sum of positive beta = half,  sum of negative beta = -half

Classification has `linear = 0`, the box `[0, w_i]` or `[-w_i, 0]` by the label, and `half = nu sum w / 2`. The multiplier of
`sum |beta|` is the margin rho, and the solution divided by rho is that of the classifier with `C = 1 / rho`. Regression has
`linear = y`, the box `[-C_i, C_i]` and `half = nu sum C_i / 2`; the multiplier is the half width of the tube.

Only two variables of the same sign (or zero) are moved together, so both sums stay fixed. The slopes of the variables of
one sign are measured from the middle of the interval that the bounds of these variables admit, so that violations of both
signs are comparable. If `nu` requires a tube of negative width, the problem without a tube is solved with a smaller `half`.

References for `nu`: Schölkopf, Smola, Williamson and Bartlett (2000), New support vector algorithms; Chang and Lin (2001).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gramless.svm.progress import SolverProgress


@dataclass(frozen=True)
class BoxQP:
    """Data of a dual problem; the module docstring has the formula."""

    # Number of fixed sums of the variables.
    n_sums: ClassVar[int] = 1

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
    def regression(cls, y: np.ndarray, C: np.ndarray, epsilon: float) -> BoxQP:
        """Return the problem of epsilon-insensitive regression with bounds `C` on the absolute multipliers."""
        return cls(y.astype(np.float64), -C, C, epsilon)

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.linear.size

    def restricted(self, idx: np.ndarray, slope: np.ndarray, start: np.ndarray) -> BoxQP:
        """Return the problem over the variables `idx` alone; the linear term is the slope of these variables at `start`."""
        return replace(self, linear=slope[idx], lower=self.lower[idx], upper=self.upper[idx], start=start, K_start=None)

    def move_pairs(self, K: np.ndarray, slope: np.ndarray, beta: np.ndarray, tol: float, max_moves: int) -> int:
        """Move at most `max_moves` pairs of variables in place on the full matrix `K`; return the number of moves."""
        from gramless._core.compiled.smo_loops import solve_pairs

        return solve_pairs(K, slope, beta, self.lower, self.upper, self.epsilon, tol, max_moves, self.n_sums)[0]

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
        """Return the solution `beta` with the bias, objective and violation of the problem at this point."""
        slope = qp.slope(K_beta)
        violation = qp.violation(beta, slope)
        bias, objective = qp.bias(beta, slope), qp.objective(beta, slope)
        return cls(beta, bias, objective, violation, n_iter, violation <= tol, qp.tube_width(beta, slope))


@dataclass(frozen=True)
class NuQP(BoxQP):
    """A dual problem with a fixed sum of the positive and of the negative variables, both given by `start`."""

    n_sums: ClassVar[int] = 2

    @classmethod
    def of_labels(cls, y: np.ndarray, bounds: np.ndarray, nu: float) -> NuQP:
        """Return the problem of a classifier with labels +1 and -1 and upper bounds of the multipliers."""
        start, half = np.zeros(y.size), nu * bounds.sum() / 2
        for sign in (1.0, -1.0):
            side = y == sign
            available = bounds[side].sum()
            if half > available * (1 + 1e-12):
                raise ValueError(
                    f"specified nu is infeasible: nu={nu:g} needs {half:g} of the weight on either side, and one side has "
                    f"{available:g}; nu may be at most {2 * available / bounds.sum():.3g} for these two classes"
                )
            start[side] = sign * fill_to_sum(bounds[side], half)
        zero = np.zeros(y.size)
        return cls(zero, np.where(y > 0, zero, -bounds), np.where(y > 0, bounds, zero), start=start)

    @classmethod
    def of_values(cls, y: np.ndarray, bounds: np.ndarray, nu: float) -> BoxQP:
        """Return the problem of a regression with bounds on the absolute multipliers."""
        # The largest targets are likely to have positive multipliers, and the smallest targets negative multipliers.
        half, order = nu * bounds.sum() / 2, np.argsort(-y, kind="stable")
        up, down = fill_to_sum(bounds[order], half), fill_to_sum(bounds[order][::-1], half)[::-1]
        if np.any((up > 0) & (down > 0)):
            # All multipliers but one are at their bounds, so the tube has width zero.
            return BoxQP(y.astype(np.float64), -bounds, bounds)
        start = np.empty(y.size)
        start[order] = up - down
        return cls(y.astype(np.float64), -bounds, bounds, start=start)

    def gains(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        above, below = self._middles(beta, slope)
        return np.where(beta < self.upper, slope - np.where(beta >= 0, above, below), -np.inf)

    def costs(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        above, below = self._middles(beta, slope)
        return np.where(beta > self.lower, slope - np.where(beta > 0, above, below), np.inf)

    def is_free(self, beta: np.ndarray) -> np.ndarray:
        return (beta > self.lower) & (beta < self.upper) & (beta != 0)

    def bias(self, beta: np.ndarray, slope: np.ndarray) -> float:
        above, below = self._levels(beta, slope)
        return (above + below) / 2

    def tube_width(self, beta: np.ndarray, slope: np.ndarray) -> float:
        above, below = self._levels(beta, slope)
        return (above - below) / 2

    def _levels(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """Return the mean slopes of the free variables above and below zero; if none is free, the value of `_middles`."""
        free, middles = self.is_free(beta), self._middles(beta, slope)
        sides = (free & (beta > 0), free & (beta < 0))
        above, below = (float(slope[side].mean()) if side.any() else m for side, m in zip(sides, middles, strict=True))
        return above, below

    def _middles(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """Return, for variables above and below zero, the middle of the interval of slopes that their bounds admit."""
        rises, falls = beta < self.upper, beta > self.lower
        return (
            _middle(slope[rises & (beta >= 0)], slope[falls & (beta > 0)]),
            _middle(slope[rises & (beta < 0)], slope[falls & (beta <= 0)]),
        )


def solve_to_margin(
    solver: Any, problem: BoxQP, rows: Any, rng: np.random.Generator, progress: SolverProgress, largest: float
) -> DualSolution:
    """Solve a nu-classification problem and scale the solution to margin one, with the tolerance in units of the margin.

    The margin is known only at the solution, so the solver then continues from this solution with a tolerance relative to
    the margin. A margin below the rounding error of kernel values of size `largest` raises ValueError.
    """
    assert problem.start is not None
    tol, rounding = solver.tol, np.finfo(np.float64).eps * largest * max(float(np.abs(problem.start).sum()), 1.0)
    while True:
        [solution] = solver.maximise([problem], rows, rng, progress)
        margin = -solution.tube_width
        if not solution.beta.any():  # all weights are zero
            return solution
        # A violation above the solver's own tolerance means that the solver reached max_iter or stalled.
        done = solution.violation <= tol * margin or solution.violation > solver.tol
        if progress.stopped or (done and margin > rounding):
            break
        narrower = min(0.1 * solver.tol, max(0.5 * tol * margin, 1e-3 * solver.tol))
        if narrower < rounding:
            nu = np.abs(solution.beta).sum() / (problem.upper - problem.lower).sum()
            raise ValueError(
                f"nu={nu:g} leaves no margin: the two classes have equal means in the space of the kernel; lower nu, use "
                "another kernel, or set C instead of nu"
            )
        solver = replace(solver, tol=narrower)
        problem = replace(problem, start=solution.beta, K_start=None)
    margin = max(margin, rounding)
    violation = solution.violation / margin
    scaled = replace(solution, beta=solution.beta / margin, bias=solution.bias / margin)
    return replace(scaled, violation=violation, converged=violation <= tol)


def fill_to_sum(bounds: np.ndarray, total: float) -> np.ndarray:
    """Return multipliers at their bounds, in order, until they add up to `total`; the remaining multipliers are zero."""
    before = np.cumsum(bounds) - bounds
    return np.clip(total - before, 0.0, bounds)


def _middle(may_rise: np.ndarray, may_fall: np.ndarray) -> float:
    """Return the mean of two slopes: the largest of variables that may rise, and the smallest of variables that may fall."""
    ends = [end for end in (np.max(may_rise, initial=-np.inf), np.min(may_fall, initial=np.inf)) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else 0.0
