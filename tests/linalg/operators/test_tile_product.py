"""Compiled products of tiles against plain float64 algebra."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

from gramless._core.compiled import simd as _simd
from gramless.kernels import RBF
from gramless.linalg.operators import KernelOperator, tile_product
from gramless.linalg.operators.nystrom import TallMatrix
from gramless.linalg.operators.tile_product import (
    BlasSums,
    CompiledSums,
    PaddedColumns,
    can_compile,
    product,
    product_from_upper,
    transposed_product,
)
from gramless.linalg.tuning import TUNING


@pytest.fixture(autouse=True)
def small_matrices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_product, "TUNING", replace(tile_product.TUNING, min_entries_to_compile=0))


needs_vectors = pytest.mark.skipif(not _simd.lanes(), reason="this processor has neither AVX-512 nor AVX2")


@needs_vectors
@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 8, 11, 12, 13, 40])
@pytest.mark.parametrize("n", [1, 33, 700, 1025, 2048, 2500])
def test_symmetric_products_equal_dense_ones(n: int, k: int) -> None:
    rng = np.random.default_rng(n + k)
    X, V = rng.normal(size=(n, 5)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
    for cache in (True, False):
        op = KernelOperator(X, RBF(gamma=0.1), 0.1, cache=cache)
        truth = op.dense(np.float64) @ V
        for _ in range(2):  # the second time from the cache
            np.testing.assert_allclose(op @ V, truth, rtol=1e-5, atol=1e-5 * np.abs(truth).max())


@needs_vectors
@pytest.mark.parametrize("k", [1, 6, 7, 12, 13, 40])
@pytest.mark.parametrize("n", [1, 33, 1025, 2500])
def test_symmetric_products_in_double_precision(n: int, k: int) -> None:
    rng = np.random.default_rng(n + k)
    X, V = rng.normal(size=(n, 5)), rng.normal(size=(n, k))
    op = KernelOperator(X, RBF(gamma=0.1), 0.1, cache=True)
    truth = op.dense(np.float64) @ V
    for _ in range(2):
        np.testing.assert_allclose(op @ V, truth, rtol=1e-12, atol=1e-12 * np.abs(truth).max())


@needs_vectors
def test_subnormal_numbers_come_back_after_the_loops() -> None:
    tiny = np.full((96, 96), 1e-30, np.float32)
    sums = CompiledSums(PaddedColumns(np.full((96, 8), 1e-10, np.float32)))
    sums.add(tiny, slice(0, 96), slice(0, 96))
    assert not sums.total().any()  # products of 1e-40 count as zero there
    assert np.float32(1e-30) * np.float32(1e-10) > 0


@needs_vectors
@pytest.mark.parametrize("k", [5, 9])
def test_compiled_and_blas_sums_agree(k: int) -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(130, k)).astype(np.float32)
    compiled, blas = CompiledSums(PaddedColumns(V)), BlasSums(V)
    for rows, columns in ((slice(0, 96), slice(0, 96)), (slice(96, 130), slice(0, 96)), (slice(96, 130), slice(96, 130))):
        tile = rng.normal(size=(rows.stop - rows.start, columns.stop - columns.start)).astype(np.float32)
        compiled.add(tile, rows, columns)
        blas.add(tile, rows, columns)
    assert compiled.total().dtype == V.dtype
    np.testing.assert_allclose(compiled.total(), blas.total(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 256, 700])
def test_products_from_one_triangle(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    A, W = rng.normal(size=(n, n)).astype(dtype), rng.normal(size=(n, 3))
    A = A + A.T
    half = np.triu(A, 1) + np.tril(np.full_like(A, np.nan), -1)
    np.fill_diagonal(half, 7.0)
    truth = A.astype(np.float64) @ W
    np.testing.assert_allclose(product_from_upper(half, np.diagonal(A), W), truth, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 8, 12, 25, 60])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (40, 7), (333, 64), (1001, 129)])
def test_tall_products_have_the_digits_of_float64(n: int, m: int, k: int) -> None:
    rng = np.random.default_rng(n)
    C = (1 + 1e-3 * rng.normal(size=(n, m))).astype(np.float32)
    W, V = rng.normal(size=(m, k)), rng.normal(size=(n, k))
    np.testing.assert_allclose(product(C, W), C.astype(np.float64) @ W, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(transposed_product(C, V), C.astype(np.float64).T @ V, rtol=1e-12, atol=1e-12)


def test_without_the_instructions_blas_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_simd, "available", lambda *features: False)
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(1500, 40)).astype(np.float32), rng.normal(size=(1500, 11)).astype(np.float32)
    assert not can_compile(V, 10**9, V.dtype)
    op = KernelOperator(X, RBF(gamma=0.1), 0.1, cache=True)
    np.testing.assert_allclose(op @ V, op.dense(np.float64) @ V, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product(X, V[:40].astype(np.float64)), X.astype(np.float64) @ V[:40], rtol=1e-12)


def test_small_matrices_do_not_load_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not can_compile(np.ones((1000, 11), np.float32), 1000**2, np.dtype(np.float32))


def test_cached_tiles_share_one_allocation_until_the_cache_is_dropped() -> None:
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(2100, 4)).astype(np.float32), rng.normal(size=(2100, 3)).astype(np.float32)
    op = KernelOperator(X, RBF(gamma=0.1), 0.1, cache=True)
    truth = op.dense(np.float64) @ V
    for _ in range(2):
        np.testing.assert_allclose(op @ V, truth, rtol=1e-4, atol=1e-3)
    assert len(op._stored) == 6
    assert len({id(tile.base) for tile in op._stored.values()}) == 1
    allocation = weakref.ref(next(iter(op._stored.values())).base)
    op.drop_cache()
    assert allocation() is None
    np.testing.assert_allclose(op @ V, truth, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("k", [3, 12, 60])
def test_parts_of_a_tall_matrix(k: int, store: bool, dtype: type) -> None:
    rng = np.random.default_rng(k)
    C, w = rng.normal(size=(250, 20)).astype(dtype), rng.uniform(size=250)
    before, wide = C.copy(), C.astype(np.float64)
    A = TallMatrix(C.shape, lambda rows: C[rows], store=store, tuning=replace(TUNING, rows_per_part=100))
    V, W = rng.normal(size=(250, k)), rng.normal(size=(20, k))
    np.testing.assert_allclose(A.times(W), wide @ W, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(A.transposed_times(V), wide.T @ V, rtol=1e-12, atol=1e-12)
    gram = A.add_gram_(np.eye(20), w)
    np.testing.assert_allclose(np.tril(gram), np.tril(np.eye(20) + wide.T @ (w[:, None] * wide)), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(C, before)
