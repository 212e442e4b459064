"""Declaration of an experiment: data, features, estimator, grid, seeds, values of the paper, and figures of the report.

A `Spec` contains no results and runs nothing. Its functions are module-level functions because each fit runs in a separate
process, which receives the spec by pickle.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.functions import DeclaredFunction, Params, read_functions
from gramless.papers.experiments.results import contains

QUICK_DATA = "scikit-learn's digits"


@dataclass(frozen=True)
class History:
    """Figure with one line per fit: the entry `y` of the history records against the entry `x`.

    `series` are the parameters that name the lines (by default those that vary), and `facet` is a parameter with one chart
    for each of its values.
    """

    y: str = "error"
    x: str = "n_iter"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """Figure of the mean and standard deviation of the metric `y` over the seeds against the parameter `x`."""

    x: str
    y: str = "error"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Table with one row per grid point: our value, the paper's value if there is one, and the difference.

    `rows` are the parameters that name a row (by default those that vary).
    """

    metrics: tuple[str, ...] = ("error", "seconds", "peak_mb")
    rows: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of the headline fit, or of the best fit whose parameters contain `where`."""

    where: Params = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class Gallery:
    """At most `limit` misclassified test images of one fit, chosen as for `Confusion`."""

    where: Params = field(default_factory=dict)
    limit: int = 60
    title: str = ""


@dataclass(frozen=True)
class Pictures:
    """Images that `Spec.pictures` stored in the record under `key`, such as the atoms of a dictionary."""

    key: str
    title: str
    where: Params = field(default_factory=dict)
    captions: bool = True


View = History | Curve | Table | Confusion | Gallery | Pictures


@dataclass(frozen=True)
class Reference:
    """A value printed in the paper at `where`, with its plus-minus, for the fits whose parameters contain `params`."""

    value: float
    where: str
    params: Params = field(default_factory=dict)
    metric: str = "error"
    spread: float | None = None

    def matches(self, params: Params) -> bool:
        """Return True if `params` contain the parameters of the reference."""
        return contains(params, self.params)


@dataclass(frozen=True)
class Spec:
    """One experiment of one paper; `name` is unique within the paper."""

    paper: str
    name: str
    title: str
    # Name for `gramless.papers.datasets.load`, or a function of the seed.
    data: str | Callable[[int], Dataset]
    # Function of a grid point and the seed that returns the estimator or pipeline.
    estimator: Callable[[Params, int], Any]
    # Grid points; their values are plain JSON because they are stored in the records.
    grid: Sequence[Params]
    # Function of a grid point and the seed that returns a transformer applied before the estimator and timed separately.
    features: Callable[[Params, int], Any] | None = None
    seeds: Sequence[int] = (0,)
    # Number of folds of a stratified cross-validation on the training rows, the metric `cv_error`; 0 for none.
    folds: int = 0
    # Interval in iterations at which the test error is added to the history; 0 for never. Not counted in the seconds.
    evaluate_every: int = 0
    # Function of the fitted estimator and the dataset (features applied) that returns further metrics.
    extras: Callable[[Any, Dataset], Mapping[str, float]] | None = None
    # Function of the fitted estimator and the dataset that returns images by name: `image_shape`, and `images` with `said`
    # (the caption) and `pixels` (base64 bytes).
    pictures: Callable[[Any, Dataset], Mapping[str, Any]] | None = None
    views: Sequence[View] = (Table(),)
    # Values of the paper; those of its claims are added by `registry.specs`.
    references: Sequence[Reference] = ()
    # Description of the experiment that is true for any data, name of the data, and result on these data.
    about: str = ""
    data_label: str = ""
    finding: str = ""
    # Parameters of the setting whose mean error represents the experiment, chosen without the test rows, and the reason.
    headline: Params | None = None
    headline_reason: str = ""
    # Fields that differ in the quick form, by default on scikit-learn's digits; None if there is no quick form.
    quick: Mapping[str, Any] | None = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Return the title preceded by the name of the data."""
        return f"{self.data_label}: {self.title[:1].lower() + self.title[1:]}" if self.data_label else self.title

    def quick_form(self) -> Spec:
        """Return the form of a few seconds on data that need no file, without the paper's values and our finding."""
        if self.quick is None:
            raise ValueError(f"{self.paper}/{self.name} has no quick form")
        defaults = {"data": "digits", "data_label": QUICK_DATA, "references": (), "finding": "", "quick": {}}
        form = replace(self, **{**defaults, **self.quick})
        headline, reason = self.headline, "declared for the full experiment"
        if headline is None or not any(headline.items() <= params.items() for params in form.grid):
            headline, reason = None, ""
        return replace(form, headline=headline, headline_reason=reason)

    def fits(self) -> Iterator[tuple[Params, int]]:
        """Yield the grid point and seed of each fit, all grid points of a seed before the next seed."""
        return ((params, seed) for seed in self.seeds for params in self.grid)

    def dataset(self, seed: int) -> Dataset:
        """Load the data."""
        return load(self.data, seed=seed) if isinstance(self.data, str) else self.data(seed)

    def key(self, params: Params, seed: int, device: str | None = None) -> str:
        """Return the identifier of a fit, a hash of all declared values that affect its result.

        Changes inside a function are not part of the hash: rename a function whose meaning changes.
        """
        declared = {
            "paper": self.paper,
            "name": self.name,
            "data": _name_of(self.data),
            "features": _name_of(self.features),
            "estimator": _name_of(self.estimator),
            "extras": _name_of(self.extras),
            "folds": self.folds,
            "evaluate_every": self.evaluate_every,
            "params": params,
            "seed": seed,
            "device": device,
        }
        return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def read_texts(paper: str) -> dict[str, Any]:
    """Return the contents of the file `<paper>.toml`."""
    return tomllib.loads(Path(__file__).with_name(f"{paper}.toml").read_text(encoding="utf-8"))


