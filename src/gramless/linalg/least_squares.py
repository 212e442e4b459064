"""Least-squares fit of a kernel expansion: rows -> plan -> operator -> linear system -> solver -> coefficients.

    A a + b = z,   sum_i a_i = 0   with   A = K + diag(1 / (C w_i))

is the condition for `f = sum_i a_i K(., x_i) + b` to minimise `1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i))^2`. The bias costs
one more right-hand side: the solution of `A [V, u] = [Z, 1]` gives `b = sum V / sum u` and `a = V - u b`. The right-hand
sides of all classes or outputs are multiplied by `A` together. Without a bias, `A a = z` is kernel ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile, fingerprint
from gramless._core.device import Device, check_device, precision_of, storage_of
from gramless._core.memory import parse_budget
from gramless._core.progress import log_progress
from gramless._core.targets.holdout import hold_out
from gramless._core.validation import warn_caller
from gramless.callbacks import Callbacks, Checkpoint
from gramless.kernels import Kernel
from gramless.kernels.stationary import UnitDiagonalKernel
from gramless.linalg.operators import KernelOperator, check_diagonal, expand
from gramless.linalg.operators.base import LinearSystem
from gramless.linalg.operators.nystrom import NystromPreconditioner
from gramless.linalg.planning.plan import ProblemSize, SolverPlan, leave_one_out_path_plan, make_plan, with_leave_one_out
from gramless.linalg.solvers import CG, SOLVERS, Solver, SolveResult, solve
from gramless.linalg.solvers.cg import predictions_converged
from gramless.linalg.tuning import TUNING, LinalgTuning

_UNLIMITED = -1
"""`max_iter=-1`, which means no limit in scikit-learn's SVC, selects the default of the solver."""


@dataclass(frozen=True)
class LeastSquaresSettings:
    """Settings of a least-squares fit, with the names and meanings of the parameters of `LSSVC` and `LSSVR`."""

    estimator_name: str
    C: float
    solver: str | Solver
    tol: float | str
    auto_tol: float
    """Relative residual at which conjugate gradients stop with `tol="auto"` if the predictions have not converged before."""
    max_iter: int | None
    fit_intercept: bool
    device: Device
    memory_budget: str | float | None
    verbose: int
    random_state: Any
    callbacks: Callbacks
    leave_one_out: bool = False
    """Whether leave-one-out scores are computed after the solve, so that the plan includes their memory."""
    n_Cs: int = 0
    """Number of values of C that are compared by leave-one-out scores; 0 if C is a single number."""
    tuning: LinalgTuning = field(default=TUNING)

    def __post_init__(self) -> None:
        check_device(self.device)
        if isinstance(self.solver, Solver):
            self.solver._validate_params()

    def plan(
        self, kernel: Kernel, shape: tuple[int, int], n_outputs: int, dtype: Any, device: str, *, dense: bool = False
    ) -> SolverPlan:
        """Return the plan of a fit to data of shape `shape`, or raise a `MemoryError` that names the parameter to change.

        `dense` means that the rows are a dense array in the memory of this process.
        """
        budget, on_device = parse_budget(self.memory_budget, device), (storage_of(self.device), precision_of(self.device))
        size = ProblemSize(*shape, n_outputs, dtype, device, kernel, *on_device, dense=dense, tuning=self.tuning)
        if self.n_Cs:
            return leave_one_out_path_plan(size, self.n_Cs, budget)
        tol = self.solver.tol if isinstance(self.solver, Solver) else self.tol
        C = self.C if isinstance(kernel, UnitDiagonalKernel) else np.inf
        tol = self.tuning.planned_tol if tol == "auto" else float(tol)
        plan = make_plan(size, self.solver, budget, tol=tol, C=C)
        return with_leave_one_out(plan, size, budget) if self.leave_one_out else plan

    def generator(self, X: Array, Z: np.ndarray) -> np.random.RandomState:
        """Return the random generator of a fit; with a checkpoint and no `random_state`, a hash of the data is the seed."""
        # A fit that is resumed after the process was killed must draw the same rows again.
        if self.random_state is None and self.callbacks.checkpoint is not None:
            return np.random.RandomState(int(fingerprint(X, Z)[:8], 16))
        return check_random_state(self.random_state)


@dataclass
class ExpansionFit:
    """A kernel expansion `f(x) = kernel(x, points) @ coef + intercept`, with the plan and the result of its solve."""

    kernel: Kernel
    points: Array
    device_points: Array
    """The points on the device of the computation."""
    support: np.ndarray
    """Row numbers of the points in the training data."""
    device: str
    plan: SolverPlan
    op: Any = None
    """The matrix `K + diag(ridge)`; None for a model selected by leave-one-out."""
    coef: np.ndarray = field(init=False)
    intercept: np.ndarray = field(init=False)
    result: SolveResult | None = None
    """None while the solver is running, and for a model selected by leave-one-out."""


