"""Rows of a Gram matrix within a budget: values after evictions, and temporary memory."""

import tracemalloc

import numpy as np
import pytest

from gramless._core.compiled.simd import lanes
from gramless.kernels import RBF
from gramless.svm.gram_rows import GramRows, class_grams

N = 3000


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def truth(points):
    return RBF(gamma=0.2)(points, points)


def parts_of(points, with_blocks):
    parts = [slice(0, 1200), slice(1200, N)]
    return parts, class_grams(RBF(gamma=0.2), points, parts, 1e9 if with_blocks else 0, 1)


@pytest.mark.parametrize("with_blocks", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_evicted_rows_are_recomputed_to_the_same_values(points, truth, with_blocks, workers):
    parts, blocks = parts_of(points, with_blocks)
    rows = GramRows(RBF(gamma=0.2), points, parts, blocks=blocks, budget=700 * N * 4 / 0.75, workers=workers)
    assert rows.capacity == 700
    rng = np.random.default_rng(1)
    for _ in range(4):
        idx, total = np.sort(rng.permutation(N)[:650]), np.zeros(N)
        weights = rng.normal(size=650)
        rows.add([(idx, weights, total)])
        np.testing.assert_allclose(total, weights @ truth[idx], atol=1e-4)
        chosen = rng.permutation(N)[:1500]
        gram = np.empty((1500, 1500), np.float32)
        rows.fill(gram, chosen, np.arange(1500))
        np.testing.assert_allclose(gram, truth[np.ix_(chosen, chosen)], atol=1e-6)


@pytest.mark.skipif(not lanes(), reason="this processor has no vectors that the loops are written for")
def test_rows_of_few_features_are_recomputed_in_registers():
    X = np.random.default_rng(0).normal(size=(4200, 5)).astype(np.float32)
    rng, truth = np.random.default_rng(1), RBF(gamma=0.2)(X.astype(np.float64), X.astype(np.float64))

    def sums(largest_weight, *, workers=1):
        rows = GramRows(RBF(gamma=0.2), X, [slice(0, 1200), slice(1200, 4200)], workers=workers)
        rows.recompute_cheap_rows(largest_weight, 1e-3)
        first, second = np.sort(rng.permutation(4200)[:650]), np.arange(600, 900)
        weights, totals = largest_weight * rng.normal(size=950), np.ones((2, 4200))
        rows.add([(first, weights[:650], totals[0]), (second, weights[650:], totals[1])])
        expected = 1 + np.stack([weights[:650] @ truth[first], weights[650:] @ truth[second]])
        np.testing.assert_allclose(totals, expected, atol=2e-5 * largest_weight)
        return rows.n_computed

    assert sums(1.0) == sums(1.0, workers=2) == 0
    assert sums(1e4) > 0  # rounding errors would exceed the tolerance: the sums are in float64, of stored rows


def test_temporary_memory_is_less_than_two_tiles(points):
    rows = GramRows(RBF(gamma=0.2), points, [slice(0, N)], budget=1500 * N * 4 / 0.75)
    rows.add([(np.arange(1500), np.ones(1500), np.zeros(N))])
    # Half of the rows are cached, so the slots of the other rows are not contiguous.
    others = np.concatenate([np.arange(0, 1500, 2), np.arange(1500, 2250)])
    gram, chosen = np.empty((2500, 2500), np.float32), np.random.default_rng(0).permutation(N)[:2500]
    tracemalloc.start()
    rows.add([(others, np.ones(1500), np.zeros(N))])
    _, adding = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    rows.fill(gram, chosen, np.arange(2500))
    _, filling = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tile = 1024 * 1024 * 4
    assert max(adding, filling) < 1.5 * tile
