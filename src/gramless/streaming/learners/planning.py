"""Settings of a training pass, and its memory plan: the number of rows per batch and the peak memory by purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gramless._core.memory import MemoryEstimate, parse_budget
from gramless.approximation.features import FeatureMap
from gramless.streaming.learners.base import Learner
from gramless.streaming.tuning import TUNING, StreamingTuning

_ADVICE = "use fewer landmarks or components, a smaller batch_size, or raise memory_budget"


@dataclass(frozen=True)
class PassOptions:
    """Settings that change the result only by rounding and by the order of stochastic steps."""

    name: str = "the training pass"
    """Name of the estimator in progress and error messages."""
    batch_rows: int | None = None
    """Rows per batch; None is the largest number that the memory budget allows, at most 4096."""
    dtype: Any = None
    device: str | None = None
    memory_budget: Any = None
    verbose: int = 0

    def budget(self, device: str) -> int:
        """Return the memory budget on `device` in bytes."""
        return parse_budget(self.memory_budget, device)


class PassSettings(NamedTuple):
    """The feature map, the learner and the options of a training pass."""

    feature_map: FeatureMap
    learner: Learner
    options: PassOptions


@dataclass
class BatchPlan:
    """Rows per batch and the peak memory of a training pass."""

    batch_rows: int
    memory: MemoryEstimate


def plan_pass(
    settings: PassSettings,
    *,
    n_rows: int | None,
    n_columns: int,
    n_targets: int,
    dtype: Any,
    device: str,
    tuning: StreamingTuning = TUNING,
) -> BatchPlan:
    """Return the plan of a pass over `n_rows` rows (None if unknown); raise MemoryError if the budget is too small."""
    feature_map, learner, options = settings
    p, itemsize = feature_map.n_features(n_rows), np.dtype(dtype).itemsize
    memory = MemoryEstimate({**learner.memory(p, itemsize, n_rows), "landmarks": p * n_columns * (itemsize + 8)}, device)
    if learner.rows_left_out:
        memory.parts["rows left out"] = learner.memory_left_out(p, n_columns, n_targets, itemsize, n_rows)
    # Per row: features and a copy, the row as read and converted, encoded targets; indices of sparse rows.
    per_row = (2 * p + 4 * n_columns + 4 * n_targets) * itemsize + 3 * n_columns * 8
    budget = options.budget(device)
    if options.batch_rows is not None:
        rows = options.batch_rows
    else:
        rows = int(min(tuning.largest_batch, max((budget - memory.nbytes) // per_row, tuning.smallest_batch)))
    memory.parts["batches"] = rows * per_row
    memory.check(budget, _ADVICE)
    memory.parts |= learner.optional_memory(feature_map, p, itemsize, n_rows, budget, budget - memory.nbytes)
    if memory.nbytes > budget and options.batch_rows is None:
        rows = int(max(tuning.smallest_batch, rows - -(-(memory.nbytes - budget) // per_row)))
        memory.parts["batches"] = rows * per_row
    memory.check(budget, _ADVICE)
    return BatchPlan(rows, memory)
