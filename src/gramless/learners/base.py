"""What a learner is: settings that turn batches of features and targets into coefficients.

    run = learner.begin(features, ...),     run.add(Phi, Z, weights) for each batch,     learner.solve(run, ...) -> Fit

A `Learner` only has settings; a `Run` is what it has learnt so far. Neither knows where rows come from: `run_pass` reads
them, maps them, and keeps the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from gramless._runtime.arrays import Array
from gramless.features import FeatureMap, Features

Sample = tuple[Array, np.ndarray, np.ndarray]
"""Features, target columns and weights of some of the rows that were added."""


@dataclass
class Fit:
    """Coefficients of the features, and how they were found."""

    A: np.ndarray
    """Of shape (n_features, n_targets)."""
    bias: np.ndarray
    """Of shape (n_targets,)."""
    C: float
    """The regularisation used."""
    jitter: float | None = None
    """What was added to the penalty before it could be factored."""
    loo_errors: np.ndarray | None = None
    """Leave-one-out squared error at each C tried."""
    loo_scores: np.ndarray | None = None
    """Leave-one-out scores of the sampled rows at the C used."""


class Run(ABC):
    """What was learnt so far."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Columns of targets met so far."""

    @abstractmethod
    def add(self, Phi: Array, Z: Array, weights: Array = None, measured: Array = None) -> None:
        """Learn from a batch.

        Parameters
        ----------
        Phi : array of shape (b, n_features)
        Z : array of shape (b, n_targets)
        weights : array of shape (b,), optional
        measured : array of shape (b,), optional
            What `measure` said of these rows.
        """

    def measure(self, Phi: Array) -> Array:
        """A number for each row that `add` wants beside its features, computed once where features are held; or None."""
        return None

    def attach(self, features: Features, budget: int) -> None:  # noqa: B027 (most runs have nothing to do)
        """Called before rows are added to a run that was read from a file; `budget` is the bytes that all may take."""

    @abstractmethod
    def widen(self, n_targets: int) -> None:
        """Make room for targets that were zero in every row so far."""

    def decay(self, factor: float) -> None:
        """Multiply the weight of every row so far by `factor`."""
        raise TypeError(f"{type(self).__name__} cannot make earlier rows count less")

    def merge(self, other: Any) -> Any:
        """Add what `other` has learnt from other rows; returns self."""
        raise TypeError(f"{type(self).__name__} depends on the order of its rows and does not merge")

    def end_pass(self) -> dict[str, float]:
        """Called after each pass over all rows; returns numbers for the history."""
        return {}

    def reopen(self) -> None:  # noqa: B027 (most runs have nothing to do)
        """Called before more rows, of which nobody knows how many will follow."""

    @abstractmethod
    def copy(self) -> Any:
        """Another run that goes on from here and leaves this one as it is."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays and numbers from which `Learner.restore` makes the same run."""


class Learner(BaseEstimator, ABC):
    """Settings of a way to learn."""

    merges: ClassVar[bool]
    """Whether runs over parts of the rows, in any order, merge into the run over all of them."""
    shuffles: ClassVar[bool] = False
    """Whether rows are wanted in random order."""
    rows_measured: int = 0
    """Rows of the data whose features `begin` looks at; 0 where one row, for its form, will do."""
    rows_left_out: int = 0
    """Rows of which `solve` wants a uniform sample, for leave-one-out."""
    epochs: int = 1
    """Passes over the rows."""
    forgetting_factor: float = 1.0
    """What the weight of each earlier row is multiplied by with each new one."""

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError about a setting that cannot be."""

    @abstractmethod
    def memory(self, p: int, itemsize: int, n_rows: int | None) -> dict[str, int]:
        """Bytes by name, for `p` features of `itemsize` bytes each: what a run must hold."""

    def optional_memory(
        self, feature_map: FeatureMap, p: int, itemsize: int, n_rows: int | None, budget: int, left: int
    ) -> dict[str, int]:
        """Bytes by name that a run holds only where `budget`, of which `left` are left, has room for them."""
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
        own_targets: Array = None,
    ) -> Any:
        """A run that has learnt nothing yet.

        Parameters
        ----------
        features : Features
        Phi : array of shape (s, n_features)
            Features of `rows_measured` random rows, or of fewer.
        n_targets : int
        n_rows : int
            Rows of the data; with `known=False` those at hand, more will come.
        known : bool, default=True
        budget : int, default=0
            Bytes that the whole fit may take.
        own_targets : array of shape (n_features, n_targets), optional
            Target columns of the points that the features are made of.

        Returns
        -------
        Run
        """

    @abstractmethod
    def restore(self, state: dict[str, Any], reference: Array = None) -> Any:
        """The run whose `state()` this is, in the library and on the device of `reference`; NumPy by default."""

    @abstractmethod
    def solve(self, run: Any, features: Features, sample: Callable[[], Sample] | None = None) -> Fit:
        """The coefficients that the run means; `sample` computes the rows to leave out."""
