"""What a feature map is: settings that, shown some rows, choose features.

    feature_map.begin(X, y, rng) -> Features,     Features(X) -> Phi,     f(x) = Phi(x) A + b,     penalty tr(A^T P A)

A `FeatureMap` only has settings. `begin` sees some rows and returns `Features`: what was chosen, which maps rows, has a
penalty `P` and can be saved. Nothing here knows where rows come from or how `A` is found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.threads import slices
from gramless.kernels import Kernel

_SCORED_ROWS = 4096


class Features(ABC):
    """Features that were chosen.

    Attributes
    ----------
    kernel : Kernel
        The kernel whose functions the features span, every setting a number.
    targets : ndarray or None
        The targets of the rows that became points of the model, where the features are made of such rows.
    """

    kernel: Kernel
    targets: np.ndarray | None = None
    jitter: float | None = None
    """What was added to a matrix of the features before it could be factored; None where nothing is factored."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Columns of `Phi`."""

    @abstractmethod
    def __call__(self, X: Array) -> Array:
        """Features `Phi` of shape (n, n_features), in the library, device and dtype of `X`; valid until the next call."""

    @property
    def identity_penalty(self) -> bool:
        """Whether `P` is the identity."""
        return True

    def penalty(self) -> Array:
        """`P` in float64, or None for the identity."""
        return None

    def penalty_product(self, A: Array, nbytes: int) -> Array:
        """`P A`, holding no more than `nbytes` between two calls."""
        return A

    def coefficients(self, A: np.ndarray) -> np.ndarray:
        """Coefficients of the model from those of the features."""
        return A

    def scores(self, X: Array, coef: Array, precision: str = "highest") -> Array:
        """`f(x) - b` for each row, from the model's coefficients, which are where the rows are."""
        out = xa.empty((int(X.shape[0]), int(coef.shape[1])), coef)
        for rows in slices(int(X.shape[0]), _SCORED_ROWS):
            out[rows] = self(X[rows]) @ coef
        return out

    def for_prediction(self) -> Features:
        """These features, or a copy, without what only learning needs."""
        return self

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays, numbers and text from which `FeatureMap.restore` makes the same features."""


class FeatureMap(BaseEstimator, ABC):
    """Settings from which `begin` makes features."""

    accepts_sparse: bool = True
    """Whether the features understand CSR rows."""
    looks_at_rows: ClassVar[bool] = True
    """Whether what is chosen depends on the rows seen; if not, a seed draws the same features whatever they are."""
    keeps_penalty: bool = False
    """Whether products with the penalty are faster where a matrix is held."""

    @abstractmethod
    def n_features(self, n_rows: int | None) -> int:
        """How many features there are going to be for data of `n_rows` rows (None: not known)."""

    def rows_needed(self, n_rows: int | None) -> int:
        """Rows of the data's `n_rows` (None: not known) without which `begin` cannot choose."""
        return 1

    @abstractmethod
    def rows_wanted(self, n_rows: int | None) -> int:
        """Rows that `begin` is content with where every row costs memory."""

    def named_rows(self, n_rows: int | None) -> np.ndarray | None:
        """Numbers of rows that the user named; `begin` is handed them as `named`."""
        return None

    @abstractmethod
    def begin(
        self,
        X: Array,
        y: np.ndarray | None,
        rng: np.random.RandomState,
        *,
        n_rows: int | None = None,
        weights: np.ndarray | None = None,
        named: tuple[Array, np.ndarray | None] | None = None,
    ) -> Features:
        """Choose features.

        Parameters
        ----------
        X : array of shape (n, d)
            A sample of the rows, on the device and in the dtype of the computation.
        y : ndarray or None
            Their targets, as the user has them.
        rng : RandomState
        n_rows : int or None
            Rows of the data in all.
        weights : ndarray of shape (n,), optional
            Positive.
        named : (X, y), optional
            The rows of `named_rows`.

        Returns
        -------
        Features
        """

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> Features:
        """The features whose `state()` this is."""
