"""Training passes over streams: `run_pass` for a full stream, `continue_pass` for more rows.

    stream -> (X, y) -> feature map -> Phi,    targets -> Z,    state.add(Phi, Z, weights),    learner.solve(state) -> model

Time measurement, progress, batches within the memory budget, epochs and checkpoints are implemented here only.

For learners that need random order, the rows of arrays are shuffled in each epoch. Rows of files and iterables are shuffled
within each batch only, so a file that is sorted by class should be shuffled before the fit. Features that fit into half of
the memory budget are computed once for all epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.checkpoint import StateFile, fingerprint
from gramless._core.progress import Progress, log_progress, throughput_record
from gramless._core.targets.streamed import Targets, ValueTargets
from gramless._core.threads import slices
from gramless._core.untrusted_arrays import build_checked_csr
from gramless.callbacks import Callbacks
from gramless.streaming.learners.base import LearnerState
from gramless.streaming.learners.conjugate_gradients import PassRows, first_sums, solve_by_passes, unwhitened_map
from gramless.streaming.learners.gradient import ALL_FEATURES
from gramless.streaming.learners.planning import BatchPlan, PassSettings, PassSize, plan_pass
from gramless.streaming.learners.training_pass import (
    CollectingPass,
    FinishedPass,
    LearningPass,
    OnePassModel,
    RowFormat,
    TrainingPass,
)
from gramless.streaming.sources import RowBlock, rows_of
from gramless.streaming.stream import Stream
from gramless.streaming.tuning import TUNING, StreamingTuning

_CSR_PARTS = ("data", "indices", "indptr", "shape")


FeatureBatch = tuple[Array, np.ndarray, np.ndarray | None, Array | None]
"""Features, encoded targets, weights and the result of `LearnerState.measure`, for a batch of rows or for all rows."""


def run_pass(
    stream: Stream,
    settings: PassSettings,
    targets: Targets,
    *,
    random_state: Any = None,
    callbacks: Callbacks = Callbacks(),  # noqa: B008 (frozen)
    show: Callable[[Any], Any] | None = None,
    previous: OnePassModel | None = None,
) -> LearningPass | FinishedPass:
    """Learn from all rows of a stream: in one pass, in the passes of conjugate gradients, or in the epochs of the learner.

    A `Checkpoint` among the callbacks saves the pass, and a pass with a saved file is resumed. Callback functions receive
    `show(pass)`, such as a fitted estimator, after each epoch, and stop the pass by returning True. Conjugate gradients
    start from the coefficients of the `previous` model if it has the same landmarks.
    """
    _, learner, options = settings

    def report(state: TrainingPass, record: dict[str, Any]) -> bool:
        return callbacks(state if show is None else show(state), record)

    learner.check()
    if callbacks.early_stopping is not None:
        raise ValueError(f"{options.name} has no validation rows: remove EarlyStopping from callback, or use C='loo'")
    collecting, rng = CollectingPass.start(
        stream.first(), targets, learner, options, _seeded(stream, random_state, callbacks)
    )
    plan = _plan(collecting.format, targets, stream, settings)  # raises MemoryError before any work
    log_progress(options.verbose, f"{options.name}: solver {plan.solver}, {plan.reason}; peak {plan.memory}")
    file = _checkpoint_file(stream, settings, targets, random_state, callbacks)
    if plan.solver == "cg":
        unwhitened = settings._replace(feature_map=unwhitened_map(settings.feature_map))
        learning = collecting.choose_features_from(stream, unwhitened, rng)
        rows = PassRows(learning, stream, settings, plan)
        return solve_by_passes(
            learning,
            rows.landmarks,
            first_sums(*rows.totals(), targets),
            rows.normal_times,
            settings,
            plan,
            random_state=rng,
            report=report if callbacks.functions else None,
            checkpoint=file,
            previous=previous,
        )
    saved = None if file is None else _load(file)
    if saved is None:
        learning = collecting.choose_features_from(stream, settings, rng)
    else:
        learning = LearningPass.restore(saved, targets, settings)
        rng = np.random.RandomState(learning.seed)  # unused, because learners with checkpoints do not shuffle
    learning.reason = plan.reason
    skip = learning.rows_seen
    if learner.shuffles:
        one_epoch: Callable[[], Iterator[int]] = _RandomOrder(learning, stream, settings, plan, rng).epoch
    else:
        one_epoch = partial(_in_order, learning, stream, settings, plan.batch_rows, skip)
    epochs = learner.epochs if stream.repeatable else 1
    seconds = 0.0
    with Progress(options.verbose, stream.n_rows if epochs == 1 else epochs, options.name) as progress:
        for epoch in range(1, epochs + 1):
            done, started = skip, time.perf_counter()
            for number, count in enumerate(one_epoch(), start=1):
                done += count
                spent = seconds + time.perf_counter() - started
                if epochs == 1:
                    progress.update(throughput_record(done, skip, stream.n_rows, spent))
                if file is not None and learning.state is not None and number % file.every == 0:
                    _save(file, learning.checkpoint(learning.state), spent)
            if done == 0 or learning.state is None:
                raise ValueError(f"{stream.name} has no rows")
            seconds += time.perf_counter() - started
            record = {"n_iter": epoch, "seconds": seconds, **learning.state.end_pass()}
            learning.history.append(record)
            if epochs > 1:
                progress.update(record)
            if callbacks.functions and report(learning, record):
                break
    learning.model(settings)
    if file is not None:
        file.remove()
    return learning


def continue_pass(
    state: TrainingPass, stream: Stream, settings: PassSettings, tuning: StreamingTuning = TUNING
) -> CollectingPass | LearningPass:
    """Add the rows of a stream to a pass in place; return this pass, or a `LearningPass` if features were chosen now."""
    _, learner, options = settings
    learner.check()
    if isinstance(state, FinishedPass):
        raise ValueError(
            f"this {options.name} is finished and accepts no more rows: fit it again on all rows, with solver='sums' if "
            "more rows will follow"
        )
    stream.first()  # raises ValueError if there are no rows or no targets

    if isinstance(state, LearningPass):
        plan = _plan(state.format, state.targets, stream, settings, only_once=True)
        log_progress(options.verbose, f"{options.name}: {plan.batch_rows} rows at a time; peak {plan.memory}")
        if state.state is not None:
            state.state.attach(state.features, options.budget(state.format.device))
            state.state.reopen()
        with Progress(options.verbose, stream.n_rows, options.name) as progress:
            done, started = 0, time.perf_counter()
            for count in _in_order(state, stream, settings, plan.batch_rows):
                done += count
                progress.update(throughput_record(done, 0, stream.n_rows, time.perf_counter() - started))
        return state
    current: CollectingPass | LearningPass = state
    convert = partial(state.format.convert, name=options.name)
    for batch in stream.batches(tuning.largest_batch, prepare=convert):
        encoded = current.targets.read(batch.y)
        if isinstance(current, LearningPass):  # the features were chosen from earlier rows
            current.add(batch.X, encoded, batch.weights, settings)
            continue
        current.blocks.append((batch.X, encoded, batch.weights))
        current.solved = None
        if current.n_rows >= settings.feature_map.rows_needed(None):
            current = current.learn_stored_rows(settings)
    return current


def _save(file: StateFile, state: dict[str, Any], seconds: float) -> None:
    """Replace the content of a checkpoint file between two batches, so that the sums and their number of rows agree."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        if xa.is_sparse(value):
            flat |= {f"{key}:{part}": np.asarray(getattr(value, part)) for part in _CSR_PARTS}
        else:
            flat[key] = value
    file.save(np.empty((0, 0)), flat, np.random.RandomState(0), [], seconds)


