"""The verdicts on the claims of a paper, from comparisons with the records of finished fits.

The verdict is "yes" (reproduced) if all comparisons of a claim hold, "partly" if only a subset holds, and "no" if no
comparison holds. An ambiguous paper has several readings (interpretations); the best of their verdicts counts, and the
report shows the comparisons of all readings. Every verdict has a cause, one of `Cause`, and a sentence that explains it.

A comparison uses the mean over the seeds of one setting. Its tolerance, unless the comparison declares another one, is:

- against a printed value of the paper: half a unit of the last printed digit, plus the paper's own plus-minus, plus the
  half-width of the 95 % prediction interval of one more run, t s sqrt(1 + 1/k) for a standard deviation s over k seeds
  (t: quantile of Student's distribution with k - 1 degrees of freedom). If our test rows are not those of the paper, one
  standard error of a proportion of the test rows is added;
- against another setting, and for a measure that is itself a difference: the half-width of the 95 % confidence interval of
  the mean difference over the common seeds, t s sqrt(1/k) for a standard deviation s of the differences;
- against a bound that the claim itself states, such as "below 4 %": zero.

"near" holds if the absolute difference is at most the tolerance. "below" and "above" hold if the difference in the stated
direction is larger than the tolerance. "at most" and "at least" hold unless the difference in the opposite direction is
larger than the tolerance. If a setting has fits on several devices, only the device with the most seeds is used. A
comparison that depends on random choices gives no verdict with fewer than `FEWEST_SEEDS` seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from gramless.papers.experiments.declarations import RELATIONS, Cause, Claim, Comparison, Printed
from gramless.papers.experiments.measures import Measure
from gramless.papers.experiments.results import Point, Record, contains, on_one_device, points

ByExperiment = Mapping[tuple[str, str], Sequence[Record]]
"""Records of fits by paper and experiment."""

VERDICTS = ("yes", "partly", "no", "too few seeds", "not run", "not tested")
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Check:
    """Result of one comparison, at one value of the parameter that `Comparison.along` names, on one device.

    `gap` is the mean over the seeds of the difference between both values, or of their ratio minus `Comparison.factor`.
    """

    comparison: Comparison
    one: Point
    other: Point | Printed | float
    gap: float
    tolerance: float
    n_seeds: int

    @property
    def holds(self) -> bool:
        """Return True if `gap` satisfies the relation of the comparison, within the tolerance."""
        return RELATIONS[self.comparison.relation](self.gap, self.tolerance)

    @property
    def has_enough_seeds(self) -> bool:
        """Return True if the comparison has enough seeds for a verdict."""
        return self.comparison.deterministic or self.n_seeds >= FEWEST_SEEDS


@dataclass(frozen=True)
class ClaimResult:
    """Verdict on a claim, one of `VERDICTS`, with the checks from which the verdict follows."""

    claim: Claim
    verdict: str
    checks: tuple[Check, ...]
    reading: str = ""

    @property
    def cause(self) -> str:
        """Return the cause of the verdict; empty if fits or seeds are missing, unless the declared cause is `LIMIT`."""
        if self.verdict == "yes":
            return Cause.AMBIGUOUS if self.reading else Cause.REPRODUCED
        if self.verdict in ("not run", "too few seeds") and self.claim.cause != Cause.LIMIT:
            return ""
        return self.claim.cause


def check_claim(claim: Claim, paper: str, found: ByExperiment) -> ClaimResult:
    """Return the verdict on a claim; if an ambiguous paper has several interpretations, the best of their verdicts."""
    checks = tuple(check for comparison in claim.comparisons for check in check_comparison(comparison, paper, found))
    if not claim.comparisons:
        return ClaimResult(claim, "not tested", checks)
    names = dict.fromkeys(c.reading for c in claim.comparisons if c.reading) or {"": None}
    by_reading = {name: _verdict(claim, [c for c in checks if c.comparison.reading in ("", name)], name) for name in names}
    best = min(by_reading, key=lambda name: VERDICTS.index(by_reading[name]))
    all_agree = set(by_reading.values()) == {"yes"}
    return ClaimResult(claim, by_reading[best], checks, "" if all_agree else best)


def _verdict(claim: Claim, checks: Sequence[Check], reading: str) -> str:
    """Return the verdict under one reading of the paper, "not run" if a comparison has no finished fits."""
    needed = [c for c in claim.comparisons if c.reading in ("", reading)]
    if any(all(check.comparison is not c for check in checks) for c in needed):
        return "not run"
    if not all(check.has_enough_seeds for check in checks):
        return "too few seeds"
    n_holding = sum(check.holds for check in checks)
    return "yes" if n_holding == len(checks) else "partly" if n_holding else "no"


def check_comparison(comparison: Comparison, paper: str, found: ByExperiment) -> list[Check]:
    """Return one check for each pair of settings of a comparison, if both settings have finished fits."""
    ones, *rest = (_points(paper, experiment, params, found) for experiment, params in comparison.settings())
    if rest:
        # Errors on different devices can be compared, but times cannot.
        same_device, along = comparison.metric.endswith("seconds"), comparison.along or ""
        pairs: list[tuple[Point, Any]] = [
            (one, other)
            for one in ones
            for other in rest[0]
            if one.params.get(along) == other.params.get(along) and (one.device == other.device or not same_device)
        ]
    else:
        pairs = [(one, comparison.other) for one in ones]
    checks = (_check(comparison, one, other) for one, other in pairs)
    return [check for check in checks if check is not None]


def _check(comparison: Comparison, one: Point, other: Point | Printed | float) -> Check | None:
    """Return the check of a setting against a number, or seed by seed against another setting; None if no seed is common."""
    ours = one.by_seed(comparison.measure)
    if isinstance(other, Point):
        theirs = other.by_seed(comparison.measure)
    else:
        theirs = dict.fromkeys(ours, other.value if isinstance(other, Printed) else float(other))
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return None
    factor = comparison.factor
    gaps = [ours[seed] - theirs[seed] if factor is None else ours[seed] / theirs[seed] - factor for seed in common]
    tolerance = _tolerance(comparison, one, other, gaps) if comparison.within is None else comparison.within
    return Check(comparison, one, other, fmean(gaps), tolerance, len(common))


def _tolerance(comparison: Comparison, one: Point, other: Point | Printed | float, gaps: Sequence[float]) -> float:
    """Return the tolerance of a comparison, as the docstring of this module defines it."""
    k, measure = len(gaps), comparison.measure
    half_width = float(stdtrit(k - 1, 0.975)) * stdev(gaps) if k > 1 else 0.0
    if isinstance(other, Printed):
        tolerance = other.rounding + half_width * math.sqrt(1 + 1 / k)
        if other.other_rows:
            n_rows = one.records[0]["data"]["n_train" if comparison.metric.startswith("cv_") else "n_test"]
            share = other.value / 100
            tolerance += 100 * math.sqrt(max(share * (1 - share), 0.0) / n_rows)
        return tolerance
    is_difference = isinstance(measure, Measure) and measure.is_difference
    return half_width * math.sqrt(1 / k) if is_difference or isinstance(other, Point) else 0.0


def _points(paper: str, experiment: str, where: Mapping[str, Any], found: ByExperiment) -> list[Point]:
    """Return the settings of an experiment that have finished fits and whose parameters contain `where`."""
    done = [record for record in found.get((paper, experiment), ()) if record["status"] == "done"]
    return [point for point in points(on_one_device(done)) if contains(point.params, where)]
