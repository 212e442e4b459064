"""What every landmark rule promises, over the registry, and what each promises beyond that."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from gramless.approximation.landmarks import (
    LANDMARKS,
    BasisConstruction,
    KMeans,
    Renyi,
    RPCholesky,
    Uniform,
    as_points,
    basis_construction,
    select,
)
from gramless.kernels import RBF, Linear, Polynomial, Precomputed

ROW_RULES = sorted(set(LANDMARKS) - {"kmeans"})


def seeded(seed=0):
    return np.random.RandomState(seed)


@pytest.fixture
def X():
    return np.random.default_rng(7).normal(size=(300, 4))


def unexplained(X, kernel, landmarks):
    """Share of the kernel's trace that the landmarks leave out."""
    points = as_points(landmarks, X)
    K = kernel(points, points)
    half = np.linalg.solve(np.linalg.cholesky(K + 1e-10 * np.eye(len(K))), kernel(points, X))
    return 1 - (half**2).sum() / kernel.diag(X).sum()


@pytest.mark.parametrize("name", LANDMARKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_as_many_as_asked_for_in_the_type_of_the_data(name, dtype, X):
    X = X.astype(dtype)
    landmarks = select(name, X, RBF(gamma=0.5), 40, seeded())
    points = as_points(landmarks, X)
    assert points.shape == (40, 4)
    assert points.dtype == dtype
    assert len(np.unique(points, axis=0)) == 40
    np.testing.assert_array_equal(landmarks, select(name, X, RBF(gamma=0.5), 40, seeded()))


@pytest.mark.parametrize("name", ROW_RULES)
def test_never_more_than_there_are(name, X):
    rows = select(name, X[:30], RBF(gamma=5.0), 100, seeded())
    np.testing.assert_array_equal(np.sort(rows), np.arange(30))


@pytest.mark.parametrize("name", ROW_RULES)
@pytest.mark.parametrize("kernel", [RBF(gamma=0.5), Polynomial(degree=2, gamma=1.0, coef0=1.0)], ids=["rbf", "poly"])
def test_torch_and_numpy_choose_the_same(name, kernel, X):
    torch = pytest.importorskip("torch")
    rows = select(name, X, kernel, 12, seeded())
    other = select(name, torch.as_tensor(X), kernel, 12, seeded())
    np.testing.assert_array_equal(rows, other)


def test_torch_points(X):
    torch = pytest.importorskip("torch")
    tensor = torch.as_tensor(X)
    points = select("kmeans", tensor, RBF(gamma=0.5), 10, seeded())
    assert isinstance(points, torch.Tensor)
    np.testing.assert_array_equal(points.numpy(), select("kmeans", X, RBF(gamma=0.5), 10, seeded()))


@pytest.mark.parametrize("name", LANDMARKS)
def test_sparse_and_dense_choose_the_same(name, X):
    X = np.where(X > 0.5, X, 0.0) + 0.1 * (np.abs(X) > 2)
    dense = as_points(select(name, X, RBF(gamma=0.5), 20, seeded()), X)
    sparse = sp.csr_matrix(X)
    points = as_points(select(name, sparse, RBF(gamma=0.5), 20, seeded()), sparse)
    assert sp.issparse(points)
    np.testing.assert_allclose(points.toarray(), dense)


@pytest.mark.parametrize("name", ROW_RULES)
def test_a_precomputed_kernel_is_looked_up(name, X):
    kernel = RBF(gamma=0.5)
    expected = select(name, X, kernel, 20, seeded())
    np.testing.assert_array_equal(select(name, kernel(X, X), Precomputed(), 20, seeded()), expected)


def test_kmeans_needs_points(X):
    with pytest.raises(ValueError, match="precomputed"):
        KMeans().select(X @ X.T, Precomputed(), 3, seeded())


@pytest.mark.parametrize("name", ["basis", "rpcholesky"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicates_are_not_chosen_twice(name, dtype):
    X = np.repeat(np.array([[0.0, 1.0], [3.0, 0.0], [9.0, 9.0]], dtype=dtype), 20, axis=0)
    rows = select(name, X, RBF(gamma=1.0), 10, seeded())
    assert sorted(rows // 20) == [0, 1, 2]


@pytest.mark.parametrize("name", ["basis", "rpcholesky", "renyi"])
def test_small_groups_are_found_where_uniform_misses_them(name):
    """One crowd and forty loners: what a rule that looks at the data buys."""
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(scale=0.05, size=(2000, 2)), rng.uniform(-50, 50, size=(40, 2))])
    kernel = RBF(gamma=0.5)
    uniform = unexplained(X, kernel, Uniform().select(X, kernel, 60, seeded()))
    assert unexplained(X, kernel, select(name, X, kernel, 60, seeded())) < 0.5 * uniform


@pytest.mark.parametrize("name", ["kmeans", "rpcholesky"])
def test_a_smooth_cloud_is_better_covered_than_by_chance(name, X):
    kernel = RBF(gamma=0.2)
    uniform = np.mean([unexplained(X, kernel, Uniform().select(X, kernel, 25, seeded(s))) for s in range(5)])
    chosen = np.mean([unexplained(X, kernel, select(name, X, kernel, 25, seeded(s))) for s in range(5)])
    assert chosen < 0.9 * uniform


# --- the user's own ----------------------------------------------------------------------------------------------------


def test_given_rows_and_points(X):
    kernel = RBF(gamma=0.5)
    np.testing.assert_array_equal(select([5, 2], X, kernel, 10, seeded()), [5, 2])
    points = select([[0, 0, 0, 1]], X.astype(np.float32), kernel, 10, seeded())
    assert points.dtype == np.float32
    assert points.shape == (1, 4)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("nearest", ValueError, "known: 'basis', 'kmeans'"),
        ([0.5, 1.0], TypeError, "row numbers"),
        ([300], ValueError, "from 0 to 299"),
        ([-1], ValueError, "from 0 to 299"),
        ([[1.0, 2.0]], ValueError, "the 4 columns of X"),
        (np.empty(0, dtype=int), ValueError, "at least one"),
    ],
)
def test_what_cannot_be_landmarks_is_answered(given, error, message, X):
    with pytest.raises(error, match=message):
        select(given, X, RBF(gamma=0.5), 10, seeded())


