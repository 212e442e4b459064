"""Assignments that leave work out give the labels of the full product."""

from dataclasses import replace
from functools import partialmethod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from gramless import SphericalKMeans
from gramless.approximation.clustering import bounds as kmeans_bounds
from gramless.approximation.clustering import steps as kmeans_steps
from gramless.approximation.clustering.bounds import AngleBounds
from gramless.approximation.tuning import TUNING


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def clusters(n, d, k, rng, dtype):
    return (rng.standard_normal((k, d))[rng.integers(0, k, n)] + 0.5 * rng.standard_normal((n, d))).astype(dtype)


def ignore(worker, rows, part, labels):
    pass


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 60),
    st.integers(1, 6),
    st.integers(1, 12),
    st.sampled_from([0.0, 1e-3, 0.05, 1.0]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 2**32 - 1),
)
def test_labels_are_those_of_the_full_product_however_the_centres_turn(n, d, k, turn, dtype, seed):
    rng = np.random.default_rng(seed)
    X = clusters(n, d, k, rng, dtype)
    X[rng.random(n) < 0.1] = 0
    norms = np.linalg.norm(X, axis=1)
    bounds = AngleBounds(X, np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0))
    centres, drift = unit(rng.standard_normal((k, d))).astype(dtype), None
    for _ in range(5):
        bounds.assign(centres, drift, ignore)
        scores = X @ centres.T
        chosen, largest = scores[np.arange(n), bounds.labels], scores.max(axis=1)
        # Of two equal ones either may be chosen, and rounding decides which are equal.
        assert np.all(chosen >= largest - 1e-5 * np.maximum(norms, 1))
        # Some centres turn far, some a little, some stay.
        amount = turn * rng.choice([0, 0.01, 1], (k, 1))
        new = unit(centres + amount * rng.standard_normal((k, d))).astype(dtype)
        new[amount[:, 0] == 0] = centres[amount[:, 0] == 0]
        drift = 2 * np.arcsin(np.minimum(np.linalg.norm((new - centres).astype(float), axis=1) / 2, 1))
        centres = new


def test_still_centres_cost_nothing_and_a_far_turner_costs_itself():
    rng = np.random.default_rng(0)
    X = unit(clusters(4000, 20, 64, rng, np.float64))
    centres = unit(rng.standard_normal((64, 20)))
    bounds = AngleBounds(X, np.ones(4000))
    bounds.assign(centres, None, ignore)
    assert bounds.computed == 1
    bounds.assign(centres, np.zeros(64), ignore)
    assert bounds.computed < 0.01
    turned, drift = centres.copy(), np.zeros(64)
    turned[5] = unit(rng.standard_normal((1, 20)))
    drift[5] = np.arccos(turned[5] @ centres[5])
    bounds.assign(turned, drift, ignore)
    assert bounds.computed < 0.3
    assert_array_equal(bounds.labels, (X @ turned.T).argmax(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_whole_clustering_is_the_same_without_bounds(dtype, monkeypatch):
    rng = np.random.default_rng(1)
    X = clusters(3000, 30, 40, rng, dtype)
    start = X[rng.choice(3000, 60, replace=False)]
    without = replace(TUNING, largest_bounded_work=-1.0)
    shares = []
    assign = AngleBounds.assign

    def watched(self, *args):
        assign(self, *args)
        shares.append(self.computed)

    monkeypatch.setattr(AngleBounds, "assign", watched)
    bounded = SphericalKMeans(60, init=start).fit(X)
    monkeypatch.setattr(AngleBounds, "__init__", partialmethod(AngleBounds.__init__, tuning=without))
    full = SphericalKMeans(60, init=start).fit(X)
    assert_array_equal(bounded.labels_, full.labels_)
    assert bounded.n_iter_ == full.n_iter_
    assert min(shares[: bounded.n_iter_]) < 0.5
    assert min(shares[bounded.n_iter_ :]) == 1


def test_tiles_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(2)
    X = clusters(500, 9, 9, rng, np.float32)
    start = rng.standard_normal((30, 9)).astype(np.float32)
    whole = SphericalKMeans(30, init=start).fit(X)
    for module in (kmeans_steps, kmeans_bounds):
        monkeypatch.setattr(module, "CPU_TILE", 7)
    tiled = SphericalKMeans(30, init=start).fit(X)
    assert_array_equal(tiled.labels_, whole.labels_)
    np.testing.assert_allclose(tiled.cluster_centers_, whole.cluster_centers_, atol=1e-6)
