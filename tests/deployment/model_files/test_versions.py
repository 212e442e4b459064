"""Files of all released versions load and predict as before; errors of other files have advice."""

import json
import zipfile

import numpy as np
import pytest
from write_files import FILES, predictions

import gramless
from gramless import LSSVC
from gramless.deployment import model_files

WRITTEN = sorted(FILES.glob("*/*.skops"))


def test_files_of_this_version_exist():
    assert any(path.parent.name == gramless.__version__ for path in WRITTEN)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_file_of_every_version_predicts_as_before(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    np.testing.assert_allclose(predictions(gramless.load(path)), expected, atol=1e-6)


def changed(path, change):
    """Rewrite a file with a changed schema."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema["content"])
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "m.skops"
    gramless.save(LSSVC(C=3.0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"]), path)
    return path


def test_missing_parameters_have_default_values(saved):
    """Files of earlier versions lack parameters that were added later."""

    def forget(content):
        del content["estimator"]["content"]["content"]["solver"]

    changed(saved, forget)
    loaded = gramless.load(saved)
    assert loaded.solver == LSSVC().solver
    assert "C=3.0" in repr(loaded)


def test_error_for_file_of_another_version_has_advice(saved):
    def write(content):
        content["gramless"]["content"] = '"7.1.0"'
        content["scikit-learn"]["content"] = '"0.24.2"'
        content["estimator"]["__class__"] = "BetterLSSVC"

    changed(saved, write)
    with pytest.raises(ValueError, match="BetterLSSVC") as error:
        gramless.load(saved)
    assert "It was written by gramless 7.1.0 and scikit-learn 0.24.2, and this is" in str(error.value)
    assert "pip install 'gramless==7.1.0' 'scikit-learn==0.24.2'" in str(error.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_are_saved_in_half_precision_if_exact(tmp_path, dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (300, 40)).astype(dtype)
    model = LSSVC(gamma=1e-5).fit(X, X[:, 0] > 128)
    gramless.save(model, tmp_path / "half.skops")
    loaded = gramless.load(tmp_path / "half.skops")
    assert loaded.points_.dtype == dtype
    np.testing.assert_array_equal(loaded.points_, model.points_)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with zipfile.ZipFile(tmp_path / "half.skops") as archive:
        sizes = [member.file_size for member in archive.infolist() if member.filename.endswith(".npy")]
    assert max(sizes) < 1.1 * 2 * X.size
    others = X + 1 / 3  # half precision would lose digits
    model = LSSVC(gamma=1e-5).fit(others, X[:, 0] > 128)
    gramless.save(model, tmp_path / "whole.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "whole.skops").points_, model.points_)


def test_longest_matching_old_name_is_replaced():
    """A class that was moved out of a renamed package has a separate entry."""
    names = {**model_files.RENAMED, "gramless.program.model.TableModel": "gramless.tables.Other"}
    schema = [
        {"__module__": "gramless.program.model", "__class__": "TableModel"},
        {"__module__": "gramless.program.pictures", "__class__": "PictureModel"},
        {"__module__": "gramless.programs", "__class__": "TableModel"},
    ]
    assert model_files.use_current_names(schema, names)
    assert [f"{node['__module__']}.{node['__class__']}" for node in schema] == [
        "gramless.tables.Other",
        "gramless.cli.pictures.PictureModel",
        "gramless.programs.TableModel",
    ]
