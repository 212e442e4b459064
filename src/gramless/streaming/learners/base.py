"""Interface of learners: settings that convert batches of features and targets to coefficients.

    state = learner.begin(features, ...),     state.add(Phi, Z, weights) for each batch,     learner.solve(state, ...)

A `Learner` has only settings; a `LearnerState` is the result of the rows so far. Neither depends on the source of the rows:
`run_pass` reads the rows, maps them to features and measures the time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.arrays import Array
from gramless.approximation.features.base import FeatureMap, Features


class LeftOutRows(NamedTuple):
    """Training rows for leave-one-out: their number, and a function that returns the rows of a slice."""

    n_rows: int
    compute: Callable[[slice], tuple[Array, np.ndarray, np.ndarray]]
    """Returns features, target columns and weights."""


@dataclass
class LearnedCoefficients:
    """Coefficients of the features and diagnostics of the solution."""

    A: np.ndarray
    """Shape (n_features, n_targets)."""
    bias: np.ndarray
    """Shape (n_targets,)."""
    C: float
    jitter: float | None = None
    """Number added to the diagonal of the penalty before its factorisation."""
    loo_errors: np.ndarray | None = None
    """Leave-one-out squared error for each C tried."""
    loo_scores: np.ndarray | None = None
    """Leave-one-out scores of the sampled rows for the C used."""


class LearnerState(ABC):
    """Everything learned from the rows so far."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Number of target columns so far."""

    @abstractmethod
    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Learn from a batch of features and targets; `measured` is the result of `measure` for the same rows."""

    def measure(self, Phi: Array) -> Array | None:
        """Return one number per row that `add` needs in addition to the features, or None if it needs only the features."""
        return None

    def attach(self, features: Features, budget: int) -> None:  # noqa: B027 (optional hook)
        """Set the features of later rows after the state was read from a file."""

    @abstractmethod
    def widen(self, n_targets: int) -> None:
        """Add target columns that were zero in all rows so far, such as the indicator of a new class."""

    def decay(self, factor: float) -> None:
        """Multiply the weights of all rows so far by `factor`."""
        raise TypeError(f"{type(self).__name__} cannot reduce the weights of earlier rows")

    def merge(self, other: Any) -> Any:
        """Add the state of other rows to this state, and return this state."""
        raise TypeError(f"{type(self).__name__} depends on the order of its rows and cannot be merged")

    def end_pass(self) -> dict[str, float]:
        """Finish an epoch and return numbers for the history."""
        return {}

    def reopen(self) -> None:  # noqa: B027 (optional hook)
        """Prepare the state for an unknown number of further rows."""

    @abstractmethod
    def copy(self) -> Any:
        """Return an independent copy."""

    @abstractmethod
    def __getstate__(self) -> dict[str, Any]:
        """Return numbers and NumPy arrays."""


class PassSize(NamedTuple):
    """Sizes on which the memory and the time of a fit depend."""

    n: int | None
    """Number of rows; None if unknown."""
    d: int
    """Number of columns."""
    k: int
    """Number of target columns."""
    dtype: np.dtype
    device: str

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a CUDA device."""
        return self.device.startswith("cuda")


class Learner(BaseEstimator, ABC):
    """Settings of a method that learns coefficients of features from batches."""

    merges: ClassVar[bool]
    """Whether the states of parts of the rows, in any order, merge into the state of all rows."""
    shuffles: ClassVar[bool] = False
    """Whether the rows should come in random order."""
    rows_measured: int = 0
    """Number of random rows whose features `begin` examines; 0 if one row, for its dtype and device, is enough."""
    rows_left_out: int = 0
    """Size of the uniform sample of rows that is stored for leave-one-out."""
    epochs: int = 1
    """Number of passes over the rows."""
    forgetting_factor: float = 1.0
    """Factor on the weight of each earlier row for each new row."""

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError if the settings contradict each other."""

    @abstractmethod
    def memory(self, p: int, size: PassSize) -> dict[str, int]:
        """Return the bytes needed for `p` features, by name."""

    def optional_memory(self, feature_map: FeatureMap, p: int, size: PassSize, budget: int, left: int) -> dict[str, int]:
        """Return the bytes of optional caches, by name, given `left` free bytes of `budget`; 0 for a cache not used."""
        return {}

    @abstractmethod
    def begin(
        self,
        features: Features,
        Phi: Array,
        n_targets: int,
        *,
        n_rows: int,
        known: bool = True,
        budget: int = 0,
        own_targets: Array | None = None,
    ) -> Any:
        """Return the state before the first row.

        `Phi` are features of up to `rows_measured` random rows. `n_rows` counts all rows, or with `known=False` the rows so
        far. `own_targets` are the target columns of the landmarks.
        """

    @abstractmethod
    def solve(self, state: Any, features: Features, left_out: LeftOutRows | None = None) -> LearnedCoefficients:
        """Return the coefficients, and leave-one-out results if the settings request them and `left_out` is given."""
