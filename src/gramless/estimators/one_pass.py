"""A ridge machine on explicit features, fitted in one pass over the rows.

    min_{A, b}  sum_i w_i ||z_i - A^T phi(x_i) - b||^2 + (1 / C) tr(A^T P A)

`phi` are `p` features (kernel values with landmarks, or random Fourier features), `P` their penalty. The pass only adds up
`NormalEquations`: O(p^2) time for each row and O(p^2) memory whatever the number of rows, the same model in any order and
any grouping of the rows. `fit` is a pass over a `Stream`; `partial_fit` goes on adding, and the model is solved when it is
next asked for. With `forget` below 1 the weight of every earlier row is multiplied by it at each new row.

`C="loo"` takes the value of a path with the smallest leave-one-out squared error, in closed form: leverages come from the
sums of all rows and are evaluated on a uniform sample of them (all, up to `LEAVE_ONE_OUT_ROWS`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import MemoryEstimate, parse_budget
from gramless._runtime.progress import Progress, say, speed
from gramless._runtime.validation import check_positive, check_weights, check_X, working_dtype
from gramless.learners.normal_equations import NormalEquations
from gramless.learners.whitened import WhitenedRidge
from gramless.streaming import Stream, is_stream_like
from gramless.streaming.pass_checkpoint import PassCheckpoint, described
from gramless.streaming.reservoir import Reservoir
from gramless.streaming.sources import Rows, concatenate
from gramless.targets.streamed import Targets

Read = Callable[[Any], np.ndarray]

LEAVE_ONE_OUT_ROWS = 8192
PATH = tuple(float(C) for C in 10.0 ** np.arange(-3, 6.01, 0.5))

# Rows whose variance stands for that of all in gamma="scale".
SCALE_ROWS = 50_000
_MOST_BATCH_ROWS = 4096
_FEWEST_BATCH_ROWS = 64
# Matrices of p x p float64 that the solution holds at its peak: sums, penalty, factor, whitened copy, eigenvectors, work.
_SOLVE_MATRICES = 7


@dataclass
class PassPlan:
    """How a pass is going to be made."""

    batch_rows: int
    memory: MemoryEstimate


class OnePassRidge(BaseEstimator):
    """The pass, the sums and their solution; subclasses say what the features are."""

    C: Any
    Cs: Any
    forget: float
    batch_size: Any
    dtype: Any
    device: str | None
    memory_budget: Any
    checkpoint: Any
    checkpoint_every: int
    verbose: int
    random_state: Any
    n_features_in_: int
    loo_errors_: np.ndarray

    @property
    def adds_up(self) -> bool:
        """Whether the model comes from sums, which can be taken in any order and in many places at once."""
        return True

    # What a subclass provides.

    def _begin(self, stream: Stream, rng: np.random.RandomState, read: Read | None = None) -> None:
        """Choose the features for a stream that is about to be read; `read` makes targets of its y, unless they are."""
        raise NotImplementedError

    def _rows_needed(self) -> int:
        """How many rows `partial_fit` holds back before the features are chosen from them."""
        raise NotImplementedError

    def _n_components(self, n_rows: int | None) -> int:
        """How many features there are going to be."""
        raise NotImplementedError

    def _accepts_sparse(self) -> bool:
        """Whether CSR rows are understood."""
        raise NotImplementedError

    def _features(self, X: Array) -> Array:
        """The features of some rows, on the device."""
        raise NotImplementedError

    def _penalty(self) -> Array:
        """`P` in float64, or None for the identity."""
        raise NotImplementedError

    def _set_model(self, A: np.ndarray, intercept: np.ndarray) -> None:
        """Keep the solution."""
        raise NotImplementedError

    def _feature_state(self) -> dict[str, Any]:
        """The chosen features as arrays and numbers."""
        raise NotImplementedError

    def _restore_features(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    # The pass.

    def plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> PassPlan:
        """Rows in a batch and the peak memory, or a `MemoryError` where the features' own matrices do not fit."""
        p, itemsize = self._n_components(n), np.dtype(dtype).itemsize
        memory = MemoryEstimate({**self._fixed_parts(p, itemsize, n), "landmarks": p * d * (itemsize + 8)}, device)
        per_row = (2 * p + 4 * d + 4 * n_outputs) * itemsize + 3 * d * 8
        budget = parse_budget(self.memory_budget, device)
        left = (budget - memory.nbytes) // per_row
        rows = self._rows_asked_for() or int(min(_MOST_BATCH_ROWS, max(left, _FEWEST_BATCH_ROWS)))
        memory.parts["batches"] = rows * per_row
        memory.check(budget, "use fewer landmarks or components, a smaller batch_size, or raise memory_budget")
        return PassPlan(rows, memory)

    def _fixed_parts(self, p: int, itemsize: int, n: int | None) -> dict[str, int]:
        """Bytes that do not depend on the batches."""
        return {"normal equations": _SOLVE_MATRICES * 8 * p * p}

    def _rows_asked_for(self) -> int | None:
        return None if self.batch_size is None else int(check_positive("batch_size", self.batch_size, integer=True))

    def _check_settings(self) -> None:
        if self.C != "loo":
            check_positive("C", self.C)
        elif not len(self.Cs) or any(not isinstance(C, Real) or not float(C) > 0 for C in self.Cs):
            raise ValueError(f"Cs must be positive numbers, got {self.Cs!r}")
        if not isinstance(self.forget, Real) or not 0 < self.forget <= 1:
            raise ValueError(f"forget must be above 0 and at most 1 (1 forgets nothing), got {self.forget!r}")
        check_positive("checkpoint_every", self.checkpoint_every, integer=True)

    def _stream(self, X: Any, y: Any, sample_weight: Any) -> Stream:
        if not isinstance(X, Stream):
            return Stream(X, y, sample_weight)
        if y is not None or sample_weight is not None:
            raise ValueError("a Stream carries its own targets and weights: pass no y and no sample_weight")
        return X

    def _array(self, X: Any, *, reset: bool) -> Array:
        """An array in its own dtype, checked at once; one on disk is checked as it passes."""
        if isinstance(X, np.memmap):
            return X
        kind: Any = working_dtype(X, self.dtype) if xa.is_torch(X) else "numeric"
        return check_X(self, X, dtype=kind, reset=reset, accept_sparse=self._accepts_sparse())

    def _fit_stream(self, stream: Stream, targets: Targets) -> None:
        """One pass from the beginning, or from where its checkpoint stands."""
        self._forget_all(targets)
        rng = check_random_state(self.random_state)
        self._seed = int(rng.randint(np.iinfo(np.int32).max))
        file = None
        if self.checkpoint is not None:
            file = PassCheckpoint(self.checkpoint, self.checkpoint_every, [type(self).__name__, *self._settings()], stream)
        saved = None if file is None else file.load()
        if saved is None:
            self._begin(stream, rng)
        else:
            self._restore(saved)
        self._absorb_all(stream, file, skip=self._rows_seen)
        self._solve()
        if file is not None:
            file.remove()

    def _settings(self) -> list[str]:
        ignored = {"checkpoint", "checkpoint_every", "verbose", "callback", "memory_budget"}
        return [f"{k}={described(v)}" for k, v in sorted(self.get_params(deep=False).items()) if k not in ignored]

    def _forget_all(self, targets: Targets) -> None:
        self._targets = targets
        for name in ("history_", "jitter_", "loo_errors_", "sigmoids_"):
            self.__dict__.pop(name, None)  # not every fit has them: those of an earlier one must not stay
        self._discard()
        self._held: list[tuple[Array, np.ndarray, np.ndarray | None]] = []
        self._sample = Reservoir(LEAVE_ONE_OUT_ROWS) if self._needs_sample() else None
        self._stale = self._finished = False
        self._dtype_name, self._rows_seen = "", 0

    def _discard(self) -> None:
        """Begin without features and without anything learnt."""
        self._chosen = False
        self._equations: NormalEquations | None = None

    def _needs_sample(self) -> bool:
        return self.C == "loo" or getattr(self, "probability", None) == "sigmoid"

    def _set_up(self, X: Array) -> None:
        """What the first rows decide: width, dtype and device."""
        if not self._dtype_name:
            self.n_features_in_ = int(X.shape[1])
            self._dtype_name = working_dtype(X, self.dtype).name
            self.device_ = xa.resolve_device(self.device, X)

    def _prepare(self, X: Array) -> Array:
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features"
            )
        return xa.to_device(X, self.device_, np.dtype(self._dtype_name))

    def _absorb_all(self, stream: Stream, file: PassCheckpoint | None = None, skip: int = 0) -> None:
        plan = self.plan(stream.n_rows, self.n_features_in_, max(1, self._targets.n_columns), self._dtype_name, self.device_)
        say(self.verbose, f"{type(self).__name__}: {plan.batch_rows} rows at a time; peak {plan.memory}")
        before, done, clock = self._rows_seen, skip, time.perf_counter()
        with Progress(self.verbose, stream.n_rows, type(self).__name__) as progress:
            for number, batch in enumerate(stream.batches(plan.batch_rows, skip, self._prepare), start=1):
                self._absorb(batch.X, self._targets.read(batch.y), batch.weights)
                done += len(batch)
                seconds = time.perf_counter() - clock
                progress.update(speed(done, skip, stream.n_rows, seconds))
                if file is not None and number % file.every == 0:
                    file.save(self._state(), seconds)
        if self._rows_seen == before == 0:
            raise ValueError(f"{stream.name} has no rows")

    def _absorb(self, X: Array, compact: np.ndarray, weights: np.ndarray | None) -> None:
        """Add rows to the sums."""
        n = int(X.shape[0])
        factors = self._targets.weights(compact)
        if factors is not None:
            weights = factors if weights is None else weights * factors
        if self.forget < 1:
            recent = self.forget ** np.arange(n - 1, -1, -1.0)
            weights = recent if weights is None else weights * recent
        k = self._targets.n_columns
        features = self._features(X)
        if self._equations is None:
            self._equations = NormalEquations(int(features.shape[1]), k, features)
        elif k > self._equations.n_targets:
            self._equations.widen(k)
        if self.forget < 1:
            self._equations.decay(self.forget**n)
        targets = xa.like(self._targets.matrix(compact), features)
        self._equations.update(features, targets, None if weights is None else xa.like(weights, features))
        if self._sample is not None:
            if self.forget < 1 and (rows := self._sample.rows) is not None:
                self._sample.rows = (rows[0], rows[1], rows[2] * self.forget**n)
            # The key of a row comes from its number alone, however the rows are cut into batches.
            keys = np.random.Generator(np.random.PCG64(self._seed).advance(self._rows_seen)).random(n)
            host = X if xa.is_sparse(X) else xa.to_numpy(X)
            self._sample.add((host, compact, np.ones(n) if weights is None else weights), keys)
        self._rows_seen += n
        self._stale = True

    # More rows later.

    def _add(self, X: Any, y: Any, sample_weight: Any, targets: Targets, first: bool) -> None:
        """Add rows; the features are chosen once enough rows are held to choose them from."""
        if not first and self._finished:
            raise ValueError(f"this {type(self).__name__} is finished and takes no more rows: fit it anew, on all of them")
        if is_stream_like(X) and not isinstance(X, np.memmap):
            stream = self._stream(X, y, sample_weight)
        else:
            X = self._array(X, reset=first)
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            targets.read(y)  # all of them before the first row is added: an error must leave the sums as they were
            stream = Stream(X, xa.to_numpy(y), check_weights(sample_weight, X))
        if first:
            self._forget_all(targets)
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._set_up(stream.first())
        elif is_stream_like(X):
            self._keep_apart()  # its rows are checked as they pass, and a bad one may come after good ones
        if not self._chosen:
            self._hold_back(stream)
        else:
            self._absorb_all(stream)

    def _keep_apart(self) -> None:
        """Go on with copies of all that is added to in place: a `partial_fit` that fails leaves the originals."""
        self._held = list(self._held)
        self._equations, self._sample = copy.deepcopy(self._equations), copy.copy(self._sample)

    def _hold_back(self, stream: Stream) -> None:
        for batch in stream.batches(_MOST_BATCH_ROWS, prepare=self._prepare):
            self._held.append((batch.X, self._targets.read(batch.y), batch.weights))
            self._stale = True
            if self._chosen or self._held_rows() >= self._rows_needed():
                self._release(*concatenate(self._held))

    def _held_rows(self) -> int:
        return sum(int(X.shape[0]) for X, _, _ in self._held)

    def _release(self, X: Array, compact: np.ndarray, weights: np.ndarray | None) -> None:
        """Choose the features from the rows held back (unless they are chosen) and add those rows."""
        if not self._chosen:
            self._begin(Stream(X, compact, weights), check_random_state(self._seed), np.asarray)
        self._held = []
        for batch in Stream(X, compact, weights).batches(_MOST_BATCH_ROWS):
            self._absorb(batch.X, batch.y, batch.weights)

    # The solution.

    def _solved(self, name: str) -> Any:
        """A part of the model; `partial_fit` only adds, and the model is solved when it is next asked for."""
        if getattr(self, "_stale", False):
            self._solve()
        if name not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.__dict__[name]

    def _solve(self) -> None:
        """Solve the sums and keep the model."""
        if self._held:
            self._solve_held()
            return
        assert self._equations is not None
        penalty = self._penalty()
        whitened = self._equations.whiten(penalty)
        if penalty is not None:
            self.jitter_ = whitened.jitter
        if self._sample is not None and self._sample.rows is not None:
            self._leave_one_out(whitened, self._sample.rows)
        self.C_ = float(self.Cs[int(np.argmin(self.loo_errors_))]) if self.C == "loo" else float(self.C)
        A, intercept = (xa.to_numpy(part) for part in whitened.solve(1.0 / self.C_))
        self._stale = False
        self._set_model(self._targets.outputs(A), self._targets.outputs(intercept))

    def _solve_held(self) -> None:
        """A model of the rows held back so far, which stay held back."""
        held, seen = list(self._held), self._rows_seen
        sample, self._sample = self._sample, Reservoir(LEAVE_ONE_OUT_ROWS) if self._needs_sample() else None
        try:
            self._release(*concatenate(self._held))
            self._solve()
        finally:
            self._discard()
            self._held, self._rows_seen, self._sample = held, seen, sample

    def _leave_one_out(self, whitened: WhitenedRidge, rows: Rows) -> None:
        X, compact, weights = rows
        kept = np.flatnonzero(weights > 0)
        X, compact, weights = xa.take_rows(X, kept), compact[kept], weights[kept]
        features = self._features(xa.to_device(X, self.device_, np.dtype(self._dtype_name)))
        targets = xa.like(self._targets.matrix(compact), xa.astype(features, np.float64))
        Cs = [float(C) for C in self.Cs] if self.C == "loo" else [float(self.C)]
        residuals = xa.to_numpy(whitened.leave_one_out(features, targets, [1.0 / C for C in Cs], xa.like(weights, targets)))
        self.loo_errors_ = np.array([float(np.average((R * R).sum(axis=1), weights=weights)) for R in residuals])
        best = residuals[int(np.argmin(self.loo_errors_))]
        self._keep_scores(self._targets.outputs(xa.to_numpy(targets) - best), compact, weights)

    def _keep_scores(self, scores: np.ndarray, compact: np.ndarray, weights: np.ndarray) -> None:
        """Leave-one-out scores of the sampled rows, for whoever calibrates with them."""

    def finish(self) -> Any:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.
        """
        check_is_fitted(self, "_targets")
        if self._stale:
            self._solve()
        self._discard()
        self._held, self._sample, self._finished = [], None, True
        return self

    # Where a pass stands.

    def _state(self) -> dict[str, Any]:
        assert self._equations is not None
        state = {f"sums_{k}": v for k, v in self._equations.state().items()}
        state |= {f"features_{k}": v for k, v in self._feature_state().items()}
        state |= {f"targets_{k}": v for k, v in self._targets.state().items()}
        if self._sample is not None and self._sample.rows is not None:
            names = ("sample_keys", "sample_X", "sample_y", "sample_w")
            state |= dict(zip(names, (self._sample.keys, *self._sample.rows), strict=True))
        return state | {"seen": self._rows_seen, "seed": self._seed, "dtype": self._dtype_name, "width": self.n_features_in_}

    def _restore(self, state: dict[str, Any]) -> None:
        def part(prefix: str) -> dict[str, Any]:
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self._dtype_name, self.n_features_in_ = state["dtype"], int(state["width"])
        self.device_ = xa.resolve_device(self.device, None)
        self._targets.restore(part("targets_"))
        self._restore_features(part("features_"))
        self._equations, self._chosen = NormalEquations.from_state(part("sums_")), True
        if self._sample is not None and "sample_keys" in state:
            self._sample.keys = state["sample_keys"]
            self._sample.rows = (state["sample_X"], state["sample_y"], state["sample_w"])
        self._rows_seen, self._seed = int(state["seen"]), int(state["seed"])
