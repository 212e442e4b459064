"""The fit of the least-squares machines: from a target matrix to coefficients and a bias.

    (K + diag(1 / (C w_i))) a + b = z,   sum_i a_i = 0

is the condition for `f = sum_i a_i K(., x_i) + b` to minimise `1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i))^2`. The bias costs
one more right-hand side: solve `A [V, u] = [Z, 1]`, then `b = sum V / sum u` and `a = V - u b`. All classes, or all outputs,
share every product with `A`. Without a bias, `A a = z` is kernel ridge regression.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile, fingerprint
from gramless._core.device import Device, check_device, precision_of, storage_of
from gramless._core.memory import parse_budget
from gramless._core.progress import log_progress
from gramless._core.targets.holdout import hold_out
from gramless._core.validation import check_positive, check_square, check_X, working_dtype
from gramless.callbacks import Checkpoint, read_callbacks
from gramless.inference.leave_one_out import EXACT_UP_TO, leave_one_out_memory, probes_plan
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator, check_diagonal, expand
from gramless.linalg.operators.system import LinearSystem
from gramless.linalg.planning.make_solver import blocks_of, make_solver, solver_name
from gramless.linalg.planning.plan import Plan, make_plan, sizes
from gramless.linalg.solvers import CG, Solver, SolveResult, solve
from gramless.models.expansion import kernel_from_settings, set_training_points
from gramless.models.settled import FINEST, USUAL_RESIDUAL, finest_residual, settled_predictions


class LeastSquaresSettings(Protocol):
    """The settings of `LSSVC` and `LSSVR` that a fit reads."""

    C: float
    solver: str | Solver
    tol: float | str
    max_iter: int | None
    warm_start: bool
    dtype: Any
    device: Device
    memory_budget: str | float | None
    callback: Any
    verbose: int
    random_state: Any


class Fit(NamedTuple):
    """What a fit leaves beside the model: the operator, whose cache may still serve, and the plan that was followed."""

    op: KernelOperator
    plan: Plan


def check_settings(settings: LeastSquaresSettings) -> None:
    """Settings that cannot be meant, before any data is looked at."""
    check_positive("C", settings.C)
    if settings.tol != "auto":
        check_positive("tol (or 'auto')", settings.tol)
    solver_name(settings.solver)
    check_device(settings.device)
    read_callbacks(settings.callback)
    if settings.max_iter is not None and settings.max_iter != -1:
        check_positive("max_iter (or -1 or None for the solver's own limit)", settings.max_iter, integer=True)
    if isinstance(settings.solver, CG):
        if settings.solver.damping != "auto":
            check_positive("damping (or 'auto')", settings.solver.damping)
        m = settings.solver.n_landmarks
        if m != "auto" and not (isinstance(m, int | np.integer) and m >= 0):
            raise ValueError(f"n_landmarks must be 'auto' or an integer of at least 0, got {m!r}")


def check_rows(estimator: Any, X: Any) -> Array:
    """The training rows as an array of the working precision; square where the kernel is precomputed."""
    kernel = kernel_from_settings(estimator)
    dtype = working_dtype(X, estimator.dtype)
    checked = check_X(estimator, X, dtype=dtype, reset=True, accept_sparse=kernel.accepts_sparse)
    if not kernel.uses_points:
        check_square(checked)
    return checked


def plan_fit(
    settings: LeastSquaresSettings,
    kernel: Kernel,
    shape: tuple[int, int],
    n_outputs: int,
    dtype: Any,
    device: str,
    *,
    leave_one_out: bool = False,
) -> Plan:
    """How a fit of this size is solved, or a `MemoryError` that says why it cannot be.

    Parameters
    ----------
    settings : LSSVC or LSSVR
    kernel : Kernel
    shape : (int, int)
        Rows and features.
    n_outputs : int
    dtype, device
        Of the computation.
    leave_one_out : bool, default=False
        Count in the leave-one-out scores that follow, and decide how they are computed.

    Returns
    -------
    Plan
    """
    budget = parse_budget(settings.memory_budget, device)
    n, d = shape
    size = sizes(n, d, n_outputs, dtype, device, kernel, storage_of(settings.device), precision_of(settings.device))
    solver = settings.solver
    n_landmarks = solver.n_landmarks if isinstance(solver, CG) else "auto"
    tol = solver.tol if isinstance(solver, Solver) else USUAL_RESIDUAL if settings.tol == "auto" else float(settings.tol)
    plan = make_plan(size, solver_name(solver), budget, n_landmarks=n_landmarks, blocks=blocks_of(solver), tol=tol)
    if not leave_one_out:
        return plan
    memory = leave_one_out_memory(n, d, n_outputs, dtype, device)
    if plan.solver != "cholesky":
        memory.parts["what the solver gave back, not always to the system"] = plan.memory.nbytes
    probes = None
    if n > EXACT_UP_TO or memory.nbytes > budget:
        probes = probes_plan(n, d, dtype, device, kernel, budget)
        memory = probes.memory
    return replace(plan, probes=probes, memory=max(plan.memory, memory, key=lambda part: part.nbytes))


def generator(settings: LeastSquaresSettings, X: Array, Z: np.ndarray) -> np.random.RandomState:
    """The random numbers of a fit; with a checkpoint and no seed of the user's, the data is the seed."""
    # A fit that goes on after a kill must draw the same rows again.
    if settings.random_state is None and read_callbacks(settings.callback).checkpoint is not None:
        return np.random.RandomState(int(fingerprint(X, Z)[:8], 16))
    return check_random_state(settings.random_state)


