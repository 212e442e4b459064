"""What a solver is, and `solve`, which drives every solver.

A solver is settings plus a generator: `steps(op, Z, W, rng, state)` yields a `Step` after each iteration of its attempt at
`op @ W = Z`, for all columns of `Z` at once. `solve` keeps the clock (callbacks excluded), the history, the iteration cap,
the callback, early stopping, progress and checkpoints, so that no solver has code for any of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile
from gramless._core.progress import Progress
from gramless.linalg.operators.base import Operator

Record = dict[str, Any]


class Status(Enum):
    """How a solve ended; the value is a message for people, with the number of iterations to be filled in.

    See Also
    --------
    SolveResult : Holds one, and its message.

    Examples
    --------
    >>> from gramless.linalg.solvers import Status
    >>> Status.MAX_ITER.value.format(n_iter=10), Status.MAX_ITER.as_wanted
    ('reached the limit of 10 iterations', False)
    """

    CONVERGED = "converged in {n_iter} iterations"
    SETTLED = "predictions have settled in {n_iter} iterations"
    STOPPED = "stopped by the callback after {n_iter} iterations"
    NO_BETTER = "no better on held-out data after {n_iter} iterations"
    MAX_ITER = "reached the limit of {n_iter} iterations"
    STALLED = "the precision has no more digits to give"
    STANDS_STILL = "after {n_iter} iterations the solution hardly changes any more, and does not solve the system"
    SINGULAR = "the system is singular to float64: C is too large for this kernel"
    SOME_RUNS = "not all runs converged within their iterations"

    @property
    def as_wanted(self) -> bool:
        """Whether the solver reached its tolerance or somebody asked it to end before."""
        return self in (Status.CONVERGED, Status.SETTLED, Status.STOPPED, Status.NO_BETTER)


@dataclass
class Step:
    """Where a solver stands after one iteration.

    Parameters
    ----------
    W : array of shape (n, k)
        The solution so far.
    residual : float
        `||Z - op @ W|| / ||Z||`, or the solver's own estimate of it where the true one would cost a product.
    status : Status, optional
        Why this step is the last one; None where more can follow.
    state : dict, optional
        Everything beside `W` and the random generator that the next iteration depends on, as arrays and numbers.
    info : dict, optional
        More columns for the history.

    See Also
    --------
    Solver : Yields these.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import CG
    >>> Z = np.ones((2, 1))
    >>> step = next(CG().steps(DenseOperator(np.eye(2)), Z, np.zeros((2, 1)), np.random.RandomState(0)))
    >>> step.residual, step.status
    (0.0, <Status.CONVERGED: 'converged in {n_iter} iterations'>)
    """

    W: Array
    residual: float
    status: Status | None = None
    state: dict[str, Any] = field(default_factory=dict)
    info: Record = field(default_factory=dict)


@dataclass
class SolveResult:
    """The solution, and how it was come by.

    Parameters
    ----------
    W : array of shape (n, k)
        The solution.
    n_iter : int
        Iterations that were made.
    residual : float
        The last step's.
    status : Status
        How the solve ended.
    history : list of dict
        A record of each iteration: `n_iter`, `seconds`, `residual` and what the solver adds.

    See Also
    --------
    solve : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import Cholesky, solve
    >>> result = solve(DenseOperator(2.0 * np.eye(2)), np.ones((2, 1)), Cholesky())
    >>> result.converged, result.message
    (True, 'converged in 1 iterations')
    """

    W: Array
    n_iter: int
    residual: float
    status: Status
    history: list[Record]

    @property
    def converged(self) -> bool:
        """Whether the solver's tolerance is met, or predictions have settled."""
        return self.status in (Status.CONVERGED, Status.SETTLED)

    @property
    def message(self) -> str:
        """How the solve ended, as a sentence."""
        return self.status.value.format(n_iter=self.n_iter)


