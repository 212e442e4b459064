"""Model files: loaded models equal saved models, and forged files raise errors without running code."""

import io
import json
import os
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import skops.io
import torch
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gramless
from gramless import LSSVC, SphericalKMeans
from gramless.kernels import RBF, Columns, Linear

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.where(X[:, 0] > 0, "yes", "no")
OTHERS = np.random.default_rng(1).normal(size=(20, 4))


class Foreign(LogisticRegression):
    """A class that is not part of gramless or scikit-learn."""


def test_loaded_model_equals_saved_model(tmp_path):
    kernel = Columns(RBF(gamma=0.5), slice(0, 2)) * (Linear() + 2.0 * RBF(gamma=0.1)) ** 2
    model = LSSVC(kernel=kernel, C=3.0, probability="sigmoid").fit(X, Y)
    gramless.save(model, tmp_path / "m.skops")
    back = gramless.load(tmp_path / "m.skops")
    assert back.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert repr(back.kernel_) == repr(model.kernel_)
    assert back.history_ == model.history_
    np.testing.assert_array_equal(back.predict(OTHERS), model.predict(OTHERS))
    np.testing.assert_array_equal(back.predict_proba(OTHERS), model.predict_proba(OTHERS))


def test_pipeline_with_search(tmp_path):
    model = make_pipeline(StandardScaler(), LSSVC(C="loo", gamma=[0.1, 1.0])).fit(X, Y)
    gramless.save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").predict(OTHERS), model.predict(OTHERS))


def test_model_of_tensors_is_loaded_as_numpy(tmp_path):
    model = LSSVC().fit(torch.as_tensor(X), Y)
    gramless.save(model, tmp_path / "m.skops")
    np.testing.assert_allclose(
        gramless.load(tmp_path / "m.skops").decision_function(OTHERS), model.decision_function(OTHERS)
    )


def test_callbacks_are_not_saved(tmp_path):
    def callback(estimator, record):
        return False

    model = make_pipeline(StandardScaler(), LSSVC(callback=callback)).fit(X, Y)
    gramless.save(model, tmp_path / "m.skops")
    assert gramless.load(tmp_path / "m.skops")[-1].callback is None
    assert model[-1].callback is callback


def test_kernel_function_cannot_be_saved(tmp_path):
    model = LSSVC(kernel=lambda A, B: A @ B.T).fit(X, Y)
    with pytest.raises(ValueError, match="cannot have"):
        gramless.save(model, tmp_path / "m.skops")
    assert os.listdir(tmp_path) == []


def test_foreign_type_raises(tmp_path):
    payload = {"format_version": 1, "gramless": "0", "estimator": Foreign().fit(X, Y)}
    skops.io.dump(payload, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"Foreign"):
        gramless.load(tmp_path / "m.skops")


def test_function_of_this_library_raises(tmp_path):
    payload = {"format_version": 1, "gramless": "0", "estimator": gramless.save}
    skops.io.dump(payload, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"gramless\.deployment\.model_files\.save"):
        gramless.load(tmp_path / "m.skops")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_truncated_file_raises(tmp_path, share):
    gramless.save(LSSVC().fit(X, Y), tmp_path / "m.skops")
    content = (tmp_path / "m.skops").read_bytes()
    (tmp_path / "cut.skops").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(tmp_path / "cut.skops")


def test_zeroed_bytes_raise(tmp_path):
    gramless.save(LSSVC().fit(X, Y), tmp_path / "m.skops")
    content = bytearray((tmp_path / "m.skops").read_bytes())
    middle = len(content) // 3
    content[middle : middle + 40] = bytes(40)
    (tmp_path / "m.skops").write_bytes(content)
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(tmp_path / "m.skops")


def test_unknown_format_version_raises(tmp_path):
    skops.io.dump({"format_version": 99, "gramless": "9.9", "estimator": None}, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"format 99 \(gramless 9.9\).*reads format 1"):
        gramless.load(tmp_path / "m.skops")


def test_other_skops_file_raises(tmp_path):
    skops.io.dump(LogisticRegression().fit(X, Y), tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"not one that gramless\.save wrote"):
        gramless.load(tmp_path / "m.skops")


