"""The mean of several runs of randomised solvers: one solution, steadier than each of them.

    W = (W_1 + ... + W_S) / S

Runs differ in the blocks that they draw, and in their settings where these differ; the systems are linear, so the mean of
the coefficients is the mean of the machines at the cost of one. Costs what the runs cost, and two more matrices of the size
of `W`.

Reference: Andrecut 2016, eqs. (67)-(68).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.validation import check_positive
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, Status, Step
from gramless.linalg.solvers.block_rows import check_block_size

_PREFIX = "run_"


class Averaged(Solver):
    """Some runs of a randomised solver, each with its own blocks, averaged: steadier, at the same cost of prediction.

    Parameters
    ----------
    solver : Solver
        What runs; its `tol` and `max_iter` are those of each run.
    n_runs : int, default=5
        Iterations are counted over all runs, one after another.
    block_size : int, sequence of int or None, default=None
        Rows in a block instead of the solver's own: one number, or one for each run.

    See Also
    --------
    Kaczmarz : One solver to be averaged.
    MatchingPursuit : Another one.

    References
    ----------
    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (67)-(68).

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import Averaged, Kaczmarz, solve
    >>> A = np.diag(np.arange(1.0, 7.0)) + 1.0
    >>> runs = Averaged(Kaczmarz(max_iter=4), n_runs=2, block_size=[2, 3])
    >>> solve(DenseOperator(A), A @ np.ones((6, 1)), runs, random_state=0).n_iter
    8
    """

    def __init__(self, solver: Solver, *, n_runs: int = 5, block_size: int | Sequence[int] | None = None):
        self.solver = solver
        self.n_runs = n_runs
        self.block_size = block_size

    def runs(self) -> list[Solver]:
        """The solver of each run.

        Returns
        -------
        list of Solver
            As many as `n_runs`.
        """
        n_runs = int(check_positive("n_runs", self.n_runs, integer=True))
        if "rows" not in self.solver.requires:
            raise ValueError(f"Averaged is for the randomised solvers; {type(self.solver).__name__} has one solution")
        if self.block_size is None:
            return [self.solver] * n_runs
        sizes = list(self.block_size) if isinstance(self.block_size, Sequence) else [self.block_size] * n_runs
        if len(sizes) != n_runs:
            raise ValueError(f"block_size has {len(sizes)} entries for n_runs={n_runs}; give 1 or as many")
        return [clone(self.solver).set_params(block_size=check_block_size(size)) for size in sizes]

    @property
    def requires(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the averaged solver requires."""
        return self.solver.requires

    @property
    def tol(self) -> float:  # type: ignore[override]
        """The tolerance of each run."""
        return self.solver.tol

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        """Limit on the iterations of all runs together."""
        return sum(run.max_iter for run in self.runs())

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        state = dict(state or {})
        start, total = state.get("start", W), state.get("total", xa.zeros(tuple(W.shape), W))
        agreed = bool(state.get("agreed", True))
        runs = self.runs()
        for run in range(int(state.get("run", 0)), len(runs)):
            solver = runs[run]
            inner = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
            mine, done = inner.pop("W", start), int(inner.pop("n_iter", 0))
            state = {}
            steps = solver.steps(op, Z, mine, rng, inner or None)
            finished = done >= solver.max_iter
            for step in steps if not finished else ():
                mine, done = step.W, done + 1
                converged = step.status is Status.CONVERGED
                finished = converged or done >= solver.max_iter or not np.isfinite(step.residual)
                agreed = agreed and (converged or not finished)
                outer = {"start": start, "total": total, "run": run, "agreed": agreed}
                if finished:
                    outer |= {"total": total + mine, "run": run + 1}
                else:
                    outer |= {_PREFIX + key: value for key, value in step.state.items()}
                    outer |= {_PREFIX + "W": mine, _PREFIX + "n_iter": done}
                last = finished and run == len(runs) - 1
                yield Step(
                    (total + mine) / (run + 1),
                    step.residual,
                    # The residual is that of the last run, and may look well.
                    status=None if not last else Status.CONVERGED if agreed else Status.SOME_RUNS,
                    state=outer,
                    info={**step.info, "run": run},
                )
                if finished:
                    break
            total = total + mine
            agreed = agreed and finished  # a solver that ended of itself had no more digits to give
