"""Arrays of wrong shapes raise errors: in model files of every estimator, and in the functions that call compiled loops.

Compiled loops do not check bounds, so their callers check shapes.
"""

import io
import json
import zipfile

import numpy as np
import pytest
from test_every_model_file import ESTIMATORS
from test_reproducible_files import fitted

import gramless
from gramless.images.activations import Activations, make_pooling
from gramless.kernels import KERNELS, RBF, ScaledColumns
from gramless.linalg.operators.blocks import PackedGaussian, evaluate, expand

COMPARED = [KERNELS[name]() for name in sorted(KERNELS) if name != "precomputed"] + [ScaledColumns(RBF(0.5), np.ones(5))]


def other_shapes(array):
    """Return the array without its last row, repeated, and as a vector or a column."""
    return [array[:-1], np.concatenate([array, array]), array.ravel() if array.ndim > 1 else array[:, None]]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_error_names_the_array_with_another_shape(name, tmp_path):
    path = tmp_path / "m.skops"
    gramless.save(fitted(name), path)
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    tried = 0
    for member in [member for member in members if member.endswith(".npy")]:
        array = np.load(io.BytesIO(members[member]))
        for other in other_shapes(array) if array.ndim else []:
            if other.shape == array.shape:  # an empty array without its last row
                continue
            forged = io.BytesIO()
            np.save(forged, other)
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for key, content in members.items():
                    archive.writestr(key, forged.getvalue() if key == member else content)
            with pytest.raises(ValueError, match=r"the array estimator\.\S+ has shape .* and it was saved with shape"):
                gramless.load(path)
            tried += 1
    assert tried >= 3


def test_error_names_the_array_with_another_dtype(tmp_path):
    path = tmp_path / "m.skops"
    gramless.save(fitted("LSSVC"), path)
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    name = next(name for name in members if name.endswith(".npy") and np.load(io.BytesIO(members[name])).dtype == np.float64)
    forged = io.BytesIO()
    np.save(forged, np.load(io.BytesIO(members[name])).astype(np.float32))
    with zipfile.ZipFile(path, "w") as archive:
        for key, content in members.items():
            archive.writestr(key, forged.getvalue() if key == name else content)
    with pytest.raises(ValueError, match=r"has shape .* and dtype float32, and it was saved with .* dtype float64"):
        gramless.load(path)


def test_saved_shapes_are_in_the_schema(tmp_path):
    gramless.save(fitted("LSSVC"), tmp_path / "m.skops")
    with zipfile.ZipFile(tmp_path / "m.skops") as archive:
        text = archive.read("schema.json").decode()
    assert text.count('"saved_as"') == text.count('.npy"')
    assert "saved_as" in json.dumps(json.loads(text)["content"])


@pytest.mark.parametrize("n", [3, 3000])
@pytest.mark.parametrize("kernel", COMPARED, ids=lambda kernel: type(kernel).__name__)
def test_kernels_of_rows_with_different_widths_raise(kernel, n):
    rng = np.random.default_rng(0)
    X, Y = rng.random((n, 5)), rng.random((900, 4))
    kernel = kernel.resolve(X)
    for call in (lambda: kernel(X, Y), lambda: evaluate(kernel, X, Y), lambda: expand(kernel, X, Y, np.zeros((900, 2)))):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("n", [3, 3000])
@pytest.mark.parametrize("n_coefs", [899, 901])
@pytest.mark.parametrize("kernel", COMPARED, ids=lambda kernel: type(kernel).__name__)
def test_expansions_with_other_numbers_of_points_and_coefficients_raise(kernel, n, n_coefs):
    rng = np.random.default_rng(0)
    X, Y = rng.random((n, 5)), rng.random((900, 5))
    with pytest.raises(ValueError):
        expand(kernel.resolve(X), X, Y, np.zeros((n_coefs, 2)))


@pytest.mark.parametrize(
    ("bounds", "into"),
    [
        ([0, 60], [[0, 1]]),
        ([-1, 50], [[0, 1]]),
        ([30, 20], [[0, 1]]),
        ([0, 50], [[0]]),
        ([0, 50], [[0, 9]]),
        ([0, 50], [[-1, 0]]),
    ],
)
def test_groups_out_of_bounds_raise(bounds, into):
    rng = np.random.default_rng(0)
    points, X, out = rng.random((50, 3)), rng.random((20, 3)), np.zeros((20, 2))

    def pack_and_add(bounds, into):
        PackedGaussian(0.5, points, np.zeros((50, 2)), np.array(bounds), np.array(into)).add(X, out)

    pack_and_add([0, 50], [[0, 1]])
    with pytest.raises(ValueError, match=r"do not match 50 points|cannot be written"):
        pack_and_add(bounds, into)


def test_filters_with_other_numbers_of_rows_raise():
    images, out = np.zeros((2, 8, 8, 1), np.float32), np.zeros((2, 4 * 3), np.float32)
    pooling = make_pooling(5, 5, (2, 2))
    for n_rows, size in ((16, 8), (18, 8), (17, 9)):
        activations = Activations(np.zeros((n_rows, 3), np.float32), (4, 4), 1, 0.1, 0.0, False, pooling)
        shown = np.zeros((2, size, size, 1), np.float32)
        with pytest.raises(ValueError, match="do not match patches"):
            activations(shown, out)
    Activations(np.zeros((17, 3), np.float32), (4, 4), 1, 0.1, 0.0, False, pooling)(images, out)