def fit_expansion(
    estimator: Any,
    X: Array,
    Z: np.ndarray,
    weights: np.ndarray | None,
    *,
    validation_error: Callable[[np.ndarray, np.ndarray], float],
    classes: np.ndarray | None = None,
    rescale: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    fit_intercept: bool = True,
    leave_one_out: bool = False,
) -> Fit:
    """Solve for the targets `Z` and make `estimator` the model: targets -> system -> solve -> coefficients.

    Parameters
    ----------
    estimator : LSSVC or LSSVR
        Read for its settings; given `kernel_`, `points_`, `support_`, `dual_coef_`, `intercept_`, `device_`, `solver_`,
        `solver_reason_`, `history_`, `n_iter_` and `residual_`, so that it can predict in a callback already.
    X : array of shape (n, d)
    Z : ndarray of shape (n, k)
    weights : ndarray of shape (n,) or None
        Rows of weight zero are left out.
    validation_error : callable(scores, Z) -> float
        What early stopping watches.
    classes : ndarray of shape (n,), optional
        The class of each row, for a held-out part with its share of each.
    rescale : callable(coef, bias) -> (coef, bias), optional
        From the solution for `Z` to the model.
    fit_intercept : bool, default=True
    leave_one_out : bool, default=False
        Plan for leave-one-out scores afterwards.

    Returns
    -------
    Fit
    """
    rng, callbacks = generator(estimator, X, Z), read_callbacks(estimator.callback)
    device = estimator.device_ = xa.resolve_device(estimator.device, X)
    train = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    held_out, stopping = None, callbacks.early_stopping
    if stopping is not None:
        train, held_out = hold_out(train, stopping.validation_fraction, rng, classes)
    kernel = estimator.kernel_ = kernel_from_settings(estimator).resolve(X, weights)
    dtype = xa.numpy_dtype(X)
    shape = (len(train), X.shape[1])
    plan = plan_fit(estimator, kernel, shape, Z.shape[1], dtype, device, leave_one_out=leave_one_out)
    estimator.solver_ = plan.solver if plan.solver != "custom" else type(estimator.solver).__name__
    estimator.solver_reason_ = plan.reason
    log_progress(estimator.verbose, f"solver {estimator.solver_}: {plan.reason}; peak {plan.memory}")

    points = X
    if len(train) < X.shape[0]:
        points = xa.take_rows(X, train) if kernel.uses_points else xa.submatrix(X, train, train)
    on_device = xa.to_device(points, device, dtype)
    set_training_points(estimator, points, on_device, train)
    ridge = 1.0 / (estimator.C * (np.ones(len(train)) if weights is None else weights[train]))
    precision, storage = precision_of(estimator.device), storage_of(estimator.device)
    op = KernelOperator(on_device, kernel, ridge, cache=plan.cached, precision=precision, storage=storage)
    check_diagonal(op)
    watch = estimator.tol == "auto" and isinstance(estimator.solver, str) and plan.solver == "cg"
    tol = (finest_residual(estimator) if watch else FINEST) if estimator.tol == "auto" else estimator.tol
    solver = make_solver(estimator.solver, plan, op, rng, tol=tol, max_iter=estimator.max_iter)
    system = LinearSystem(op, Z[train], intercept=fit_intercept, bordered="spd" not in solver.requires)
    if watch:
        solver.set_params(settled=settled_predictions(op.ridge, intercept=fit_intercept))

    def take(W: Array) -> None:
        coef, bias = system.split(W)
        estimator.dual_coef_, estimator.intercept_ = (coef, bias) if rescale is None else rescale(coef, bias)

    def report(W: Array, record: dict[str, Any]) -> bool:
        take(W)
        return callbacks(estimator, record)

    monitor = None
    if held_out is not None:
        rows = xa.take_rows(X, held_out) if kernel.uses_points else xa.submatrix(X, held_out, train)
        validation = xa.to_device(rows, device)
        where = xa.to_device(estimator.points_, device)

        def monitor(W: Array) -> float:
            coef, bias = system.split(W)
            scores = xa.to_numpy(expand(kernel, validation, where, xa.to_device(coef, device))) + bias
            return validation_error(scores, Z[held_out])

    file = None
    if callbacks.checkpoint is not None:
        file = _state_file(callbacks.checkpoint, solver, points, Z, ridge, kernel, device, fit_intercept)
    result = solve(
        system.op,
        system.rhs,
        solver,
        W0=_last_solution(estimator, tuple(system.rhs.shape)),
        callback=report if callbacks.functions else None,
        monitor=monitor,
        patience=stopping.n_iter_no_change if stopping is not None else 0,
        random_state=rng,
        checkpoint=file,
        verbose=estimator.verbose,
        label=f"{type(estimator).__name__} {estimator.solver_}",
    )
    take(system.settle(result.W, lambda coef: KernelOperator(on_device, kernel) @ coef, solver.tol))
    estimator.history_, estimator.n_iter_, estimator.residual_ = result.history, result.n_iter, result.residual
    log_progress(estimator.verbose, f"{result.message}; relative residual {result.residual:.2g}")
    _warn_unless_ended_well(type(estimator).__name__, system, result, solver)
    if estimator.warm_start:
        estimator._solution = xa.to_numpy(result.W)
    return Fit(op, plan)


