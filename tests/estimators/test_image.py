"""The image classifier: accuracy, automatic parameters, saved models and error messages."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gramless
from gramless import LSSVC, ImageClassifier
from gramless.estimators.image import leave_one_out_errors
from gramless.images import PatchDictionary
from gramless.kernels import Polynomial, Reflected


@pytest.fixture(scope="module")
def digits(digit_images):
    images, y = digit_images
    return images[:400], y[:400], images[400:800], y[400:800]


def small(**settings):
    return ImageClassifier(**{"n_atoms": 24, "n_components": 100, "mirror": False, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def fitted(digits):
    return small().fit(digits[0], digits[1])


def arrows(n, seed=0):
    """Colour images of a bright square in one of the four corners of a noisy image."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    images = rng.random((n, 12, 12, 3)) * 0.5
    for i, corner in enumerate(y):
        top, left = 7 * (corner // 2), 7 * (corner % 2)
        images[i, top : top + 4, left : left + 4, corner % 3] += 0.5
    return images, y


def test_accuracy_on_digits(fitted, digits):
    _, _, T, t = digits
    assert fitted.score(T, t) > 0.97
    assert fitted.chosen_["C"] in (1.0, 10.0, 100.0, 1000.0)
    assert fitted.chosen_["leave_one_out_error"] < 0.03


def test_scores_equal_those_of_the_model_on_the_features(fitted, digits):
    X, y, T, _ = digits
    kernel = Polynomial(degree=4, gamma=0.5, coef0=0.5)
    F = fitted.dictionary_.transform(X)
    direct = LSSVC(kernel=kernel, C=fitted.chosen_["C"], random_state=0).fit(F, y)
    assert_allclose(fitted.decision_function(T), direct.decision_function(fitted.dictionary_.transform(T)), atol=2e-2)
    assert_array_equal(fitted.predict(T), direct.predict(fitted.dictionary_.transform(T)))


def test_leave_one_out_errors_equal_those_of_refits():
    images, y = arrows(40)
    F = PatchDictionary(8, n_patches=2000, random_state=0).fit_transform(images).astype(np.float64)
    kernel = Polynomial(degree=2, gamma=0.5, coef0=0.5)
    found_squares, found_rates = leave_one_out_errors(kernel, F, y, (0.1, 10.0))
    for C, found_square, found_rate in zip((0.1, 10.0), found_squares, found_rates, strict=True):
        wrong, squares = 0, 0.0
        for i in range(40):
            rest = np.arange(40) != i
            model = LSSVC(kernel=kernel, C=C).fit(F[rest], y[rest])
            wrong += model.predict(F[[i]])[0] != y[i]
            squares += np.mean((model.decision_function(F[[i]])[0] - (np.arange(4) == y[i])) ** 2)
        assert found_rate == pytest.approx(wrong / 40)
        assert found_square == pytest.approx(squares / 40, rel=1e-3)


def test_mirror_is_selected_only_for_symmetric_classes(digits):
    """Digits are not their mirror images; squares above or below the middle are."""
    X, y, _, _ = digits
    assert not small(mirror="auto").fit(X[:300], y[:300]).chosen_["mirror"]
    images, y = arrows(300)
    y = y // 2  # above or below, whatever the side
    images += 0.6 * np.random.default_rng(1).random(images.shape)
    model = small(mirror="auto").fit(images[:60], y[:60])
    helped = small(mirror=True).fit(images[:60], y[:60])
    plain = small(mirror=False).fit(images[:60], y[:60])
    assert model.chosen_["mirror"] == (helped.score(images[60:], y[60:]) > plain.score(images[60:], y[60:]))


@pytest.mark.parametrize("components", [100, None])
def test_mirror_images_have_equal_scores(digits, components):
    X, y, T, _ = digits
    model = small(mirror=True, n_components=components).fit(X, y)
    assert isinstance(model.estimator_.kernel_, Reflected)
    assert_allclose(model.decision_function(T[:50, :, ::-1]), model.decision_function(T[:50]), atol=2e-3)


def test_tensors_and_arrays_agree(digits):
    X, y, T, _ = digits
    expected = small(C=10.0, tol=1e-4).fit(X, y).decision_function(T)
    model = small(C=10.0, tol=1e-4).fit(torch.as_tensor(X), y)
    scores = model.decision_function(torch.as_tensor(T))
    assert isinstance(scores, torch.Tensor)
    assert np.mean(scores.argmax(dim=1).numpy() == expected.argmax(axis=1)) > 0.99
    assert isinstance(small(C=10.0, device="torch:cpu").fit(X, y).decision_function(T), np.ndarray)


@pytest.mark.parametrize("change", [lambda X: X, lambda X: X / 255.0, lambda X: X.astype(np.float32) * 3 - 100])
def test_bytes_and_floats_of_any_range(digits, change):
    X, y, T, t = digits
    assert small(C=10.0).fit(change(X), y).score(change(T), t) > 0.97


def test_colour_strings_two_classes_and_flat_rows():
    images, corner = arrows(200)
    y = np.where(corner < 2, "up", "down")
    model = small(n_atoms=12).fit(images[:100], y[:100])
    assert model.image_shape_ == (12, 12, 3)
    assert model.decision_function(images[:5]).shape == (5,)
    assert model.score(images[100:], y[100:]) > 0.95
    assert set(model.predict(images)) == {"up", "down"}
    proba = model.predict_proba(images[100:])
    assert_allclose(proba.sum(axis=1), 1)
    assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(images[100:]))
    flat = small(n_atoms=12, shape=(12, 12, 3)).fit(images[:100].reshape(100, -1), y[:100])
    assert_array_equal(flat.predict(images.reshape(200, -1)), model.predict(images))


