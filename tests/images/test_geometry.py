import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gramless.images import Crop, Deskew, GaussianBlur, MedianFilter
from gramless.images.geometry import hough_matrix


def stroke(slope, size=28, thickness=3):
    """A slanted bar, anti-aliased."""
    r, c = np.mgrid[:size, :size]
    middle = (size - 1) / 2
    bar = np.clip(thickness / 2 + 0.5 - np.abs(c - middle - slope * (r - middle)), 0, 1)
    return (255 * bar * (np.abs(r - middle) < size / 3)).astype(np.uint8)


def slant(image):
    """Slope of the line through the rows' centres of mass."""
    rows = np.flatnonzero(image.sum(axis=1) > 0)
    centres = image[rows] @ np.arange(image.shape[1]) / image[rows].sum(axis=1)
    return np.polyfit(rows, centres, 1)[0]


@pytest.mark.parametrize("method", ["moments", "hough"])
@pytest.mark.parametrize("slope", [-0.4, -0.1, 0.2, 0.5])
def test_a_slanted_stroke_is_straightened(method, slope):
    image = stroke(slope)
    assert abs(slant(image) - slope) < 0.05
    straight = Deskew(method).transform(np.stack([image, np.zeros_like(image)]))
    assert abs(slant(straight[0])) < 0.06
    assert_allclose(straight[0].sum(), image.sum(), rtol=0.01)


@pytest.mark.parametrize("method", ["moments", "hough"])
def test_upright_stroke_is_unchanged(method):
    image = stroke(0.0)[None]
    assert_allclose(Deskew(method).transform(image), image, atol=1e-3)


@pytest.mark.parametrize("method", ["moments", "hough"])
def test_the_slant_is_limited(method):
    image = stroke(0.9, thickness=2)[None]
    straight = Deskew(method, max_angle=10).transform(image)
    assert_allclose(slant(straight[0]), 0.9 - np.tan(np.deg2rad(10)), atol=0.1)


def test_hough_votes_keep_mass_and_centre_of_every_projection():
    image = np.random.default_rng(0).random((9, 13))
    angles = np.deg2rad([-37.3, -11.1, 0.0, 4.2, 29.7])
    matrix, n_offsets = hough_matrix(9, 13, tuple(angles), np.dtype(float))
    sums = (matrix @ image.ravel()).reshape(5, n_offsets)
    assert_allclose(sums.sum(axis=1), image.sum())
    r, c = np.mgrid[:9, :13]
    reach = n_offsets // 2 - 1
    for t, line_sums in zip(angles, sums, strict=True):
        rho = c * np.cos(t) - r * np.sin(t)
        assert_allclose(line_sums @ (np.arange(n_offsets) - reach), (image * rho).sum())


def test_upright_lines_are_column_sums_as_in_scikit_image():
    transform = pytest.importorskip("skimage.transform")
    image = np.random.default_rng(0).random((9, 13)) > 0.6
    expected, _, offsets = transform.hough_line(image, theta=np.zeros(1))
    matrix, _ = hough_matrix(9, 13, (0.0,), np.dtype(float))
    assert_array_equal((matrix @ image.ravel().astype(float))[: len(offsets)], expected[:, 0])


def test_a_box_is_stretched_to_the_whole_image():
    image = np.zeros((1, 8, 8), np.uint8)
    image[0, 2:4, 5:7] = 200
    assert_allclose(Crop().transform(image), 200)


def test_keep_aspect_stretches_both_axes_alike():
    image = np.zeros((1, 12, 12))
    image[0, 3:9, 5:7] = 1
    out = Crop(keep_aspect=True).transform(image)[0]
    assert_allclose(out[1:-1, 4:8], 1, atol=0.26)
    assert not out[:, :3].any()
    assert not out[:, 9:].any()
    assert_allclose(out.sum(), 4 * image.sum(), rtol=0.05)


def test_an_image_without_border_is_not_resampled():
    image = np.random.default_rng(0).integers(1, 256, (2, 9, 7, 3), dtype=np.uint8)
    for keep_aspect in (False, True):
        assert_allclose(Crop(keep_aspect=keep_aspect).transform(image), image, rtol=1e-6)


def test_border_is_what_does_not_exceed_the_threshold():
    image = np.full((1, 6, 6), 10.0)
    image[0, 2:4, 2:4] = 100
    assert_allclose(Crop(threshold=10).transform(image), 100)
    assert_allclose(Crop().transform(image), image)


def test_crop_agrees_with_scikit_image_resize():
    transform = pytest.importorskip("skimage.transform")
    box = np.random.default_rng(0).random((5, 4)) + 0.1
    image = np.zeros((1, 10, 12))
    image[0, 3:8, 2:6] = box
    expected = transform.resize(box, (10, 12), order=1, mode="edge", anti_aliasing=False)
    assert_allclose(Crop().transform(image)[0], expected, rtol=1e-6)


def test_filters_treat_images_and_channels_one_by_one():
    ndimage = pytest.importorskip("scipy.ndimage")
    X = np.random.default_rng(0).integers(0, 256, (3, 9, 8, 2), dtype=np.uint8)
    median, blur = MedianFilter(3).transform(X), GaussianBlur(0.8).transform(X)
    for image, medians, blurred in zip(X, median, blur, strict=True):
        for c in range(2):
            assert_array_equal(medians[..., c], ndimage.median_filter(image[..., c], size=3))
            one = ndimage.gaussian_filter(image[..., c].astype(float), 0.8, mode="constant")
            assert_allclose(blurred[..., c], one, rtol=1e-4)


@pytest.mark.parametrize(
    ("transformer", "words"),
    [
        (Deskew("slant"), "method"),
        (Deskew(max_angle=90), "max_angle"),
        (Deskew("hough", angle_step=0), "angle_step"),
        (MedianFilter(0), "size"),
        (GaussianBlur(-1), "sigma"),
    ],
    ids=str,
)
def test_error_names_the_invalid_parameter(transformer, words):
    with pytest.raises(ValueError, match=words):
        transformer.fit(np.ones((1, 5, 5)))