def fit_expansion(
    X: Array,
    Z: np.ndarray,
    weights: np.ndarray | None,
    kernel: Kernel,
    settings: LeastSquaresSettings,
    *,
    validation_error: Callable[[np.ndarray, np.ndarray], float],
    classes: np.ndarray | None = None,
    rescale: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] = lambda coef, bias: (coef, bias),
    start: np.ndarray | None = None,
    callback: Callable[[ExpansionFit, dict[str, Any]], bool] | None = None,
) -> ExpansionFit:
    """Fit a kernel expansion to the targets `Z`; rows of weight zero are left out.

    Early stopping uses `validation_error(scores, Z)` and `classes` (for a stratified split). `rescale` converts coefficients
    and bias for `Z` to those of the model, `start` is the first iterate, and `callback` gets the fit after each iteration.
    """
    rng, stopping = settings.generator(X, Z), settings.callbacks.early_stopping
    device, dtype = xa.resolve_device(settings.device, X), xa.numpy_dtype(X)
    train = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    held_out = None
    if stopping is not None:
        train, held_out = hold_out(train, stopping.validation_fraction, rng, classes)

    shape = len(train), X.shape[1]
    plan = settings.plan(kernel, shape, Z.shape[1], dtype, device, dense=not xa.is_sparse(X))
    log_progress(settings.verbose, f"solver {plan.solver}: {plan.reason}; peak {plan.memory}")

    points = X if len(train) == X.shape[0] else rows_of(X, train, train, kernel)
    device_points = xa.to_device(points, device, dtype)
    ridge = 1.0 / (settings.C * (np.ones(len(train)) if weights is None else weights[train]))
    precision, storage = precision_of(settings.device), storage_of(settings.device)
    op = KernelOperator(device_points, kernel, ridge, cache=plan.cached, precision=precision, storage=storage)
    check_diagonal(op)
    fit = ExpansionFit(kernel, points, device_points, train, device, plan, op)
    monitor = None
    if held_out is not None:
        validation = xa.to_device(rows_of(X, held_out, train, kernel), device)

        def monitor(coef: np.ndarray, bias: np.ndarray) -> float:
            scores = xa.to_numpy(expand(kernel, validation, device_points, xa.to_device(coef, device))) + bias
            return validation_error(scores, Z[held_out])

    solve_expansion(fit, Z[train], settings, rng, rescale=rescale, start=start, callback=callback, monitor=monitor)
    warn_of_rounding(kernel, points, fit.coef, rescale(Z[train], np.zeros(Z.shape[1]))[0])
    return fit


def solve_expansion(
    fit: ExpansionFit,
    Z: np.ndarray,
    settings: LeastSquaresSettings,
    rng: np.random.RandomState,
    *,
    rescale: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray | None = None,
    callback: Callable[[ExpansionFit, dict[str, Any]], bool] | None = None,
    monitor: Callable[[np.ndarray, np.ndarray], float] | None = None,
) -> None:
    """Solve the system of `fit.op` for the targets `Z` with the solver of `fit.plan`; set coefficients and result of `fit`.

    `monitor(coef, bias)` returns the error on held-out rows.
    """
    op, stopping, checkpoint = fit.op, settings.callbacks.early_stopping, settings.callbacks.checkpoint
    requires = settings.solver.requires if isinstance(settings.solver, Solver) else SOLVERS[fit.plan.solver].requires
    system = LinearSystem(op, Z, intercept=settings.fit_intercept, bordered="spd" not in requires)
    solver = _make_solver(settings, fit.plan, op, rng)

    def report(W: Array, record: dict[str, Any]) -> bool:
        fit.coef, fit.intercept = rescale(*system.split(W))
        return callback is not None and callback(fit, record)

    result = solve(
        system.op,
        system.rhs,
        solver,
        W0=start if start is not None and start.shape == tuple(system.rhs.shape) else None,
        callback=report if settings.callbacks.functions else None,
        monitor=None if monitor is None else lambda W: monitor(*system.split(W)),
        patience=stopping.n_iter_no_change if stopping is not None else 0,
        random_state=rng,
        checkpoint=None if checkpoint is None else _state_file(checkpoint, solver, fit, Z, settings),
        verbose=settings.verbose,
        label=f"{settings.estimator_name} {fit.plan.solver}",
    )
    W = system.with_exact_bias(result.W, lambda coef: KernelOperator(fit.device_points, fit.kernel) @ coef, solver.tol)
    fit.coef, fit.intercept = rescale(*system.split(W))
    fit.result = result
    log_progress(settings.verbose, f"{result.message}; relative residual {result.residual:.2g}")
    _warn_unless_converged(settings.estimator_name, system, result, solver)


