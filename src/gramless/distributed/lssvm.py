"""Least-squares support vector machine by conjugate gradients, with the rows on the workers.

The algorithm is that of local fits: plan, `solve` with `CG`, operator, Nyström preconditioner, whose products the workers
compute. The client stores the right-hand sides and vectors of their size (`n k` numbers) and the factor of the
preconditioner (`m^2`), never the rows. `points_` of the fitted model is a dask array on the workers, which also compute the
predictions; `model.points_ = model.points_.compute()` converts the model to a local one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._core.arrays import Array
from gramless._core.targets.columns import Standardised, class_targets
from gramless.callbacks import read_callbacks
from gramless.distributed.cluster import check_settings, cluster_memory, n_threads
from gramless.distributed.collections import Piece, Rows, class_factors, draw, join
from gramless.distributed.operator import DistributedOperator, RemoteColumns
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.kernels import kernel_from_parameters
from gramless.linalg.operators.kernel import check_diagonal
from gramless.linalg.operators.system import LinearSystem
from gramless.linalg.planning.plan import SolverPlan, make_plan, problem_size, solver_name
from gramless.linalg.preconditioner import NystromPreconditioner
from gramless.linalg.solvers import CG, Averaged, solve
from gramless.linalg.stopping import predictions_converged
from gramless.linalg.tuning import TUNING

UNSUPPORTED = {"warm_start", "device", "memory_budget"}

_SCALE_ROWS = 50_000  # rows from which the variance of gamma="scale" is estimated
_BLOCKS_PER_THREAD = 2  # more blocks balance the load better, but the number of tiles is their square


def check_least_squares(estimator: LSSVC | LSSVR) -> None:
    """Raise ValueError for parameters that cannot be distributed, before any row is read."""
    estimator._validate_params()
    check_settings(estimator, UNSUPPORTED)
    if estimator.C == "loo":
        raise ValueError("C='loo' needs all rows in one process; give C a number")
    # An `Averaged` solver of CG runs has the name "cg" too.
    if solver_name(estimator.solver) not in ("auto", "cg") or isinstance(estimator.solver, Averaged):
        raise ValueError(f"dask collections need solver='cg', 'auto' or a CG object, got solver={estimator.solver!r}")
    if not kernel_from_parameters(vars(estimator)).uses_points:
        raise ValueError("a precomputed kernel cannot be distributed by rows; pass the data and a kernel")
    callbacks = read_callbacks(estimator.callback)
    for refused in (callbacks.checkpoint, callbacks.early_stopping):
        if refused is not None:
            raise ValueError(f"{type(refused).__name__} is not available on dask collections: leave it out of callback")
    if getattr(estimator, "probability", False) in ("sigmoid", "temperature"):
        wanted = estimator.probability
        raise ValueError(f"probability={wanted!r} needs all rows in one process; use probability='softmax'")


def fit_least_squares(client: Client, estimator: LSSVC | LSSVR, rows: Rows) -> None:
    """Fit `LSSVC` or `LSSVR` to rows on the workers."""
    rows.keep()
    rng = check_random_state(estimator.random_state)
    Z, weights, rescale = _targets(estimator, rows)
    if (weights == 0).any():
        raise ValueError("rows of weight zero must be left out of a distributed fit: X[sample_weight > 0]")
    sample = np.arange(rows.n) if rows.n <= _SCALE_ROWS else draw(rows.n, _SCALE_ROWS, rng)
    own_weights = weights[sample] if (weights != 1).any() else None
    task = client.submit(_resolve, kernel_from_parameters(vars(estimator)), rows.take(sample), own_weights, pure=False)
    estimator.kernel_ = task.result()

    cg = _cg(estimator)
    size = problem_size(rows.n, rows.d, Z.shape[1], rows.dtype, "cpu", estimator.kernel_)
    # Half of the workers' memory is reserved for the transfers of dask.
    watch = estimator.tol == "auto" and not isinstance(estimator.solver, CG)
    tol = TUNING.planned_tol if watch else cg.tol
    plan = make_plan(size, "cg", cluster_memory(client) // 2, n_landmarks=cg.n_landmarks, tol=tol)
    estimator.solver_, estimator.solver_reason_ = "cg", f"rows on {len(client.nthreads())} workers; {plan.reason}"
    blocks, counts = _grouped(client, rows)
    ridge = 1.0 / (float(estimator.C) * weights)
    op = DistributedOperator(client, blocks, counts, estimator.kernel_, ridge, rows.dtype, cache=plan.cached)
    check_diagonal(op)
    estimator.C_ = float(estimator.C)
    estimator.device_, estimator.support_, estimator.points_ = "cpu", np.arange(rows.n), _points(rows)
    intercept = getattr(estimator, "fit_intercept", True)
    system = LinearSystem(op, Z, bordered=False, intercept=intercept)
    solver = _preconditioned(cg, plan, op, rows, rng)
    if watch:
        solver.convergence_test = predictions_converged(op.ridge, intercept=intercept)

    def take(W: Array) -> None:
        estimator.dual_coef_, estimator.intercept_ = rescale(*system.split(W))

    result = solve(
        op,
        system.rhs,
        solver,
        callback=_callback(estimator, take),
        random_state=rng,
        verbose=estimator.verbose,
        label=f"{type(estimator).__name__} cg on {len(client.nthreads())} workers",
    )
    take(result.W)
    estimator.history_, estimator.n_iter_, estimator.residual_ = result.history, result.n_iter, result.residual
    if not result.status.converged_or_stopped:
        warnings.warn(
            f"{type(estimator).__name__} did not converge: {result.message}; relative residual {result.residual:.2g}, "
            f"tol {cg.tol:g}. Raise max_iter or tol, lower C, or use more n_landmarks.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _cg(estimator: LSSVC | LSSVR) -> CG:
    """Return the `CG` object of the parameter `solver`, or one with the parameters `tol` and `max_iter`."""
    if isinstance(estimator.solver, CG):
        return estimator.solver
    limit: dict[str, Any] = {} if estimator.max_iter in (None, -1) else {"max_iter": int(estimator.max_iter or 0)}
    auto_tol = TUNING.label_tol if isinstance(estimator, LSSVC) else TUNING.value_tol
    return CG(tol=auto_tol if estimator.tol == "auto" else float(estimator.tol), **limit)


def _preconditioned(cg: CG, plan: SolverPlan, op: DistributedOperator, rows: Rows, rng: np.random.RandomState) -> CG:
    preconditioner = cg.preconditioner
    if preconditioner is None and plan.n_landmarks > 0:
        landmarks = np.sort(rng.permutation(rows.n)[: plan.n_landmarks])
        columns = RemoteColumns(op, rows, landmarks, store=plan.store_landmarks)
        preconditioner = NystromPreconditioner(columns, op.ridge, damping=cg.damping, rng=rng)
    return CG(tol=cg.tol, max_iter=cg.max_iter, preconditioner=preconditioner, convergence_test=cg.convergence_test)


def _targets(estimator: LSSVC | LSSVR, rows: Rows) -> tuple[np.ndarray, np.ndarray, Callable[..., Any]]:
    """Return the target matrix, the weights of all rows, and the function that rescales a solution."""
    parts = rows.client.gather(rows.map(_codes_and_weights, rows.classes))
    y = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts])
    if rows.classes is None:
        estimator._single_output = not rows.target_shape
        shifted = getattr(estimator, "fit_intercept", True)
        targets = Standardised.of(y.reshape(len(y), -1), weights, shifted=shifted)
        return targets.Z, weights, targets.model
    estimator.classes_ = rows.classes
    factors = class_factors(getattr(estimator, "class_weight", None), rows)
    if factors is not None:
        weights = weights * factors[y]
    return class_targets(y, len(rows.classes)), weights, lambda coef, bias: (coef, bias)


def _codes_and_weights(piece: Piece, classes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    weights = np.ones(len(piece.y)) if piece.weights is None else piece.weights
    if classes is None:
        return piece.y.astype(np.float64), weights
    return np.searchsorted(classes, piece.y.reshape(len(piece.y))), weights


def _resolve(kernel: Any, sample: Piece, weights: np.ndarray | None) -> Any:
    return kernel.resolve(sample.X, weights)


def _grouped(client: Client, rows: Rows) -> tuple[list[Any], list[int]]:
    """Return at most `_BLOCKS_PER_THREAD` blocks of rows for each thread, and their numbers of rows."""
    most = max(2, _BLOCKS_PER_THREAD * n_threads(client))
    if len(rows.pieces) <= most:
        return rows.pieces, rows.counts
    groups = np.array_split(np.arange(len(rows.pieces)), most)
    blocks = [client.submit(join, [rows.pieces[i] for i in group], pure=False) for group in groups]
    return blocks, [sum(rows.counts[i] for i in group) for group in groups]


def _points(rows: Rows) -> da.Array:
    features = dask.delayed(_features, pure=False)
    blocks = [
        da.from_delayed(features(piece), shape=(count, rows.d), dtype=rows.dtype)
        for piece, count in zip(rows.pieces, rows.counts, strict=True)
    ]
    return da.concatenate(blocks)


def _features(piece: Piece) -> np.ndarray:
    return piece.X


def _callback(estimator: LSSVC | LSSVR, take: Callable[[np.ndarray], None]) -> Any:
    callbacks = read_callbacks(estimator.callback)
    if not callbacks.functions:
        return None

    def call(W: np.ndarray, record: dict[str, Any]) -> bool:
        take(W)
        return callbacks(estimator, record)

    return call
