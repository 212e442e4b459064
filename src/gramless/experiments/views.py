"""How an experiment is shown: small declarations that the report draws.

A view names what it draws by the keys of a finished fit: a grid parameter (``"block_size"``), a metric
(``"error"``, ``"seconds"``, ...) or, for `History`, a key of the history records (``"n_iter"``,
``"residual"``). Metrics that are shares are in percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class History:
    """One line per fit: what `y` did while the fit ran (error against iteration)."""

    y: str = "error"
    x: str = "n_iter"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """One line per value of `series`: mean and standard deviation of `y` over the seeds, against parameter
    `x`.
    """

    x: str
    y: str = "error"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Table:
    """One row per point of the grid; for each metric ours, the document's where it gives one, and the
    difference.
    """

    metrics: tuple[str, ...] = ("error", "seconds", "peak_mb")
    rows: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of the fit with the lowest error among those whose parameters match `where`."""

    where: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class Gallery:
    """Misclassified test images, with true and predicted label, of the best fit that matches `where`."""

    where: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 60
    title: str = ""


@dataclass(frozen=True)
class Claim:
    """The mean of `metric` over the seeds, for the fits of `one`, is not more than `margin` under that of `other`.

    Parameters
    ----------
    says : str
        The claim as a sentence without its full stop.
    one, other : mapping
        Grid parameters that pick out the two sides.
    along : str, optional
        A parameter at each of whose values the two are compared.
    margin : float, optional
        In units of the metric; None is one standard deviation of `other` over the seeds.
    why : str
        What the report adds where the claim does not hold.
    """

    says: str
    one: Mapping[str, Any]
    other: Mapping[str, Any]
    metric: str = "accuracy"
    along: str | None = None
    margin: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Claims:
    """Claims, each with whether the finished fits bear it out and by how much."""

    claims: tuple[Claim, ...]
    title: str = "What was claimed"


View = History | Curve | Table | Confusion | Gallery | Claims
