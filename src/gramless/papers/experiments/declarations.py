"""Declarations in the TOML files of the papers: papers, experiments, functions, claims and comparisons.

The file `<paper>.toml` has the heading of a paper, its experiments, the functions that the experiments name, and its claims.
Functions that cannot be declared are in `<paper>.py`. An entry of `[functions]` has settings and one of these keys:

- `load` names a dataset, and the settings are arguments of `load_data`.
- `class` names a class that is called with the settings; grid parameters and the seed replace settings of the same names.
  The settings under `by.PARAMETER.VALUE` are used if the grid parameter PARAMETER has the value VALUE.
- `function` names a function of `<paper>.py` that is called with the settings as keyword arguments.

Missing settings are copied from the entry that `like` names. All functions are module-level functions because each fit runs
in a separate process, which receives the `Spec` by pickle.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset, with_inherited
from gramless.papers.datasets import load as load_dataset
from gramless.papers.experiments import measures
from gramless.papers.experiments.measures import Measure
from gramless.papers.experiments.results import Record, contains

Params = Mapping[str, Any]

QUICK_DATA = "scikit-learn's digits"


@dataclass(frozen=True)
class Paper:
    """Heading and summary of a chapter of the report, and bibliographic data of its paper, empty if there is no paper."""

    heading: str
    summary: str
    authors: Sequence[str] = ()
    title: str = ""
    year: int | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Return authors, title, year and note as a sentence, or an empty string for a chapter without a paper."""
        if not self.title:
            return ""
        *most, last = self.authors or ("Anonymous authors",)
        authors = f"{', '.join(most)} and {last}" if most else last
        year = "" if self.year is None else f", {self.year}"
        return f"{authors}, {self.title}{year}. {self.note}".strip()

    def bibtex(self, key: str) -> str:
        """Return the BibTeX entry of the paper."""
        fields = {
            "author": " and ".join(self.authors) or "{Anonymous authors}",
            "title": f"{{{self.title}}}",
            "year": "" if self.year is None else str(self.year),
            "note": self.note.rstrip("."),
        }
        lines = [f"  {name} = {{{given}}}," for name, given in fields.items() if given]
        return "\n".join([f"@misc{{{key},", *lines, "}"])


@dataclass(frozen=True)
class Curve:
    """Figure of the mean and standard deviation of the metric `y` over the seeds against the parameter `x`.

    `series` are the parameters that distinguish the lines (by default all parameters that vary). With `facet`, there is one
    chart for each value of this parameter.
    """

    x: str
    y: str = "error"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class History(Curve):
    """Figure with one line per fit, which shows the entry `y` of the training history against the entry `x`."""

    x: str = "n_iter"


