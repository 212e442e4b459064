"""From the settings of a least-squares machine to a solver with its preconditioner, its block sizes and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gramless._runtime.validation import check_positive
from gramless.operators import KernelOperator
from gramless.operators.landmark_columns import LocalColumns
from gramless.planning.plan import Blocks, Plan
from gramless.preconditioners.nystrom import NystromPreconditioner
from gramless.solvers import SOLVERS, Averaged, Solver


def blocks_of(solver: str | Solver, block_size: int | Sequence[int] | None, n_runs: int) -> Blocks | None:
    """The blocks of a solver that works by blocks, or None."""
    if isinstance(solver, Solver):
        size = getattr(solver, "block_size", 0)
        kept = bool(getattr(solver, "reuse_blocks", False)), 2 * int(getattr(solver, "momentum", 0))
        return Blocks(int(size), False, *kept) if size else None
    if solver not in SOLVERS or "block_size" not in SOLVERS[solver]._get_param_names():
        return None
    if block_size is None:
        own = SOLVERS[solver]().block_size
        return None if own is None else Blocks(own, adjustable=True)
    return Blocks(max(_block_sizes(block_size, n_runs)))


def _block_sizes(block_size: int | Sequence[int], n_runs: int) -> list[int]:
    given = [block_size] if np.isscalar(block_size) else list(block_size)  # type: ignore[arg-type]
    sizes = [int(check_positive("block_size", size, integer=True)) for size in given]
    if len(sizes) not in (1, n_runs):
        raise ValueError(f"block_size has {len(sizes)} entries for n_estimators={n_runs}; give 1 or as many")
    return sizes


def make_solver(machine: Any, plan: Plan, op: KernelOperator, rng: np.random.RandomState) -> Solver:
    """The solver that `machine` (an `LSSVC` or `LSSVR`) asks for; the mean of several runs with `n_estimators`."""
    n_runs = int(check_positive("n_estimators", machine.n_estimators, integer=True))
    runs = _runs(machine, plan, op, rng, n_runs)
    if n_runs == 1:
        return runs[0]
    if any(run.needs_spd for run in runs):
        raise ValueError(f"n_estimators={n_runs} is for the randomised solvers; {machine.solver_} has one solution")
    return Averaged(runs)


def _runs(machine: Any, plan: Plan, op: KernelOperator, rng: np.random.RandomState, n_runs: int) -> list[Solver]:
    if isinstance(machine.solver, Solver):
        return [machine.solver] * n_runs
    cls = SOLVERS[plan.solver]
    # An exact solver has its own tolerance: the user's is about when to stop iterating.
    settings: dict[str, Any] = {} if plan.solver == "cholesky" else {"tol": machine.tol}
    if machine.max_iter is not None and machine.max_iter != -1:
        settings["max_iter"] = settings["n_members"] = machine.max_iter
    if plan.solver == "cg" and plan.n_landmarks > 0:
        landmarks = np.sort(rng.permutation(op.shape[0])[: plan.n_landmarks])
        columns = LocalColumns(op.X, op.kernel, landmarks, store=plan.store_landmarks, fused=op.fused)
        settings["preconditioner"] = NystromPreconditioner(columns, op.ridge, damping=machine.damping, rng=rng)
    known = cls._get_param_names()
    settings = {name: value for name, value in settings.items() if name in known}
    if "block_size" not in known or (machine.block_size is None and not plan.block_size):
        return [cls(**settings)] * n_runs
    sizes = [plan.block_size] if machine.block_size is None else _block_sizes(machine.block_size, n_runs)
    return [cls(**settings, block_size=size) for size in sizes * (n_runs // len(sizes))]