def test_points_and_a_precomputed_kernel(X):
    with pytest.raises(ValueError, match="row numbers"):
        select(np.zeros((2, 300)), np.zeros((300, 300)), Precomputed(), 10, seeded())


def test_no_landmarks(X):
    with pytest.raises(ValueError, match="at least one landmark"):
        select("uniform", X, RBF(gamma=0.5), 0, seeded())


# --- basis construction ------------------------------------------------------------------------------------------------


def one_by_one_basis(K, order, epsilon, m):
    """The algorithm as the document has it, with a fresh solve instead of the updated inverse."""
    members = [order[0]]
    for r in order[1:]:
        k = K[members, r]
        if len(members) < m and k @ np.linalg.solve(K[np.ix_(members, members)], k) < epsilon * K[r, r]:
            members.append(r)
    return members


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Polynomial(degree=2, gamma=1.0, coef0=1.0)], ids=["rbf", "poly"])
@pytest.mark.parametrize(("epsilon", "m"), [(0.3, 300), (0.8, 300), (0.95, 25)])
def test_blocks_choose_what_one_by_one_chooses(kernel, epsilon, m, X):
    rows = BasisConstruction(epsilon, relax=False, block_size=16).select(X, kernel, m, seeded())
    expected = one_by_one_basis(kernel(X, X), seeded().permutation(300), epsilon, m)
    np.testing.assert_array_equal(rows, expected)


def test_relaxed_basis_begins_with_the_strict_one(X):
    kernel = RBF(gamma=0.1)
    strict = BasisConstruction(0.3, relax=False).select(X, kernel, 100, seeded())
    relaxed = BasisConstruction(0.3).select(X, kernel, 100, seeded())
    assert len(strict) < 100 == len(relaxed)
    np.testing.assert_array_equal(relaxed[: len(strict)], strict)


def test_single_precision_goes_on_in_double_near_one(X):
    """A basis that needs cosines within 1e-6 of one is beyond float32 decisions; the factor must stay a factor."""
    kernel = RBF(gamma=1e-3)
    rows = BasisConstruction(0.5).select(X.astype(np.float32), kernel, 30, seeded())
    points = X.astype(np.float32)[rows].astype(np.float64)
    assert len(np.unique(rows)) == 30
    assert np.linalg.eigvalsh(kernel(points, points))[0] > 0


def test_low_rank_data_is_not_read_forever(X, monkeypatch):
    passes = []
    scan = basis_construction._Basis.scan
    monkeypatch.setattr(basis_construction._Basis, "scan", lambda *args: passes.append(1) or scan(*args))
    rows = BasisConstruction().select(np.tile(X, (4, 1)), Linear(), 100, seeded())
    assert len(rows) == 4
    assert len(passes) <= 5