def _load(file: StateFile) -> dict[str, Any] | None:
    """Return the last state that `_save` stored, or None if there is no file."""
    saved = file.load()
    if saved is None:
        return None
    state = {key: value for key, value in saved.state.items() if ":" not in key}
    for key in {key.split(":")[0] for key in saved.state if ":" in key}:
        data, indices, indptr, shape = (saved.state[f"{key}:{part}"] for part in _CSR_PARTS)
        state[key] = build_checked_csr(data, indices, indptr, tuple(int(side) for side in shape))
    return state


def _seeded(stream: Stream, random_state: Any, callbacks: Callbacks) -> Any:
    """Return the random state of a fit; with a checkpoint and without a seed, the seed is a hash of the data."""
    # A fit that is resumed after the process was killed must choose the same landmarks again.
    if random_state is None and callbacks.checkpoint is not None:
        return int(fingerprint(stream.identity())[:8], 16)
    return random_state


def _checkpoint_file(
    stream: Stream, settings: PassSettings, targets: Targets, random_state: Any, callbacks: Callbacks
) -> StateFile | None:
    """Return the checkpoint file of a pass, identified by settings and data, or None without a `Checkpoint` callback."""
    checkpoint, (feature_map, learner, options) = callbacks.checkpoint, settings
    if checkpoint is None:
        return None
    if not learner.merges:
        raise ValueError(f"{options.name} supports a Checkpoint only with method='exact', which stores sums")
    seed = type(random_state).__name__ if isinstance(random_state, np.random.RandomState) else random_state
    identity = [options.name, feature_map, learner, targets.class_weight, options.batch_rows, options.dtype]
    identified = fingerprint("pass", [*identity, options.device, seed], stream.identity())
    return StateFile(checkpoint.path, identified, checkpoint.every)


