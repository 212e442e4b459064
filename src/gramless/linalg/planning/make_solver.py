"""From a `solver=` setting to a solver with its preconditioner and its block size, as a plan decided."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from gramless._core.validation import check_choice
from gramless.linalg.operators import KernelOperator
from gramless.linalg.operators.landmark_columns import LocalColumns
from gramless.linalg.planning.plan import Blocks, Plan
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers import CG, SOLVERS, Averaged, Solver


def solver_name(solver: str | Solver) -> str:
    """The registry's name of a solver, `"auto"`, or `"custom"` for one that is not in the registry."""
    if isinstance(solver, Averaged):
        return solver_name(solver.solver)
    if isinstance(solver, Solver):
        return next((name for name, cls in SOLVERS.items() if type(solver) is cls), "custom")
    return check_choice("solver", solver, {"auto", *SOLVERS})


def blocks_of(solver: str | Solver) -> Blocks | None:
    """The blocks of a solver that works by blocks, or None."""
    if isinstance(solver, Averaged):
        return max((blocks for run in solver.runs() if (blocks := blocks_of(run))), key=lambda b: b.size, default=None)
    if isinstance(solver, Solver):
        size = getattr(solver, "block_size", 0)
        kept = bool(getattr(solver, "reuse_blocks", False)), 2 * int(getattr(solver, "momentum", 0))
        return Blocks(int(size), False, *kept) if size else None
    own = getattr(SOLVERS[solver](), "block_size", None) if solver in SOLVERS else None
    return None if own is None else Blocks(own, adjustable=True)


def make_solver(
    solver: str | Solver, plan: Plan, op: KernelOperator, rng: np.random.RandomState, *, tol: float, max_iter: int | None
) -> Solver:
    """The solver that `solver=` means for this operator.

    Parameters
    ----------
    solver : str or Solver
        A name takes `tol` and `max_iter` from here and the rest from the plan; an object has its own.
    plan : Plan
    op : KernelOperator
    rng : RandomState
        Draws the landmarks of a preconditioner.
    tol : float
    max_iter : int or None
        None and -1 are the solver's own limit.

    Returns
    -------
    Solver
    """
    made = solver if isinstance(solver, Solver) else _by_name(plan, tol, max_iter)
    if isinstance(made, CG) and made.preconditioner is None and plan.n_landmarks > 0:
        landmarks = np.sort(rng.permutation(op.shape[0])[: plan.n_landmarks])
        columns = LocalColumns(op.X, op.kernel, landmarks, store=plan.store_landmarks, fused=op.fused)
        made = clone(made)
        made.preconditioner = NystromPreconditioner(columns, op.ridge, damping=made.damping, rng=rng)
    return made


def _by_name(plan: Plan, tol: float, max_iter: int | None) -> Solver:
    cls = SOLVERS[plan.solver]
    # An exact solver has its own tolerance: the user's is about when to stop iterating.
    settings: dict[str, Any] = {} if plan.solver == "cholesky" else {"tol": tol}
    if max_iter is not None and max_iter != -1:
        settings["max_iter"] = settings["n_members"] = max_iter
    if plan.block_size:
        settings["block_size"] = plan.block_size
    known = cls._get_param_names()
    return cls(**{name: value for name, value in settings.items() if name in known})
