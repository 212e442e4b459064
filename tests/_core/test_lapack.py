"""Factorisations in place, against NumPy, and in two threads."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gramless._core.lapack import factor_lower_in_place, gram_of_lower_in_place, invert_lower_in_place


def definite(n, dtype, seed=0):
    B = np.random.default_rng(seed).normal(size=(n, n))
    return np.asfortranarray(B @ B.T + n * np.eye(n), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 37, 64, 65, 200, 333])
def test_factor_and_inverse(n, dtype):
    A = definite(n, dtype)
    truth = np.linalg.cholesky(A.astype(np.float64))
    rtol = 1e-4 if dtype == np.float32 else 1e-10
    assert factor_lower_in_place(A) == 0
    np.testing.assert_allclose(np.tril(A), truth, rtol=rtol, atol=rtol)
    assert invert_lower_in_place(A) == 0
    np.testing.assert_allclose(np.tril(A), np.linalg.inv(truth), rtol=rtol, atol=rtol)
    assert gram_of_lower_in_place(A) == 0
    np.testing.assert_allclose(np.tril(A), np.tril(np.linalg.inv(truth @ truth.T)), rtol=rtol, atol=rtol)


def test_what_fails_is_told():
    A = np.asfortranarray(np.diag([1.0, 2.0, -1.0, 4.0]))
    assert factor_lower_in_place(A) == 3
    assert invert_lower_in_place(np.asfortranarray(np.diag([1.0, 0.0]))) == 2
    for zero in (0, 100, 170, 299):
        L = np.asfortranarray(np.tril(np.ones((300, 300))))
        L[zero, zero] = 0.0
        assert invert_lower_in_place(L) == zero + 1


@pytest.mark.parametrize("A", [np.ones((3, 2)), np.arange(9.0).reshape(3, 3), np.ones(3)])
def test_other_matrices_are_refused(A):
    with pytest.raises(ValueError, match="writeable square matrix in column-major order"):
        factor_lower_in_place(A)


def test_threads_do_not_meet():
    matrices = [definite(150, np.float64, seed) for seed in range(8)]
    truth = [np.linalg.cholesky(A) for A in matrices]
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(factor_lower_in_place, matrices))
    for A, L in zip(matrices, truth, strict=True):
        np.testing.assert_allclose(np.tril(A), L, rtol=1e-10)


def test_an_inverted_matrix_is_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        A = np.asfortranarray(np.eye(300))
        freed = weakref.ref(A)
        assert invert_lower_in_place(A) == 0
        del A
        assert freed() is None
    finally:
        gc.enable()
