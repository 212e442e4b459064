"""Dispatch of dask collections to `gramless.distributed`.

`fit` of an estimator that supports dask is decorated with `dispatch_fit`, its prediction methods with `dispatch_prediction`.
Both pass dask collections to `gramless.distributed`, and call the decorated method for all other data.
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
    # The package above the estimators, imported here when the first collection is passed: it needs dask, an optional
    # dependency. This is the only import against the order of the layers.
    try:
        return importlib.import_module("gramless.distributed")
    except ImportError as error:
        raise ImportError("dask collections need dask and distributed: pip install 'gramless[dask]'") from error


def dispatch_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `fit` so that dask collections are fitted by the workers of the active client.

    The estimator stores the result in its method `_fit_collections(rows, solve)`, where `rows` are the rows on the workers
    and `solve` computes the model.
    """

    @functools.wraps(fit)
    def dispatch(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if is_dask_collection(X):
            return self._fit_collections(*_distributed().fitting.prepare_fit(self, X, y, sample_weight))
        return fit(self, X, y, sample_weight)

    return dispatch


def dispatch_prediction(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a prediction method for dask collections, and for models whose points are stored on dask workers."""

    @functools.wraps(method)
    def dispatch(self: Any, X: Any) -> Any:
        if is_dask_collection(X):
            return _distributed().predict_partitions(self, method.__name__, X)
        if is_dask_collection(vars(self).get("points_")):
            return _distributed().predict_rows(self, method.__name__, X)
        return method(self, X)

    return dispatch
