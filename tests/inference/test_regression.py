"""Intervals and standard deviations of fitted regressors."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.preprocessing import StandardScaler

from gramless import LSSVR, load, save
from gramless.inference.posterior import IterativePosterior
from gramless.linalg.tuning import TUNING


def friedman(n, seed, noise=1.0):
    X, y = make_friedman1(n, noise=noise, random_state=seed)
    return X, y


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_intervals_have_the_requested_coverage(coverage, local):
    X, y = friedman(400, 0)
    X_new, y_new = friedman(4000, 1)
    ends = LSSVR(C=10.0).fit(X, y).predict_interval(X_new, coverage, local=local)
    inside = np.mean((ends[:, 0] <= y_new) & (y_new <= ends[:, 1]))
    assert abs(inside - coverage) < 3 * np.sqrt(coverage * (1 - coverage) * (1 / 400 + 1 / 4000))


def test_intervals_contain_the_prediction_and_outputs_are_independent():
    X, y = friedman(120, 0)
    both = LSSVR(C=10.0).fit(X, np.column_stack([y, -2 * y]))
    ends = both.predict_interval(X, 0.8)
    assert ends.shape == (120, 2, 2)
    values = both.predict(X)
    assert ((ends[..., 0] <= values) & (values <= ends[..., 1])).all()
    np.testing.assert_allclose(ends[:, 0], LSSVR(C=10.0).fit(X, y).predict_interval(X, 0.8), rtol=1e-6)
    np.testing.assert_allclose(ends[:, 1, ::-1], -2 * ends[:, 0], rtol=1e-6)


def test_standard_deviations_are_those_of_a_gaussian_process():
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), y - y.mean()
    model = LSSVR(gamma=0.05, C=4.0, fit_intercept=False).fit(X[:300], y[:300])
    values, deviations = model.predict(X[300:], return_std=True)
    scale = model._posterior().scale[0]
    truth = GaussianProcessRegressor(ProcessRBF(np.sqrt(10.0)), alpha=0.25, optimizer=None).fit(
        X[:300], y[:300] / scale**0.5
    )
    mean, std = truth.predict(X[300:], return_std=True)
    np.testing.assert_allclose(values, mean * scale**0.5, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(deviations, std * scale**0.5, rtol=1e-6)
    likelihood = truth.log_marginal_likelihood_value_ - 150 * np.log(scale)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-8)
    assert model.log_marginal_likelihood_error_ == 0.0


def test_rows_beyond_the_exact_limit_use_the_iterative_posterior():
    X, y = friedman(600, 0)
    X_new, _ = friedman(50, 1)
    model = LSSVR(C=10.0, random_state=0).fit(X, y)
    exact, interval = model.predict(X_new, return_std=True)[1], model.predict_interval(X_new, 0.9)
    likelihood = model.log_marginal_likelihood_
    model._tuning = replace(TUNING, exact_leave_one_out_max_rows=100)
    model.fit(X, y)
    assert isinstance(model._posterior(), IterativePosterior)
    np.testing.assert_allclose(model.predict(X_new, return_std=True)[1], exact, rtol=0.05)
    widths = np.diff(model.predict_interval(X_new, 0.9))[:, 0]
    np.testing.assert_allclose(widths, np.diff(interval)[:, 0], rtol=0.15)
    error = model.log_marginal_likelihood_error_
    assert error > 0
    assert abs(model.log_marginal_likelihood_ - likelihood) < 4 * error + 0.05 * abs(likelihood)


def test_weights_equal_repetition():
    X, y = friedman(80, 0)
    w = np.random.default_rng(0).integers(0, 4, 80)
    weighted = LSSVR(gamma=0.5, C=10.0).fit(X, y, sample_weight=w).predict_interval(X, 0.8)
    repeated = LSSVR(gamma=0.5, C=10.0).fit(X.repeat(w, 0), y.repeat(w)).predict_interval(X, 0.8)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)


def test_process_follows_refits_files_and_clones(tmp_path):
    X, y = friedman(100, 0)
    model = LSSVR(C=10.0).fit(X, y)
    first = model.predict_interval(X, 0.8)
    save(model, tmp_path / "model.skops")
    np.testing.assert_allclose(load(tmp_path / "model.skops").predict_interval(X, 0.8), first)
    other = model.fit(X, 10 * y).predict_interval(X, 0.8)
    np.testing.assert_allclose(other, 10 * first, rtol=1e-6)
    np.testing.assert_allclose(clone(model).fit(X, y).predict_interval(X, 0.8), first, rtol=1e-6)


def test_precomputed_kernel_raises():
    K = np.eye(10)
    with pytest.raises(ValueError, match="precomputed"):
        LSSVR(kernel="precomputed").fit(K, np.arange(10.0)).predict_interval(K)


def test_likelihood_of_an_output_that_the_constant_fits_is_infinite():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = LSSVR(C=10.0).fit(X, np.column_stack([np.zeros(30), X[:, 0]]))
    likelihood = model.log_marginal_likelihood_
    assert likelihood[0] == np.inf
    assert likelihood[1] == pytest.approx(LSSVR(C=10.0).fit(X, X[:, 0]).log_marginal_likelihood_)
