"""Every feature map of the registry: equal features in all array libraries, a correct penalty, a restorable state."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gramless.approximation.features import FEATURE_MAPS
from gramless.approximation.features.base import SampledRows
from gramless.kernels import RBF

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.random.default_rng(1).normal(size=(60, 2))


@pytest.fixture(params=sorted(FEATURE_MAPS))
def made(request):
    feature_map = FEATURE_MAPS[request.param]()
    sizes = {"n_landmarks": 20, "n_components": 20} | {"kernel": RBF(gamma=0.2)}
    return feature_map.set_params(**{k: v for k, v in sizes.items() if k in feature_map.get_params()})


def begun(feature_map, rows=X, seed=0):
    return feature_map.begin(SampledRows(rows, Y, n_rows=len(Y)), np.random.RandomState(seed))


def test_has_settings_only(made):
    begun(made)
    assert clone(made).get_params(deep=False).keys() == made.get_params(deep=False).keys() == vars(made).keys()


def test_number_of_features_is_as_declared(made):
    features = begun(made)
    assert features(X).shape == (60, features.n_features) == (60, made.n_features(60))
    assert made.rows_needed(60) <= 60
    assert made.rows_wanted(60) >= made.rows_needed(60)


def test_inner_products_approximate_kernel(made):
    """With the penalty P as metric, `Phi P^-1 Phi^T` is at most K, and equals K with enough features."""
    many = {"n_landmarks": 60, "n_components": 20_000}
    features = begun(made.set_params(**{k: v for k, v in many.items() if k in made.get_params()}))
    Phi, P = features(X) + 0, features.penalty()
    spanned = Phi @ Phi.T if P is None else Phi @ np.linalg.solve(P, Phi.T)
    np.testing.assert_allclose(spanned, features.kernel(X, X), atol=0.05)


def test_penalty_and_its_products_agree(made):
    for features in (begun(made), begun(made, X.astype(np.float32))):
        P, A = features.penalty(), np.random.default_rng(2).normal(size=(features.n_features, 3))
        dense = np.eye(features.n_features) if P is None else P
        assert features.identity_penalty == (P is None)
        np.testing.assert_allclose(features.penalty_product(A, 10**9), dense @ A, atol=1e-6)
        assert np.linalg.eigvalsh(dense).min() > -1e-9


def test_features_depend_on_seed_and_not_on_batches(made):
    first, second = begun(made), begun(made)
    np.testing.assert_array_equal(first(X), second(X))
    one_by_one = np.concatenate([first(X[i : i + 1]) + 0 for i in range(len(X))])
    np.testing.assert_allclose(one_by_one, first(X), atol=1e-7)
    if not made.depends_on_rows:
        np.testing.assert_array_equal(begun(made, X[:7])(X), first(X))


def test_sparse_torch_and_single_precision(made):
    torch = pytest.importorskip("torch")
    features = begun(made)
    expected = features(X) + 0
    np.testing.assert_allclose(features(torch.as_tensor(X)).numpy(), expected, atol=1e-7)
    if made.accepts_sparse:
        np.testing.assert_allclose(begun(made, sp.csr_matrix(X))(sp.csr_matrix(X)), expected, atol=1e-7)
    single = begun(made, X.astype(np.float32))(X.astype(np.float32))
    assert single.dtype == np.float32


def test_state_and_pickle_round_trip(made):
    features = begun(made)
    expected = features(X) + 0
    for again in (made.restore(features.state()), pickle.loads(pickle.dumps(features))):
        np.testing.assert_array_equal(again(X), expected)
        assert again.kernel.get_params() == features.kernel.get_params()
        A = np.random.default_rng(3).normal(size=(features.n_features, 2))
        np.testing.assert_array_equal(again.coefficients(A), features.coefficients(A))
    np.testing.assert_array_equal(features.for_prediction().kernel(X, X), features.kernel(X, X))
