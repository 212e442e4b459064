"""Claims as values for the templates."""

from gramless.papers.experiments import Claim, Comparison
from gramless.papers.report.claims import claims_section


def record(method, share, seed, accuracy):
    return {
        "status": "done",
        "params": {"method": method, "share": share},
        "seed": seed,
        "device": None,
        "metrics": {"accuracy": accuracy},
    }


RECORDS = [
    record(method, share, seed, accuracy)
    for method, share, accuracies in (
        ("ours", 0.2, [90.0, 92.0]),
        ("ours", 1.0, [93.0, 95.0]),
        ("theirs", 0.2, [91.0, 92.0]),
        ("theirs", 1.0, [96.0, 97.0]),
    )
    for seed, accuracy in enumerate(accuracies)
]


def test_values_and_tolerance_are_shown():
    comparison = Comparison("data", {"method": "ours"}, "at least", {"method": "theirs"}, "accuracy", along="share")
    claim = Claim("near", "Ours is near theirs.", "Fig. 1", (comparison,), note="Because.")
    shown = claims_section([claim], "budget", {("budget", "data"): RECORDS})
    (item,) = shown["claims"]
    assert (item["verdict"], item["count"], item["note"]) == ("partly", "1 of 2", "Because.")
    low, high = item["checks"]
    assert (low["ours"], low["theirs"], low["gap"], low["tolerance"]) == ("91.00 ± 1.41", "91.50 ± 0.71", "−0.5", "0.707")
    assert "share 1" in high["what"]
    assert (low["holds"], high["holds"]) == ("yes", "no")
