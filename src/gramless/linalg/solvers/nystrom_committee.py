"""Mean of Nyström solutions, each on its own random columns.

With the columns `C = A[:, s]` and `M = A[s, s]`, a member solves `C M^-1 C^T W = Z` in the least-squares sense:

    W = (C^T)^+ M C^+ Z = C G^-1 M G^-1 C^T Z,   G = C^T C

and the committee is the mean of its members. No member reads more than b columns, so the committee does not converge to the
solution of `A W = Z`; a few blocks give a good approximation. O(b n d + b^2 n + b^3) time for each member, b n numbers.
Prediction uses all n points.

References: Williams and Seeger 2001; Andrecut 2016, eqs. (26)-(28).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE_INTEGER
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers.base import Solver, State, Status, Step
from gramless.linalg.solvers.block_rows import BlockRows


class NystromCommittee(Solver):
    """Mean of Nyström solutions on random columns of a symmetric matrix.

    Parameters
    ----------
    block_size : int, default=2000
        Number of columns for each member; the error depends on it more than on the number of members.
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
        # Members are independent, so a solution to start from is ignored.
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
