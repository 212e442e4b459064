"""Claims of a paper with their verdicts, as values for the templates, for the documentation and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gramless.papers.experiments.claims import Check, ClaimResult
from gramless.papers.experiments.declarations import Comparison, Printed
from gramless.papers.experiments.results import Point
from gramless.papers.report.formatting import PERCENTAGES, label, mean_and_spread, parameter, parameters, value

_MOST_VALUES_SHOWN = 3  # measured values in a row of the table; the comparisons of a claim list all of them


def claim_values(result: ClaimResult, paper: str) -> dict[str, Any]:
    """Return the row of a claim: its statement, the printed value, ours, the verdict, its cause and the comparisons."""
    claim, checks = result.claim, result.checks
    n_holding = sum(check.holds for check in checks)
    printed = list(dict.fromkeys(str(c.other) for c in claim.comparisons if isinstance(c.other, Printed)))
    return {
        "name": claim.name,
        "anchor": f"claim-{paper}-{claim.name}",
        "statement": claim.statement,
        "where": claim.where,
        "printed": claim.printed
        or (", ".join(printed[:_MOST_VALUES_SHOWN]) + _unit(claim.comparisons) if printed else "in words"),
        "ours": _ours(result),
        "verdict": result.verdict,
        "cause": str(result.cause) + (f" ({result.reading})" if result.verdict == "yes" and result.reading else ""),
        "reason": claim.reason,
        "count": f"{n_holding} of {len(checks)}" if result.verdict == "partly" else "",
        "command": f"gramless reproduce {paper} --claim {claim.name}",
        "estimator": checks[0].one.records[0].get("estimator", "") if checks else "",
        "checks": [_check_values(check) for check in checks],
    }


def _ours(result: ClaimResult) -> str:
    """Return the measured values of a claim, or the number of comparisons that hold if there are many."""
    checks = [check for check in result.checks if check.comparison.reading in ("", result.reading)] or list(result.checks)
    if not checks:
        return "–"
    if len(checks) > _MOST_VALUES_SHOWN:
        return f"{sum(check.holds for check in checks)} of {len(checks)} comparisons hold"
    return "; ".join(dict.fromkeys(_measured(check) for check in checks)) + _unit([check.comparison for check in checks])


def _unit(comparisons: Sequence[Comparison]) -> str:
    """Return the percent sign if all values of the comparisons are percentages."""
    return " %" if comparisons and all(_label(c).endswith("%") and c.factor is None for c in comparisons) else ""


def _label(comparison: Comparison) -> str:
    return label(comparison.measure) if isinstance(comparison.measure, str) else comparison.measure.label


def _measured(check: Check) -> str:
    """Return the measured value of a comparison, and that of the other setting of ours if there is one."""
    if not isinstance(check.other, Point):
        return _with_spread(check.one, check.comparison)
    if check.comparison.factor is not None:
        return f"{check.gap + check.comparison.factor:.3g} times"
    return f"{_with_spread(check.one, check.comparison)} against {_with_spread(check.other, check.comparison)}"


def _check_values(check: Check) -> dict[str, str]:
    comparison, factor = check.comparison, check.comparison.factor
    fits = [parameters(comparison.one)] if comparison.one else []
    if comparison.along is not None:
        fits.append(parameter(comparison.along, check.one.params.get(comparison.along)))
    if isinstance(check.other, Point):
        against, reference = "all fits", _with_spread(check.other, comparison)
        if isinstance(comparison.other, Mapping) and comparison.other:
            against = parameters(comparison.other)
    elif isinstance(check.other, Printed):
        against, reference = "the paper", str(check.other)
    else:
        against, reference = "the bound", _format(comparison.metric, float(check.other))
    if comparison.other_experiment is not None:
        against = f"{comparison.other_experiment}, {against}"
    expected = comparison.relation + (f" {factor:.3g} times" if factor not in (None, 1.0) else "")
    return {
        "experiment": comparison.experiment,
        "reading": comparison.reading,
        "what": f"{_label(comparison)}: {', '.join(fits) or 'all fits'}",
        "device": check.one.device,
        "seeds": "none needed" if comparison.deterministic else str(check.n_seeds),
        "ours": _with_spread(check.one, comparison),
        "expected": f"{expected}, {against}",
        "theirs": reference,
        "gap": (f"{check.gap:+.3g}" if factor is None else f"ratio {check.gap + factor:.2f}").replace("-", "−"),
        "tolerance": f"{check.tolerance:.3g}",
        "holds": "yes" if check.holds else "no",
    }


def _with_spread(point: Point, comparison: Comparison) -> str:
    metric = comparison.metric
    if metric in PERCENTAGES or metric.endswith("seconds"):
        return mean_and_spread(metric, point)
    mean, spread = point.mean(comparison.measure), point.spread(comparison.measure)
    if not mean or not spread:
        return _format(metric, mean)
    # One digit of the spread, two if the first is 1.
    digits = max(0, -math.floor(math.log10(spread)) + (f"{spread:e}"[0] == "1"))
    return f"{mean:,.{digits}f} ± {spread:,.{digits}f}"


def _format(metric: str, number: float | None) -> str:
    return value(metric, number) if metric else "–" if number is None else f"{number:.3g}"
