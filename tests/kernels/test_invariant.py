"""Kernels that know symmetries, against the mean written out."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import gramless
from gramless import LSSVC
from gramless.images import mirror_columns, rotation_columns, shift_columns, virtual_examples
from gramless.kernels import RBF, Columns, Invariant, Linear, Polynomial, Precomputed, Reflected, ScaledColumns, as_kernel
from gramless.kernels.invariant import is_group

TRANSFORMS = {
    "mirror": mirror_columns((3, 4)),
    "rotations": rotation_columns((4, 4)),
    "shifts": shift_columns((3, 4)),
    "side by side": np.arange(12).reshape(3, 4),
}


def points(d, n=12, seed=0):
    return np.random.default_rng(seed).random((n, d))


def mean_over_both(kernel, transforms, X, Y):
    return np.mean([[kernel(X[:, g], Y[:, h]) for g in transforms] for h in transforms], axis=(0, 1))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    "kernel", [RBF(gamma=0.5), Polynomial(3, 0.2, 1.0), Columns(RBF(gamma=1.0), [0, 2]), RBF(gamma=0.3) + Linear()], ids=repr
)
def test_is_the_mean_over_transforms_of_both_points(name, kernel):
    transforms = TRANSFORMS[name]
    d = 16 if name == "rotations" else 12
    X, Y = points(d), points(d, 7, seed=1)
    invariant = Invariant(kernel, transforms)
    assert_allclose(invariant(X, Y), mean_over_both(kernel, transforms, X, Y), rtol=1e-12)
    assert_allclose(invariant.diag(points(d, 150)), np.diagonal(invariant(points(d, 150), points(d, 150))), rtol=1e-12)
    values = np.linalg.eigvalsh(invariant(X, X))
    assert values[0] > -1e-12 * values[-1]
    assert_allclose(invariant(torch.as_tensor(X), torch.as_tensor(Y)).numpy(), invariant(X, Y), rtol=1e-10)


@pytest.mark.parametrize("name", ["mirror", "rotations"])
def test_groups_are_seen_and_make_the_kernel_invariant(name):
    transforms = TRANSFORMS[name]
    assert is_group(transforms)
    kernel = Invariant(RBF(gamma=0.5), transforms)
    X = points(transforms.shape[1])
    for columns in transforms:
        assert_allclose(kernel(X[:, columns], X), kernel(X, X), rtol=1e-12)


@pytest.mark.parametrize("name", ["shifts", "side by side"])
def test_other_sets_are_no_groups(name):
    assert not is_group(TRANSFORMS[name])


def test_a_kernel_that_looks_at_some_columns_is_averaged_over_both_sides():
    """The mean over one side alone would not even be symmetric."""
    kernel = Columns(Linear(), [0])
    X = points(12)
    one_side = (kernel(X, X) + kernel(X, X[:, TRANSFORMS["mirror"][1]])) / 2
    assert not np.allclose(one_side, one_side.T)
    K = Invariant(kernel, TRANSFORMS["mirror"])(X, X)
    assert_allclose(K, K.T)


@pytest.mark.parametrize("n_odd", [0, 1, 4, 6])
@pytest.mark.parametrize(
    "kernel", [Linear(), Polynomial(2, 0.7, 0.3), Polynomial(3, 0.5, 0.5), Polynomial(4, 1.0)], ids=repr
)
def test_reflected_is_the_mean_over_a_reflection(kernel, n_odd):
    X, Y = points(6) - 0.5, points(6, 7, seed=1) - 0.5
    signs = np.ones(6)
    signs[6 - n_odd :] = -1
    expected = (kernel(X, Y) + kernel(X, Y * signs)) / 2
    reflected = Reflected(kernel, n_odd)
    assert_allclose(reflected(X, Y), expected, rtol=1e-10, atol=1e-14)
    assert_allclose(reflected.diag(X), np.diagonal(reflected(X, X)), rtol=1e-10)
    out = np.empty((12, 7))
    assert reflected(X, Y, out=out) is out
    assert_allclose(reflected(X * signs, Y), reflected(X, Y), rtol=1e-10, atol=1e-14)


def test_estimators_fit_save_and_load_them(tmp_path):
    X, y = points(12, 60), np.arange(60) % 3
    X[:, 0] += y
    for kernel in (Invariant(RBF(gamma="scale"), TRANSFORMS["mirror"]), Reflected(Polynomial(2, "scale", 1.0), 4)):
        model = LSSVC(kernel=kernel, C=10.0).fit(X, y)
        gramless.save(model, tmp_path / "model.skops")
        assert_array_equal(gramless.load(tmp_path / "model.skops").predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Invariant(RBF(), [[0, 99]]), ValueError, "columns"),
        (lambda: Invariant(RBF(), [[0.5, 1.0]]), ValueError, "column numbers"),
        (lambda: Invariant(RBF(), np.zeros((0, 3), int)), ValueError, "column numbers"),
        (lambda: Invariant(Precomputed(), TRANSFORMS["mirror"]), ValueError, "precomputed"),
        (lambda: Reflected(RBF(), 1), TypeError, "Invariant"),
        (lambda: Reflected(Linear(), 99), ValueError, "n_odd"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make().resolve(points(12))


def test_transforms_of_images():
    images = points(12).reshape(-1, 3, 4)
    flat = images.reshape(len(images), -1)
    assert_array_equal(flat[:, mirror_columns((3, 4))[1]].reshape(images.shape), images[:, :, ::-1])
    shifted = flat[:, shift_columns((3, 4))].reshape(len(images), 9, 3, 4)
    assert_array_equal(shifted[:, 0], images)
    assert {tuple(np.unravel_index(row[5], (3, 4))) for row in shift_columns((3, 4))} == {
        (r, c) for r in (0, 1, 2) for c in (0, 1, 2)
    }
    colours = np.random.default_rng(0).random((2, 5, 5, 3))
    turned = colours.reshape(2, -1)[:, rotation_columns((5, 5, 3))[1]].reshape(colours.shape)
    assert_array_equal(turned, np.rot90(colours, axes=(1, 2)))
    with pytest.raises(ValueError, match="square"):
        rotation_columns((3, 4))


def test_virtual_examples_and_the_invariant_kernel_agree_on_what_is_the_same():
    """Both give an image and its mirror image the same score."""
    rng = np.random.default_rng(0)
    images, y = rng.random((40, 3, 4)), np.arange(40) % 2
    images[y == 1, 0, 0] += 1
    X, labels = virtual_examples(images, y, TRANSFORMS["mirror"])
    assert X.shape == (80, 3, 4)
    assert_array_equal(labels, np.tile(y, 2))
    mirrored = images[:, :, ::-1].reshape(40, -1)
    copies = LSSVC(kernel=RBF(gamma=0.5), C=10.0).fit(X.reshape(80, -1), labels)
    invariant = LSSVC(kernel=Invariant(RBF(gamma=0.5), TRANSFORMS["mirror"]), C=10.0).fit(images.reshape(40, -1), y)
    for model in (copies, invariant):
        scores = model.decision_function(images.reshape(40, -1))
        assert_allclose(model.decision_function(mirrored), scores, atol=1e-6)
    with pytest.raises(ValueError, match="do not fit"):
        virtual_examples(images, y, mirror_columns((2, 2)))


def test_the_order_of_columns_matters_to_nobody_who_says_so():
    X, Y = points(6), points(6, 5, seed=1)
    order = np.random.default_rng(0).permutation(6)
    for name in ("linear", "poly", "rbf", "laplacian", "chi2", "exp_chi2", "intersection"):
        kernel = as_kernel(name).resolve(X)
        assert kernel.permutable
        assert_allclose(kernel(X[:, order], Y[:, order]), kernel(X, Y), rtol=1e-10)


def test_a_group_does_not_shorten_the_mean_for_a_kernel_that_depends_on_the_order_of_columns():
    X, kernel = points(12), ScaledColumns(RBF(gamma=0.5), np.linspace(0.1, 2.0, 12))
    found = Invariant(kernel, TRANSFORMS["mirror"])(X, X)
    assert_allclose(found, mean_over_both(kernel, TRANSFORMS["mirror"], X, X), rtol=1e-12)
