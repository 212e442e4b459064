"""Distributed RiSVO: exact, by sums over the active rows of all pieces, or the mean of one fit for each piece.

The masks of active rows stay with the pieces on the workers. In each step the coefficients are sent to the workers (`m k`
numbers each), each piece returns counts, and the sums of the discarded or of the remaining rows (the smaller group) are
added in a tree. The coefficients equal those of a local fit up to the order of additions.

`merge="average"` is the map-reduce of Yu, Diamantaras, McKelvey and Kung (2014): each piece is fitted separately on the
common basis, and the coefficients are averaged. This needs no communication until the end and gives a different model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client
from sklearn.base import clone
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.targets.columns import scores_to_labels
from gramless.approximation.features.landmark_map import Whitening
from gramless.approximation.landmarks import as_points, select
from gramless.callbacks import read_functions
from gramless.distributed.cluster import check_settings, reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors, draw
from gramless.estimators.risvo import (
    RiSVOClassifier,
    active_rows,
    signed_targets,
    warn_if_ill_conditioned,
)
from gramless.kernels import kernel_from_parameters
from gramless.kernels.base import Kernel
from gramless.linalg.operators import evaluate, expand
from gramless.streaming.learners.active_set import ActiveStep, ridge_on_sum, should_sum_again, shrink
from gramless.streaming.learners.ridge_sums import RidgeSums

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


@dataclass
class Model:
    """Coefficients of one step, on a worker."""

    coef: np.ndarray
    bias: np.ndarray
    condition: float
    added_jitter: float


@dataclass
class State:
    """Class codes and masks of the rows of a piece: active, staying active, misclassified, inclusion violations."""

    codes: np.ndarray
    active: np.ndarray
    stays: np.ndarray
    wrong: np.ndarray
    violations: np.ndarray


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


def fit_risvo(client: Client, estimator: RiSVOClassifier, rows: Rows) -> None:
    """Fit `RiSVOClassifier` to rows on the workers."""
    rows.keep()
    estimator.classes_ = rows.classes
    rng = check_random_state(estimator.random_state)
    blank = clone(estimator).set_params(callback=None, verbose=0)  # callbacks run on the client
    candidates = _candidates(estimator, rows, rng)
    basis = client.submit(_choose, blank, rows.take(candidates), candidates, rng.get_state(), pure=False)
    estimator.kernel_, estimator.points_, estimator.support_, estimator.jitter_ = client.submit(_describe, basis).result()
    estimator.device_ = "cpu"
    if estimator.merge == "average":
        _average(client, estimator, rows, basis)
    else:
        _iterate(client, estimator, rows, basis, blank)


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
    kept = slice(None) if piece.weights is None else np.flatnonzero(piece.weights)
    X, numbers = piece.X[kept], numbers[kept]
    kernel = kernel_from_parameters(vars(blank)).resolve(piece.X, piece.weights)
    rng = np.random.RandomState()
    rng.set_state(state)
    rule = blank.landmarks
    if isinstance(rule, (list, np.ndarray)) and np.ndim(rule) == 1:
        rule = np.searchsorted(numbers, np.asarray(rule))
    landmarks = select(rule, X, kernel, blank.n_landmarks, rng)
    points: Any = as_points(landmarks, X)
    double = points.astype(np.float64)
    features = Whitening(evaluate(kernel, double, double), X.dtype)
    return Basis(kernel, points, features, numbers[landmarks] if landmarks.ndim == 1 else None)


def _describe(basis: Basis) -> tuple[Any, ...]:
    return basis.kernel, basis.points, basis.support, basis.features.jitter


def _iterate(client: Client, estimator: RiSVOClassifier, rows: Rows, basis: Any, blank: RiSVOClassifier) -> None:
    remote_rows = RemoteActiveRows(client, estimator, rows, basis, blank)
    callbacks = read_functions(estimator)

    def callback(record: dict[str, Any]) -> bool:
        remote_rows.set_model()
        return callbacks(estimator, record)

    estimator.history_, estimator.message_ = shrink(
        remote_rows,
        max_iter=estimator.max_iter,
        present=rows.mass > 0,
        callback=callback if callbacks.functions else None,
    )
    result = remote_rows.set_model()
    estimator.n_iter_ = len(estimator.history_)
    estimator.active_set_ = _row_numbers(rows, remote_rows.states, "active")
    estimator._set_violations(_row_numbers(rows, remote_rows.states, "violations") if estimator.check_inclusion else None)
    warn_if_ill_conditioned(result, estimator.rho)


class RemoteActiveRows:
    """Active rows on the workers, for `shrink`; `basis` is a future, `blank` the estimator without callbacks."""

    def __init__(self, client: Client, estimator: RiSVOClassifier, rows: Rows, basis: Any, blank: RiSVOClassifier):
        self.client, self.estimator, self.rows, self.basis, self.blank = client, estimator, rows, basis, blank
        self.states = rows.map(_begin, rows.classes)
        self._needs = {"classes": rows.classes, "factors": class_factors(estimator.class_weight, rows)}
        self._total, self._updated_by = self._summed(leaving=False), "summation"
        self._n_rows = 0
        self._counts: dict[str, Any] = {}
        self._model: Any = None

    def fit(self) -> ActiveStep:
        """Fit to the active rows, score the rows on the workers and add the counts of the pieces."""
        client, rows = self.client, self.rows
        self._model = client.submit(_solve, self._total, self.basis, self.blank, pure=False)
        show_progress(self.estimator.verbose, self._model)
        self.states = rows.map(_step, self.basis, self._model, self.blank, each=[(state,) for state in self.states])
        n_classes = len(rows.classes)
        self._counts = counts = _added(
            client.gather([client.submit(_count, state, n_classes, pure=False) for state in self.states])
        )
        self._n_rows = self._n_rows or int(counts["active"])
        condition = client.submit(_condition, self._model, pure=False).result()
        violations = int(counts["violations"]) if self.estimator.check_inclusion else None
        error = float(counts["wrong"] / self._n_rows)
        return ActiveStep(int(counts["active"]), counts["kept"], error, self._updated_by, condition, violations)

    def discard(self) -> None:
        """Discard rows; subtract their sums if they are fewer than the remaining rows and rounding errors allow it."""
        kept = int(self._counts["kept"].sum())
        removed = None
        if self._counts["active"] - kept < kept:
            removed = self.client.submit(_subtract, self._total, self._summed(leaving=True), pure=False)
            if self.client.submit(_should_sum_again, removed, self.blank, pure=False).result():
                removed = None
        self._updated_by = "summation" if removed is None else "removal"
        self._total = self._summed(leaving=False) if removed is None else removed
        self.states = [self.client.submit(_shrink, state, pure=False) for state in self.states]

    def _summed(self, *, leaving: bool) -> Any:
        sums = self.rows.map(_sums, self.basis, self._needs, leaving, each=[(state,) for state in self.states])
        return reduce_in_tree(self.client, sums, _merge)

    def set_model(self) -> Model:
        """Set the coefficients of the estimator to those of the last fit and return them."""
        result: Model = self._model.result()
        self.estimator.dual_coef_, self.estimator.intercept_ = result.coef, result.bias
        return result


def _begin(piece: Piece, classes: np.ndarray) -> State:
    codes = np.searchsorted(classes, piece.y.reshape(len(piece.y)))
    active = np.ones(len(codes), dtype=bool) if piece.weights is None else piece.weights > 0
    none = np.zeros(len(codes), dtype=bool)
    return State(codes, active, active, none, none)


def _sums(piece: Piece, state: State, basis: Basis, needs: dict[str, Any], leaving: bool) -> RidgeSums | None:
    """Return the sums over the rows of a piece that stay active, or over those that will be discarded."""
    idx = np.flatnonzero(state.active & ~state.stays if leaving else state.active & state.stays)
    Z = signed_targets(state.codes, len(needs["classes"]))
    weights = piece.weights
    if needs["factors"] is not None:
        weights = needs["factors"][state.codes] * (1.0 if weights is None else weights)
    if len(idx) == 0:
        return None
    total = RidgeSums(len(basis.points), Z.shape[1])
    for start in range(0, len(idx), _ROWS_AT_A_TIME):
        part = idx[start : start + _ROWS_AT_A_TIME]
        phi = basis.features.features(evaluate(basis.kernel, piece.X[part], basis.points))
        total.add(phi, Z[part], None if weights is None else weights[part])
    return total


def _merge(parts: list[RidgeSums | None]) -> RidgeSums | None:
    filled = [part for part in parts if part is not None]
    if not filled:
        return None
    total = filled[0].copy()  # tasks may run again, so arguments stay unchanged
    for part in filled[1:]:
        total.merge(part)
    return total


def _subtract(total: RidgeSums, part: RidgeSums) -> RidgeSums:
    return total.copy().subtract(part)


def _should_sum_again(removed: RidgeSums, blank: RiSVOClassifier) -> bool:
    return should_sum_again(removed, ridge_on_sum(blank.rho, blank.reduction, removed.weight))


def _solve(total: RidgeSums, basis: Basis, blank: RiSVOClassifier) -> Model:
    solution = total.solve(ridge_on_sum(blank.rho, blank.reduction, total.weight))
    dtype = basis.points.dtype
    coef, bias = xa.astype(basis.features.coefficients(solution.A), dtype), xa.astype(solution.bias, dtype)
    return Model(xa.to_numpy(coef), xa.to_numpy(bias), solution.condition, solution.cut)


def _condition(model: Model) -> float:
    return float(model.condition)


def _step(piece: Piece, state: State, basis: Basis, model: Model, blank: RiSVOClassifier) -> State:
    """Score the active rows (all rows with `check_inclusion`) and determine which rows stay active."""
    counted = np.ones(len(state.codes), dtype=bool) if piece.weights is None else piece.weights > 0
    seen = counted if blank.check_inclusion else state.active
    scores = xa.to_numpy(expand(basis.kernel, piece.X[seen], basis.points, model.coef)) + model.bias
    codes = state.codes[seen]
    n_classes = max(2, scores.shape[1])
    stays, wrong = np.zeros_like(state.active), state.wrong.copy()
    stays[seen] = active_rows(signed_targets(codes, n_classes) * scores, codes, blank)
    wrong[seen] = scores_to_labels(np.arange(n_classes), scores) != codes
    outside = counted & ~state.active
    return State(state.codes, state.active, stays, wrong, state.violations | (outside & stays))


def _count(state: State, n_classes: int) -> dict[str, Any]:
    kept = state.active & state.stays
    return {
        "active": int(state.active.sum()),
        "kept": np.bincount(state.codes[kept], minlength=n_classes),
        "wrong": int(state.wrong.sum()),
        "violations": int((state.stays & ~state.active).sum()),
    }


def _added(counts: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: sum(count[key] for count in counts) for key in counts[0]}


def _shrink(state: State) -> State:
    active = state.active & state.stays
    return State(state.codes, active, active, state.wrong, state.violations)


def _average(client: Client, estimator: RiSVOClassifier, rows: Rows, basis: Any) -> None:
    """Fit each piece on the common basis and store the mean of the coefficients."""
    blank = clone(estimator).set_params(callback=None, verbose=0)
    fits = rows.map(_fit_alone, basis, blank, rows.classes, class_factors(estimator.class_weight, rows))
    total = reduce_in_tree(client, fits, _add_models)
    show_progress(estimator.verbose, total)
    coef, bias, histories = total.result()
    estimator.dual_coef_ = (coef / len(rows.pieces)).astype(rows.dtype)
    estimator.intercept_ = (bias / len(rows.pieces)).astype(rows.dtype)
    estimator.history_ = [{**record, "partition": i} for i, history in enumerate(histories) for record in history]
    estimator.n_iter_ = max(map(len, histories))
    estimator.message_ = f"the mean of {len(rows.pieces)} independent fits"
    for name in ("active_set_", "inclusion_violations_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit: partitions have separate active sets


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
        alone.fit(piece.X, y, sample_weight=weights)
        pair = len(present) == 2
        coef[:, columns] = alone.dual_coef_ * [-1, 1] if pair else alone.dual_coef_
        bias[columns] = alone.intercept_ * [-1, 1] if pair else alone.intercept_
        history = alone.history_
    return (coef[:, 1:], bias[1:], [history]) if len(classes) == 2 else (coef, bias, [history])


def _add_models(parts: list[tuple[np.ndarray, np.ndarray, list[Any]]]) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    histories = [history for part in parts for history in part[2]]
    return np.sum([part[0] for part in parts], axis=0), np.sum([part[1] for part in parts], axis=0), histories


def _row_numbers(rows: Rows, states: list[Any], mask: str) -> da.Array:
    """Return the indices of the rows in a mask on the workers as a dask array."""
    numbers = dask.delayed(_numbers, pure=False)
    length = rows.client.gather([rows.client.submit(_length, state, mask, pure=False) for state in states])
    blocks = [
        da.from_delayed(numbers(state, mask, offset), shape=(n,), dtype=np.intp)
        for state, offset, n in zip(states, rows.offsets, length, strict=True)
    ]
    return da.concatenate(blocks)


def _numbers(state: State, mask: str, offset: int) -> np.ndarray:
    return np.flatnonzero(getattr(state, mask)) + offset


def _length(state: State, mask: str) -> int:
    return int(getattr(state, mask).sum())
