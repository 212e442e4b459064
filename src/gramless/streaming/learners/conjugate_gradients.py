"""Landmark models by conjugate gradients, in several passes over a stream.

    first pass:  K_mn W z, K_mn w and the sums of the targets;     then one pass for each product with `NormalOperator`

with kernel values `K_mn` of m landmarks and n rows, targets `z`, weights `w` and `W = diag(w)`. The solution minimises the
objective of `NormalEquations`, but no sums are stored, so more rows need a new fit. The rows or their kernel values are
cached between the passes if the memory budget allows it; otherwise the stream is read again in each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile, fingerprint
from gramless._core.device import precision_of, storage_of
from gramless._core.progress import log_progress
from gramless._core.targets.streamed import LabelTargets, Targets
from gramless._core.validation import warn_caller
from gramless.approximation.features.base import FeatureMap, Features
from gramless.approximation.features.landmark_map import LandmarkFeatures
from gramless.linalg.operators.fused import FusedColumns
from gramless.linalg.operators.normal import LandmarkProducts, NormalOperator, TiledRows
from gramless.linalg.solvers import CG, SolveResult, Status, solve
from gramless.linalg.solvers.cg import normal_objective, normal_predictions_converged
from gramless.linalg.tuning import TUNING as LINALG_TUNING
from gramless.streaming.learners.planning import BatchPlan, PassSettings
from gramless.streaming.learners.training_pass import (
    FinishedPass,
    LearningPass,
    OnePassModel,
    warn_of_landmark_rounding,
)
from gramless.streaming.stream import Stream


def unwhitened_map(feature_map: FeatureMap) -> FeatureMap:
    """Return a copy of the settings with whitening switched off, because conjugate gradients need no whitened features."""
    unwhitened: FeatureMap = clone(feature_map).set_params(whiten=False)
    return unwhitened


def solve_by_passes(
    learning: LearningPass,
    landmarks: Array,
    sums: FirstSums,
    normal_times: Callable[[Array, Array], Array],
    settings: PassSettings,
    plan: BatchPlan,
    *,
    random_state: np.random.RandomState,
    report: Callable[[FinishedPass, dict[str, Any]], bool] | None = None,
    checkpoint: StateFile | None = None,
    previous: OnePassModel | None = None,
) -> FinishedPass:
    """Solve by conjugate gradients on all rows, with the features of `learning`, and return the finished pass.

    `normal_times(A, shift)` returns `K_mn W (K_nm A - shift)`, in one pass over the rows. The iteration starts from the
    coefficients of the `previous` model if it has the same landmarks and number of outputs.
    """
    _, learner, options = settings
    features, format = learning.features.for_prediction(), learning.format
    ridge = 1.0 / float(learner.C)
    eps = float(np.finfo(format.dtype).eps)
    op = NormalOperator(features.kernel, landmarks, normal_times, sums.features, eps=eps, ridge=ridge, weight=sums.weight)
    rhs, target_squares = op.right_hand_side(sums.crossed), sums.centred_squares
    if not np.isfinite(xa.norm(rhs)):
        raise ValueError(
            f"{options.name} left the range of {format.dtype}: the values of {features.kernel!r} are too large for it; "
            "scale the features, for instance with sklearn.preprocessing.StandardScaler"
        )
    history: list[dict[str, Any]] = []

    def finished(beta: Array) -> FinishedPass:
        a = op.coefficients(beta)
        values = not isinstance(learning.targets, LabelTargets)
        coef, bias = xa.to_numpy(a), xa.to_numpy(op.bias(a, sums.target_mean))[0]
        model = OnePassModel(
            features,
            coef.astype(format.dtype),
            bias.astype(np.float64 if values else format.dtype),
            float(learner.C),
            op.jitter,
            solver=plan.solver,
            reason=plan.reason,
        )
        return FinishedPass(format, learning.targets, learning.seed, solved=model, history=history)

    def callback(beta: Array, record: dict[str, Any]) -> bool:
        history.append(record)
        return report is not None and report(finished(beta), record)

    solver = learner.solver if isinstance(learner.solver, CG) else _default_solver(learning, rhs, target_squares)
    start = None
    if previous is not None and _same_points(previous.features, features) and previous.coef.shape == tuple(rhs.shape):
        start = op.solution_of(xa.like(previous.coef.astype(np.float64), rhs))
    result = solve(
        op,
        rhs,
        solver,
        W0=start,
        callback=None if report is None else callback,
        random_state=random_state,
        checkpoint=checkpoint,
        verbose=options.verbose,
        label=f"{options.name} cg",
    )
    log_progress(options.verbose, f"{options.name}: {result.message}; relative residual {result.residual:.2g}")
    _check_solution(options.name, op, rhs, target_squares, result)
    history[:] = result.history
    found, targets = finished(result.W), learning.targets
    spread = np.sqrt(xa.to_numpy(target_squares) / sums.weight)  # standard deviation of values; not used for labels
    values = None if isinstance(targets, LabelTargets) else np.stack([-spread, spread])
    warn_of_landmark_rounding(features, found.solved.coef, targets, values)
    return found


def _same_points(one: Features, other: Features) -> bool:
    """Return whether two feature maps are landmark features with equal landmarks."""
    if not (isinstance(one, LandmarkFeatures) and isinstance(other, LandmarkFeatures)):
        return False
    return fingerprint(one.points) == fingerprint(other.points)


def _default_solver(learning: LearningPass, rhs: Array, target_squares: Array) -> CG:
    """Return conjugate gradients that stop when the predictions have converged, as with `tol="auto"` in `LSSVC`."""
    labels = isinstance(learning.targets, LabelTargets)
    tol = LINALG_TUNING.label_tol if labels else LINALG_TUNING.value_tol
    return CG(tol=0.0, convergence_test=normal_predictions_converged(rhs, target_squares, tol))


def _check_solution(name: str, op: NormalOperator, rhs: Array, target_squares: Array, result: SolveResult) -> None:
    """Warn if the solver did not converge; raise FloatingPointError if the solution is no better than a constant score."""
    if result.status.converged_or_stopped:
        return
    R = rhs - op @ result.W
    xp = xa.namespace(R)
    objective = normal_objective(result.W, R, rhs, target_squares)
    failed = not bool(xp.all(objective <= target_squares))  # True also if the objective is NaN
    if result.status is Status.PRECISION_EXHAUSTED:
        failed = failed or not bool(xp.all(xp.sum(R * R, axis=0) <= objective))
    if failed:
        raise FloatingPointError(
            f"{name}: conjugate gradients did not converge ({result.message}), because the products are not accurate enough "
            "for this C and kernel: lower C, use dtype='float64', device=CUDA(precision='highest'), or solver='sums'"
        )
    warn_caller(
        f"{name} did not converge: {result.message}; relative residual {result.residual:.2g}. Raise max_iter or tol: "
        "solver=CG(tol=..., max_iter=...).",
        ConvergenceWarning,
    )


@dataclass
class FirstSums:
    """Sums of the first pass over the rows, with k columns for the k outputs of the model."""

    features: Array
    """`K_mn w`, shape (m, 1)."""
    crossed: Array
    """`K_mn W (z - target_mean)`, shape (m, k)."""
    target_mean: Array
    """Weighted mean of the targets, shape (1, k)."""
    centred_squares: Array
    """Weighted sum of the squares of the centred targets, shape (k,)."""
    weight: float


def add_totals(parts: list[list[Array]]) -> list[Array]:
    """Return the sums over all rows, given the sums over several parts of the rows."""
    total = parts[0]
    for part in parts[1:]:
        total = [_add(a, b) for a, b in zip(total, part, strict=True)]
    return total


def first_sums(totals: list[Array], shift: np.ndarray, targets: Targets) -> FirstSums:
    """Convert the sums of `PassRows.totals`, with a column per target, to sums with a column per output of the model."""
    features, crossed, target_sum, squares, sum_of_weights = totals
    weight = float(sum_of_weights[0, 0])
    if not weight > 0:
        raise ValueError("all sample weights are zero: there is nothing to fit")
    binary = isinstance(targets, LabelTargets) and len(targets.close()) == 2

    def outputs(columns: Any) -> Array:
        return xa.like(targets.outputs(xa.to_numpy(columns)), features)

    mean = outputs(target_sum / weight)
    centred = outputs(crossed - features @ (target_sum / weight))
    # The indicators of two classes become one column of -1 and 1, whose squares are one.
    total = weight if binary else outputs(squares)[0]
    offset = outputs(np.zeros((1, int(target_sum.shape[1]))) + shift)
    return FirstSums(features, centred, mean + offset, total - weight * mean[0] ** 2, weight)


class PassRows:
    """The rows of a stream, which is read again in each pass unless the plan caches the rows or their kernel values."""

    def __init__(self, learning: LearningPass, stream: Stream, settings: PassSettings, plan: BatchPlan):
        options, features = settings.options, learning.features
        if not isinstance(features, LandmarkFeatures):
            raise TypeError(f"conjugate gradients need landmark features, got {type(features).__name__}")
        self._learning, self._stream, self._plan, self._name = learning, stream, plan, options.name
        self._products = LandmarkProducts(
            features.kernel,
            learning.format.convert(features.points),
            precision_of(options.device),
            storage=storage_of(options.device),
            block_bytes=plan.block_bytes,
        )
        self.landmarks = self._products.landmarks
        self._stored: list[tuple[TiledRows | FusedColumns, Array]] | None = None
        self._n_rows: int | None = None

    def _read(self) -> Iterator[tuple[TiledRows | FusedColumns, np.ndarray, Array]]:
        """Read the stream once; yield the kernel values, the encoded targets and a column of weights of each batch."""
        learning = self._learning
        reference = xa.empty((0,), self.landmarks.data if xa.is_sparse(self.landmarks) else self.landmarks, np.float64)

        def convert(X: Array) -> Array:
            return learning.format.convert(xa.copied_ahead(X, learning.format.device, learning.format.dtype), self._name)

        seen = 0
        for batch in self._stream.batches(self._plan.batch_rows, prepare=convert):
            seen += len(batch)
            encoded = learning.targets.read(batch.y)
            weights = learning.class_weighted(encoded, batch.weights)
            if weights is None:  # created on the device, because a copy from the CPU would wait for earlier batches
                column = xa.zeros((len(batch), 1), reference) + 1
            else:
                column = xa.like(np.asarray(weights)[:, None], reference)
            rows = self._products.rows(batch.X, store=self._plan.stored == "values")
            yield rows, encoded, column
        self._n_rows = seen if self._n_rows is None else self._n_rows
        if seen != self._n_rows:
            raise ValueError(
                f"{self._stream.name} has {seen} rows in one pass and had {self._n_rows} in the first: conjugate gradients "
                "need the same rows in each pass; use solver='sums', which reads them once"
            )

    def normal_times(self, A: Array, shift: Array) -> Array:
        """Return `K_mn W (K_nm A - shift)` for kernel values `K_nm` and row weights `W`, in one pass over the rows."""
        total = xa.zeros(tuple(A.shape), A)
        stored = self._stored
        for rows, weights in ((rows, weights) for rows, _, weights in self._read()) if stored is None else stored:
            total += rows.normal_times(A, shift, weights)
        return total

    def totals(self, shift: np.ndarray | None = None) -> tuple[list[Array], np.ndarray]:
        """Make the first pass; return its sums and the shift, a number that is subtracted from each target column.

        The sums are `K_mn w`, `K_mn W z`, the weighted sums of `z` and of its squares, and the sum of the weights. If
        `shift` is None, the shift of values is their mean in the first batch, because values may be far larger than their
        deviations from the mean, and the shift of labels is 0. The rows are cached if the plan requests it.
        """
        targets, stored = self._learning.targets, []
        totals: list[Array] = []
        for rows, encoded, weights in self._read():
            values = targets.matrix(encoded)
            if shift is None:
                shift = np.zeros(1) if isinstance(targets, LabelTargets) else values.mean(axis=0)
            Z, xp = xa.like(values - shift, weights), xa.namespace(weights)
            weighted = weights * Z
            both = rows.transposed_times(xp.concat([weighted, weights], axis=1))
            sums = [xp.sum(weighted, axis=0)[None], xp.sum(weighted * Z, axis=0)[None], xp.sum(weights)[None, None]]
            part = [both[:, -1:], both[:, :-1], *sums]
            totals = add_totals([totals, part]) if totals else part
            if self._plan.stored:
                stored.append((rows, weights))
        if shift is None:
            raise ValueError(f"{self._stream.name} has no rows")
        if self._plan.stored:
            self._stored = stored
        return totals, shift


def _add(total: Array, part: Array) -> Array:
    """Return the sum of two matrices; columns that `total` does not have, such as columns of new classes, count as zero."""
    missing = int(part.shape[1]) - int(total.shape[1])
    if missing:
        total = xa.namespace(total).concat([total, xa.zeros((int(total.shape[0]), missing), total)], axis=1)
    return total + part
