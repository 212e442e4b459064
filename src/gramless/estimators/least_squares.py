"""The fit of every least-squares machine: from a target matrix to coefficients and a bias.

    (K + diag(1 / (C w_i))) a + b = z,   sum_i a_i = 0

is the condition for `f = sum_i a_i K(., x_i) + b` to minimise `1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i))^2`. The bias costs
one more right-hand side: solve `A [V, u] = [Z, 1]`, then `b = sum V / sum u` and `a = V - u b`. All classes, or all outputs,
share every product with `A`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.checkpoint import Checkpoint, fingerprint
from gramless._runtime.memory import parse_budget
from gramless._runtime.progress import say
from gramless._runtime.validation import check_choice, check_positive, check_square, check_X, working_dtype
from gramless.callbacks import Callbacks, read_callbacks
from gramless.kernels import Kernel
from gramless.models.expansion import kernel_from_settings, set_training_points
from gramless.operators import KernelOperator, expand
from gramless.operators.kernel import check_diagonal
from gramless.operators.system import LinearSystem
from gramless.planning.make_solver import blocks_of, make_solver
from gramless.planning.plan import Plan, make_plan, sizes
from gramless.solvers import SOLVERS, Solver, SolveResult, solve
from gramless.targets.holdout import hold_out


class LeastSquaresMachine(BaseEstimator):
    """What `LSSVC` and `LSSVR` share; the parameters are documented there."""

    kernel_: Kernel
    points_: Array
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    device_: str
    support_: Any

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        block_size: int | Sequence[int] | None = None,
        n_estimators: int = 1,
        n_landmarks: int | str = "auto",
        damping: float | str = "auto",
        dtype: Any = None,
        device: str | None = None,
        precision: str = "highest",
        storage: str | None = None,
        memory_budget: str | float | None = None,
        warm_start: bool = False,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.block_size = block_size
        self.n_estimators = n_estimators
        self.n_landmarks = n_landmarks
        self.damping = damping
        self.dtype = dtype
        self.device = device
        self.precision = precision
        self.storage = storage
        self.memory_budget = memory_budget
        self.warm_start = warm_start
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """How a fit of this size would be solved, or a `MemoryError` that says why it cannot be."""
        budget = parse_budget(self.memory_budget, device)
        size = sizes(n, d, n_outputs, dtype, device, kernel_from_settings(self), self.storage, self.precision)
        blocks = blocks_of(self.solver, self.block_size, self.n_estimators)
        return make_plan(size, self._solver_name(), budget, n_landmarks=self.n_landmarks, blocks=blocks, tol=self.tol)

    def _solver_name(self) -> str:
        """The registry's name for the solver, `"auto"`, or `"custom"` for one that is not in the registry."""
        if isinstance(self.solver, Solver):
            return next((name for name, cls in SOLVERS.items() if type(self.solver) is cls), "custom")
        return check_choice("solver", self.solver, {"auto", *SOLVERS})

    def _check_X(self, X: Any) -> Array:
        """Check the settings, then the data."""
        check_machine(self)
        kernel = kernel_from_settings(self)
        dtype = working_dtype(X, self.dtype)
        checked = check_X(self, X, dtype=dtype, reset=True, accept_sparse=kernel.accepts_sparse)
        if not kernel.separable:
            check_square(checked)
        return checked

    def _fit(self, X: Array, Z: np.ndarray, weights: np.ndarray | None, classes: np.ndarray | None = None) -> KernelOperator:
        """Solve for the targets `Z` and set the model; returns the operator, whose cache may still serve."""
        rng = self._generator(X, Z)
        self.device_ = xa.resolve_device(self.device, X)
        kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        train, held_out = kept, None
        callbacks = read_callbacks(self.callback)
        stopping = callbacks.early_stopping
        if stopping is not None:
            train, held_out = hold_out(kept, stopping.validation_fraction, rng, classes)
        kernel = kernel_from_settings(self)
        self.kernel_ = kernel.resolve(X, weights)
        dtype = xa.numpy_dtype(X)
        plan = self.plan(len(train), X.shape[1], Z.shape[1], dtype, self.device_)
        self.solver_ = plan.solver if plan.solver != "custom" else type(self.solver).__name__
        self.solver_reason_ = plan.reason
        say(self.verbose, f"solver {self.solver_}: {plan.reason}; peak {plan.memory}")

        points = X if len(train) == X.shape[0] else _subset(X, train, kernel.separable)
        on_device = xa.to_device(points, self.device_, dtype)
        set_training_points(self, points, on_device, train)
        ridge = 1.0 / (self.C * (np.ones(len(train)) if weights is None else weights[train]))
        op = KernelOperator(
            on_device, self.kernel_, ridge, cache=plan.cached, precision=self.precision, storage=self.storage
        )
        check_diagonal(op)
        solver = make_solver(self, plan, op, rng)
        system = LinearSystem(op, Z[train], bordered=not solver.needs_spd)
        result = solve(
            system.op,
            system.rhs,
            solver,
            W0=self._start(system.rhs),
            callback=self._wrapped_callback(callbacks, system),
            monitor=self._monitor(system, X, Z, train, held_out) if held_out is not None else None,
            patience=stopping.n_iter_no_change if stopping is not None else 0,
            random_state=rng,
            checkpoint=self._checkpoint(callbacks, points, Z, ridge, solver),
            verbose=self.verbose,
            label=f"{type(self).__name__} {self.solver_}",
        )
        self._take(*system.split(result.W))
        self.history_, self.n_iter_, self.residual_ = result.history, result.n_iter, result.residual
        say(self.verbose, f"{result.message}; relative residual {result.residual:.2g}")
        if not result.converged:
            self._warn(system, result, solver)
        if self.warm_start:
            self._solution = xa.to_numpy(result.W)
        return op

    def _generator(self, X: Array, Z: np.ndarray) -> np.random.RandomState:
        # A fit that goes on after a kill must draw the same rows again: without a seed of the user's, the data is the seed.
        if read_callbacks(self.callback).checkpoint is not None and self.random_state is None:
            return np.random.RandomState(int(fingerprint(X, Z)[:8], 16))
        return check_random_state(self.random_state)

    def _start(self, rhs: Array) -> Array:
        last = getattr(self, "_solution", None) if self.warm_start else None
        return last if last is not None and last.shape == tuple(rhs.shape) else None

    def _wrapped_callback(
        self, callbacks: Callbacks, system: LinearSystem
    ) -> Callable[[Array, dict[str, Any]], bool] | None:
        if not callbacks.functions:
            return None

        def call(W: Array, record: dict[str, Any]) -> bool:
            self._take(*system.split(W))
            return callbacks(self, record)

        return call

    def _take(self, coef: np.ndarray, bias: np.ndarray) -> None:
        """Make the solution for the targets of `_fit` the model."""
        self.dual_coef_, self.intercept_ = coef, bias

    def _monitor(
        self, system: LinearSystem, X: Array, Z: np.ndarray, train: np.ndarray, held_out: np.ndarray
    ) -> Callable[[Array], float]:
        kernel = self.kernel_
        rows = xa.take_rows(X, held_out) if kernel.separable else xa.submatrix(X, held_out, train)
        validation = xa.to_device(rows, self.device_)
        points = xa.to_device(self.points_, self.device_)

        def error(W: Array) -> float:
            coef, bias = system.split(W)
            scores = xa.to_numpy(expand(kernel, validation, points, xa.to_device(coef, self.device_))) + bias
            return self._validation_error(scores, Z[held_out])

        return error

    def _validation_error(self, scores: np.ndarray, Z: np.ndarray) -> float:
        return float(np.mean((scores - Z) ** 2))

    def _checkpoint(
        self, callbacks: Callbacks, points: Array, Z: np.ndarray, ridge: np.ndarray, solver: Solver
    ) -> Checkpoint | None:
        if callbacks.checkpoint is None:
            return None
        settings = {k: v for k, v in solver.get_params().items() if k != "preconditioner"}
        preconditioner = getattr(solver, "preconditioner", None)
        landmarks = getattr(preconditioner, "landmarks", None)
        problem = fingerprint(
            points,
            Z,
            ridge,
            self.kernel_,
            type(solver).__name__,
            sorted(settings.items()),
            np.empty(0) if landmarks is None else landmarks,
            self.device_,
        )
        return Checkpoint(callbacks.checkpoint.path, problem, callbacks.checkpoint.every)

    def _warn(self, system: LinearSystem, result: SolveResult, solver: Solver) -> None:
        if system.bordered:
            # A product would cost as much as a whole pass of blocks, and such solves are often ended by max_iter on purpose.
            residual, which = result.residual, "estimated"
        else:
            residual, which = xa.norm(system.rhs - system.op @ result.W) / (xa.norm(system.rhs) or 1.0), "true"
        warnings.warn(
            f"{type(self).__name__} did not converge: {result.message}; {which} relative residual {residual:.2g}, "
            f"tol {solver.tol:g}. Raise max_iter or tol, lower C, use dtype='float64', or more n_landmarks for solver='cg'.",
            ConvergenceWarning,
            stacklevel=6,
        )


def _subset(X: Array, idx: np.ndarray, separable: bool) -> Array:
    return xa.take_rows(X, idx) if separable else xa.submatrix(X, idx, idx)


def check_machine(machine: LeastSquaresMachine) -> None:
    """Check the settings that do not depend on data."""
    check_positive("C", machine.C)
    check_positive("tol", machine.tol)
    machine._solver_name()
    check_positive("n_estimators", machine.n_estimators, integer=True)
    read_callbacks(machine.callback)
    if machine.max_iter is not None and machine.max_iter != -1:
        check_positive("max_iter (or -1 or None for the solver's own limit)", machine.max_iter, integer=True)
    for size in np.atleast_1d([] if machine.block_size is None else np.asarray(machine.block_size, dtype=object)):
        check_positive("block_size", size, integer=True)
    if machine.damping != "auto":
        check_positive("damping (or 'auto')", machine.damping)
    if machine.n_landmarks != "auto" and not (isinstance(machine.n_landmarks, Integral) and machine.n_landmarks >= 0):
        raise ValueError(f"n_landmarks must be 'auto' or an integer of at least 0, got {machine.n_landmarks!r}")
