"""Claims are checked against the fits, not believed."""

import pytest

from gramless.experiments import Claim, Claims
from gramless.report.claims import checks, claims_list


def fits(method, accuracies):
    """Seeds 0, 1, ... at shares 0.2 and 1, a row of accuracies each."""
    return [
        {"params": {"method": method, "share": share}, "seed": seed, "metrics": {"accuracy": accuracy}}
        for share, row in zip((0.2, 1.0), accuracies, strict=True)
        for seed, accuracy in enumerate(row)
    ]


RECORDS = fits("ours", [[90.0, 92.0], [93.0, 95.0]]) + fits("theirs", [[91.0, 92.0], [96.0, 97.0]])
NEAR = Claim("ours near theirs", {"method": "ours"}, {"method": "theirs"}, along="share", why="Because.")


def test_the_limit_is_the_others_standard_deviation():
    low, high = checks(NEAR, RECORDS)
    assert (low.at, low.under, low.holds) == (0.2, 0.5, True)
    assert (high.at, high.under, high.holds) == (1.0, 2.5, False)
    assert low.allowed == high.allowed == pytest.approx(0.5**0.5)


def test_a_given_margin_and_two_points_of_the_grid():
    claim = Claim("flat", {"method": "ours", "share": 0.2}, {"method": "ours", "share": 1.0}, margin=3.0)
    (check,) = checks(claim, RECORDS)
    assert (check.at, check.under, check.allowed, check.holds) == (None, 3.0, 3.0, True)


def test_what_does_not_hold_is_said_with_its_reason():
    (item,) = claims_list(Claims((NEAR,), title="Claimed"), RECORDS)["found"]
    assert item["verdict"] == "Does not hold at 1 of 2: "
    assert "at share 1: 2.50 under, 0.71 allowed" in item["said"]
    assert "Because." in item["said"]
    wider = Claim("near", NEAR.one, NEAR.other, along="share", margin=2.6, why="Because.")
    (item,) = claims_list(Claims((wider,)), RECORDS)["found"]
    assert item["verdict"] == "Holds: "
    assert "nearest to the limit at share 1: 2.50 under, 2.60 allowed" in item["said"]
    assert "Because." not in item["said"]


def test_a_better_one_is_above():
    claim = Claim("theirs near ours", NEAR.other, NEAR.one, along="share", margin=0.0)
    (item,) = claims_list(Claims((claim,)), RECORDS)["found"]
    assert "at share 0.2: 0.50 above" in item["said"]


def test_nothing_is_said_before_there_are_fits():
    assert claims_list(Claims((NEAR,)), []) is None
    one_seed = [record for record in RECORDS if record["seed"] == 0]
    assert claims_list(Claims((NEAR,)), one_seed) is None
