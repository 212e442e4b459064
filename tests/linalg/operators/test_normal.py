"""Factors in place and the operator of the preconditioned normal equations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gramless.kernels import RBF, Linear
from gramless.linalg.operators import normal
from gramless.linalg.operators.normal import LandmarkProducts, NormalOperator
from gramless.linalg.tuning import TUNING

SMALL_TILES = replace(TUNING, factor_edge=16)
N, M, RIDGE = 400, 70, 0.3


@pytest.fixture(params=["numpy", "torch"])
def convert(request):
    return torch.as_tensor if request.param == "torch" else np.asarray


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)), rng.random((N, 1)) + 0.5


def dense(X, weights, jitter):
    K, kernel = RBF(gamma=0.2)(X, X[:M]), RBF(gamma=0.2)
    L = np.linalg.cholesky(kernel(X[:M], X[:M]) + jitter * np.eye(M))
    A = np.linalg.cholesky(weights.sum() / M * L.T @ L + RIDGE * np.eye(M)).T
    W = np.diag(weights[:, 0]) - weights @ weights.T / weights.sum()
    half = np.linalg.inv(A).T @ np.linalg.inv(L)
    return L, A, half @ (K.T @ W @ K + RIDGE * L @ L.T) @ half.T


def system(X, weights, convert, **options):
    products = LandmarkProducts(RBF(gamma=0.2), convert(X[:M]))
    parts = [(products.rows(convert(X[i : i + 150]), **options), convert(weights[i : i + 150])) for i in range(0, N, 150)]
    feature_sum = sum(part.transposed_times(w) for part, w in parts)

    def normal_times(A, shift):
        return sum(part.normal_times(A, shift, w) for part, w in parts)

    return operator(RBF(gamma=0.2), products.landmarks, normal_times, feature_sum, 1e-10, RIDGE, float(weights.sum()))


def operator(kernel, landmarks, normal_times, feature_sum, eps, ridge, weight):
    sizes = {"eps": eps, "ridge": ridge, "weight": weight, "tuning": SMALL_TILES}
    return NormalOperator(kernel, landmarks, normal_times, feature_sum, **sizes)


def test_both_factors_share_one_matrix(rows, convert):
    X, weights = rows
    op = system(X, weights, convert)
    L, A, _ = dense(X, weights, op.jitter)
    B = np.random.default_rng(1).normal(size=(M, 3))
    for computed, expected in (
        (op.solve(0, convert(B)), np.linalg.solve(L, B)),
        (op.solve(0, convert(B), transposed=True), np.linalg.solve(L.T, B)),
        (op.solve(1, convert(B), transposed=True), np.linalg.solve(A, B)),
        (op.solve(1, convert(B)), np.linalg.solve(A.T, B)),
    ):
        np.testing.assert_allclose(np.asarray(computed), expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("store", [False, True])
def test_the_operator_is_the_dense_matrix(rows, convert, store):
    X, weights = rows
    op = system(X, weights, convert, store=store)
    product = np.asarray(op @ convert(np.eye(M)))
    np.testing.assert_allclose(product, dense(X, weights, op.jitter)[2], atol=1e-7)
    np.testing.assert_allclose(product, product.T, atol=1e-9)


@pytest.mark.parametrize("store", [False, True])
def test_products_are_equal_for_any_number_of_threads(rows, monkeypatch, store):
    X, weights = rows
    kernel, landmarks = RBF(gamma=0.2), X[:M].astype(np.float32)
    products = LandmarkProducts(kernel, landmarks, block_bytes=64 * M * 4)  # seven blocks
    tiled = products.rows(X.astype(np.float32), store=store)
    V, shift = np.random.default_rng(1).normal(size=(M, 2)), np.array([[0.5, -1.0]])
    K = kernel(X.astype(np.float32), landmarks).astype(np.float64)
    products = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(normal, "workers_for", lambda *_, threads=threads: threads)
        products.append((tiled.normal_times(V, shift, weights), tiled.transposed_times(weights)))
    for both in products:
        np.testing.assert_array_equal(both[0], products[0][0])
        np.testing.assert_array_equal(both[1], products[0][1])
    np.testing.assert_allclose(products[0][0], K.T @ (weights * (K @ V - shift)), rtol=1e-6)
    np.testing.assert_allclose(products[0][1], K.T @ weights, rtol=1e-6)


def test_equal_landmarks_are_factored_with_a_reported_jitter(convert):
    X = convert(np.zeros((50, 3)))
    assert 0 < operator(RBF(gamma=1.0), X, None, X[:, :1], 1e-16, 1.0, 50.0).jitter < 1e-6


def test_an_indefinite_kernel_is_reported(convert):
    X = convert(np.random.default_rng(0).normal(size=(50, 3)))
    with pytest.raises(np.linalg.LinAlgError, match="not positive semi-definite"):
        operator(_Indefinite(), X, None, X[:, :1], 1e-16, 1.0, 50.0)


class _Indefinite(Linear):
    """The product of the first features minus that of the others."""

    def __call__(self, X, Y, out=None):
        values = 2 * X[:, :1] @ Y[:, :1].T - X[:, 1:] @ Y[:, 1:].T
        if out is None:
            return values
        out[...] = values
        return out
