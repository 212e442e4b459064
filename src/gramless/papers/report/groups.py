"""Finished fits grouped for showing: by facet, by series, by point of the grid and device over the seeds; and the headline.

The headline of an experiment is one point of its grid, with the mean and the standard deviation of its test error over the
seeds. Which point: the declared one, or the one with the least cross-validated error, or, said so, the one with the least
mean test error. Fits on different devices are different points: their seconds differ, and they repeat each other's seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.papers.experiments import Reference, Spec
from gramless.papers.experiments.results import Point, Record, contains, device_of, points
from gramless.papers.report.formatting import parameter

CHOSEN_ON_THE_TEST_ROWS = "the least mean error on the test rows, so somewhat optimistic"
CHOSEN_BY_CROSS_VALIDATION = "the least cross-validated error on the training rows"
THE_ONLY_ONE = "the only setting"


@dataclass(frozen=True)
class Headline:
    """The point that speaks for an experiment on one device, and how it was chosen."""

    point: Point
    chosen: str


def by_device(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by device, the one with most of them first, the CPU first among equals."""
    groups = group_by(records, device_of)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0] != "CPU")))


def headlines(spec: Spec, records: Sequence[Record]) -> list[Headline]:
    """The headline of an experiment on each device."""
    found = (headline(spec, group) for group in by_device(records).values())
    return [one for one in found if one is not None]


def headline(spec: Spec, records: Iterable[Record], where: Mapping[str, Any] | None = None) -> Headline | None:
    """The point that speaks for the fits of one device, or for those of them that have the parameters `where`."""
    candidates = [point for point in points(records) if contains(point.params, where or {}) and point.values("error")]
    if not candidates:
        return None
    if len(candidates) == 1:
        declared = spec.headline is not None and contains(candidates[0].params, spec.headline) and spec.headline_reason
        return Headline(candidates[0], spec.headline_reason if declared else THE_ONLY_ONE)
    if spec.headline is not None:
        declared_ones = [point for point in candidates if contains(point.params, spec.headline)]
        if declared_ones:
            return Headline(declared_ones[0], spec.headline_reason)
    validated = [point for point in candidates if point.values("cv_error")]
    if validated:
        return Headline(min(validated, key=lambda point: point.mean("cv_error") or 0.0), CHOSEN_BY_CROSS_VALIDATION)
    return Headline(min(candidates, key=lambda point: point.mean("error") or 0.0), CHOSEN_ON_THE_TEST_ROWS)


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Items with the same key together, in order of appearance."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def name_of(params: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The name of a series; numbers carry the name of their parameter, words speak for themselves."""
    parts = []
    for key in keys:
        given = params.get(key)
        if given is None:
            continue
        if isinstance(given, str):
            parts.append(given.replace("_", " "))
        else:
            parts.append(parameter(key, given))
    return ", ".join(parts)


def varying(records: Sequence[Record]) -> tuple[str, ...]:
    """The parameters that are not the same in all records."""
    return varying_among([record["params"] for record in records])


def varying_among(grid: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The parameters that are not the same at all points of a grid."""
    seen: dict[str, set[str]] = {}
    for params in grid:
        for key, value in params.items():
            seen.setdefault(key, set()).add(repr(value))
    some_lack_it = {key for key in seen if any(key not in params for params in grid)}
    return tuple(key for key, values in seen.items() if len(values) > 1 or key in some_lack_it)


def said(references: Iterable[Reference], params: Mapping[str, Any], metric: str) -> Reference | None:
    """The paper's figure for these parameters, the most specific one where several match."""
    fitting = [r for r in references if r.metric == metric and r.matches(params)]
    return max(fitting, key=lambda reference: len(reference.params), default=None)
