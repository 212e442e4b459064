"""The claims of a paper, decided by the finished fits: yes, no or partly, with every comparison and its tolerance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.papers.experiments import Claim, Comparison
from gramless.papers.report.formatting import label, parameter, parameters, value
from gramless.papers.report.groups import Point, Record, contains, points

ByExperiment = Mapping[tuple[str, str], Sequence[Record]]

VERDICTS = ("yes", "partly", "no", "not run", "not tested")


@dataclass(frozen=True)
class Check:
    """One comparison at one point of the grid on one device."""

    comparison: Comparison
    one: Point
    other: Point | float
    at: Any
    tolerance: float

    @property
    def measured(self) -> float:
        return _known(self.one.mean(self.comparison.measure))

    @property
    def reference(self) -> float:
        return float(self.other) if not isinstance(self.other, Point) else _known(self.other.mean(self.comparison.measure))

    @property
    def gap(self) -> float:
        """The one minus the other, or their ratio minus the factor of the comparison."""
        factor = self.comparison.factor
        return self.measured - self.reference if factor is None else self.measured / self.reference - factor

    @property
    def holds(self) -> bool:
        return self.comparison.holds(self.gap, self.tolerance)


def checks(comparison: Comparison, paper: str, found: ByExperiment) -> list[Check]:
    """What the finished fits say to a comparison; nothing where they do not have what it speaks of."""
    here = points(_records(comparison.experiment, paper, found))
    ones = [point for point in here if contains(point.params, comparison.one) and point.values(comparison.measure)]
    if not isinstance(comparison.other, Mapping):
        figure = float(comparison.other)
        tolerances = [(point, _standard_error(comparison, figure, point)) for point in ones]
        return [
            Check(comparison, point, figure, point.params.get(comparison.along or ""), tolerance)
            for point, tolerance in tolerances
            if tolerance is not None
        ]
    there = here
    if comparison.other_experiment is not None:
        there = points(_records(comparison.other_experiment, paper, found))
    made = []
    for one in ones:
        at = one.params.get(comparison.along) if comparison.along else None
        for other in there:
            alike = comparison.along is None or other.params.get(comparison.along) == at
            if not (alike and other.device == one.device and contains(other.params, comparison.other)):
                continue
            tolerance = comparison.within if comparison.within is not None else other.spread(comparison.measure)
            if tolerance is not None and other.values(comparison.measure):
                made.append(Check(comparison, one, other, at, tolerance))
    return made


def decided(claim: Claim, paper: str, found: ByExperiment) -> tuple[str, list[Check]]:
    """Whether a claim was reproduced, one of `VERDICTS`, and the comparisons that say so."""
    made = [check for comparison in claim.comparisons for check in checks(comparison, paper, found)]
    if not claim.comparisons:
        return "not tested", made
    if not made:
        return "not run", made
    holding = sum(check.holds for check in made)
    return "yes" if holding == len(made) else "partly" if holding else "no", made


def claims_section(claims: Sequence[Claim], paper: str, found: ByExperiment) -> dict[str, Any] | None:
    """The claims of a paper as values for the templates; None for a chapter without any."""
    if not claims:
        return None
    items = [_item(claim, *decided(claim, paper, found)) for claim in claims]
    counts = Counter(item["verdict"] for item in items)
    return {"claims": items, "counts": [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]]}


def _item(claim: Claim, verdict: str, made: Sequence[Check]) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "says": claim.says,
        "where": claim.where,
        "note": claim.note,
        "count": f"{sum(check.holds for check in made)} of {len(made)}" if verdict == "partly" else "",
        "checks": [_row(check) for check in made],
    }


def _row(check: Check) -> dict[str, str]:
    comparison = check.comparison
    measure = comparison.measure
    named, key = (label(measure), measure) if isinstance(measure, str) else (measure.label, "")
    of = parameters(comparison.one) if comparison.one else "all fits"
    if comparison.along is not None:
        of = f"{of}, {parameter(comparison.along, check.at)}" if comparison.one else parameter(comparison.along, check.at)
    against = "the paper"
    if isinstance(comparison.other, Mapping):
        against = parameters(comparison.other) if comparison.other else "all fits"
    if comparison.other_experiment is not None:
        against = f"{comparison.other_experiment}, {against}"
    gap = f"ratio {check.measured / check.reference:.2f}" if comparison.factor is not None else f"{check.gap:+.3g}"
    wanted = comparison.relation + (f" {comparison.factor:.3g} times" if comparison.factor not in (None, 1.0) else "")
    return {
        "experiment": comparison.experiment,
        "what": f"{named}: {of}",
        "device": check.one.device,
        "ours": _with_spread(check.one, measure, key),
        "wanted": f"{wanted}, {against}",
        "theirs": _with_spread(check.other, measure, key)
        if isinstance(check.other, Point)
        else _figure(key, check.reference),
        "gap": gap.replace("-", "−"),
        "tolerance": f"{check.tolerance:.3g}",
        "holds": "yes" if check.holds else "no",
    }


def _with_spread(point: Point, measure: Any, key: str) -> str:
    spread = point.spread(measure)
    shown = _figure(key, point.mean(measure))
    return shown if spread is None else f"{shown} ± {_figure(key, spread)}"


def _figure(key: str, number: float | None) -> str:
    return value(key, number) if key else "–" if number is None else f"{number:.3g}"


def _records(experiment: str, paper: str, found: ByExperiment) -> Sequence[Record]:
    where, _, name = experiment.rpartition("/")
    return [record for record in found.get((where or paper, name), ()) if record["status"] == "done"]


def _standard_error(comparison: Comparison, figure: float, point: Point) -> float | None:
    """The tolerance against a figure of the paper: given, or one standard error of a share of the rows."""
    if comparison.within is not None:
        return comparison.within
    data = point.records[0]["data"]
    by_folds = isinstance(comparison.measure, str) and comparison.measure.startswith("cv_")
    share = figure / 100
    return 100 * math.sqrt(max(share * (1 - share), 0.0) / data["n_train" if by_folds else "n_test"])


def _known(number: float | None) -> float:
    assert number is not None, "checks are only made of points that have the measure"
    return number
