import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from gramless import LSSVC, NystromLSSVC, PrototypeLSSVC, SphericalKMeans
from gramless.images import UnitNormalizer

POLYNOMIAL = {"kernel": "poly", "degree": 4, "gamma": 1.0, "coef0": 0.0, "C": 1e6}


@pytest.fixture(scope="module")
def digits(digits):
    X, y = digits
    X = UnitNormalizer().transform(X)
    return X[:1200], y[:1200], X[1200:], y[1200:]


def test_the_model_is_a_least_squares_classifier_on_the_centroids(digits):
    X, y, X_test, _ = digits
    model = PrototypeLSSVC(n_prototypes=15, random_state=0, **POLYNOMIAL).fit(X, y)
    assert_array_equal(model.n_prototypes_, 15)
    assert_array_equal(model.prototype_labels_, np.repeat(np.arange(10), 15))
    assert_allclose(np.linalg.norm(model.points_, axis=1), 1, rtol=1e-6)
    expected = LSSVC(solver="cholesky", **POLYNOMIAL).fit(model.points_, model.prototype_labels_)
    assert_allclose(model.decision_function(X_test), expected.decision_function(X_test), atol=1e-8)


def test_each_prototype_is_the_centroid_of_its_own_class(digits):
    X, y, _, _ = digits
    model = PrototypeLSSVC(n_prototypes=6, kmeans_max_iter=300, random_state=0, **POLYNOMIAL).fit(X, y)
    for label in range(10):
        own, prototypes = X[y == label], model.points_[model.prototype_labels_ == label]
        nearest = (own @ prototypes.T).argmax(axis=1)
        sums = np.stack([own[nearest == q].sum(axis=0) for q in range(6)])
        assert_allclose(prototypes, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=5e-3)


def test_more_prototypes_and_a_refit_both_lower_the_error(digits):
    X, y, X_test, y_test = digits

    def error(**settings):
        return np.mean(
            [1 - PrototypeLSSVC(random_state=s, **POLYNOMIAL, **settings).fit(X, y).score(X_test, y_test) for s in range(3)]
        )

    few, more, refitted = error(n_prototypes=5), error(n_prototypes=30), error(n_prototypes=5, refit=True)
    assert more < few
    assert refitted < few


def test_refit_is_a_nystrom_classifier_on_the_prototypes(digits):
    X, y, X_test, _ = digits
    model = PrototypeLSSVC(n_prototypes=10, refit=True, random_state=0, **POLYNOMIAL).fit(X, y)
    expected = NystromLSSVC(landmarks=model.points_, **POLYNOMIAL).fit(X, y)
    assert_allclose(model.decision_function(X_test), expected.decision_function(X_test), atol=1e-6)
    assert model.solver_ == "normal equations"


def test_a_class_with_fewer_rows_uses_all_rows(digits):
    X, y, X_test, _ = digits
    kept = np.flatnonzero((y != 3) | (np.cumsum(y == 3) <= 7))
    model = PrototypeLSSVC(n_prototypes=20, random_state=0, **POLYNOMIAL).fit(X[kept], y[kept])
    assert model.n_prototypes_[3] == 7
    own = X[kept][y[kept] == 3]
    assert_array_equal(model.points_[model.prototype_labels_ == 3], own)
    whole = PrototypeLSSVC(n_prototypes=10_000, solver="cholesky", **POLYNOMIAL).fit(X, y)
    machine = LSSVC(solver="cholesky", **POLYNOMIAL).fit(X, y)
    assert_allclose(whole.decision_function(X_test), machine.decision_function(X_test), atol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [(0.1, [3, 2]), ({"a": 4, "b": 0.5}, [4, 10]), ({"a": 1.0, "b": 1}, [30, 1])],
)
def test_prototypes_by_fraction_and_by_class(wanted, counts):
    X = np.random.default_rng(0).standard_normal((50, 4))
    y = np.array(["a"] * 30 + ["b"] * 20)
    model = PrototypeLSSVC(n_prototypes=wanted, random_state=0).fit(X, y)
    assert_array_equal(model.n_prototypes_, counts)
    assert [report["prototypes"] for report in model.clusterings_] == counts


def test_prototypes_have_the_mean_norm_of_their_members():
    rng = np.random.default_rng(0)
    X = np.concatenate([5 + rng.random((60, 3)), -20 - rng.random((60, 3))])
    y = np.repeat([0, 1], 60)
    model = PrototypeLSSVC(n_prototypes=3, random_state=0).fit(X, y)
    lengths = np.linalg.norm(model.points_, axis=1)
    assert 8 < lengths[:3].min() < lengths[:3].max() < 11
    assert 33 < lengths[3:].min() < lengths[3:].max() < 37
    assert model.score(X, y) == 1


def test_centroids_are_weighted_means_and_weight_zero_is_ignored():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3)), np.arange(80) % 2
    weights = rng.integers(0, 3, 80).astype(float)
    copies = weights.astype(int)
    one = PrototypeLSSVC(n_prototypes=1, random_state=0)
    weighted = one.fit(X, y, weights).points_
    repeated = one.fit(np.repeat(X, copies, axis=0), np.repeat(y, copies)).points_
    assert_allclose(weighted, repeated, rtol=1e-6)
    only_zeros = PrototypeLSSVC().fit(X, y + 5 * (weights == 0), weights)
    assert_array_equal(only_zeros.classes_, [0, 1])


def test_rows_without_a_direction(digits):
    X, y, X_test, y_test = digits
    blank = np.concatenate([np.zeros((200, 64)), X[:600]])
    labels = np.concatenate([np.full(200, 10), y[:600]])
    model = PrototypeLSSVC(n_prototypes=20, random_state=0, **POLYNOMIAL).fit(blank, labels)
    assert model.n_prototypes_[10] == 1
    assert model.predict(np.zeros((1, 64)))[0] == 10
    assert model.score(X_test, y_test) > 0.85


