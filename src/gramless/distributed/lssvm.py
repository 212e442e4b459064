"""Least-squares support vector machine by conjugate gradients, with the rows on the workers.

The algorithm is the same as for local fits, `solve` with `CG` and a Nyström preconditioner, but the workers compute the
products with the kernel matrix. The client stores right-hand sides and vectors of equal size (`n k` numbers for n rows and k
outputs) and the factor of the preconditioner (`m^2` numbers for m landmarks), never the rows. `points_` of the fitted model
is a dask array on the workers, which compute predictions; `model.points_ = model.points_.compute()` makes the model local.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import dask
import numpy as np
from sklearn.utils import check_random_state

from gramless._core.targets.columns import Standardised, class_targets
from gramless.callbacks import read_callbacks
from gramless.distributed.cluster import check_settings, cluster_memory
from gramless.distributed.collections import Piece, Rows, class_factors, join, lazy_array
from gramless.distributed.operator import DistributedOperator
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.linalg.least_squares import ExpansionFit, solve_expansion
from gramless.linalg.operators.kernel import check_diagonal
from gramless.linalg.planning.plan import solver_name
from gramless.linalg.solvers import Averaged
from gramless.streaming.reservoir import draw

UNSUPPORTED = {"warm_start", "device", "memory_budget"}

_SCALE_ROWS = 50_000  # rows from which the variance of gamma="scale" is estimated
_BLOCKS_PER_THREAD = 2  # more blocks balance the load better, but the number of tiles grows quadratically


def check_least_squares(estimator: LSSVC | LSSVR) -> None:
    """Raise ValueError for parameters that a distributed fit does not support, before any row is read."""
    estimator._validate_params()
    check_settings(estimator, UNSUPPORTED)
    if estimator.C == "loo":
        raise ValueError("C='loo' needs all rows in one process; give C a number")
    # `solver_name` also returns "cg" for an `Averaged` solver, which averages several runs of `CG`.
    if solver_name(estimator.solver) not in ("auto", "cg") or isinstance(estimator.solver, Averaged):
        raise ValueError(f"dask collections need solver='cg', 'auto' or a CG object, got solver={estimator.solver!r}")
    if not estimator._kernel().uses_points:
        raise ValueError("a precomputed kernel cannot be distributed by rows; pass the data and a kernel")
    callbacks = read_callbacks(estimator.callback)
    for refused in (callbacks.checkpoint, callbacks.early_stopping):
        if refused is not None:
            raise ValueError(f"{type(refused).__name__} is not available on dask collections: leave it out of callback")
    if getattr(estimator, "probability", False) in ("sigmoid", "temperature"):
        wanted = estimator.probability
        raise ValueError(f"probability={wanted!r} needs all rows in one process; use probability='softmax'")


def fit_least_squares(
    estimator: LSSVC | LSSVR, rows: Rows, callback: Callable[[ExpansionFit, dict[str, Any]], bool]
) -> ExpansionFit:
    """Fit `LSSVC` or `LSSVR` to rows on the workers; each iteration calls `callback` with the fit so far."""
    rows.keep()
    client = rows.client
    settings = estimator._settings()
    # Half of the workers' memory is reserved for transfers by dask.
    solver = "cg" if settings.solver == "auto" else settings.solver
    settings = replace(settings, solver=solver, memory_budget=cluster_memory(client) // 2)
    rng = check_random_state(settings.random_state)
    Z, weights, rescale = _targets(estimator, rows)
    if (weights == 0).any():
        raise ValueError("rows of weight zero must be left out of a distributed fit: X[sample_weight > 0]")
    sample = np.arange(rows.n) if rows.n <= _SCALE_ROWS else draw(rows.n, _SCALE_ROWS, rng)
    own_weights = weights[sample] if (weights != 1).any() else None
    kernel = client.submit(_resolve, estimator._kernel(), rows.take(sample), own_weights, pure=False).result()
    plan = settings.plan(kernel, (rows.n, rows.d), Z.shape[1], rows.dtype, "cpu")
    plan = replace(plan, solver="cg", reason=f"rows on {len(client.nthreads())} workers; {plan.reason}")
    blocks, counts = _grouped(rows)
    op = DistributedOperator(rows, blocks, counts, kernel, 1.0 / (settings.C * weights), cache=plan.cached)
    check_diagonal(op)
    features = dask.delayed(attrgetter("X"), pure=False)
    points = lazy_array(map(features, rows.pieces), rows.counts, (rows.d,), rows.dtype)
    fit = ExpansionFit(kernel, points, points, np.arange(rows.n), "cpu", plan, op)
    solve_expansion(fit, Z, settings, rng, rescale=rescale, callback=callback)
    return fit


def _targets(estimator: LSSVC | LSSVR, rows: Rows) -> tuple[np.ndarray, np.ndarray, Callable[..., Any]]:
    """Return the target matrix, the row weights, and a function that converts a solution to the units of given targets."""
    parts = rows.client.gather(rows.map(_codes_and_weights, rows.classes))
    y = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts])
    if rows.classes is None:
        shifted = getattr(estimator, "fit_intercept", True)
        targets = Standardised.of(y.reshape(len(y), -1), weights, shifted=shifted)
        return targets.Z, weights, targets.model
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


def _grouped(rows: Rows) -> tuple[list[Any], list[int]]:
    """Return blocks of rows, at most `_BLOCKS_PER_THREAD` times the number of worker threads, and their numbers of rows."""
    most = max(2, _BLOCKS_PER_THREAD * sum(rows.client.nthreads().values()))
    if len(rows.pieces) <= most:
        return rows.pieces, rows.counts
    groups = np.array_split(np.arange(len(rows.pieces)), most)
    blocks = [rows.client.submit(join, [rows.pieces[i] for i in group], pure=False) for group in groups]
    return blocks, [sum(rows.counts[i] for i in group) for group in groups]
