"""Sketch-and-project: exact in the limit, faster with momentum, never silently divergent."""

from __future__ import annotations

import numpy as np
import pytest

from gramless.kernels import RBF
from gramless.linalg.operators import KernelOperator
from gramless.linalg.solvers import SketchProject, solve
from gramless.linalg.solvers.sketch_project import _draw


def system(n, ridge):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    return KernelOperator(X, RBF(0.2), ridge=ridge, cache=True), rng.normal(size=(n, 3))


def test_reaches_the_residual_it_reports():
    op, Z = system(240, 0.05)
    result = solve(op, Z, SketchProject(tol=1e-3, block_size=60), random_state=0)
    true = np.linalg.norm(Z - op @ result.W) / np.linalg.norm(Z)
    assert result.converged
    assert true < 3e-3


def test_momentum_pays():
    op, Z = system(120, 0.03)
    plain, fast = (
        solve(op, Z, SketchProject(tol=0.03, block_size=20, momentum=momentum), random_state=0) for momentum in (False, True)
    )
    assert plain.converged
    assert fast.converged
    assert fast.n_iter < 0.8 * plain.n_iter


def test_too_much_momentum_is_taken_back():
    op, Z = system(500, 0.01)
    # A state with a curvature far below the true one is momentum without bound; the guard has to raise it.
    zero = np.zeros_like(Z)
    state = {"V": zero, "U": zero, "mu": 1e-12, "smooth": 0.0, "best": np.inf, "count": 0}
    steps = SketchProject(tol=1e-2, block_size=100).steps(op, Z, zero, np.random.RandomState(0), state)
    for count, step in enumerate(steps, start=1):
        if step.status or count == 3000:
            break
    assert step.status
    assert step.info["mu"] > 1e-12


@pytest.mark.parametrize(("n", "b"), [(1000, 900), (1000, 250), (100_000, 300), (5, 1)])
def test_blocks_are_drawn_without_replacement_and_evenly(n, b):
    rng = np.random.RandomState(0)
    blocks = [_draw(n, b, rng) for _ in range(40)]
    assert all(len(np.unique(block)) == b and block.min() >= 0 and block.max() < n for block in blocks)
    # The mean of 40 b even draws, within five standard deviations.
    assert abs(np.mean(blocks) / (n - 1) - 0.5) < 5 / np.sqrt(12 * 40 * b)


def test_a_matrix_without_a_ridge_has_steps_too():
    X = np.random.default_rng(0).normal(size=(300, 2))
    op = KernelOperator(X, RBF(gamma=50.0))
    result = solve(op, np.ones((300, 1)), SketchProject(tol=1e-2, block_size=100), random_state=0)
    assert result.converged
    assert np.linalg.norm(op @ result.W - 1) < 0.05 * 300**0.5


def test_block_sizes_are_positive():
    op = KernelOperator(np.eye(3), RBF(gamma=1.0), 1.0)
    for bad in (0, -5, 2.5):
        with pytest.raises(ValueError, match="'block_size' parameter"):
            solve(op, np.ones((3, 1)), SketchProject(block_size=bad))