def test_other_files_raise(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    (tmp_path / "b.txt").write_text("not a model")
    for name in ("a.zip", "b.txt"):
        with pytest.raises(ValueError, match="not a complete gramless model file"):
            gramless.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no such model file"):
        gramless.load(tmp_path / "c.skops")


def test_failed_save_keeps_previous_file(tmp_path):
    gramless.save(LSSVC().fit(X, Y), tmp_path / "m.skops")
    before = (tmp_path / "m.skops").read_bytes()
    with pytest.raises(ValueError):
        gramless.save(LSSVC(kernel=lambda A, B: A @ B.T).fit(X, Y), tmp_path / "m.skops")
    assert (tmp_path / "m.skops").read_bytes() == before
    assert os.listdir(tmp_path) == ["m.skops"]


def test_files_are_compressed(tmp_path):
    X = np.repeat(np.eye(40), 20, axis=0)
    model = gramless.LSSVC().fit(X, np.arange(800) % 2)
    gramless.save(model, tmp_path / "model.skops")
    assert (tmp_path / "model.skops").stat().st_size < 0.2 * model.points_.nbytes


def test_folder_and_missing_folder_raise(tmp_path):
    model = LSSVC().fit(X, Y)
    with pytest.raises(IsADirectoryError, match="a model cannot be saved to a folder"):
        gramless.save(model, tmp_path)
    with pytest.raises(FileNotFoundError, match="the folder of the model file does not exist"):
        gramless.save(model, tmp_path / "none" / "model.skops")
    with pytest.raises(IsADirectoryError, match="not a model file"):
        gramless.load(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="needs limits of file sizes")
def test_full_disk_error_names_the_file(tmp_path):
    import resource

    model = LSSVC().fit(X, Y)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))  # writing beyond 500 bytes fails
    try:
        with pytest.raises(OSError, match="too large") as reason:
            gramless.save(model, tmp_path / "model.skops")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert reason.value.filename == str(tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("around", [OneVsRestClassifier, lambda model: BaggingClassifier(model, n_estimators=2)])
def test_callbacks_in_meta_estimators_are_not_saved(around, tmp_path):
    model = around(LSSVC(callback=lambda estimator, record: False)).fit(X, Y)
    gramless.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "model.skops").predict(X), model.predict(X))
    assert model.estimators_[0].callback is not None


def test_search_error_names_best_estimator(tmp_path):
    search = GridSearchCV(LSSVC(), {"C": [1.0, 10.0]}, cv=2).fit(X, Y)
    with pytest.raises(ValueError, match="its best_estimator_"):
        gramless.save(search, tmp_path / "search.skops")
    gramless.save(search.best_estimator_, tmp_path / "model.skops")


