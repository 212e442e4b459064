import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from gramless import SphericalKMeans
from gramless._core import arrays as xa
from gramless.approximation.clustering.steps import plus_plus


def directions(n=300, d=12, k=5, seed=0, dtype=np.float32):
    """Points around k well separated directions, of very different lengths, and their groups."""
    rng = np.random.default_rng(seed)
    groups = np.arange(n) % k
    X = np.eye(d)[groups] + 0.15 * rng.standard_normal((n, d))
    return (X * rng.uniform(0.01, 100, (n, 1))).astype(dtype), groups


def lloyd(X, centres, iterations):
    """The textbook iteration."""
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    for _ in range(iterations):
        labels = (U @ centres.T).argmax(axis=1)
        sums = np.stack([U[labels == q].sum(axis=0) for q in range(len(centres))])
        centres = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return centres


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("batch_size", [None, 40])
def test_well_separated_directions_are_found(init, batch_size):
    X, groups = directions()
    best = max(
        (SphericalKMeans(5, init=init, batch_size=batch_size, random_state=s).fit(X) for s in range(4)),
        key=lambda kmeans: -kmeans.inertia_,
    )
    assert adjusted_rand_score(groups, best.labels_) > 0.98
    assert_allclose(np.linalg.norm(best.cluster_centers_, axis=1), 1, rtol=1e-5)
    assert_array_equal(best.predict(X), best.labels_)
    assert best.cluster_centers_.dtype == np.float32


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_iterations_equal_the_textbook_algorithm(iterations):
    X, _ = directions(dtype=np.float64, seed=3)
    start = np.random.default_rng(0).standard_normal((4, 12))
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    kmeans = SphericalKMeans(4, init=start, max_iter=iterations, tol=0).fit(X)
    assert_allclose(kmeans.cluster_centers_, lloyd(X, start, iterations), atol=1e-10)


def test_inertia_never_increases_and_the_history_has_the_stopping_criterion():
    X = np.random.default_rng(1).standard_normal((2000, 20)).astype(np.float32)
    kmeans = SphericalKMeans(30, init="random", random_state=0, max_iter=300).fit(X)
    inertia = [step["inertia"] for step in kmeans.history_]
    assert all(after <= before + 1e-3 for before, after in itertools.pairwise(inertia))
    assert kmeans.n_iter_ == len(kmeans.history_) < 300
    assert kmeans.history_[-1]["deviation"] < kmeans.tol or kmeans.history_[-1]["moved"] == 0
    assert_allclose(kmeans.inertia_, -kmeans.score(X), rtol=1e-6)
    assert_allclose(kmeans.inertia_, kmeans.transform(X).min(axis=1).sum(), rtol=1e-4)


def test_norms_are_ignored_and_weights_equal_repeated_rows():
    X, _ = directions(dtype=np.float64)
    lengths = np.random.default_rng(0).uniform(0.1, 9, (300, 1))
    kmeans = SphericalKMeans(5, random_state=0)
    assert_allclose(clone(kmeans).fit(X).cluster_centers_, clone(kmeans).fit(X * lengths).cluster_centers_)

    copies = np.random.default_rng(2).integers(0, 4, 300)
    start = clone(kmeans).fit(X).cluster_centers_
    weighted = SphericalKMeans(5, init=start).fit(X, sample_weight=copies)
    repeated = SphericalKMeans(5, init=start).fit(np.repeat(X, copies, axis=0))
    assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_)
    assert_allclose(weighted.inertia_, repeated.inertia_)


@pytest.mark.parametrize("batch_size", [None, 100])
def test_empty_clusters_get_the_points_farthest_from_their_centroids(batch_size):
    X, groups = directions()
    start = np.tile(X[:1], (5, 1))
    kmeans = SphericalKMeans(5, init=start, batch_size=batch_size).fit(X)
    assert kmeans.history_[0]["reseeded"] > 0
    assert len(np.unique(kmeans.labels_)) == 5
    assert adjusted_rand_score(groups, kmeans.labels_) > 0.5


def test_too_few_directions_end_with_a_warning():
    X = np.repeat(np.eye(3), 10, axis=0)
    for init in ("random", "k-means++"):
        with pytest.warns(ConvergenceWarning, match="Only 3 of n_clusters=6"):
            kmeans = SphericalKMeans(6, init=init, random_state=0).fit(X)
        assert_allclose(kmeans.inertia_, 0, atol=1e-12)


def test_zero_rows_do_not_change_the_centroids():
    X, _ = directions()
    with_zeros = np.concatenate([np.zeros((40, 12), np.float32), X])
    start = SphericalKMeans(5, random_state=0).fit(X).cluster_centers_
    kmeans = SphericalKMeans(5, init=start).fit(with_zeros)
    assert_allclose(kmeans.cluster_centers_, SphericalKMeans(5, init=start).fit(X).cluster_centers_, rtol=1e-5)
    assert np.isfinite(kmeans.transform(with_zeros)).all()
    with pytest.warns(ConvergenceWarning, match="Only 0"):
        SphericalKMeans(2).fit(np.zeros((4, 3)))