@functools.cache
def read_specs(paper: str) -> tuple[Spec, ...]:
    """Return the experiments of the paper's file."""
    texts, module = read_texts(paper), {}
    if Path(__file__).with_name(f"{paper}.py").exists():
        module = vars(importlib.import_module(f"gramless.papers.experiments.{paper}"))
    functions = {**module, **read_functions(texts["functions"], module)}
    declared = texts["experiments"]
    return tuple(
        Spec(paper, name, **_fields({**declared.get(own.get("like"), {}), **own}, functions))
        for name, own in declared.items()
    )


def _fields(declared: Mapping[str, Any], functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Spec`, or of its quick form, from a table of the file."""
    fields: dict[str, Any] = {key: value for key, value in declared.items() if key != "like"}
    for key in {"features", "estimator", "extras", "pictures"} & fields.keys():
        fields[key] = functions[fields[key]]
    if "data" in fields:
        fields["data"] = functions.get(fields["data"], fields["data"])
    if "grid" in fields:
        fields["grid"] = read_grid(fields["grid"])
    if "views" in fields:
        fields["views"] = tuple(_view(**given) for given in fields["views"])
    if "quick" in fields:
        fields["quick"] = _fields(fields["quick"], functions) if fields["quick"] is not False else None
    return fields | {key: tuple(fields[key]) for key in {"seeds"} & fields.keys()}


def _view(view: str, **fields: Any) -> View:
    kinds: tuple[Callable[..., View], ...] = (History, Curve, Table, Confusion, Gallery, Pictures)
    kind = {kind.__name__.lower(): kind for kind in kinds}[view]
    return kind(**{key: tuple(x) if isinstance(x, list) else x for key, x in fields.items()})


def read_grid(products: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the points of a grid, the union of products; a list is an axis, and another value is constant."""
    axes = ({key: x if isinstance(x, list) else [x] for key, x in part.items()} for part in products)
    return tuple(point for part in axes for point in product(**part))


def product(**axes: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return all combinations of the values of named parameters; the last parameter varies fastest."""
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def _name_of(declared: str | DeclaredFunction | Callable[..., Any] | None) -> str | None:
    if isinstance(declared, DeclaredFunction):
        return declared.name
    return declared if declared is None or isinstance(declared, str) else declared.__qualname__
