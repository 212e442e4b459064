"""Exact ridge regression in one pass: the learner that only adds up.

    min_{A, b}  sum_i w_i ||z_i - A^T phi(x_i) - b||^2 + (1 / C) tr(A^T P A)

from the sums of `gramless.streaming.learners.ridge_sums`: O(p^2) time for each row and O(p^2) memory whatever the number of
rows, the
same model in any order and any grouping of them, here or on many machines.

`C="loo"` takes the value of a path with the smallest leave-one-out squared error, in closed form: leverages come from the
sums of all rows and are evaluated on a uniform sample of them (all, up to `most_left_out`).
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless._core.validation import check_positive
from gramless.approximation.features import Features
from gramless.streaming.learners.base import Fit, Learner, LeftOut
from gramless.streaming.learners.ridge_sums import CONVERTED_ROWS, RidgeSums

C_PATH = tuple(float(C) for C in 10.0 ** np.arange(-3, 6.01, 0.5))
"""The values of C that `C="loo"` tries unless others are given."""
LEFT_OUT_AT_A_TIME = 512
# Of the features of rows that are left out together: centred, transposed, whitened, rotated, squared; and one for BLAS.
_COPIES_LEFT_OUT = 6
# Matrices of p x p float64 that the solution holds at its peak: sums, penalty, factor, whitened copy, eigenvectors, work.
_SOLVE_MATRICES = 7


class Sums(Learner):
    """Normal equations, added up and solved.

    Parameters
    ----------
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`.
    Cs : sequence of float, default=C_PATH
        The path for `C="loo"`.
    forgetting_factor : float, default=1.0
        The weight of all earlier rows is multiplied by this with each new row.
    leave_one_out : bool, default=False
        Compute leave-one-out scores also where `C` is a number.
    keep_rows : bool, default=False
        Keep the rows that could be left out also where nobody asks for their scores yet.
    most_left_out : int, default=8192
        The most rows that are left out one by one.

    See Also
    --------
    RidgeSums : the run.
    Steps : stochastic gradients, for more features than sums can hold.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.approximation.features import FourierMap
    >>> from gramless.streaming.learners import Sums
    >>> X = np.linspace(0, 3, 50)[:, None]
    >>> features = FourierMap(n_components=20).begin(X, None, np.random.RandomState(0))
    >>> learner = Sums(C=1e6)
    >>> run = learner.begin(features, features(X[:1]), 1, n_rows=50)
    >>> run.add(features(X), np.sin(X))
    >>> fit = learner.solve(run, features)
    >>> bool(np.abs(features(X) @ fit.A + fit.bias - np.sin(X)).max() < 0.01)
    True
    """

    merges = True

    def __init__(
        self,
        C: float | str = 1.0,
        Cs: Any = C_PATH,
        *,
        forgetting_factor: float = 1.0,
        leave_one_out: bool = False,
        keep_rows: bool = False,
        most_left_out: int = 8192,
    ):
        self.C = C
        self.Cs = Cs
        self.forgetting_factor = forgetting_factor
        self.leave_one_out = leave_one_out
        self.keep_rows = keep_rows
        self.most_left_out = most_left_out

    @property
    def rows_left_out(self) -> int:  # type: ignore[override]
        """Rows of which `solve` wants a uniform sample, where anything is left out."""
        return self.most_left_out if self._leaves_out or self.keep_rows else 0

    @property
    def _leaves_out(self) -> bool:
        return self.C == "loo" or self.leave_one_out

    def check(self) -> None:
        if self.C != "loo":
            check_positive("C", self.C)
        elif not len(self.Cs) or any(not isinstance(C, Real) or not float(C) > 0 for C in self.Cs):
            raise ValueError(f"Cs must be positive numbers, got {self.Cs!r}")
        factor = self.forgetting_factor
        if not isinstance(factor, Real) or not 0 < factor <= 1:
            raise ValueError(f"forgetting_factor must be above 0 and at most 1 (1 forgets nothing), got {factor!r}")

    def memory(self, p: int, itemsize: int, n_rows: int | None) -> dict[str, int]:
        parts = {"normal equations": _SOLVE_MATRICES * 8 * p * p}
        if itemsize < 8:
            parts["rows in float64"] = 2 * CONVERTED_ROWS * p * 8  # as they are summed, and weighted
        return parts

    def memory_left_out(self, p: int, n_columns: int, n_targets: int, itemsize: int, n_rows: int | None) -> int:
        most = self.rows_left_out if n_rows is None else min(n_rows, self.rows_left_out)
        path = len(self.Cs) if self.C == "loo" else 1
        # A sample grows by copying itself; the residuals of all of it at each C, and their squares at one; and the work on
        # the rows that are left out together.
        rows = most * (2 * n_columns * itemsize + (path + 3) * n_targets * 8)
        return rows + LEFT_OUT_AT_A_TIME * p * (_COPIES_LEFT_OUT * 8 + itemsize)

    def begin(self, features: Features, Phi: Array, n_targets: int, **how: Any) -> RidgeSums:
        return RidgeSums(features.n_features, n_targets, Phi)

    def restore(self, state: dict[str, Any], reference: Array | None = None) -> RidgeSums:
        return RidgeSums.from_state(state, reference)

    def solve(self, run: RidgeSums, features: Features, left_out: LeftOut | None = None) -> Fit:
        problem = run.whiten(features.penalty())
        path = [float(C) for C in self.Cs] if self.C == "loo" else [float(self.C)]
        errors = scores = None
        best = 0
        if left_out is not None and self._leaves_out:
            n, compute = left_out
            k, weights = run.n_targets, np.empty(n)
            residuals, scores = np.empty((len(path), n, k)), np.empty((n, k))
            for rows in slices(n, LEFT_OUT_AT_A_TIME):
                Phi, Z, weights[rows] = compute(rows)
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
        jitter = features.jitter if problem.jitter is None else problem.jitter
        return Fit(xa.to_numpy(solution.A), xa.to_numpy(solution.bias), path[best], jitter, errors, scores)
