"""Data that is odd but legal: each case has a defined answer."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.model_selection import GridSearchCV, cross_val_score

from gramless import LSSVC, LSSVR
from gramless.callbacks import EarlyStopping
from gramless.kernels import RBF, Columns, Laplacian, Linear, Precomputed

EVERY_CLASSIFIER = [
    LSSVC(),
    LSSVC(solver="cg"),
    LSSVC(kernel="linear"),
    LSSVC(kernel="laplacian"),
    LSSVC(kernel="poly"),
    LSSVC(C="loo"),
]


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 4)) + 3.0 * y[:, None], y


@pytest.mark.parametrize("model", EVERY_CLASSIFIER, ids=str)
def test_constant_features(model, blobs):
    X, y = blobs
    widened = np.hstack([X, np.full((60, 2), 7.0), np.zeros((60, 1))])
    assert model.fit(widened, y).score(widened, y) > 0.85


@pytest.mark.parametrize("model", EVERY_CLASSIFIER, ids=str)
def test_only_constant_features(model):
    X, y = np.full((10, 3), 5.0), np.array([0] * 7 + [1] * 3)
    scores = model.fit(X, y).decision_function(X)
    np.testing.assert_allclose(scores, scores[0])
    assert (model.predict(X) == 0).all()


@pytest.mark.parametrize("model", EVERY_CLASSIFIER, ids=str)
def test_duplicate_rows_even_with_different_labels(model, blobs):
    X, y = blobs
    X, y = np.vstack([X, X, X[:3]]), np.hstack([y, y, (y[:3] + 1) % 3])
    assert model.fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("model", EVERY_CLASSIFIER, ids=str)
def test_zero_rows(model, blobs):
    X, y = blobs
    X = X.copy()
    X[::10] = 0.0
    for given in (X, sp.csr_matrix(X)):
        assert np.isfinite(model.fit(given, y).decision_function(given)).all()


@pytest.mark.parametrize(
    "model", [*EVERY_CLASSIFIER, LSSVC(probability="sigmoid"), LSSVC(callback=EarlyStopping())], ids=str
)
def test_a_class_with_one_sample(model, blobs):
    X, y = blobs
    y = y.copy()
    y[17] = 9
    model.fit(X, y)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 9])
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)


@pytest.mark.parametrize(
    "model", [*EVERY_CLASSIFIER, LSSVC(probability="sigmoid"), LSSVC(C="loo", probability="sigmoid")], ids=str
)
def test_two_samples(model):
    X, y = np.array([[0.0, 1.0], [2.0, 1.0]]), ["a", "b"]
    model.fit(X, y)
    assert model.decision_function(X).shape == (2,)
    assert model.predict_proba(X).shape == (2, 2)
    if "CV" not in type(model).__name__:  # left out, each of two samples is predicted as the other: nothing to choose by
        np.testing.assert_array_equal(model.predict(X), y)


@pytest.mark.parametrize("model", [LSSVR(), LSSVR(solver="cg"), LSSVR(C="loo")], ids=str)
def test_regression_on_two_samples_and_on_constant_targets(model):
    X = np.array([[0.0], [1.0]])
    assert model.fit(X, [1.0, 3.0]).predict(X).shape == (2,)
    np.testing.assert_allclose(model.fit(X, [4.0, 4.0]).predict([[0.5]]), [4.0])


def test_one_sample_is_a_constant():
    np.testing.assert_allclose(LSSVR().fit([[1.0]], [4.0]).predict([[0.0], [9.0]]), 4.0)


@pytest.mark.parametrize("model", EVERY_CLASSIFIER, ids=str)
def test_one_feature(model):
    X = np.linspace(-1, 1, 30)[:, None]
    y = (X[:, 0] > 0).astype(int)
    assert model.fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_hundred_thousand_features(kernel, sparse):
    n = 300 if sparse else 40
    y = np.arange(n) % 2
    rng = np.random.default_rng(0)
    X = sp.random(n, 100_000, density=2e-4, format="csr", random_state=rng) + sp.csr_matrix(
        (np.full(n, 5.0), (np.arange(n), y)), shape=(n, 100_000)
    )
    X = X if sparse else X.toarray()
    model = LSSVC(kernel=kernel, C=10.0).fit(X, y)
    assert model.score(X, y) == 1.0


def test_many_sparse_rows_with_the_preconditioner():
    rng = np.random.default_rng(0)
    X = sp.random(1500, 200, density=0.05, format="csr", random_state=rng)
    y = np.asarray(X[:, :100].sum(axis=1)).ravel() > np.asarray(X[:, 100:].sum(axis=1)).ravel()
    settings = {"solver": "cg", "tol": 1e-8, "random_state": 0, "C": 10.0}
    sparse, dense = LSSVC(**settings).fit(X, y), LSSVC(**settings).fit(X.toarray(), y)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X.toarray()), atol=1e-6)
    np.testing.assert_allclose(sparse.decision_function(X.toarray()), dense.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e-15, "float32"), (1e15, "float32"), (1e-30, "float32"), (1e-100, "float64"), (1e100, "float64")]
)
def test_scales_of_the_data_cancel(kernel, scale, dtype, blobs):
    X, y = blobs
    plain = LSSVC(kernel=kernel, C=10.0).fit(X, y)
    scaled = (X * scale).astype(dtype)
    model = LSSVC(kernel=kernel, C=10.0).fit(scaled, y)
    assert model.dual_coef_.dtype == dtype
    tolerance = 2e-3 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(model.decision_function(scaled), plain.decision_function(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_data_far_from_the_origin(dtype, blobs):
    """Stationary kernels see differences only, also where the product form of a distance has no digits left."""
    X, y = blobs
    X = X.round(1)
    moved = (X + 8192.0).astype(dtype)
    for kernel in (RBF(gamma=0.1), Laplacian(gamma=0.1), Laplacian(gamma=0.1, norm="l2")):
        here, there = LSSVC(kernel=kernel).fit(X, y), LSSVC(kernel=kernel).fit(moved, y)
        tolerance = 2e-2 if dtype == "float32" else 1e-9  # what rounding the moved data itself costs
        np.testing.assert_allclose(there.decision_function(moved), here.decision_function(X), atol=tolerance)


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor, sp.csr_matrix], ids=["numpy", "torch", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_laplacian_of_the_euclidean_norm_at_zero_distance(array, dtype):
    rng = np.random.default_rng(0)
    X = (100.0 * rng.normal(size=(300, 50))).astype(dtype)
    X[150:] = X[:150]
    near = X[:5] * np.asarray(1 + np.finfo(dtype).eps * 4, dtype)
    kernel = Laplacian(gamma=1.0, norm="l2")
    K = np.asarray(kernel(array(X), array(X)))
    np.testing.assert_array_equal(np.diagonal(K), 1.0)
    np.testing.assert_array_equal(np.diagonal(K[:150, 150:]), 1.0)
    exact = np.exp(-np.linalg.norm(near.astype(float) - X[:5].astype(float), axis=1))
    np.testing.assert_allclose(np.diagonal(np.asarray(kernel(array(near), array(X[:5])))), exact, rtol=1e-4)


def test_a_callable_kernel_equals_the_named_one(blobs):
    X, y = blobs
    for dtype in ("float32", "float64"):
        named = LSSVC(kernel="linear").fit(X.astype(dtype), y)
        own = LSSVC(kernel=lambda A, B: A @ B.T).fit(X.astype(dtype), y)
        assert own.dual_coef_.dtype == dtype
        np.testing.assert_allclose(own.decision_function(X), named.decision_function(X), rtol=1e-3, atol=1e-4)
    search = LSSVC(C="loo", kernel=[lambda A, B: A @ B.T, "rbf"]).fit(X, y)
    assert search.scores_.shape[0] == 2


@pytest.mark.parametrize(
    "settings",
    [{"probability": "softmax"}, {"solver": "cg", "tol": 1e-10, "probability": "temperature"}, {"probability": "sigmoid"}],
    ids=str,
)
@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_precomputed_equals_the_kernel_itself(settings, array, blobs):
    X, y = blobs
    test = X[::7] + 0.1
    weights = np.arange(60) % 4  # some are zero: those rows must drop out on both sides of the matrix
    kernel = RBF(gamma=0.1)
    direct = LSSVC(kernel=kernel, **settings).fit(X, y, sample_weight=weights)
    K = array(kernel(X, X))
    ours = LSSVC(kernel="precomputed", **settings).fit(K, y, sample_weight=weights)
    np.testing.assert_allclose(
        np.asarray(ours.decision_function(array(kernel(test, X)))), direct.decision_function(test), atol=1e-7
    )
    np.testing.assert_allclose(ours.predict_proba(array(kernel(test, X))), direct.predict_proba(test), atol=1e-6)


def test_precomputed_with_early_stopping_and_zero_weights(blobs):
    X, y = blobs
    kernel = RBF(gamma=0.1)
    settings = {"solver": "cg", "callback": EarlyStopping(), "random_state": 0, "tol": 1e-9}
    weights = (np.arange(60) % 5 > 0).astype(float)
    direct = LSSVC(kernel=kernel, **settings).fit(X, y, sample_weight=weights)
    ours = LSSVC(kernel="precomputed", **settings).fit(kernel(X, X), y, sample_weight=weights)
    np.testing.assert_array_equal(ours.support_, direct.support_)
    np.testing.assert_allclose(ours.decision_function(kernel(X, X)), direct.decision_function(X), atol=1e-6)
    assert (weights[ours.support_] > 0).all()
    assert ours.dual_coef_.shape[0] < 48


def test_precomputed_searches_and_cross_validates(blobs):
    X, y = blobs
    K = RBF(gamma=0.1)(X, X)
    direct, ours = LSSVC(C="loo", kernel=RBF(gamma=0.1)).fit(X, y), LSSVC(C="loo", kernel="precomputed").fit(K, y)
    np.testing.assert_allclose(ours.scores_, direct.scores_)
    np.testing.assert_allclose(ours.decision_function(K), direct.decision_function(X), rtol=1e-8)
    for kernel in ("precomputed", Precomputed(), 2.0 * Precomputed()):
        assert cross_val_score(LSSVC(kernel=kernel), K, y, cv=3).min() > 0.8


def test_a_grid_search_reaches_into_kernel_expressions(blobs):
    X, y = blobs
    kernel = Columns(RBF(), slice(0, 2)) * (Columns(RBF(), [2, 3]) + Linear())
    grid = {"kernel__left__kernel__gamma": [0.01, 0.1], "C": [1.0, 10.0]}
    search = GridSearchCV(LSSVC(kernel=kernel), grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.85
    assert search.best_estimator_.kernel_.left.kernel.gamma in (0.01, 0.1)
    assert isinstance(search.best_estimator_.kernel_.right.left.kernel.gamma, float)


def test_gamma_resolves_at_fit_and_shows(blobs):
    X, y = blobs
    model = LSSVC().fit(X, y)
    assert model.kernel_.gamma == pytest.approx(1 / (4 * X.var()))
    assert model.gamma == "scale"
    kernel = RBF()
    LSSVC(kernel=kernel).fit(X, y)
    assert kernel.gamma == "scale", "the user's kernel is not changed"


def test_tensors_in_tensors_out(blobs):
    X, y = blobs
    model = LSSVC().fit(torch.as_tensor(X), torch.as_tensor(y))
    scores = model.decision_function(torch.as_tensor(X))
    assert isinstance(scores, torch.Tensor)
    np.testing.assert_allclose(scores.numpy(), LSSVC().fit(X, y).decision_function(X), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(model.decision_function(X), scores.numpy(), rtol=1e-9, atol=1e-11)
    assert isinstance(model.predict(torch.as_tensor(X)), np.ndarray)
    assert isinstance(LSSVR().fit(X, y).predict(torch.as_tensor(X)), torch.Tensor)


def test_bytes_and_single_precision_compute_in_single_precision(blobs):
    import pandas as pd

    X, y = blobs
    small = np.clip(X * 10 + 100, 0, 255).astype(np.uint8)
    frame = pd.DataFrame(X.astype(np.float32), columns=list("abcd"))
    for given in (X.astype(np.float32), small, torch.as_tensor(small), frame):
        assert LSSVC().fit(given, y).dual_coef_.dtype == np.float32
    for given in (X, X.tolist(), small.astype(int), pd.DataFrame(X)):
        assert LSSVC().fit(given, y).dual_coef_.dtype == np.float64
    assert LSSVC(dtype="float64").fit(small, y).dual_coef_.dtype == np.float64


def test_outputs_of_every_size_are_solved_alike():
    """One output a million times another's size, far from zero, in float32."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    base = np.sin(X @ rng.normal(size=(3, 2)))
    Y = base * [1e6, 1e-3] + [1e7, 5.0]
    for solver in ("cholesky", "cg"):
        model = LSSVR(C=100.0, solver=solver, dtype="float32", tol=1e-4).fit(X, Y)
        reference = LSSVR(C=100.0).fit(X, Y).predict(X)
        np.testing.assert_allclose((model.predict(X) - reference) / [1e6, 1e-3], 0.0, atol=5e-2)


def test_a_list_of_precomputed_kernels_is_split_by_rows_and_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    K = RBF(gamma=0.5)(X, X)
    expected = cross_val_score(LSSVC(C="loo", kernel="precomputed"), K, y, cv=3)
    np.testing.assert_array_equal(cross_val_score(LSSVC(C="loo", kernel=["precomputed"]), K, y, cv=3), expected)
