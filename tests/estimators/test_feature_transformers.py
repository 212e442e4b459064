"""NystromFeatures and FourierFeatures: their inner products are the kernel, and scikit-learn's tools can use them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline

import gramless
from gramless import FourierFeatures, NystromFeatures, NystromLSSVR


def rows(n=120, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
def test_inner_products_are_the_kernel_where_all_rows_are_landmarks(kernel):
    X = rows()
    settings = {"gamma": 0.3, "coef0": 1.0}
    Phi = NystromFeatures(kernel=kernel, n_landmarks=1.0, **settings).fit_transform(X)
    truth = {
        "rbf": rbf_kernel(X, gamma=0.3),
        "poly": polynomial_kernel(X, gamma=0.3, coef0=1.0),
        "laplacian": laplacian_kernel(X, gamma=0.3),
    }[kernel]
    np.testing.assert_allclose(Phi @ Phi.T, truth, atol=1e-6 * truth.max())


def test_inner_products_equal_those_of_scikit_learns_nystroem():
    X, new = rows(), rows(30, seed=1)
    theirs = Nystroem(gamma=0.2, n_components=25, random_state=0).fit(X)
    ours = NystromFeatures(gamma=0.2, landmarks=theirs.components_).fit(X)
    A, B = ours.transform(new), theirs.transform(new)
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-8)
    by_number = NystromFeatures(gamma=0.2, landmarks=theirs.component_indices_).fit(X)
    np.testing.assert_array_equal(by_number.transform(new), A)
    np.testing.assert_array_equal(X[by_number.support_], by_number.points_)
    assert ours.support_ is None


def test_a_ridge_on_the_features_is_the_machine_on_the_landmarks():
    X = rows(300)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    landmarks = np.arange(0, 300, 10)
    machine = NystromLSSVR(C=5.0, gamma=0.3, landmarks=landmarks).fit(X, y)
    pipeline = make_pipeline(NystromFeatures(gamma=0.3, landmarks=landmarks), Ridge(alpha=0.2)).fit(X, y)
    np.testing.assert_allclose(pipeline.predict(X), machine.predict(X), atol=1e-7)


def test_fourier_features_approximate_the_kernel_and_have_its_frequencies():
    X = rows(40)
    for kernel, truth in [("rbf", rbf_kernel(X, gamma=0.3)), ("laplacian", laplacian_kernel(X, gamma=0.3))]:
        model = FourierFeatures(kernel=kernel, gamma=0.3, n_components=40_000, random_state=0).fit(X)
        Phi = model.transform(X)
        assert np.abs(Phi @ Phi.T - truth).max() < 0.03
        phases = X @ model.frequencies_
        np.testing.assert_allclose(Phi, np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(20_000), atol=1e-12)


def test_structured_frequencies_for_many_columns():
    X = rows(20, d=40)
    model = FourierFeatures(gamma=0.01, n_components=20_000, draw="structured", random_state=0).fit(X)
    Phi = model.transform(X)
    assert np.abs(Phi @ Phi.T - rbf_kernel(X, gamma=0.01)).max() < 0.05


@pytest.mark.parametrize("transformer", [NystromFeatures(n_landmarks=16, random_state=0), FourierFeatures(n_components=16)])
def test_scikit_learns_conventions(transformer):
    pd = pytest.importorskip("pandas")
    X = rows()
    frame = pd.DataFrame(X, columns=list("abcd"))
    name = type(transformer).__name__.lower()
    made = transformer.set_output(transform="pandas").fit_transform(frame)
    assert list(made.columns) == [f"{name}{i}" for i in range(16)]
    assert list(made.columns) == list(transformer.get_feature_names_out())
    transformer.set_output(transform="default")
    np.testing.assert_array_equal(transformer.transform(frame), made.to_numpy())
    both = ColumnTransformer([("kernel", transformer, ["a", "b"]), ("rest", "passthrough", ["c", "d"])])
    assert both.fit_transform(frame).shape == (120, 18)


@pytest.mark.parametrize("kind", [NystromFeatures, FourierFeatures])
def test_sparse_rows_float32_and_pieces(kind, tmp_path):
    X = np.where(rows() > 0.3, rows(), 0.0)
    settings = {"random_state": 0, "gamma": 0.3} | ({"n_landmarks": 20} if kind is NystromFeatures else {"n_components": 20})
    model = kind(**settings).fit(X)
    truth = model.transform(X)
    np.testing.assert_allclose(kind(**settings).fit(sp.csr_matrix(X)).transform(sp.csr_matrix(X)), truth, atol=1e-10)
    single = kind(**settings).fit(X.astype(np.float32)).transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single @ single.T, truth @ truth.T, atol=1e-3)
    pieces = kind(**settings).partial_fit(X)
    np.testing.assert_array_equal(pieces.partial_fit(X[:7] + 1).transform(X), truth)
    with pytest.raises(ValueError, match="features"):
        pieces.partial_fit(X[:, :2])
    gramless.save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").transform(X), truth)


def test_rows_with_the_same_features_whatever_stands_beside_them():
    X = rows(5000)
    model = NystromFeatures(n_landmarks=50, random_state=0).fit(X)
    np.testing.assert_allclose(model.transform(X)[4090:4100], model.transform(X[4090:4100]), atol=1e-12)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NystromFeatures(n_landmarks=0), "n_landmarks"),
        (NystromFeatures(kernel="precomputed"), "precomputed"),
        (FourierFeatures(n_components=0), "n_components"),
        (FourierFeatures(kernel="poly"), "Fourier"),
    ],
)
def test_says_what_cannot_be(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(rows(30))