def test_untested_start(X):
    rows = BasisConstruction(0.01, n_init=20, relax=False).select(X, RBF(gamma=0.1), 50, seeded())
    np.testing.assert_array_equal(rows[:20], seeded().permutation(300)[:20])


def test_zero_vectors_never_join():
    X = np.vstack([np.zeros((5, 2)), np.eye(2)])
    assert sorted(BasisConstruction().select(X, Linear(), 4, seeded())) == [5, 6]


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -1])
def test_epsilon_is_a_squared_cosine(epsilon, X):
    with pytest.raises(ValueError, match="epsilon"):
        BasisConstruction(epsilon).select(X, RBF(gamma=1.0), 3, seeded())


# --- randomly pivoted Cholesky -----------------------------------------------------------------------------------------


def test_blocks_draw_with_the_probabilities_of_one_by_one():
    """Ordered pairs of pivots on five points, against their exact probabilities."""
    X = np.array([[0.0], [0.3], [0.5], [2.0], [2.2]])
    kernel = RBF(gamma=1.0)
    K = kernel(X, X)
    exact = np.zeros((5, 5))
    for i in range(5):
        left = np.diag(K - np.outer(K[i], K[i]) / K[i, i])
        exact[i] = 0.2 * left / left.sum()
    draws, rng, counts = 3000, seeded(1), np.zeros((5, 5))
    rule = RPCholesky(block_size=4)
    for _ in range(draws):
        counts[tuple(rule.select(X, kernel, 2, rng))] += 1
    possible = exact > 1e-12
    assert counts[~possible].sum() == 0
    chi_square = (((counts - draws * exact) ** 2)[possible] / (draws * exact[possible])).sum()
    assert chi_square < 43.8  # 19 degrees of freedom: once in a thousand seeds


def test_factor_reproduces_the_columns_of_its_pivots(X):
    kernel = RBF(gamma=0.2)
    pivots, F = RPCholesky().factor(X, kernel, 50, seeded())
    np.testing.assert_allclose(F @ F[pivots].T, kernel(X, X[pivots]), atol=1e-8)
    assert np.linalg.eigvalsh(kernel(X, X) - F @ F.T)[0] > -1e-8


def test_streamed_and_stored_factors_choose_the_same(X):
    kernel = RBF(gamma=0.2)
    stored = RPCholesky(block_size=16).select(X, kernel, 60, seeded())
    streamed = RPCholesky(block_size=16, max_factor_bytes=0).select(X, kernel, 60, seeded())
    np.testing.assert_array_equal(stored, streamed)


def test_streamed_memory_is_bounded():
    X = np.random.default_rng(0).normal(size=(100_000, 3))
    tracemalloc.start()
    try:
        RPCholesky(max_factor_bytes=0).select(X, RBF(gamma=5.0), 150, seeded())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * len(X) * 150 * 8


# --- Renyi entropy -----------------------------------------------------------------------------------------------------


def one_by_one_entropy(K, first, m):
    S = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
    members = [first]
    while len(members) < m:
        sums = S[:, members].sum(axis=1)
        sums[members] = np.inf
        members.append(int(np.argmin(sums)))
    return members


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Polynomial(degree=2, gamma=1.0, coef0=1.0)], ids=["rbf", "poly"])
def test_pools_choose_what_one_by_one_chooses(kernel, X):
    rows = Renyi(pool_size=32).select(X, kernel, 80, seeded())
    np.testing.assert_array_equal(rows, one_by_one_entropy(kernel(X, X), rows[0], 80))


def test_entropy_is_above_that_of_a_random_choice(X):
    for kernel in (RBF(gamma=0.3), Linear()):
        norms = np.sqrt(kernel.diag(X))
        S = kernel(X, X) / np.outer(norms, norms)
        rows, other = Renyi().select(X, kernel, 30, seeded()), Uniform().select(X, kernel, 30, seeded())
        assert S[np.ix_(rows, rows)].sum() < S[np.ix_(other, other)].sum()


def test_candidates_are_the_only_ones_chosen(X):
    rows = Renyi(candidates=60).select(X, RBF(gamma=0.3), 30, seeded())
    assert set(rows) <= set(seeded().permutation(300)[:60])


@pytest.mark.parametrize("block_size", [0, -3, 1.5, "large"])
def test_a_block_of_no_proposals_is_refused(block_size, X):
    with pytest.raises(ValueError, match="block_size"):
        RPCholesky(block_size=block_size).select(X, RBF(gamma=0.1), 5, np.random.RandomState(0))
