"""Means of several solutions: of runs of a randomised solver, and of Nyström solutions on random columns.

    W = (W_1 + ... + W_S) / S

has a smaller variance than each solution. Runs of a randomised solver differ in their random blocks and, if several are
given, in the block size. The model is linear in the coefficients, so the mean coefficients give the mean of the models, with
the prediction cost of one model. A solve takes the time of all runs, and memory for two more matrices of the size of `W`.

The members of a Nyström committee use `b` columns each. With the columns `C = A[:, s]` and `M = A[s, s]`, a member solves
`C M^-1 C^T W = Z` in the least-squares sense:

    W = (C^T)^+ M C^+ Z = C G^-1 M G^-1 C^T Z,   G = C^T C

No member reads more than b columns, so the committee does not converge to the solution of `A W = Z`, but a few members give
a good approximation. A member takes O(b n d + b^2 n + b^3) time and stores b n numbers. Prediction uses all n points.

References: Williams and Seeger 2001; Andrecut 2016, eqs. (26)-(28) and (67)-(68).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.base import clone

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE_INTEGER
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, State, Status, Step
from gramless.linalg.solvers.block_rows import BlockRows

_PREFIX = "run_"


class Averaged(Solver):
    """Mean of several runs of a randomised solver, each with its own blocks.

    Parameters
    ----------
    solver : Solver
        Randomised solver that runs; its `tol` and `max_iter` are those of each run.
    n_runs : int, default=5
        Number of runs, one after another; the number of iterations of a solve is the total of all runs.
    block_size : int, sequence of int or None, default=None
        Number of rows in a block, or one number for each run; None uses the block size of `solver`.

    References
    ----------
    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (67)-(68).
    """

    _parameter_constraints = {
        "solver": [Solver],
        "n_runs": [POSITIVE_INTEGER],
        "block_size": [POSITIVE_INTEGER, "array-like", None],
    }

    def __init__(self, solver: Solver, *, n_runs: int = 5, block_size: int | Sequence[int] | None = None):
        self.solver = solver
        self.n_runs = n_runs
        self.block_size = block_size

    def runs(self) -> list[Solver]:
        """Return the solver of each run.

        Returns
        -------
        list of Solver
            List of length `n_runs`.
        """
        if "rows" not in self.solver.requires:
            raise ValueError(f"Averaged is for the randomised solvers; {type(self.solver).__name__} has one solution")
        if self.block_size is None:
            return [self.solver] * self.n_runs
        sizes = list(self.block_size) if isinstance(self.block_size, Sequence) else [self.block_size] * self.n_runs
        if len(sizes) != self.n_runs:
            raise ValueError(
                f"block_size has {len(sizes)} entries for n_runs={self.n_runs}; pass one entry or n_runs entries"
            )
        return [clone(self.solver).set_params(block_size=size) for size in sizes]

    @property
    def requires(self) -> tuple[str, ...]:  # type: ignore[override]
        """Capabilities that the averaged solver requires."""
        return self.solver.requires

    @property
    def tol(self) -> float:  # type: ignore[override]
        """Tolerance of each run."""
        return self.solver.tol

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        """Maximum number of iterations of all runs together."""
        return sum(run.max_iter for run in self.runs())

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        state = dict(state or {})
        start, total = state.get("start", W), state.get("total", xa.zeros(tuple(W.shape), W))
        all_converged = bool(state.get("agreed", True))
        runs = self.runs()
        for run in range(int(state.get("run", 0)), len(runs)):
            solver = runs[run]
            inner = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
            own, done = inner.pop("W", start), int(inner.pop("n_iter", 0))
            state = {}
            steps = solver.steps(op, Z, own, rng, inner or None)
            finished = False
            for step in steps:
                own, done = step.W, done + 1
                converged = step.status is Status.CONVERGED
                finished = converged or done >= solver.max_iter or not np.isfinite(step.residual)
                all_converged = all_converged and (converged or not finished)
                outer = {"start": start, "total": total, "run": run, "agreed": all_converged}
                if finished:
                    outer |= {"total": total + own, "run": run + 1}
                else:
                    within = {**step.state, "W": own, "n_iter": done}
                    outer |= {_PREFIX + key: value for key, value in within.items()}
                last = finished and run == len(runs) - 1
                yield Step(
                    (total + own) / (run + 1),
                    step.residual,
                    # The residual of the last run says nothing about the residuals of the other runs.
                    status=None if not last else Status.CONVERGED if all_converged else Status.RUNS_NOT_CONVERGED,
                    state=outer,
                    info={**step.info, "run": run},
                )
                if finished:
                    break
            total = total + own
            all_converged = all_converged and finished  # a run that ends without `finished` has exhausted its precision


class NystromCommittee(Solver):
    """Mean of Nyström solutions on random columns of a symmetric matrix.

    Parameters
    ----------
    block_size : int, default=2000
        Number of columns for each member; the error depends on this number more than on the number of members.
    n_members : int, default=6
        Number of solutions that are averaged.

    References
    ----------
    Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001.

    Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (26)-(28).
    """

    _parameter_constraints = {"block_size": [POSITIVE_INTEGER], "n_members": [POSITIVE_INTEGER]}
    requires = ("rows",)
    tol = 0.0

    def __init__(self, block_size: int = 2000, *, n_members: int = 6):
        self.block_size = block_size
        self.n_members = n_members

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        """Number of members: one iteration computes one member."""
        return self.n_members

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        blocks = BlockRows(op, self.block_size, rng, state=state)
        z_norm = xa.norm(Z) or 1.0
        # The members do not depend on a starting point, so a given starting point is ignored.
        total, first = (state["total"], state["members"]) if state else (xa.zeros(tuple(W.shape), W), 0)
        for members in range(first + 1, self.n_members + 1):
            idx, A, gram = blocks.next()
            inner = A[:, xa.indices(idx, A)] @ gram.solve(A @ Z)
            total = total + A.T @ gram.solve(inner)
            W = total / members
            residual = xa.norm(xa.take_rows(Z, idx) - A @ W) / z_norm * float(np.sqrt(op.shape[0] / len(idx)))
            yield Step(
                W,
                residual,
                status=Status.CONVERGED if members == self.n_members else None,
                state={**blocks.state(), "total": total, "members": members},
                info={"jitter": gram.jitter},
            )
