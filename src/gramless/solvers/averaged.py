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

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless.operators.base import Operator
from gramless.solvers.base import Solver, Step

_PREFIX = "run_"


class Averaged(Solver):
    """One run of each of some solvers, averaged.

    Parameters
    ----------
    solvers : sequence of Solver
        Iterations are counted over all runs, one after another.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.operators import DenseOperator
    >>> from gramless.solvers import Averaged, Kaczmarz, solve
    >>> A = np.diag(np.arange(1.0, 7.0)) + 1.0
    >>> runs = Averaged([Kaczmarz(block_size=2, max_iter=4), Kaczmarz(block_size=3, max_iter=2)])
    >>> solve(DenseOperator(A), A @ np.ones((6, 1)), runs, random_state=0).n_iter
    6
    """

    def __init__(self, solvers: Sequence[Solver] = ()):
        self.solvers = solvers

    @property
    def needs_spd(self) -> bool:  # type: ignore[override]
        return any(solver.needs_spd for solver in self.solvers)

    @property
    def tol(self) -> float:  # type: ignore[override]
        return max((solver.tol for solver in self.solvers), default=0.0)

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        return sum(solver.max_iter for solver in self.solvers)

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        state = dict(state or {})
        start, total = state.get("start", W), state.get("total", xa.zeros(tuple(W.shape), W))
        agreed = bool(state.get("agreed", True))
        for run in range(int(state.get("run", 0)), len(self.solvers)):
            solver = self.solvers[run]
            inner = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
            mine, done = inner.pop("W", start), int(inner.pop("n_iter", 0))
            state = {}
            steps = solver.steps(op, Z, mine, rng, inner or None)
            finished = done >= solver.max_iter
            for step in steps if not finished else ():
                mine, done = step.W, done + 1
                finished = step.converged or done >= solver.max_iter or not np.isfinite(step.residual)
                agreed = agreed and (step.converged or not finished)
                outer = {"start": start, "total": total, "run": run, "agreed": agreed}
                if finished:
                    outer |= {"total": total + mine, "run": run + 1}
                else:
                    outer |= {_PREFIX + key: value for key, value in step.state.items()}
                    outer |= {_PREFIX + "W": mine, _PREFIX + "n_iter": done}
                last = finished and run == len(self.solvers) - 1
                yield Step(
                    (total + mine) / (run + 1),
                    step.residual,
                    converged=last and agreed,
                    state=outer,
                    info={**step.info, "run": run},
                    # The residual is that of the last run, and may look well.
                    message="" if agreed or not last else f"not all of the {run + 1} runs converged within their iterations",
                )
                if finished:
                    break
            total = total + mine
            agreed = agreed and finished  # a solver that ended of itself had no more digits to give