def test_equal_rows_leave_fewer_prototypes():
    X = np.repeat(np.eye(4), 25, axis=0)
    y = np.repeat([0, 1], 50)
    with pytest.warns(ConvergenceWarning, match="too few different directions"):
        model = PrototypeLSSVC(n_prototypes=5, C=100.0).fit(X, y)
    assert_array_equal(model.n_prototypes_, 2)
    assert model.score(X, y) == 1


@pytest.mark.parametrize("refit", [False, True])
def test_tensors_give_the_same_model(digits, refit):
    torch = pytest.importorskip("torch")
    X, y, X_test, _ = digits
    model = PrototypeLSSVC(n_prototypes=8, refit=refit, random_state=0, **POLYNOMIAL)
    here = model.fit(X, y).decision_function(X_test)
    there = model.fit(torch.as_tensor(X), y).decision_function(torch.as_tensor(X_test))
    assert_allclose(there.numpy(), here, atol=1e-5)
    moved = PrototypeLSSVC(n_prototypes=8, refit=refit, random_state=0, device="torch:cpu", **POLYNOMIAL)
    assert_allclose(moved.fit(X, y).decision_function(X_test), here, atol=1e-5)


def test_bytes_are_computed_in_single_precision(digit_images):
    images, y = (part[:1200] for part in digit_images)
    X = images.reshape(len(images), -1)
    model = PrototypeLSSVC(n_prototypes=5, C=10.0, random_state=0).fit(X, y)
    assert model.points_.dtype == model.dual_coef_.dtype == np.float32


def test_cholesky_is_replaced_if_memory_is_scarce():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2400, 8)).astype(np.float32), np.arange(2400) % 2
    settings = {"n_prototypes": 1100, "kmeans_max_iter": 2, "C": 10.0, "random_state": 0}
    exact = PrototypeLSSVC(**settings).fit(X, y)
    iterative = PrototypeLSSVC(memory_budget="35MB", **settings).fit(X, y)
    assert (exact.solver_, iterative.solver_) == ("cholesky", "cg")
    assert (exact.predict(X) == iterative.predict(X)).mean() > 0.98
    with pytest.raises(MemoryError, match="memory_budget"):
        PrototypeLSSVC(memory_budget="1MB", **settings).fit(X, y)


@pytest.mark.parametrize("probability", ["softmax", "sigmoid"])
def test_probabilities(digits, probability):
    X, y, X_test, _ = digits
    model = PrototypeLSSVC(n_prototypes=10, probability=probability, random_state=0, **POLYNOMIAL).fit(X, y)
    share = model.predict_proba(X_test)
    assert_allclose(share.sum(axis=1), 1)
    assert not hasattr(PrototypeLSSVC(probability=False), "predict_proba")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_prototypes": 0}, "n_prototypes"),
        ({"n_prototypes": 1.5}, "n_prototypes"),
        ({"n_prototypes": {0: 3}}, "no entry for the class"),
        ({"n_prototypes": {0: 3, 1: 2.5}}, "'n_prototypes' parameter of PrototypeLSSVC"),
        ({"kernel": "precomputed"}, "new points"),
        ({"C": -1}, "'C' parameter of PrototypeLSSVC"),
        ({"init": "far"}, "'init' parameter of PrototypeLSSVC"),
    ],
)
def test_bad_settings_are_named(settings, words):
    X = np.random.default_rng(0).standard_normal((300, 4))
    with pytest.raises(ValueError, match=words):
        PrototypeLSSVC(**settings).fit(X, np.arange(300) % 2)


def test_clustering_settings_are_used(digits):
    X, y, _, _ = digits
    model = PrototypeLSSVC(n_prototypes=5, kmeans_max_iter=2, init="k-means++", batch_size=50, random_state=0, **POLYNOMIAL)
    model.fit(X, y)
    assert all(report["passes"] <= 2 for report in model.clusterings_)
    own = X[y == 0]
    best = SphericalKMeans(5, random_state=0).fit(own).inertia_
    assert best <= model.clusterings_[0]["inertia"] < 2 * best


@pytest.mark.gpu
@pytest.mark.parametrize("refit", [False, True])
def test_a_device_gives_the_same_model(digits, refit):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    X, y, X_test, _ = digits
    here = PrototypeLSSVC(n_prototypes=8, refit=refit, random_state=0, **POLYNOMIAL).fit(X, y)
    there = PrototypeLSSVC(n_prototypes=8, refit=refit, random_state=0, device="cuda", **POLYNOMIAL).fit(X, y)
    assert_allclose(there.decision_function(X_test), here.decision_function(X_test), atol=1e-5)


def test_refit_ignores_rows_of_weight_zero(digits):
    X, y, X_test, _ = digits
    weights = np.where(y == 4, 0.0, 1.0)
    weighted = PrototypeLSSVC(n_prototypes=5, refit=True, random_state=0).fit(X, y, weights)
    without = PrototypeLSSVC(n_prototypes=5, refit=True, random_state=0, gamma=weighted.kernel_.gamma)
    without.fit(X[y != 4], y[y != 4])
    assert_array_equal(weighted.classes_, np.delete(np.arange(10), 4))
    assert weighted.decision_function(X_test).shape == (len(X_test), 9)
    assert_allclose(weighted.decision_function(X_test), without.decision_function(X_test), atol=1e-8)


def test_unknown_probability_raises_with_the_name_of_the_estimator():
    with pytest.raises(ValueError, match="'probability' parameter of PrototypeLSSVC"):
        PrototypeLSSVC(probability=True).fit(np.eye(4), [0, 0, 1, 1])
