"""The hybrid, the committee and the mean of runs, each against its formula written with pseudo-inverses."""

from __future__ import annotations

import numpy as np
import pytest

from gramless.linalg.operators import DenseOperator
from gramless.linalg.solvers import Averaged, Kaczmarz, KaczmarzMP, MatchingPursuit, NystromCommittee, Status, solve


def symmetric(n, seed, log_condition=1.0):
    rng = np.random.RandomState(seed)
    U, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (U * np.logspace(0, -log_condition, n) * rng.choice([-1, 1], n)) @ U.T


A = symmetric(12, 0)
Z = np.random.RandomState(1).normal(size=(12, 2))
OP = DenseOperator(A, spd=False)


def test_hybrid_follows_its_reading():
    W, R = np.zeros_like(Z), Z.copy()
    for s in np.random.RandomState(4).permutation(12).reshape(3, 4):
        W = W + np.linalg.pinv(A[s]) @ (Z[s] - A[s] @ W)
        Q = np.linalg.pinv(A[:, s]) @ R
        W[s] += Q
        R = R - A[:, s] @ Q  # the pursuit's own residual, not Z - A W
    result = solve(OP, Z, KaczmarzMP(4, max_iter=3), random_state=4)
    np.testing.assert_allclose(result.W, W, atol=1e-8)
    assert result.history[-1]["pursuit_residual"] == pytest.approx(np.linalg.norm(R) / np.linalg.norm(Z))


def test_hybrid_converges_where_the_true_residual_would_diverge():
    big = symmetric(60, 5, 1.5)
    op, targets = DenseOperator(big, spd=False), np.random.RandomState(1).normal(size=(60, 2))
    result = solve(op, targets, KaczmarzMP(20, tol=1e-6, max_iter=20_000), random_state=0)
    assert result.converged
    np.testing.assert_allclose(result.W, np.linalg.solve(big, targets), rtol=1e-3, atol=1e-3)
    # The other reading, to show that the choice matters.
    W, sizes = np.zeros_like(targets), []
    rng = np.random.RandomState(0)
    for _ in range(40):
        for s in rng.permutation(60).reshape(3, 20):
            W = W + np.linalg.pinv(big[s]) @ (targets[s] - big[s] @ W)
            W[s] += np.linalg.pinv(big[:, s]) @ (targets - big @ W)
        sizes.append(np.linalg.norm(targets - big @ W))
    assert sizes[-1] > 10 * result.residual * np.linalg.norm(targets)


def test_members_follow_their_formula():
    order = np.random.RandomState(4).permutation(12)
    members = []
    for s in (order[:5], order[5:10]):
        C, M = A[:, s], A[np.ix_(s, s)]
        members.append(np.linalg.pinv(C.T) @ M @ np.linalg.pinv(C) @ Z)
    result = solve(OP, Z, NystromCommittee(5, n_members=2), random_state=4)
    np.testing.assert_allclose(result.W, np.mean(members, axis=0), atol=1e-8)
    assert result.converged
    assert result.n_iter == 2


@pytest.mark.parametrize("solver", [Kaczmarz, MatchingPursuit, KaczmarzMP])
def test_mean_is_the_mean_of_the_runs(solver):
    runs = [solver(size, max_iter=4) for size in (4, 6)]
    rng = np.random.RandomState(4)
    separate = [solve(OP, Z, run, random_state=rng).W for run in runs]
    result = solve(OP, Z, Averaged(solver(max_iter=4), n_runs=2, block_size=[4, 6]), random_state=4)
    np.testing.assert_allclose(result.W, np.mean(separate, axis=0), atol=1e-12)
    assert result.n_iter == 8
    assert [record["run"] for record in result.history] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not result.converged


def test_mean_converges_when_every_run_does():
    result = solve(OP, Z, Averaged(Kaczmarz(4, tol=1e-6, max_iter=1000), n_runs=2), random_state=0)
    assert result.converged
    np.testing.assert_allclose(result.W, np.linalg.solve(A, Z), atol=1e-3)


def test_a_run_that_did_not_converge_is_reported_though_the_last_one_did():
    result = solve(OP, Z, Averaged(Kaczmarz(tol=1e-3, max_iter=2), n_runs=2, block_size=[4, 12]), random_state=0)
    assert result.residual < 1e-3
    assert not result.converged
    assert result.status is Status.RUNS_NOT_CONVERGED
    assert result.message == "not all runs converged within their iterations"
