"""The least-squares support vector machine by conjugate gradients, with the rows on the workers.

The mathematics is that of one machine: `solve` with `CG`, an operator and a preconditioner, each of which asks the workers.
The client holds the right-hand sides and a few columns like them (`n k` numbers), never the rows. The fitted machine's
`points_` is a dask array that stays on the workers; predicting asks them again. `model.points_ = model.points_.compute()`
makes it a model of one machine.
"""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless._runtime.memory import human
from gramless.callbacks import read_callbacks
from gramless.distributed.cluster import cluster_memory, n_threads
from gramless.distributed.collections import Piece, Rows, class_factors, draw, join
from gramless.distributed.operator import DistributedOperator, DistributedPreconditioner
from gramless.estimators.least_squares import LeastSquaresMachine
from gramless.models.expansion import kernel_from_settings
from gramless.solvers import CG, solve
from gramless.targets.columns import class_targets, split_bias

_SCALE_ROWS = 50_000
_DAMPING_SAMPLE = 512
_LANDMARKS_PER_ROOT_N = 12
_BLOCKS_PER_THREAD = 2


def fit_least_squares(client: Client, estimator: LeastSquaresMachine, rows: Rows) -> LeastSquaresMachine:
    """Fit `LSSVC` or `LSSVR` to rows on the workers."""
    _check(estimator)
    rows.keep()
    rng = check_random_state(estimator.random_state)
    targets, weights = _targets(estimator, rows)
    if (weights == 0).any():
        raise ValueError("rows of weight zero must be left out of a distributed fit: X[sample_weight > 0]")
    sample = rows.take(np.arange(rows.n) if rows.n <= _SCALE_ROWS else draw(rows.n, _SCALE_ROWS, rng))
    estimator.kernel_ = client.submit(_resolve, kernel_from_settings(estimator), sample, pure=False).result()
    del sample

    blocks, counts = _grouped(client, rows)
    memory, itemsize = cluster_memory(client), rows.dtype.itemsize
    triangle = rows.n**2 // 2 * itemsize
    cache = triangle <= memory // 3
    op = DistributedOperator(
        client, blocks, counts, estimator.kernel_, 1.0 / (estimator.C * weights), rows.dtype, cache=cache
    )
    estimator._check_diagonal(op)
    m = estimator.n_landmarks
    m = min(int(_LANDMARKS_PER_ROOT_N * np.sqrt(rows.n)), rows.n // 2) if m == "auto" else min(int(m), rows.n)
    settings: dict[str, Any] = {"tol": estimator.tol}
    if estimator.max_iter not in (None, -1):
        settings["max_iter"] = estimator.max_iter
    if m > 0:
        landmarks = rows.take(np.sort(rng.permutation(rows.n)[:m]))
        some = rows.take(np.sort(rng.permutation(rows.n)[:_DAMPING_SAMPLE]))
        store = rows.n * m * itemsize <= memory // 6
        settings["preconditioner"] = DistributedPreconditioner(op, landmarks, some, estimator.damping, store=store)
    estimator.solver_ = "cg"
    estimator.solver_reason_ = (
        f"rows on {len(client.nthreads())} workers; one triangle of the kernel matrix ({human(triangle)}) "
        f"{'is kept' if cache else 'is computed for each product'} there"
    )
    rhs = np.column_stack([targets, np.ones(rows.n)]).astype(rows.dtype)
    estimator.device_, estimator.support_ = "cpu", np.arange(rows.n)
    estimator.points_ = _points(rows)
    result = solve(
        op,
        rhs,
        CG(**settings),
        callback=_wrapped(estimator),
        random_state=rng,
        verbose=estimator.verbose,
        label=f"{type(estimator).__name__} cg on {len(client.nthreads())} workers",
    )
    estimator.dual_coef_, estimator.intercept_ = split_bias(result.W)
    estimator.history_, estimator.n_iter_, estimator.residual_ = result.history, result.n_iter, result.residual
    if not result.converged:
        warnings.warn(
            f"{type(estimator).__name__} did not converge: {result.message}; relative residual {result.residual:.2g}, "
            f"tol {estimator.tol:g}. Raise max_iter or tol, lower C, or use more n_landmarks.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return estimator


def _check(estimator: LeastSquaresMachine) -> None:
    estimator._check_settings()
    name = type(estimator).__name__
    if estimator.solver not in ("auto", "cg"):
        raise ValueError(f"{name} on dask collections needs solver='cg' (or 'auto'), got {estimator.solver!r}")
    if not kernel_from_settings(estimator).separable:
        raise ValueError("a precomputed kernel cannot be distributed by rows; pass the data and a kernel")
    if estimator.warm_start:
        raise ValueError("warm_start is not available on dask collections: set warm_start=False")
    callbacks = read_callbacks(estimator.callback)
    for refused in (callbacks.checkpoint, callbacks.early_stopping):
        if refused is not None:
            raise ValueError(f"{type(refused).__name__} is not available on dask collections: leave it out of callback")
    if getattr(estimator, "probability", False) == "sigmoid":
        raise ValueError("probability='sigmoid' needs all rows on one machine; use probability='softmax'")


def _targets(estimator: LeastSquaresMachine, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Target matrix and weights of all rows: labels come to the client as small codes, rows never do."""
    parts = rows.client.gather(rows.map(_codes_and_weights, rows.classes))
    y = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts])
    if rows.classes is None:
        estimator._single_output = not rows.target_shape
        return y.reshape(len(y), -1), weights
    estimator.classes_ = rows.classes
    factors = class_factors(getattr(estimator, "class_weight", None), rows)
    if factors is not None:
        weights = weights * factors[y]
    return class_targets(y, len(rows.classes)), weights


def _codes_and_weights(piece: Piece, classes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    weights = np.ones(len(piece.y)) if piece.weights is None else piece.weights
    if classes is None:
        return piece.y.astype(np.float64), weights
    return np.searchsorted(classes, piece.y.reshape(len(piece.y))), weights


def _resolve(kernel: Any, sample: Piece) -> Any:
    return kernel.resolve(sample.X, sample.weights)


def _grouped(client: Client, rows: Rows) -> tuple[list[Any], list[int]]:
    """At most a few blocks for each thread: the tiles are as many as the square of that."""
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


def _wrapped(estimator: LeastSquaresMachine) -> Any:
    callback = read_callbacks(estimator.callback)
    if not callback.functions:
        return None

    def call(W: np.ndarray, record: dict[str, Any]) -> bool:
        estimator.dual_coef_, estimator.intercept_ = split_bias(W)
        return bool(callback(estimator, record))

    return call
