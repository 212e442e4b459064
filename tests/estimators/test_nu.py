"""KernelSVC and KernelSVR with nu, against scikit-learn's NuSVC and NuSVR."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC, NuSVR

from gramless import KernelSVC, KernelSVR


def noisy(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_t(3, size=n)


def two_classes(n=240, seed=0):
    X, y = noisy(n, seed)
    return X, (y > np.median(y)).astype(int)


@pytest.mark.parametrize("nu", [0.213, 0.437, 0.711])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_classifier_equals_scikit_learn(kernel, nu):
    """On classes that a plane separates but for some rows: with others a linear machine has no margin.

    Where `nu n / 2` is a whole number, all multipliers may be at bounds, and any bias between two rows is right.
    """
    X, _ = noisy()
    y = (X[:, 0] + X[:, 1] + 0.3 * np.random.default_rng(1).normal(size=len(X)) > 0).astype(int)
    settings = {"kernel": kernel, "nu": nu, "gamma": 0.5, "coef0": 1.0}
    ours, theirs = KernelSVC(**settings, tol=1e-7).fit(X, y), NuSVC(**settings, tol=1e-6).fit(X, y)
    scale = np.abs(theirs.decision_function(X)).max()
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3 * scale)
    assert ours.kkt_violation_.max() <= 1e-7


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("shape", ["ovo", "ovr"])
def test_pairs_of_classes_equal_scikit_learn(load, shape):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    settings = {"nu": 0.213, "gamma": 0.1, "tol": 1e-6, "decision_function_shape": shape}
    ours, theirs = KernelSVC(**settings).fit(X, y), NuSVC(**settings).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(ours.n_support_.sum() > 0, True)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_classifier_equals_the_one_with_the_resulting_c():
    """The multipliers at their bound give the corresponding C; a fit with this C has the same solution."""
    X, y = two_classes()
    model = KernelSVC(nu=0.4, gamma=0.5, tol=1e-10).fit(X, y)
    C = np.abs(model.dual_coef_).max()
    same = KernelSVC(C=C, gamma=0.5, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), same.decision_function(X), atol=1e-5)
    assert np.abs(model.dual_coef_).sum() / (C * len(y)) == pytest.approx(0.4)


def test_a_weight_equals_repeated_rows():
    X, y = two_classes(100)
    counts = np.random.default_rng(3).integers(0, 3, size=100)
    weighted = KernelSVC(nu=0.3, gamma=0.5, tol=1e-10).fit(X, y, sample_weight=counts)
    repeated = KernelSVC(nu=0.3, gamma=0.5, tol=1e-10).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-5)


def test_classifier_beyond_one_working_set_and_by_sparse_rows():
    X, y = two_classes(2600)
    settings = {"nu": 0.3, "gamma": 0.5, "tol": 1e-4}
    theirs = NuSVC(**settings).fit(X, y).decision_function(X)
    model = KernelSVC(**settings, memory_budget="128MB", random_state=0).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(model.decision_function(X), theirs, atol=1e-3)


def test_a_nu_too_large_for_the_classes_raises():
    X, _ = two_classes(100)
    y = (np.arange(100) < 10).astype(int)
    with pytest.raises(ValueError, match=r"infeasible.*at most 0\.2"):
        KernelSVC(nu=0.5).fit(X, y)
    with pytest.raises(ValueError, match="simple_smo"):
        KernelSVC(nu=0.1, solver="simple_smo").fit(X, y)


def test_equal_classes_without_a_margin_raise():
    X, _ = two_classes(40)
    with pytest.raises(ValueError, match="no margin"):
        KernelSVC(nu=1.0, tol=1e-9).fit(np.concatenate([X, X]), np.repeat([0, 1], 40))


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_regressor_equals_scikit_learn(kernel, nu):
    X, y = noisy()
    settings = {"kernel": kernel, "nu": nu, "gamma": 0.5, "C": 2.0, "tol": 1e-6}
    ours, theirs = KernelSVR(**settings).fit(X, y), NuSVR(**settings).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)


def test_regressor_equals_the_one_with_the_resulting_tube():
    X, y = noisy()
    model = KernelSVR(nu=0.4, gamma=0.5, C=2.0, tol=1e-10).fit(X, y)
    same = KernelSVR(epsilon=model.epsilon_, gamma=0.5, C=2.0, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.predict(X), same.predict(X), atol=1e-6)
    outside = np.abs(model.predict(X) - y) > model.epsilon_ + 1e-6
    assert outside.mean() <= 0.4 <= model.support_.size / len(y)


@pytest.mark.parametrize("nu", [0.95, 1.0])
def test_the_width_of_the_tube_is_not_negative(nu):
    """Where all rows can be fitted within a tube of no width, a larger nu changes nothing."""
    X, _ = noisy(51)
    y = X[:, 0]
    settings = {"nu": nu, "kernel": "linear", "C": 100.0, "tol": 1e-6}
    ours, theirs = KernelSVR(**settings).fit(X, y), NuSVR(**settings).fit(X, y)
    assert ours.epsilon_ == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)


def test_regressor_beyond_one_working_set():
    X, y = noisy(2600)
    settings = {"nu": 0.3, "gamma": 0.5, "tol": 1e-4}
    np.testing.assert_allclose(
        KernelSVR(**settings, random_state=0).fit(X, y).predict(X), NuSVR(**settings).fit(X, y).predict(X), atol=2e-3
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nu": 0}, "'nu' parameter of KernelSVR"),
        ({"nu": 0.5, "solver": "simple_smo"}, "simple_smo"),
        ({"nu": 0.5, "loss": "huber"}, "width of a tube"),
        ({"nu": 0.5, "C": np.inf}, "finite"),
    ],
)
def test_regressor_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelSVR(**settings).fit(*noisy(20))
