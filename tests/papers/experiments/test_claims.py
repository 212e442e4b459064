"""Verdicts on claims: tolerances, relations, measures, seeds; fits on several devices count once."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import t

from gramless.papers.experiments.claims import Check, check_claim, check_comparison
from gramless.papers.experiments.declarations import (
    PAPERS,
    Cause,
    Claim,
    Comparison,
    Printed,
    claims,
    records_of,
    specs,
    specs_of_claim,
)
from gramless.papers.experiments.measures import (
    Measure,
    at_step,
    change_since,
    class_error,
    confused_with,
    early_mean,
    fluctuation,
    late_mean,
    lead_of_pair,
)
from gramless.papers.experiments.results import Results
from gramless.papers.report.formatting import group_by

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def fits(method, accuracies, device=None, seconds=2.0):
    """Return records of seeds 0, 1, ... with a row of accuracies for share 0.2 and one for share 1."""
    return [
        {
            "status": "done",
            "params": {"method": method, "share": share},
            "seed": seed,
            "device": device,
            "data": {"n_test": 400, "n_train": 1600},
            "metrics": {"accuracy": accuracy, "error": 100 - accuracy, "cv_error": 100 - accuracy, "seconds": seconds},
        }
        for share, row in zip((0.2, 1.0), accuracies, strict=True)
        for seed, accuracy in enumerate(row)
    ]


RECORDS = fits("ours", [[90.0, 91.0, 92.0], [93.0, 94.0, 95.0]]) + fits("theirs", [[91.0, 91.5, 92.0], [99.0, 99.0, 99.0]])
FOUND = {("budget", "data"): RECORDS}
NEAR = Comparison("data", {"method": "ours"}, "at least", {"method": "theirs"}, "accuracy", along="share")
VALUE = Comparison("data", {"method": "ours", "share": 0.2}, "near", Printed("10.0"))


def claim_of(*comparisons, **fields):
    return Claim("name", "statement", "where", comparisons, **fields)


def test_tolerance_between_settings_is_the_confidence_interval_of_the_paired_differences():
    low, high = check_comparison(NEAR, "budget", FOUND)
    assert (low.one.params["share"], low.gap, low.holds, low.n_seeds) == (0.2, -0.5, True, 3)
    assert low.tolerance == pytest.approx(t.ppf(0.975, 2) * 0.5 / math.sqrt(3))  # differences -1, -0.5, 0
    assert (high.one.params["share"], high.gap, high.holds) == (1.0, -5.0, False)


def test_tolerance_of_a_printed_value_is_its_rounding_and_the_prediction_interval_of_another_run():
    (check,) = check_comparison(VALUE, "budget", FOUND)
    assert check.gap == pytest.approx(-1.0)
    interval = t.ppf(0.975, 2) * math.sqrt(1 + 1 / 3)
    assert check.tolerance == pytest.approx(0.05 + interval)
    (wider,) = check_comparison(replace(VALUE, other=Printed("10.0", "0.2")), "budget", FOUND)
    assert wider.tolerance == pytest.approx(0.05 + 0.2 + interval)
    (coarser,) = check_comparison(replace(VALUE, other=Printed("10")), "budget", FOUND)
    assert coarser.tolerance == pytest.approx(0.5 + interval)


@pytest.mark.parametrize(("metric", "rows"), [("error", 400), ("cv_error", 1600)])
def test_other_test_rows_add_one_standard_error(metric, rows):
    same, other = Printed("10.0"), Printed("10.0", other_rows=True)
    ((one,), (two,)) = (check_comparison(replace(VALUE, other=v, measure=metric), "budget", FOUND) for v in (same, other))
    assert two.tolerance - one.tolerance == pytest.approx(100 * math.sqrt(0.1 * 0.9 / rows))


def test_a_bound_of_the_claim_has_no_tolerance():
    for bound, holds in ((9.0, True), (8.99, False)):
        (check,) = check_comparison(replace(VALUE, relation="at most", other=bound), "budget", FOUND)
        assert (check.tolerance, check.holds) == (0.0, holds)


def test_tolerance_of_a_difference_against_zero_is_its_confidence_interval():
    lead = Measure("lead", lambda record: record["metrics"]["accuracy"] - 90.5, is_difference=True)
    (check,) = check_comparison(replace(VALUE, relation="above", other=0.0, measure=lead), "budget", FOUND)
    assert (check.gap, check.holds) == (0.5, False)  # -0.5, 0.5 and 1.5
    assert check.tolerance == pytest.approx(t.ppf(0.975, 2) / math.sqrt(3))


@pytest.mark.parametrize(
    ("relation", "expected"),
    [("near", "-+++-"), ("below", "++---"), ("above", "---++"), ("at most", "++++-"), ("at least", "-++++")],
)
def test_relations(relation, expected):
    """Gaps of -2, -1.01, 0, 1.01 and 2; the tolerance is 1 for the strict relations and 1.5 for the others."""
    comparison = Comparison("data", {}, relation, 0.0)
    tolerance = 1.0 if relation in ("below", "above") else 1.5
    held = [Check(comparison, None, 0.0, gap, tolerance, 3).holds for gap in (-2.0, -1.01, 0.0, 1.01, 2.0)]
    assert held == [sign == "+" for sign in expected]


def test_unknown_relation_lists_the_known_relations():
    with pytest.raises(ValueError, match="known are near, below, above, at most, at least"):
        Comparison("data", {}, "beneath", 1.0)


def test_ratios():
    comparison = replace(NEAR, relation="near", measure="seconds", factor=1.0, within=0.1)
    for check in check_comparison(comparison, "budget", FOUND):
        assert (check.gap, check.holds) == (0.0, True)


def test_times_are_compared_on_the_same_device():
    comparison = replace(NEAR, measure="seconds", factor=1.0)
    elsewhere = fits("theirs", [[99.0] * 3, [99.0] * 3], device="cuda")
    assert len(check_comparison(comparison, "budget", {("budget", "data"): RECORDS + elsewhere})) == 2
    only_elsewhere = [r for r in RECORDS if r["params"]["method"] == "ours"] + elsewhere
    assert check_comparison(comparison, "budget", {("budget", "data"): only_elsewhere}) == []


@pytest.mark.parametrize(("measure", "n_checks"), [("accuracy", 1), ("seconds", 0)])
def test_errors_of_two_experiments_are_comparable_across_devices(measure, n_checks):
    elsewhere = fits("theirs", [[99.0] * 3, [99.0] * 3], device="cuda")
    one, other = ({"method": method, "share": 1.0} for method in ("ours", "theirs"))
    comparison = Comparison("data", one, "at most", other, measure, other_experiment="card")
    found = {("budget", "data"): RECORDS, ("budget", "card"): elsewhere}
    assert len(check_comparison(comparison, "budget", found)) == n_checks


def test_fits_on_two_devices_count_once():
    elsewhere = fits("ours", [[90.0, 91.0, 92.0, 93.0], [93.0, 94.0, 95.0, 96.0]], device="cuda")
    (check,) = check_comparison(VALUE, "budget", {("budget", "data"): RECORDS + elsewhere})
    assert (check.one.device, check.n_seeds) == ("cuda", 4)
    (check,) = check_comparison(VALUE, "budget", {("budget", "data"): RECORDS + [r for r in elsewhere if r["seed"] < 3]})
    assert (check.one.device, check.n_seeds) == ("CPU", 3)


def test_verdicts():
    worse = replace(NEAR, relation="below", within=1.0)
    better = replace(NEAR, relation="above", within=0.0)
    wide = replace(NEAR, relation="near", within=6.0)
    results = [check_claim(claim_of(one, cause=Cause.LIMIT), "budget", FOUND) for one in (wide, worse, better)]
    assert [result.verdict for result in results] == ["yes", "partly", "no"]
    assert [result.cause for result in results] == [Cause.REPRODUCED, Cause.LIMIT, Cause.LIMIT]
    assert check_claim(claim_of(wide), "budget", {}).verdict == "not run"
    causes = [check_claim(claim_of(wide, cause=cause), "budget", {}).cause for cause in (Cause.IMPLAUSIBLE, Cause.LIMIT)]
    assert causes == ["", Cause.LIMIT]
    assert check_claim(claim_of(wide, replace(wide, experiment="other")), "budget", FOUND).verdict == "not run"
    assert check_claim(claim_of(), "budget", FOUND).verdict == "not tested"


def test_a_verdict_needs_three_seeds_unless_nothing_is_random():
    two = {("budget", "data"): [record for record in RECORDS if record["seed"] < 2]}
    comparison = replace(VALUE, within=5.0)
    assert check_claim(claim_of(comparison), "budget", FOUND).verdict == "yes"
    assert check_claim(claim_of(comparison), "budget", two).verdict == "too few seeds"
    assert check_claim(claim_of(replace(comparison, deterministic=True)), "budget", two).verdict == "yes"
    assert check_claim(claim_of(replace(comparison, within=0.1)), "budget", two).verdict == "too few seeds"


def test_the_best_reading_decides_and_is_named():
    close, far = replace(VALUE, within=5.0, reading="sum"), replace(VALUE, within=0.1, reading="mean")
    result = check_claim(claim_of(close, far, cause=Cause.AMBIGUOUS), "budget", FOUND)
    assert (result.verdict, result.cause, result.reading, len(result.checks)) == ("yes", Cause.AMBIGUOUS, "sum", 2)
    both = check_claim(claim_of(close, replace(far, within=5.0)), "budget", FOUND)
    assert (both.verdict, both.cause, both.reading) == ("yes", Cause.REPRODUCED, "")
    assert check_claim(claim_of(replace(close, within=0.1), far, cause=Cause.LIMIT), "budget", FOUND).verdict == "no"


def test_measures_of_a_history():
    record = {"history": [{"n_iter": n, "error": e} for n, e in ((1, 9.0), (2, 3.0), (3, 2.0), (4, 2.5))]}
    assert (at_step(1)(record), at_step(9)(record)) == (9.0, None)
    assert late_mean(2)(record) == 2.25
    assert late_mean(3)(record) is None
    assert early_mean(2)(record) == 6.0
    assert early_mean(5)(record) is None
    assert fluctuation(2)(record) == pytest.approx(0.5 / 2**0.5)
    assert change_since(2)(record) == 0.5
    assert change_since(7)(record) is None
    assert late_mean(2)({"history": [{"n_iter": 1}]}) is None


def test_measures_of_a_confusion_matrix():
    record = {"confusion": {"labels": ["cat", "dog"], "counts": [[3, 1], [0, 4]]}}
    assert confused_with("cat", "dog")(record) == 25.0
    assert confused_with("cat", "cow")(record) is None
    assert confused_with("cat", "dog")({}) is None
    three = {"labels": ["cat", "dog", "cow"], "counts": [[6, 4, 0], [3, 6, 1], [2, 0, 8]]}
    assert lead_of_pair("cat", "dog")({"confusion": three}) == pytest.approx(10.0)
    assert lead_of_pair("cat", "cow")({"confusion": three}) == pytest.approx(-40.0)
    assert lead_of_pair("cat", "pig")({"confusion": three}) is None
    assert class_error("cat")(record) == 25.0
    assert class_error("cow")(record) is None


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_refer_to_settings_of_the_experiments(paper):
    declared = {spec.name: spec for spec in specs(paper)}
    stated = claims(paper)
    assert len(stated) >= 4
    assert len({claim.name for claim in stated}) == len(stated)
    for comparison in (comparison for claim in stated for comparison in claim.comparisons):
        grid = declared[comparison.experiment].grid
        assert any(comparison.one.items() <= params.items() for params in grid), comparison
        if not isinstance(comparison.other, float | Printed):
            other = comparison.other_experiment or comparison.experiment
            grid = declared[other].grid
            assert any(comparison.other.items() <= params.items() for params in grid), comparison
        if comparison.along is not None:
            assert any(comparison.along in params for params in declared[comparison.experiment].grid)


@pytest.mark.parametrize("paper", PAPERS)
def test_experiments_of_a_claim_contain_both_settings_of_its_comparisons(paper):
    for claim in claims(paper):
        grids = {(spec.paper, spec.name): spec.grid for spec in specs_of_claim(paper, claim)}
        assert bool(grids) == bool(claim.comparisons)
        assert all(grids.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_committed_records_explain_every_verdict(paper):
    stored = [record for path in RESULTS.glob("*/results.jsonl") for record in Results(path).records()]
    found = group_by(records_of(specs(), stored), lambda record: (record["paper"], record["experiment"]))
    for claim in claims(paper):
        result = check_claim(claim, paper, found)
        assert claim.reason, claim.name
        assert result.verdict not in ("not run", "too few seeds") or claim.cause == Cause.LIMIT, claim.name
        if result.verdict == "yes":
            assert claim.cause in (Cause.REPRODUCED, Cause.AMBIGUOUS), claim.name
            assert (claim.cause == Cause.AMBIGUOUS) == bool(result.reading), claim.name
        else:
            assert claim.cause != Cause.REPRODUCED, claim.name


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/results.jsonl")), ids=lambda path: path.parent.name)
def test_committed_records_state_commit_versions_hardware_and_seed(path):
    records = Results(path).records()
    declared = {spec.key(*fit, device) for spec in specs() for fit in spec.fits() for device in (None, "cuda")}
    assert {record["key"] for record in records} <= declared
    for record in records:
        stated = [record["commit"], record["versions"]["numpy"], record["versions"]["gramless"], record["hardware"]["cpu"]]
        assert all(stated), record["key"]
        assert not record["commit"].endswith("-dirty"), record["key"]
        assert isinstance(record["seed"], int), record["key"]


def test_papers_with_claims_about_time():
    for paper in ("randomized", "budget", "prototypes", "smo"):
        measured = {c.measure for claim in claims(paper) for c in claim.comparisons}
        assert measured & {"seconds", "cpu_seconds"}, paper