def test_cluster_centers_of_tensors_are_loaded_as_numpy(tmp_path):
    model = SphericalKMeans(2, random_state=0).fit(torch.as_tensor(X))
    gramless.save(model, tmp_path / "model.skops")
    loaded = gramless.load(tmp_path / "model.skops")
    assert isinstance(loaded.cluster_centers_, np.ndarray)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def forged(path, change):
    """Rewrite a file after `change` has been applied to the dict of its members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def sparse_model(path):
    rows = sp.csr_matrix(np.where(X > 0.3, X, 0.0))
    model = LSSVC(kernel="laplacian").fit(rows, Y)
    gramless.save(model, path)
    return model, rows


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [("indices", 3, 10**6), ("indices", 3, -1), ("indptr", 5, 10**6), ("indptr", -1, 10**6), ("indptr", 0, 7)],
)
def test_sparse_matrix_out_of_bounds_raises(tmp_path, part, place, value):
    """Without this check, `predict` would read and write outside of the arrays."""
    path = tmp_path / "m.skops"
    sparse_model(path)

    def change(members):
        name = next(name for name in members if name.endswith(".npz"))
        with np.load(io.BytesIO(members[name])) as file:
            parts = {key: file[key].copy() for key in file.files}
        parts[part][place] = value
        buffer = io.BytesIO()
        np.savez(buffer, **parts)
        members[name] = buffer.getvalue()

    forged(path, change)
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(path)


def replace_array(model, key, array):
    """Return a change that replaces an attribute of the model by another array."""

    def change(members):
        for name, content in members.items():
            if name.endswith(".npy"):
                found = np.load(io.BytesIO(content))
                if found.shape == getattr(model, key).shape and np.array_equal(found, getattr(model, key)):
                    buffer = io.BytesIO()
                    np.save(buffer, array)
                    members[name] = buffer.getvalue()
                    return
        raise AssertionError(f"no {key} in the file")

    return change


@pytest.mark.parametrize("wrong", ["columns", "rows", "nan", "points"])
def test_inconsistent_arrays_raise(tmp_path, wrong):
    """Arrays with wrong shapes or values raise an error when the file is loaded."""
    path = tmp_path / "m.skops"
    model = LSSVC().fit(X, Y)
    gramless.save(model, path)
    coef, points = np.asarray(model.dual_coef_), np.asarray(model.points_)
    key, array = {
        "columns": ("dual_coef_", np.repeat(coef.reshape(len(coef), -1), 3, axis=1)),
        "rows": ("dual_coef_", coef[:-1]),
        "nan": ("dual_coef_", np.full_like(coef, np.nan)),
        "points": ("points_", points[:, :2]),
    }[wrong]
    forged(path, replace_array(model, key, array))
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(path)


@pytest.mark.parametrize(
    ("module", "name", "loader"),
    [
        ("gramless.__main__", "X", "ObjectNode"),
        ("gramless.streaming.stream", "Stream", "ConstructorFromReduceNode"),
        ("gramless.streaming.learners.ridge_sums", "RidgeSums", "ConstructorFromReduceNode"),
        ("gramless.estimators.lssvm", "LSSVC", "ConstructorFromReduceNode"),
        ("sklearn.svm._classes", "SVC", "ObjectNode"),
    ],
)
def test_types_in_a_file_are_not_imported_or_called(tmp_path, module, name, loader):
    path = tmp_path / "m.skops"
    gramless.save(LSSVC().fit(X, Y), path)

    def change(members):
        schema = json.loads(members["schema.json"])
        node = schema["content"]["estimator"]
        node |= {"__module__": module, "__class__": name, "__loader__": loader}
        members["schema.json"] = json.dumps(schema).encode()

    forged(path, change)
    sys.modules.pop("gramless.__main__", None)
    with pytest.raises(ValueError, match=f"is not loaded: {module}.{name}"):
        gramless.load(path)
    assert "gramless.__main__" not in sys.modules


def test_decompressed_size_is_limited(tmp_path):
    path = tmp_path / "m.skops"
    model = LSSVC().fit(np.zeros((3000, 40)) + np.arange(3000)[:, None] % 2, np.arange(3000) % 2)
    gramless.save(model, path)
    with pytest.raises(ValueError, match=r"load it with max_bytes=\d+") as error:
        gramless.load(path, max_bytes=100_000)
    needed = int(str(error.value).rsplit("=", 1)[1])
    assert needed < 2 * model.points_.nbytes
    assert gramless.load(path, max_bytes=needed).n_features_in_ == 40
    forged(path, lambda members: members.update({"more.bin": bytes(300 * 2**20)}))
    assert path.stat().st_size < 10**6
    with pytest.raises(ValueError, match="MB are allowed"):
        gramless.load(path)


def test_array_shorter_than_its_header_raises(tmp_path):
    path = tmp_path / "m.skops"
    gramless.save(LSSVC().fit(X, Y), path)

    def change(members):
        name = next(name for name in members if name.endswith(".npy"))
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 40)})
        members[name] = buffer.getvalue()

    forged(path, change)
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(path)


def test_deeply_nested_schema_raises(tmp_path):
    path = tmp_path / "m.skops"
    gramless.save(LSSVC().fit(X, Y), path)
    forged(path, lambda members: members.update({"schema.json": b'{"a":' * 50_000 + b"1" + b"}" * 50_000}))
    with pytest.raises(ValueError, match="not a complete gramless model file"):
        gramless.load(path)
