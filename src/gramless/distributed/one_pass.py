"""Estimators that need one pass: each piece is reduced to its normal equations, and these are merged in a tree.

The sums of all rows are the sums of the pieces' sums, so the model is that of one machine up to the order of additions. What
moves between workers is `p^2` numbers for each merge; what comes to the client is the model. The features (landmarks, random
frequencies) are chosen on one worker, from the same rows that one machine would draw.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from dask.distributed import Client

from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless.approximation.features import FeatureMap
from gramless.distributed.cluster import reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors, draw
from gramless.distributed.settings import check_settings
from gramless.streaming.learners import Learner, Pass, PassOptions, plan_pass
from gramless.streaming.sources import Rows as Batch

Parts = tuple[FeatureMap, Learner, PassOptions]

HONOURED = frozenset(
    {
        "kernel",
        "C",
        "gamma",
        "degree",
        "coef0",
        "n_landmarks",
        "landmarks",
        "n_components",
        "draw",
        "method",
        "Cs",
        "class_weight",
        "probability",
        "batch_size",
        "dtype",
        "verbose",
        "random_state",
    }
)
"""The settings of the one-pass estimators that a fit on many machines reads."""


def check_one_pass(estimator: Any) -> None:
    """Refuse what cannot be distributed, before anything is read."""
    _, learner, options = estimator.parts()
    learner.check()
    if not learner.merges:
        raise ValueError(
            f"{options.name} learns online, a step after the other; partitions need sums: "
            "use NystromLSSVC or FourierLSSVC(method='exact')"
        )
    check_settings(estimator, HONOURED)


def fit_one_pass(client: Client, estimator: Any, rows: Rows) -> None:
    """Fit an estimator that has `parts()` and takes a pass by `adopt` to rows on the workers."""
    feature_map, learner, options = parts = estimator.parts()
    state, rng = Pass.fresh(_targets(estimator, rows), learner, estimator.random_state)
    state.set_up(np.zeros((1, rows.d), rows.dtype), options)
    numbers = feature_map.named_rows(rows.n)
    sample = rows.take(draw(rows.n, state.rows_to_see(feature_map, options, rows.n, repeatable=True), rng))
    named = None if numbers is None else rows.take(np.unique(numbers))
    ready = client.submit(_begin, state, feature_map, rng.get_state(), rows.n, sample, named, numbers, pure=False)
    del sample, named
    learnt = rows.map(_learn, ready, parts, each=[(offset,) for offset in rows.offsets])
    total = reduce_in_tree(client, learnt, _merge)
    del learnt  # partial sums may go as soon as they are merged
    fitted = client.submit(_solve, ready, total, parts, pure=False)
    show_progress(options.verbose, fitted)
    estimator.adopt(fitted.result())


def _targets(estimator: Any, rows: Rows) -> Targets:
    if rows.classes is None:
        values = ValueTargets()
        values.read(np.zeros((1, *rows.target_shape)))
        return values
    factors = class_factors(estimator.class_weight, rows)
    table = None if factors is None else dict(zip(rows.classes.tolist(), factors.tolist(), strict=True))
    return LabelTargets(rows.classes, table)


def _begin(
    state: Pass, feature_map: FeatureMap, rng_state: Any, n: int, sample: Piece, named: Piece | None, numbers: Any
) -> Pass:
    """The pass with its features chosen."""
    rng, own = np.random.RandomState(), None
    rng.set_state(rng_state)
    if named is not None:
        inverse = np.unique(numbers, return_inverse=True)[1]
        own = named.X[inverse], _columns(named, state)[inverse], None
    ready = state.copy()
    ready.begin((sample.X, _columns(sample, state), sample.weights), feature_map, rng, n, own)
    return ready


def _learn(piece: Piece, offset: int, ready: Pass, parts: Parts) -> Pass:
    """The pass over one piece, without the features: they are the same everywhere."""
    feature_map, learner, options = parts
    # Features of their own: workers that are threads of one process would fill the same block of kernel values.
    part = replace(ready.copy(), features=copy.copy(ready.features), rows_seen=offset)
    n, d = piece.X.shape
    columns = part.targets.n_columns
    how = {"n_rows": n, "n_columns": d, "n_targets": columns, "dtype": part.dtype, "device": part.device}
    size = plan_pass(feature_map, learner, options, **how).batch_rows
    y = _columns(piece, part)
    for start in range(0, n, size):
        batch: Batch = tuple(None if x is None else x[start : start + size] for x in (piece.X, y, piece.weights))  # type: ignore[assignment]
        part.add(part.prepare(batch[0]), part.targets.read(batch[1]), batch[2], learner)
    return replace(part, features=None, rows_seen=n)


def _columns(piece: Piece, state: Pass) -> np.ndarray:
    """The targets of a piece: labels as a vector, values as they are."""
    return piece.y.reshape(len(piece.y)) if isinstance(state.targets, LabelTargets) else piece.y


def _merge(parts: list[Pass]) -> Pass:
    total = parts[0].copy()  # a task must leave what it is given as it was, for it may be run again
    for part in parts[1:]:
        total.merge(part)
    return total


def _solve(ready: Pass, total: Pass, parts: Parts) -> Pass:
    fitted = replace(total.copy(), features=ready.features)
    fitted.model(*parts)
    return fitted
