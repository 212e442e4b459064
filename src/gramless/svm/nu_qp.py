"""The dual problems of machines with `nu`: two sums are fixed, and the price of a multiplier is found instead of given.

    maximise    linear' beta - beta' K beta / 2
    subject to  lower <= beta <= upper,  sum of positive beta = half,  sum of negative beta = -half

Classification has `linear = 0`, the box `[0, w_i]` or `[-w_i, 0]` by the label, and `half = nu sum w / 2`: at most a share
nu of the samples are margin errors, and at least that share are support vectors. The multiplier of `sum |beta|` is the width
rho of the margin, and the machine is the solution divided by it: that of the classifier with `C = 1 / rho`. Regression has
`linear = y`, the box `[-C_i, C_i]` and `half = nu sum C_i / 2`: that multiplier is then the half width of the tube.

Pairs are moved on one side of zero at a time, above it or below. Slopes are measured from the middle of what their own side
admits, so that the extremes of both sides are comparable and their difference is the violation, as for every other problem.

A regression whose `nu` asks for more multipliers than a tube of no width has would find a tube of negative width. There no
tube is needed: the problem without one is solved instead, which has the smaller sum.

Reference: Schölkopf, Smola, Williamson and Bartlett (2000), New support vector algorithms; Chang and Lin (2001), Training
nu-support vector classifiers: theory and algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.watch import Watch


@dataclass(frozen=True)
class NuQP(BoxQP):
    """One dual problem with two fixed sums, those of its starting point; see the module's formula."""

    @classmethod
    def of_labels(cls, y: np.ndarray, bounds: np.ndarray, nu: float) -> NuQP:
        """`y` is +1 or -1, `bounds` the upper bound of each multiplier."""
        start, half = np.zeros(y.size), nu * bounds.sum() / 2
        for sign in (1.0, -1.0):
            side = y == sign
            room = bounds[side].sum()
            if half > room * (1 + 1e-12):
                raise ValueError(
                    f"specified nu is infeasible: nu={nu:g} needs {half:g} of the weight on either side, and one side has "
                    f"{room:g}; nu may be at most {2 * room / bounds.sum():.3g} for these two classes"
                )
            start[side] = sign * filled(bounds[side], half)
        zero = np.zeros(y.size)
        return cls(zero, np.where(y > 0, zero, -bounds), np.where(y > 0, bounds, zero), start=start)

    @classmethod
    def of_values(cls, y: np.ndarray, bounds: np.ndarray, nu: float) -> BoxQP:
        """Regression on `y`; `bounds` are those of each multiplier on either side."""
        # Far above the median a multiplier is likely to push up, far below it down: the start is near the solution.
        half, order = nu * bounds.sum() / 2, np.argsort(-y, kind="stable")
        up, down = filled(bounds[order], half), filled(bounds[order][::-1], half)[::-1]
        if np.any((up > 0) & (down > 0)):
            # All multipliers but a part of one are to be at their bounds: that is a tube of no width.
            return BoxQP(y.astype(np.float64), -bounds, bounds)
        start = np.empty(y.size)
        start[order] = up - down
        return cls(y.astype(np.float64), -bounds, bounds, start=start)

    def part(self, idx: np.ndarray, slope: np.ndarray, start: np.ndarray) -> NuQP:
        return NuQP(slope[idx], self.lower[idx], self.upper[idx], start=start)

    def move_pairs(self, K: np.ndarray, slope: np.ndarray, beta: np.ndarray, tol: float, most: int) -> int:
        from gramless._core.compiled.smo_loops import solve_pairs

        return solve_pairs(K, slope, beta, self.lower, self.upper, 0.0, tol, most, n_sums=2)[0]

    def rising(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        above, below = self._middles(beta, slope)
        return np.where(beta < self.upper, slope - np.where(beta >= 0, above, below), -np.inf)

    def falling(self, beta: np.ndarray, slope: np.ndarray) -> np.ndarray:
        above, below = self._middles(beta, slope)
        return np.where(beta > self.lower, slope - np.where(beta > 0, above, below), np.inf)

    def inside(self, beta: np.ndarray) -> np.ndarray:
        return (beta > self.lower) & (beta < self.upper) & (beta != 0)

    def bias(self, beta: np.ndarray, slope: np.ndarray) -> float:
        above, below = self._levels(beta, slope)
        return (above + below) / 2

    def price(self, beta: np.ndarray, slope: np.ndarray) -> float:
        above, below = self._levels(beta, slope)
        return (above - below) / 2

    def _levels(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        """The slope that the variables of each side agree on: the mean of those inside their box, else the middle."""
        inside, middles = self.inside(beta), self._middles(beta, slope)
        sides = (inside & (beta > 0), inside & (beta < 0))
        above, below = (float(slope[side].mean()) if side.any() else m for side, m in zip(sides, middles, strict=True))
        return above, below

    def _middles(self, beta: np.ndarray, slope: np.ndarray) -> tuple[float, float]:
        rises, falls = beta < self.upper, beta > self.lower
        return (
            _middle(slope[rises & (beta >= 0)], slope[falls & (beta > 0)]),
            _middle(slope[rises & (beta < 0)], slope[falls & (beta <= 0)]),
        )


def without_a_tube(problem: BoxQP, solution: DualSolution) -> BoxQP | None:
    """The regression to be solved instead where the tube would have a negative width."""
    if solution.price >= 0:
        return None
    return BoxQP(problem.linear, problem.lower, problem.upper, 0.0, solution.beta)


def solve_to_margin(
    solver: Any, problem: BoxQP, rows: Any, rng: np.random.Generator, watch: Watch, *, nu: float, largest: float
) -> DualSolution:
    """The classifier with margins of one that a problem of fixed sums is, to the solver's tolerance in those units.

    How wide the margin is shows only at the solution: the solver goes on from there with a tolerance that fits it. A margin
    that is no wider than the rounding of kernel values (of which none exceeds `largest`) is refused.
    """
    assert problem.start is not None
    tol, rounding = solver.tol, np.finfo(np.float64).eps * largest * max(float(np.abs(problem.start).sum()), 1.0)
    while True:
        [solution] = solver.maximise([problem], rows, rng, watch)
        margin = -solution.price
        if not solution.beta.any():  # no row has weight
            return solution
        # Beyond its own tolerance a solver has given up, and will again.
        enough = solution.violation <= tol * margin or solution.violation > solver.tol
        if watch.stopped or (enough and margin > rounding):
            break
        narrower = min(0.1 * solver.tol, max(0.5 * tol * margin, 1e-3 * solver.tol))
        if narrower < rounding:
            raise ValueError(
                f"nu={nu:g} leaves no margin: the two classes have equal means in the space of the kernel; lower nu, choose "
                "another kernel, or give C instead of nu"
            )
        solver = clone(solver).set_params(tol=narrower)
        problem = replace(problem, start=solution.beta, K_start=None)
    margin = max(margin, rounding)
    violation = solution.violation / margin
    scaled = replace(solution, beta=solution.beta / margin, bias=solution.bias / margin)
    return replace(scaled, violation=violation, converged=violation <= tol)


def filled(bounds: np.ndarray, total: float) -> np.ndarray:
    """Multipliers at their bounds, from the first on, until they add up to `total`."""
    before = np.cumsum(bounds) - bounds
    return np.clip(total - before, 0.0, bounds)


def _middle(may_rise: np.ndarray, may_fall: np.ndarray) -> float:
    """Of the highest slope that may rise and the lowest that may fall."""
    ends = [end for end in (np.max(may_rise, initial=-np.inf), np.min(may_fall, initial=np.inf)) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else 0.0
