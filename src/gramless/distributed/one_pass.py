"""Distributed fits of one-pass estimators: workers compute sums or products over partitions and add the results in a tree.

The model equals the model of a local fit up to the order of additions. Each merge transfers `p^2` numbers between workers
for p features, and the client receives the model only. The features (landmarks, random frequencies) are chosen on one
worker, from the same rows that a local fit draws. Conjugate gradients run on the client: each iteration sends `m` numbers
per output to all workers for m landmarks, and each partition returns a product of the same size.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from gramless._core.arrays import Array
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.threads import slices
from gramless.approximation.features.base import FeatureMap, SampledRows
from gramless.distributed.cluster import check_settings, merge_copies, reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors
from gramless.distributed.operator import retry_if_lost
from gramless.estimators.one_pass import OnePassEstimator
from gramless.streaming.learners.base import PassSize
from gramless.streaming.learners.conjugate_gradients import PassRows, add_totals, first_sums, solve_by_passes, unwhitened_map
from gramless.streaming.learners.planning import BatchPlan, PassSettings, plan_pass
from gramless.streaming.learners.training_pass import CollectingPass, FinishedPass, LearningPass, rows_to_examine
from gramless.streaming.reservoir import draw
from gramless.streaming.stream import Stream

UNSUPPORTED = {"callback", "device", "epochs", "forgetting_factor", "memory_budget", "optimizer", "warm_start"}


def check_one_pass(estimator: OnePassEstimator) -> None:
    """Raise ValueError for parameters that a distributed fit does not support, before any row is read."""
    estimator._validate_params()
    _, learner, options = estimator.pass_settings()
    learner.check()
    if not learner.merges:
        raise ValueError(
            f"{options.name} learns online, one step after the other, and partitions need sums: "
            "use NystromLSSVC or FourierLSSVC(method='exact')"
        )
    check_settings(estimator, UNSUPPORTED)


def fit_one_pass(estimator: OnePassEstimator, rows: Rows) -> LearningPass | FinishedPass:
    """Fit a one-pass estimator to rows on the workers, and return the training pass."""
    client = rows.client
    feature_map, learner, options = settings = estimator.pass_settings()
    columns = max(1, _targets(estimator, rows).n_columns)
    plan = plan_pass(settings, PassSize(rows.n, rows.d, columns, rows.dtype, "cpu"))
    if plan.solver == "cg":
        feature_map = unwhitened_map(feature_map)
    example = np.zeros((1, rows.d), rows.dtype)
    start, rng = CollectingPass.start(example, _targets(estimator, rows), learner, options, estimator.random_state)
    numbers = feature_map.named_rows(rows.n)
    size = rows_to_examine(feature_map, options, start.format, rows.n, repeatable=True)
    sample = rows.take(draw(rows.n, size, rng))
    named = None if numbers is None else rows.take(np.unique(numbers))
    ready = client.submit(_begin, start, feature_map, rng, rows.n, sample, named, numbers, pure=False)
    if plan.solver == "cg":
        pieces = WorkerRows(rows, ready, settings, replace(plan, stored=None))
        learning: LearningPass = ready.result()
        shift = client.submit(_mean_target, sample, learning.targets, pure=False).result()
        sums = first_sums(pieces.added(_totals, shift), shift, learning.targets)
        features: Any = learning.features
        return solve_by_passes(learning, features.points, sums, pieces.normal_times, settings, plan, random_state=rng)
    del sample, named
    learned = rows.map(_learn, ready, settings, each=[(offset,) for offset in rows.offsets])
    total = reduce_in_tree(client, learned, merge_copies)
    del learned  # the workers may free partial sums as soon as they are merged
    fitted = client.submit(_solve, ready, total, settings, pure=False)
    show_progress(options.verbose, fitted)
    return fitted.result()


class WorkerRows:
    """Rows on the workers for conjugate gradients on the client."""

    def __init__(self, rows: Rows, ready: Any, settings: PassSettings, plan: BatchPlan):
        self._rows, self._shared = rows, (ready, settings, plan)
        rows.keep()

    def normal_times(self, A: Array, shift: Array) -> Array:
        """Return `K_mn W (K_nm A - shift)` for kernel values `K_nm` and row weights `W`, in one pass over the rows."""
        return self.added(_normal_times, A, shift)[0]

    def added(self, work: Any, *vectors: Any) -> list[Array]:
        """Return the sums of the results of `work` over all pieces."""

        def compute() -> Any:  # a repeated call sends the vectors again after a worker was lost
            client = self._rows.client
            everywhere = client.scatter(vectors, broadcast=True, hash=False)
            return reduce_in_tree(client, self._rows.map(work, *self._shared, *everywhere), add_totals).result()

        added: list[Array] = retry_if_lost(compute)
        return added


def _piece_rows(piece: Piece, ready: LearningPass, settings: PassSettings, plan: BatchPlan) -> PassRows:
    return PassRows(ready, Stream(piece.X, _columns(piece, ready.targets), piece.weights), settings, plan)


def _totals(piece: Piece, ready: LearningPass, settings: PassSettings, plan: BatchPlan, shift: np.ndarray) -> list[Array]:
    return _piece_rows(piece, ready, settings, plan).totals(shift)[0]


def _normal_times(
    piece: Piece, ready: LearningPass, settings: PassSettings, plan: BatchPlan, A: Array, shift: Array
) -> list[Array]:
    return [_piece_rows(piece, ready, settings, plan).normal_times(A, shift)]


def _mean_target(sample: Piece, targets: Targets) -> np.ndarray:
    """Return the mean of the target values of a sample of the rows; for labels, return zero."""
    return np.zeros(1) if isinstance(targets, LabelTargets) else sample.y.mean(axis=0)


def _targets(estimator: Any, rows: Rows) -> Targets:
    if rows.classes is None:
        values = ValueTargets()
        values.read(np.zeros((1, *rows.target_shape)))
        return values
    factors = class_factors(estimator.class_weight, rows)
    table = None if factors is None else dict(zip(rows.classes.tolist(), factors.tolist(), strict=True))
    return LabelTargets(rows.classes, table)


def _begin(
    start: CollectingPass, feature_map: FeatureMap, rng: Any, n: int, sample: Piece, named: Piece | None, numbers: Any
) -> LearningPass:
    """Choose features from sampled rows, or from the rows that the user named as landmarks, and return the next phase."""
    own = None
    rng = copy.deepcopy(rng)  # not changed in place, because a dask task may run more than once
    if named is not None:
        inverse = np.unique(numbers, return_inverse=True)[1]
        own = named.X[inverse], _columns(named, start.targets)[inverse]
    rows = SampledRows(sample.X, _columns(sample, start.targets), sample.weights, n, own)
    return start.choose_features(rows, feature_map, rng)


def _learn(piece: Piece, offset: int, ready: LearningPass, settings: PassSettings) -> LearningPass:
    """Learn from one piece, and return the pass without its features, which are the same for all pieces."""
    # The features are copied, because workers that are threads of one process would share the buffer of kernel values.
    part = replace(ready.copy(), features=copy.copy(ready.features), rows_seen=offset)
    n, d = piece.X.shape
    sizes = PassSize(n, d, part.targets.n_columns, np.dtype(part.format.dtype), part.format.device)
    size = plan_pass(settings, sizes, repeatable=False).batch_rows
    y = _columns(piece, part.targets)
    for rows in slices(n, size):
        weights = None if piece.weights is None else piece.weights[rows]
        part.add(part.format.convert(piece.X[rows]), part.targets.read(y[rows]), weights, settings)
    return replace(part, features=None, rows_seen=n)  # type: ignore[arg-type]


def _columns(piece: Piece, targets: Targets) -> np.ndarray:
    """Return the targets of a piece: labels as a vector, values unchanged."""
    return piece.y.reshape(len(piece.y)) if isinstance(targets, LabelTargets) else piece.y


def _solve(ready: LearningPass, total: LearningPass, settings: PassSettings) -> LearningPass:
    """Solve for the model of the pass over all pieces, and return the pass."""
    fitted = replace(total.copy(), features=ready.features)
    fitted.model(settings)
    return fitted
