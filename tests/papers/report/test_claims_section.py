"""Claims as values for the templates."""

from gramless.papers.experiments.claims import check_claim
from gramless.papers.experiments.declarations import Cause, Claim, Comparison
from gramless.papers.experiments.measures import Measure
from gramless.papers.report.formatting import claim_values


def record(method, share, seed, accuracy):
    return {
        "status": "done",
        "params": {"method": method, "share": share},
        "seed": seed,
        "device": None,
        "estimator": "LSSVC()",
        "metrics": {"accuracy": accuracy},
    }


RECORDS = [
    record(method, share, seed, accuracy)
    for method, share, accuracies in (
        ("ours", 0.2, [90.0, 91.0, 92.0]),
        ("ours", 1.0, [93.0, 94.0, 95.0]),
        ("theirs", 0.2, [91.0, 91.5, 92.0]),
        ("theirs", 1.0, [99.0, 99.0, 99.0]),
    )
    for seed, accuracy in enumerate(accuracies)
]


def test_values_tolerance_and_cause_are_shown():
    comparison = Comparison("data", {"method": "ours"}, "at least", {"method": "theirs"}, "accuracy", along="share")
    claim = Claim("near", "Ours is near theirs.", "Fig. 1", (comparison,), "none lost", Cause.LIMIT, "Because.")
    item = claim_values(check_claim(claim, "budget", {("budget", "data"): RECORDS}), "budget")
    assert (item["verdict"], item["count"], item["cause"], item["reason"]) == ("partly", "1 of 2", "our limit", "Because.")
    assert (item["printed"], item["ours"]) == (
        "none lost",
        "91.00 ± 1.00 against 91.50 ± 0.50; 94.00 ± 1.00 against 99.00 ± 0.00 %",
    )
    assert item["command"] == "gramless reproduce budget --claim near"
    assert item["estimator"] == "LSSVC()"
    low, high = item["checks"]
    assert (low["ours"], low["theirs"], low["gap"], low["tolerance"]) == ("91.00 ± 1.00", "91.50 ± 0.50", "−0.5", "1.24")
    assert "share 1" in high["what"]
    assert (low["holds"], high["holds"]) == ("yes", "no")


def shown(measure, records=RECORDS):
    comparison = Comparison("data", {"method": "ours", "share": 0.2}, "at most", 1.0, measure)
    claim = Claim("name", "Statement.", "Fig. 1", (comparison,))
    return claim_values(check_claim(claim, "budget", {("budget", "data"): records}), "budget")["ours"]


def test_measured_number_has_the_digits_of_its_spread():
    assert shown(Measure("number", lambda record: (record["metrics"]["accuracy"] - 90) / 300)) == "0.003 ± 0.003"
    assert shown(Measure("number", lambda record: 20 * record["metrics"]["accuracy"] / 4)) == "455 ± 5"
    assert shown("n_vectors", [{**r, "metrics": {"n_vectors": 1266 + r["seed"]}} for r in RECORDS]) == "1,267.0 ± 1.0"
