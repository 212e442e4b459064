from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless.linalg.operators import DenseOperator
from gramless.linalg.solvers import MatchingPursuit, solve


def symmetric(n, seed, log_condition, rank=None):
    rng = np.random.RandomState(seed)
    U, _ = np.linalg.qr(rng.normal(size=(n, n)))
    values = np.logspace(0, -log_condition, n) * rng.choice([-1, 1], n)
    if rank is not None:
        values[rank:] = 0
    return (U * values) @ U.T


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 40),
    block_size=st.integers(1, 20),
    momentum=st.integers(0, 5),
    seed=st.integers(0, 10**6),
    log_condition=st.floats(0, 8),
    singular=st.booleans(),
    reuse=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_residual_never_grows(n, block_size, momentum, seed, log_condition, singular, reuse, dtype):
    A = symmetric(n, seed, log_condition, rank=n // 2 if singular else None).astype(dtype)
    Z = np.random.RandomState(seed + 1).normal(size=(n, 3)).astype(dtype)
    solver = MatchingPursuit(block_size, momentum=momentum, reuse_blocks=reuse, max_iter=30, tol=1e-30)
    history = solve(DenseOperator(A, spd=False), Z, solver, random_state=seed).history
    residuals = np.array([1.0, *(record["residual"] for record in history)])
    rounding = 4 * np.finfo(dtype).eps
    if np.any(residuals < rounding):  # solved: what follows is the rounding of the true residual
        residuals = residuals[: np.argmax(residuals < rounding)]
    assert np.all(residuals[1:] <= residuals[:-1] * (1 + rounding))


@settings(max_examples=20, deadline=None)
@given(momentum=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_reported_residual_is_the_true_one(momentum, seed):
    A = symmetric(30, seed, 2)
    Z = np.random.RandomState(seed + 1).normal(size=(30, 2))
    reported, true = [], []

    def look(W, record):
        reported.append(record["residual"])
        true.append(np.linalg.norm(Z - A @ W) / np.linalg.norm(Z))

    solve(
        DenseOperator(A, spd=False), Z, MatchingPursuit(7, momentum=momentum, max_iter=15), random_state=seed, callback=look
    )
    np.testing.assert_allclose(reported, true, rtol=1e-6, atol=1e-9)


def test_steps_follow_the_formula():
    A = symmetric(12, 0, 1)
    Z = np.random.RandomState(1).normal(size=(12, 2))
    W, R = np.zeros_like(Z), Z.copy()
    for s in np.random.RandomState(4).permutation(12).reshape(3, 4):
        Q = np.linalg.pinv(A[:, s]) @ R
        W[s] += Q
        R = R - A[:, s] @ Q
    result = solve(DenseOperator(A, spd=False), Z, MatchingPursuit(4, max_iter=3), random_state=4)
    np.testing.assert_allclose(result.W, W, atol=1e-8)
    np.testing.assert_allclose(result.residual, np.linalg.norm(R) / np.linalg.norm(Z), rtol=1e-8)


def test_momentum_reaches_a_residual_in_fewer_steps():
    A = symmetric(200, 0, 2)
    Z = np.random.RandomState(1).normal(size=(200, 2))

    def steps_until(residual, momentum):
        solver = MatchingPursuit(20, momentum=momentum, tol=1e-6, max_iter=400)
        history = solve(DenseOperator(A, spd=False), Z, solver, random_state=0).history
        return next(record["n_iter"] for record in history if record["residual"] <= residual)

    assert steps_until(0.45, momentum=10) < 0.9 * steps_until(0.45, momentum=0)


def test_starts_from_a_given_point():
    A = symmetric(20, 0, 1)
    W = np.random.RandomState(1).normal(size=(20, 1))
    near = W + 1e-3
    result = solve(DenseOperator(A, spd=False), A @ W, MatchingPursuit(5, max_iter=1), W0=near, random_state=0)
    assert result.residual < 1e-2
    assert np.linalg.norm(result.W - W) < 0.1


def test_gives_up_where_float32_has_no_more_digits():
    A = symmetric(30, 0, 1).astype(np.float32)
    Z = A @ np.ones((30, 1), np.float32)
    solver = MatchingPursuit(20, tol=3e-8, max_iter=5000)
    result = solve(DenseOperator(A, spd=False), Z, solver, random_state=0)
    assert not result.converged
    assert result.n_iter < 1000
    assert np.linalg.norm(Z - A @ result.W) < 1e-6 * np.linalg.norm(Z)


@pytest.mark.parametrize("bad", [-1, 0.5, "some"])
def test_momentum_is_checked(bad):
    with pytest.raises(ValueError, match="momentum"):
        solve(DenseOperator(np.eye(3)), np.ones((3, 1)), MatchingPursuit(2, momentum=bad))
