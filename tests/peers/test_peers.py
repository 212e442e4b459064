"""scikit-learn's own tests with our estimators in place of its SVMs, taken from the installed package.

`expected_failures.toml` lists the tests that fail and the reasons; other failures, and listed tests that pass or do not
exist, fail the build. The suites run in one separate process, where `stand_in.py` replaces the classes.
"""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import sklearn

HERE = Path(__file__).parent
SUITES = {
    "SVC and SVR": ["svm/tests/test_svm.py", "svm/tests/test_sparse.py"],
    "KernelRidge": ["tests/test_kernel_ridge.py"],
    "multiclass and calibration": ["tests/test_multiclass.py", "tests/test_calibration.py"],
    "model selection": ["model_selection/tests/test_search.py", "model_selection/tests/test_validation.py"],
    "ensembles": [
        "ensemble/tests/test_bagging.py",
        "ensemble/tests/test_weight_boosting.py",
        "ensemble/tests/test_stacking.py",
        "ensemble/tests/test_voting.py",
    ],
    "feature selection": ["feature_selection/tests/test_rfe.py", "feature_selection/tests/test_from_model.py"],
}
AT_LEAST = {"SVC and SVR": 130}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """Return module, name, outcome and error of every test that constructs a replacement."""
    package = Path(sklearn.__file__).parent
    results = tmp_path_factory.mktemp("peers") / "results.jsonl"
    environment = {
        **os.environ,
        "GRAMLESS_PEERS": str(results),
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    modules = [f"sklearn/{module}" for suite in SUITES.values() for module in suite]
    options = ["-q", "-p", "stand_in", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={package.parent}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-W", "ignore::pytest.PytestUnknownMarkWarning", *modules],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert results.exists(), done.stdout + done.stderr
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr
    return [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.parametrize("suite", SUITES)
def test_failures_equal_expected_failures(suite, outcomes, record_property):
    expected = tomllib.loads((HERE / "expected_failures.toml").read_text())
    here = [outcome for outcome in outcomes if outcome["module"] in SUITES[suite]]
    failed = {(o["module"], o["test"]): o["error"] for o in here if o["outcome"] == "failed"}
    passed = sum(outcome["outcome"] == "passed" for outcome in here)
    reasons = {(module, test) for module in SUITES[suite] for test in expected.get(module, {})}
    said = f"{suite}: {passed} of {len(here)} tests pass, {len(failed)} fail as expected_failures.toml says"
    record_property("peers", said)
    of = f"scikit-learn {sklearn.__version__}; the table was made with {expected['scikit_learn']}"
    assert not set(failed) - reasons, (
        f"unexpected failures ({of}): { {t: e for t, e in failed.items() if t not in reasons} }"
    )
    assert not reasons - set(failed), f"no longer fail ({of}), take them out of the table: {reasons - set(failed)}"
    assert passed >= AT_LEAST.get(suite, 1)
