"""The claims of a paper, the comparisons that test them on the records of finished fits, and the verdicts.

A claim is reproduced ("yes") if all of its comparisons hold, "partly" if only a subset holds, and "no" if none holds. If the
paper has several readings, the verdict is that of the best reading, and all of them are shown. Every verdict has a cause,
one of `Cause`, and a sentence that explains it.

A comparison takes the mean over the seeds of one setting. Its tolerance is, unless the comparison declares one:

- against a printed value of the paper: half a unit of the last printed digit, plus the paper's own plus-minus, plus the
  half-width of the 95 % prediction interval of one more run, t s sqrt(1 + 1/k) for a standard deviation s over k seeds
  (t: quantile of Student's distribution with k - 1 degrees of freedom). If our test rows are not those of the paper, one
  standard error of a proportion of the test rows is added;
- against another setting, and of a difference against zero: the half-width of the 95 % confidence interval of the mean
  difference over the common seeds, t s sqrt(1/k) for a standard deviation s of the differences;
- against a bound that the claim itself states, such as "below 4 %": none.

"below" and "above" require a difference larger than the tolerance; "at most" and "at least" that it is not larger in the
wrong direction. Fits of the same setting on several devices count once: the device with the most seeds is used. A comparison
that depends on random choices gives no verdict with fewer than `FEWEST_SEEDS` seeds.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from gramless.papers.experiments import measures
from gramless.papers.experiments.measures import Measure
from gramless.papers.experiments.results import Point, Record, contains, on_one_device, points
from gramless.papers.experiments.spec import read_grid, read_texts

ByExperiment = Mapping[tuple[str, str], Sequence[Record]]
"""Records by paper and experiment."""

RELATIONS = ("near", "below", "above", "at most", "at least")
VERDICTS = ("yes", "partly", "no", "too few seeds", "not run", "not tested")
FEWEST_SEEDS = 3


class Cause(StrEnum):
    """Cause of a verdict: why a claim is reproduced or not."""

    REPRODUCED = "reproduced"
    IMPLAUSIBLE = "paper implausible"
    UNSPECIFIED = "data not available or unspecified"
    AMBIGUOUS = "reading ambiguous: both shown"
    LIMIT = "our limit"


@dataclass(frozen=True)
class Printed:
    """Value of the paper with the digits in which it is printed, such as `Printed("97.20")`, and its plus-minus.

    `other_rows` states that our test rows are not those of the paper.
    """

    printed: str
    plus_minus: str = "0"
    other_rows: bool = False

    @property
    def value(self) -> float:
        """Return the value as a number."""
        return float(self.printed)

    @property
    def rounding(self) -> float:
        """Return half a unit of the last printed digit, plus the plus-minus."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2]) + float(self.plus_minus)

    def __str__(self) -> str:
        return self.printed if float(self.plus_minus) == 0 else f"{self.printed} ± {self.plus_minus}"


@dataclass(frozen=True)
class Comparison:
    """Condition of a claim: the setting `one` of an experiment stands in `relation` to `other`.

    `other` is a value of the paper (`Printed`), a bound stated by the claim (a number), or the parameters of another setting
    of `other_experiment` (by default of the same experiment). With `along`, the two are compared at each value of that
    parameter. With `factor`, the ratio of the two is compared with `factor`; otherwise their difference is compared with 0.
    `within` replaces the tolerance. `reading` names the reading of an ambiguous paper to which the comparison belongs, and
    `deterministic` states that neither setting depends on the seed.
    """

    experiment: str
    one: Mapping[str, Any]
    relation: str
    other: Mapping[str, Any] | Printed | float
    measure: str | Measure = "error"
    along: str | None = None
    factor: float | None = None
    within: float | None = None
    other_experiment: str | None = None
    reading: str = ""
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"unknown relation {self.relation!r}; known are {', '.join(RELATIONS)}")

    def holds(self, gap: float, tolerance: float) -> bool:
        """Return True if the difference, or the ratio minus `factor`, satisfies the relation."""
        return {
            "near": abs(gap) <= tolerance,
            "below": gap < -tolerance,
            "above": gap > tolerance,
            "at most": gap <= tolerance,
            "at least": gap >= -tolerance,
        }[self.relation]


