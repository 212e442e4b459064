"""Verdicts on claims: tolerances, relations, measures; fits on different devices are never compared."""

import math

import pytest

from gramless.papers.experiments import PAPERS, Claim, Comparison, claims, specs
from gramless.papers.experiments.claims import (
    ChangeSince,
    ConfusedWith,
    Fluctuation,
    SecondsPerStep,
    StepsTo,
    check_claim,
    check_comparison,
)


def fits(method, accuracies, device=None):
    """Return records of seeds 0, 1, ... with a row of accuracies for share 0.2 and one for share 1."""
    return [
        {
            "status": "done",
            "params": {"method": method, "share": share},
            "seed": seed,
            "device": device,
            "data": {"n_test": 400, "n_train": 1600},
            "metrics": {"accuracy": accuracy, "error": 100 - accuracy, "cv_error": 100 - accuracy, "seconds": 2.0},
        }
        for share, row in zip((0.2, 1.0), accuracies, strict=True)
        for seed, accuracy in enumerate(row)
    ]


RECORDS = fits("ours", [[90.0, 92.0], [93.0, 95.0]]) + fits("theirs", [[91.0, 92.0], [96.0, 97.0]])
FOUND = {("budget", "data"): RECORDS}
NEAR = Comparison("data", {"method": "ours"}, "at least", {"method": "theirs"}, "accuracy", along="share")


def test_tolerance_is_the_standard_deviation_of_the_other_setting():
    low, high = check_comparison(NEAR, "budget", FOUND)
    assert (low.at, low.gap, low.holds) == (0.2, -0.5, True)
    assert (high.at, high.gap, high.holds) == (1.0, -2.5, False)
    assert low.tolerance == high.tolerance == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(("metric", "rows"), [("error", 400), ("cv_error", 1600)])
def test_tolerance_of_a_printed_value_is_one_standard_error(metric, rows):
    (check,) = check_comparison(Comparison("data", {"method": "ours", "share": 0.2}, "near", 10.0, metric), "budget", FOUND)
    assert check.measured == pytest.approx(9.0)
    assert check.tolerance == pytest.approx(100 * math.sqrt(0.1 * 0.9 / rows))
    assert check.holds == (rows == 400)


@pytest.mark.parametrize(
    ("relation", "within"),
    [("near", "--+--"), ("below", "+----"), ("above", "----+"), ("at most", "+++--"), ("at least", "--+++")],
)
def test_relations(relation, within):
    """Gaps of -2, -1.01, 0, 1.01 and 2 with a tolerance of 1."""
    comparison = Comparison("data", {}, relation, 0.0)
    held = [comparison.holds(gap, 1.0) for gap in (-2.0, -1.01, 0.0, 1.01, 2.0)]
    expected = {"below": "++---", "above": "---++"}.get(relation, within)
    assert held == [sign == "+" for sign in expected]


def test_unknown_relation_lists_the_known_relations():
    with pytest.raises(ValueError, match="known are near, below, above, at most, at least"):
        Comparison("data", {}, "beneath", 1.0)


def test_ratios():
    (check, _) = check_comparison(
        Comparison(
            "data", {"method": "ours"}, "near", {"method": "theirs"}, "seconds", along="share", factor=1.0, within=0.1
        ),
        "budget",
        FOUND,
    )
    assert (check.gap, check.holds) == (0.0, True)


def test_fits_are_compared_on_the_same_device():
    elsewhere = fits("theirs", [[99.0, 99.0], [99.0, 99.0]], device="cuda")
    assert len(check_comparison(NEAR, "budget", {("budget", "data"): RECORDS + elsewhere})) == 2
    only_elsewhere = [r for r in RECORDS if r["params"]["method"] == "ours"] + elsewhere
    assert check_comparison(NEAR, "budget", {("budget", "data"): only_elsewhere}) == []


def test_verdicts():
    worse = Comparison("data", {"method": "ours"}, "below", {"method": "theirs"}, "accuracy", along="share", within=1.0)
    better = Comparison("data", {"method": "ours"}, "above", {"method": "theirs"}, "accuracy", along="share", within=0.0)
    wide = Comparison("data", {"method": "ours"}, "near", {"method": "theirs"}, "accuracy", along="share", within=3.0)
    verdicts = [check_claim(Claim("", "", "", (one,)), "budget", FOUND)[0] for one in (wide, worse, better)]
    assert verdicts == ["yes", "partly", "no"]
    assert check_claim(Claim("", "", "", (wide,)), "budget", {})[0] == "not run"
    assert check_claim(Claim("", "", ""), "budget", FOUND)[0] == "not tested"


def test_measures_of_a_history():
    history = [{"n_iter": n, "error": e} for n, e in ((1, 9.0), (2, 3.0), (3, 2.0), (4, 2.5))]
    record = {
        "history": history,
        "metrics": {"seconds": 8.0},
        "confusion": {"labels": ["cat", "dog"], "counts": [[3, 1], [0, 4]]},
    }
    assert StepsTo(3.0)(record) == 2
    assert StepsTo(1.0)(record) is None
    assert SecondsPerStep()(record) == 2.0
    assert Fluctuation()(record) == pytest.approx(0.5 / 2**0.5)
    assert ChangeSince(2)(record) == 0.5
    assert ChangeSince(7)(record) is None
    assert ConfusedWith("cat", "dog")(record) == 25.0
    assert ConfusedWith("cat", "cow")(record) is None


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_refer_to_settings_of_the_experiments(paper):
    declared = {f"{spec.paper}/{spec.name}": spec for spec in specs()}
    stated = claims(paper)
    assert len(stated) >= 4
    assert len({claim.name for claim in stated}) == len(stated)
    for comparison in (comparison for claim in stated for comparison in claim.comparisons):
        name = comparison.experiment if "/" in comparison.experiment else f"{paper}/{comparison.experiment}"
        grid = declared[name].grid
        assert any(comparison.one.items() <= params.items() for params in grid), comparison
        if not isinstance(comparison.other, float):
            other = comparison.other_experiment or comparison.experiment
            grid = declared[other if "/" in other else f"{paper}/{other}"].grid
            assert any(comparison.other.items() <= params.items() for params in grid), comparison
        if comparison.along is not None:
            assert any(comparison.along in params for params in declared[name].grid)


def test_papers_with_claims_about_time():
    for paper in ("randomized", "budget", "prototypes", "smo"):
        measured = {c.measure for claim in claims(paper) for c in claim.comparisons}
        assert measured & {"seconds", SecondsPerStep()}, paper
