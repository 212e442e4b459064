"""Patch dictionaries, compared with a float64 implementation that encodes one patch at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gramless
from gramless import Stream
from gramless.images import PatchDictionary
from gramless.images.activations import PatchGeometry, equal_areas, patch_geometry
from gramless.images.projection import leading_directions, n_sample_rows
from gramless.images.tuning import TUNING


@pytest.fixture(scope="module")
def digits(digit_images):
    return digit_images[0][:300]


def colours(n=60, height=9, width=11, seed=0):
    """Smooth colour images, neither square nor of an even size."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((n, 4, 4, 3))
    fine = np.repeat(np.repeat(coarse, 3, axis=1), 3, axis=2)[:, :height, :width]
    return (255 * (0.8 * fine + 0.2 * rng.random(fine.shape))).astype(np.uint8)


def small(**settings):
    return PatchDictionary(**{"n_atoms": 12, "n_patches": 3000, "n_passes": 5, "random_state": 0, **settings})


def by_hand(model, images):
    """The features of the module's docstring, in float64 loops."""
    images = np.asarray(images, dtype=np.float64).reshape(len(images), *model.image_shape_) / model.pixel_range_
    geometry = patch_geometry(model.image_shape_, model.patch_size, model.stride, model.pooling)
    (height, width), stride, grid = geometry.patch, geometry.stride, geometry.grid
    rows, columns = geometry.positions
    contrast = model.contrast or (0.04 if model.image_shape_[2] > 1 else 0.01)
    down, across = equal_areas(rows, grid[0]), equal_areas(columns, grid[1])
    out = np.zeros((len(images), *grid, model.signs, len(model.atoms_)))
    for i, image in enumerate(images):
        for r in range(rows):
            for c in range(columns):
                window = image[r * stride : r * stride + height, c * stride : c * stride + width].ravel()
                window = (window - window.mean()) / np.sqrt(window.var() + contrast)
                active = window @ model.filters_[:-1] + model.filters_[-1]
                for s in range(model.signs):
                    value = np.maximum(0, (active if s == 0 else -active) - model.threshold)
                    out[i, :, :, s] += down[:, r, None, None] * across[None, :, c, None] * value
    out = out.reshape(len(images), -1)
    return np.sqrt(out) if model.root else out


def unit(F, mean):
    F = F - mean
    return F / np.linalg.norm(F, axis=1, keepdims=True)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"signs": 1, "root": False, "threshold": 0.3},
        {"patch_size": (3, 5), "pooling": (2, 3)},
        {"stride": 2, "pooling": 2},
        {"whitening": np.inf, "contrast": 0.5},
        {"n_atoms": 50, "pooling": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("colour", [False, True])
def test_features_equal_the_float64_reference(digits, settings, colour):
    images = colours() if colour else digits
    model = small(**settings).fit(images)
    expected = unit(by_hand(model, images[:10]), model.mean_)
    got = model.transform(images[:10])
    assert got.dtype == np.float32
    assert got.shape[1] == model.get_feature_names_out().shape[0]
    assert_allclose(got, expected, atol=2e-5)


def test_mean_equals_the_mean_of_the_sample(digits):
    model = small().fit(digits)
    assert_allclose(model.mean_, by_hand(model, digits).mean(axis=0), atol=1e-5)


def test_whitened_patches_have_identity_covariance(digits):
    """The filters are atoms times the whitening: with a negligible ridge, projections have unit variance."""
    model = small(whitening=1e-6, n_patches=10**6).fit(digits)
    windows = model._sample_patches(digits.reshape(-1, 8, 8, 1), np.random.default_rng(0)).astype(np.float64)
    active = windows @ model.filters_[:-1] + model.filters_[-1]
    assert_allclose(active.mean(axis=0), 0, atol=1e-3)
    # A centred window has one direction less, along which no atom may point.
    assert_allclose(active.var(axis=0), 1, atol=2e-2)


@pytest.mark.parametrize("settings", [{}, {"mirror": True}, {"n_components": 20}, {"mirror": True, "n_components": 20}])
def test_tensors_give_equal_features(digits, settings):
    model = small(**settings).fit(digits)
    expected = model.transform(digits[:20])
    got = model.transform(torch.as_tensor(digits[:20]))
    assert isinstance(got, torch.Tensor)
    assert_allclose(got.numpy(), expected, atol=1e-5)


def test_a_fit_on_tensors_learns_the_same_atoms(digits):
    arrays, tensors = small().fit(digits), small().fit(torch.as_tensor(digits))
    assert_allclose(tensors.atoms_, arrays.atoms_, atol=1e-4)
    assert_allclose(tensors.transform(digits), arrays.transform(digits), atol=1e-4)


@pytest.mark.parametrize("components", [None, 15])
@pytest.mark.parametrize("colour", [False, True])
def test_reflection_changes_only_the_signs_of_odd_columns(digits, components, colour):
    images = colours() if colour else digits
    model = small(mirror=True, n_components=components, n_atoms=11).fit(images)
    assert len(model.atoms_) == 12
    F, G = model.transform(images[:20]), model.transform(images[:20, :, ::-1])
    even = F.shape[1] - model.n_odd_
    assert 0 < model.n_odd_ < F.shape[1]
    assert_allclose(G[:, :even], F[:, :even], atol=1e-5)
    assert_allclose(G[:, even:], -F[:, even:], atol=1e-5)


def test_reflection_preserves_inner_products(digits):
    model = small(mirror=True).fit(digits)
    F = model.transform(digits[:20])
    first, second = model.pairs_
    assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(F.shape[1]))
    G = unit(by_hand(model, digits[:20]), model.mean_)
    assert_allclose(F @ F.T, G @ G.T, atol=1e-4)


