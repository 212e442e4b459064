"""Factorisations and Gram matrices by tiles against LAPACK and plain products."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gramless._core import arrays as xa
from gramless._core.tiled_factor import add_lower_gram_, factor_lower_


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 256, 257, 900])
def test_the_factor_of_a_definite_matrix(n, workers, dtype):
    B = np.random.default_rng(n).normal(size=(n, n)).astype(dtype)
    A = B @ B.T + n * np.eye(n, dtype=dtype)
    upper = np.triu(A, 1)
    exact = np.linalg.cholesky(A.astype("d"))
    assert factor_lower_(A, workers) == 0
    np.testing.assert_allclose(np.tril(A), exact, atol=(1e-4 if dtype == "f" else 1e-11) * exact.max())
    np.testing.assert_array_equal(np.triu(A, 1), upper)


def test_the_first_pivot_that_is_not_positive():
    A = np.eye(600)
    A[400, 400] = -1.0
    assert factor_lower_(A, 2) == 401


@pytest.mark.parametrize("n", [100, 1100])
@pytest.mark.parametrize("damage", [-1.0, np.nan])
def test_an_indefinite_matrix_raises_an_error_with_and_without_tiles(n, damage):
    A = np.eye(n)
    A[-1, -1] = damage
    with threadpool_limits(2), pytest.raises(xa.NotPositiveDefiniteError):
        xa.cholesky_(A)


@pytest.mark.parametrize("threads", [1, 2])
def test_factors_and_gram_matrices_are_equal_with_and_without_tiles(threads):
    """Tiles are used from 1,024 rows on, if there are several threads."""
    B = np.random.default_rng(0).normal(size=(1300, 1100))
    with threadpool_limits(threads):
        S = xa.add_gram_(np.eye(1100), B)
        A = B.T @ B
        L = xa.cholesky_(A + 0)
    np.testing.assert_allclose(np.tril(S), np.tril(A + np.eye(1100)), atol=1e-9)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A), atol=1e-8)


def test_sums_of_tiles():
    B = np.random.default_rng(0).normal(size=(300, 600))
    S = np.ones((600, 600))
    add_lower_gram_(S, B, 3)
    np.testing.assert_allclose(np.tril(S), np.tril(1 + B.T @ B), atol=1e-10)
