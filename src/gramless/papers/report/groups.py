"""Finished fits grouped by facet, series and grid point, and the headline of an experiment.

A grid point has the fits that differ in the seed only. Fits on different devices are different points, because their seconds
differ and they repeat the same seeds. The headline is one point, with the mean and standard deviation of its test error: the
declared point, else the one with the smallest cross-validated error, else the one with the smallest mean test error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.papers.experiments import Reference, Spec
from gramless.papers.experiments.results import Point, Record, contains, device_of, points
from gramless.papers.report.formatting import parameter

CHOSEN_ON_THE_TEST_ROWS = "smallest mean error on the test rows, which is optimistic"
CHOSEN_BY_CROSS_VALIDATION = "smallest cross-validated error on the training rows"
THE_ONLY_ONE = "the only setting"


@dataclass(frozen=True)
class Headline:
    """Point that represents an experiment on one device, and how it was chosen."""

    point: Point
    chosen: str


def by_device(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return records by device, in decreasing order of their number, and the CPU first among equals."""
    groups = group_by(records, device_of)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0] != "CPU")))


def headlines(spec: Spec, records: Sequence[Record]) -> list[Headline]:
    """Return the headline of an experiment on each device."""
    found = (headline(spec, group) for group in by_device(records).values())
    return [one for one in found if one is not None]


def headline(spec: Spec, records: Iterable[Record], where: Mapping[str, Any] | None = None) -> Headline | None:
    """Return the headline of the fits of one device, or of those that have the parameters `where`."""
    candidates = [point for point in points(records) if contains(point.params, where or {}) and point.values("error")]
    if not candidates:
        return None
    declared = [one for one in candidates if spec.headline is not None and contains(one.params, spec.headline)]
    if declared and (spec.headline_reason or len(candidates) > 1):
        return Headline(declared[0], spec.headline_reason)
    if len(candidates) == 1:
        return Headline(candidates[0], THE_ONLY_ONE)
    validated = [point for point in candidates if point.values("cv_error")]
    if validated:
        return Headline(min(validated, key=lambda point: point.mean("cv_error") or 0.0), CHOSEN_BY_CROSS_VALIDATION)
    return Headline(min(candidates, key=lambda point: point.mean("error") or 0.0), CHOSEN_ON_THE_TEST_ROWS)


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Return the items by key, in order of appearance."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def name_of(params: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the name of a series: strings as they are, numbers with the name of their parameter."""
    parts = []
    for key in keys:
        given = params.get(key)
        if given is not None:
            parts.append(given.replace("_", " ") if isinstance(given, str) else parameter(key, given))
    return ", ".join(parts)


def varying(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the parameters that differ between records."""
    return varying_among([record["params"] for record in records])


def varying_among(grid: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the parameters that differ between points of a grid, or that some points lack."""
    keys = dict.fromkeys(key for params in grid for key in params)
    return tuple(key for key in keys if len({repr(params[key]) if key in params else None for params in grid}) > 1)


def paper_value(references: Iterable[Reference], params: Mapping[str, Any], metric: str) -> Reference | None:
    """Return the paper's value for these parameters, the most specific one if several match."""
    matching = [r for r in references if r.metric == metric and r.matches(params)]
    return max(matching, key=lambda reference: len(reference.params), default=None)
