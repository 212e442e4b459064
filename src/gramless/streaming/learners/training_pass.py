"""State of a training pass. Each phase is a type:

    CollectingPass --choose_features--> LearningPass --finish--> FinishedPass

A `CollectingPass` stores rows until there are enough of them to choose the features, a `LearningPass` learns from every
row, and a `FinishedPass` has only its model. `model(settings)` of each type returns the model, which is computed on request.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.validation import working_dtype
from gramless.approximation.features.base import FeatureMap, Features, SampledRows
from gramless.approximation.features.landmark_map import LandmarkFeatures
from gramless.linalg.least_squares import warn_of_rounding
from gramless.streaming.learners.base import Learner, LearnerState, LeftOutRows
from gramless.streaming.learners.planning import PassOptions, PassSettings
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.reservoir import Reservoir
from gramless.streaming.sources import RowBlock, concatenate, rows_of
from gramless.streaming.stream import Stream
from gramless.streaming.tuning import TUNING


@dataclass
class OnePassModel:
    """Features and coefficients of a solved pass, and the calibration that was fitted to the leave-one-out scores."""

    features: Features
    coef: np.ndarray
    """Coefficients of the kernel functions or of the features, shape (n_features, n_outputs)."""
    intercept: np.ndarray
    C: float
    jitter: float | None = None
    loo_errors: np.ndarray | None = None
    left_out: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """Leave-one-out scores, encoded targets and weights of the sampled rows."""
    sigmoids: np.ndarray | None = None
    temperature: float | None = None
    calibration: tuple[np.ndarray, np.ndarray] | None = None
    """For classifiers, scores of the true classes for `predict_set`, and class codes; for regressors, residuals, weights."""
    solver: str = "sums"
    reason: str = "rows were added to the normal equations"
    """Reason for the choice of the solver."""


@dataclass(frozen=True)
class RowFormat:
    """Number of columns, precision and device of the rows of a pass."""

    n_columns: int
    dtype: str
    device: str

    @classmethod
    def of_rows(cls, X: Array, options: PassOptions) -> RowFormat:
        """Return the row format that results from `options` and from the first rows `X`."""
        return cls(int(X.shape[1]), working_dtype(X, options.dtype).name, xa.resolve_device(options.device, X))

    def convert(self, X: Array, name: str = "the estimator") -> Array:
        """Return rows converted to the precision and device of this format; `name` is the estimator in error messages."""
        if X.shape[1] != self.n_columns:
            raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {self.n_columns} features")
        return xa.to_device(X, self.device, np.dtype(self.dtype))


def rows_to_examine(
    feature_map: FeatureMap, options: PassOptions, format: RowFormat, n_rows: int | None, *, repeatable: bool
) -> int:
    """Return the size of the sample from which the features are chosen."""
    if not repeatable:  # the sample is the first rows, which are stored until the pass reads them
        return feature_map.rows_wanted(n_rows)
    affordable = options.budget(format.device) // (8 * format.n_columns * np.dtype(format.dtype).itemsize)
    return max(feature_map.rows_needed(n_rows), min(TUNING.candidate_rows, affordable))


@dataclass
class AnyPass:
    """Attributes of a pass in every phase."""

    format: RowFormat
    targets: Targets
    seed: int
    history: list[dict[str, Any]] = field(default_factory=list, kw_only=True)
    """One record for each epoch, or for each iteration of conjugate gradients."""
    solved: OnePassModel | None = field(default=None, kw_only=True)
    """The model, or None if rows were added since it was solved."""

    def model(self, settings: PassSettings) -> OnePassModel:
        """Return the model of the rows so far; the model is cached until more rows are added."""
        if self.solved is None:
            self.solved = self._solve(settings)
        return self.solved

    def _solve(self, settings: PassSettings) -> OnePassModel:
        raise ValueError("the pass has no model")

    def finish(self, settings: PassSettings) -> FinishedPass:
        """Return the pass with only its model, without the rows and the state of the learner."""
        solved = self.model(settings)
        model = replace(solved, features=solved.features.for_prediction(), left_out=None)
        return FinishedPass(self.format, self.targets, self.seed, history=self.history, solved=model)


@dataclass
class CollectingPass(AnyPass):
    """A pass that stores rows, because its features are not chosen yet."""

    sample: Reservoir | None = None
    """Uniform sample of the rows for leave-one-out; empty in this phase."""
    blocks: list[RowBlock] = field(default_factory=list)
    """Stored rows with encoded targets."""

    @classmethod
    def start(
        cls, X: Array, targets: Targets, learner: Learner, options: PassOptions, random_state: Any
    ) -> tuple[CollectingPass, np.random.RandomState]:
        """Return a pass without rows, for rows in the format of `X`, and the generator from which the seed was drawn."""
        rng = check_random_state(random_state)
        sample = Reservoir(learner.rows_left_out) if learner.rows_left_out else None
        seed = int(rng.randint(np.iinfo(np.int32).max))
        return cls(RowFormat.of_rows(X, options), targets, seed, sample), rng

    def copy(self, *, own_state: bool = True) -> CollectingPass:
        """Return a copy to which rows can be added."""
        return replace(self, blocks=list(self.blocks))

    @property
    def n_rows(self) -> int:
        """Number of stored rows."""
        return sum(int(X.shape[0]) for X, _, _ in self.blocks)

    def choose_features(
        self, sample: SampledRows, feature_map: FeatureMap, rng: np.random.RandomState, *, encoded: bool = False
    ) -> LearningPass:
        """Choose features from a sample and return a `LearningPass`; `encoded` means that the sample has encoded targets."""
        X, y, weights = _of_positive_weight((sample.X, sample.y, sample.weights))
        if X.shape[0] == 0:
            raise ValueError("all sample weights are zero: there is nothing to fit")
        # Features that do not depend on the rows must be equal in fit and partial_fit, so they are drawn with the seed.
        rng = rng if feature_map.depends_on_rows else np.random.RandomState(self.seed)
        named = None if sample.named is None else (self.format.convert(sample.named[0]), sample.named[1])
        converted = replace(sample, X=self.format.convert(X), y=y, weights=weights, named=named)
        features = feature_map.begin(converted, rng)
        if features.targets is not None and not encoded:
            features.targets = self.targets.read(features.targets)
        return LearningPass(self.format, self.targets, self.seed, features, copy.copy(self.sample))

    def choose_features_from(
        self, stream: Stream, settings: PassSettings, rng: np.random.RandomState, *, encoded: bool = False
    ) -> LearningPass:
        """Choose features from a sample of the stream and return the next phase of the pass."""
        feature_map, _, options = settings
        n = stream.n_rows
        numbers = feature_map.named_rows(n)
        size = rows_to_examine(feature_map, options, self.format, n, repeatable=stream.repeatable)
        rows = stream.sample(size, rng)
        named = None if numbers is None else stream.take(numbers)[:2]
        sample = SampledRows(*rows, n, named, nbytes=options.budget(self.format.device) // 2)
        return self.choose_features(sample, feature_map, rng, encoded=encoded)

    def learn_stored_rows(self, settings: PassSettings) -> LearningPass:
        """Choose features from the stored rows, learn from all stored rows, and return the next phase of the pass."""
        rows = concatenate(self.blocks)
        learning = self.choose_features_from(Stream(*rows), settings, np.random.RandomState(self.seed), encoded=True)
        for batch in Stream(*rows).batches(TUNING.largest_batch):
            learning.add(batch.X, batch.y, batch.weights, settings)
        return learning

    def _solve(self, settings: PassSettings) -> OnePassModel:
        return self.learn_stored_rows(settings).model(settings)


@dataclass
class LearningPass(AnyPass):
    """A pass that learns from every row."""

    features: Features
    sample: Reservoir | None = None
    """Uniform sample of the rows for leave-one-out."""
    state: LearnerState | None = None
    """State of the learner; None before the first batch."""
    rows_seen: int = 0
    """Number of rows from which the pass has learned, over all epochs."""
    reason: str = OnePassModel.reason
    """Reason why the plan chose sums of the normal equations."""
    shift: np.ndarray | None = None
    """Mean of a few target values, which gradient descent subtracts from all target values; None for labels and sums."""

    def copy(self, *, own_state: bool = True) -> LearningPass:
        """Return a copy to which rows can be added; with `own_state=False` the copy shares the learner's state."""
        state = self.state.copy() if own_state and self.state is not None else self.state
        return replace(self, state=state, sample=copy.copy(self.sample))

    def merge(self, other: LearningPass) -> None:
        """Add the rows of another pass with the same features."""
        if self.state is None or other.state is None:
            raise ValueError("a part of the rows is empty")
        self.state.merge(other.state)
        if self.sample is not None and other.sample is not None and other.sample.rows is not None:
            self.sample.add(other.sample.rows, other.sample.keys)
        self.rows_seen += other.rows_seen

    def add(self, X: Array, encoded: np.ndarray, weights: np.ndarray | None, settings: PassSettings) -> None:
        """Learn from converted rows in the given order, or in random order if the learner shuffles."""
        learner, state = settings.learner, self.state
        n, factor = int(X.shape[0]), learner.forgetting_factor
        if learner.shuffles:
            order = np.random.RandomState([self.seed, self.rows_seen]).permutation(n)
            if state is None:
                measured = np.random.RandomState(self.seed).permutation(n)[: learner.rows_measured]
                Phi = self.features(xa.take_rows(X, measured)) + 0
                state = self.begin(Phi, settings, self.rows_seen + n, known=False, first=(encoded, weights))
            X, encoded, weights = rows_of((X, encoded, weights), order)
        weights = self.class_weighted(encoded, weights)
        if factor < 1:
            recent = factor ** np.arange(n - 1, -1, -1.0)
            weights = recent if weights is None else weights * recent
        Phi = self.features(X)
        if state is None:
            state = self.begin(Phi, settings, n, known=False)
        if factor < 1:
            state.decay(factor**n)
        if self.sample is not None:
            if factor < 1 and self.sample.rows is not None:
                kept_X, kept_y, kept_weights = self.sample.rows
                self.sample.rows = (kept_X, kept_y, kept_weights * factor**n)
            # The key of a row depends on its position alone, so the sample does not depend on the batches.
            keys = np.random.Generator(np.random.PCG64(self.seed).advance(self.rows_seen)).random(n)
            host = X if xa.is_sparse(X) else xa.to_numpy(X)
            self.sample.add((host, encoded, np.ones(n) if weights is None else weights), keys)
        self.learn(state, Phi, encoded, weights, state.measure(Phi))

    def begin(
        self,
        Phi: Array,
        settings: PassSettings,
        n_rows: int,
        *,
        known: bool,
        first: tuple[np.ndarray, np.ndarray | None] | None = None,
    ) -> LearnerState:
        """Set and return the state of the learner before the first row, given the features `Phi` of a few rows.

        `first` are encoded targets and weights of a few rows, from which the shift of target values is computed.
        """
        own = None
        if first is not None and isinstance(self.targets, ValueTargets):
            # Gradient steps approach a large mean slowly, and float32 loses the deviations from it, so it is subtracted.
            values, weights = first
            self.shift = np.average(values, axis=0, weights=weights if weights is not None and weights.any() else None)
        if self.features.targets is not None:
            own = xa.like(self._shifted(self.features.targets), Phi)
        k, budget = self.targets.n_columns, settings.options.budget(self.format.device)
        self.state = settings.learner.begin(
            self.features, Phi, k, n_rows=n_rows, known=known, budget=budget, own_targets=own
        )
        return self.state

    def _shifted(self, encoded: np.ndarray) -> np.ndarray:
        """Return the target columns for the learner: indicators of the classes, or values minus the shift."""
        columns = self.targets.matrix(encoded)
        return columns if self.shift is None else columns - self.shift

    def class_weighted(self, encoded: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
        """Return row weights multiplied by class weights; None if all weights are one."""
        factors = self.targets.weights(encoded)
        return weights if factors is None else factors if weights is None else weights * factors

    def learn(
        self, state: LearnerState, Phi: Array, encoded: np.ndarray, weights: np.ndarray | None, measured: Array | None
    ) -> None:
        """Learn from a batch of features."""
        if self.targets.n_columns > state.n_targets:
            state.widen(self.targets.n_columns)
        # Sums are in float64: the deviations of values from a large mean would be lost in float32.
        Z: Any = self._shifted(encoded).astype(np.float64 if isinstance(state, RidgeSums) else xa.numpy_dtype(Phi))
        Z = xa.to_device(Z, xa.device_of(Phi)) if xa.is_torch(Phi) else Z
        w = None if weights is None or (weights == 1).all() else xa.like(weights, Phi)
        state.add(Phi, Z, w, measured)
        self.rows_seen += len(encoded)
        self.solved = None

    def _solve(self, settings: PassSettings) -> OnePassModel:
        left_out = scores = None
        if self.sample is not None and self.sample.rows is not None:
            X, encoded, weights = _of_positive_weight(self.sample.rows)

            def compute(part: slice) -> tuple[Array, np.ndarray, np.ndarray]:
                rows = self.format.convert(X[part])
                return self.features(rows), self.targets.matrix(encoded[part]), weights[part]

            left_out = LeftOutRows(len(encoded), compute)
        found = settings.learner.solve(self.state, self.features, left_out)
        if found.loo_scores is not None:
            scores = (self.targets.outputs(found.loo_scores), encoded, weights)
        coef = self.features.coefficients(self.targets.outputs(found.A)).astype(self.format.dtype)
        if left_out is not None or isinstance(self.targets, LabelTargets):
            warn_of_landmark_rounding(self.features, coef, self.targets, None if left_out is None else encoded)
        # The intercept of a regressor contains the mean of the targets. Adding a large mean in float32 would lose the digits
        # of the other terms.
        values = isinstance(self.targets, ValueTargets)
        intercept = self.targets.outputs(found.bias).astype(np.float64 if values else self.format.dtype)
        intercept = intercept if self.shift is None else intercept + self.shift
        return OnePassModel(
            self.features, coef, intercept, found.C, found.jitter, found.loo_errors, scores, reason=self.reason
        )

    def checkpoint(self, state: LearnerState) -> dict[str, Any]:
        """Return arrays, numbers and strings from which `restore` builds the same pass."""
        parts = {"run": state.__getstate__(), "features": self.features.state(), "targets": self.targets.state()}
        saved = {f"{name}_{key}": value for name, part in parts.items() for key, value in part.items()}
        if self.sample is not None and self.sample.rows is not None:
            names = ("sample_keys", "sample_X", "sample_y", "sample_w")
            saved |= dict(zip(names, (self.sample.keys, *self.sample.rows), strict=True))
        return saved | {
            "seen": self.rows_seen,
            "seed": self.seed,
            "dtype": self.format.dtype,
            "columns": self.format.n_columns,
        }

    @classmethod
    def restore(cls, saved: dict[str, Any], targets: Targets, settings: PassSettings) -> LearningPass:
        """Return the pass that `checkpoint` saved."""

        def part(prefix: str) -> dict[str, Any]:
            return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}

        feature_map, learner, options = settings
        targets.restore(part("targets_"))
        sample = Reservoir(learner.rows_left_out) if learner.rows_left_out else None
        if sample is not None and "sample_keys" in saved:
            sample.keys = saved["sample_keys"]
            sample.rows = (saved["sample_X"], saved["sample_y"], saved["sample_w"])
        format = RowFormat(int(saved["columns"]), saved["dtype"], xa.resolve_device(options.device, None))
        features, state = feature_map.restore(part("features_")), RidgeSums.from_state(part("run_"))
        return cls(format, targets, int(saved["seed"]), features, sample, state, int(saved["seen"]))