@pytest.mark.parametrize("batch_size", [None, 64])
def test_a_memory_map_is_read_in_place(tmp_path, batch_size):
    X, _ = directions()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    kmeans = SphericalKMeans(5, batch_size=batch_size, max_iter=10, random_state=0)
    expected = clone(kmeans).fit(X)
    assert_array_equal(clone(kmeans).fit(mapped).cluster_centers_, expected.cluster_centers_)


def test_working_memory_does_not_grow_with_points_times_clusters():
    import tracemalloc

    X = np.random.default_rng(0).standard_normal((20000, 16)).astype(np.float32)
    tracemalloc.start()
    SphericalKMeans(500, init="random", max_iter=2, random_state=0).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.shape[0] * 500 * 4 / 2


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_tensors_give_the_same_clusters(init, batch_size):
    torch = pytest.importorskip("torch")
    X, _ = directions(dtype=np.float64)
    kmeans = SphericalKMeans(5, init=init, batch_size=batch_size, max_iter=8, random_state=0)
    there, here = clone(kmeans).fit(torch.as_tensor(X)), clone(kmeans).fit(X)
    assert isinstance(there.cluster_centers_, torch.Tensor)
    assert_allclose(there.cluster_centers_.numpy(), here.cluster_centers_, atol=1e-9)
    assert_array_equal(there.labels_, here.labels_)
    assert_array_equal(there.predict(torch.as_tensor(X)), here.predict(X))
    moved = clone(kmeans).set_params(device="torch:cpu").fit(X)
    assert_array_equal(moved.labels_, here.labels_)


def test_invalid_tensors_raise():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="NaN"):
        SphericalKMeans(1).fit(torch.tensor([[float("nan"), 1.0]]))
    with pytest.raises(ValueError, match="2D"):
        SphericalKMeans(1).fit(torch.ones(3))
    with pytest.raises(ValueError, match="3 features"):
        SphericalKMeans(1).fit(torch.ones(3, 2)).predict(torch.ones(3, 3))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_clusters": 301}, "more than the 300 samples"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"init": "forgy"}, "'init' parameter of SphericalKMeans"),
        ({"init": np.ones((2, 2))}, "shape"),
        ({"batch_size": 0}, "batch_size"),
        ({"tol": -1}, "tol"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        SphericalKMeans(**settings).fit(directions()[0])


def test_plus_plus_draws_from_its_distribution():
    """The point left out by k-means++ of n - 1 centres, against its probability summed over all orders."""
    n = 7
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    gap = 1 - X @ X.T
    probability = {frozenset([i]): 1 / n for i in range(n)}
    for size in range(1, n - 1):
        for subset in map(frozenset, itertools.combinations(range(n), size)):
            reach = gap[:, list(subset)].min(axis=1).clip(0)
            reach[list(subset)] = 0
            for i in set(range(n)) - subset:
                larger = subset | {i}
                probability[larger] = probability.get(larger, 0) + probability[subset] * reach[i] / reach.sum()
    expected = np.array([probability[frozenset(range(n)) - {i}] for i in range(n)])
    left_out = np.zeros(n)
    trials = 3000
    for _ in range(trials):
        chosen = plus_plus(X, lambda idx: X[idx], lambda X, centres: (X @ centres.T).max(axis=1), np.ones(n), n - 1, rng)
        left_out += ~np.isin(np.arange(n), chosen)
    assert_allclose(left_out / trials, expected, atol=4 * (0.25 / trials) ** 0.5)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_rows_move_between_sums(library, n, k, d, seed):
    to = np.asarray if library == "numpy" else pytest.importorskip("torch").as_tensor
    rng = np.random.default_rng(seed)
    X, old, new = rng.standard_normal((n, d)), rng.integers(-1, k, n), rng.integers(0, k, n)
    weights = rng.standard_normal(n)
    expected = rng.standard_normal((k, d))
    found = to(expected.copy())
    xa.move_rows_(found, to(X), to(old), to(new), to(weights))
    np.add.at(expected, new, weights[:, None] * X)
    np.add.at(expected, old[old >= 0], -(weights[:, None] * X)[old >= 0])
    assert_allclose(xa.to_numpy(found), expected, atol=1e-12)


@pytest.mark.parametrize("batch_size", [None, 40])
def test_a_callback_can_predict_and_stops(batch_size):
    X = np.random.default_rng(0).normal(size=(200, 4))
    seen = []

    def stop(estimator, record):
        seen.append((record["n_iter"], estimator.predict(X).shape))
        return record["n_iter"] == 2

    kmeans = SphericalKMeans(6, batch_size=batch_size, tol=0, callback=stop, random_state=0).fit(X)
    assert seen == [(1, (200,)), (2, (200,))]
    assert kmeans.n_iter_ == 2
