"""Equal models have equal files: every public estimator, fitted twice, loaded and saved again, and fitted in a new process.

The table of the results is printed by `pytest -s tests/contracts/test_reproducible_files.py`.
"""

import hashlib
import json
import os
import subprocess
import sys
import warnings
import zipfile

import pytest
from sklearn.utils import get_tags
from test_every_model_file import ESTIMATORS, IMAGES, X, targets

import gramless


def fitted(name):
    """Fit an estimator of the registry with a fixed seed."""
    estimator = getattr(gramless, name)()
    fixed = {"random_state": 0, "patch_size": 4}
    if name == "PatchClassifier":  # has no seed of its own
        fixed["estimator"] = gramless.PrototypeLSSVC(random_state=0)
    estimator.set_params(**{key: value for key, value in fixed.items() if key in estimator.get_params()})
    tags = get_tags(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(
            X if tags.input_tags.two_d_array else IMAGES, targets(estimator) if tags.target_tags.required else None
        )


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of(model, path):
    """Return the digest of the file of a model without measured times."""
    gramless.save(model, path, times=False)
    return digest(path)


@pytest.fixture(scope="module")
def digests_of_another_process():
    """Digests of all estimators, fitted in a process with another hash seed, other imports and the reverse order."""
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=600, env=environment, check=True
    )
    return json.loads(done.stdout)


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_models_have_equal_files(name, tmp_path, digests_of_another_process, capsys):
    model = fitted(name)
    first = digest_of(model, tmp_path / "first.skops")
    cases = {
        "saved again": digest_of(model, tmp_path / "again.skops"),
        "loaded and saved": digest_of(gramless.load(tmp_path / "first.skops"), tmp_path / "loaded.skops"),
        "fitted again": digest_of(fitted(name), tmp_path / "second.skops"),
        "new process": digests_of_another_process[name],
    }
    with capsys.disabled():
        print(
            f"\n{name:18}", *(f"{case}: {'equal' if one == first else 'DIFFERENT'}" for case, one in cases.items()), sep="  "
        )
    assert set(cases.values()) == {first}


def test_measured_times_are_in_one_member(tmp_path):
    for name in ("one", "two"):
        gramless.save(fitted("LSSVC"), tmp_path / name)
    one, two = members(tmp_path / "one"), members(tmp_path / "two")
    assert one.pop("times.json") != two.pop("times.json")
    assert one == two


def test_measured_times_are_loaded(tmp_path):
    model = fitted("NystromLSSVC")
    gramless.save(model, tmp_path / "with.skops")
    gramless.save(model, tmp_path / "without.skops", times=False)
    assert gramless.load(tmp_path / "with.skops").history_ == model.history_
    assert {record["seconds"] for record in gramless.load(tmp_path / "without.skops").history_} == {0.0}
    assert all(record["seconds"] > 0 for record in model.history_)


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    import gramless.deployment.compiled
    import gramless.estimators.table

    with tempfile.TemporaryDirectory() as folder:
        found = {name: digest_of(fitted(name), Path(folder) / "m.skops") for name in reversed(ESTIMATORS)}
    sys.stdout.write(json.dumps(found))
