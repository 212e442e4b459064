"""Machines that need one pass: each piece is reduced to its normal equations, and these are merged in a tree.

The sums of all rows are the sums of the pieces' sums, so the model is that of one machine up to the order of additions. What
moves between workers is `p^2` numbers for each merge; what comes to the client is the model. The features (landmarks, random
frequencies) are chosen on one worker, from the same rows that one machine would draw.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from dask.distributed import Client
from sklearn.utils import check_random_state

from gramless.distributed.cluster import reduce_in_tree, show_progress
from gramless.distributed.collections import Piece, Rows, class_factors, draw
from gramless.distributed.settings import check_settings
from gramless.estimators.one_pass import LEAVE_ONE_OUT_ROWS, OnePassRidge
from gramless.learners.normal_equations import NormalEquations
from gramless.streaming.reservoir import Reservoir
from gramless.targets.streamed import LabelTargets, Targets, ValueTargets

Sums = tuple[NormalEquations, Reservoir | None]


class RowsWanted(Exception):
    """Which rows a machine wants to see before it can go on choosing its features."""

    def __init__(self, rows: np.ndarray):
        super().__init__("rows wanted")
        self.rows = rows


class RemoteStream:
    """What a machine asks of a stream while it chooses its features, for rows that are on other machines.

    Each request is answered with rows fetched after an earlier attempt; the first one that has no answer yet ends the
    attempt with `RowsWanted`.
    """

    name = "the collection"
    repeatable = True

    def __init__(self, example: np.ndarray, n_rows: int, answers: list[Piece]):
        self.n_rows = n_rows
        self._example = example
        self._answers = list(answers)

    def first(self) -> np.ndarray:
        return self._example

    def sample(self, n: int, rng: np.random.RandomState, batch_rows: int = 4096) -> tuple[Any, ...]:
        return self._answer(draw(self.n_rows, n, rng))

    def take(self, idx: np.ndarray) -> tuple[Any, ...]:
        rows, inverse = np.unique(idx, return_inverse=True)
        X, y, weights = self._answer(rows)
        return X[inverse], y[inverse], None if weights is None else weights[inverse]

    def _answer(self, rows: np.ndarray) -> tuple[Any, ...]:
        if not self._answers:
            raise RowsWanted(rows)
        piece = self._answers.pop(0)
        return piece.X, piece.y, piece.weights


def check_one_pass(estimator: OnePassRidge) -> None:
    """Refuse what cannot be distributed, before anything is read."""
    estimator._check_settings()
    if not estimator.adds_up:
        raise ValueError(
            f"{type(estimator).__name__} learns online, a step after the other; partitions need sums: "
            "use NystromLSSVC or FourierLSSVC(method='exact')"
        )
    for name in ("device", "memory_budget", "checkpoint", "forget"):
        check_settings(estimator, set(estimator.get_params(deep=False)) - {name})


def fit_one_pass(client: Client, estimator: OnePassRidge, rows: Rows) -> None:
    """Fit a one-pass machine to rows on the workers."""
    blank = copy.copy(estimator)
    blank._forget_all(_targets(estimator, rows))
    rng = check_random_state(estimator.random_state)
    blank._seed = int(rng.randint(np.iinfo(np.int32).max))
    ready = _chosen(client, blank, rows, rng)
    sums = rows.map(_absorb, ready, each=[(offset,) for offset in rows.offsets])
    total = reduce_in_tree(client, sums, _merge)
    del sums  # partial sums may go as soon as they are merged
    fitted = client.submit(_solve, ready, total, pure=False)
    show_progress(estimator.verbose, fitted)
    estimator.__dict__.update(fitted.result().__dict__)


def _targets(estimator: OnePassRidge, rows: Rows) -> Targets:
    if rows.classes is None:
        values = ValueTargets()
        values.read(np.zeros((1, *rows.target_shape)))
        return values
    factors = class_factors(getattr(estimator, "class_weight", None), rows)
    table = None if factors is None else dict(zip(rows.classes.tolist(), factors.tolist(), strict=True))
    return LabelTargets(rows.classes, table)


def _chosen(client: Client, blank: OnePassRidge, rows: Rows, rng: np.random.RandomState) -> Any:
    """A future of the machine with its features chosen, on a worker."""
    example = np.zeros((1, rows.d), rows.dtype)
    answers: list[Any] = []
    while True:
        attempt = client.submit(_choose, blank, example, rows.n, rng.get_state(), answers, pure=False)
        wanted = client.submit(_rows_wanted, attempt, pure=False).result()
        if wanted is None:
            return attempt
        answers.append(rows.take(wanted))


def _choose(blank: OnePassRidge, example: np.ndarray, n_rows: int, state: Any, answers: list[Piece]) -> Any:
    machine, rng = copy.copy(blank), np.random.RandomState()
    rng.set_state(state)
    try:
        machine._begin(RemoteStream(example, n_rows, answers), rng)  # type: ignore[arg-type]
    except RowsWanted as request:
        return request.rows
    return machine


def _rows_wanted(outcome: Any) -> np.ndarray | None:
    return outcome if isinstance(outcome, np.ndarray) else None


def _absorb(piece: Piece, offset: int, ready: OnePassRidge) -> Sums:
    """The sums of one piece, and its share of the sample for leave-one-out."""
    machine = copy.copy(ready)
    machine._equations, machine._rows_seen = None, offset
    machine._sample = Reservoir(LEAVE_ONE_OUT_ROWS) if machine._needs_sample() else None
    n, columns = len(piece.X), machine._targets.n_columns
    size = machine.plan(n, piece.X.shape[1], columns, piece.X.dtype, machine.device_).batch_rows
    y = piece.y.reshape(n) if isinstance(machine._targets, LabelTargets) else piece.y
    for start in range(0, n, size):
        rows = slice(start, start + size)
        weights = None if piece.weights is None else piece.weights[rows]
        machine._absorb(machine._prepare(piece.X[rows]), machine._targets.read(y[rows]), weights)
    assert machine._equations is not None
    return machine._equations, machine._sample


def _merge(parts: list[Sums]) -> Sums:
    # The first is copied: a task must leave what it is given as it was, for it may be run again.
    total, sample = copy.deepcopy(parts[0][0]), copy.copy(parts[0][1])
    for sums, rows in parts[1:]:
        total.merge(sums)
        if sample is not None and rows is not None and rows.rows is not None:
            sample.add(rows.rows, rows.keys)
    return total, sample


def _solve(ready: OnePassRidge, total: Sums) -> OnePassRidge:
    machine = copy.copy(ready)
    machine._equations, machine._sample = total
    machine._rows_seen = total[0].n_rows
    machine._solve()
    return machine
