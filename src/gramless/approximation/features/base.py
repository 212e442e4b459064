"""Interface of feature maps: settings that determine features, given a sample of the rows.

    feature_map.begin(sample, rng) -> Features,     Features(X) -> Phi,     f(x) = Phi(x) A + b,     penalty tr(A^T P A)

A `FeatureMap` has only settings. `begin` examines a sample of the rows and returns `Features`, which map rows to `Phi`, have
a penalty `P` and can be saved. Neither class depends on the source of the rows or on the learner that finds `A`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless.kernels import Kernel

_SCORED_ROWS = 4096  # number of rows whose features `scores` computes at a time


class Features(ABC):
    """A fitted feature map: a callable that maps rows to `Phi`."""

    kernel: Kernel
    targets: np.ndarray | None = None
    jitter: float | None = None
    """Number added to the diagonal of the kernel matrix before its factorisation; None without a factorisation."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features (columns of `Phi`)."""

    @abstractmethod
    def __call__(self, X: Array) -> Array:
        """Return `Phi` of shape (n, n_features) with the device and dtype of `X`; the next call may overwrite the result."""

    @property
    def identity_penalty(self) -> bool:
        """Whether `P` is the identity."""
        return True

    def penalty(self) -> Array | None:
        """Return the matrix `P` in float64, or None for the identity."""
        return None

    def penalty_product(self, A: Array, nbytes: int) -> Array:
        """Return the product `P A`; at most `nbytes` bytes are cached between two calls."""
        return A

    def coefficients(self, A: np.ndarray) -> np.ndarray:
        """Return the argument `coef` of `scores`, given the coefficients `A` of the features."""
        return A

    def scores(self, X: Array, coef: Array, precision: str = "highest") -> Array:
        """Return the score without intercept, `f(x) - b`, of each row; `precision` is for float32 products on a GPU."""
        out = xa.empty((int(X.shape[0]), int(coef.shape[1])), coef)
        for rows in slices(int(X.shape[0]), _SCORED_ROWS):
            out[rows] = self(X[rows]) @ coef
        return out

    def for_prediction(self) -> Features:
        """Return a copy without the arrays that only training needs."""
        return self

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return arrays, numbers and strings from which `FeatureMap.restore` builds the same features."""


@dataclass
class SampledRows:
    """Sample of the rows from which features are chosen."""

    X: Array
    y: np.ndarray | None = None
    weights: np.ndarray | None = None
    n_rows: int | None = None
    """Number of all rows; None if unknown."""
    named: tuple[Array, np.ndarray | None] | None = None
    """Features and targets of the rows `FeatureMap.named_rows`."""
    nbytes: int | None = None
    """Bytes of memory that the choice of the features may allocate in addition to the rows."""


class FeatureMap(BaseEstimator, ABC):
    """Parameters of a feature map; `begin` fits it to a sample of the rows and returns the features."""

    accepts_sparse: bool = True
    """Whether the features accept CSR rows."""
    depends_on_rows: ClassVar[bool] = True
    """Whether the features depend on the sampled rows; otherwise the same seed gives the same features for all rows."""
    keeps_penalty: bool = False
    """Whether products with the penalty use a cached matrix."""

    @abstractmethod
    def n_features(self, n_rows: int | None) -> int:
        """Return the number of features for `n_rows` rows (None if unknown)."""

    def rows_needed(self, n_rows: int | None) -> int:
        """Return the smallest number of rows that `begin` accepts."""
        return 1

    @abstractmethod
    def rows_wanted(self, n_rows: int | None) -> int:
        """Return the number of rows in the sample for `begin` if the data can be read only once."""

    def named_rows(self, n_rows: int | None) -> np.ndarray | None:
        """Return the row indices that the user passed as landmarks, or None; the rows are passed in `SampledRows.named`."""
        return None

    @abstractmethod
    def begin(self, sample: SampledRows, rng: np.random.RandomState) -> Features:
        """Return features chosen from a sample of the rows."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> Features:
        """Return the features that `Features.state` saved."""
