"""What `gamma="scale"` and `gamma="auto"` mean: scikit-learn's rules, for dense, sparse and torch data."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import numpy as np

from gramless import _array as xa
from gramless._array import Array
from gramless._parallel import slices

_ROWS_AT_A_TIME = 1024
_ROUNDINGS = 16.0


def resolve_gamma(gamma: float | str, X: Array, weights: np.ndarray | None = None) -> float:
    """A positive number from `gamma`: itself, `1 / (n_features * X.var())` or `1 / n_features`.

    With sample weights the variance is weighted, so that a weight of 2 equals two copies of the row.
    """
    if isinstance(gamma, Real) and not isinstance(gamma, bool):
        if not 0 <= gamma < float("inf"):
            raise ValueError(f"gamma must be a finite number of at least 0, got {gamma!r}")
        return float(gamma)
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if gamma == "scale":
        with np.errstate(over="ignore", invalid="ignore"):
            variance = _variance(X) if weights is None else _weighted_variance(X, weights)
        if not np.isfinite(variance):
            raise ValueError("the squares of the data overflow: scale the data (StandardScaler) before gamma='scale'")
        # Constant data has no scale; 1 is what scikit-learn answers there too. The mean of equal numbers is off by some
        # roundings, and the spread around it with it.
        rounding = _ROUNDINGS * float(np.finfo(np.float64).eps) * abs(float(X[0, 0]))
        return 1.0 / (X.shape[1] * variance) if variance > rounding**2 else 1.0
    raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {gamma!r}")


def _variance(X: Array) -> float:
    if xa.is_sparse(X):
        size = X.shape[0] * X.shape[1]
        mean = X.sum(dtype="float64") / size
        return float(X.multiply(X).sum(dtype="float64") / size - mean**2)
    if xa.is_torch(X):
        return float(X.double().var(correction=0)) if X.numel() < 1 << 24 else float(X.var(correction=0))
    return float(X.var(dtype="float64"))


def _weighted_variance(X: Array, weights: np.ndarray) -> float:
    total = float(weights.sum()) * X.shape[1]
    if xa.is_sparse(X):
        sums, squares = np.asarray(X.sum(axis=1)).ravel(), xa.square_norms(X)
        mean = float(weights @ sums.astype(np.float64)) / total
        return float(weights @ squares.astype(np.float64)) / total - mean**2
    mean = _weighted_sum(X, weights, lambda part: part) / total
    # Around the mean: of data far from the origin the difference of two large sums has no digit left.
    return _weighted_sum(X, weights, lambda part: (part - mean) ** 2) / total


def _weighted_sum(X: Array, weights: np.ndarray, function: Callable[[Array], Array]) -> float:
    """`sum_i w_i sum_j function(X_ij)` in float64, some rows at a time."""
    xp = xa.namespace(X)
    sums = [xp.sum(function(xa.astype(X[rows], np.float64)), axis=1) for rows in slices(X.shape[0], _ROWS_AT_A_TIME)]
    return float(weights @ xa.to_numpy(xp.concat(sums)))