@dataclass(frozen=True)
class Table:
    """Table with one row per grid point: the measured value, the paper's value if there is one, and the difference.

    `rows` are the parameters that identify a row of the table (by default all parameters that vary).
    """

    metrics: tuple[str, ...] = ("error", "seconds", "peak_mb")
    rows: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of the first seed of the headline setting, chosen among settings whose parameters contain `where`."""

    where: Params = field(default_factory=dict)
    title: str = ""

    def content(self, record: Record) -> Mapping[str, Any] | None:
        """Return the part of a record that the view shows, or None if the record does not have this part."""
        return record.get("confusion")


@dataclass(frozen=True)
class Gallery(Confusion):
    """At most `limit` misclassified test images of one fit, the same fit that `Confusion` shows."""

    limit: int = 60

    def content(self, record: Record) -> Mapping[str, Any] | None:
        return record.get("misclassified")


@dataclass(frozen=True)
class Pictures(Confusion):
    """Images that `Spec.pictures` stored in the record under `key`, such as the atoms of a dictionary."""

    key: str = ""
    captions: bool = True

    def content(self, record: Record) -> Mapping[str, Any] | None:
        found = (record.get("pictures") or {}).get(self.key)
        return found if found and found["images"] else None


View = Curve | Table | Confusion


@dataclass(frozen=True)
class Reference:
    """Value printed in the paper at `where`, with the plus-minus `spread`, for fits whose parameters contain `params`."""

    value: float
    where: str
    params: Params = field(default_factory=dict)
    metric: str = "error"
    spread: float | None = None


@dataclass(frozen=True)
class Spec:
    """One experiment of one paper; `name` is unique within the paper."""

    paper: str
    name: str
    title: str
    # Name of a dataset for `gramless.papers.datasets.load`, or a function that returns the dataset for a seed.
    data: str | Callable[[int], Dataset]
    # Function of a grid point and the seed that returns the estimator or pipeline.
    estimator: Callable[[Params, int], Any]
    # Grid points. The values of the parameters are plain JSON, because records store the parameters.
    grid: Sequence[Params]
    # Function of a grid point and the seed that returns a transformer applied before the estimator and timed separately.
    features: Callable[[Params, int], Any] | None = None
    seeds: Sequence[int] = (0,)
    # Number of folds of a stratified cross-validation on the training rows, which gives the metric `cv_error`; 0 for none.
    folds: int = 0
    # Interval in iterations at which the test error is added to the training history; 0 for never. The time of these
    # evaluations is not part of the metric `seconds`.
    evaluate_every: int = 0
    # Function of the fitted estimator and the dataset (transformed by `features`) that returns further metrics.
    extras: Callable[[Any, Dataset], Mapping[str, float]] | None = None
    # Function of the fitted estimator and the dataset that returns images by name: `image_shape`, and `images` with `said`
    # (the caption) and `pixels` (base64 bytes).
    pictures: Callable[[Any, Dataset], Mapping[str, Any]] | None = None
    views: Sequence[View] = (Table(),)
    # Values printed in the paper, from the comparisons that test its claims.
    references: Sequence[Reference] = ()
    # Description of the experiment that is true for any dataset, name of its dataset, and result on this dataset.
    about: str = ""
    data_label: str = ""
    finding: str = ""
    # Parameters of the setting whose mean error represents the experiment in the report, chosen without the test rows, and
    # the reason for this choice.
    headline: Params | None = None
    headline_reason: str = ""
    # Fields that differ in the quick form, which uses scikit-learn's digits by default; None if there is no quick form.
    quick: Mapping[str, Any] | None = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Return the title of the experiment, preceded by the name of the dataset."""
        return f"{self.data_label}: {self.title[:1].lower() + self.title[1:]}" if self.data_label else self.title

    def quick_form(self) -> Spec:
        """Return the quick form, which takes a few seconds and has no data file, no values of the paper and no finding."""
        if self.quick is None:
            raise ValueError(f"{self.paper}/{self.name} has no quick form")
        defaults = {"data": "digits", "data_label": QUICK_DATA, "references": (), "finding": "", "quick": {}}
        form = replace(self, **{**defaults, **self.quick})
        if self.headline is None or not any(contains(params, self.headline) for params in form.grid):
            return replace(form, headline=None, headline_reason="")
        return replace(form, headline_reason="declared for the full experiment")

    def fits(self) -> Iterator[tuple[Params, int]]:
        """Yield the grid point and seed of each fit, all grid points of a seed before the next seed."""
        return ((params, seed) for seed in self.seeds for params in self.grid)

    def dataset(self, seed: int) -> Dataset:
        """Return the dataset of the experiment for a seed."""
        return load_dataset(self.data, seed=seed) if isinstance(self.data, str) else self.data(seed)

    def key(self, params: Params, seed: int, device: str | None = None) -> str:
        """Return the identifier of a fit, a hash of all declared values that affect its result.

        Changes inside a function are not part of the hash: rename a function whose meaning changes.
        """
        declared = {"paper": self.paper, "name": self.name, "folds": self.folds, "evaluate_every": self.evaluate_every}
        for name in ("data", "features", "estimator", "extras"):
            value = getattr(self, name)
            declared[name] = getattr(value, "__qualname__", value)
        declared |= {"params": params, "seed": seed, "device": device}
        return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]


