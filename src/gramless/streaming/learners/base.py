"""Interface of learners, which compute coefficients from batches of features and targets.

    state = learner.begin(features, ...),     state.add(Phi, Z, weights) for each batch,     learner.solve(state, ...)

A `Learner` has only settings, and a `LearnerState` has what a learner computed from the rows so far. Neither class depends
on the source of the rows: `run_pass` reads the rows, maps the rows to features and measures the time.
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
    """Function that returns the features, target columns and weights of the rows of a slice."""


@dataclass
class LearnedCoefficients:
    """Coefficients of the features and diagnostics of the solution."""

    A: np.ndarray
    """Coefficients, shape (n_features, n_targets)."""
    bias: np.ndarray
    """Intercepts, shape (n_targets,)."""
    C: float
    jitter: float | None = None
    """Number added to the diagonal of the penalty matrix before its factorisation."""
    loo_errors: np.ndarray | None = None
    """Mean squared leave-one-out error for each value of C that was tried."""
    loo_scores: np.ndarray | None = None
    """Leave-one-out scores of the sampled rows for the value of C that was used."""


class LearnerState(ABC):
    """State of a learner, computed from the rows so far."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Number of target columns so far."""

    @abstractmethod
    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Learn from a batch of features and targets; `measured` is the result of `measure` for the same rows."""

    def measure(self, Phi: Array) -> Array | None:
        """Return one number per row that `add` needs in addition to the features, or None if `add` needs only features."""
        return None

    def attach(self, features: Features, budget: int) -> None:  # noqa: B027 (optional hook)
        """Set the fitted feature map and the memory budget in bytes, which are not part of a saved state."""

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
        """Finish an epoch and return the values that the history stores for this epoch."""
        return {}

    def reopen(self) -> None:  # noqa: B027 (optional hook)
        """Prepare the state for an unknown number of further rows."""

    @abstractmethod
    def copy(self) -> Any:
        """Return an independent copy."""

    @abstractmethod
    def __getstate__(self) -> dict[str, Any]:
        """Return the state as a dict of numbers, strings and NumPy arrays."""


class PassSize(NamedTuple):
    """Sizes on which the memory and the time of a fit depend."""

    n: int | None
    """Number of rows; None if unknown."""
    d: int
    """Number of columns of the rows."""
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
    """Whether states of separate parts of the rows can be merged, in any order, into the state of all rows."""
    shuffles: ClassVar[bool] = False
    """Whether the learner needs the rows in random order."""
    rows_measured: int = 0
    """Number of random rows whose features `begin` examines; 0 if `begin` needs only the dtype and device of features."""
    rows_left_out: int = 0
    """Size of the uniform sample of rows that is stored for leave-one-out."""
    epochs: int = 1
    """Number of passes over the rows."""
    forgetting_factor: float = 1.0
    """Factor by which each new row multiplies the weights of all earlier rows."""

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError if the settings contradict each other."""

    @abstractmethod
    def memory(self, p: int, size: PassSize) -> dict[str, int]:
        """Return the bytes of memory needed for `p` features, by purpose."""

    def optional_memory(self, feature_map: FeatureMap, p: int, size: PassSize, budget: int, left: int) -> dict[str, int]:
        """Return the bytes of each optional cache (0 if unused), by purpose, if `left` bytes of `budget` are free."""
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
