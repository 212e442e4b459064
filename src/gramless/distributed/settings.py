"""Which settings a fit on many machines honours: a setting that it cannot honour is refused by name, none is ignored.

Every fit names the settings that it reads. Any other must be at its default, so that a setting that is new to an estimator
is refused until somebody says what it means on a cluster.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

WHY = {
    "callback": "workers are on their own until the end, and what a lost one did is done again without a checkpoint",
    "device": "the workers compute on their processors",
    "forgetting_factor": "it needs rows in an order, and partitions are summed in any order",
    "memory_budget": "what a worker may hold is the cluster's to say: Client(memory_limit=...)",
    "warm_start": "every fit on a cluster starts from zero",
}
"""Why a setting means nothing on a cluster, or what takes its place."""

_AS_GOOD_AS_DEFAULT = {"device": ("cpu",)}


def check_settings(estimator: Any, honoured: Collection[str]) -> None:
    """Raise a `ValueError` that names the first setting of `estimator` that is neither honoured nor at its default.

    Parameters
    ----------
    estimator : estimator
    honoured : collection of str
        The settings that the fit reads.

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
    """Whether a setting is at its default; arrays and objects are not compared entry by entry."""
    plain = (str, int, float, bool)
    return value is default or (isinstance(value, plain) and isinstance(default, plain) and value == default)
