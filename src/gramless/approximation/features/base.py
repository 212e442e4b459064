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

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.kernels import Kernel

_SCORED_ROWS = 4096


class Features(ABC):
    """Features that were chosen: call them with rows.

    Attributes
    ----------
    kernel : Kernel
        The kernel whose functions the features span, every setting a number.
    targets : ndarray or None
        The targets of the rows that became points of the model, where the features are made of such rows.

    See Also
    --------
    FeatureMap : the settings whose `begin` returns features.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.approximation.features import Features, FourierMap
    >>> features = FourierMap(n_components=6).begin(np.eye(3), None, np.random.RandomState(0))
    >>> isinstance(features, Features), features.n_features, features.identity_penalty
    (True, 6, True)
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

    def penalty(self) -> Array | None:
        """The matrix `P` in float64, or None for the identity."""
        return None

    def penalty_product(self, A: Array, nbytes: int) -> Array:
        """The product `P A`.

        Parameters
        ----------
        A : array of shape (n_features, k)
            Coefficients of the features.
        nbytes : int
            What may be held between two calls.

        Returns
        -------
        array of shape (n_features, k)
            Where `A` is.
        """
        return A

    def coefficients(self, A: np.ndarray) -> np.ndarray:
        """Coefficients of the model from those of the features.

        Parameters
        ----------
        A : ndarray of shape (n_features, k)
            Coefficients of the features.

        Returns
        -------
        ndarray of shape (n_features, k)
            What predictions are computed with.
        """
        return A

    def scores(self, X: Array, coef: Array, precision: str = "highest") -> Array:
        """The model's function without its bias, `f(x) - b`, for each row.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows.
        coef : array of shape (n_features, k)
            The model's coefficients, where the rows are.
        precision : {"highest", "high", "medium"}, default="highest"
            Of products in float32 on a GPU.

        Returns
        -------
        array of shape (n, k)
            Where the rows are.
        """
        out = xa.empty((int(X.shape[0]), int(coef.shape[1])), coef)
        for rows in slices(int(X.shape[0]), _SCORED_ROWS):
            out[rows] = self(X[rows]) @ coef
        return out

    def for_prediction(self) -> Features:
        """These features, or a copy, without what only learning needs.

        Returns
        -------
        Features
            Which map rows to the same numbers, up to a linear map that the model's coefficients know.
        """
        return self

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays, numbers and text from which `FeatureMap.restore` makes the same features."""


class FeatureMap(BaseEstimator, ABC):
    """Settings from which `begin` makes features.

    See Also
    --------
    Features : what `begin` returns.
    gramless.streaming.learners.Learner : what finds coefficients of the features.

    Examples
    --------
    >>> from gramless.approximation.features import FEATURE_MAPS, FeatureMap
    >>> all(issubclass(each, FeatureMap) for each in FEATURE_MAPS.values())
    True
    """

    accepts_sparse: bool = True
    """Whether the features understand CSR rows."""
    looks_at_rows: ClassVar[bool] = True
    """Whether what is chosen depends on the rows seen; if not, a seed draws the same features whatever they are."""
    keeps_penalty: bool = False
    """Whether products with the penalty are faster where a matrix is held."""

    @abstractmethod
    def n_features(self, n_rows: int | None) -> int:
        """How many features there are going to be.

        Parameters
        ----------
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        int
            Columns of `Phi`.
        """

    def rows_needed(self, n_rows: int | None) -> int:
        """Rows without which `begin` cannot choose.

        Parameters
        ----------
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        int
            At least 1.
        """
        return 1

    @abstractmethod
    def rows_wanted(self, n_rows: int | None) -> int:
        """Rows that `begin` is content with where every row costs memory.

        Parameters
        ----------
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        int
            At least `rows_needed`.
        """

    def named_rows(self, n_rows: int | None) -> np.ndarray | None:
        """Numbers of rows that the user named; `begin` is handed them as `named`.

        Parameters
        ----------
        n_rows : int or None
            Rows of the data; None where nobody knows.

        Returns
        -------
        ndarray of int or None
            None where the user named no rows.
        """
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
        nbytes: int | None = None,
    ) -> Features:
        """Choose features.

        Parameters
        ----------
        X : array of shape (n, d)
            A sample of the rows, on the device and in the dtype of the computation.
        y : ndarray or None
            Their targets, as the user has them.
        rng : RandomState
            Draws what is random.
        n_rows : int or None
            Rows of the data in all.
        weights : ndarray of shape (n,), optional
            Positive.
        named : (X, y), optional
            The rows of `named_rows`.
        nbytes : int, optional
            What choosing may hold beside the rows, as far as there is a choice.

        Returns
        -------
        Features
            What was chosen.
        """

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> Features:
        """Features as they were saved.

        Parameters
        ----------
        state : dict
            What `Features.state` returned.

        Returns
        -------
        Features
            The same.
        """
