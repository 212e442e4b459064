"""Distributed RiSVO: exact, by sums over the active rows of all partitions, or the mean of separate fits to the partitions.

The masks of active rows stay with the partitions on the workers. In each step every worker receives the coefficients (`m k`
numbers for m landmarks and k outputs), each partition returns row counts, and the sums of the discarded or of the remaining
rows (the smaller group) are added in a tree. The coefficients are the same as in a local fit up to the order of additions.

`merge="average"` is the map-reduce method of Yu, Diamantaras, McKelvey and Kung (2014): a model is fitted to each partition
on the common basis, and the coefficients are averaged. This needs no communication until the end but gives another model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import dask
import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from gramless.approximation.landmarks import select
from gramless.distributed.cluster import check_settings, merge_copies, reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors, lazy_array
from gramless.estimators.risvo import RiSVOClassifier
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.streaming.learners.active_set import ActiveModel, Basis, BasisRows, RowStates, TrainingRows
from gramless.streaming.reservoir import draw

# Number of sampled rows from which the basis is chosen and gamma="scale" is computed.
_CANDIDATES = 50_000
_ROWS_AT_A_TIME = 2048


@dataclass
class AverageModel:
    """Mean of the models that were fitted to each piece separately, with an active set per piece."""

    kernel: Kernel
    model: ActiveModel
    history: list[dict[str, Any]]
    n_fits: int


UNSUPPORTED = {"device", "memory_budget"}


def check_risvo(estimator: RiSVOClassifier) -> None:
    """Raise ValueError for parameters that a distributed fit does not support, before any row is read."""
    estimator._check_parameters()
    check_settings(estimator, UNSUPPORTED)
    if isinstance(estimator.landmarks, str) and estimator.landmarks == "all":
        raise ValueError("landmarks='all' needs all rows on one machine; choose a basis, such as landmarks='basis'")
    if not kernel_from_parameters(vars(estimator)).uses_points:
        raise ValueError("a precomputed kernel cannot be distributed by rows; pass the data and a kernel")
    if estimator.merge == "average":
        check_settings(estimator, {"callback", "check_inclusion"})


def fit_risvo(estimator: RiSVOClassifier, rows: Rows) -> RemoteActiveRows | AverageModel:
    """Return the rows on the workers for `shrink`, or with `merge="average"` the mean of separate fits to the pieces."""
    rows.keep()
    rng = check_random_state(estimator.random_state)
    blank = clone(estimator).set_params(callback=None, verbose=0)  # callbacks run on the client
    candidates = _candidates(estimator, rows, rng)
    basis = rows.client.submit(_choose, blank, rows.take(candidates), candidates, rng, pure=False)
    fitted = _average if estimator.merge == "average" else RemoteActiveRows
    return fitted(rows, basis, blank, class_factors(blank.class_weight, rows), estimator.verbose)


def _candidates(estimator: RiSVOClassifier, rows: Rows, rng: np.random.RandomState) -> np.ndarray:
    given = estimator.landmarks
    if isinstance(given, (list, np.ndarray)) and np.ndim(given) == 1:
        # gamma="scale" needs a sample of the rows; the landmarks that the user gave are added to the sample.
        sample = draw(rows.n, _CANDIDATES, np.random.RandomState(0))
        return np.union1d(sample, np.asarray(given, dtype=np.intp))
    if rows.n <= _CANDIDATES:
        return np.arange(rows.n)
    return draw(rows.n, max(_CANDIDATES, estimator.n_landmarks), rng)


def _choose(blank: RiSVOClassifier, piece: Piece, numbers: np.ndarray, rng: np.random.RandomState) -> Basis:
    rule = blank.landmarks
    given = isinstance(rule, (list, np.ndarray)) and np.ndim(rule) == 1  # these rows may have weight zero, as in a local fit
    kept = slice(None) if piece.weights is None or given else np.flatnonzero(piece.weights)
    X, numbers = piece.X[kept], numbers[kept]
    kernel = kernel_from_parameters(vars(blank)).resolve(piece.X, piece.weights)
    if given:
        rule = np.searchsorted(numbers, np.asarray(rule))
    landmarks = select(rule, X, kernel, blank.n_landmarks, copy.deepcopy(rng))  # a dask task may run more than once
    basis = Basis.of(kernel, X, landmarks, X.dtype)
    return basis if basis.support is None else replace(basis, support=numbers[basis.support])


class RemoteActiveRows(BasisRows):
    """Active rows on the workers; `basis` is a future, and `factors` are the class weights."""

    def __init__(self, rows: Rows, basis: Any, blank: RiSVOClassifier, factors: np.ndarray | None, verbose: int):
        self._client, self._rows, self._factors, self._verbose = rows.client, rows, factors, verbose
        self.kernel: Kernel = self._call(attrgetter("kernel"), basis).result()
        states = rows.map(_begin, rows.classes)
        super().__init__(rows.pieces, states, basis, blank._rule(), rows.dtype)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.submit(function, *arguments, pure=False)

    def _call_for_each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return super()._call_for_each(_for_piece, self._factors, function, *shared)

    def _merge(self, sums: list[Any]) -> Any:
        return reduce_in_tree(self._client, sums, merge_copies)

    def _values(self, *results: Any) -> Any:
        show_progress(self._verbose, list(results))
        return self._client.gather(list(results))

    def numbers(self, mask: str) -> da.Array:
        """Return the indices of the rows that are True in the mask `mask` of `RowStates`, as a dask array on the workers."""
        numbers = dask.delayed(_numbers, pure=False)
        lengths = self._client.gather([self._call(_length, state, mask) for state in self.states])
        blocks = [numbers(state, mask, offset) for state, offset in zip(self.states, self._rows.offsets, strict=True)]
        return lazy_array(blocks, lengths, (), np.intp)


def _begin(piece: Piece, classes: np.ndarray) -> RowStates:
    return RowStates.start(np.searchsorted(classes, piece.y.reshape(len(piece.y))), len(classes), piece.weights)


def _for_piece(
    piece: Piece, state: RowStates, factors: np.ndarray | None, function: Callable[..., Any], *shared: Any
) -> Any:
    """Return the result of a function that is called with the rows of a piece and the states of these rows."""
    weights = piece.weights
    if factors is not None:
        weights = factors[state.codes] * (1.0 if weights is None else weights)
    return function(TrainingRows(piece.X, weights, _ROWS_AT_A_TIME), state, *shared)


def _average(rows: Rows, basis: Any, blank: RiSVOClassifier, factors: np.ndarray | None, verbose: int) -> AverageModel:
    """Fit each piece on the common basis, and return the mean of the coefficients."""
    fits = rows.map(_fit_alone, basis, blank, rows.classes, factors)
    total = reduce_in_tree(rows.client, fits, _add_models)
    show_progress(verbose, total)
    coef, bias, histories = total.result()
    n = len(rows.pieces)
    chosen: Basis = basis.result()
    means = (coef / n).astype(rows.dtype), (bias / n).astype(rows.dtype)
    model = ActiveModel(chosen.points, chosen.support, *means, chosen.whitening.jitter, condition=1.0, added_jitter=0.0)
    history = [{**record, "partition": i} for i, history in enumerate(histories) for record in history]
    return AverageModel(chosen.kernel, model, history, n)


def _fit_alone(
    piece: Piece, basis: Basis, blank: RiSVOClassifier, classes: np.ndarray, factors: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return coefficients, bias and history of a fit to one piece, for all classes; the piece may lack some classes."""
    y = piece.y.reshape(len(piece.y))
    weights = np.ones(len(y)) if piece.weights is None else piece.weights
    if factors is not None:
        weights = weights * factors[np.searchsorted(classes, y)]
    # The target of a missing class is -1 in every row, so its model has zero coefficients and the bias -1.
    coef, bias = np.zeros((len(basis.points), len(classes))), np.full(len(classes), -1.0)
    present = np.unique(y[weights > 0])
    columns, history = np.searchsorted(classes, present), []
    if len(present) == 1:
        bias[columns] = 1.0
    elif len(present) > 1:
        alone = clone(blank).set_params(kernel=basis.kernel, landmarks=basis.points, class_weight=None, merge="sum")
        used = weights > 0  # rows of weight zero would add their class to `classes_`
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
