"""What is conjugate gradients' own: the number of iterations."""

import numpy as np
import pytest

from gramless._core.targets.columns import class_targets
from gramless.kernels import RBF
from gramless.linalg.operators import DenseOperator, KernelOperator
from gramless.linalg.operators.nystrom import LocalColumns, NystromPreconditioner
from gramless.linalg.solvers import CG, solve


@pytest.fixture(scope="module")
def digits(digits):
    X, y = digits
    return X[:900], np.column_stack([class_targets(y[:900], 10), np.ones(900)])


@pytest.mark.parametrize(("dtype", "tol", "limit"), [("float32", 1e-3, 26), ("float64", 1e-6, 36)])
def test_directions_made_by_rounding_are_dropped(digits, dtype, tol, limit):
    """With them it takes 40 iterations in float32 and over 100 in float64; without, 22 and 31."""
    X, Z = digits
    op = KernelOperator(X.astype(dtype), RBF(gamma=0.2), 0.1, cache=True)
    assert solve(op, Z.astype(dtype), CG(tol=tol)).n_iter <= limit


def test_as_many_iterations_as_distinct_eigenvalues():
    A = np.diag(np.repeat([1.0, 3.0, 10.0, 50.0], 10))
    assert solve(DenseOperator(A), np.ones((40, 1)), CG(tol=1e-10)).n_iter == 4


def test_columns_share_what_they_learn():
    """A block of k columns searches k directions in each iteration: n / k of them are enough."""
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(60, 60)))
    op = DenseOperator(Q @ np.diag(np.linspace(1, 1000, 60)) @ Q.T)
    Z = rng.normal(size=(60, 10))
    together = solve(op, Z, CG(tol=1e-8)).n_iter
    alone = solve(op, Z[:, :1], CG(tol=1e-8)).n_iter
    assert together <= 8
    assert alone > 20


@pytest.mark.parametrize("store", [True, False])
def test_the_preconditioner_is_the_inverse_it_says(digits, store):
    """`P^-1` from the Woodbury formula against the dense matrix `K_ns K_ss^-1 K_sn + D`."""
    X, _ = digits
    X, kernel, landmarks = X[:200], RBF(gamma=0.2), np.arange(0, 200, 8)
    ridge = np.linspace(0.05, 0.2, 200)
    columns = LocalColumns(X, kernel, landmarks, store=store)
    P = NystromPreconditioner(columns, ridge, damping=0.3, rng=np.random.RandomState(0))
    K_ns, K_ss = kernel(X, X[landmarks]), kernel(X[landmarks], X[landmarks])
    dense = K_ns @ np.linalg.solve(K_ss, K_ns.T) + np.diag(ridge + 0.3)
    V = np.random.default_rng(0).normal(size=(200, 3))
    np.testing.assert_allclose(P @ V, np.linalg.solve(dense, V), rtol=1e-6, atol=1e-6)


def test_the_automatic_damping_is_the_mean_of_what_is_left_out(digits):
    X, _ = digits
    X, kernel, landmarks = X[:300], RBF(gamma=0.2), np.arange(60)
    columns = LocalColumns(X, kernel, landmarks)
    P = NystromPreconditioner(columns, np.full(300, 1e-4), rng=np.random.RandomState(0))
    K_ns, K_ss = kernel(X, X[landmarks]), kernel(X[landmarks], X[landmarks])
    left_out = 300 - np.trace(K_ns @ np.linalg.solve(K_ss, K_ns.T))
    assert P.damping == pytest.approx(left_out / 240, rel=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_more_columns_than_rows_go_to_the_last_digit(n, dtype):
    """The first directions span the whole space: nothing is new in what rounding leaves over."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        B = rng.normal(size=(n, n))
        A = (B @ B.T + np.eye(n)).astype(dtype)
        Z = rng.normal(size=(n, 13)).astype(dtype)
        result = solve(DenseOperator(A), Z, CG(tol=1e-30, max_iter=30))
        np.testing.assert_allclose(A @ result.W, Z, atol=100 * np.finfo(dtype).eps * np.abs(A).max())
