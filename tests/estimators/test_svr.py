"""KernelSVR against scikit-learn's SVR."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, issparse
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.svm import SVR

from gramless import KernelSVR
from gramless.kernels import RBF


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), y / 50


@pytest.mark.parametrize("solver", ["smo", "simple_smo"])
@pytest.mark.parametrize(("C", "epsilon"), [(0.1, 0.0), (1.0, 0.1), (20.0, 0.5)])
def test_predictions_equal_sklearn(C, epsilon, solver):
    X, y = diabetes()
    X, y = X[:250], y[:250]
    model = KernelSVR(C=C, epsilon=epsilon, gamma=0.05, tol=1e-4, solver=solver).fit(X, y)
    peer = SVR(C=C, epsilon=epsilon, gamma=0.05, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), atol=2e-3)
    K = RBF(0.05)(X, X)
    beta = np.zeros(len(y))
    beta[peer.support_] = peer.dual_coef_[0]
    best = y @ beta - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    assert model.dual_objective_ == pytest.approx(best, rel=1e-4)
    assert model.kkt_violation_ <= 1e-4
    assert model.dual_coef_.shape == (1, len(model.support_))


def test_weights_precomputed_and_float32():
    X, y = make_friedman1(600, random_state=0)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 4.0], size=600)
    peer = SVR(C=10.0, gamma=1.0, tol=1e-6).fit(X[:400], y[:400], weight[:400])
    expected = peer.predict(X[400:])
    settings = {"C": 10.0, "gamma": 1.0, "tol": 1e-5}
    model = KernelSVR(**settings).fit(X[:400], y[:400], weight[:400])
    np.testing.assert_allclose(model.predict(X[400:]), expected, atol=1e-3)
    K = RBF(1.0)(X, X[:400])
    given = KernelSVR("precomputed", C=10.0, tol=1e-5).fit(K[:400], y[:400], weight[:400])
    np.testing.assert_allclose(given.predict(K[400:]), expected, atol=1e-3)
    single = KernelSVR(**settings).fit(X[:400].astype("f"), y[:400], weight[:400])
    assert single.support_vectors_.dtype == np.float32
    np.testing.assert_allclose(single.predict(X[400:].astype("f")), expected, atol=5e-3)


def test_a_tube_that_contains_all_targets_needs_no_support_vectors():
    X, y = diabetes()
    model = KernelSVR(epsilon=100.0).fit(X, y)
    assert len(model.support_) == 0
    np.testing.assert_allclose(model.predict(X), model.intercept_[0])
    assert y.max() - 100 <= model.intercept_[0] <= y.min() + 100


def test_an_early_stop_warns():
    X, y = diabetes()
    with pytest.warns(ConvergenceWarning, match="KKT violation"):
        KernelSVR(C=1e4, max_iter=50).fit(X, y)


@pytest.mark.parametrize("setting", [{"epsilon": -0.1}, {"C": -1.0}, {"solver": "cg"}, {"max_iter": 2.5}])
def test_settings_are_checked(setting):
    X, y = diabetes()
    with pytest.raises(ValueError, match=next(iter(setting))):
        KernelSVR(**setting).fit(X, y)


def test_a_callback_gets_records_and_stops_the_fit(capsys):
    X, y = diabetes()
    seen = []
    watched = KernelSVR(C=10.0, verbose=1, callback=lambda estimator, record: seen.append(record)).fit(X, y)
    assert seen[-1]["n_iter"] == watched.n_iter_
    assert "KernelSVR: " in capsys.readouterr().err
    stopped = KernelSVR(C=10.0, callback=lambda estimator, record: True).fit(X, y)
    assert stopped.kkt_violation_ > stopped.tol


def test_parameters_and_attributes_of_svr():
    X, y = diabetes()
    settings = {**SVR().get_params(), "kernel": "linear", "C": 0.5, "max_iter": -1, "shrinking": False, "tol": 1e-8}
    model, peer = KernelSVR(**settings).fit(X, y), SVR(**settings).fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), atol=1e-3)
    assert model.shape_fit_ == peer.shape_fit_
    assert model.fit_status_ == peer.fit_status_ == 0
    assert isinstance(model.n_iter_, int)
    sparse = KernelSVR(**settings).fit(csr_matrix(X), y)
    assert issparse(sparse.dual_coef_)
    np.testing.assert_allclose(sparse.coef_.toarray(), model.coef_, rtol=1e-5)
    weighted = KernelSVR().fit(X, y, np.linspace(0.1, 3, len(y)))
    assert weighted.kernel_.gamma == KernelSVR().fit(X, y).kernel_.gamma


def test_an_infinite_bound_interpolates_within_the_tube():
    X = np.linspace(0, 6, 40)[:, None]
    model = KernelSVR(C=np.inf, gamma=5.0, epsilon=0.05, tol=1e-6).fit(X, np.sin(X[:, 0]))
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() <= 0.05 + 1e-4
