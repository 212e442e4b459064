"""`Claims` views: declared sentences, each checked against the finished fits and shown with its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramless.experiments import Claim, Claims
from gramless.report.groups import Point, Record, points
from gramless.report.words import parameter


@dataclass(frozen=True)
class Check:
    """One comparison: how far the one lies under the other, and how far it may."""

    at: Any
    under: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.under <= self.allowed


def checks(claim: Claim, records: Sequence[Record]) -> list[Check]:
    """The comparisons that the finished fits allow, in the order of the grid."""
    found = points(records)
    one, other = (_by_value(found, where, claim.along) for where in (claim.one, claim.other))
    made = []
    for value in (value for value in one if value in other):
        mean, reference = one[value].mean(claim.metric), other[value].mean(claim.metric)
        allowed = other[value].spread(claim.metric) if claim.margin is None else claim.margin
        if mean is not None and reference is not None and allowed is not None:
            made.append(Check(value, reference - mean, allowed))
    return made


def claims_list(view: Claims, records: Sequence[Record]) -> dict[str, Any] | None:
    """Each claim with its verdict, as values for the templates; None while no fit allows one."""
    items = [_item(claim, made) for claim in view.claims if (made := checks(claim, records))]
    return {"shows": "claims", "title": view.title, "found": items} if items else None


def _by_value(found: Sequence[Point], where: Mapping[str, Any], along: str | None) -> dict[Any, Point]:
    matching = (point for point in found if all(point.params.get(key) == value for key, value in where.items()))
    return {None if along is None else point.params.get(along): point for point in matching}


def _item(claim: Claim, made: Sequence[Check]) -> dict[str, str]:
    broken = [check for check in made if not check.holds]
    if broken:
        figures = "; ".join(_said(claim, check) for check in broken)
        verdict, kind = f"Does not hold at {len(broken)} of {len(made)}: ", "worse"
        why = f" {claim.why}" if claim.why else ""
    else:
        nearest = max(made, key=lambda check: check.under - check.allowed)
        figures = ("nearest to the limit " if len(made) > 1 else "") + _said(claim, nearest)
        verdict, kind, why = "Holds: ", "better", ""
    return {"verdict": verdict, "kind": kind, "said": f"{claim.says} ({figures}).{why}"}


def _said(claim: Claim, check: Check) -> str:
    where = "" if claim.along is None else f"at {parameter(claim.along, check.at)}: "
    side = f"{check.under:.2f} under" if check.under >= 0 else f"{-check.under:.2f} above"
    return f"{where}{side}, {check.allowed:.2f} allowed"