def warn_of_rounding(kernel: Kernel, points: Array, coef: np.ndarray, targets: np.ndarray) -> None:
    """Warn if rounding of the coefficients to their dtype changes scores by too large a fraction of the size of the targets.

    Independent rounding errors of the terms `a_i K(x, x_i)` add up to `eps ||a|| max K(x, x)^(1/2) max K(x_i, x_i)^(1/2)`.
    """
    if not kernel.thread_safe:  # a Python function: its diagonal would cost as much as the kernel matrix
        return
    largest = float(np.abs(xa.to_numpy(kernel.diag(points))).max())
    errors = np.linalg.norm(coef.astype(np.float64), axis=0) * largest * np.finfo(coef.dtype).eps
    sizes = np.abs(targets - targets.mean(axis=0)).mean(axis=0)
    # A constant target has no deviations to compare with, so the rounding errors are compared with its value.
    sizes = np.where(sizes > np.finfo(np.float64).eps * np.abs(targets).max(axis=0), sizes, np.abs(targets).max(axis=0))
    share = float(np.max(errors / np.maximum(sizes, np.finfo(np.float64).tiny)))
    if share > TUNING.largest_rounding:
        warn_caller(
            f"rounding errors of {coef.dtype} coefficients change the scores by about {share:.1g} times the size of the "
            "targets: use dtype='float64', lower C, or scale the features",
            LinAlgWarning,
        )


def _make_solver(settings: LeastSquaresSettings, plan: SolverPlan, op: Any, rng: np.random.RandomState) -> Solver:
    """Return the solver of the plan with tolerance and block size set; `CG` also gets the preconditioner of the plan."""
    solver = settings.solver if isinstance(settings.solver, Solver) else _solver_by_name(settings, plan, op)
    if not isinstance(solver, CG) or solver.preconditioner is not None or plan.n_landmarks == 0:
        return solver
    return clone(solver).set_params(preconditioner=planned_preconditioner(op, plan, rng, damping=solver.damping))


def planned_preconditioner(
    op: Any, plan: SolverPlan, rng: np.random.RandomState, *, damping: float | str = "auto"
) -> NystromPreconditioner | None:
    """Return the Nyström preconditioner on as many random landmarks as the plan requests, or None if `n_landmarks` is 0."""
    if not plan.n_landmarks:
        return None
    landmarks = np.sort(rng.permutation(op.shape[0])[: plan.n_landmarks])
    return NystromPreconditioner(op.columns(landmarks, plan.store_landmarks), op.ridge, damping=damping, rng=rng)


def _solver_by_name(settings: LeastSquaresSettings, plan: SolverPlan, op: Any) -> Solver:
    cls = SOLVERS[plan.solver]
    options: dict[str, Any] = {}
    # If the system is small enough to factor, iterations are cheap: CG stops at `value_tol`, without a test of predictions.
    is_small = settings.solver == "auto" and op.shape[0] <= settings.tuning.cholesky_max_rows_cpu
    until_predictions = plan.solver == "cg" and settings.tol == "auto" and not is_small
    if plan.solver != "cholesky":  # `tol` is for iterative solvers; a direct solver refines to its own tolerance
        tol = settings.auto_tol if until_predictions else settings.tuning.value_tol
        options["tol"] = tol if settings.tol == "auto" else settings.tol
    if settings.max_iter not in (None, _UNLIMITED):
        options["max_iter"] = options["n_members"] = settings.max_iter
    if plan.block_size:
        options["block_size"] = plan.block_size
    if until_predictions:
        options["convergence_test"] = predictions_converged(op.ridge, intercept=settings.fit_intercept)
    known = cls._get_param_names()
    return cls(**{name: value for name, value in options.items() if name in known})


def rows_of(X: Array, rows: np.ndarray, points: np.ndarray, kernel: Kernel) -> Array:
    """Return the rows `rows` of the data, or their kernel values with `points` if the kernel is precomputed."""
    return xa.take_rows(X, rows) if kernel.uses_points else xa.submatrix(X, rows, points)


def _state_file(
    checkpoint: Checkpoint, solver: Solver, fit: ExpansionFit, Z: np.ndarray, settings: LeastSquaresSettings
) -> StateFile:
    options = {k: v for k, v in solver.get_params(deep=False).items() if k not in ("preconditioner", "convergence_test")}
    options["convergence_test"] = getattr(solver, "convergence_test", None) is not None
    drawn = getattr(getattr(solver, "preconditioner", None), "landmarks", np.empty(0))
    ridge, name = xa.to_numpy(fit.op.ridge), type(solver).__name__
    parts = fit.points, Z, ridge, fit.kernel, name, sorted(options.items()), drawn, fit.device, settings.fit_intercept
    return StateFile(checkpoint.path, fingerprint(*parts), checkpoint.every)


def _warn_unless_converged(name: str, system: LinearSystem, result: SolveResult, solver: Solver) -> None:
    if result.status.converged_or_stopped:
        return
    if system.bordered:
        # The true residual would cost as much as a pass over all blocks, and `max_iter` often ends such solves on purpose.
        residual, which = result.residual, "estimated"
    else:
        residual, which = xa.norm(system.rhs - system.op @ result.W) / (xa.norm(system.rhs) or 1.0), "true"
    warn_caller(
        f"{name} did not converge: {result.message}; {which} relative residual {residual:.2g}, tol {solver.tol:g}. Raise "
        "max_iter or tol, lower C, use dtype='float64', or more landmarks: solver=CG(n_landmarks=...).",
        ConvergenceWarning,
    )
