"""Dispatch of dask collections to `gramless.distributed`.

`fit` of an estimator that supports dask is decorated with `dispatch_fit`, its prediction methods with `dispatch_prediction`.
Both pass dask collections to the handler that `gramless/__init__.py` registers, and call the method itself for other data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol


class Handler(Protocol):
    """What fits and predicts on many machines."""

    def fit(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """`estimator`, fitted to collections."""
        ...

    def predict_partitions(self, estimator: Any, method: str, X: Any) -> Any:
        """The result of a prediction method for a collection: lazy, partition by partition."""
        ...

    def predict_rows(self, estimator: Any, method: str, X: Any) -> Any:
        """The result of a prediction method for rows on this machine by a model whose points are on the workers."""
        ...


def _unregistered() -> Handler:
    raise RuntimeError("nothing has been registered for dask collections: import gramless first")


_load: Callable[[], Any] = _unregistered


def register(load: Callable[[], Any]) -> None:
    """Set the function that imports and returns the handler; it is called when the first collection comes."""
    global _load
    _load = load


def is_dask_collection(x: Any) -> bool:
    """Whether `x` is a dask array, dataframe or series."""
    return hasattr(x, "__dask_graph__") and hasattr(x, "to_delayed")


def _handler() -> Handler:
    try:
        return _load()
    except ImportError as error:
        raise ImportError("dask collections need dask and distributed: pip install 'gramless[dask]'") from error


def dispatch_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` that hands dask collections over to the workers of the active client."""

    @functools.wraps(fit)
    def either(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if is_dask_collection(X):
            return _handler().fit(self, X, y, sample_weight)
        return fit(self, X, y, sample_weight)

    return either


def dispatch_prediction(method: Callable[..., Any]) -> Callable[..., Any]:
    """A prediction method that maps over the partitions of a collection, or over points that live on workers."""

    @functools.wraps(method)
    def either(self: Any, X: Any) -> Any:
        if is_dask_collection(X):
            return _handler().predict_partitions(self, method.__name__, X)
        if is_dask_collection(vars(self).get("points_")):
            return _handler().predict_rows(self, method.__name__, X)
        return method(self, X)

    return either
