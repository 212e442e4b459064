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
from gramless.images.activations import PatchEncoder, patch_geometry
from gramless.kernels import KERNELS, RBF, ScaledColumns
from gramless.linalg.operators.blocks import PackedGaussian, evaluate, expand

COMPARED = [KERNELS[name]() for name in sorted(KERNELS) if name != "precomputed"] + [ScaledColumns(RBF(0.5), np.ones(5))]


def other_shapes(array):
    """Return the array without its last row, repeated, and as a vector or a column."""
    return [array[:-1], np.concatenate([array, array]), array.ravel() if array.ndim > 1 else array[:, None]]


def saved_members(name, path):
    """Save a fitted estimator and return the members of the archive."""
    gramless.save(fitted(name), path)
    with zipfile.ZipFile(path) as archive:
        return {member: archive.read(member) for member in archive.namelist()}


def arrays_of(members):
    """Return the arrays in the members of an archive by name."""
    return {member: np.load(io.BytesIO(content)) for member, content in members.items() if member.endswith(".npy")}


def write_forged(path, members, member, array, *, described=False):
    """Write an archive with another array, and with `described` a schema in which the array was saved like this."""
    content = io.BytesIO()
    np.save(content, array)
    members = {**members, member: content.getvalue()}
    if described:
        saved_as = {"saved_as": f"shape {array.shape} and dtype {array.dtype}"}
        schema = json.loads(
            members["schema.json"], object_hook=lambda node: {**node, **saved_as} if node.get("file") == member else node
        )
        members["schema.json"] = json.dumps(schema)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in members.items():
            archive.writestr(key, value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_error_names_the_array_with_another_shape(name, tmp_path):
    path = tmp_path / "m.skops"
    members = saved_members(name, path)
    tried = 0
    for member, array in arrays_of(members).items():
        for other in other_shapes(array) if array.ndim else []:
            if other.shape == array.shape:  # an empty array without its last row
                continue
            write_forged(path, members, member, other)
            with pytest.raises(ValueError, match=r"the array estimator\.\S+ has shape .* and it was saved with shape"):
                gramless.load(path)
            tried += 1
    assert tried >= 3


@pytest.mark.parametrize("name", ["KernelSVC", "LSSVC", "FourierFeatures"])
def test_arrays_that_disagree_raise_even_if_the_schema_agrees(name, tmp_path):
    """The schema describes the forged array as it is, so that only the checks of the loaded estimator detect it."""
    path = tmp_path / "m.skops"
    members = saved_members(name, path)
    member, array = max(arrays_of(members).items(), key=lambda item: item[1].size)
    write_forged(path, members, member, array[:, :-1], described=True)
    with pytest.raises(ValueError, match=f"the arrays of {name} do not agree|{name}: .* does not have the"):
        gramless.load(path)


def test_error_names_the_array_with_another_dtype(tmp_path):
    path = tmp_path / "m.skops"
    members = saved_members("LSSVC", path)
    member, array = next(item for item in arrays_of(members).items() if item[1].dtype == np.float64)
    write_forged(path, members, member, array.astype(np.float32))
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
    geometry = patch_geometry((8, 8, 1), 4, 1, 2)
    for n_rows, size in ((16, 8), (18, 8), (17, 9)):
        filters, shown = np.zeros((n_rows, 3), np.float32), np.zeros((2, size, size, 1), np.float32)
        with pytest.raises(ValueError, match="do not match patches"):
            PatchEncoder(filters, geometry, 0.1, 0.0, False).pool(shown, out)
    PatchEncoder(np.zeros((17, 3), np.float32), geometry, 0.1, 0.0, False).pool(images, out)
