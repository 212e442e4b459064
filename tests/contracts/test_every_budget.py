"""Every estimator stays within its memory budget or raises before the fit, measured from outside the fitting process.

`benchmarks/memory.py` measures all estimators of the registry.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import gramless

PUBLIC = {name: getattr(gramless, name) for name in sorted(gramless._EXPORTS)}
ESTIMATORS = [name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, BaseEstimator)]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory.py"
MOST = 1.05

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK) or not hasattr(os, "fork"), reason="the peak is read from Linux's /proc"
)


@pytest.fixture(scope="module")
def measured():
    """Return the records of the benchmark by estimator or call, such as "LSSVC" and "LSSVC.predict"."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, BENCHMARK, "--lines", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = defaultdict(list)
    for line in done.stdout.splitlines():
        one = json.loads(line)
        found[one["estimator"]].append(one)
    return found


@pytest.mark.parametrize("name", [*ESTIMATORS, "gramless train", "gramless predict", "gramless serve"])
def test_fit_stays_within_budget(measured, name):
    fits = measured[name]
    assert {one["answer"] for one in fits} <= {"fitted", "refused"}
    assert any(one["answer"] == "fitted" for one in fits)
    if name in PUBLIC and "memory_budget" not in PUBLIC[name]._get_param_names():
        assert all(one["peak"] < one["estimate"] + 5e6 for one in fits)  # threads and small objects
        return
    assert len(fits) % 3 == 0
    beyond = [one for one in fits if one["answer"] == "fitted" and one["share"] > MOST]
    assert not beyond
    assert all(len(one["sentence"]) > 40 and "memory_budget" in one["sentence"] for one in fits if one["answer"] != "fitted")


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if "memory_budget" in PUBLIC[name]._get_param_names()])
def test_calls_after_a_fit_stay_within_the_budget(measured, name):
    calls = {call: records for call, records in measured.items() if "." in call and call.partition(".")[0] == name}
    assert f"{name}.predict" in calls
    beyond = [one for records in calls.values() for one in records if one["answer"] == "fitted" and one["share"] > MOST]
    assert not beyond


def test_every_kind_of_call_is_measured(measured):
    calls = {call.partition(".")[2] for call in measured}
    assert calls >= {
        "predict",
        "predict_proba",
        "predict_set",
        "predict_interval",
        "predict(return_std=True)",
        "partial_fit",
    }
    assert calls >= {"compress", "compiled", "to_onnx", "decision_function", "permutation_importance"}