@dataclass(frozen=True)
class Claim:
    """Paraphrased claim of a paper, its place there, its printed value, and the comparisons that test it (possibly none).

    `cause` and `reason` explain the verdict; a test requires that they agree with the verdict on the committed records.
    """

    name: str
    statement: str
    where: str
    comparisons: tuple[Comparison, ...] = ()
    printed: str = ""
    cause: Cause = Cause.REPRODUCED
    reason: str = ""


@functools.cache
def claims(paper: str) -> tuple[Claim, ...]:
    """Return the claims of the paper's file; a chapter without a paper has none."""
    return tuple(
        Claim(
            name,
            texts["statement"],
            texts["where"],
            tuple(_comparisons(texts.get("comparisons", ()))),
            texts.get("printed", ""),
            Cause[texts.get("cause", "REPRODUCED")],
            texts["reason"],
        )
        for name, texts in read_texts(paper).get("claims", {}).items()
    )


def _comparisons(declared: Sequence[Mapping[str, Any]]) -> Iterator[Comparison]:
    """Yield a comparison for each point of the grid `for` of an entry, with the values of the point in its texts."""
    for entry in declared:
        for point in read_grid(entry.get("for", [{}])):
            fields = _filled({key: value for key, value in entry.items() if key != "for"}, point)
            if isinstance(fields["other"], dict) and "printed" in fields["other"]:
                fields["other"] = Printed(**fields["other"])
            if isinstance(fields.get("measure"), list):
                name, *arguments = fields["measure"]
                fields["measure"] = getattr(measures, name)(*arguments)
            yield Comparison(**fields)


def _filled(value: Any, point: Mapping[str, Any]) -> Any:
    """Return a value of the file in which "{name}" is replaced; a text that is only a name becomes the value itself."""
    if isinstance(value, dict):
        return {key: _filled(part, point) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, point) for part in value]
    if isinstance(value, str):
        name = re.fullmatch(r"\{(\w+)\}", value)
        return point[name[1]] if name else value.format_map(point)
    return value


@dataclass(frozen=True)
class Check:
    """Result of one comparison at one value of `along` on one device."""

    comparison: Comparison
    one: Point
    other: Point | Printed | float
    at: Any
    measured: float
    reference: float
    gap: float
    tolerance: float
    n_seeds: int

    @property
    def holds(self) -> bool:
        """Return True if the comparison holds."""
        return self.comparison.holds(self.gap, self.tolerance)

    @property
    def has_enough_seeds(self) -> bool:
        """Return True if the comparison has enough seeds for a verdict."""
        return self.comparison.deterministic or self.n_seeds >= FEWEST_SEEDS


@dataclass(frozen=True)
class ClaimResult:
    """Verdict on a claim, one of `VERDICTS`, with the checks from which it follows and its cause."""

    claim: Claim
    verdict: str
    checks: tuple[Check, ...]
    reading: str = ""

    @property
    def cause(self) -> str:
        """Return the cause of the verdict; without enough fits it is empty, or our limit."""
        if self.verdict == "yes":
            return Cause.AMBIGUOUS if self.reading else Cause.REPRODUCED
        if self.verdict in ("not run", "too few seeds") and self.claim.cause != Cause.LIMIT:
            return ""
        return self.claim.cause


def check_claim(claim: Claim, paper: str, found: ByExperiment) -> ClaimResult:
    """Return the verdict on a claim; if there are several readings, that of the best reading."""
    checks = tuple(check for comparison in claim.comparisons for check in check_comparison(comparison, paper, found))
    if not claim.comparisons:
        return ClaimResult(claim, "not tested", checks)
    names = dict.fromkeys(c.reading for c in claim.comparisons if c.reading) or {"": None}
    by_reading = {name: _verdict(claim, [c for c in checks if c.comparison.reading in ("", name)], name) for name in names}
    best = min(by_reading, key=lambda name: VERDICTS.index(by_reading[name]))
    all_agree = set(by_reading.values()) == {"yes"}
    return ClaimResult(claim, by_reading[best], checks, "" if all_agree else best)


