"""Standard deviations and likelihoods against scikit-learn's Gaussian process."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.gaussian_process.kernels import ConstantKernel

from gramless.inference.posterior import ExactPosterior, LeastSquaresModel
from gramless.kernels import RBF


def test_variances_equal_those_of_a_gaussian_process():
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(300, 3)), rng.normal(size=(50, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    truth = GaussianProcessRegressor(ProcessRBF(1.0), alpha=0.05, optimizer=None).fit(X, y)
    mean, std = truth.predict(X_new, return_std=True)
    coef = truth.alpha_.reshape(-1, 1)
    process = ExactPosterior(LeastSquaresModel(RBF(gamma=0.5), X, coef, np.zeros(1), 0.05, None, False))
    (batch,) = process.batches(X_new)
    np.testing.assert_allclose(batch.means[:, 0], mean, atol=1e-10)
    np.testing.assert_allclose(np.sqrt(batch.variances), std, rtol=1e-6, atol=1e-9)


def test_an_intercept_is_a_constant_of_unknown_size():
    rng = np.random.default_rng(1)
    X, X_new = rng.normal(size=(60, 2)), rng.normal(size=(20, 2))
    y = 3.0 + X[:, 0] + 0.1 * rng.normal(size=60)
    kernel = ProcessRBF(1.0) + ConstantKernel(1e7)
    truth = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(X, y)
    K = RBF(gamma=0.5)(X, X) + 0.1 * np.eye(60)
    M = np.block([[K, np.ones((60, 1))], [np.ones((1, 60)), np.zeros((1, 1))]])
    solution = np.linalg.solve(M, np.append(y, 0.0))
    process = ExactPosterior(LeastSquaresModel(RBF(gamma=0.5), X, solution[:-1, None], solution[-1:], 0.1))
    (batch,) = process.batches(X_new)
    mean, std = truth.predict(X_new, return_std=True)
    np.testing.assert_allclose(batch.means[:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(np.sqrt(batch.variances), std, rtol=1e-4)
    np.testing.assert_allclose(batch.weights.sum(axis=1), 1.0, rtol=1e-9)
