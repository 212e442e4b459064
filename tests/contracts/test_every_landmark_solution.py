"""Conjugate gradients of landmark models agree with the dense solution in float64, for every registered kernel."""

import numpy as np
import pytest
import scipy.linalg

from gramless import NystromLSSVR
from gramless.kernels import KERNELS
from gramless.linalg.solvers import CG

ROWS, LANDMARKS = 300, 40
# Values of a precomputed kernel at new points do not exist, and "sigmoid" is indefinite.
POINT_KERNELS = sorted(KERNELS.keys() - {"precomputed", "sigmoid"})


def problem(dtype):
    """Return non-negative rows, which histogram kernels need, two columns of values and weights."""
    rng = np.random.default_rng(0)
    X = rng.random((ROWS, 6)).astype(dtype)
    X[::7] = X[0]  # equal rows
    Z = np.stack([np.sin(4 * X[:, 0]) + X[:, 1], 50 + X[:, 2] * X[:, 3]], axis=1) + 0.1 * rng.normal(size=(ROWS, 2))
    return X, Z, rng.random(ROWS) + 0.5


def dense_predictions(model, X, Z, weights):
    """Return the predictions of the minimiser, from kernel matrices in float64."""
    points, double = model.points_.astype(np.float64), X.astype(np.float64)
    kernel = model.kernel_
    # The jitter of the model is part of its penalty.
    L = np.linalg.cholesky(kernel(points, points) + model.jitter_ * np.eye(len(points)))
    Phi = scipy.linalg.solve_triangular(L, kernel(double, points).T, lower=True).T
    mean, target_mean = weights @ Phi / weights.sum(), weights @ Z / weights.sum()
    P = Phi - mean
    A = np.linalg.solve(
        P.T @ (weights[:, None] * P) + np.eye(len(points)) / model.C_, P.T @ (weights[:, None] * (Z - target_mean))
    )
    return P @ A + target_mean


def relative_error(model, X, expected):
    """Return the largest error of the scores, computed in float64 from the coefficients of the model."""
    scores = model.kernel_(X.astype(np.float64), model.points_.astype(np.float64)) @ model.dual_coef_ + model.intercept_
    return np.abs(scores - expected).max() / np.abs(expected - expected.mean(axis=0)).max()


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - set(POINT_KERNELS)))
def test_other_kernels_raise(name):
    X, Z, weights = problem("float64")
    X = X @ X.T if name == "precomputed" else X - 0.5
    with pytest.raises((ValueError, np.linalg.LinAlgError), match=r"precomputed|not positive semi-definite"):
        NystromLSSVR(solver="cg", kernel=name, n_landmarks=LANDMARKS, random_state=0).fit(X, Z, sample_weight=weights)


# The landmark matrix of the linear and the cosine kernel is singular, so that rounding errors limit the residuals.
@pytest.mark.filterwarnings("ignore:NystromLSSVR did not converge. rounding errors prevent")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", POINT_KERNELS)
def test_equals_the_dense_solution(name, dtype):
    X, Z, weights = problem(dtype)
    settings = {"kernel": name, "n_landmarks": LANDMARKS, "C": 1.0, "random_state": 0}
    model = NystromLSSVR(solver=CG(tol=1e-7, max_iter=500), **settings).fit(X, Z, sample_weight=weights)
    assert model.solver_ == "cg"
    error = relative_error(model, X, dense_predictions(model, X, Z, weights))
    bound = 1e-6
    if dtype == "float32":  # kernel values and coefficients in float32 limit both solvers
        sums = NystromLSSVR(solver="sums", **settings).fit(X, Z, sample_weight=weights)
        bound = max(bound, 3 * relative_error(sums, X, dense_predictions(sums, X, Z, weights)))
    assert error < bound
