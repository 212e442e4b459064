"""Exact ridge regression in one pass, by adding up the normal equations.

    min_{A, b}  sum_i w_i ||z_i - A^T phi(x_i) - b||^2 + (1 / C) tr(A^T P A)

The solution is computed from the sums of `RidgeSums`, in O(p^2) time per row and O(p^2) memory for any number of rows with p
features. The model does not depend on the order of the rows and on their division into batches.

`C="loo"` selects the value in `Cs` with the smallest leave-one-out squared error, which has a closed form. The leverages are
computed from the sums of all rows, and the errors on a uniform sample of at most `most_left_out` rows.
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
# Number of float64 copies of the features in a block of leave-one-out residuals: centred, transposed, whitened, rotated,
# squared, and one for BLAS.
_LEFT_OUT_COPIES = 6
# Number of p x p float64 matrices in memory at the peak of `solve`: sums, penalty, factor, whitened copy, eigenvectors, and
# two for the workspace of the eigendecomposition (LAPACK's syevd).
_SOLVE_MATRICES = 7


@dataclass(eq=False, repr=False)
class NormalEquations(Learner):
    """Learner that adds up and solves the normal equations; `keep_rows` stores a sample of rows for a later leave-one-out.

    Conjugate gradients replace the sums if `solver` is `"cg"` or a `CG` object, or `"auto"` and the plan selects them.
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
        """Return the name of a setting that needs the sums of the normal equations, or an empty string if none does."""
        if self.C == "loo":
            return "C='loo'"
        if self.leave_one_out:
            return "a probability that is fitted to leave-one-out scores"
        return "forgetting_factor" if self.forgetting_factor != 1 else ""

    def check(self) -> None:
        """Raise ValueError if `C="loo"` and `Cs` is empty or has a value that is not a positive number."""
        if self.C == "loo" and (not len(self.Cs) or any(not isinstance(C, Real) or not float(C) > 0 for C in self.Cs)):
            raise ValueError(f"Cs must be positive numbers, got {self.Cs!r}")

    def memory(self, p: int, size: PassSize) -> dict[str, int]:
        """Return the bytes of the sums, of their solution, and of the sample for leave-one-out with its residuals."""
        itemsize = size.dtype.itemsize
        parts = {"normal equations": _SOLVE_MATRICES * 8 * p * p}
        if itemsize < 8:
            # A copy of the features in float64, and a copy multiplied by the square roots of the weights.
            parts["rows in float64"] = 2 * TUNING.converted_rows * p * 8
        if self.rows_left_out:
            most = self.rows_left_out if size.n is None else min(size.n, self.rows_left_out)
            path = len(self.Cs) if self.C == "loo" else 1
            # The sample exists twice while rows are added. Residuals are stored for each C, squared residuals for one C.
            rows = most * (2 * size.d * itemsize + (path + 3) * size.k * 8)
            parts["rows left out"] = rows + TUNING.left_out_block * p * (_LEFT_OUT_COPIES * 8 + itemsize)
        return parts

    def begin(self, features: Features, Phi: Array, n_targets: int, **_: Any) -> RidgeSums:
        """Return the state before the first row, in which all sums are zero."""
        return RidgeSums(features.n_features, n_targets, Phi)

    def solve(self, state: RidgeSums, features: Features, left_out: LeftOutRows | None = None) -> LearnedCoefficients:
        """Return the coefficients that minimise the objective, and with `C="loo"` the leave-one-out error of each C."""
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