class Solver(BaseEstimator):
    """Settings of a method for `op @ W = Z`; no state.

    Subclasses define `steps`, `tol` and `max_iter`.

    Attributes
    ----------
    requires : tuple of str
        What the operator must have beside products and a diagonal: names from `gramless.linalg.operators.base`.
    tol : float
        The relative residual, or what the method measures instead, at which it ends.
    max_iter : int
        Limit on iterations.

    See Also
    --------
    solve : Drives a solver.
    check_requirements : Compares `requires` with what an operator has.

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

    requires: tuple[str, ...] = ("spd",)
    tol: float
    max_iter: int

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        """Iterate from `W`; with `state` from an earlier `Step`, go on exactly where that one stood.

        Parameters
        ----------
        op : Operator
            The matrix.
        Z : array of shape (n, k)
            All right-hand sides.
        W : array of shape (n, k)
            Where to start.
        rng : RandomState
            Where random choices come from.
        state : dict, optional
            `Step.state` of the step to go on from, whose `W` is given.

        Yields
        ------
        Step
            Where the solver stands after each iteration.
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
    """Drive `solver` on `op @ W = Z` until it converges, is stopped or has used up its iterations.

    Parameters
    ----------
    op : Operator
        The matrix; it must have what `solver.requires`.
    Z : array of shape (n, k)
        All right-hand sides.
    solver : Solver
        The method and its settings.
    W0 : array of shape (n, k), optional
        Where to start; zero by default.
    callback : callable(W, record) -> bool, optional
        Called after each iteration, off the clock; may add to `record`; a true answer stops the solve.
    monitor : callable(W) -> float, optional
        Early stopping: an error on held-out data, off the clock. The best `W` is returned, and the solve stops after
        `patience` iterations without a better one.
    patience : int, default=5
        Iterations without a better error on held-out data before the solve stops.
    random_state : int, RandomState or None, default=None
        Seed of the solver's random choices.
    checkpoint : StateFile, optional
        Where the state is saved every few iterations and, when there is one, taken up again.
    verbose : int, default=0
        1 shows progress.
    label : str, default=""
        What the progress bar is called.

    Returns
    -------
    SolveResult
        The solution, the status and the history.

    See Also
    --------
    Solver : What is driven.
    Status : How a solve can end.

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
    check_requirements(solver, op)
    rng = check_random_state(random_state)
    W = xa.zeros(tuple(Z.shape), Z) if W0 is None else xa.like(W0, Z) + 0
    history: list[Record] = []
    state, elapsed = None, 0.0
    saved = checkpoint.load() if checkpoint is not None else None
    if saved is not None:
        W, history, elapsed = xa.like(saved.W, Z) + 0, saved.history, saved.seconds
        device = xa.device_of(Z)
        state = {key: xa.to_device(value, device) if _is_matrix(value) else value for key, value in saved.state.items()}
        rng.set_state(saved.rng_state)

    best_W, best_value, best_at = W, float("inf"), 0
    if state and "best_W" in state:
        best_W, best_value, best_at = state.pop("best_W"), float(state.pop("best_value")), int(state.pop("best_at"))
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
                status = Status.STALLED
                break
            elapsed += time.perf_counter() - clock
            n_iter += 1
            record: Record = {"n_iter": n_iter, "seconds": elapsed, "residual": step.residual, **step.info}
            if monitor is not None:
                value = record["validation"] = monitor(step.W)
                if value < best_value:
                    best_W, best_value, best_at = step.W + 0, value, n_iter
            history.append(record)
            stopped = bool(callback(step.W, record)) if callback is not None else False
            progress.update(record)
            if not np.isfinite(step.residual):
                raise FloatingPointError(
                    f"{type(solver).__name__}: the residual is not finite after {n_iter} iterations; the kernel values are "
                    "too large or too small for the precision: scale the data, or change the kernel's settings"
                )
            if step.status is not None:
                status = step.status
                break
            if stopped:
                status = Status.STOPPED
                break
            if monitor is not None and n_iter - best_at >= patience:
                status = Status.NO_BETTER
                break
            # Only a state that is to be gone on from: a kill after the last step must not add another one.
            if checkpoint is not None and n_iter % checkpoint.every == 0 and n_iter < solver.max_iter:
                best = {"best_W": best_W, "best_value": best_value, "best_at": best_at} if monitor is not None else {}
                checkpoint.save(step.W, {**step.state, **best}, rng, history, elapsed)
            clock = time.perf_counter()
    if checkpoint is not None:
        checkpoint.remove()
    return SolveResult(
        W=best_W if monitor is not None and history else step.W,
        n_iter=n_iter,
        residual=step.residual,
        status=status,
        history=history,
    )


def check_requirements(solver: Solver, op: Operator) -> None:
    """Raise a `TypeError` where the operator lacks what the solver requires, with the solvers that take it.

    Parameters
    ----------
    solver : Solver
        Its `requires` are names of capabilities.
    op : Operator
        Its `capabilities` are what it has.

    See Also
    --------
    solve : Asks before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.linalg.operators import DenseOperator
    >>> from gramless.linalg.solvers import CG, check_requirements
    >>> check_requirements(CG(), DenseOperator(np.eye(2), spd=False))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    TypeError: CG needs 'spd' of its operator, which DenseOperator does not have; ...
    """
    missing = [name for name in solver.requires if name not in op.capabilities]
    if missing:
        declared = {cls.__name__: cls.requires for cls in Solver.__subclasses__() if isinstance(cls.requires, tuple)}
        able = [name for name, needs in declared.items() if set(needs) <= op.capabilities]
        raise TypeError(
            f"{type(solver).__name__} needs {', '.join(map(repr, missing))} of its operator, which {type(op).__name__} does "
            f"not have; it has {sorted(op.capabilities)}, enough for {', '.join(sorted(able)) or 'no solver here'}"
        )


def _is_matrix(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == 2
