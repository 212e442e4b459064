"""Lazy prediction for dask collections, one task per partition, and prediction by models whose points are on the workers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np

from gramless._core.arrays import to_numpy
from gramless._core.dask_dispatch import is_dask_collection
from gramless._core.validation import check_X
from gramless.distributed.collections import lazy_array, row_parts
from gramless.linalg.operators import expand

_ROWS_AT_ONCE = 8192


def predict_partitions(estimator: Any, method: str, X: Any) -> da.Array:
    """Return the result of a prediction method for a collection as a lazy dask array.

    `estimator.predict(X)` calls this function if `X` is a dask collection.

    Parameters
    ----------
    estimator : estimator
        Estimator fitted locally or on a cluster.
    method : {"predict", "decision_function", "predict_proba"}
        Name of the method.
    X : dask array of shape (n_samples, n_features) or dask dataframe
        Rows to predict.

    Returns
    -------
    dask.array.Array
        Lazy result of the method, with the partitions of `X`.

    See Also
    --------
    predict_rows : Predict for rows in local memory.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from gramless import NystromLSSVR
    >>> from gramless.distributed import predict_partitions
    >>> X = np.linspace(0, 3, 60)[:, None]
    >>> model = NystromLSSVR(n_landmarks=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> predict_partitions(model, "predict", da.from_array(X, chunks=(20, 1))).numblocks
    (3,)
    """
    if not is_dask_collection(vars(estimator).get("points_")):
        return _by_blocks(estimator, method, X)
    check_X(estimator, _example(X), dtype=estimator.dual_coef_.dtype, reset=False)
    return _by_blocks(estimator._model_of_scores(), method, _scores_by_workers(estimator, X))


def predict_rows(estimator: Any, method: str, X: Any) -> np.ndarray:
    """Return the result of a prediction method for local rows, by a model whose points are on the workers.

    `estimator.predict(X)` calls this function if the points of the model are on the workers.

    Parameters
    ----------
    estimator : LSSVC or LSSVR
        Estimator fitted to dask collections.
    method : {"predict", "decision_function", "predict_proba"}
        Name of the method.
    X : array of shape (n_samples, n_features)
        Rows to predict.

    Returns
    -------
    ndarray
        Result of the method.

    See Also
    --------
    predict_partitions : Predict for the rows of a collection.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from gramless import LSSVC
    >>> from gramless.distributed import predict_rows
    >>> X = da.random.default_rng(0).normal(size=(200, 3), chunks=(100, 3))
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     model = LSSVC(solver="cg", random_state=0).fit(X, (X[:, 0] > 0).astype(int))
    ...     labels = predict_rows(model, "predict", [[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    >>> labels
    array([1, 0])
    """
    X = check_X(estimator, X, dtype=estimator.dual_coef_.dtype, accept_sparse=False, reset=False)
    rows = da.from_array(to_numpy(X), chunks=(_ROWS_AT_ONCE, -1))
    return _by_blocks(estimator._model_of_scores(), method, _scores_by_workers(estimator, rows)).compute()


def _example(X: Any) -> Any:
    return X._meta_nonempty if hasattr(X, "columns") else np.zeros((1, *X.shape[1:]), X.dtype)


def _by_blocks(model: Any, method: str, X: Any) -> da.Array:
    """Return the lazy result of a prediction method for each partition of a collection, by a model in local memory."""
    meta = np.asarray(getattr(model, method)(_example(X)))
    parts, lengths = row_parts(X)
    shared, apply = dask.delayed(model, traverse=False, pure=False), dask.delayed(_apply, pure=False)
    return lazy_array([apply(shared, method, part, meta) for part in parts], lengths, meta.shape[1:], meta.dtype)


def _apply(estimator: Any, method: str, X: Any, meta: np.ndarray) -> np.ndarray:
    if len(X) == 0:  # an empty partition, for example after a filter
        return meta[:0]
    return np.asarray(getattr(estimator, method)(X))


def _scores_by_workers(estimator: Any, X: Any) -> da.Array:
    """Return `K(X, points) @ coef + intercept`, summed over the partitions of the points."""
    points, coef = estimator.points_, estimator.dual_coef_
    edges = np.cumsum([0, *points.chunks[0]])
    shares = [dask.delayed(coef[a:b], traverse=False) for a, b in pairwise(edges)]
    finite = dask.delayed(_finite, pure=False)
    expanded, added = dask.delayed(expand, pure=False), dask.delayed(_add, pure=False)
    held = points.to_delayed().ravel().tolist()
    parts, lengths = row_parts(X)
    scores = []
    for part in parts:
        checked = finite(part, points.shape[1], points.dtype)
        pieces = [expanded(estimator.kernel_, checked, p, a) for p, a in zip(held, shares, strict=True)]
        scores.append(added(pieces, estimator.intercept_))
    return lazy_array(scores, lengths, coef.shape[1:], np.result_type(coef, estimator.intercept_))


def _finite(X: Any, n_features: int, dtype: np.dtype) -> np.ndarray:
    X = np.ascontiguousarray(X, dtype=dtype)
    if X.shape[1:] != (n_features,):
        raise ValueError(f"a block of X has the shape {X.shape}; expected {n_features} columns")
    if not np.isfinite(X).all():
        raise ValueError("Input X contains NaN or infinity")
    return X


def _add(parts: list[np.ndarray], intercept: np.ndarray) -> np.ndarray:
    return sum(parts[1:], start=parts[0] + intercept)