def _last_solution(estimator: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    last = getattr(estimator, "_solution", None) if estimator.warm_start else None
    return last if last is not None and last.shape == shape else None


def _state_file(
    checkpoint: Checkpoint,
    solver: Solver,
    points: Array,
    Z: np.ndarray,
    ridge: np.ndarray,
    kernel: Kernel,
    device: str,
    fit_intercept: bool,
) -> StateFile:
    settings = {k: v for k, v in solver.get_params(deep=False).items() if k not in ("preconditioner", "settled")}
    settings["settled"] = getattr(solver, "settled", None) is not None
    landmarks = getattr(getattr(solver, "preconditioner", None), "landmarks", None)
    drawn = np.empty(0) if landmarks is None else landmarks
    parts = points, Z, ridge, kernel, type(solver).__name__, sorted(settings.items()), drawn, device, fit_intercept
    return StateFile(checkpoint.path, fingerprint(*parts), checkpoint.every)


def _warn_unless_ended_well(name: str, system: LinearSystem, result: SolveResult, solver: Solver) -> None:
    if result.status.as_wanted:
        return
    if system.bordered:
        # A product would cost as much as a whole pass of blocks, and such solves are often ended by max_iter on purpose.
        residual, which = result.residual, "estimated"
    else:
        residual, which = xa.norm(system.rhs - system.op @ result.W) / (xa.norm(system.rhs) or 1.0), "true"
    warnings.warn(
        f"{name} did not converge: {result.message}; {which} relative residual {residual:.2g}, tol {solver.tol:g}. Raise "
        "max_iter or tol, lower C, use dtype='float64', or more landmarks: solver=CG(n_landmarks=...).",
        ConvergenceWarning,
        stacklevel=6,
    )
