"""Least-squares regressors at extreme settings and data: dense float64 algebra, a warning, or an error."""

import warnings

import numpy as np
import pytest

from gramless import LSSVR, NystromLSSVR

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
