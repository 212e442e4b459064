"""FourierLSSVC and FourierLSSVR: exact sums in any cut of the rows, close to the full machine, online as good as exact."""

import numpy as np
import pytest
from sklearn.base import clone

import gramless
from gramless import LSSVC, LSSVR, FourierLSSVC, FourierLSSVR
from gramless.callbacks import Checkpoint, EarlyStopping


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_partial_fit_in_shuffled_pieces_is_one_fit(digits, pieces):
    X, y = digits
    model = FourierLSSVC(n_components=200, gamma=0.05, C=10.0, random_state=0)
    whole = clone(model).fit(X, y)
    for rows in np.array_split(np.random.default_rng(pieces).permutation(len(X)), pieces):
        model.partial_fit(X[rows], y[rows], classes=np.arange(10))
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-8, rtol=1e-8)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, atol=1e-8)


def test_is_ridge_on_its_own_features(digits):
    from sklearn.linear_model import Ridge

    X, y = digits[0][:300], digits[1][:300].astype(float)
    model = FourierLSSVR(n_components=100, gamma=0.05, C=4.0, random_state=0).fit(X, y)
    ridge = Ridge(alpha=0.25, solver="cholesky").fit(model.features_(X), y)
    np.testing.assert_allclose(model.predict(X), ridge.predict(model.features_(X)), atol=1e-8)


@pytest.mark.parametrize(("kernel", "gamma"), [("rbf", 0.05), ("laplacian", 0.02)])
def test_many_features_come_close_to_the_kernel(digits, kernel, gamma):
    X, y = digits
    full = LSSVC(kernel=kernel, gamma=gamma, C=5.0, solver="cholesky").fit(X[:500], y[:500])
    close = FourierLSSVC(n_components=1500, kernel=kernel, gamma=gamma, C=5.0, random_state=0).fit(X[:500], y[:500])
    assert np.abs(close.decision_function(X[500:]) - full.decision_function(X[500:])).mean() < 0.05
    assert close.score(X[500:], y[500:]) > full.score(X[500:], y[500:]) - 0.01


@pytest.mark.parametrize("optimizer", ["sgd", "averaged_sgd", "adam"])
def test_online_is_as_good_as_exact(digits, optimizer):
    X, y = digits
    exact = FourierLSSVC(n_components=300, gamma=0.05, C=10.0, random_state=0).fit(X[:1200], y[:1200])
    online = clone(exact).set_params(method="online", optimizer=optimizer, epochs=20).fit(X[:1200], y[:1200])
    assert online.score(X[1200:], y[1200:]) > exact.score(X[1200:], y[1200:]) - 0.01
    losses = [record["loss"] for record in online.history_]
    assert len(losses) == 20
    assert losses[-1] < 0.4 * losses[0]


def test_leave_one_out_chooses_c(digits):
    X, y = digits
    model = FourierLSSVC(n_components=300, gamma=0.05, C="loo", random_state=0).fit(X[:900], y[:900])
    assert model.loo_errors_.shape == (19,)
    assert 0.1 <= model.C_ <= 1e4
    assert model.score(X[900:], y[900:]) > 0.96


def test_labels_that_flip_are_followed_with_a_forgetting_factor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.where(np.arange(4000) < 3000, X[:, 0] > 0, X[:, 0] < 0).astype(int)
    test = rng.normal(size=(500, 2))
    now = (test[:, 0] < 0).astype(int)
    settings = {"n_components": 60, "gamma": 0.5, "random_state": 0}
    assert FourierLSSVC(**settings).fit(X, y).score(test, now) < 0.2
    assert FourierLSSVC(forgetting_factor=0.995, **settings).fit(X, y).score(test, now) > 0.95


def test_torch_gives_numpys_model(digits):
    torch = pytest.importorskip("torch")
    X, y = digits
    here = FourierLSSVC(n_components=100, gamma=0.05, random_state=0).fit(X[:500], y[:500])
    there = FourierLSSVC(n_components=100, gamma=0.05, random_state=0).fit(torch.as_tensor(X[:500]), y[:500])
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-7)
    scores = there.decision_function(torch.as_tensor(X))
    assert isinstance(scores, torch.Tensor)


def test_single_precision_stays_close(digits):
    X, y = digits
    double = FourierLSSVC(n_components=200, gamma=0.05, C=100.0, random_state=0).fit(X, y)
    single = FourierLSSVC(n_components=200, gamma=0.05, C=100.0, random_state=0).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.decision_function(X), double.decision_function(X), atol=0.01)


def test_online_goes_on_after_a_file(digits, tmp_path):
    X, y = digits
    model = FourierLSSVC(n_components=200, gamma=0.05, C=10.0, method="online", batch_size=4, random_state=0)
    model.partial_fit(X[:600], y[:600], classes=np.arange(10))
    gramless.save(model, tmp_path / "model.skops")
    loaded = gramless.load(tmp_path / "model.skops")
    before = loaded.score(X[1200:], y[1200:])
    loaded.partial_fit(X[600:1200], y[600:1200])
    assert loaded.score(X[1200:], y[1200:]) >= before - 0.01
    assert before > 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "'method' parameter"),
        ({"n_components": 0}, "'n_components' parameter"),
        ({"method": "online", "C": "loo"}, "needs the exact sums"),
        ({"method": "online", "forgetting_factor": 0.9}, "needs method='exact'"),
        ({"method": "online", "callback": Checkpoint("pass.npz")}, "supports a Checkpoint only"),
        ({"callback": EarlyStopping()}, "has no validation rows"),
        ({"method": "online", "optimizer": "lbfgs"}, "'optimizer' parameter"),
        ({"method": "online", "probability": "sigmoid"}, "leave-one-out scores"),
        ({"kernel": "poly"}, "RBF and Laplacian"),
        ({"draw": "other"}, "'draw' parameter"),
    ],
)
def test_settings_that_cannot_be_say_so(digits, settings, message):
    with pytest.raises(ValueError, match=message):
        FourierLSSVC(**settings).fit(digits[0][:50], digits[1][:50])


def test_regression_close_to_the_full_machine():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]])
    full = LSSVR(gamma=0.5, C=50.0, solver="cholesky").fit(X[:400], Y[:400])
    ours = FourierLSSVR(n_components=400, gamma=0.5, C=50.0, random_state=0).fit(X[:400], Y[:400])
    online = FourierLSSVR(n_components=400, gamma=0.5, C=50.0, method="online", random_state=0).fit(X[:400], Y[:400])
    assert ours.score(X[400:], Y[400:]) > full.score(X[400:], Y[400:]) - 0.01
    assert online.score(X[400:], Y[400:]) > 0.97
