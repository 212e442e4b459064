"""Finished fits grouped for showing: by facet, by series, by point of the grid over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from gramless.experiments import Reference
from gramless.report.words import parameter

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """The fits that share their parameters and differ in the seed."""

    params: Mapping[str, Any]
    records: Sequence[Record]

    def values(self, metric: str) -> list[float]:
        """One value per seed, where the fit has that metric."""
        found = (record["metrics"].get(metric) for record in self.records)
        return [value for value in found if value is not None]

    def mean(self, metric: str) -> float | None:
        """The mean over the seeds."""
        values = self.values(metric)
        return fmean(values) if values else None

    def spread(self, metric: str) -> float | None:
        """The standard deviation over the seeds; None for a single one."""
        values = self.values(metric)
        return stdev(values) if len(values) > 1 else None


def points(records: Iterable[Record]) -> list[Point]:
    """One `Point` per distinct parameters, in order of appearance."""
    groups = group_by(records, lambda record: tuple((k, repr(v)) for k, v in record["params"].items()))
    return [Point(group[0]["params"], group) for group in groups.values()]


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
    seen: dict[str, set[str]] = {}
    for record in records:
        for key, value in record["params"].items():
            seen.setdefault(key, set()).add(repr(value))
    some_lack_it = {key for key in seen if any(key not in record["params"] for record in records)}
    return tuple(key for key, values in seen.items() if len(values) > 1 or key in some_lack_it)


def matches(record: Record, where: Mapping[str, Any]) -> bool:
    """Whether a record's parameters contain `where`."""
    return all(key in record["params"] and record["params"][key] == value for key, value in where.items())


def best(records: Iterable[Record], where: Mapping[str, Any] | None = None) -> Record | None:
    """The fit with the lowest test error among those that match."""
    candidates = [record for record in records if matches(record, where or {})]
    return min(candidates, key=lambda record: record["metrics"]["error"], default=None)


def said(references: Iterable[Reference], params: Mapping[str, Any], metric: str) -> Reference | None:
    """The paper's figure for these parameters, the most specific one where several match."""
    fitting = [r for r in references if r.metric == metric and r.matches(params)]
    return max(fitting, key=lambda reference: len(reference.params), default=None)
