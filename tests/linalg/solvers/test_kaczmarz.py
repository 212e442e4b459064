from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless.linalg.operators import DenseOperator
from gramless.linalg.solvers import Kaczmarz, solve


def system(n, k, seed, log_condition=1.0):
    rng = np.random.RandomState(seed)
    U, _ = np.linalg.qr(rng.normal(size=(n, n)))
    A = (U * np.logspace(0, -log_condition, n) * rng.choice([-1, 1], n)) @ U.T
    W = rng.normal(size=(n, k))
    return A, W


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 30),
    block_size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    log_condition=st.floats(0, 4),
)
def test_distance_to_the_solution_never_grows(n, block_size, seed, log_condition):
    A, W = system(n, 2, seed, log_condition)
    distances = [np.linalg.norm(W)]
    solve(
        DenseOperator(A, spd=False),
        A @ W,
        Kaczmarz(block_size, max_iter=25, tol=1e-14),
        random_state=seed,
        callback=lambda V, record: distances.append(np.linalg.norm(V - W)) or False,
    )
    distances = np.array(distances)
    assert np.all(distances[1:] <= distances[:-1] * (1 + 1e-7) + 1e-9)


def test_single_rows_follow_the_formula():
    A, W = system(12, 3, 0)
    Z = A @ W
    x = np.zeros_like(W)
    rng = np.random.RandomState(4)
    for i in rng.permutation(12):
        x = x + np.outer(A[i], (Z[i] - A[i] @ x) / (A[i] @ A[i]))
    result = solve(DenseOperator(A, spd=False), Z, Kaczmarz(1, max_iter=12), random_state=4)
    np.testing.assert_allclose(result.W, x, atol=1e-10)


def test_blocks_follow_the_formula_on_standardised_rows():
    A, W = system(12, 3, 0)
    A = A * np.logspace(-2, 2, 12)[:, None]
    Z = A @ W
    x = np.zeros_like(W)
    for s in np.random.RandomState(4).permutation(12).reshape(3, 4):
        norms = np.linalg.norm(A[s], axis=1)[:, None]
        x = x + np.linalg.pinv(A[s] / norms) @ (Z[s] / norms - A[s] / norms @ x)
    result = solve(DenseOperator(A, spd=False), Z, Kaczmarz(4, max_iter=3), random_state=4)
    np.testing.assert_allclose(result.W, x, atol=1e-8)


def test_norm_sampling_draws_heavy_rows_more_often_and_converges():
    rng = np.random.RandomState(0)
    A = np.eye(40) + 0.03 * rng.normal(size=(40, 40))
    A[:4] *= 3
    drawn = []

    class Spy(DenseOperator):
        def rows(self, idx, out=None):
            if len(idx) < 512 and self.watching:
                drawn.extend(idx)
            return super().rows(idx, out)

    op = Spy(A, spd=False)
    op.watching = False
    W = rng.normal(size=(40, 1))
    solver = Kaczmarz(1, sampling="norm", tol=1e-6, max_iter=20_000)
    iterator = solver.steps(op, A @ W, np.zeros_like(W), rng)
    next(iterator)
    op.watching = True
    for _ in range(4000):
        step = next(iterator)
    share = np.isin(drawn, range(4)).mean()
    norms = np.linalg.norm(A, axis=1) ** 2
    assert abs(share - norms[:4].sum() / norms.sum()) < 0.03
    np.testing.assert_allclose(step.W, W, atol=1e-6)


def test_stops_when_nothing_changes_any_more():
    A, W = system(20, 1, 0)
    result = solve(DenseOperator(A, spd=False), A @ W, Kaczmarz(5, tol=1e-3, max_iter=5000), random_state=0)
    assert result.converged
    assert result.n_iter % 4 == 0
    assert 1e-6 < np.linalg.norm(result.W - W) / np.linalg.norm(W) < 0.05


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"sampling": "gaussian"}, "sampling"),
        ({"sampling": "norm"}, "block_size=1"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_settings_are_checked(bad, message):
    with pytest.raises(ValueError, match=message):
        solve(DenseOperator(np.eye(3)), np.ones((3, 1)), Kaczmarz(**{"block_size": 2, **bad}))