class Cause(StrEnum):
    """Cause of a verdict: why a claim is reproduced or not."""

    REPRODUCED = "reproduced"
    IMPLAUSIBLE = "paper implausible"
    UNSPECIFIED = "data not available or unspecified"
    AMBIGUOUS = "reading ambiguous: both shown"
    LIMIT = "our limit"


@dataclass(frozen=True)
class Printed:
    """Value of the paper with all printed digits, such as `Printed("97.20")`, and the printed plus-minus.

    `other_rows` is True if the test rows of the paper are not the test rows of this experiment.
    """

    printed: str
    plus_minus: str = "0"
    other_rows: bool = False

    @property
    def value(self) -> float:
        """Return the printed value as a number."""
        return float(self.printed)

    @property
    def rounding(self) -> float:
        """Return the uncertainty of the value: half a unit of the last printed digit, plus the printed plus-minus."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2]) + float(self.plus_minus)

    def __str__(self) -> str:
        return self.printed if float(self.plus_minus) == 0 else f"{self.printed} ± {self.plus_minus}"


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "near": lambda gap, tolerance: abs(gap) <= tolerance,
    "below": lambda gap, tolerance: gap < -tolerance,
    "above": lambda gap, tolerance: gap > tolerance,
    "at most": lambda gap, tolerance: gap <= tolerance,
    "at least": lambda gap, tolerance: gap >= -tolerance,
}


@dataclass(frozen=True)
class Comparison:
    """Condition of a claim, such as "the error of the setting `one` is below that of the setting `other`".

    `other` is a value of the paper (`Printed`), a bound stated by the claim (a number), or the parameters of another setting
    of `other_experiment` (by default of the same experiment). With `along`, both settings are compared at each value of this
    parameter. With `factor`, the ratio of both values is compared with `factor`; without it, their difference is compared
    with 0. `within` replaces the default tolerance. `reading` names the interpretation of an ambiguous paper to which the
    comparison belongs, and `deterministic` states that neither setting depends on the seed.
    """

    experiment: str
    one: Params
    relation: str
    other: Params | Printed | float
    measure: str | Measure = "error"
    along: str | None = None
    factor: float | None = None
    within: float | None = None
    other_experiment: str | None = None
    reading: str = ""
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"unknown relation {self.relation!r}; known are {', '.join(RELATIONS)}")

    @property
    def metric(self) -> str:
        """Return the name of the compared metric, empty for a `Measure`."""
        return self.measure if isinstance(self.measure, str) else ""

    def settings(self) -> list[tuple[str, Params]]:
        """Return the experiment and the parameters of each setting that is compared."""
        sides = [(self.experiment, self.one)]
        if isinstance(self.other, Mapping):
            sides.append((self.other_experiment or self.experiment, self.other))
        return sides


@dataclass(frozen=True)
class Claim:
    """Paraphrased claim of a paper, its place in the paper, its printed value, and the comparisons that test the claim.

    `cause` and `reason` explain the verdict; a test checks that both agree with the verdict from the committed records.
    """

    name: str
    statement: str
    where: str
    comparisons: tuple[Comparison, ...] = ()
    printed: str = ""
    cause: Cause = Cause.REPRODUCED
    reason: str = ""


@functools.cache
def read_texts(paper: str) -> dict[str, Any]:
    """Return the contents of the file `<paper>.toml`."""
    return tomllib.loads(Path(__file__).with_name(f"{paper}.toml").read_text(encoding="utf-8"))


PAPERS = {name: Paper(**read_texts(name)["paper"]) for name in ("randomized", "budget", "risvo", "prototypes", "smo")}
"""The five papers by the short names of the command line."""

CHAPTERS = {**PAPERS, "images": Paper(**read_texts("images")["paper"])}
"""The papers, and a chapter about methods that are not in the papers."""


@functools.cache
def specs(paper: str = "all") -> tuple[Spec, ...]:
    """Return the experiments of one chapter, or of all chapters."""
    if paper == "all":
        return tuple(spec for name in CHAPTERS for spec in specs(name))
    if paper not in CHAPTERS:
        raise ValueError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    texts, functions = read_texts(paper), _read_functions(paper)
    return tuple(
        Spec(
            paper,
            name,
            references=tuple(_printed_values(paper, name)),
            **_fields(with_inherited(own, texts["experiments"]), functions),
        )
        for name, own in texts["experiments"].items()
    )


def _printed_values(paper: str, experiment: str) -> Iterator[Reference]:
    """Yield the printed values of the paper with which its claims compare an experiment."""
    for claim in claims(paper):
        for comparison in claim.comparisons:
            measure, other = comparison.measure, comparison.other
            metric = measure.metric if isinstance(measure, Measure) else measure
            if comparison.experiment == experiment and isinstance(other, Printed) and metric:
                yield Reference(other.value, claim.where, comparison.one, metric, float(other.plus_minus) or None)


def _fields(declared: Mapping[str, Any], functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Spec`, or of its quick form, from a table of the TOML file."""
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("features", "estimator", "extras", "pictures"), functions.__getitem__),
        "data": lambda name: functions.get(name, name),
        "seeds": tuple,
        "grid": read_grid,
        "views": lambda views: tuple(_view(**fields) for fields in views),
        "quick": lambda fields: None if fields is False else _fields(fields, functions),
    }
    return {key: readers[key](value) if key in readers else value for key, value in declared.items()}


