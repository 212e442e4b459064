"""MKLClassifier: the two algorithms against each other, and both against a search over the weights."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.svm import SVC

from gramless import KernelSVC, MKLClassifier
from gramless.kernels import RBF, Columns, Linear
from gramless.svm.multiclass import make_solver, solve_multiclass
from gramless.svm.multiple_kernels import StoredKernels, StreamedKernels
from gramless.svm.resources import DualFit, row_budget

KERNELS = [RBF(0.01), RBF(0.1), RBF(1.0), Linear()]


def cancer(n=150):
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X)[:n], y[:n]


def wine():
    X, y = load_wine(return_X_y=True)
    return scale(X), y


def dual_optimum(K, y, C):
    """Return the dual optimum of the support vector classifier with a given Gram matrix."""
    peer = SVC(C=C, kernel="precomputed", tol=1e-7).fit(K, y)
    beta = np.zeros(len(y))
    beta[peer.support_] = peer.dual_coef_[0]
    return np.abs(beta).sum() - 0.5 * beta @ K @ beta


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
def test_weights_minimise_the_dual_optimum_over_the_unit_ball(p):
    X, y = cancer()
    X = X[:, :6]
    kernels = [RBF(0.05), RBF(2.0)]
    model = MKLClassifier(kernels, C=2.0, p=p, tol=1e-6, weight_tol=1e-5, normalise=False, max_iter=2000).fit(X, y)
    assert np.sum(model.weights_**p) == pytest.approx(1)
    grams = [kernel(X, X) for kernel in kernels]
    first = np.linspace(0, 1, 401)
    values = [dual_optimum(t * grams[0] + (1 - t**p) ** (1 / p) * grams[1], y, 2.0) for t in first]
    reached = dual_optimum(np.tensordot(model.weights_, grams, 1), y, 2.0)
    assert reached <= min(values) * (1 + 2e-5)
    assert model.weights_[0] == pytest.approx(first[int(np.argmin(values))], abs=0.02)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
@pytest.mark.parametrize("data", [cancer, wine])
def test_pairwise_steps_and_alternation_reach_the_same_weights(data, multi_class):
    X, y = data()
    settings = {"weight_penalty": 5.0, "multi_class": multi_class}
    fast = MKLClassifier(KERNELS, tol=1e-5, weight_tol=1e-6, **settings).fit(X, y)
    pairwise = MKLClassifier(KERNELS, tol=1e-4, solver="simple_smo", **settings).fit(X, y)
    np.testing.assert_allclose(pairwise.weights_, fast.weights_, rtol=1e-4)
    np.testing.assert_allclose(pairwise._scores(X), fast._scores(X), atol=1e-3)
    assert pairwise.gap_ <= 1e-4
    np.testing.assert_array_equal(pairwise.support_, fast.support_)


def test_penalised_weights_are_the_stationary_point():
    X, y = cancer()
    model = MKLClassifier(KERNELS, weight_penalty=3.0, tol=1e-7, weight_tol=1e-7).fit(X, y)
    beta = model.dual_coef_[0]
    vectors = X[model.support_]
    S = [beta @ kernel(vectors, vectors) @ beta / np.mean(kernel.diag(X)) for kernel in KERNELS]
    np.testing.assert_allclose(model.weights_, np.array(S) / 6.0, rtol=1e-5)


def test_the_classifier_equals_that_of_the_weighted_sum():
    X, y = wine()
    model = MKLClassifier(KERNELS, C=3.0, tol=1e-7).fit(X, y)
    classifier = KernelSVC(model.kernel_, C=3.0, tol=1e-7).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), classifier.decision_function(X), atol=1e-5)


def test_sparse_weights_leave_out_noise():
    X, y = wine()
    noise = np.random.default_rng(0).normal(size=(len(X), 13))
    kernels = [Columns(RBF(0.1), slice(0, 13)), Columns(RBF(0.1), slice(13, 26))]
    sparse = MKLClassifier(kernels, p=1.0, C=10.0).fit(np.hstack([X, noise]), y)
    spread = MKLClassifier(kernels, p=4.0, C=10.0).fit(np.hstack([X, noise]), y)
    assert sparse.weights_[1] < 0.2 * sparse.weights_[0]
    assert spread.weights_[1] / spread.weights_[0] > sparse.weights_[1] / sparse.weights_[0]


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_stored_streamed_and_precomputed_kernels_agree(multi_class):
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 16, y[:500]
    kernels = [RBF(0.1), RBF(1.0)]
    settings = {"C": 2.0, "multi_class": multi_class, "tol": 1e-5, "weight_tol": 1e-4}
    stored = MKLClassifier(kernels, **settings)
    fixed = 10**9 - row_budget("1GB", kernels[0] + kernels[1], X, 1)
    streamed = MKLClassifier(kernels, **settings, memory_budget=int(fixed + 5e6))  # three matrices take 6 MB
    assert isinstance(stored._stack(kernels, X, 500, 0)[0], StoredKernels)
    assert isinstance(streamed._stack(kernels, X, 500, 0)[0], StreamedKernels)
    stored.fit(X, y)
    streamed.fit(X, y)
    grams = [kernel(X, X) for kernel in kernels]
    given = MKLClassifier("precomputed", **settings).fit(grams, y)
    for model, points in ((streamed, X), (given, grams)):
        np.testing.assert_allclose(model.weights_, stored.weights_, rtol=1e-5)
        np.testing.assert_allclose(model._scores(points), stored._scores(X), atol=1e-3)


def test_float32_grams():
    X, y = wine()
    double = MKLClassifier(KERNELS).fit(X, y)
    single = MKLClassifier(KERNELS, dtype="float32").fit(X, y)
    assert single.support_vectors_.dtype == np.float32
    np.testing.assert_allclose(single.weights_, double.weights_, rtol=2e-3)
    np.testing.assert_array_equal(single.predict(X), double.predict(X))


def test_quadratic_forms():
    X, y = wine()
    options = {"n_classes": 3, "one_vs_one": True}
    fit = DualFit(RBF(0.1), X, make_solver("smo", 1e-5, None), 1e9)
    model = solve_multiclass(fit, y, np.ones(len(y)), **options)
    expected = []
    for kernel in KERNELS:
        K = kernel(X[model.support], X[model.support])
        expected.append(sum(beta @ K @ beta for beta in model.by_problem()))
    np.testing.assert_allclose(StreamedKernels(KERNELS, X).quadratic_forms(model), expected, rtol=1e-9)
    np.testing.assert_allclose(StoredKernels.of(KERNELS, X).quadratic_forms(model), expected, rtol=1e-9)


def test_a_cap_on_alternations_warns_with_the_gap():
    X, y = wine()
    with pytest.warns(ConvergenceWarning, match="relative gap of"):
        MKLClassifier(KERNELS, p=1.0, max_iter=1, weight_tol=1e-8).fit(X, y)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"p": 0.5}, "'p' parameter of MKLClassifier"),
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": "rbf"}, "'kernels' parameter of MKLClassifier"),
        ({"solver": "simple_smo"}, "set weight_penalty"),
        ({"weight_penalty": 1.0, "p": 1.0}, "needs p=2"),
        ({"positive_weight": 2.0}, "multi_class='ovr'"),
        ({"C": -1.0}, "'C' parameter of MKLClassifier"),
    ],
)
def test_settings_are_checked(setting, message):
    X, y = wine()
    with pytest.raises(ValueError, match=message):
        MKLClassifier(**setting).fit(X, y)


def test_precomputed_shapes_are_checked():
    X, y = wine()
    K = X @ X.T
    with pytest.raises(ValueError, match="square Gram matrices of one size"):
        MKLClassifier("precomputed").fit([K, K[:, :9]], y)
    model = MKLClassifier("precomputed").fit([K, K**2], y)
    with pytest.raises(ValueError, match="2 matrices"):
        model.predict([K])


@pytest.mark.parametrize("solver", ["smo", "simple_smo"])
def test_history_and_callback(solver, capsys):
    X, y = wine()
    settings = {"weight_penalty": 5.0, "solver": solver, "random_state": 0}
    seen = []
    model = MKLClassifier(KERNELS, verbose=1, callback=lambda estimator, record: seen.append(record), **settings).fit(X, y)
    assert seen == model.history_
    assert all({"n_iter", "seconds", "gap"} == set(record) for record in seen)
    assert seen[-1]["n_iter"] == model.n_iter_
    assert "MKLClassifier: " in capsys.readouterr().err
    stopped = MKLClassifier(KERNELS, weight_tol=1e-9, tol=1e-9, callback=lambda estimator, record: True, **settings).fit(
        X, y
    )
    assert len(stopped.history_) == 1
    assert np.isfinite(stopped.decision_function(X)).all()
