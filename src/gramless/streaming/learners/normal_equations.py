"""Exact ridge regression in one pass, by adding up the normal equations.

    min_{A, b}  sum_i w_i ||z_i - A^T phi(x_i) - b||^2 + (1 / C) tr(A^T P A)

from the sums of `RidgeSums`: O(p^2) time per row and O(p^2) memory for any number of rows. The model does not depend on the
order and the grouping of the rows.

`C="loo"` selects the value of a path with the smallest leave-one-out squared error in closed form. Leverages come from the
sums of all rows; errors are computed on a uniform sample of them (all rows up to `most_left_out`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless._core.validation import warn_caller
from gramless.approximation.features.base import Features
from gramless.streaming.learners.base import LearnedCoefficients, Learner, LeftOutRows, PassSize
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.tuning import TUNING

C_PATH = tuple(float(C) for C in 10.0 ** np.arange(-3, 6.01, 0.5))
"""Values of C that `C="loo"` tries by default."""
# Copies of the features of rows whose residuals are computed together: centred, transposed, whitened, rotated, squared; one
# for BLAS.
_LEFT_OUT_COPIES = 6
# Matrices of p x p float64 at the peak of the solution: sums, penalty, factor, whitened copy, eigenvectors, workspace.
_SOLVE_MATRICES = 7


@dataclass(eq=False, repr=False)
class NormalEquations(Learner):
    """Learner that adds up and solves the normal equations; `keep_rows` stores the rows for later leave-one-out.

    `solver` other than `"sums"` allows (`"auto"`) or requests (`"cg"` or a `CG` object) conjugate gradients instead of sums.
    """

    merges = True

    C: float | str = 1.0
    Cs: Any = C_PATH
    _: KW_ONLY
    forgetting_factor: float = 1.0
    leave_one_out: bool = False
    keep_rows: bool = False
    most_left_out: int = 8192
    solver: Any = "sums"

    @property
    def rows_left_out(self) -> int:  # type: ignore[override]
        """Size of the sample for leave-one-out; 0 if the settings need no leave-one-out."""
        return self.most_left_out if self._needs_loo or self.keep_rows else 0

    @property
    def _needs_loo(self) -> bool:
        return self.C == "loo" or self.leave_one_out

    def needs_sums(self) -> str:
        """Return the setting that only sums can provide, or an empty string."""
        if self.C == "loo":
            return "C='loo'"
        if self.leave_one_out:
            return "a probability that is fitted to leave-one-out scores"
        return "forgetting_factor" if self.forgetting_factor != 1 else ""

    def check(self) -> None:
        """Raise ValueError if the path of C is empty or has numbers that are not positive."""
        if self.C == "loo" and (not len(self.Cs) or any(not isinstance(C, Real) or not float(C) > 0 for C in self.Cs)):
            raise ValueError(f"Cs must be positive numbers, got {self.Cs!r}")

    def memory(self, p: int, size: PassSize) -> dict[str, int]:
        """Return the bytes of the sums, of their solution, and of the sample for leave-one-out with its residuals."""
        itemsize = size.dtype.itemsize
        parts = {"normal equations": _SOLVE_MATRICES * 8 * p * p}
        if itemsize < 8:
            # One copy in float64, and one multiplied by the weights.
            parts["rows in float64"] = 2 * TUNING.converted_rows * p * 8
        if self.rows_left_out:
            most = self.rows_left_out if size.n is None else min(size.n, self.rows_left_out)
            path = len(self.Cs) if self.C == "loo" else 1
            # The sample is copied when it grows. Residuals are stored for each C, and their squares for one C.
            rows = most * (2 * size.d * itemsize + (path + 3) * size.k * 8)
            parts["rows left out"] = rows + TUNING.left_out_block * p * (_LEFT_OUT_COPIES * 8 + itemsize)
        return parts

    def begin(self, features: Features, Phi: Array, n_targets: int, **_: Any) -> RidgeSums:
        """Return sums of zero rows."""
        return RidgeSums(features.n_features, n_targets, Phi)

    def solve(self, state: RidgeSums, features: Features, left_out: LeftOutRows | None = None) -> LearnedCoefficients:
        """Return the minimiser, and with `C="loo"` the leave-one-out error of each C."""
        problem = state.whiten(features.penalty())
        path = [float(C) for C in self.Cs] if self.C == "loo" else [float(self.C)]
        errors = scores = None
        best = 0
        if left_out is not None and self._needs_loo:
            n, k = left_out.n_rows, state.n_targets
            weights, residuals, scores = np.empty(n), np.empty((len(path), n, k)), np.empty((n, k))
            for rows in slices(n, TUNING.left_out_block):
                Phi, Z, weights[rows] = left_out.compute(rows)
                scores[rows] = Z
                double = xa.astype(Phi[:0], np.float64)
                without = problem.leave_one_out(
                    Phi, xa.like(Z, double), [1.0 / C for C in path], xa.like(weights[rows], double)
                )
                residuals[:, rows] = xa.to_numpy(without)
            errors = np.array([float(np.average((R * R).sum(axis=1), weights=weights)) for R in residuals])
            best = int(np.argmin(errors))
            scores -= residuals[best]
        solution = problem.solve(1.0 / path[best])
        if 1.0 / path[best] < state.rounding:
            warn_caller(
                f"1 / C = {1.0 / path[best]:.2g} is below the rounding errors of the sums, {state.rounding:.2g}: "
                "scores of rows that differ from the training rows are not determined; lower C",
                LinAlgWarning,
            )
        jitter = features.jitter if problem.jitter is None else problem.jitter
        A, bias = xa.to_numpy(solution.A), xa.to_numpy(solution.bias)
        return LearnedCoefficients(A, bias, path[best], jitter, errors, scores)
