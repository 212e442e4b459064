"""Estimators at extreme settings and data: the results of dense float64 algebra, a warning, or an error."""

import warnings

import numpy as np
import pytest
from scipy.linalg import LinAlgWarning
from sklearn.svm import SVC

from gramless import LSSVC, LSSVR, KernelSVC, KernelSVR, NystromLSSVC, NystromLSSVR

N = 50


def rows(kind):
    """Return 50 rows of four normal columns with a defect."""
    X = np.random.default_rng(1).normal(size=(N, 4))
    if kind == "duplicates":
        X = np.repeat(X[:10], 5, axis=0)
    return {"offset": X + 1e6, "tiny": 1e-150 * X, "huge": 1e100 * X, "constant": np.ones_like(X)}.get(kind, X)


def dense_scores(kernel, X, y, C):
    """Return the scores of the training rows, and how much they change if kernel values are rounded in the dtype of X."""
    K, n = kernel(X.astype(float), X.astype(float)), len(X)
    noise = np.random.default_rng(5).uniform(-1, 1, K.shape) * np.finfo(X.dtype).eps
    found = []
    for values in (K, K * (1 + (noise + noise.T) / 2)):
        M = np.block([[values + np.eye(n) / C, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        solution = np.linalg.lstsq(M, np.append(y - y.mean(), 0.0), rcond=1e-300)[0]
        found.append(values @ solution[:n] + solution[n] + y.mean())
    return found[0], np.abs(found[1] - found[0]).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("C", [1e-12, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("kind", ["plain", "duplicates", "offset", "tiny", "huge", "constant"])
@pytest.mark.parametrize("name", ["cholesky", "loo", "landmarks"])
def test_dense_algebra_or_a_warning(name, kind, C, dtype):
    X = rows(kind)
    if kind == "huge" and dtype == "float32":
        pytest.skip("the rows exceed the range of float32")
    X, y = X.astype(dtype), np.sin(np.arange(N)) + 1e8
    for gamma in (1e-12, 1e-3, 1.0, 1e12, "scale"):
        model = {
            "cholesky": LSSVR(C=C, gamma=gamma, solver="cholesky"),
            "loo": LSSVR(C="loo", Cs=[C], gamma=gamma),
            "landmarks": NystromLSSVR(C=C, gamma=gamma, landmarks=X),
        }[name]
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            values = model.fit(X, y).predict(X)
        if issued:
            continue
        expected, sensitivity = dense_scores(model.kernel_, X, y, C)
        np.testing.assert_allclose(values, expected, rtol=1e-14, atol=1e-3 + 300 * sensitivity)


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("kind", ["plain", "duplicates", "offset"])
def test_support_vectors_are_optimal_or_there_is_a_warning(kind, C, gamma):
    """The dual objective in float64 is at least as good as that of scikit-learn."""
    X = rows(kind).astype(np.float32)
    y = np.sin(np.arange(N)) > 0
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        model = KernelSVC(C=C, gamma=gamma, tol=1e-5).fit(X, y)
    if issued:
        return
    double = X.astype(np.float64)
    K = np.exp(-gamma * np.square(double[:, None] - double).sum(axis=2))
    other = SVC(C=C, kernel="precomputed", tol=1e-5).fit(K, y)

    def objective(fitted):
        beta = np.zeros(N)
        beta[fitted.support_] = fitted.dual_coef_[0]
        return 0.5 * beta @ K @ beta - np.abs(beta).sum()

    assert objective(model) <= objective(other) + 1e-3 * abs(objective(other))
    np.testing.assert_allclose(model.decision_function(X) > 0, other.decision_function(K) > 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cls", [LSSVC, LSSVR, KernelSVC, KernelSVR, NystromLSSVC, NystromLSSVR])
def test_kernel_values_that_consist_of_rounding_errors_are_reported(cls, dtype):
    """Distances of equal rows are rounding errors, which a large gamma converts to values between 0 and 1."""
    X = np.random.default_rng(0).normal(size=(400, 8)).astype(dtype)
    y = X[:, 0] > 0
    with pytest.warns(LinAlgWarning, match="rounding errors of float"):
        cls(gamma=0.1 / np.finfo(dtype).eps).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        cls(gamma=1e-4 / np.finfo(dtype).eps).fit(X, y)


@pytest.mark.parametrize(("solver", "C"), [("sums", 1e8), ("cg", 1e12)])
def test_large_coefficients_of_landmark_classifiers_are_reported(solver, C):
    """With a large C, the rounding errors of float32 kernel values determine the scores of rows of weight zero."""
    X = rows("plain").astype(np.float32)
    weights = np.where(np.arange(N) % 2, 1e4, 0.0)
    with pytest.warns(LinAlgWarning, match="coefficients change the scores"):
        NystromLSSVC(C=C, gamma=0.001, landmarks=X, solver=solver).fit(X, np.sin(np.arange(N)) > 0, weights)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_regularisation_below_the_rounding_of_the_sums_is_reported(dtype):
    X = rows("plain").astype(dtype)
    weights = np.where(np.arange(N) % 2, 1e4, 0.0)
    with pytest.warns(LinAlgWarning, match="below the rounding errors"):
        NystromLSSVR(C=1e12, gamma=1.0, landmarks=X).fit(X, np.sin(np.arange(N)), weights)