def test_the_projection_is_on_the_leading_directions(digits):
    plain, projected = small().fit(digits), small(n_components=25).fit(digits)
    F = plain.transform(digits).astype(np.float64)
    values = np.linalg.svd(F, compute_uv=False)
    got = projected.transform(digits)
    assert got.shape == (300, 25)
    (columns,) = projected.components_
    assert_allclose(columns.T @ columns, np.eye(25), atol=1e-5)
    assert_allclose(got, F @ columns, atol=1e-5)
    # No 25 directions keep more than the singular values say.
    assert 0.998 < (got**2).sum() / (values[:25] ** 2).sum() <= 1 + 1e-6


def test_more_components_than_rows(digits):
    F = small().fit(digits[:30]).transform(digits[:30])
    got = small(n_components=1000).fit(digits[:30]).transform(digits[:30])
    assert got.shape == (30, 30)
    assert_allclose(got @ got.T, F @ F.T, atol=1e-5)


def test_bytes_are_the_rounded_square_roots(digits):
    model = small(dtype="uint8").fit(digits)
    got = model.transform(digits[:20])
    assert got.dtype == np.uint8
    roots = by_hand(model, digits[:20])
    assert_allclose(got, np.minimum(255 * roots / model.highest_, 255), atol=0.51)


@pytest.mark.parametrize("change", [lambda X: X / 255, lambda X: X.astype(np.float32), lambda X: X / 100.0 - 1])
def test_features_do_not_depend_on_the_pixel_range(digits, change):
    digits = digits.copy()
    digits[0, 0, 0], digits[0, 0, 1] = 0, 255  # bytes have the range of bytes, others the range that occurs
    assert_allclose(small().fit_transform(change(digits)), small().fit_transform(digits), atol=2e-3)


def test_flat_rows_with_a_shape_and_streams(digits):
    flat = digits.reshape(300, 64)
    expected = small().fit_transform(digits)
    assert_array_equal(small(shape=(8, 8)).fit_transform(flat), expected)
    assert_array_equal(small().fit(Stream(flat, np.zeros(300))).transform(flat), expected)
    batches = [(flat[i : i + 70], np.zeros(len(flat[i : i + 70]))) for i in range(0, 300, 70)]
    assert_array_equal(small().fit(Stream(batches)).transform(flat), expected)


def test_an_image_without_contrast_has_finite_features(digits):
    images = digits.copy()
    images[3] = 77
    for settings in ({}, {"mirror": True, "n_components": 10}):
        assert np.isfinite(small(**settings).fit_transform(images)).all()
    blank = np.zeros((30, 8, 8))
    assert_array_equal(small().fit_transform(blank), np.zeros((30, 12 * 2 * 9)))


@pytest.mark.parametrize("shape", [(3, 3), (8, 8), (16, 16), (28, 28), (32, 32, 3), (64, 64), (10, 50), (96, 96, 3)])
def test_defaults_fit_images_of_any_size(shape):
    images = np.random.default_rng(0).random((12, *shape)).astype(np.float32)
    model = small().fit(images)
    assert model.transform(images).shape == (12, 12 * 2 * patch_geometry(model.image_shape_, None, None, None).n_cells)
    assert model.per_image(model.image_shape_) <= 41 * 41