@dataclass
class FinishedPass(AnyPass):
    """A pass that has only its model and accepts no more rows."""

    solved: OnePassModel = field(kw_only=True)


def _of_positive_weight(rows: RowBlock) -> RowBlock:
    """Return the rows of positive weight."""
    weights = rows[2]
    return rows if weights is None or (weights > 0).all() else rows_of(rows, np.flatnonzero(weights > 0))


def warn_of_landmark_rounding(features: Features, coef: Array, targets: Targets, encoded: np.ndarray | None) -> None:
    """Warn if rounding the coefficients changes scores too much relative to targets (`encoded`, or one row per class)."""
    if isinstance(features, LandmarkFeatures):
        rows = np.arange(targets.n_columns) if encoded is None else encoded
        warn_of_rounding(features.kernel, features.points, xa.to_numpy(coef), targets.outputs(targets.matrix(rows)))


TrainingPass = CollectingPass | LearningPass | FinishedPass


class PassOfVersion01:
    """Training pass as version 0.1.0 stored it: the phase is a string, and attributes of other phases are None."""

    def convert(self) -> TrainingPass:
        """Return the pass as an object of the class of its phase."""
        old: dict[str, Any] = vars(self)
        format = RowFormat(int(old["n_columns"]), old["dtype"], old["device"])
        common = {"format": format, "targets": old["targets"], "seed": int(old["seed"]), "history": old["history"]}
        if old["phase"] == "finished":
            return FinishedPass(solved=old["solved"], **common)
        if old["phase"] == "holding":
            return CollectingPass(sample=old["sample"], blocks=old["held"], solved=old["solved"], **common)
        learned = {name: old[name] for name in ("features", "sample", "rows_seen", "solved")}
        return LearningPass(state=old["run"], **learned, **common)
