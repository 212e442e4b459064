"""Check that a distributed fit supports the parameters of an estimator.

Each fit lists the parameters that it reads. Every other parameter must have its default value, so no parameter is ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

WHY = {
    "callback": "workers do not report until the end, and a lost result is computed again without a checkpoint",
    "device": "the workers compute on their CPUs",
    "forgetting_factor": "it needs an order of the rows, and partitions are summed in any order",
    "memory_budget": "the cluster sets the memory of a worker: Client(memory_limit=...)",
    "warm_start": "every fit on a cluster starts from zero",
}
"""Reason why a parameter is not supported on a cluster, or its replacement."""

_AS_GOOD_AS_DEFAULT = {"device": ("cpu",)}


def check_settings(estimator: Any, honoured: Collection[str]) -> None:
    """Raise a `ValueError` that names the first parameter that is neither in `honoured` nor at its default value.

    Examples
    --------
    >>> from gramless import LSSVC
    >>> from gramless.distributed.settings import check_settings
    >>> check_settings(LSSVC(C=10.0, verbose=1), {"C"})
    Traceback (most recent call last):
    ...
    ValueError: verbose=1 cannot be honoured on dask collections; set verbose=0
    """
    defaults = inspect.signature(type(estimator)).parameters
    for setting, value in estimator.get_params(deep=False).items():
        default = defaults[setting].default
        if setting in honoured or same(value, default) or value in _AS_GOOD_AS_DEFAULT.get(setting, ()):
            continue
        why = f": {WHY[setting]}" if setting in WHY else ""
        raise ValueError(f"{setting}={value!r} cannot be honoured on dask collections{why}; set {setting}={default!r}")


def same(value: Any, default: Any) -> bool:
    """Return True if a parameter has its default value; arrays and objects are compared by identity."""
    plain = (str, int, float, bool)
    return value is default or (isinstance(value, plain) and isinstance(default, plain) and value == default)
