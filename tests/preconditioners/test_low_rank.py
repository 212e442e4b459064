"""A partial Cholesky factor as a preconditioner."""

from __future__ import annotations

import numpy as np
import pytest

from gramless.kernels import RBF
from gramless.landmarks import RPCholesky
from gramless.operators import KernelOperator
from gramless.preconditioners.low_rank import LowRankPreconditioner
from gramless.solvers import CG, solve


@pytest.mark.parametrize("torch_input", [False, True])
def test_inverse_of_factor_and_diagonal(torch_input):
    rng = np.random.default_rng(0)
    F, ridge, V = rng.normal(size=(50, 6)), rng.uniform(0.5, 2, size=50), rng.normal(size=(50, 3))
    expected = np.linalg.solve(F @ F.T + np.diag(ridge + 0.1), V)
    if torch_input:
        torch = pytest.importorskip("torch")
        F, ridge, V = map(torch.as_tensor, (F, ridge, V))
    np.testing.assert_allclose(np.asarray(LowRankPreconditioner(F, ridge, 0.1) @ V), expected, atol=1e-10)


def test_conjugate_gradients_need_fewer_iterations():
    X = np.random.default_rng(0).normal(size=(600, 3))
    kernel, ridge = RBF(gamma=0.2), 1e-3
    op, Z = KernelOperator(X, kernel, ridge), np.sign(X[:, :1])
    _, F = RPCholesky().factor(X, kernel, 100, np.random.RandomState(0))
    damping = (len(X) - (F**2).sum()) / len(X)
    plain = solve(op, Z, CG(tol=1e-8, max_iter=500))
    helped = solve(op, Z, CG(tol=1e-8, max_iter=500, preconditioner=LowRankPreconditioner(F, ridge, damping)))
    assert helped.converged
    assert helped.n_iter < 0.25 * plain.n_iter
    np.testing.assert_allclose(op @ helped.W, Z, atol=1e-6)
