"""Dispatch of dask collections to `gramless.distributed`.

An estimator that supports dask decorates `fit` with `dispatch_fit` and its prediction methods with `dispatch_prediction`.
Both decorators pass dask collections to `gramless.distributed`, and call the decorated method for all other data.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any


def is_dask_collection(x: Any) -> bool:
    """Return True for a dask array, dataframe or series, without importing dask."""
    return hasattr(x, "__dask_graph__") and hasattr(x, "to_delayed")


def _distributed() -> Any:
    # `gramless.distributed` needs dask, an optional dependency, so it is imported only when a dask collection is passed.
    # This is the only place in the project where a lower layer imports a higher one.
    try:
        return importlib.import_module("gramless.distributed")
    except ImportError as error:
        raise ImportError("dask collections need dask and distributed: pip install 'gramless[dask]'") from error


def dispatch_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `fit` so that the workers of the active dask client fit a model to dask collections.

    The estimator has a method `_fit_collections(rows, solve)` that calls `solve` to compute the model and stores the model;
    `rows` describes the rows on the workers.
    """

    @functools.wraps(fit)
    def dispatch(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if is_dask_collection(X):
            return self._fit_collections(*_distributed().fitting.prepare_fit(self, X, y, sample_weight))
        return fit(self, X, y, sample_weight)

    return dispatch


def dispatch_prediction(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a prediction method so that `X`, or the attribute `points_` of the model, may be a dask collection."""

    @functools.wraps(method)
    def dispatch(self: Any, X: Any) -> Any:
        if is_dask_collection(X):
            return _distributed().predict_partitions(self, method.__name__, X)
        if is_dask_collection(vars(self).get("points_")):
            return _distributed().predict_rows(self, method.__name__, X)
        return method(self, X)

    return dispatch
