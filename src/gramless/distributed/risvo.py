"""Distributed RiSVO: exact, by sums over the active rows of all pieces, or the mean of one fit for each piece.

The masks of active rows stay with the pieces on the workers. In each step the coefficients are sent to the workers (`m k`
numbers each), each piece returns counts, and the sums of the discarded or of the remaining rows (the smaller group) are
added in a tree. The coefficients equal those of a local fit up to the order of additions.

`merge="average"` is the map-reduce of Yu, Diamantaras, McKelvey and Kung (2014): each piece is fitted separately on the
common basis, and the coefficients are averaged. This needs no communication until the end and gives a different model.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any

import dask
import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.features.landmark_map import Whitening
from gramless.approximation.landmarks import as_points, select
from gramless.distributed.cluster import check_settings, reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors, lazy_array
from gramless.estimators.risvo import RiSVOClassifier
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.linalg.operators import evaluate, expand
from gramless.streaming.learners.active_set import (
    ActiveModel,
    ActiveRule,
    ActiveStep,
    RowStates,
    ridge_on_sum,
    should_sum_again,
    signed_targets,
    solve_sums,
    sums_over,
)
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.reservoir import draw

# Rows from which the basis is chosen and gamma="scale" is computed.
_CANDIDATES = 50_000
_ROWS_AT_A_TIME = 2048


@dataclass
class Basis:
    """Kernel, landmarks and their whitening, on a worker."""

    kernel: Kernel
    points: np.ndarray
    features: Whitening
    support: np.ndarray | None

    def model(self, coef: Array, bias: Array, condition: float = 1.0, added_jitter: float = 0.0) -> ActiveModel:
        """Return the model on the basis with the given coefficients."""
        return ActiveModel(self.points, self.support, coef, bias, self.features.jitter, condition, added_jitter)


@dataclass
class AverageModel:
    """Mean of the models of all pieces, which have separate active sets."""

    kernel: Kernel
    model: ActiveModel
    history: list[dict[str, Any]]
    n_fits: int


UNSUPPORTED = {"device", "memory_budget"}


def check_risvo(estimator: RiSVOClassifier) -> None:
    """Raise ValueError for parameters that cannot be distributed, before any row is read."""
    estimator._check_parameters()
    check_settings(estimator, UNSUPPORTED)
    if isinstance(estimator.landmarks, str) and estimator.landmarks == "all":
        raise ValueError("landmarks='all' needs all rows on one machine; choose a basis, such as landmarks='basis'")
    if not kernel_from_parameters(vars(estimator)).uses_points:
        raise ValueError("a precomputed kernel cannot be distributed by rows; pass the data and a kernel")
    if estimator.merge == "average":
        check_settings(estimator, {"callback", "check_inclusion"})


def fit_risvo(estimator: RiSVOClassifier, rows: Rows) -> RemoteActiveRows | AverageModel:
    """Return the active rows on the workers, or with `merge="average"` the mean of the fits of all pieces."""
    rows.keep()
    rng = check_random_state(estimator.random_state)
    blank = clone(estimator).set_params(callback=None, verbose=0)  # callbacks run on the client
    candidates = _candidates(estimator, rows, rng)
    basis = rows.client.submit(_choose, blank, rows.take(candidates), candidates, rng.get_state(), pure=False)
    fitted = _average if estimator.merge == "average" else RemoteActiveRows
    return fitted(rows, basis, blank, estimator.verbose)


def _candidates(estimator: RiSVOClassifier, rows: Rows, rng: np.random.RandomState) -> np.ndarray:
    given = estimator.landmarks
    if isinstance(given, (list, np.ndarray)) and np.ndim(given) == 1:
        # gamma="scale" needs a sample, which includes the given rows.
        sample = draw(rows.n, _CANDIDATES, np.random.RandomState(0))
        return np.union1d(sample, np.asarray(given, dtype=np.intp))
    if rows.n <= _CANDIDATES:
        return np.arange(rows.n)
    return draw(rows.n, max(_CANDIDATES, estimator.n_landmarks), rng)


def _choose(blank: RiSVOClassifier, piece: Piece, numbers: np.ndarray, state: Any) -> Basis:
    rule = blank.landmarks
    given = isinstance(rule, (list, np.ndarray)) and np.ndim(rule) == 1  # rows of any weight, as in a local fit
    kept = slice(None) if piece.weights is None or given else np.flatnonzero(piece.weights)
    X, numbers = piece.X[kept], numbers[kept]
    kernel = kernel_from_parameters(vars(blank)).resolve(piece.X, piece.weights)
    rng = np.random.RandomState()
    rng.set_state(state)
    if given:
        rule = np.searchsorted(numbers, np.asarray(rule))
    landmarks = select(rule, X, kernel, blank.n_landmarks, rng)
    points: Any = as_points(landmarks, X)
    double = points.astype(np.float64)
    features = Whitening(evaluate(kernel, double, double), X.dtype)
    return Basis(kernel, points, features, numbers[landmarks] if landmarks.ndim == 1 else None)


class RemoteActiveRows:
    """Active rows on the workers, for `shrink`; `basis` is a future, `blank` the estimator without callbacks."""

    def __init__(self, rows: Rows, basis: Any, blank: RiSVOClassifier, verbose: int):
        self.client, self.rows, self.basis, self.blank, self.verbose = rows.client, rows, basis, blank, verbose
        self.kernel: Kernel = _kernel(basis, rows)
        self.states = rows.map(_begin, rows.classes)
        self._factors = class_factors(blank.class_weight, rows)
        self._total, self._updated_by = self._summed(leaving=False), "summation"
        self._counts: dict[str, Any] = {}
        self._model: Any = None

    def fit(self) -> ActiveStep:
        """Fit to the active rows, score the rows on the workers and add the counts of the pieces."""
        client, rows = self.client, self.rows
        self._model = client.submit(_solve, self._total, self.basis, self.blank, pure=False)
        show_progress(self.verbose, self._model)
        rule = self.blank._rule()
        self.states = rows.map(_step, self.basis, self._model, rule, each=[(state,) for state in self.states])
        counts = client.gather([client.submit(RowStates.counts, s, len(rows.classes), pure=False) for s in self.states])
        self._counts = {key: sum(count[key] for count in counts) for key in counts[0]}
        condition = client.submit(attrgetter("condition"), self._model, pure=False).result()
        return ActiveStep(self._counts, self._updated_by, condition)

    def discard(self) -> None:
        """Discard rows; subtract their sums if they are fewer than the remaining rows and rounding errors allow it."""
        kept = int(self._counts["kept"].sum())
        removed = None
        if self._counts["active"] - kept < kept:
            removed = self.client.submit(_subtract, self._total, self._summed(leaving=True), self.blank, pure=False)
            if self.client.submit(is_, removed, None, pure=False).result():
                removed = None
        self._updated_by = "summation" if removed is None else "removal"
        self._total = self._summed(leaving=False) if removed is None else removed
        self.states = [self.client.submit(RowStates.without_discarded, state, pure=False) for state in self.states]

    def _summed(self, *, leaving: bool) -> Any:
        needs = self.basis, self.rows.classes, self._factors, leaving
        return reduce_in_tree(self.client, self.rows.map(_sums, *needs, each=[(s,) for s in self.states]), _merge)

    def model(self) -> ActiveModel:
        """Return the model of the last fit."""
        found: ActiveModel = self._model.result()
        return found

    def numbers(self, mask: str) -> da.Array:
        """Return the indices of the rows in a mask of `RowStates` as a dask array on the workers."""
        numbers = dask.delayed(_numbers, pure=False)
        lengths = self.client.gather([self.client.submit(_length, state, mask, pure=False) for state in self.states])
        blocks = [numbers(state, mask, offset) for state, offset in zip(self.states, self.rows.offsets, strict=True)]
        return lazy_array(blocks, lengths, (), np.intp)


def _begin(piece: Piece, classes: np.ndarray) -> RowStates:
    return RowStates.start(np.searchsorted(classes, piece.y.reshape(len(piece.y))), piece.weights)


def _sums(
    piece: Piece, state: RowStates, basis: Basis, classes: np.ndarray, factors: np.ndarray | None, leaving: bool
) -> RidgeSums | None:
    """Return the sums over the rows of a piece that stay active, or over those that will be discarded."""
    idx = np.flatnonzero(state.active & ~state.stays if leaving else state.active & state.stays)
    if len(idx) == 0:
        return None
    weights = piece.weights
    if factors is not None:
        weights = factors[state.codes] * (1.0 if weights is None else weights)

    def values(part: np.ndarray) -> Array:
        return evaluate(basis.kernel, piece.X[part], basis.points)

    return sums_over(idx, basis.features, values, signed_targets(state.codes, len(classes)), weights, _ROWS_AT_A_TIME)


def _merge(parts: list[RidgeSums | None]) -> RidgeSums | None:
    filled = [part for part in parts if part is not None]
    if not filled:
        return None
    total = filled[0].copy()  # tasks may run again, so arguments stay unchanged
    for part in filled[1:]:
        total.merge(part)
    return total


def _subtract(total: RidgeSums, part: RidgeSums, blank: RiSVOClassifier) -> RidgeSums | None:
    """Return the difference of the sums, or None if its rounding errors are too large."""
    left = total.copy().subtract(part)
    return None if should_sum_again(left, ridge_on_sum(blank.rho, blank.reduction, left.weight)) else left


def _solve(total: RidgeSums, basis: Basis, blank: RiSVOClassifier) -> ActiveModel:
    ridge = ridge_on_sum(blank.rho, blank.reduction, total.weight)
    solved = solve_sums(total, basis.features, ridge, basis.points.dtype)
    return basis.model(*solved)


def _step(piece: Piece, state: RowStates, basis: Basis, model: ActiveModel, rule: ActiveRule) -> RowStates:
    """Score the active rows (all rows with `check_inclusion`) and determine which rows stay active."""
    scores = xa.to_numpy(expand(basis.kernel, piece.X[state.scored(rule)], basis.points, model.coef)) + model.bias
    return state.after(scores, rule)


def _kernel(basis: Any, rows: Rows) -> Kernel:
    kernel: Kernel = rows.client.submit(attrgetter("kernel"), basis).result()
    return kernel


def _average(rows: Rows, basis: Any, blank: RiSVOClassifier, verbose: int) -> AverageModel:
    """Fit each piece on the common basis, and return the mean of the coefficients."""
    fits = rows.map(_fit_alone, basis, blank, rows.classes, class_factors(blank.class_weight, rows))
    total = reduce_in_tree(rows.client, fits, _add_models)
    show_progress(verbose, total)
    coef, bias, histories = total.result()
    n = len(rows.pieces)
    means = (coef / n).astype(rows.dtype), (bias / n).astype(rows.dtype)
    model = rows.client.submit(Basis.model, basis, *means).result()
    history = [{**record, "partition": i} for i, history in enumerate(histories) for record in history]
    return AverageModel(_kernel(basis, rows), model, history, n)


def _fit_alone(
    piece: Piece, basis: Basis, blank: RiSVOClassifier, classes: np.ndarray, factors: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return coefficients and bias of all classes from a fit to one piece, in which classes may be missing."""
    y = piece.y.reshape(len(piece.y))
    weights = np.ones(len(y)) if piece.weights is None else piece.weights
    if factors is not None:
        weights = weights * factors[np.searchsorted(classes, y)]
    # A missing class has the target -1 in every row: zero coefficients and bias -1.
    coef, bias = np.zeros((len(basis.points), len(classes))), np.full(len(classes), -1.0)
    present = np.unique(y[weights > 0])
    columns, history = np.searchsorted(classes, present), []
    if len(present) == 1:
        bias[columns] = 1.0
    elif len(present) > 1:
        alone = clone(blank).set_params(kernel=basis.kernel, landmarks=basis.points, class_weight=None, merge="sum")
        used = weights > 0  # `classes_` must have no class of weight zero
        alone.fit(piece.X[used], y[used], sample_weight=weights[used])
        pair = len(present) == 2
        coef[:, columns] = alone.dual_coef_ * [-1, 1] if pair else alone.dual_coef_
        bias[columns] = alone.intercept_ * [-1, 1] if pair else alone.intercept_
        history = alone.history_
    return (coef[:, 1:], bias[1:], [history]) if len(classes) == 2 else (coef, bias, [history])


def _add_models(parts: list[tuple[np.ndarray, np.ndarray, list[Any]]]) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    histories = [history for part in parts for history in part[2]]
    return np.sum([part[0] for part in parts], axis=0), np.sum([part[1] for part in parts], axis=0), histories


def _numbers(state: RowStates, mask: str, offset: int) -> np.ndarray:
    return np.flatnonzero(getattr(state, mask)) + offset


def _length(state: RowStates, mask: str) -> int:
    return int(getattr(state, mask).sum())