def _plan(
    format: RowFormat, targets: Targets, stream: Stream, settings: PassSettings, *, only_once: bool = False
) -> BatchPlan:
    size = PassSize(stream.n_rows, format.n_columns, max(1, targets.n_columns), np.dtype(format.dtype), format.device)
    repeatable = stream.repeatable and not only_once
    return plan_pass(settings, size, repeatable=repeatable, in_memory=stream.indexable)


def _in_order(learning: LearningPass, stream: Stream, settings: PassSettings, size: int, skip: int = 0) -> Iterator[int]:
    """Learn from all rows except the first `skip` rows; yield the number of rows of each batch."""
    convert = partial(learning.format.convert, name=settings.options.name)
    for batch in stream.batches(size, skip, convert):
        learning.add(batch.X, learning.targets.read(batch.y), batch.weights, settings)
        yield len(batch)


class _RandomOrder:
    """Epochs over batches in random order; rows that are not in memory are shuffled within each batch."""

    def __init__(
        self, learning: LearningPass, stream: Stream, settings: PassSettings, plan: BatchPlan, rng: np.random.RandomState
    ):
        self.learning, self.stream, self.size, self.rng = learning, stream, plan.batch_rows, rng
        self.convert = partial(learning.format.convert, name=settings.options.name)
        self.state = learning.state or self._begin(settings)
        self.cache = self._all_features() if stream.repeatable and plan.memory.parts.get(ALL_FEATURES) else None

    def epoch(self) -> Iterator[int]:
        """Learn from all rows once; yield the number of rows of each batch."""
        for Phi, encoded, weights, measured in self._batches():
            self.learning.learn(self.state, Phi, encoded, self.learning.class_weighted(encoded, weights), measured)
            yield len(encoded)

    def _begin(self, settings: PassSettings) -> LearnerState:
        """Set and return the initial state of the learner, given the features of a random sample of the rows."""
        learning, stream = self.learning, self.stream
        X, y, weights = stream.sample(settings.learner.rows_measured, self.rng)
        # Reading labels here would change the order in which new classes are numbered.
        first = (learning.targets.read(y), weights) if isinstance(learning.targets, ValueTargets) else None
        if weights is not None and (weights > 0).any():
            X = xa.take_rows(X, np.flatnonzero(weights > 0))
        # The learner needs two similar halves of the sample, so the sample is permuted in case the data is sorted.
        X = self.convert(xa.take_rows(X, self.rng.permutation(int(X.shape[0]))))
        n, known = stream.n_rows or int(X.shape[0]), stream.n_rows is not None
        return learning.begin(learning.features(X) + 0, settings, n, known=known, first=first)

    def _batches(self) -> Iterator[FeatureBatch]:
        """Yield the rows in random order, from the cached features if there are any."""
        if self.cache is None and not self.stream.indexable:
            for batch in self.stream.batches(self.size, prepare=self.convert):
                yield self._features(rows_of((batch.X, batch.y, batch.weights), self.rng.permutation(len(batch))))
            return
        order = self.rng.permutation(int(self.stream.n_rows or 0) if self.cache is None else len(self.cache[1]))
        for part in slices(len(order), self.size):
            idx = order[part]
            yield self._features(self.stream.take(idx)) if self.cache is None else rows_of(self.cache, idx)

    def _features(self, rows: RowBlock) -> FeatureBatch:
        X, y, weights = rows
        Phi = self.learning.features(self.convert(X))
        return Phi, self.learning.targets.read(y), weights, self.state.measure(Phi)

    def _all_features(self) -> FeatureBatch | None:
        """Return the features of all rows as one batch; None if there are no rows."""
        n, at = int(self.stream.n_rows or 0), 0
        all_features: Array | None = None
        all_measured: Array | None = None
        encoded, weights = [], []
        for batch in self.stream.batches(self.size, prepare=self.convert):
            Phi, codes, own_weights, measured = self._features((batch.X, batch.y, batch.weights))
            if all_features is None:
                all_features = xa.empty((n, int(Phi.shape[1])), Phi)
                all_measured = None if measured is None else xa.empty((n,), Phi)
            rows = slice(at, at + len(batch))
            all_features[rows] = Phi
            if all_measured is not None:
                all_measured[rows] = measured
            encoded.append(codes)
            weights.append(np.ones(len(batch)) if own_weights is None else own_weights)
            at = rows.stop
        if all_features is None:
            return None
        return all_features, np.concatenate(encoded), np.concatenate(weights), all_measured
