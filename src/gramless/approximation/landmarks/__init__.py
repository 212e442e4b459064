"""Landmarks: the points of a Nyström model, selected from the training rows.

A rule selects `m` rows of `X`, or computes `m` new points. `select` accepts the name of a rule, a rule with its settings, or
the user's own row indices or points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.landmarks.basis_construction import BasisConstruction
from gramless.approximation.landmarks.kmeans import KMeans
from gramless.approximation.landmarks.pivoted_cholesky import RPCholesky
from gramless.approximation.landmarks.renyi import Renyi
from gramless.approximation.landmarks.rule import LandmarkRule, limit_memory
from gramless.approximation.landmarks.uniform import Uniform
from gramless.kernels.base import Kernel

LANDMARKS: dict[str, type[LandmarkRule]] = {
    "uniform": Uniform,
    "basis": BasisConstruction,
    "rpcholesky": RPCholesky,
    "renyi": Renyi,
    "kmeans": KMeans,
}
"""The landmark rules by the names that estimators accept as `landmarks=`."""

__all__ = [
    "LANDMARKS",
    "BasisConstruction",
    "KMeans",
    "LandmarkRule",
    "RPCholesky",
    "Renyi",
    "Uniform",
    "as_points",
    "select",
]


def select(
    rule: str | LandmarkRule | Any,
    X: Array,
    kernel: Kernel,
    m: int,
    rng: np.random.RandomState,
    nbytes: int | None = None,
) -> Array:
    """Select the landmarks for the argument `landmarks` of an estimator.

    Parameters
    ----------
    rule : str, LandmarkRule or array-like
        A name of `LANDMARKS`, a rule with its settings, a vector of row indices of `X`, or a matrix of points with the
        columns of `X`.
    X : array of shape (n, d)
        Rows in floating point: NumPy, CSR or torch.
    kernel : Kernel
        Kernel with numeric settings.
    m : int
        Number of landmarks, at most `n`; ignored for row indices and points.
    rng : RandomState
        Random generator.
    nbytes : int, optional
        Limit in bytes on the memory that a rule of this package allocates; None is the default of the rule.

    Returns
    -------
    array
        Row indices (a NumPy integer vector; fewer than `m` if the data has fewer distinct directions), or points (a matrix
        with the array namespace and dtype of `X`). `as_points` converts both to points.

    See Also
    --------
    LandmarkRule : Base class of the rules.
    as_points : Converts a selection to points.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import select
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> select("rpcholesky", X, RBF(gamma=0.5), 10, np.random.RandomState(0)).shape
    (10,)
    >>> select([3, 1, 4], X, RBF(gamma=0.5), 10, np.random.RandomState(0))
    array([3, 1, 4])
    """
    if isinstance(rule, str):
        if rule not in LANDMARKS:
            raise ValueError(f"unknown landmarks {rule!r}; known: {', '.join(map(repr, sorted(LANDMARKS)))}")
        rule = LANDMARKS[rule]()
    if isinstance(rule, LandmarkRule):
        if m < 1:
            raise ValueError(f"at least one landmark is needed, got {m!r}")
        with limit_memory(nbytes):
            return rule.select(X, kernel, min(int(m), X.shape[0]), rng)
    return _check_given(rule, X, kernel)


def as_points(landmarks: Array, X: Array) -> Array:
    """Return the points of a selection: rows of `X` for row indices, points unchanged.

    Parameters
    ----------
    landmarks : array of shape (m,) or (m, d)
        Result of `select`.
    X : array of shape (n, d)
        Rows from which the landmarks were selected.

    Returns
    -------
    array of shape (m, d)
        Points.

    See Also
    --------
    select : Selects the landmarks.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.approximation.landmarks import as_points
    >>> as_points(np.array([2]), np.array([[0.0], [1.0], [5.0]]))
    array([[5.]])
    """
    return landmarks if landmarks.ndim == 2 else xa.take_rows(X, landmarks)


def _check_given(landmarks: Any, X: Array, kernel: Kernel) -> Array:
    """Return the user's row indices or points after validation."""
    if not xa.is_sparse(landmarks) and not xa.is_torch(landmarks):
        landmarks = np.asarray(landmarks)
    if landmarks.ndim == 1:
        rows = xa.to_numpy(landmarks)
        if rows.dtype.kind not in "iu":
            raise TypeError(f"landmarks given as a vector must be row numbers (integers), got {rows.dtype}")
        if rows.size == 0:
            raise ValueError("at least one landmark is needed, got an empty vector of row numbers")
        if rows.min() < 0 or rows.max() >= X.shape[0]:
            raise ValueError(f"landmarks must be row numbers from 0 to {X.shape[0] - 1}, got {rows.min()} to {rows.max()}")
        return rows.astype(np.intp)
    if landmarks.ndim != 2 or landmarks.shape[0] == 0 or landmarks.shape[1] != X.shape[1]:
        raise ValueError(
            f"landmarks given as points must be a matrix with the {X.shape[1]} columns of X, "
            f"got shape {tuple(landmarks.shape)}"
        )
    if not kernel.uses_points:
        raise ValueError("with a precomputed kernel, landmarks must be row numbers")
    if xa.is_sparse(X):
        return type(X)(landmarks).astype(X.dtype, copy=False)
    return xa.like(landmarks.toarray() if xa.is_sparse(landmarks) else landmarks, X)
