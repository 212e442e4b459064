"""A feature map and a learner over a stream: what `solve` is to linear systems, `run_pass` is to rows that pass by.

    stream -> (X, y) -> feature_map -> Phi,  targets -> Z,     run.add(Phi, Z, weights),     learner.solve(run) -> model

The clock, progress, batches within the memory budget, epochs, checkpoints and resuming exist here, once. A `Pass` is where a
pass stands. It is in one of three phases: `HOLDING` rows until the map has enough of them to begin, `LEARNING` from each row
as it comes, or `FINISHED`, with nothing left but its model. `run_pass` makes a new one from a whole stream, `more_rows` goes
on with one; the model is solved when it is asked for.

Rows that are wanted in random order are shuffled for each epoch where they are in memory, and within the block that is read
where they are not, so a file sorted by class should be shuffled before. Features that fit half of the memory budget are
computed once for all epochs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.progress import Progress, log_progress, throughput_record
from gramless._core.targets.streamed import Targets, ValueTargets
from gramless._core.validation import check_positive, working_dtype
from gramless.approximation.features import FeatureMap, Features
from gramless.callbacks import Callbacks
from gramless.streaming import Stream
from gramless.streaming.learners.base import Fit, Learner, Run, Sample
from gramless.streaming.learners.steps import ALL_FEATURES
from gramless.streaming.pass_checkpoint import PassCheckpoint
from gramless.streaming.reservoir import Reservoir
from gramless.streaming.sources import Rows, concatenate

HOLDING, LEARNING, FINISHED = "holding", "learning", "finished"

# Rows from which features are chosen and gamma="scale" is computed, where rows can be read again.
CANDIDATES = 50_000
MOST_BATCH_ROWS = 4096
_FEWEST_BATCH_ROWS = 64


@dataclass(frozen=True)
class PassOptions:
    """How a pass is made: nothing here changes the model but for rounding, and the order of random steps.

    Parameters
    ----------
    name : str
        What progress and errors call the estimator.
    batch_rows : int or None
        Rows read at a time; None takes 4096, or fewer where the memory budget asks for it.
    dtype : {"float32", "float64"} or None
        Precision of the computation; None follows the data.
    device : str or None
        Where to compute; None follows the data.
    memory_budget : str, int, float or None
        Bound on the peak of what a fit allocates; None is 70 % of what is free.
    verbose : int
        1 shows progress.

    See Also
    --------
    plan_pass : what options mean for given sizes.

    Examples
    --------
    >>> from gramless.streaming.learners import PassOptions
    >>> PassOptions(memory_budget="2GB").budget("cpu")
    2000000000
    """

    name: str = "a pass"
    batch_rows: int | None = None
    dtype: Any = None
    device: str | None = None
    memory_budget: Any = None
    verbose: int = 0

    @classmethod
    def of(cls, estimator: Any, batch_rows: int | None) -> PassOptions:
        """The options that an estimator's `dtype`, `device`, `memory_budget` and `verbose` mean.

        Parameters
        ----------
        estimator : estimator
            Has these parameters.
        batch_rows : int or None
            Rows read at a time.

        Returns
        -------
        PassOptions
            Under the name of the estimator's class.
        """
        e = estimator
        return cls(type(e).__name__, batch_rows, e.dtype, e.device, e.memory_budget, e.verbose)

    def budget(self, device: str) -> int:
        """Bytes that the fit may take.

        Parameters
        ----------
        device : str
            Whose memory counts.

        Returns
        -------
        int
            What `memory_budget` means there now.
        """
        return parse_budget(self.memory_budget, device)


@dataclass
class PassPlan:
    """Rows in a batch, and the peak memory part by part.

    Parameters
    ----------
    batch_rows : int
        Rows read at a time.
    memory : MemoryEstimate
        Bytes by name.

    See Also
    --------
    plan_pass : makes one.

    Examples
    --------
    >>> from gramless._core.memory import MemoryEstimate
    >>> from gramless.streaming.learners import PassPlan
    >>> PassPlan(64, MemoryEstimate({"batches": 1000}, "cpu")).memory.nbytes
    1000
    """

    batch_rows: int
    memory: MemoryEstimate


def plan_pass(
    feature_map: FeatureMap,
    learner: Learner,
    options: PassOptions,
    *,
    n_rows: int | None,
    n_columns: int,
    n_targets: int,
    dtype: Any,
    device: str,
) -> PassPlan:
    """How a pass is going to be made, or a `MemoryError` where it does not fit.

    Parameters
    ----------
    feature_map : FeatureMap
        Where features come from.
    learner : Learner
        What becomes of them.
    options : PassOptions
        Batches and the memory budget.
    n_rows : int or None
        Rows of the data; None where nobody knows.
    n_columns, n_targets : int
        Columns of the data and of the targets.
    dtype : dtype
        Precision of the computation.
    device : str
        Where it is made.

    Returns
    -------
    PassPlan
        Rows in a batch and bytes by name.

    See Also
    --------
    run_pass : makes the pass.

    Examples
    --------
    >>> from gramless.approximation.features import FourierMap
    >>> from gramless.streaming.learners import PassOptions, Sums, plan_pass
    >>> sizes = dict(n_rows=10_000, n_columns=20, n_targets=1, dtype="float32", device="cpu")
    >>> plan_pass(FourierMap(), Sums(), PassOptions(memory_budget="1GB"), **sizes).batch_rows
    4096
    """
    p, itemsize = feature_map.n_features(n_rows), np.dtype(dtype).itemsize
    memory = MemoryEstimate({**learner.memory(p, itemsize, n_rows), "landmarks": p * n_columns * (itemsize + 8)}, device)
    if learner.rows_left_out:
        memory.parts["rows left out"] = learner.memory_left_out(p, n_columns, n_targets, itemsize, n_rows)
    per_row = (2 * p + 4 * n_columns + 4 * n_targets) * itemsize + 3 * n_columns * 8
    budget = options.budget(device)
    left = (budget - memory.nbytes) // per_row
    if options.batch_rows is not None:
        rows = int(check_positive("batch_size", options.batch_rows, integer=True))
    else:
        rows = int(min(MOST_BATCH_ROWS, max(left, _FEWEST_BATCH_ROWS)))
    memory.parts["batches"] = rows * per_row
    memory.check(budget, "use fewer landmarks or components, a smaller batch_size, or raise memory_budget")
    memory.parts |= learner.optional_memory(feature_map, p, itemsize, n_rows, budget, budget - memory.nbytes)
    if memory.nbytes > budget and options.batch_rows is None:
        rows = int(max(_FEWEST_BATCH_ROWS, rows - -(-(memory.nbytes - budget) // per_row)))
        memory.parts["batches"] = rows * per_row
    memory.check(budget, "use fewer landmarks or components, a smaller batch_size, or raise memory_budget")
    return PassPlan(rows, memory)


@dataclass
class Model:
    """What a pass has come to.

    Parameters
    ----------
    features : Features
        What maps rows.
    coef : ndarray of shape (n_features, n_outputs)
        Coefficients of the model: of kernel functions, or of features.
    intercept : ndarray of shape (n_outputs,)
        The bias of each output.
    C : float
        The regularisation used.
    jitter : float or None, default=None
        What was added to a matrix before it could be factored.
    loo_errors : ndarray or None, default=None
        Leave-one-out squared error at each C tried.
    left_out : (scores, encoded targets, weights) or None, default=None
        Of the rows that were left out one by one.
    sigmoids : ndarray or None, default=None
        Kept here by whoever fits some to `left_out`.
    temperature : float or None, default=None
        The same.
    calibration : (scores, codes) or None, default=None
        The same: scores of the true classes in prediction sets, and those classes.

    See Also
    --------
    Pass.model : makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.approximation.features import LandmarkFeatures
    >>> from gramless.kernels import RBF
    >>> from gramless.streaming.learners import Model
    >>> Model(LandmarkFeatures(RBF(1.0), np.zeros((1, 2)), "cpu"), np.ones((1, 1)), np.zeros(1), C=1.0).C
    1.0
    """

    features: Features
    coef: np.ndarray
    intercept: np.ndarray
    C: float
    jitter: float | None = None
    loo_errors: np.ndarray | None = None
    left_out: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    sigmoids: np.ndarray | None = None
    temperature: float | None = None
    calibration: tuple[np.ndarray, np.ndarray] | None = None


@dataclass
class Pass:
    """Where a pass stands.

    Parameters
    ----------
    targets : LabelTargets or ValueTargets
        How targets become columns.
    seed : int
        Decides all that is drawn while rows pass by.
    phase : {"holding", "learning", "finished"}
        What happens to the next row.
    n_columns : int
        Columns of the data.
    dtype : str
        Precision of the computation; empty before the first rows.
    device : str
        Where it is made.
    rows_seen : int
        Rows learnt from, in all epochs.
    held : list of (X, encoded targets, weights)
        Rows that wait for the map to begin.
    features : Features or None
        What the feature map has made of the first rows.
    run : Run or None
        What the learner has made of the rows.
    sample : Reservoir or None
        The rows to leave out one by one.
    history : list of dict
        One record for each pass over all rows.
    solved : Model or None
        None where rows have come since.

    See Also
    --------
    run_pass : makes one from a whole stream.
    more_rows : goes on with one.

    Examples
    --------
    >>> from gramless.streaming.learners import Pass, Sums
    >>> from gramless._core.targets.streamed import ValueTargets
    >>> Pass.fresh(ValueTargets(), Sums(), random_state=0)[0].phase
    'holding'
    """

    targets: Targets
    seed: int
    phase: str = HOLDING
    n_columns: int = 0
    dtype: str = ""
    device: str = "cpu"
    rows_seen: int = 0
    held: list[Rows] = field(default_factory=list)
    features: Features | None = None
    run: Run | None = None
    sample: Reservoir | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    solved: Model | None = None

    @classmethod
    def fresh(cls, targets: Targets, learner: Learner, random_state: Any) -> tuple[Pass, np.random.RandomState]:
        """A pass that has seen nothing, and the generator that goes on after its seed.

        Parameters
        ----------
        targets : LabelTargets or ValueTargets
            How targets become columns.
        learner : Learner
            Says how many rows to keep for leave-one-out.
        random_state : int, RandomState or None
            Draws the seed.

        Returns
        -------
        pass : Pass
            In its first phase.
        rng : RandomState
            The generator.
        """
        rng = check_random_state(random_state)
        sample = Reservoir(learner.rows_left_out) if learner.rows_left_out else None
        return cls(targets, int(rng.randint(np.iinfo(np.int32).max)), sample=sample), rng

    def copy(self, *, own_sums: bool = True) -> Pass:
        """Another pass that goes on from here.

        Parameters
        ----------
        own_sums : bool, default=True
            Whether this one stays as it is whatever happens to the other.

        Returns
        -------
        Pass
            The other.
        """
        run = self.run.copy() if own_sums and self.run is not None else self.run
        return replace(self, run=run, held=list(self.held), sample=copy.copy(self.sample))

    @classmethod
    def going_on(cls, before: Pass | None, targets: Targets, learner: Learner, random_state: Any, *, own_sums: bool) -> Pass:
        """The pass that `partial_fit` adds rows to: a fresh one in the first call, else a copy of the one before.

        Parameters
        ----------
        before : Pass or None
            Where the last call ended.
        targets : LabelTargets or ValueTargets
            How targets become columns.
        learner : Learner
            Says how many rows to keep for leave-one-out.
        random_state : int, RandomState or None
            Draws the seed of a fresh pass.
        own_sums : bool
            Whether `before` stays as it is whatever happens.

        Returns
        -------
        Pass
            To be handed to `more_rows`.
        """
        if before is None:
            return cls.fresh(targets, learner, random_state)[0]
        return replace(before.copy(own_sums=own_sums), targets=targets)

    def set_up(self, X: Array, options: PassOptions) -> None:
        """What the first rows decide: columns, dtype and device.

        Parameters
        ----------
        X : array of shape (n, d)
            The first rows.
        options : PassOptions
            May ask for a dtype and a device.
        """
        if not self.dtype:
            self.n_columns = int(X.shape[1])
            self.dtype = working_dtype(X, options.dtype).name
            self.device = xa.resolve_device(options.device, X)

    def prepare(self, X: Array, name: str = "the estimator") -> Array:
        """Rows where and as they are computed with.

        Parameters
        ----------
        X : array of shape (n, n_columns)
            Rows of the data.
        name : str, default="the estimator"
            What an error calls whoever asks.

        Returns
        -------
        array of shape (n, n_columns)
            On the device and in the dtype of the pass.
        """
        if X.shape[1] != self.n_columns:
            raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {self.n_columns} features")
        return xa.to_device(X, self.device, np.dtype(self.dtype))

    # The features.

    def rows_to_see(self, feature_map: FeatureMap, options: PassOptions, n_rows: int | None, repeatable: bool) -> int:
        """How many rows of a sample `begin` is going to be shown.

        Parameters
        ----------
        feature_map : FeatureMap
            Says how many it needs and wants.
        options : PassOptions
            Has the memory budget.
        n_rows : int or None
            Rows of the data; None where nobody knows.
        repeatable : bool
            Whether rows can be read again.

        Returns
        -------
        int
            As many as memory allows where rows can be read again; else what the map is content with.
        """
        if not repeatable:  # its head is held until it is read again
            return feature_map.rows_wanted(n_rows)
        affordable = options.budget(self.device) // (8 * self.n_columns * np.dtype(self.dtype).itemsize)
        return max(feature_map.rows_needed(n_rows), min(CANDIDATES, affordable))

    def begin(
        self,
        rows: Rows,
        feature_map: FeatureMap,
        rng: np.random.RandomState,
        n_rows: int | None,
        named: Rows | None = None,
        *,
        encoded: bool = False,
        nbytes: int | None = None,
    ) -> None:
        """Choose the features from a sample of the rows, and from those that the user named.

        Parameters
        ----------
        rows : (X, y, weights)
            The sample.
        feature_map : FeatureMap
            Chooses.
        rng : RandomState
            Draws what is random.
        n_rows : int or None
            Rows of the data; None where nobody knows.
        named : (X, y, weights), optional
            The rows that the user named.
        encoded : bool, default=False
            Whether `y` are columns' codes already.
        nbytes : int, optional
            What choosing may hold beside the rows.
        """
        X, y, weights = rows
        if weights is not None and not (weights > 0).all():
            kept = np.flatnonzero(weights > 0)
            X, y, weights = xa.take_rows(X, kept), xa.take_rows(y, kept), weights[kept]
        if X.shape[0] == 0:
            raise ValueError("all sample weights are zero: there is nothing to fit")
        # Features that do not look at the rows are the same in fit and in partial_fit, however many rows either sees.
        rng = rng if feature_map.looks_at_rows else np.random.RandomState(self.seed)
        own = None if named is None else (self.prepare(named[0]), named[1])
        self.features = feature_map.begin(self.prepare(X), y, rng, n_rows=n_rows, weights=weights, named=own, nbytes=nbytes)
        if self.features.targets is not None and not encoded:
            self.features.targets = self.targets.read(self.features.targets)
        self.phase = LEARNING

    def _begin_from(
        self, stream: Stream, feature_map: FeatureMap, rng: np.random.RandomState, options: PassOptions, encoded: bool
    ) -> None:
        self.set_up(stream.first(), options)
        n = stream.n_rows
        numbers = feature_map.named_rows(n)
        rows = stream.sample(self.rows_to_see(feature_map, options, n, stream.repeatable), rng)
        named = None if numbers is None else stream.take(numbers)
        half = options.budget(self.device) // 2
        self.begin(rows, feature_map, rng, n, named, encoded=encoded, nbytes=half)

    # The rows.

    def add(self, X: Array, encoded: np.ndarray, weights: np.ndarray | None, learner: Learner, budget: int = 0) -> None:
        """Learn from rows in the order in which they come (which a learner that shuffles changes).

        Parameters
        ----------
        X : array of shape (n, n_columns)
            Prepared rows.
        encoded : ndarray of shape (n,) or (n, k)
            Their targets, as `targets.read` returns them.
        weights : ndarray of shape (n,) or None
            Their weights.
        learner : Learner
            Learns.
        budget : int, default=0
            Bytes that the whole fit may take.
        """
        assert self.features is not None
        n, factor = int(X.shape[0]), learner.forgetting_factor
        if learner.shuffles:
            order = np.random.RandomState([self.seed, self.rows_seen]).permutation(n)
            if self.run is None:
                measured = np.random.RandomState(self.seed).permutation(n)[: learner.rows_measured]
                Phi = self.features(xa.take_rows(X, measured)) + 0
                self._begin_run(Phi, learner, budget, self.rows_seen + n, known=False)
            X, encoded = xa.take_rows(X, order), encoded[order]
            weights = None if weights is None else weights[order]
        weights = self._weighted(encoded, weights)
        if factor < 1:
            recent = factor ** np.arange(n - 1, -1, -1.0)
            weights = recent if weights is None else weights * recent
        Phi = self.features(X)
        if self.run is None:
            self._begin_run(Phi, learner, budget, n, known=False)
        assert self.run is not None
        if factor < 1:
            self.run.decay(factor**n)
        if self.sample is not None:
            if factor < 1 and self.sample.rows is not None:
                kept_X, kept_y, kept_weights = self.sample.rows
                self.sample.rows = (kept_X, kept_y, kept_weights * factor**n)
            # The key of a row comes from its number alone, however the rows are cut into batches.
            keys = np.random.Generator(np.random.PCG64(self.seed).advance(self.rows_seen)).random(n)
            host = X if xa.is_sparse(X) else xa.to_numpy(X)
            self.sample.add((host, encoded, np.ones(n) if weights is None else weights), keys)
        self._learn(Phi, encoded, weights, self.run.measure(Phi))

    def _weighted(self, encoded: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
        factors = self.targets.weights(encoded)
        return weights if factors is None else factors if weights is None else weights * factors

    def _begin_run(self, Phi: Array, learner: Learner, budget: int, n_rows: int, *, known: bool) -> None:
        assert self.features is not None
        own, k = None, self.targets.n_columns
        if self.features.targets is not None:
            own = xa.like(self.targets.matrix(self.features.targets), Phi)
        self.run = learner.begin(self.features, Phi, k, n_rows=n_rows, known=known, budget=budget, own_targets=own)

    def _learn(self, Phi: Array, encoded: np.ndarray, weights: np.ndarray | None, measured: Array | None) -> None:
        assert self.run is not None
        if self.targets.n_columns > self.run.n_targets:
            self.run.widen(self.targets.n_columns)
        Z = xa.like(self.targets.matrix(encoded), Phi)
        w = None if weights is None or (weights == 1).all() else xa.like(weights, Phi)
        self.run.add(Phi, Z, w, measured)
        self.rows_seen += len(encoded)
        self.solved = None

    def _release(self, feature_map: FeatureMap, learner: Learner, options: PassOptions) -> None:
        """Begin with the rows that are held, and learn from them."""
        rows = concatenate(self.held)
        self._begin_from(Stream(*rows), feature_map, np.random.RandomState(self.seed), options, encoded=True)
        self.held = []
        for batch in Stream(*rows).batches(MOST_BATCH_ROWS):
            self.add(batch.X, batch.y, batch.weights, learner, options.budget(self.device))

    def merge(self, other: Pass) -> Pass:
        """Add what a pass over other rows, with the same features, has learnt.

        Parameters
        ----------
        other : Pass
            Stays as it is.

        Returns
        -------
        Pass
            This one.
        """
        assert self.run is not None
        self.run.merge(other.run)
        self.rows_seen += other.rows_seen
        if self.sample is not None and other.sample is not None and other.sample.rows is not None:
            self.sample.add(other.sample.rows, other.sample.keys)
        self.solved = None
        return self

    # The model.

    def model(self, feature_map: FeatureMap, learner: Learner, options: PassOptions) -> Model:
        """The model of the rows so far, solved where rows have come since; rows that are held stay held.

        Parameters
        ----------
        feature_map : FeatureMap
            Begins with rows that are held.
        learner : Learner
            Solves.
        options : PassOptions
            Of the pass.

        Returns
        -------
        Model
            Kept until more rows come.
        """
        if self.solved is None:
            now = self.settled(feature_map, learner, options)
            self.solved = now._solve(learner)
        return self.solved

    def settled(self, feature_map: FeatureMap, learner: Learner, options: PassOptions) -> Pass:
        """This pass, or where rows are still held a copy that has learnt from them.

        Parameters
        ----------
        feature_map : FeatureMap
            Begins with rows that are held.
        learner : Learner
            Learns from them.
        options : PassOptions
            Of the pass.

        Returns
        -------
        Pass
            That holds no rows back.
        """
        if self.phase != HOLDING:
            return self
        now = self.copy()
        now._release(feature_map, learner, options)
        return now

    def _solve(self, learner: Learner) -> Model:
        assert self.features is not None
        assert self.run is not None
        rows = None if self.sample is None else self.sample.rows
        left_out = None
        if rows is not None:
            X, encoded, weights = rows
            if not (weights > 0).all():
                kept = np.flatnonzero(weights > 0)
                X, encoded, weights = xa.take_rows(X, kept), encoded[kept], weights[kept]

        def some(part: slice) -> Sample:
            assert self.features is not None
            return self.features(self.prepare(X[part])), self.targets.matrix(encoded[part]), weights[part]

        fit: Fit = learner.solve(self.run, self.features, None if rows is None else (len(encoded), some))
        if fit.loo_scores is not None:
            left_out = (self.targets.outputs(fit.loo_scores), encoded, weights)
        coef = self.features.coefficients(self.targets.outputs(fit.A)).astype(self.dtype)
        # The bias of a regressor holds the mean of the targets: where that is large, float32 has no digits for the rest.
        values = isinstance(self.targets, ValueTargets)
        intercept = self.targets.outputs(fit.bias).astype(np.float64 if values else self.dtype)
        return Model(self.features, coef, intercept, fit.C, fit.jitter, fit.loo_errors, left_out)

    def finish(self, feature_map: FeatureMap, learner: Learner, options: PassOptions) -> Pass:
        """A pass that has its model and takes no more rows.

        Parameters
        ----------
        feature_map : FeatureMap
            Begins with rows that are held.
        learner : Learner
            Solves.
        options : PassOptions
            Of the pass.

        Returns
        -------
        Pass
            Without what only learning needs.
        """
        model = self.model(feature_map, learner, options)
        features = model.features.for_prediction()
        kept = replace(model, features=features, left_out=None)
        return replace(self, phase=FINISHED, features=features, solved=kept, held=[], run=None, sample=None)

    # A file.

    def state(self) -> dict[str, Any]:
        """Where a pass that is learning stands.

        Returns
        -------
        dict of str to object
            Arrays, numbers and text.
        """
        assert self.features is not None
        assert self.run is not None
        parts = {"run": self.run.state(), "features": self.features.state(), "targets": self.targets.state()}
        state = {f"{name}_{key}": value for name, part in parts.items() for key, value in part.items()}
        if self.sample is not None and self.sample.rows is not None:
            names = ("sample_keys", "sample_X", "sample_y", "sample_w")
            state |= dict(zip(names, (self.sample.keys, *self.sample.rows), strict=True))
        return state | {"seen": self.rows_seen, "seed": self.seed, "dtype": self.dtype, "columns": self.n_columns}

    def restore(self, state: dict[str, Any], feature_map: FeatureMap, learner: Learner, options: PassOptions) -> None:
        """Go to where a state was taken.

        Parameters
        ----------
        state : dict
            What `state` returned.
        feature_map : FeatureMap
            Restores the features.
        learner : Learner
            Restores the run.
        options : PassOptions
            Of the pass.
        """

        def part(prefix: str) -> dict[str, Any]:
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self.dtype, self.n_columns = state["dtype"], int(state["columns"])
        self.device = xa.resolve_device(options.device, None)
        self.targets.restore(part("targets_"))
        self.features, self.run, self.phase = feature_map.restore(part("features_")), learner.restore(part("run_")), LEARNING
        if self.sample is not None and "sample_keys" in state:
            self.sample.keys = state["sample_keys"]
            self.sample.rows = (state["sample_X"], state["sample_y"], state["sample_w"])
        self.rows_seen, self.seed = int(state["seen"]), int(state["seed"])


def run_pass(
    stream: Stream,
    feature_map: FeatureMap,
    learner: Learner,
    targets: Targets,
    options: PassOptions = PassOptions(),
    *,
    random_state: Any = None,
    callbacks: Callbacks = Callbacks(),  # noqa: B008 (frozen)
    show: Callable[[Pass], Any] | None = None,
) -> Pass:
    """Learn from a whole stream: one pass, or as many epochs as the learner makes over rows that can be read again.

    Parameters
    ----------
    stream : Stream
        The rows.
    feature_map : FeatureMap
        Where features come from.
    learner : Learner
        What becomes of them.
    targets : LabelTargets or ValueTargets
        How targets become columns.
    options : PassOptions, optional
        Batches, precision, device, memory, progress.
    random_state : int, RandomState or None, default=None
        Draws what is random.
    callbacks : Callbacks, optional
        A `Checkpoint` says where the pass saves how it stands, and from where it goes on where it finds a file of its own;
        functions are called after each epoch, and a true answer ends the pass. Rows that pass by once cannot be held out:
        an `EarlyStopping` is refused.
    show : callable(state), optional
        Makes of the pass what functions are called with, such as a fitted estimator.

    Returns
    -------
    Pass
        Where it ended, with its model.

    See Also
    --------
    more_rows : goes on with a pass.
    gramless.linalg.solvers.solve : the same for linear systems.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import Stream
    >>> from gramless.approximation.features import LandmarkMap
    >>> from gramless.streaming.learners import Sums, run_pass
    >>> from gramless._core.targets.streamed import ValueTargets
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> parts = LandmarkMap(n_landmarks=20), Sums(C=1e4)
    >>> done = run_pass(Stream(X, np.sin(X[:, 0])), *parts, ValueTargets(), random_state=0)
    >>> done.rows_seen, done.phase
    (200, 'learning')
    """
    learner.check()
    checkpoint = callbacks.checkpoint
    if callbacks.early_stopping is not None:
        raise ValueError(f"{options.name} holds out no rows: leave EarlyStopping out of callback, or use C='loo'")
    state, rng = Pass.fresh(targets, learner, random_state)
    file = None
    if checkpoint is not None:
        if not learner.merges:
            raise ValueError(f"a Checkpoint goes with sums (method='exact'), not with steps, in {options.name}")
        settings = [options.name, feature_map, learner, targets.class_weight, options.batch_rows, options.dtype]
        seed = type(random_state).__name__ if isinstance(random_state, np.random.RandomState) else random_state
        file = PassCheckpoint(checkpoint.path, checkpoint.every, [*settings, options.device, seed], stream)
    saved = None if file is None else file.load()
    if saved is None:
        state.set_up(stream.first(), options)
        _plan(state, stream, feature_map, learner, options, quiet=True)  # what cannot fit is refused before it begins
        state._begin_from(stream, feature_map, rng, options, encoded=False)
    else:
        state.restore(saved, feature_map, learner, options)
    skip = state.rows_seen
    plan = _plan(state, stream, feature_map, learner, options)
    if learner.rows_measured and state.run is None:
        _measure(state, stream, learner, rng, options)
    one_epoch = _epoch(state, stream, learner, plan, rng, skip, options)
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
                if file is not None and number % file.every == 0:
                    file.save(state.state(), spent)
            if done == 0:
                raise ValueError(f"{stream.name} has no rows")
            seconds += time.perf_counter() - started
            assert state.run is not None
            record = {"n_iter": epoch, "seconds": seconds, **state.run.end_pass()}
            state.history.append(record)
            if epochs > 1:
                progress.update(record)
            if callbacks.functions and callbacks(state if show is None else show(state), record):
                break
    state.model(feature_map, learner, options)
    if file is not None:
        file.remove()
    return state


def more_rows(
    state: Pass,
    stream: Stream,
    feature_map: FeatureMap,
    learner: Learner,
    options: PassOptions = PassOptions(),
) -> None:
    """Learn from more rows, once each; rows are held until the feature map can begin.

    Parameters
    ----------
    state : Pass
        Changed in place; a copy is the caller's to make.
    stream : Stream
        The rows.
    feature_map : FeatureMap
        Where features come from.
    learner : Learner
        What becomes of them.
    options : PassOptions, optional
        Batches, precision, device, memory, progress.

    See Also
    --------
    run_pass : a whole stream.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import Stream
    >>> from gramless.approximation.features import FourierMap
    >>> from gramless.streaming.learners import Pass, Sums, more_rows
    >>> from gramless._core.targets.streamed import ValueTargets
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> state, _ = Pass.fresh(ValueTargets(), Sums(), random_state=0)
    >>> for half in (X[:100], X[100:]):
    ...     more_rows(state, Stream(half, np.sin(half[:, 0])), FourierMap(n_components=10), Sums())
    >>> state.rows_seen
    200
    """
    learner.check()
    if state.phase == FINISHED:
        raise ValueError(f"this {options.name} is finished and takes no more rows: fit it anew, on all of them")
    state.set_up(stream.first(), options)
    if state.phase == LEARNING:
        plan = _plan(state, stream, feature_map, learner, options)
        budget = options.budget(state.device)
        assert state.features is not None
        assert state.run is not None
        state.run.attach(state.features, budget)
        state.run.reopen()
        with Progress(options.verbose, stream.n_rows, options.name) as progress:
            done, started = 0, time.perf_counter()
            for batch in stream.batches(plan.batch_rows, prepare=lambda X: state.prepare(X, options.name)):
                state.add(batch.X, state.targets.read(batch.y), batch.weights, learner, budget)
                done += len(batch)
                progress.update(throughput_record(done, 0, stream.n_rows, time.perf_counter() - started))
        return
    for batch in stream.batches(MOST_BATCH_ROWS, prepare=lambda X: state.prepare(X, options.name)):
        rows = (batch.X, state.targets.read(batch.y), batch.weights)
        if state.phase == LEARNING:  # since an earlier batch of this stream
            state.add(*rows, learner, options.budget(state.device))
            continue
        state.held.append(rows)
        state.solved = None
        if sum(int(X.shape[0]) for X, _, _ in state.held) >= feature_map.rows_needed(None):
            state._release(feature_map, learner, options)


def from_model(path: str, doc: str) -> Any:
    """An attribute of an estimator that its model has, solved where rows have come since.

    Parameters
    ----------
    path : str
        Where `Model` has it. The estimator has its pass as `pass_` and what made it as `parts()`.
    doc : str
        What the attribute says of itself.

    Returns
    -------
    property
        Which raises AttributeError where there is no such value.

    See Also
    --------
    Model : what has the values.

    Examples
    --------
    >>> from gramless import NystromLSSVC
    >>> isinstance(NystromLSSVC.dual_coef_, property)
    True
    """

    def read(estimator: Any) -> Any:
        state = estimator.pass_
        if state is None:
            raise AttributeError(f"this {type(estimator).__name__} is not fitted yet")
        value = attrgetter(path)(state.solved or state.model(*estimator.parts()))
        if value is None:
            raise AttributeError(f"this fit of {type(estimator).__name__} has no {path}: its settings do not ask for it")
        return value

    return property(read, doc=doc)


def _plan(
    state: Pass, stream: Stream, feature_map: FeatureMap, learner: Learner, options: PassOptions, *, quiet: bool = False
) -> PassPlan:
    plan = plan_pass(
        feature_map,
        learner,
        options,
        n_rows=stream.n_rows,
        n_columns=state.n_columns,
        n_targets=max(1, state.targets.n_columns),
        dtype=state.dtype,
        device=state.device,
    )
    log_progress(0 if quiet else options.verbose, f"{options.name}: {plan.batch_rows} rows at a time; peak {plan.memory}")
    return plan


def _measure(state: Pass, stream: Stream, learner: Learner, rng: np.random.RandomState, options: PassOptions) -> None:
    """Begin the run with the features of some random rows."""
    X, _, weights = stream.sample(learner.rows_measured, rng)
    if weights is not None and (weights > 0).any():
        X = xa.take_rows(X, np.flatnonzero(weights > 0))
    # The two halves of the sample are compared: they must not be two ends of sorted data.
    X = state.prepare(xa.take_rows(X, rng.permutation(int(X.shape[0]))), options.name)
    assert state.features is not None
    n, known = stream.n_rows or int(X.shape[0]), stream.n_rows is not None
    state._begin_run(state.features(X) + 0, learner, options.budget(state.device), n, known=known)


def _epoch(
    state: Pass,
    stream: Stream,
    learner: Learner,
    plan: PassPlan,
    rng: np.random.RandomState,
    skip: int,
    options: PassOptions,
) -> Callable[[], Iterator[int]]:
    """A function that learns from all rows once, and yields the number of rows after each batch."""
    size, features = plan.batch_rows, state.features
    assert features is not None

    def prepare(X: Array) -> Array:
        return state.prepare(X, options.name)

    def in_order() -> Iterator[int]:
        budget = options.budget(state.device)
        for batch in stream.batches(size, skip, prepare):
            state.add(batch.X, state.targets.read(batch.y), batch.weights, learner, budget)
            yield len(batch)

    def learn(Phi: Array, encoded: np.ndarray, weights: np.ndarray | None, measured: Array | None) -> int:
        state._learn(Phi, encoded, state._weighted(encoded, weights), measured)
        return len(encoded)

    def shuffled() -> Iterator[int]:
        assert state.run is not None
        if stream.indexable:
            order = rng.permutation(int(stream.n_rows or 0))
            for start in range(0, len(order), size):
                X, y, weights = stream.take(order[start : start + size])
                Phi = features(prepare(X))
                yield learn(Phi, state.targets.read(y), weights, state.run.measure(Phi))
            return
        for batch in stream.batches(size, prepare=prepare):
            order = rng.permutation(len(batch))
            Phi = features(xa.take_rows(batch.X, order))
            weights = None if batch.weights is None else batch.weights[order]
            yield learn(Phi, state.targets.read(batch.y)[order], weights, state.run.measure(Phi))

    def from_memory() -> Iterator[int]:
        Phi, encoded, weights, measured = held
        order = rng.permutation(len(encoded))
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            numbers = None if measured is None else xa.take_rows(measured, rows)
            yield learn(xa.take_rows(Phi, rows), encoded[rows], weights[rows], numbers)

    if not learner.shuffles:
        return in_order
    if not stream.repeatable or not plan.memory.parts.get(ALL_FEATURES):
        return shuffled
    held = _all_features(state, stream, size, prepare)
    return from_memory


def _all_features(
    state: Pass, stream: Stream, size: int, prepare: Callable[[Array], Array]
) -> tuple[Array, np.ndarray, np.ndarray, Array | None]:
    """Features, encoded targets, weights and measured numbers of all rows."""
    assert state.features is not None
    assert state.run is not None
    n, at = int(stream.n_rows or 0), 0
    Phi: Array | None = None
    measured: Array | None = None
    pieces, weights = [], []
    for batch in stream.batches(size, prepare=prepare):
        block = state.features(batch.X)
        numbers = state.run.measure(block)
        if Phi is None:
            Phi = xa.empty((n, int(block.shape[1])), block)
            measured = None if numbers is None else xa.empty((n,), block)
        Phi[at : at + len(batch)] = block
        if measured is not None:
            measured[at : at + len(batch)] = numbers
        pieces.append(state.targets.read(batch.y))
        weights.append(np.ones(len(batch)) if batch.weights is None else batch.weights)
        at += len(batch)
    assert Phi is not None
    return Phi, np.concatenate(pieces), np.concatenate(weights), measured