def _verdict(claim: Claim, checks: Sequence[Check], reading: str) -> str:
    """Return the verdict under one reading; a comparison without finished fits leaves the claim not run."""
    needed = [c for c in claim.comparisons if c.reading in ("", reading)]
    if any(all(check.comparison is not c for check in checks) for c in needed):
        return "not run"
    if not all(check.has_enough_seeds for check in checks):
        return "too few seeds"
    n_holding = sum(check.holds for check in checks)
    return "yes" if n_holding == len(checks) else "partly" if n_holding else "no"


def check_comparison(comparison: Comparison, paper: str, found: ByExperiment) -> list[Check]:
    """Return the checks of a comparison for which there are finished fits, one for each pair of settings."""
    ones = _points(comparison.experiment, comparison.one, paper, found)
    if not isinstance(comparison.other, Mapping):
        checks = [_check_value(comparison, one, comparison.other) for one in ones]
    else:
        others = _points(comparison.other_experiment or comparison.experiment, comparison.other, paper, found)
        along = comparison.along or ""
        # Errors on two devices are comparable, times are not.
        any_device = not (isinstance(comparison.measure, str) and comparison.measure.endswith("seconds"))
        checks = [
            _check_pair(comparison, one, other)
            for one in ones
            for other in others
            if (any_device or one.device == other.device) and one.params.get(along) == other.params.get(along)
        ]
    return [check for check in checks if check is not None]


def _check_value(comparison: Comparison, one: Point, other: Printed | float) -> Check | None:
    values = one.values(comparison.measure)
    if not values:
        return None
    reference = other.value if isinstance(other, Printed) else float(other)
    tolerance = comparison.within
    if tolerance is None and isinstance(other, Printed):
        tolerance = other.rounding + _half_width(values, lambda k: 1 + 1 / k)
        if other.other_rows:
            cross_validated = isinstance(comparison.measure, str) and comparison.measure.startswith("cv_")
            n_rows = one.records[0]["data"]["n_train" if cross_validated else "n_test"]
            tolerance += 100 * math.sqrt(max(reference / 100 * (1 - reference / 100), 0.0) / n_rows)
    if tolerance is None and isinstance(comparison.measure, Measure) and comparison.measure.is_difference:
        tolerance = _half_width(values, lambda k: 1 / k)
    mean = fmean(values)
    at = one.params.get(comparison.along or "")
    return Check(comparison, one, other, at, mean, reference, mean - reference, tolerance or 0.0, len(values))


def _check_pair(comparison: Comparison, one: Point, other: Point) -> Check | None:
    """Return the check of two settings, whose values are compared seed by seed."""
    ours, theirs = one.by_seed(comparison.measure), other.by_seed(comparison.measure)
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return None
    factor = comparison.factor
    gaps = [ours[k] - theirs[k] if factor is None else ours[k] / theirs[k] - factor for k in common]
    tolerance = _half_width(gaps, lambda k: 1 / k) if comparison.within is None else comparison.within
    at = one.params.get(comparison.along or "")
    means = (fmean(ours[k] for k in common), fmean(theirs[k] for k in common))
    return Check(comparison, one, other, at, *means, fmean(gaps), tolerance, len(common))


def _half_width(values: Sequence[float], variance: Callable[[int], float]) -> float:
    """Return the half-width of a 95 % interval whose variance is a multiple of that of the values; 0 for a single value."""
    k = len(values)
    return float(stdtrit(k - 1, 0.975)) * stdev(values) * math.sqrt(variance(k)) if k > 1 else 0.0


def _points(experiment: str, where: Mapping[str, Any], paper: str, found: ByExperiment) -> list[Point]:
    """Return the settings of an experiment with the parameters `where` that have finished fits."""
    done = [record for record in found.get((paper, experiment), ()) if record["status"] == "done"]
    return [point for point in points(on_one_device(done)) if contains(point.params, where)]
