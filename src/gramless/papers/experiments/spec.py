"""A declared experiment: data, features, estimator, grid, seeds, what the paper says, and how to show it.

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

from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.views import Table, View

Params = Mapping[str, Any]

QUICK_DATA = "scikit-learn's digits"
QUICK_CHOSEN = "declared for the full experiment"


@dataclass(frozen=True)
class Reference:
    """One figure the paper gives.

    Parameters
    ----------
    value : float
        The figure, in percent where the metric is a share.
    where : str
        The place in the paper, such as ``"Fig. 2(c)"``.
    params : mapping
        The fits it speaks of: those whose grid parameters contain these.
    metric : str, default="error"
        The metric it is a value of.
    spread : float, optional
        The paper's own plus-minus.

    See Also
    --------
    Spec : Holds references.

    Examples
    --------
    >>> from gramless.papers.experiments import Reference
    >>> Reference(1.1, "Fig. 2(c)", {"solver": "kaczmarz"}).matches({"solver": "kaczmarz", "block_size": 500})
    True
    """

    value: float
    where: str
    params: Params = field(default_factory=dict)
    metric: str = "error"
    spread: float | None = None

    def matches(self, params: Params) -> bool:
        """Say whether the paper's figure speaks of a fit.

        Parameters
        ----------
        params : mapping
            Its parameters.

        Returns
        -------
        bool
            Whether they contain those of the figure.
        """
        return all(key in params and params[key] == value for key, value in self.params.items())


@dataclass(frozen=True)
class Spec:
    """One experiment of one paper.

    Parameters
    ----------
    paper : str
        Short name of the paper, a key of `gramless.papers.experiments.PAPERS`.
    name : str
        Short name, unique within the paper: ``"mnist-solvers"``.
    title : str
        A heading for people, without the data, which `on` names.
    data : str or callable
        A name for `gramless.papers.datasets.load`, or a function of the seed that returns a `Dataset`.
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
    paper_says : sequence of Reference
        The paper's figures.
    about : str
        A sentence or two for the report: what is asked, what to look at. True of any data.
    quick : mapping or None
        The fields that differ in the quick form (embedded digits, a second or two per fit). ``data`` is
        ``"digits"`` unless the mapping says otherwise; the paper's figures are dropped, for they speak
        of other data, and so does `finding`. None leaves the
        experiment out of quick runs, where it would only repeat another one.
    on : str
        The data, as people call it.
    finding : str
        What was found on these data.
    headline : mapping or None
        Grid parameters of the setting whose mean error is the experiment's headline; it must be chosen without the test
        rows.
    chosen : str
        How it was chosen.
    pictures : callable, optional
        ``pictures(estimator, dataset)`` returns small pictures by name, for `Pictures` views: each a dict with
        ``image_shape`` and ``images``, of which each has ``said`` and ``pixels`` (base64 bytes).

    See Also
    --------
    run : Runs experiments.
    gramless.papers.report.write_report : Shows them.

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> from gramless.papers.experiments import Spec, product
    >>> def machine(params, seed):
    ...     return SVC(C=params["C"])
    >>> spec = Spec("smo", "demo", "A demonstration", "digits", machine, product(C=[1, 10]))
    >>> [params for params, seed in spec.fits()]
    [{'C': 1}, {'C': 10}]
    """

    paper: str
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
    paper_says: Sequence[Reference] = ()
    about: str = ""
    quick: Mapping[str, Any] | None = field(default_factory=dict)
    on: str = ""
    finding: str = ""
    headline: Params | None = None
    chosen: str = ""
    pictures: Callable[[Any, Dataset], Mapping[str, Any]] | None = None

    @property
    def heading(self) -> str:
        """The title with the data in front."""
        return f"{self.on}: {self.title[:1].lower() + self.title[1:]}" if self.on else self.title

    def quick_form(self) -> Spec:
        """Make the same experiment one of seconds, on data that needs no file.

        Returns
        -------
        Spec
            Another one.
        """
        if self.quick is None:
            raise ValueError(f"{self.paper}/{self.name} has no quick form")
        form = replace(
            self, **{"data": "digits", "on": QUICK_DATA, "paper_says": (), "finding": "", "quick": {}, **self.quick}
        )
        there = self.headline is not None and any(self.headline.items() <= params.items() for params in form.grid)
        # What was chosen for the full data was chosen without seeing these; how it was chosen speaks of the full data.
        return replace(form, chosen=QUICK_CHOSEN) if there else replace(form, headline=None, chosen="")

    def fits(self) -> Iterator[tuple[Params, int]]:
        """List the fits of the experiment; all points of the grid before the next seed.

        Yields
        ------
        params : mapping
            One point of the grid.
        seed : int
            The seed.
        """
        for seed in self.seeds:
            for params in self.grid:
                yield params, seed

    def dataset(self, seed: int) -> Dataset:
        """Load the data for one seed.

        Parameters
        ----------
        seed : int
            Decides a split that is drawn.

        Returns
        -------
        Dataset
            The data.
        """
        return load(self.data, seed=seed) if isinstance(self.data, str) else self.data(seed)

    def key(self, params: Params, seed: int, device: str | None = None) -> str:
        """Name one fit: a finished fit with this key is not repeated.

        It covers everything that is declared and decides the outcome; how results are shown is left out, so
        that a changed title or view costs no refit. It does not see inside functions: rename one whose
        meaning changes.

        Parameters
        ----------
        params : mapping
            One point of the grid.
        seed : int
            The seed.
        device : str, optional
            Where it is computed.

        Returns
        -------
        str
            Sixteen hexadecimal digits.
        """
        declared = {
            "document": self.paper,  # as in the keys of results that are already there
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
    """Combine the values of named axes in every way, the last axis running fastest.

    Parameters
    ----------
    **axes : sequence
        The values of each parameter.

    Returns
    -------
    tuple of dict
        The points of the grid.

    See Also
    --------
    Spec : Has a grid.

    Examples
    --------
    >>> from gramless.papers.experiments import product
    >>> product(solver=["cg"], block_size=[500, 1000])
    ({'solver': 'cg', 'block_size': 500}, {'solver': 'cg', 'block_size': 1000})
    """
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def _name_of(declared: str | Callable[..., Any] | None) -> str | None:
    if declared is None or isinstance(declared, str):
        return declared
    return f"{declared.__module__}.{declared.__qualname__}"
