"""Settings of a training pass: feature map and learner, precision, device, memory and batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gramless._core.memory import parse_budget
from gramless.approximation.features import FeatureMap
from gramless.streaming.learners.base import Learner


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
