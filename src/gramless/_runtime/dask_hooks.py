"""Where dask collections enter, recognised by what they can do so that nobody else imports dask.

`fit` of an estimator that can be fitted on many machines is wrapped in `fits_collections`, its prediction methods in
`over_partitions`; both hand dask collections over to `gramless.distributed` and leave everything else alone.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any


def is_dask(x: Any) -> bool:
    """Whether `x` is a dask array, dataframe or series."""
    return hasattr(x, "__dask_graph__") and hasattr(x, "to_delayed")


def _distributed() -> Any:
    # By name: a static import would tie every layer to the one above it.
    try:
        return importlib.import_module("gramless.distributed")
    except ImportError as error:
        raise ImportError("dask collections need dask and distributed: pip install 'gramless[dask]'") from error


def fits_collections(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` that hands dask collections over to the workers of the active client."""

    @functools.wraps(fit)
    def either(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if is_dask(X):
            return _distributed().fit(self, X, y, sample_weight)
        return fit(self, X, y, sample_weight)

    return either


def over_partitions(method: Callable[..., Any]) -> Callable[..., Any]:
    """A prediction method that maps lazily over the partitions of a collection, or over points that live on workers."""

    @functools.wraps(method)
    def either(self: Any, X: Any) -> Any:
        if is_dask(X):
            return _distributed().lazily(self, method.__name__, X)
        if is_dask(self.__dict__.get("points_")):
            return _distributed().at_once(self, method.__name__, X)
        return method(self, X)

    return either
