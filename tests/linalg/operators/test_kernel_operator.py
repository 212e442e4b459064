"""The kernel matrix as an operator: the dense matrix, whatever the tiles, the array library and the cache."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gramless._core import arrays as xa
from gramless.kernels import Linear, Polynomial, Precomputed, as_kernel
from gramless.linalg.operators import KernelOperator

ARRAYS = {"numpy": np.asarray, "torch": torch.as_tensor, "csr": sp.csr_matrix}


@pytest.mark.parametrize("cache", [False, True], ids=["streamed", "cached"])
@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("n", [1, 90, 2500])
def test_products_rows_and_diagonal_are_those_of_the_dense_matrix(n, array, cache):
    """2,500 rows are several tiles."""
    X = np.random.default_rng(0).normal(size=(n, 4))
    rng = np.random.default_rng(1)
    kernel = Polynomial(degree=3, gamma=0.2, coef0=1.0)
    ridge = rng.random(n)
    dense = kernel(X, X) + np.diag(ridge)
    op = KernelOperator(ARRAYS[array](X), kernel, ridge, cache=cache)
    V = rng.normal(size=(n, 3))
    given = torch.as_tensor(V) if array == "torch" else V
    for _ in range(2):  # the second time from the cache
        np.testing.assert_allclose(xa.to_numpy(op @ given), dense @ V, rtol=1e-9, atol=1e-9)
    idx = rng.integers(0, n, size=7)
    np.testing.assert_allclose(xa.to_numpy(op.rows(idx)), dense[idx], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(xa.to_numpy(op.diag()), np.diagonal(dense), rtol=1e-9)
    np.testing.assert_allclose(xa.to_numpy(op.dense()), dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", ["points", "matrix", "function", "transposed function", "remembering function"])
def test_a_diagonal_block_has_the_ridge(form):
    X = np.random.default_rng(0).normal(size=(40, 3))
    K, kept = X @ X.T, {}
    kernel = {
        "points": Linear(),
        "matrix": Precomputed(),
        "function": as_kernel(lambda X, Y: X @ Y.T),
        "transposed function": as_kernel(lambda X, Y: (Y @ X.T).T),
        "remembering function": as_kernel(lambda X, Y: kept.setdefault((X.tobytes(), Y.tobytes()), X @ Y.T)),
    }[form]
    op = KernelOperator(K if form == "matrix" else X, kernel, np.arange(1.0, 41.0))
    idx = np.array([3, 7, 31])
    for _ in range(2):
        expected = (K + np.diag(np.arange(1.0, 41.0)))[np.ix_(idx, idx)]
        np.testing.assert_allclose(op.diagonal_block(idx), expected, rtol=1e-12)
