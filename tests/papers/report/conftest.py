"""Constructed records for every kind of view, and the report of these records."""

import base64

import numpy as np
import pytest

from gramless.papers.experiments.declarations import (
    Confusion,
    Curve,
    Gallery,
    History,
    Pictures,
    Reference,
    Spec,
    Table,
    product,
)
from gramless.papers.report import write_report

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'&'


def estimator(params, seed):
    raise NotImplementedError


SPECS = (
    Spec(
        "randomized",
        "steps",
        f"Error against iteration {HOSTILE}",
        "digits",
        estimator,
        product(solver=["kaczmarz", "matching_pursuit"], block_size=[100, 500]),
        views=(History(facet="solver"), History(y="residual", log_y=True), Table(), Confusion(), Gallery()),
        references=(Reference(1.1, "Fig. 2(c)", {"solver": "matching_pursuit"}, spread=0.1),),
        about=HOSTILE,
        finding=HOSTILE,
        data_label="Digits",
        headline={"solver": "matching_pursuit", "block_size": 500},
        headline_reason=f"declared {HOSTILE}",
    ),
    Spec(
        "budget",
        "curve",
        "Accuracy against budget",
        "digits",
        estimator,
        product(method=["budget", HOSTILE], budget=[0.2, 0.6, 1.0]),
        seeds=(0, 1, 2),
        views=(
            Pictures(key="atoms", title=f"Atoms {HOSTILE}"),
            Curve("budget", "accuracy"),
            Curve("budget", "seconds", facet="method", log_y=True),
            Table(),
        ),
        references=(Reference(98.0, "Fig. 1", {"budget": 0.6}, metric="accuracy"),),
    ),
    Spec("risvo", "not-run", "Nothing yet", "digits", estimator, product(m=[1])),
    Spec("smo", "failing", "Nothing but failures", "digits", estimator, product(m=[1])),
)


def record_of(spec, params, seed, number):
    rng = np.random.default_rng(number)
    error = 1 + 3 * rng.random()
    counts = np.full((10, 10), 1) + np.diag(np.full(10, 90))
    return {
        "key": spec.key(params, seed),
        "status": "done",
        "paper": spec.paper,
        "experiment": spec.name,
        "params": params,
        "seed": seed,
        "device": None,
        "data": {"name": "digits", "n_train": 1347, "n_test": 450, "n_features": 64, "split": "random"},
        "metrics": {
            "error": error,
            "accuracy": 100 - error,
            "seconds": 0.1 * (number + 1),
            "predict_seconds": 0.1,
            "peak_mb": 150 + number,
        },
        "history": [{"n_iter": n, "seconds": 0.1 * n, "residual": 0.5**n, "error": error + 30 / n} for n in range(1, 50)],
        "confusion": {"labels": list("0123456789"), "counts": counts.tolist()},
        "misclassified": {
            "total": 80,
            "image_shape": [8, 8],
            "images": [
                {
                    "index": k,
                    "true": "4",
                    "predicted": HOSTILE if k == 0 else "9",
                    "pixels": base64.b64encode(rng.integers(0, 256, 64, dtype=np.uint8).tobytes()).decode(),
                }
                for k in range(70)
            ],
        },
        "pictures": {"atoms": {"image_shape": [2, 2], "images": [{"said": HOSTILE, "pixels": "AECA/w=="}]}},
        "warnings": [{"message": f"ConvergenceWarning: residual {0.01 * number:.3f} {HOSTILE}", "count": 2}],
        "versions": {"python": "3.11", "gramless": HOSTILE},
        "hardware": {"cpu": "A processor", "cores": 2, "memory_gb": 24.0, "system": "Linux"},
        "commit": "abc",
        "finished_at": 1.8e9,
    }


def make_records():
    records = []
    for spec in SPECS[:2]:
        for params, seed in spec.fits():
            records.append(record_of(spec, params, seed, len(records)))
    failed = SPECS[3]
    records.append(
        {
            "key": failed.key({"m": 1}, 0),
            "status": "failed",
            "paper": "smo",
            "experiment": "failing",
            "params": {"m": 1},
            "seed": 0,
            "reason": f"ValueError: {HOSTILE}",
        }
    )
    return records


@pytest.fixture(scope="session")
def report_specs():
    return SPECS


@pytest.fixture(scope="session")
def report_records():
    return make_records()


@pytest.fixture(scope="session")
def report_path(tmp_path_factory, report_records):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(SPECS, report_records, path, quick=True, missing=1)
