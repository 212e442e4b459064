from __future__ import annotations

import numpy as np
import pytest

from gramless._core import arrays as xa
from gramless.kernels import RBF, Laplacian, Polynomial
from gramless.linalg.operators import BorderedOperator, KernelOperator, LinearSystem

torch = pytest.importorskip("torch")

KERNELS = [RBF(gamma=0.3), Laplacian(gamma=0.2), Polynomial(degree=4, gamma=1.0), Polynomial(degree=3, gamma=0.5, coef0=1.0)]


def theta(X, kernel, ridge):
    n = len(X)
    T = np.ones((n + 1, n + 1))
    T[:n, :n] = kernel(X, X) + np.diag(ridge)
    T[n, n] = 0
    return T


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_rows_products_and_diagonal_are_those_of_theta(kernel, cache, library):
    # Three tiles of at most 1,024 rows.
    n, rng = 1100, np.random.RandomState(0)
    X, ridge = rng.normal(size=(n, 5)), rng.uniform(0.1, 1, size=n)
    expected = theta(X, kernel, ridge)
    cast = torch.as_tensor if library == "torch" else np.asarray
    op = BorderedOperator(KernelOperator(cast(X), kernel, ridge, cache=cache))
    V = rng.normal(size=(n + 1, 3))
    for idx in ([0, 1030, n], [n, 3, 3], [7], [n], list(range(n + 1))):
        np.testing.assert_allclose(xa.to_numpy(op.rows(np.array(idx))), expected[idx], atol=1e-10)
    np.testing.assert_allclose(xa.to_numpy(op @ cast(V)), expected @ V, atol=1e-10)
    np.testing.assert_allclose(xa.to_numpy(op.diag()), np.diag(expected), atol=1e-10)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_into_a_buffer(library):
    X = np.random.RandomState(0).normal(size=(20, 3)).astype(np.float32)
    cast = torch.as_tensor if library == "torch" else np.asarray
    op = BorderedOperator(KernelOperator(cast(X), RBF(gamma=0.3), 0.1))
    buffer = op.rows(np.arange(6))
    idx = np.array([20, 4, 9])
    expected = xa.to_numpy(op.rows(idx)) + 0
    out = buffer[:3]
    given = op.rows(idx, out=out)
    assert given is out
    np.testing.assert_array_equal(xa.to_numpy(buffer[:3]), expected)
    assert xa.numpy_dtype(buffer) == np.float32


def test_cached_rows_need_no_product_first():
    X = np.random.RandomState(0).normal(size=(25, 3))
    cached, streamed = (KernelOperator(X, RBF(gamma=0.3), 0.1, cache=c) for c in (True, False))
    idx = np.array([3, 0, 24])
    np.testing.assert_allclose(cached.rows(idx), streamed.rows(idx), atol=1e-14)
    out = np.empty((3, 25))
    assert cached.rows(idx, out=out) is out
    np.testing.assert_allclose(out, streamed.rows(idx), atol=1e-14)


def test_right_hand_side_and_split():
    system = LinearSystem(KernelOperator(np.eye(3), RBF(gamma=1.0), 0.1), np.arange(6.0).reshape(3, 2), bordered=True)
    np.testing.assert_array_equal(system.rhs, [[0, 1], [2, 3], [4, 5], [0, 0]])
    coef, bias = system.split(np.arange(8.0).reshape(4, 2))
    np.testing.assert_array_equal(coef, [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(bias, [6, 7])
