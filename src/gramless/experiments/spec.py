"""A declared experiment: data, features, estimator, grid, seeds, what the document says, and how to show it.

A `Spec` holds no results and runs nothing. Its functions are ordinary module-level functions, because each
fit runs in a process of its own and receives the spec by pickle.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gramless.datasets import Dataset, load
from gramless.experiments.views import Table, View

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Reference:
    """One figure the document gives.

    Parameters
    ----------
    value : float
        The figure, in percent where the metric is a share.
    where : str
        The place in the document, such as ``"Fig. 2(c)"``.
    params : mapping
        The fits it speaks of: those whose grid parameters contain these.
    metric : str, default="error"
        The metric it is a value of.
    spread : float, optional
        The document's own plus-minus.
    """

    value: float
    where: str
    params: Params = field(default_factory=dict)
    metric: str = "error"
    spread: float | None = None

    def matches(self, params: Params) -> bool:
        """Whether the document's figure speaks of a fit with these parameters."""
        return all(key in params and params[key] == value for key, value in self.params.items())


@dataclass(frozen=True)
class Spec:
    """One experiment of one document.

    Parameters
    ----------
    document : str
        Short name of the document, a key of `gramless.experiments.DOCUMENTS`.
    name : str
        Short name, unique within the document: ``"mnist-solvers"``.
    title : str
        A heading for people.
    data : str or callable
        A name for `gramless.datasets.load`, or a function of the seed that returns a `Dataset`.
    estimator : callable
        ``estimator(params, seed)`` returns the estimator (or pipeline) to fit. `params` is one point of the
        grid.
    grid : sequence of dict
        The points to fit; values are plain JSON (numbers, strings, lists). `product` writes grids of axes.
    features : callable, optional
        ``features(params, seed)`` returns a transformer, or None, applied before the estimator and timed
        apart.
    seeds : sequence of int, default=(0,)
        Each point of the grid is fitted once per seed.
    folds : int, default=0
        When positive, also a stratified cross-validation on the training half: metric ``cv_error``.
    evaluate_every : int, default=0
        When positive, the test error after every so many iterations goes into the history; needs an
        estimator with a `callback` parameter. The clock of the fit does not see it.
    extras : callable, optional
        ``extras(estimator, dataset)`` returns further metrics of the fitted estimator, a dict of numbers;
        `dataset` has the features applied.
    views : sequence of views
        What the report draws, in order. Bars of time and memory are always drawn.
    document_says : sequence of Reference
        The document's figures.
    about : str
        A sentence or two for the report: what is asked, what to look at. Our own words.
    quick : mapping or None
        The fields that differ in the quick form (embedded digits, a second or two per fit). ``data`` is
        ``"digits"`` unless the mapping says otherwise; the document's figures are dropped, for they speak
        of other data. None leaves the
        experiment out of quick runs, where it would only repeat another one.

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> from gramless.experiments import Spec, product
    >>> def machine(params, seed):
    ...     return SVC(C=params["C"])
    >>> spec = Spec("smo", "demo", "A demonstration", "digits", machine, product(C=[1, 10]))
    >>> [params for params, seed in spec.fits()]
    [{'C': 1}, {'C': 10}]
    """

    document: str
    name: str
    title: str
    data: str | Callable[[int], Dataset]
    estimator: Callable[[Params, int], Any]
    grid: Sequence[Params]
    features: Callable[[Params, int], Any] | None = None
    seeds: Sequence[int] = (0,)
    folds: int = 0
    evaluate_every: int = 0
    extras: Callable[[Any, Dataset], Mapping[str, float]] | None = None
    views: Sequence[View] = (Table(),)
    document_says: Sequence[Reference] = ()
    about: str = ""
    quick: Mapping[str, Any] | None = field(default_factory=dict)

    def quick_form(self) -> Spec:
        """The same experiment in seconds, on data that needs no file."""
        if self.quick is None:
            raise ValueError(f"{self.document}/{self.name} has no quick form")
        return replace(self, **{"data": "digits", "document_says": (), "quick": {}, **self.quick})

    def fits(self) -> Iterator[tuple[Params, int]]:
        """Every (parameters, seed) of the experiment; all points of the grid before the next seed."""
        for seed in self.seeds:
            for params in self.grid:
                yield params, seed

    def dataset(self, seed: int) -> Dataset:
        """Load the data for one seed."""
        return load(self.data, seed=seed) if isinstance(self.data, str) else self.data(seed)

    def key(self, params: Params, seed: int, device: str | None = None) -> str:
        """Names one fit: a finished fit with this key is not repeated.

        It covers everything that is declared and decides the outcome; how results are shown is left out, so
        that a changed title or view costs no refit. It does not see inside functions: rename one whose
        meaning changes.
        """
        declared = {
            "document": self.document,
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


def product(**axes: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the named axes, the last one running fastest.

    Examples
    --------
    >>> from gramless.experiments import product
    >>> product(solver=["cg"], block_size=[500, 1000])
    ({'solver': 'cg', 'block_size': 500}, {'solver': 'cg', 'block_size': 1000})
    """
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def _name_of(declared: str | Callable[..., Any] | None) -> str | None:
    if declared is None or isinstance(declared, str):
        return declared
    return f"{declared.__module__}.{declared.__qualname__}"
