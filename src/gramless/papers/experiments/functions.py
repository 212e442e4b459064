"""Data, transformers and estimators that a paper declares under `[functions]` in its file.

An entry has settings and one of these keys. `load` names a dataset, and the settings are those of `load_data`. `class` is a
class, called with the settings; grid parameters and the seed replace settings of the same names. `function` is a function of
`<paper>.py`, called with the settings as keyword arguments. Settings that are missing are those of the entry `like`. The
settings of a class under `by.PARAMETER.VALUE` are used if the grid parameter has this value.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset
from gramless.papers.datasets import load as load_dataset

Params = Mapping[str, Any]


@dataclass(frozen=True)
class DeclaredFunction:
    """Function with the settings of its entry; the name of the entry is part of the key of a fit."""

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments, **self.settings)


def read_functions(declared: Mapping[str, Any], module: Mapping[str, Any]) -> dict[str, DeclaredFunction]:
    """Return the functions of the entries by name; `module` has the functions of `<paper>.py`."""
    functions = {}
    for name, own in declared.items():
        settings = _with_inherited(own, declared)
        if "function" in settings:
            function = module[settings.pop("function")]
        else:
            function = load_data if {"load", "bundled"} & settings.keys() else build
        functions[name] = DeclaredFunction(name, function, settings)
    return functions


def _with_inherited(own: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an entry together with those of the entry `like`, tuples instead of lists."""
    inherited = _with_inherited(declared[own["like"]], declared) if "like" in own else {}
    for key, value in own.items():
        if isinstance(value, dict):
            value = _with_inherited(value, declared)
        inherited[key] = tuple(value) if isinstance(value, list) else value
    return {key: value for key, value in inherited.items() if key != "like"}


def build(params: Params, seed: int, **settings: Any) -> Any:
    """Return an object of the class `settings["class"]`; settings that name a class are built in the same way."""
    for parameter, choices in settings.pop("by", {}).items():
        settings |= choices[params[parameter]]
        params = {key: value for key, value in params.items() if key != parameter}
    module, _, name = settings["class"].rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    given = {key: build(params, seed, **x) if isinstance(x, dict) else x for key, x in settings.items() if key != "class"}
    accepted = inspect.signature(cls).parameters
    return cls(**given | {key: x for key, x in {**params, "random_state": seed}.items() if key in accepted})


def load_data(
    seed: int,
    *,
    load: str = "",
    bundled: str = "",
    divide: float | None = None,
    add: float = 0,
    unit_length: bool = False,
    positive: int | None = None,
    only: Sequence[int] | None = None,
    sample: int | None = None,
    discard_test: bool = False,
    test_rows: int | None = None,
) -> Dataset:
    """Return a dataset by its name, or the dataset `bundled` of scikit-learn, after the steps of the other arguments.

    In this order: features are divided by `divide`, increased by `add` and scaled to `unit_length` in float32; labels become
    1 for the class `positive` and 0 for others; `only` some classes remain; `sample` training rows are drawn; test rows are
    discarded (`discard_test`); all rows are split again with `test_rows` test rows, or a quarter if there are none.
    """
    data = _bundled(bundled) if bundled else load_dataset(load, seed=seed)
    if divide is not None:
        data = _transformed(data, lambda x: x / np.float32(divide) + np.float32(add))
    if unit_length:
        data = _transformed(data, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))
    if positive is not None:
        labels = {key: (getattr(data, key) == positive).astype(int) for key in ("y_train", "y_test")}
        data = replace(data, **labels, class_names=None)
    if only is not None:
        data = data.only(only)
    if sample is not None:
        data = data.sample(sample, seed=seed)
    if discard_test:
        data = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
    if test_rows is None and len(data.y_test):
        return data
    return data.resplit(0.25 if test_rows is None else test_rows, seed=seed)


def _bundled(name: str) -> Dataset:
    import sklearn.datasets  # the import takes 0.1 s

    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return Dataset.unsplit(x, y, name=name.replace("_", " "))


def _transformed(data: Dataset, function: Callable[[np.ndarray], np.ndarray]) -> Dataset:
    x_train, x_test = (function(np.asarray(x, dtype=np.float32)) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)
