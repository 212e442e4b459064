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

from gramless._core.arrays import Array
from gramless.approximation.features import FeatureMap, Features

Sample = tuple[Array, np.ndarray, np.ndarray]
"""Features, target columns and weights of some of the rows that were added."""

LeftOut = tuple[int, Callable[[slice], Sample]]
"""How many rows are to be left out one by one, and a function that computes some of them."""


@dataclass
class Fit:
    """Coefficients of the features, and how they were found.

    Parameters
    ----------
    A : ndarray of shape (n_features, n_targets)
        The coefficients.
    bias : ndarray of shape (n_targets,)
        One for each column of targets.
    C : float
        The regularisation used.
    jitter : float or None, default=None
        What was added to the penalty before it could be factored.
    loo_errors : ndarray or None, default=None
        Leave-one-out squared error at each C tried.
    loo_scores : ndarray or None, default=None
        Leave-one-out scores of the sampled rows at the C used.

    See Also
    --------
    Learner.solve : makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.streaming.learners import Fit
    >>> Fit(np.ones((2, 1)), np.zeros(1), C=1.0).jitter is None
    True
    """

    A: np.ndarray
    bias: np.ndarray
    C: float
    jitter: float | None = None
    loo_errors: np.ndarray | None = None
    loo_scores: np.ndarray | None = None


class Run(ABC):
    """What was learnt so far.

    See Also
    --------
    Learner : the settings whose `begin` returns a run.
    RidgeSums : the run of `Sums`.

    Examples
    --------
    >>> from gramless.streaming.learners import RidgeSums, Run
    >>> issubclass(RidgeSums, Run)
    True
    """

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Columns of targets met so far."""

    @abstractmethod
    def add(self, Phi: Array, Z: Array, weights: Array | None = None, measured: Array | None = None) -> None:
        """Learn from a batch.

        Parameters
        ----------
        Phi : array of shape (b, n_features)
            Features of the rows.
        Z : array of shape (b, n_targets)
            Their targets.
        weights : array of shape (b,), optional
            At least 0; ones by default.
        measured : array of shape (b,), optional
            What `measure` said of these rows.
        """

    def measure(self, Phi: Array) -> Array | None:
        """A number for each row that `add` wants beside its features, computed once where features are held.

        Parameters
        ----------
        Phi : array of shape (b, n_features)
            Features of the rows.

        Returns
        -------
        array of shape (b,) or None
            None where features are enough.
        """
        return None

    def attach(self, features: Features, budget: int) -> None:  # noqa: B027 (most runs have nothing to do)
        """Called before rows are added to a run that was read from a file.

        Parameters
        ----------
        features : Features
            Those that the rows are mapped by.
        budget : int
            Bytes that the whole fit may take.
        """

    @abstractmethod
    def widen(self, n_targets: int) -> None:
        """Make room for targets that were zero in every row so far, such as the indicator of a class first met now.

        Parameters
        ----------
        n_targets : int
            Columns from now on.
        """

    def decay(self, factor: float) -> None:
        """Make earlier rows count less.

        Parameters
        ----------
        factor : float
            What the weight of every row so far is multiplied by.
        """
        raise TypeError(f"{type(self).__name__} cannot make earlier rows count less")

    def merge(self, other: Any) -> Any:
        """Add what a run over other rows has learnt.

        Parameters
        ----------
        other : Run
            Stays as it is.

        Returns
        -------
        Run
            This one.
        """
        raise TypeError(f"{type(self).__name__} depends on the order of its rows and does not merge")

    def end_pass(self) -> dict[str, float]:
        """Called after each pass over all rows.

        Returns
        -------
        dict of str to float
            Numbers for the history.
        """
        return {}

    def reopen(self) -> None:  # noqa: B027 (most runs have nothing to do)
        """Called before more rows, of which nobody knows how many will follow."""

    @abstractmethod
    def copy(self) -> Any:
        """Another run that goes on from here and leaves this one as it is.

        Returns
        -------
        Run
            Of the same class.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays and numbers from which `Learner.restore` makes the same run.

        Returns
        -------
        dict of str to object
            For a file or another process.
        """


class Learner(BaseEstimator, ABC):
    """Settings of a way to learn coefficients of features from batches.

    See Also
    --------
    Run : what `begin` returns.
    run_pass : drives a learner over a stream.

    Examples
    --------
    >>> from gramless.streaming.learners import LEARNERS
    >>> {name: learner.merges for name, learner in LEARNERS.items()}
    {'sums': True, 'steps': False}
    """

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
        """Bytes that a run must hold.

        Parameters
        ----------
        p : int
            Number of features.
        itemsize : int
            Bytes of one number.
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        dict of str to int
            Bytes by name.
        """

    def memory_left_out(self, p: int, n_columns: int, n_targets: int, itemsize: int, n_rows: int | None) -> int:
        """Bytes that leaving rows out one by one takes: the sample of them, and what `solve` makes of it.

        Parameters
        ----------
        p, n_columns, n_targets : int
            Features, columns of the data, and columns of targets.
        itemsize : int
            Bytes of one number.
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        int
            Zero where nothing is left out.
        """
        return 0

    def optional_memory(
        self, feature_map: FeatureMap, p: int, itemsize: int, n_rows: int | None, budget: int, left: int
    ) -> dict[str, int]:
        """Bytes that a run holds only where there is room for them.

        Parameters
        ----------
        feature_map : FeatureMap
            Where features come from.
        p : int
            Number of features.
        itemsize : int
            Bytes of one number.
        n_rows : int or None
            Rows of the data; None where nobody knows.
        budget : int
            Bytes that the whole fit may take.
        left : int
            Those of the budget that are left.

        Returns
        -------
        dict of str to int
            Bytes by name; zero where there is no room.
        """
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
        """A run that has learnt nothing yet.

        Parameters
        ----------
        features : Features
            Those that the rows will be mapped by.
        Phi : array of shape (s, n_features)
            Features of `rows_measured` random rows, or of fewer.
        n_targets : int
            Columns of targets.
        n_rows : int
            Rows of the data; with `known=False` those at hand, more will come.
        known : bool, default=True
            Whether `n_rows` are all rows.
        budget : int, default=0
            Bytes that the whole fit may take.
        own_targets : array of shape (n_features, n_targets), optional
            Target columns of the points that the features are made of.

        Returns
        -------
        Run
            To which rows are added.
        """

    @abstractmethod
    def restore(self, state: dict[str, Any], reference: Array | None = None) -> Any:
        """A run as it was saved.

        Parameters
        ----------
        state : dict
            What `Run.state` returned.
        reference : array, optional
            An array of the library and device to go on with; NumPy by default.

        Returns
        -------
        Run
            The same.
        """

    @abstractmethod
    def solve(self, run: Any, features: Features, left_out: LeftOut | None = None) -> Fit:
        """The coefficients that the run means.

        Parameters
        ----------
        run : Run
            What was learnt.
        features : Features
            Those that the rows were mapped by.
        left_out : (int, callable), optional
            How many rows are to be left out one by one, and a function that computes features, target columns and weights
            of a slice of them.

        Returns
        -------
        Fit
            Coefficients, bias, and how they were found.
        """
