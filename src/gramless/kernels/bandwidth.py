"""The values of `gamma="scale"`, `"auto"` and `"weighted_scale"` for dense, sparse and torch data.

"scale"           1 / (n_features * X.var())     scikit-learn's rule, without sample weights
"auto"            1 / n_features                 scikit-learn's rule
"weighted_scale"  1 / (n_features * weighted variance), so that a weight of 2 equals two copies of the row
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.kernels.tuning import TUNING


def resolve_gamma(gamma: float | str, X: Array, weights: np.ndarray | None = None) -> float:
    """Return `gamma` as a number for the data `X`; only `"weighted_scale"` uses the sample weights."""
    if isinstance(gamma, Real) and not isinstance(gamma, bool):
        if not 0 <= gamma < float("inf"):
            raise ValueError(f"gamma must be a finite number of at least 0, got {gamma!r}")
        return float(gamma)
    if gamma == "auto":
        return 1.0 / int(X.shape[1])
    if gamma in ("scale", "weighted_scale"):
        with np.errstate(over="ignore", invalid="ignore"):
            variance = _variance(X, weights if gamma == "weighted_scale" else None)
        if not np.isfinite(variance):
            raise ValueError(f"the squares of the data overflow: scale the data (StandardScaler) before gamma={gamma!r}")
        # For constant data gamma is 1, as in scikit-learn. The computed mean of equal numbers has a rounding error, so the
        # computed variance of constant data may be positive.
        rounding = TUNING.mean_roundings * float(np.finfo(np.float64).eps) * abs(float(X[0, 0]))
        spread = float(X.max()) - float(X.min()) if variance <= rounding**2 else variance**0.5
        if spread <= rounding:
            return 1.0
        if not X.shape[1] * variance * float(np.finfo(np.float64).max) > 1:
            raise ValueError(
                f"the data varies by only {spread:.3g}, the square of which underflows: scale the data "
                f"(StandardScaler) before gamma={gamma!r}"
            )
        return float(1.0 / (X.shape[1] * variance))
    raise ValueError(f"gamma must be a number, 'scale', 'weighted_scale' or 'auto', got {gamma!r}")


def _variance(X: Array, weights: np.ndarray | None) -> float:
    """Return the variance of all entries in float64, by two passes: one pass would lose all digits for a large mean."""
    if xa.is_sparse(X):
        return _sparse_variance(X, weights)
    n, d = int(X.shape[0]), int(X.shape[1])
    total = d * (n if weights is None else float(weights.sum()))

    def weighted(part: slice, values: Array) -> float:
        of_rows = xa.to_numpy(xa.namespace(values).sum(values, axis=1))
        return float(of_rows.sum() if weights is None else weights[part] @ of_rows)

    step = max(1, TUNING.variance_values // d)
    parts = [slice(start, start + step) for start in range(0, n, step)]
    mean = sum(weighted(part, xa.astype(X[part], np.float64)) for part in parts) / total
    return sum(weighted(part, (xa.astype(X[part], np.float64) - mean) ** 2) for part in parts) / total


def _sparse_variance(X: Any, weights: np.ndarray | None) -> float:
    X = xa.canonical_csr(X)
    counted = np.ones(X.shape[0]) if weights is None else weights
    total = float(counted.sum()) * X.shape[1]
    of_values = np.repeat(counted, np.diff(X.indptr))
    values = X.data.astype(np.float64)
    mean = float(of_values @ values) / total
    # Entries that are not stored are zero, and their deviation from the mean is -mean.
    return float((of_values @ (values - mean) ** 2 + (total - of_values.sum()) * mean**2) / total)