def test_few_rows_many_classes_and_images_without_contrast():
    rng = np.random.default_rng(0)
    images = np.repeat(rng.random((15, 10, 10)), 2, axis=0)
    images[0] = 0.5
    model = small(n_atoms=8, mirror="auto").fit(images, np.repeat(np.arange(15), 2))
    assert np.isfinite(model.decision_function(images)).all()
    assert model.score(images[2:], np.repeat(np.arange(15), 2)[2:]) == 1
    blank = small(n_atoms=4, mirror="auto").fit(np.zeros((10, 8, 8)), np.arange(10) % 2)
    assert set(blank.predict(np.zeros((3, 8, 8)))) <= {0, 1}


@pytest.mark.parametrize("shape", [(2, 8, 8), (60, 2, 2), (6, 1, 9), (4, 3, 3, 3), (3, 70, 66)])
def test_defaults_accept_few_and_small_images(shape):
    images = np.random.default_rng(0).random(shape)
    y = np.arange(shape[0]) % 2
    model = ImageClassifier(random_state=0).fit(images, y)
    windows = shape[0] * model.dictionary_.per_image(model.image_shape_)
    most = 400 if len(shape) == 4 else 256
    assert len(model.dictionary_.atoms_) in (min(most, windows), 2 * -(-min(most, windows) // 2))
    assert np.isfinite(model.decision_function(images)).all()


def test_file_of_version_0_1_0_loads(fitted, digits, tmp_path):
    old = clone(fitted)
    vars(old).update(vars(fitted))
    vars(old)["machine_"] = vars(old).pop("estimator_")
    gramless.save(old, tmp_path / "model.skops", times=False)  # files of 0.1.0 have no separate times
    assert_array_equal(gramless.load(tmp_path / "model.skops").predict(digits[2]), fitted.predict(digits[2]))


def test_saved_model_gives_equal_predictions(fitted, digits, tmp_path):
    gramless.save(fitted, tmp_path / "model.skops")
    assert_array_equal(gramless.load(tmp_path / "model.skops").predict(digits[2]), fitted.predict(digits[2]))


def test_equal_seeds_give_equal_bytes(fitted, digits):
    again = clone(fitted).fit(digits[0], digits[1])
    assert_array_equal(again.decision_function(digits[2]), fitted.decision_function(digits[2]))


def test_sample_weights_are_passed_to_the_model(digits):
    X, y, T, _ = digits
    weights = (y != 3).astype(float)
    assert 3 not in small(C=10.0).fit(X, y, sample_weight=weights).predict(T)


def test_failed_fit_does_not_change_the_model(digits):
    X, y, T, _ = digits
    model = small(C=10.0).fit(X[:100], y[:100])
    before, attributes = model.predict(T), sorted(vars(model))
    for bad_X, bad_y in ((X, y[:-1]), (X[:0], y[:0]), (X / np.nan, y), (X, np.zeros(len(y)))):
        with pytest.raises(ValueError):
            model.fit(bad_X, bad_y)
        assert_array_equal(model.predict(T), before)
        assert sorted(vars(model)) == attributes


def test_callback_receives_the_model_and_can_stop_it(digits):
    seen = []
    small(C=10.0, callback=lambda model, record: seen.append(record["n_iter"])).fit(digits[0], digits[1])
    assert seen


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"C": -1.0}, "'C' parameter"),
        ({"degree": 0}, "degree"),
        ({"mirror": "yes"}, "mirror"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_error_names_the_invalid_parameter(digits, settings, words):
    with pytest.raises(ValueError, match=words):
        small(**settings).fit(digits[0], digits[1])


def test_predict_before_fit_and_other_shapes_raise(fitted, digits):
    with pytest.raises(NotFittedError):
        small().predict(digits[0])
    with pytest.raises(ValueError, match="expecting"):
        fitted.predict(digits[2][:, :4])


def test_images_of_weight_zero_do_not_affect_C(digits):
    X, y, _, _ = digits
    images, labels = np.concatenate([X[:200], X[:200]]), np.concatenate([y[:200], (y[:200] + 1) % 10])
    model = small(C="auto").fit(images, labels, sample_weight=np.repeat([1.0, 0.0], 200))
    assert model.chosen_["leave_one_out_error"] < 0.3
