"""Claims of a paper with their verdicts, as values for the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gramless.papers.experiments import Claim
from gramless.papers.experiments.claims import VERDICTS, ByExperiment, Check, check_claim
from gramless.papers.experiments.results import Point
from gramless.papers.report.formatting import label, parameter, parameters, value


def claims_section(claims: Sequence[Claim], paper: str, found: ByExperiment) -> dict[str, Any] | None:
    """Return the claims of a paper as values for the templates, None if there are none."""
    if not claims:
        return None
    items = [_item(claim, *check_claim(claim, paper, found)) for claim in claims]
    counts = Counter(item["verdict"] for item in items)
    return {"claims": items, "counts": [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]]}


def _item(claim: Claim, verdict: str, results: Sequence[Check]) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "says": claim.statement,
        "where": claim.where,
        "note": claim.note,
        "count": f"{sum(result.holds for result in results)} of {len(results)}" if verdict == "partly" else "",
        "checks": [_row(result) for result in results],
    }


def _row(result: Check) -> dict[str, str]:
    comparison = result.comparison
    measure = comparison.measure
    named, key = (label(measure), measure) if isinstance(measure, str) else (measure.label, "")
    fits = [parameters(comparison.one)] if comparison.one else []
    if comparison.along is not None:
        fits.append(parameter(comparison.along, result.at))
    against = "the paper"
    if isinstance(comparison.other, Mapping):
        against = parameters(comparison.other) if comparison.other else "all fits"
    if comparison.other_experiment is not None:
        against = f"{comparison.other_experiment}, {against}"
    ratio = result.measured / result.reference if comparison.factor is not None else None
    expected = comparison.relation + (f" {comparison.factor:.3g} times" if comparison.factor not in (None, 1.0) else "")
    return {
        "experiment": comparison.experiment,
        "what": f"{named}: {', '.join(fits) or 'all fits'}",
        "device": result.one.device,
        "ours": _with_spread(result.one, measure, key),
        "expected": f"{expected}, {against}",
        "theirs": _with_spread(result.other, measure, key)
        if isinstance(result.other, Point)
        else _format(key, result.reference),
        "gap": (f"{result.gap:+.3g}" if ratio is None else f"ratio {ratio:.2f}").replace("-", "−"),
        "tolerance": f"{result.tolerance:.3g}",
        "holds": "yes" if result.holds else "no",
    }


def _with_spread(point: Point, measure: Any, key: str) -> str:
    spread = point.spread(measure)
    shown = _format(key, point.mean(measure))
    return shown if spread is None else f"{shown} ± {_format(key, spread)}"


def _format(key: str, number: float | None) -> str:
    return value(key, number) if key else "–" if number is None else f"{number:.3g}"
