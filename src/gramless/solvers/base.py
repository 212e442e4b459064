"""What a solver is, and `solve`, which drives every solver.

A solver is settings plus a generator: `steps(op, Z, W, rng, state)` yields a `Step` after each iteration of its attempt at
`op @ W = Z`, for all columns of `Z` at once. `solve` keeps the clock (callbacks excluded), the history, the iteration cap,
the callback, early stopping, progress and checkpoints, so that no solver has code for any of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.checkpoint import Checkpoint
from gramless._runtime.progress import Progress
from gramless.operators.base import Operator

Record = dict[str, Any]


@dataclass
class Step:
    """Where a solver stands after one iteration."""

    W: Array
    residual: float
    """`||Z - op @ W|| / ||Z||`, or the solver's own estimate of it where the true one would cost a product."""
    converged: bool = False
    """The solver's own word that its tolerance is met."""
    state: dict[str, Any] = field(default_factory=dict)
    """Everything beside `W` and the random generator that the next iteration depends on, as arrays and numbers."""
    info: Record = field(default_factory=dict)
    """More columns for the history."""
    message: str = ""
    """Why this step is the last one, where the solver ends without convergence."""


@dataclass
class SolveResult:
    """The solution, and how it was come by."""

    W: Array
    n_iter: int
    residual: float
    converged: bool
    history: list[Record]
    message: str


class Solver(BaseEstimator):
    """Settings of a method for `op @ W = Z`; no state."""

    needs_spd: bool = True
    """Whether the operator must be symmetric positive definite."""
    tol: float
    max_iter: int

    def steps(
        self, op: Operator, Z: Array, W: Array, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        """Iterate from `W`; with `state` from an earlier `Step`, go on exactly where that one stood."""
        raise NotImplementedError


def solve(
    op: Operator,
    Z: Array,
    solver: Solver,
    *,
    W0: Array = None,
    callback: Callable[[Array, Record], bool | None] | None = None,
    monitor: Callable[[Array], float] | None = None,
    patience: int = 5,
    random_state: Any = None,
    checkpoint: Checkpoint | None = None,
    verbose: int = 0,
    label: str = "",
) -> SolveResult:
    """Drive `solver` on `op @ W = Z` until it converges, is stopped or has used up its iterations.

    Parameters
    ----------
    op : Operator
    Z : array of shape (n, k)
        All right-hand sides.
    solver : Solver
    W0 : array of shape (n, k), optional
        Where to start; zero by default.
    callback : callable(W, record) -> bool, optional
        Called after each iteration, off the clock; may add to `record`; a true answer stops the solve.
    monitor : callable(W) -> float, optional
        Early stopping: an error on held-out data, off the clock. The best `W` is returned, and the solve stops after
        `patience` iterations without a better one.
    random_state : int, RandomState or None
    checkpoint : Checkpoint, optional
        Where the state is saved every few iterations and, when there is one, taken up again.
    verbose : int, default=0
        1 shows progress.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.operators import DenseOperator
    >>> from gramless.solvers import CG, solve
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> result = solve(DenseOperator(A), np.ones((3, 1)), CG(tol=1e-10))
    >>> result.W.ravel().round(6), result.converged
    (array([1.  , 0.5 , 0.25]), True)
    """
    if solver.needs_spd and not op.spd:
        raise ValueError(f"{type(solver).__name__} needs a symmetric positive definite operator; this one is not")
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

    best_W, best_value, best_at = W, np.inf, 0
    if state and "best_W" in state:
        best_W, best_value, best_at = state.pop("best_W"), state.pop("best_value"), state.pop("best_at")
    step = Step(W, residual=np.inf)
    message = f"reached the limit of {solver.max_iter} iterations"
    n_iter = len(history)
    with Progress(verbose, total=solver.max_iter, label=label) as progress:
        iterator = solver.steps(op, Z, W, rng, state)
        clock = time.perf_counter()
        while n_iter < solver.max_iter:
            try:
                step = next(iterator)
            except StopIteration:
                message = "the solver ended"
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
            if step.message:
                message = step.message
                break
            if step.converged:
                message = f"converged in {n_iter} iterations"
                break
            if stopped:
                message = f"stopped by the callback after {n_iter} iterations"
                break
            if monitor is not None and n_iter - best_at >= patience:
                message = f"no better on held-out data for {patience} iterations"
                break
            # Only a state that is to be gone on from: a kill after the last step must not add another one.
            if checkpoint is not None and n_iter % checkpoint.every == 0 and n_iter < solver.max_iter:
                best = {"best_W": best_W, "best_value": best_value, "best_at": best_at} if monitor is not None else {}
                checkpoint.save(step.W, {**step.state, **best}, rng, history, elapsed)
            clock = time.perf_counter()
    deliberate = step.converged or message.startswith(("stopped", "no better"))
    if checkpoint is not None:
        checkpoint.remove()
    return SolveResult(
        W=best_W if monitor is not None and history else step.W,
        n_iter=n_iter,
        residual=step.residual,
        converged=deliberate,
        history=history,
        message=message,
    )


def _is_matrix(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == 2
