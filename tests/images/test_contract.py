"""Properties of every image transformer: scikit-learn's contract, layouts, dtypes, blank images, blocks."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import gramless.images as images
from gramless.images.transformer import ImageTransformer
from gramless.images.tuning import TUNING

# `PatchDictionary` is fitted and has its own tests.
CLASSES = [made for made in map(images.__dict__.get, images.__all__) if issubclass(type(made), type)]
TRANSFORMERS = [made() for made in CLASSES if issubclass(made, ImageTransformer) and made is not images.Patches]
TRANSFORMERS += [
    images.Deskew("hough"),
    images.Crop(keep_aspect=True),
    images.HOG(norm="none"),
    images.Patches(5),
]
VECTORS = [t for t in TRANSFORMERS if t._vectors_allowed]
FEATURES = (images.HOG, images.SpectrumFeatures, images.UnitNormalizer, images.Patches)

every = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str, indirect=True)


@pytest.fixture
def transformer(request):
    return clone(request.param)


@pytest.fixture
def grey():
    return np.random.default_rng(0).integers(0, 256, (7, 12, 10), dtype=np.uint8)


@pytest.fixture
def colour():
    return np.random.default_rng(1).integers(0, 256, (5, 12, 10, 3), dtype=np.uint8)


@parametrize_with_checks(VECTORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@every
def test_clone_and_pickle_give_equal_results(transformer, grey):
    expected = transformer.transform(grey)
    assert_array_equal(clone(transformer).fit(grey).transform(grey), expected)
    assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(grey), expected)


@every
def test_flat_rows_with_a_shape_are_the_same_images(transformer, grey, colour):
    for X in (grey, colour):
        flat = clone(transformer).set_params(shape=X.shape[1:]).fit_transform(X.reshape(len(X), -1))
        whole = transformer.fit_transform(X)
        assert_array_equal(flat, whole.reshape(flat.shape))
        if not isinstance(transformer, FEATURES):
            assert whole.shape == X.shape


@every
def test_output_is_float64_for_float64_and_else_float32(transformer, grey):
    single, double = transformer.transform(grey), transformer.transform(grey.astype(float))
    assert single.dtype == np.float32
    assert double.dtype == np.float64
    assert_allclose(single, double, rtol=1e-3, atol=2e-3 * np.abs(double).max())


@every
@pytest.mark.parametrize("level", [0, 9])
def test_constant_images_give_zeros(transformer, level):
    out = transformer.transform(np.full((3, 12, 12), level, np.uint8))
    assert np.isfinite(out).all()
    if level == 0:
        assert not out.any()
    elif isinstance(transformer, FEATURES) or transformer._vectors_allowed:
        assert_allclose(out, 0, atol=1e-6)


@every
def test_features_of_constant_float_images_are_zero(transformer):
    out = transformer.transform(np.full((2, 12, 12), 0.1, np.float32))
    if isinstance(transformer, FEATURES):
        assert not out.any()


@every
def test_blank_image_does_not_change_other_results(transformer, grey):
    with_blank = np.concatenate([grey[:2], np.zeros_like(grey[:1]), grey[2:]])
    together = transformer.transform(with_blank).reshape(len(with_blank), -1)
    alone = transformer.transform(grey).reshape(len(grey), -1)
    assert_allclose(np.delete(together, 2, axis=0), alone, rtol=1e-5, atol=1e-5)


@every
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blocks_and_threads_do_not_change_the_result(transformer, grey, colour, n_jobs):
    one_image_per_block = replace(TUNING, block_bytes=1)
    for X in (grey, colour):
        expected = transformer.transform(X)
        images, _, dtype = transformer._read(X, reset=False)
        found = transformer._transform_blocks(images, dtype, n_jobs, one_image_per_block)
        assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-4)


@every
def test_input_is_not_modified(transformer, grey):
    X = grey.astype(np.float32)
    before = X.copy()
    transformer.transform(X)
    assert_array_equal(X, before)


@every
def test_wrong_shapes_raise(transformer, grey):
    with pytest.raises(ValueError, match="do not have the stated shape"):
        clone(transformer).set_params(shape=(9, 9)).transform(grey)
    with pytest.raises(ValueError, match="shape must be"):
        clone(transformer).set_params(shape=(120,)).transform(grey)
    with pytest.raises(ValueError, match="height, width"):
        transformer.transform(grey.reshape(7, 2, 3, 2, 10))
    if not transformer._vectors_allowed:
        with pytest.raises(ValueError, match="not square"):
            transformer.transform(grey.reshape(7, -1))


@every
def test_missing_values_raise(transformer):
    X = np.ones((2, 12, 12))
    X[1, 3, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        transformer.transform(X)


def test_temporary_memory_is_bounded_by_blocks():
    import tracemalloc

    X = np.zeros((4000, 28, 28), np.uint8)
    for transformer in map(clone, TRANSFORMERS):
        out_bytes = transformer.transform(X[:1]).nbytes * len(X)
        tracemalloc.start()
        transformer.transform(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < out_bytes + 3 * TUNING.block_bytes, transformer


@every
def test_float16_is_computed_in_float32(transformer, grey):
    half = (grey / 255).astype(np.float16)
    out = clone(transformer).fit_transform(half)
    assert out.dtype == np.float32
    assert_array_equal(out, clone(transformer).fit_transform(half.astype(np.float32)))
