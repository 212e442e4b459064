"""Dual problems with `nu`: two sums are fixed, and the multiplier of `sum |beta|` is part of the solution.

    maximise    linear' beta - beta' K beta / 2
    subject to  lower <= beta <= upper,  sum of positive beta = half,  sum of negative beta = -half

Classification has `linear = 0`, the box `[0, w_i]` or `[-w_i, 0]` by the label, and `half = nu sum w / 2`. The multiplier of
`sum |beta|` is the margin rho, and the solution divided by rho is that of the classifier with `C = 1 / rho`. Regression has
`linear = y`, the box `[-C_i, C_i]` and `half = nu sum C_i / 2`; the multiplier is the half width of the tube.

A pair is moved on one side of zero at a time. Slopes are measured from the middle of the admissible interval of their side,
so the violation is comparable on both sides. If `nu` requires a tube of negative width, the problem without a tube is solved
instead; its sum of multipliers is smaller than `nu` requires.

Reference: Schölkopf, Smola, Williamson and Bartlett (2000), New support vector algorithms; Chang and Lin (2001).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.progress import SolverProgress


@dataclass(frozen=True)
class NuQP(BoxQP):
    """A dual problem with the two fixed sums of its starting point; the module docstring has the formula."""

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
        # Multipliers of the largest targets are likely to be positive and those of the smallest negative.
        half, order = nu * bounds.sum() / 2, np.argsort(-y, kind="stable")
        up, down = fill_to_sum(bounds[order], half), fill_to_sum(bounds[order][::-1], half)[::-1]
        if np.any((up > 0) & (down > 0)):
            # All multipliers but one are at their bounds, so the tube has width zero.
            return BoxQP(y.astype(np.float64), -bounds, bounds)
        start = np.empty(y.size)
        start[order] = up - down
        return cls(y.astype(np.float64), -bounds, bounds, start=start)

    def restricted(self, idx: np.ndarray, slope: np.ndarray, start: np.ndarray) -> NuQP:
        return NuQP(slope[idx], self.lower[idx], self.upper[idx], start=start)

    def move_pairs(self, K: np.ndarray, slope: np.ndarray, beta: np.ndarray, tol: float, max_moves: int) -> int:
        from gramless._core.compiled.smo_loops import solve_pairs

        return solve_pairs(K, slope, beta, self.lower, self.upper, 0.0, tol, max_moves, n_sums=2)[0]

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
        """Return for each side of zero the mean slope of its free variables, or the middle slope if none is free."""
        free, middles = self.is_free(beta), self._middles(beta, slope)
        sides = (free & (beta > 0), free & (beta < 0))
        above, below = (float(slope[side].mean()) if side.any() else m for side, m in zip(sides, middles, strict=True))
        return above, below

    def _middles(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """Return for each side of zero the middle of the interval of slopes that its bounds admit."""
        rises, falls = beta < self.upper, beta > self.lower
        return (
            _middle(slope[rises & (beta >= 0)], slope[falls & (beta > 0)]),
            _middle(slope[rises & (beta < 0)], slope[falls & (beta <= 0)]),
        )


def solve_to_margin(
    solver: Any, problem: BoxQP, rows: Any, rng: np.random.Generator, progress: SolverProgress, *, nu: float, largest: float
) -> DualSolution:
    """Solve a nu-classification problem and scale the solution to margin one, with the tolerance in units of the margin.

    The margin is known only at the solution, so the solver then continues from this solution with a tolerance relative to
    the margin. A margin below the rounding error of the kernel values, of which none exceeds `largest`, raises ValueError.
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
    """Return multipliers at their bounds, in order, until they add up to `total`; the remaining ones are zero."""
    before = np.cumsum(bounds) - bounds
    return np.clip(total - before, 0.0, bounds)


def _middle(may_rise: np.ndarray, may_fall: np.ndarray) -> float:
    """Return the mean of the largest slope that may rise and the smallest that may fall."""
    ends = [end for end in (np.max(may_rise, initial=-np.inf), np.min(may_fall, initial=np.inf)) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else 0.0
