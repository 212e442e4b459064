"""The interface of a solver, and `solve`, which runs any solver.

A solver is a set of parameters and a generator: `steps(op, Z, W, rng, state)` yields a `Step` after each iteration for
`op @ W = Z`, for all columns of `Z` at once. `solve` measures the time (without callbacks) and handles the history, the
iteration limit, callbacks, early stopping, progress messages and checkpoints, so that solvers need no code for these tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile
from gramless._core.progress import Progress
from gramless.linalg.operators.base import Operator

Record = dict[str, Any]
State = dict[str, Any] | None
"""`Step.state` of the step from which a solver continues; None at the start of a solve."""
NON_NEGATIVE = Interval(Real, 0, None, closed="left")


class Status(Enum):
    """How a solve ended; the value is a message with a placeholder for the number of iterations."""

    CONVERGED = "converged in {n_iter} iterations"
    PREDICTIONS_CONVERGED = "predictions converged in {n_iter} iterations"
    STOPPED = "stopped by the callback after {n_iter} iterations"
    NO_IMPROVEMENT = "no improvement on held-out data after {n_iter} iterations"
    MAX_ITER = "reached the limit of {n_iter} iterations"
    PRECISION_EXHAUSTED = "rounding errors prevent a smaller residual"
    STAGNATED = "after {n_iter} iterations the solution no longer changes, and does not solve the system"
    SINGULAR = "the system is singular in float64: C is too large for this kernel"
    RUNS_NOT_CONVERGED = "not all runs converged within their iterations"

    @property
    def converged(self) -> bool:
        """Whether the solver reached its tolerance, or the predictions converged."""
        return self in (Status.CONVERGED, Status.PREDICTIONS_CONVERGED)

    @property
    def converged_or_stopped(self) -> bool:
        """Whether the solver converged, or was stopped by a callback or by early stopping."""
        return self.converged or self in (Status.STOPPED, Status.NO_IMPROVEMENT)


@dataclass
class Step:
    """State of a solver after one iteration.

    Parameters
    ----------
    W : array of shape (n, k)
        Current solution.
    residual : float
        Relative residual `||Z - op @ W|| / ||Z||`, or an estimate if the residual would need one more product with `op`.
    status : Status, optional
        Reason why this step is the last one; None if the solver continues.
    state : dict, optional
        Arrays and numbers, beside `W` and the random generator, on which the next iteration depends.
    info : dict, optional
        Further values for the record of the iteration in the history.
    """

    W: Array
    residual: float
    status: Status | None = None
    state: dict[str, Any] = field(default_factory=dict)
    info: Record = field(default_factory=dict)


@dataclass
class SolveResult:
    """Solution of a linear system, with status and history.

    Parameters
    ----------
    W : array of shape (n, k)
        Solution.
    n_iter : int
        Number of iterations.
    residual : float
        Relative residual of the last step.
    status : Status
        How the solve ended.
    history : list of dict
        One record for each iteration: `n_iter`, `seconds`, `residual` and values that the solver adds.
    """

    W: Array
    n_iter: int
    residual: float
    status: Status
    history: list[Record]

    @property
    def converged(self) -> bool:
        """Whether the solver reached its tolerance, or the predictions converged."""
        return self.status.converged

    @property
    def message(self) -> str:
        """How the solve ended, as a sentence."""
        return self.status.value.format(n_iter=self.n_iter)


class Solver(BaseEstimator):
    """Base class of solvers of `op @ W = Z`; a solver object has parameters and no state.

    Subclasses define `steps`, `tol` and `max_iter`; `_parameter_constraints` are checked by `solve`.

    Attributes
    ----------
    requires : tuple of str
        Capabilities that the operator must have beside products and a diagonal; see `gramless.linalg.operators.base`.
    tol : float
        Relative residual, or another measure of convergence that the solver defines, at which the solver stops.
    max_iter : int
        Maximum number of iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import Solver, Step, solve
    >>> class Richardson(Solver):
    ...     requires = ("spd",)
    ...     def __init__(self, rate=0.5, *, tol=1e-6, max_iter=100):
    ...         self.rate, self.tol, self.max_iter = rate, tol, max_iter
    ...     def steps(self, op, Z, W, rng, state=None):
    ...         while True:
    ...             R = Z - op @ W
    ...             W = W + self.rate * R
    ...             yield Step(W, np.linalg.norm(R) / np.linalg.norm(Z))
    >>> solve(DenseOperator(np.diag([1.0, 2.0])), np.ones((2, 1)), Richardson()).W.round(4).ravel()
    array([1. , 0.5])
    """

    _parameter_constraints: dict[str, Any] = {}
    requires: tuple[str, ...] = ("spd",)
    tol: float
    max_iter: int

    def steps(self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: State = None) -> Iterator[Step]:
        """Iterate from `W`, or continue from the `state` of an earlier step.

        Parameters
        ----------
        op : Operator
            Matrix of the system.
        Z : array of shape (n, k)
            Right-hand sides.
        W : array of shape (n, k)
            Solution to start from.
        rng : RandomState
            Random generator.
        state : dict, optional
            `Step.state` of the step with solution `W` from which to continue.

        Yields
        ------
        Step
            State of the solver after each iteration.
        """
        raise NotImplementedError


def solve(
    op: Operator,
    Z: Array,
    solver: Solver,
    *,
    W0: Array | None = None,
    callback: Callable[[Array, Record], bool | None] | None = None,
    monitor: Callable[[Array], float] | None = None,
    patience: int = 5,
    random_state: Any = None,
    checkpoint: StateFile | None = None,
    verbose: int = 0,
    label: str = "",
) -> SolveResult:
    """Run `solver` on `op @ W = Z` until it converges, is stopped or reaches its iteration limit.

    Parameters
    ----------
    op : Operator
        Matrix of the system, with all capabilities that `solver.requires`.
    Z : array of shape (n, k)
        Right-hand sides.
    solver : Solver
        Method and its parameters.
    W0 : array of shape (n, k), optional
        Solution to start from; zero by default.
    callback : callable(W, record) -> bool, optional
        Function called after each iteration; it may add values to `record`, and returning True stops the solve. The time
        of the callback is not counted.
    monitor : callable(W) -> float, optional
        Function that returns the error on held-out data, for early stopping: the solve stops after `patience` iterations
        without improvement, and returns the `W` with the smallest error.
    patience : int, default=5
        Number of iterations without improvement after which early stopping ends the solve.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the solver.
    checkpoint : StateFile, optional
        File to which the state is saved every few iterations, and from which an interrupted solve continues.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    label : str, default=""
        Title of the progress bar.

    Returns
    -------
    SolveResult
        Solution, status and history.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import CG, solve
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> result = solve(DenseOperator(A), np.ones((3, 1)), CG(tol=1e-10))
    >>> result.W.ravel().round(6), result.converged
    (array([1.  , 0.5 , 0.25]), True)
    """
    solver._validate_params()
    check_requirements(solver, op)
    rng = check_random_state(random_state)
    W = xa.zeros(tuple(Z.shape), Z) if W0 is None else xa.like(W0, Z) + 0
    history: list[Record] = []
    state, elapsed = None, 0.0
    saved = checkpoint.load() if checkpoint is not None else None
    if saved is not None:
        W, history, elapsed = xa.like(saved.W, Z) + 0, saved.history, saved.seconds
        device = xa.device_of(Z)
        state = {key: xa.to_device(value, device) if np.ndim(value) == 2 else value for key, value in saved.state.items()}
        rng.set_state(saved.rng_state)

    best: dict[str, Any] = {"best_W": W, "best_value": np.inf, "best_at": 0}  # for early stopping
    if state is not None:
        best = {key: state.pop(key, value) for key, value in best.items()}
    step = Step(W, residual=np.inf)
    status = Status.MAX_ITER
    n_iter = len(history)
    with Progress(verbose, total=solver.max_iter, label=label) as progress:
        iterator = solver.steps(op, Z, W, rng, state)
        clock = time.perf_counter()
        while n_iter < solver.max_iter:
            try:
                step = next(iterator)
            except StopIteration:
                status = Status.PRECISION_EXHAUSTED
                break
            elapsed += time.perf_counter() - clock
            n_iter += 1
            record: Record = {"n_iter": n_iter, "seconds": elapsed, "residual": step.residual, **step.info}
            if monitor is not None:
                value = record["validation"] = monitor(step.W)
                if value < best["best_value"]:
                    best = {"best_W": step.W + 0, "best_value": value, "best_at": n_iter}
            history.append(record)
            stopped = bool(callback(step.W, record)) if callback is not None else False
            progress.update(record)
            if not np.isfinite(step.residual):
                raise FloatingPointError(
                    f"{type(solver).__name__}: the residual is not finite after {n_iter} iterations; the kernel values are "
                    "too large or too small for the precision: scale the data, or change the kernel's settings"
                )
            ended = step.status or (Status.STOPPED if stopped else None)
            if ended is None and monitor is not None and n_iter - best["best_at"] >= patience:
                ended = Status.NO_IMPROVEMENT
            if ended is not None:
                status = ended
                break
            # No checkpoint after the last iteration, because a resumed solve would compute one more iteration.
            if checkpoint is not None and n_iter % checkpoint.every == 0 and n_iter < solver.max_iter:
                saved_state = step.state if monitor is None else {**step.state, **best}
                checkpoint.save(step.W, saved_state, rng, history, elapsed)
            clock = time.perf_counter()
    if checkpoint is not None:
        checkpoint.remove()
    W = best["best_W"] if monitor is not None and history else step.W
    return SolveResult(W, n_iter, step.residual, status, history)


def residual_of(op: Operator, Z: Array, W: Array) -> Array:
    """Return `Z - op @ W` as a new array, without a product if `W` is zero."""
    return Z - op @ W if xa.norm(W) else Z + 0


def check_requirements(solver: Solver, op: Operator) -> None:
    """Raise a `TypeError` if the operator lacks a required capability; the message lists solvers that can be used.

    Parameters
    ----------
    solver : Solver
        Solver with the attribute `requires`.
    op : Operator
        Operator with the attribute `capabilities`.
    """
    missing = [name for name in solver.requires if name not in op.capabilities]
    if missing:
        declared = {cls.__name__: cls.requires for cls in _methods(Solver) if isinstance(cls.requires, tuple)}
        able = [name for name, needs in declared.items() if set(needs) <= op.capabilities]
        raise TypeError(
            f"{type(solver).__name__} needs {', '.join(map(repr, missing))} of its operator, which {type(op).__name__} does "
            f"not have; it has {sorted(op.capabilities)}, enough for {', '.join(sorted(able)) or 'no solver'}"
        )


def _methods(base: type[Solver]) -> Iterator[type[Solver]]:
    """Yield the direct and indirect subclasses of `base` that define `steps`."""
    for cls in base.__subclasses__():
        if "steps" in vars(cls):
            yield cls
        yield from _methods(cls)
