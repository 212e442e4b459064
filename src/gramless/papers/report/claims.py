"""The claims of a paper with their verdicts, as values for the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gramless.papers.experiments import Claim
from gramless.papers.experiments.claims import VERDICTS, ByExperiment, Check, check_claim
from gramless.papers.experiments.results import Point
from gramless.papers.report.formatting import label, parameter, parameters, value


def claims_section(claims: Sequence[Claim], paper: str, found: ByExperiment) -> dict[str, Any] | None:
    """The claims of a paper as values for the templates; None for a chapter without any."""
    if not claims:
        return None
    items = [_item(claim, *check_claim(claim, paper, found)) for claim in claims]
    counts = Counter(item["verdict"] for item in items)
    return {"claims": items, "counts": [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]]}


def _item(claim: Claim, verdict: str, made: Sequence[Check]) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "says": claim.statement,
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