def test_equal_seeds_give_equal_bytes_also_after_loading(digits, tmp_path):
    first, second = (small(n_components=10, mirror=True).fit(digits) for _ in range(2))
    assert_array_equal(first.transform(digits), second.transform(digits))
    gramless.save(first, tmp_path / "dictionary.skops")
    assert_array_equal(gramless.load(tmp_path / "dictionary.skops").transform(digits), first.transform(digits))
    assert clone(first).get_params() == first.get_params()


def test_batches_do_not_change_the_features(digits):
    model = small(n_components=10).fit(digits)
    expected = model.transform(digits)
    model.memory_budget = 16 * 100_000  # a batch takes a sixteenth
    assert_allclose(model.transform(digits), expected, atol=1e-6)


def test_too_small_memory_budget_raises(digits):
    model = small().fit(digits)
    model.memory_budget = "50KB"
    with pytest.raises(MemoryError, match="n_components"):
        model.transform(digits)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"patch_size": 9}, "larger than the images"),
        ({"pooling": 7}, "more cells than"),
        ({"n_atoms": 0}, "n_atoms"),
        ({"signs": 3}, "signs"),
        ({"whitening": -1.0}, "whitening"),
        ({"dtype": "int8"}, "uint8"),
        ({"n_atoms": 10**6}, "more than the"),
        ({"shape": (4, 4)}, "stated shape"),
    ],
)
def test_error_names_the_invalid_parameter(digits, settings, words):
    with pytest.raises(ValueError, match=words):
        small(**settings).fit(digits)


def test_images_of_another_shape_raise(digits):
    model = small().fit(digits)
    with pytest.raises(ValueError, match="expecting"):
        model.transform(digits[:, :4].reshape(-1, 4, 8))
    with pytest.raises(ValueError, match="expecting"):
        model.transform(digits.reshape(-1, 4, 16))
    with pytest.raises(ValueError, match="NaN"):
        model.transform(np.full((2, 8, 8), np.nan))


def test_progress_is_reported(digits, capsys):
    small(verbose=1, n_components=5).fit_transform(digits)
    said = capsys.readouterr().err
    assert "atoms" in said
    assert "leading directions" in said
    assert "features" in said


@pytest.mark.parametrize(("n", "parts"), [(6, 3), (7, 3), (22, 4), (27, 2), (5, 5), (4, 1)])
def test_cells_have_equal_areas_and_are_symmetric(n, parts):
    weights = equal_areas(n, parts)
    assert_allclose(weights.sum(axis=1), 1)
    assert_allclose(weights.sum(axis=0), parts / n)
    assert_allclose(weights[::-1, ::-1], weights, atol=1e-12)


def test_pooling_averages_over_cells():
    positions = np.arange(4.0)[:, None] + np.arange(6.0)
    pooling = PatchGeometry((4, 6, 1), (1, 1), 1, (4, 6), (2, 3)).pooling
    assert_allclose(pooling @ positions.ravel(), positions.reshape(2, 2, 3, 2).mean(axis=(1, 3)).ravel())


@pytest.mark.parametrize("shape", [(200, 50), (50, 200)])
def test_leading_directions_are_singular_vectors(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(shape[0], 40)) @ np.diag(0.8 ** np.arange(40)) @ rng.normal(size=(40, shape[1]))
    V, values = leading_directions(X, 8)
    _, expected, directions = np.linalg.svd(X)
    assert_allclose(values, expected[:8], rtol=1e-6)
    assert_allclose(np.abs(np.einsum("ij,ji->i", directions[:8], V)), 1, atol=1e-5)
    assert_allclose(V.T @ V, np.eye(8), atol=1e-10)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_directions_of_zero_singular_values_are_orthogonal(library):
    """Pairs of equal rows, and rows of zeros: half of the directions asked for carry nothing."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(10, 60)), 2, axis=0).astype(np.float32)
    X[-2:] = 0
    V, values = leading_directions(torch.as_tensor(X) if library == "torch" else X, 20)
    V = np.asarray(V)
    assert_allclose(values[9:], 0, atol=1e-2)
    assert_allclose(V.T @ V, np.eye(20), atol=1e-5)
    assert_allclose(X @ V @ V.T, X, atol=1e-4)


def test_directions_of_a_sample_approximate_those_of_all_rows(digits):
    features = small().fit_transform(digits)
    n = n_sample_rows(300, 20, replace(TUNING, min_direction_rows=200))
    assert n == 200
    sample = features[np.random.default_rng(0).permutation(300)[:n]]
    every, sampled = (leading_directions(rows, 20)[0] for rows in (features, sample))
    assert sampled.shape == every.shape
    assert 0.97 < ((features @ sampled) ** 2).sum() / ((features @ every) ** 2).sum() < 1
