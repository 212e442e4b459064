import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.image import extract_patches_2d

from gramless.images import HOG, GaussianWindow, Patches, UnitNormalizer


@pytest.mark.parametrize(("cell", "bins", "blocks"), [(4, 9, 2), (7, 8, 1), (3, 6, 3)])
@pytest.mark.parametrize(("norm", "reference"), [("l2-hys", "L2-Hys"), ("l2", "L2"), ("l1", "L1")])
@pytest.mark.parametrize("channels", [1, 3])
def test_histograms_agree_with_scikit_image(cell, bins, blocks, norm, reference, channels):
    feature = pytest.importorskip("skimage.feature")
    X = np.random.default_rng(0).random((3, 21, 23, channels))
    expected = [
        feature.hog(
            image if channels == 3 else image[..., 0],
            orientations=bins,
            pixels_per_cell=(cell, cell),
            cells_per_block=(blocks, blocks),
            block_norm=reference,
            channel_axis=-1 if channels == 3 else None,
        )
        for image in X
    ]
    found = HOG(cell, bins, blocks, norm=norm).fit_transform(X)
    assert_allclose(found, expected, atol=1e-6)


def test_number_of_feature_names():
    hog = HOG(7, 9, 1).fit(np.ones((1, 28, 28)))
    assert len(hog.get_feature_names_out()) == 144


@pytest.mark.parametrize(
    ("hog", "words"),
    [(HOG(cell=0), "cell"), (HOG(norm="l3"), "l2-hys"), (HOG(cell=6, blocks=2), "smaller cells or blocks")],
    ids=str,
)
def test_invalid_hog_parameters_raise(hog, words):
    with pytest.raises(ValueError, match=words):
        hog.fit(np.ones((1, 10, 10)))


def test_negative_decay_raises():
    with pytest.raises(ValueError, match="'c' parameter"):
        GaussianWindow(-1).fit(np.ones((1, 4, 4)))


@pytest.mark.parametrize("size", [3, (4, 2)])
def test_patches_equal_those_of_scikit_learn(size):
    X = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), dtype=np.uint8)
    both = size if isinstance(size, tuple) else (size, size)
    expected = np.concatenate([extract_patches_2d(image, both) for image in X])
    found = Patches(size, normalise=False).transform(X)
    assert_array_equal(found, expected.reshape(len(expected), -1))
    unit = UnitNormalizer().transform(expected)
    assert_allclose(Patches(size).transform(X), unit, atol=1e-6)


def test_stride_selects_every_second_patch():
    X = np.arange(2 * 7 * 8).reshape(2, 7, 8)
    every = Patches(3, normalise=False).transform(X).reshape(2, 5, 6, 9)
    some = Patches(3, stride=2, normalise=False)
    assert some.per_image((7, 8)) == 9
    assert_array_equal(some.transform(X).reshape(2, 3, 3, 9), every[:, ::2, ::2])


@pytest.mark.parametrize("max_bytes", [1, 5000, 10**9])
def test_iterate_gives_equal_patches_in_bounded_blocks(max_bytes):
    X = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    patches = Patches(5)
    parts, windows = zip(*patches.iterate(X, max_bytes), strict=True)
    assert_array_equal(np.concatenate(windows), patches.transform(X))
    assert [i for part in parts for i in range(9)[part]] == list(range(9))
    one_image = 16 * 25 * 4
    assert max(block.nbytes for block in windows) <= max(max_bytes, one_image)


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        (Patches(9), "larger than the images"),
        (Patches((2, 0)), "patch_size must be one or two positive integers"),
        (Patches(3, stride=0), "stride"),
    ],
    ids=str,
)
def test_invalid_patch_parameters_raise(patches, words):
    with pytest.raises(ValueError, match=words):
        patches.transform(np.ones((1, 8, 8)))
