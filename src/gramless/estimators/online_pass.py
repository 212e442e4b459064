"""Machines that learn online: epochs over the rows in `fit`, one pass in `partial_fit`, a step for each mini-batch.

What is minimised and how is in `learners.online`; here the rows come from a stream, are turned into features a block
at a time and dealt out in mini-batches. Rows of arrays are shuffled for each epoch; those of files and iterables within the
block that is read, so a file sorted by class should be shuffled before. Features that fit half of the memory budget are
computed once for all epochs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import parse_budget
from gramless._runtime.progress import Progress, say
from gramless._runtime.validation import check_choice, check_positive
from gramless.estimators.one_pass import OnePassRidge, PassPlan
from gramless.learners.online import OPTIMIZERS, SUBSAMPLE, OnlineLeastSquares
from gramless.streaming import Stream
from gramless.targets.streamed import Targets

Block = tuple[Array, np.ndarray, np.ndarray | None, Array]
"""Features, targets, weights and, where rows are softened, loudness of some rows."""

# Matrices of float64 that an eigendecomposition holds at its peak: the matrix, the vectors, work.
_EIGEN_MATRICES = 3
_ALL_FEATURES = "features of all rows"
_LAST_STEP = 0.02


class OnlinePass(OnePassRidge):
    """Learning in steps instead of sums; subclasses say what the features are."""

    optimizer: str
    epochs: int
    callback: Any
    _learner: OnlineLeastSquares | None
    _soften = False

    def _penalty_product(self, A: Array) -> Array:
        """`P A`."""
        raise NotImplementedError

    def _linear_term(self, reference: Array) -> Array:
        """`Q`, or None."""
        return None

    def _step_rows(self) -> int:
        """Rows in a mini-batch."""
        return int(self.batch_size)

    def _penalty_every(self) -> int:
        """Batches between two uses of the penalty."""
        return 1

    def _check_online(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_positive("epochs", self.epochs, integer=True)
        check_positive("batch_size", self._step_rows(), integer=True)
        if self.C == "loo":
            raise ValueError("C='loo' needs the exact sums: use method='exact' or NystromLSSVC")

    def _learn_stream(self, stream: Stream, targets: Targets) -> None:
        """All epochs of a fit."""
        self._forget_all(targets)
        rng = check_random_state(self.random_state)
        self._seed = int(rng.randint(np.iinfo(np.int32).max))
        self._begin(stream, rng)
        self.history_: list[dict[str, Any]] = []
        epochs = self.epochs if stream.repeatable else 1
        n = stream.n_rows
        plan = self.plan(n, self.n_features_in_, max(1, targets.n_columns), self._dtype_name, self.device_)
        say(self.verbose, f"{type(self).__name__}: {plan.batch_rows} rows at a time; peak {plan.memory}")
        self._prepare_learner(stream, rng, epochs)
        blocks = self._blocks(stream, rng, plan)
        seconds = 0.0
        with Progress(self.verbose, epochs, type(self).__name__) as progress:
            for epoch in range(epochs):
                started, losses, done = time.perf_counter(), [], 0
                for block in blocks():
                    total = None if n is None else epochs * n
                    losses += self._steps(block, n or max(len(block[1]), self._rows_seen), total)
                    done += len(block[1])
                n = done
                if n == 0:
                    raise ValueError(f"{stream.name} has no rows")
                assert self._learner is not None
                seconds += time.perf_counter() - started
                record = {
                    "n_iter": epoch + 1,
                    "seconds": seconds,
                    "loss": float(np.mean(losses)),
                    "step": self._learner.step,
                }
                self.history_.append(record)
                progress.update(record)
                if self.callback is not None:
                    self._solve()
                    if self.callback(self, record):
                        break
        self._solve()

    def _prepare_learner(self, stream: Stream, rng: np.random.RandomState, epochs: int) -> None:
        X, _, weights = stream.sample(SUBSAMPLE, rng)
        if weights is not None and (weights > 0).any():
            X = xa.take_rows(X, np.flatnonzero(weights > 0))
        # The two halves of the sample are compared: they must not be two ends of sorted data.
        X = xa.take_rows(X, rng.permutation(int(X.shape[0])))
        # The weights of loud rows come back as the step dies down, which it does where the end is known.
        self._soften = self.optimizer == "sgd" and stream.n_rows is not None and epochs > 1
        self._make_learner(self._prepare(X), stream.n_rows or int(X.shape[0]))

    def _make_learner(self, X: Array, n: float) -> None:
        features = self._features(X) + 0
        self._learner = OnlineLeastSquares(
            int(features.shape[1]),
            self._targets.n_columns,
            optimizer=self.optimizer,
            penalty=self._penalty_product,
            linear=self._linear_term(features),
            penalty_every=self._penalty_every(),
            soften=self._soften,
            reference=features,
        )
        self._learner.prepare(features, 1.0 / (float(self.C) * n), self._step_rows())
        model = self._model()
        if model is not None:  # read from a file: go on from there
            self._learner.A[...] = xa.like(self._targets.columns(model[0]), features)
            self._learner.b[...] = xa.like(self._targets.columns(model[1]), features)

    def _model(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients and biases learnt before, where no learner holds them."""
        raise NotImplementedError

    def _blocks(self, stream: Stream, rng: np.random.RandomState, plan: PassPlan) -> Any:
        """A function that deals out `(features, targets, weights)` for one epoch."""
        n, size = stream.n_rows, plan.batch_rows
        if stream.repeatable and plan.memory.parts[_ALL_FEATURES]:
            return self._held_blocks(stream, rng, size)

        def read() -> Iterator[Block]:
            if stream.indexable:
                shuffled = rng.permutation(int(n or 0))
                for start in range(0, len(shuffled), size):
                    X, y, weights = stream.take(shuffled[start : start + size])
                    features = self._features(self._prepare(X))
                    yield features, self._targets.read(y), weights, self._loudness(features)
                return
            for batch in stream.batches(size, prepare=self._prepare):
                yield self._shuffled(batch.X, self._targets.read(batch.y), batch.weights, rng)

        return read

    def _shuffled(self, X: Array, compact: np.ndarray, weights: np.ndarray | None, rng: np.random.RandomState) -> Block:
        order = rng.permutation(len(compact))
        features = self._features(xa.take_rows(X, order))
        return features, compact[order], None if weights is None else weights[order], self._loudness(features)

    def _loudness(self, features: Array) -> Array:
        assert self._learner is not None
        return self._learner.loudness(features) if self._soften else None

    def _held_blocks(self, stream: Stream, rng: np.random.RandomState, size: int) -> Any:
        features: Array = None
        loudness: Array = None
        pieces, weights, at = [], [], 0
        for batch in stream.batches(size, prepare=self._prepare):
            block = self._features(batch.X)
            if features is None:
                features = xa.empty((int(stream.n_rows or 0), int(block.shape[1])), block)
                loudness = xa.empty((int(stream.n_rows or 0),), block) if self._soften else None
            features[at : at + len(batch)] = block
            if self._soften:
                loudness[at : at + len(batch)] = self._loudness(block)
            pieces.append(self._targets.read(batch.y))
            weights.append(np.ones(len(batch)) if batch.weights is None else batch.weights)
            at += len(batch)
        compact, weight = np.concatenate(pieces), np.concatenate(weights)

        def deal() -> Iterator[Block]:
            shuffled = rng.permutation(len(compact))
            for start in range(0, len(shuffled), size):
                rows = shuffled[start : start + size]
                heard = None if loudness is None else xa.take_rows(loudness, rows)
                yield xa.take_rows(features, rows), compact[rows], weight[rows], heard

        return deal

    def _steps(self, block: Block, n: float, total: float | None) -> list[float]:
        """Mini-batches of one block of rows in random order; returns their losses."""
        features, compact, weights, loudness = block
        learner = self._learner
        assert learner is not None
        if self._targets.n_columns > learner.A.shape[1]:
            learner.widen(self._targets.n_columns)
        factors = self._targets.weights(compact)
        if factors is not None:
            weights = factors if weights is None else weights * factors
        Z = xa.like(self._targets.matrix(compact), features)
        w = None if weights is None or (weights == 1).all() else xa.like(weights, features)
        losses = []
        size, ridge = self._step_rows(), 1.0 / (float(self.C) * n)
        for start in range(0, len(compact), size):
            rows = slice(start, min(start + size, len(compact)))
            progress = 0.0 if total is None else self._rows_seen / total
            # A constant step hovers around the solution at the height of the gradient's noise: let it die down.
            decay = 1.0 if learner.optimizer == "averaged_sgd" else max(_LAST_STEP, min(1.0, 2 * (1 - progress)))
            counted = None if w is None else w[rows]
            if loudness is not None:
                counted = learner.softened(counted, loudness[rows], decay)
            losses.append(learner.update(features[rows], Z[rows], counted, ridge, decay))
            if progress >= 0.5 or total is None:
                learner.average()
            self._rows_seen += rows.stop - rows.start
        self._stale = True
        return losses

    # One pass at a time: what OnePassRidge does with sums, with steps.

    def _discard(self) -> None:
        super()._discard()
        self._learner = None
        self._soften = False

    def _keep_apart(self) -> None:
        super()._keep_apart()
        if self._learner is not None:
            self._learner = self._learner.copy()

    def plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> PassPlan:
        plan = super().plan(n, d, n_outputs, dtype, device)
        budget = parse_budget(self.memory_budget, device)
        kept = self._kept_parts(n, self._n_components(n), np.dtype(dtype).itemsize, budget, budget - plan.memory.nbytes)
        plan.memory.parts.update(kept)
        return plan

    def _kept_parts(self, n: int | None, p: int, itemsize: int, budget: int, left: int) -> dict[str, int]:
        """Bytes that a fit holds only because the budget has room for them."""
        size = 0 if n is None else n * p * itemsize
        return {_ALL_FEATURES: size if size <= min(budget // 2, left) else 0}

    def _steps_parts(self, p: int, itemsize: int, n: int | None) -> dict[str, int]:
        """What learning in steps holds instead of sums: features of a subsample (twice), the eigenvectors of half of it."""
        s = SUBSAMPLE if n is None else min(n, SUBSAMPLE)
        return {"curvature": 2 * s * p * itemsize + _EIGEN_MATRICES * 8 * (s // 2) ** 2}

    def _absorb_online(self, X: Array, compact: np.ndarray, weights: np.ndarray | None) -> None:
        if self._learner is None:
            sample = np.random.RandomState(self._seed).permutation(int(X.shape[0]))[:SUBSAMPLE]
            self._make_learner(xa.take_rows(X, sample), self._rows_seen + int(X.shape[0]))
        rng = np.random.RandomState([self._seed, self._rows_seen])
        n = self._rows_seen + int(X.shape[0])
        self._steps(self._shuffled(X, compact, weights, rng), n, None)

    def _solve_online(self) -> None:
        learner = self._learner
        assert learner is not None
        A, b = (xa.to_numpy(part) for part in learner.solution())
        self._stale = False
        self.C_ = float(self.C)
        self._set_model(self._targets.outputs(A), self._targets.outputs(b))

    def __getstate__(self) -> dict[str, Any]:
        # The learner is made anew from the model when more rows come; what it has learnt must be in the model first.
        if getattr(self, "_learner", None) is not None and self._stale:
            self._solve()
        state = super().__getstate__()
        return {**state, "_learner": None} if "_learner" in state else state
