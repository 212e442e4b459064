"""Quantiles and Huber's loss in KernelSVR, against the primal problems solved by other means."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics.pairwise import rbf_kernel

from gramless import KernelSVR


def noisy(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 6, size=(n, 1)), axis=0)
    return X, np.sin(X[:, 0]) + (0.1 + 0.2 * X[:, 0]) * rng.normal(size=n)


def pinball(errors, q):
    return np.maximum(q * errors, (q - 1) * errors)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.85])
def test_the_quantile_problem_is_solved(q):
    """The primal value reaches that of the dual, so both are optimal."""
    X, y = noisy()
    C, gamma = 3.0, 1.0
    model = KernelSVR(loss="pinball", quantile=q, C=C, gamma=gamma, tol=1e-9).fit(X, y)
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    primal = beta @ rbf_kernel(X, gamma=gamma) @ beta / 2 + C * pinball(y - model.predict(X), q).sum()
    assert primal == pytest.approx(model.dual_objective_, rel=1e-6)
    below = (y < model.predict(X) - 1e-6).mean()
    assert below <= q <= (y <= model.predict(X) + 1e-6).mean()


@pytest.mark.parametrize("q", [0.2, 0.7])
def test_a_linear_kernel_with_large_c_is_linear_quantile_regression(q):
    X, y = noisy(80)
    X = np.concatenate([X, X**2 / 6], axis=1)
    theirs = QuantileRegressor(quantile=q, alpha=0.0, solver="highs").fit(X, y)
    ours = KernelSVR("linear", loss="pinball", quantile=q, C=300.0, tol=1e-5).fit(X, y)
    loss = [pinball(y - m.predict(X), q).sum() for m in (ours, theirs)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-3)


def test_several_quantiles_equal_single_fits_and_never_cross():
    X, y = noisy(60)
    quantiles = [0.9, 0.1, 0.5, 0.45]
    settings = {"loss": "pinball", "C": 50.0, "gamma": 4.0, "tol": 1e-8}
    model = KernelSVR(quantile=quantiles, **settings).fit(X, y)
    grid = np.linspace(-1, 7, 500)[:, None]
    together = model.predict(grid)
    alone = np.stack([KernelSVR(quantile=q, **settings).fit(X, y).predict(grid) for q in quantiles], axis=1)
    order = np.argsort(quantiles)
    assert (np.diff(together[:, order], axis=1) >= 0).all()
    assert (np.diff(alone[:, order], axis=1) < 0).any(), "the problem must have curves that cross"
    np.testing.assert_allclose(together[:, order], np.sort(alone, axis=1), atol=1e-5)
    assert model.dual_coef_.shape == (4, model.support_.size)
    assert model.kkt_violation_.shape == (4,)
    assert 0 < model.score(X, y) < 1


def test_quantiles_with_a_constant_kernel_are_those_of_the_targets():
    """With a constant kernel the fit is the bias alone, which equals the solution of a linear programme."""
    y = np.random.default_rng(0).exponential(size=41)
    X = np.zeros((41, 1))
    for q in (0.25, 0.5, 0.9):
        model = KernelSVR("linear", loss="pinball", quantile=q, tol=1e-9).fit(X, y)
        n = len(y)
        cost = np.concatenate([[0.0], np.full(n, q), np.full(n, 1 - q)])
        equal = np.hstack([np.ones((n, 1)), np.eye(n), -np.eye(n)])
        best = linprog(cost, A_eq=equal, b_eq=y, bounds=[(None, None)] + [(0, None)] * (2 * n)).fun
        assert pinball(y - model.predict(X), q).sum() == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_huber_minimises_its_primal_objective(weighted):
    X, y = noisy(60)
    y[::10] += 8.0
    C, epsilon, K = 5.0, 0.3, rbf_kernel(X, gamma=0.5)
    weights = np.random.default_rng(1).integers(1, 4, size=60) if weighted else np.ones(60)

    def primal(v):
        a, b = v[:-1], v[-1]
        r = y - K @ a - b
        size = np.abs(r)
        loss = np.where(size <= epsilon, r**2 / 2, epsilon * size - epsilon**2 / 2)
        slope = -C * weights * np.clip(r, -epsilon, epsilon)
        return a @ K @ a / 2 + C * weights @ loss, np.concatenate([K @ a + K @ slope, [slope.sum()]])

    model = KernelSVR(loss="huber", epsilon=epsilon, C=C, gamma=0.5, tol=1e-9).fit(X, y, sample_weight=weights)
    v = np.zeros(61)
    v[model.support_], v[-1] = model.dual_coef_[0], model.intercept_[0]
    ours, slope = primal(v)
    assert np.abs(slope).max() < 1e-6
    found = minimize(
        primal, np.zeros(61), jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    )
    assert ours <= found.fun * (1 + 1e-6)
    repeated = KernelSVR(loss="huber", epsilon=epsilon, C=C, gamma=0.5, tol=1e-10)
    repeated.fit(np.repeat(X, weights.astype(int), axis=0), np.repeat(y, weights.astype(int)))
    np.testing.assert_allclose(model.predict(X), repeated.predict(X), atol=1e-6)


def test_huber_with_small_errors_is_least_squares():
    from gramless import LSSVR

    X, y = noisy()
    huber = KernelSVR(loss="huber", epsilon=1e3, C=10.0, gamma=0.5, tol=1e-9).fit(X, y)
    squares = LSSVR(C=10.0, gamma=0.5).fit(X, y)
    np.testing.assert_allclose(huber.predict(X), squares.predict(X), atol=1e-6)


def test_quantile_is_another_name_of_pinball():
    X = np.random.default_rng(0).normal(size=(60, 2))
    one, other = (KernelSVR(loss=loss, quantile=[0.2, 0.8]).fit(X, X[:, 0]).predict(X) for loss in ("quantile", "pinball"))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("loss", ["pinball", "huber"])
def test_losses_beyond_one_working_set(loss):
    """The Gram matrix is not stored; the optimality conditions are checked with the full matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2))
    y = np.sin(2 * X[:, 0]) + rng.standard_t(2, size=2500)
    model = KernelSVR(loss=loss, quantile=0.8, epsilon=0.5, C=2.0, gamma=0.5, tol=1e-4, memory_budget="128MB").fit(X, y)
    beta = np.zeros(2500)
    beta[model.support_] = model.dual_coef_[0]
    errors = y - model.predict(X)
    if loss == "huber":
        np.testing.assert_allclose(beta, 2.0 * np.clip(errors, -0.5, 0.5), atol=5e-4)
    else:
        assert (beta[errors > 1e-3] == 2.0 * 0.8).all()
        assert (beta[errors < -1e-3] == -2.0 * (1 - 0.8)).all()


def test_simple_smo_agrees():
    X, y = noisy(50)
    for settings in ({"loss": "pinball", "quantile": 0.7}, {"loss": "huber", "epsilon": 0.2}):
        fast = KernelSVR(**settings, gamma=1.0, tol=1e-8).fit(X, y)
        simple = KernelSVR(**settings, gamma=1.0, tol=1e-5, solver="simple_smo").fit(X, y)
        np.testing.assert_allclose(simple.predict(X), fast.predict(X), atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "squared"}, "'loss' parameter of KernelSVR"),
        ({"loss": "pinball", "quantile": 1.0}, "between 0 and 1"),
        ({"loss": "pinball", "quantile": []}, "between 0 and 1"),
        ({"loss": "pinball", "quantile": [0.1, "high"]}, "between 0 and 1"),
        ({"loss": "huber", "epsilon": 0.0}, "above 0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelSVR(**settings).fit(*noisy(20))