def _view(view: str, **fields: Any) -> View:
    kinds: tuple[Callable[..., View], ...] = (History, Curve, Table, Confusion, Gallery, Pictures)
    kind = {kind.__name__.lower(): kind for kind in kinds}[view]
    return kind(**{key: tuple(x) if isinstance(x, list) else x for key, x in fields.items()})


def read_grid(products: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the points of a grid, a union of Cartesian products in which lists are axes and other values are constant."""
    axes = ({key: x if isinstance(x, list) else [x] for key, x in part.items()} for part in products)
    return tuple(point for part in axes for point in product(**part))


def product(**axes: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return all combinations of the values of named parameters; the last parameter varies fastest."""
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def _read_functions(paper: str) -> dict[str, Callable[..., Any]]:
    """Return the functions of a paper by name: functions of `<paper>.py`, and functions that `[functions]` declares."""
    declared = read_texts(paper)["functions"]
    module: dict[str, Any] = {"build": build, "load_data": load_data}
    if Path(__file__).with_name(f"{paper}.py").exists():
        module |= vars(importlib.import_module(f"gramless.papers.experiments.{paper}"))
    functions = dict(module)
    for name, own in declared.items():
        settings = _settings(own, declared)
        function = settings.pop("function", "load_data" if {"load", "bundled"} & settings.keys() else "build")
        configured: Any = functools.partial(module[function], **settings)
        configured.__qualname__ = name  # the name is part of `Spec.key`
        functions[name] = configured
    return functions


def _settings(own: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return own and inherited settings of an entry and of its nested entries, with lists converted to tuples."""
    settings = with_inherited(own, declared)
    for key, value in settings.items():
        if isinstance(value, dict):
            settings[key] = _settings(value, declared)
        elif isinstance(value, list):
            settings[key] = tuple(value)
    return settings


def build(params: Params, seed: int, **settings: Any) -> Any:
    """Return an object of the class `settings["class"]`; nested settings that name a class are built recursively."""
    for parameter, choices in settings.pop("by", {}).items():
        settings |= choices[params[parameter]]
        params = {key: value for key, value in params.items() if key != parameter}
    module, _, name = settings.pop("class").rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    given = {key: build(params, seed, **value) if isinstance(value, dict) else value for key, value in settings.items()}
    accepted = inspect.signature(cls).parameters
    return cls(**given | {key: value for key, value in {**params, "random_state": seed}.items() if key in accepted})


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
    """Return the dataset `load`, or the dataset `bundled` of scikit-learn, after the steps of the other arguments.

    With `divide`, features are divided, increased by `add` and, with `unit_length`, scaled to unit norm, in float32. Labels
    become 1 for the class `positive` and 0 for others. `only` selects classes, `sample` draws training rows, `discard_test`
    discards test rows. All rows are split again if `test_rows` is given or no test rows are left (default: 25 % test rows).
    """
    data = Dataset.bundled(bundled) if bundled else load_dataset(load, seed=seed)
    if divide is not None:
        x: dict[str, Any] = {key: np.asarray(getattr(data, key), dtype=np.float32) for key in ("x_train", "x_test")}
        x = {key: rows / np.float32(divide) + np.float32(add) for key, rows in x.items()}
        if unit_length:
            x = {key: rows / np.linalg.norm(rows, axis=1, keepdims=True) for key, rows in x.items()}
        data = replace(data, **x)
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


@functools.cache
def claims(paper: str) -> tuple[Claim, ...]:
    """Return the claims that the file of a paper declares; a chapter without a paper has no claims."""
    found = []
    for name, texts in read_texts(paper).get("claims", {}).items():
        comparisons = tuple(_comparisons(texts.get("comparisons", ())))
        cause = Cause[texts.get("cause", "REPRODUCED")]
        found.append(Claim(name, **{**texts, "comparisons": comparisons, "cause": cause}))
    return tuple(found)


def _comparisons(declared: Sequence[Mapping[str, Any]]) -> Iterator[Comparison]:
    """Yield a comparison for each entry and each point of its grid `for`, whose values replace "{name}" in the entry."""
    for entry in declared:
        for point in read_grid(entry.get("for", [{}])):
            fields = _filled({key: value for key, value in entry.items() if key != "for"}, point)
            if isinstance(fields["other"], dict) and "printed" in fields["other"]:
                fields["other"] = Printed(**fields["other"])
            if isinstance(fields.get("measure"), list):
                name, *arguments = fields["measure"]
                fields["measure"] = getattr(measures, name)(*arguments)
            yield Comparison(**fields)


def _filled(value: Any, point: Mapping[str, Any]) -> Any:
    """Replace each "{name}" in strings by the text of `point[name]`, or a string that is only "{name}" by the object."""
    if isinstance(value, dict):
        return {key: _filled(part, point) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, point) for part in value]
    if isinstance(value, str):
        name = re.fullmatch(r"\{(\w+)\}", value)
        return point[name[1]] if name else value.format_map(point)
    return value


def claim_named(paper: str, name: str) -> Claim:
    """Return the claim of a paper with the given name."""
    stated = {claim.name: claim for claim in claims(paper)}
    if name not in stated:
        raise ValueError(f"no claim named {name!r} in {paper}; there are: {', '.join(stated) or 'none'}")
    return stated[name]


def specs_of_claim(paper: str, claim: Claim) -> list[Spec]:
    """Return the experiments that the comparisons of a claim need, each restricted to the settings in these comparisons."""
    needed = [side for comparison in claim.comparisons for side in comparison.settings()]
    found = []
    for spec in specs(paper):
        wanted = [params for name, params in needed if name == spec.name]
        if wanted:
            grid = tuple(point for point in spec.grid if any(contains(point, params) for params in wanted))
            found.append(replace(spec, grid=grid))
    return found


def records_of(selected: Sequence[Spec], records: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the records of fits of the given experiments, without records of earlier declarations of the experiments."""
    by_name = {(spec.paper, spec.name): spec for spec in selected}
    found = []
    for record in records:
        spec = by_name.get((record["paper"], record["experiment"]))
        if spec is not None and record["key"] == spec.key(record["params"], record["seed"], record.get("device")):
            found.append(record)
    return found
