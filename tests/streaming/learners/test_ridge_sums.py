"""Sums over rows: exact in any order, in pieces, and backwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gramless.approximation.features.landmark_map import Whitening
from gramless.kernels import RBF
from gramless.streaming.learners.ridge_sums import RidgeSums


def sums_of(features, Z, weights=None):
    sums = RidgeSums(features.shape[1], Z.shape[1], features)
    sums.add(features, Z, weights)
    return sums


@pytest.fixture
def problem():
    rng = np.random.default_rng(2)
    phi = rng.normal(size=(80, 5)) + 3.0
    return phi, phi[:, :2] @ rng.normal(size=(2, 3)) + 1.5 + 0.1 * rng.normal(size=(80, 3))


def test_solution_minimises_the_objective(problem):
    phi, Z = problem
    weights = np.linspace(0.1, 2.0, 80)
    solution = sums_of(phi, Z, weights).solve(0.7)

    def objective(parameters):
        W, b = parameters[:15].reshape(5, 3), parameters[15:]
        return (weights[:, None] * (Z - phi @ W - b) ** 2).sum() + 0.7 * (W**2).sum()

    found = np.concatenate([solution.A.ravel(), solution.bias])
    best = minimize(objective, np.zeros(18), method="BFGS", options={"gtol": 1e-6}).fun
    assert objective(found) <= best * (1 + 1e-9)
    assert solution.cut == 0


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, 79), min_size=1, max_size=6, unique=True), seed=st.integers(0, 1000))
def test_any_pieces_in_any_order(cuts, seed):
    rng = np.random.default_rng(seed)
    phi, Z = rng.normal(size=(80, 4)), rng.normal(size=(80, 2))
    whole = sums_of(phi, Z).solve(0.1)
    pieces = np.split(rng.permutation(80), sorted(cuts))
    sums = sums_of(phi[pieces[0]], Z[pieces[0]])
    for piece in pieces[1:]:
        sums.merge(sums_of(phi[piece], Z[piece]))
    np.testing.assert_allclose(sums.solve(0.1).A, whole.A, atol=1e-10)
    np.testing.assert_allclose(sums.solve(0.1).bias, whole.bias, atol=1e-10)


def test_rows_taken_away_are_as_if_never_there(problem):
    phi, Z = problem
    sums = sums_of(phi, Z)
    sums.subtract(sums_of(phi[50:], Z[50:]))
    np.testing.assert_allclose(sums.solve(0.1).A, sums_of(phi[:50], Z[:50]).solve(0.1).A, atol=1e-10)
    assert sums.rounding == sums_of(phi, Z).rounding


def test_a_ridge_below_rounding_is_reported(problem):
    phi, Z = problem
    twice = np.hstack([phi, phi])
    solution = sums_of(1e6 * twice, Z).solve(1e-12)
    assert solution.condition > 1e13 or solution.cut > 0
    assert np.isfinite(solution.A).all()
    well_posed = sums_of(twice, Z).solve(1.0)
    assert well_posed.cut == 0
    assert well_posed.condition == pytest.approx(np.linalg.cond(np.cov(twice.T, bias=True) * 80 + np.eye(10), 1), rel=2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_reproduce_the_kernel_on_the_landmarks(dtype):
    X = np.random.default_rng(0).normal(size=(40, 3))
    kernel = RBF(gamma=0.5)
    maps = Whitening(kernel(X, X), dtype)
    phi = maps.features(kernel(X, X).astype(dtype))
    assert phi.dtype == np.float64
    np.testing.assert_allclose(phi @ phi.T, kernel(X, X), atol=1e-4 if dtype == np.float32 else 1e-8)
    W = np.random.default_rng(1).normal(size=(40, 2))
    np.testing.assert_allclose(kernel(X, X) @ maps.coefficients(W), maps.features(kernel(X, X)) @ W, atol=1e-6)


def test_duplicate_landmarks_get_a_jitter_and_others_of_no_kernel_an_error():
    X = np.zeros((10, 2))
    assert Whitening(RBF(gamma=1.0)(X, X), np.float64).jitter > 0
    with pytest.raises(np.linalg.LinAlgError, match="not positive semi-definite"):
        Whitening(np.array([[1.0, 1e9], [1e9, 1.0]]), np.float64)
    with pytest.raises(ValueError, match="not finite"):
        Whitening(np.full((2, 2), np.inf), np.float64)


def test_tensors(problem):
    torch = pytest.importorskip("torch")
    phi, Z = problem
    expected = sums_of(phi, Z).solve(0.3)
    solution = sums_of(torch.as_tensor(phi), torch.as_tensor(Z)).solve(0.3)
    np.testing.assert_allclose(solution.A.numpy(), expected.A, atol=1e-12)
    np.testing.assert_allclose(solution.bias.numpy(), expected.bias, atol=1e-12)
