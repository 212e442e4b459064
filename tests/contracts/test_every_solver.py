"""Every solver in the registry against a dense float64 solution, on every operator and array library."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from gramless import _array as xa
from gramless.kernels import RBF, Polynomial
from gramless.operators import DenseOperator, KernelOperator
from gramless.solvers import SOLVERS, Checkpoint, solve

N = 90
KERNEL = RBF(gamma=0.3)
# Well conditioned, so that the slowest method in the registry gets to the end: the contract is about the answer.
RIDGE = np.linspace(0.5, 2.0, N)


def points(n: int = N) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 4))


def right_hand_sides() -> np.ndarray:
    """Three columns and, as for a bias, one of ones; columns of different scales."""
    rng = np.random.default_rng(1)
    return np.column_stack([rng.normal(size=(N, 2)), 100 * rng.normal(size=N), np.ones(N)])


def numpy_array(X, dtype):
    return X.astype(dtype)


def torch_array(X, dtype):
    return torch.as_tensor(X.astype(dtype))


def csr_array(X, dtype):
    return sp.csr_matrix(X.astype(dtype))


OPERATORS = {
    "streamed": lambda X: KernelOperator(X, KERNEL, RIDGE),
    "cached": lambda X: KernelOperator(X, KERNEL, RIDGE, cache=True),
    "dense": lambda X: DenseOperator(KernelOperator(X, KERNEL, RIDGE).dense()),
}
ARRAYS = {"numpy": numpy_array, "torch": torch_array, "csr": csr_array}
TOLERANCES = {"float64": 1e-7, "float32": 1e-4}


def make(name: str, tol: float):
    """The solver with a tolerance and as many iterations as it likes."""
    cls = SOLVERS[name]
    # One that does not iterate to a tolerance is exact only where its block is the whole matrix.
    settings = {"tol": tol, "max_iter": 20_000, "block_size": 30 if "tol" in cls._get_param_names() else N, "n_members": 2}
    return cls(**{key: value for key, value in settings.items() if key in cls._get_param_names()})


def exact(dtype) -> np.ndarray:
    X = points().astype(dtype).astype(np.float64)
    return np.linalg.solve(KernelOperator(X, KERNEL, RIDGE).dense(), right_hand_sides())


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", SOLVERS)
def test_equals_the_dense_solution(name, operator, array, dtype):
    X = ARRAYS[array](points(), dtype)
    op = OPERATORS[operator](X)
    Z = xa.to_device(right_hand_sides().astype(dtype), "torch:cpu" if array == "torch" else "cpu")
    tol = TOLERANCES[dtype]
    result = solve(op, Z, make(name, tol), random_state=0)
    assert result.converged, result.message
    assert isinstance(result.W, torch.Tensor if array == "torch" else np.ndarray)
    assert xa.numpy_dtype(result.W) == np.dtype(dtype)
    W = xa.to_numpy(result.W).astype(np.float64)
    reference = exact(dtype)
    dense = KernelOperator(points(), KERNEL, RIDGE).dense()
    bound = 3 * np.linalg.cond(dense) * tol
    assert np.linalg.norm(W - reference) <= bound * np.linalg.norm(reference)


@pytest.mark.parametrize("name", SOLVERS)
def test_numpy_and_torch_take_the_same_path(name):
    """The same random blocks, so the same answer long before convergence; iterations may carry rounding on, not more."""
    answers, counts = [], []
    for array in (numpy_array, torch_array):
        solver = make(name, 1e-3)
        op = KernelOperator(array(points(), np.float64), KERNEL, RIDGE)
        result = solve(op, array(right_hand_sides(), np.float64), solver, random_state=3)
        answers.append(xa.to_numpy(result.W))
        counts.append(result.n_iter)
    assert counts[0] == counts[1]
    assert np.linalg.norm(answers[1] - answers[0]) <= 1e-7 * np.linalg.norm(answers[0])


@pytest.mark.parametrize("name", SOLVERS)
def test_same_seed_same_bits(name):
    runs = [
        solve(KernelOperator(points(), KERNEL, RIDGE), right_hand_sides(), make(name, 1e-3), random_state=5).W
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("name", SOLVERS)
def test_leaves_its_input_alone(name):
    Z, W0 = right_hand_sides(), np.ones((N, 4))
    solve(KernelOperator(points(), KERNEL, RIDGE), Z, make(name, 1e-3), W0=W0, random_state=0)
    np.testing.assert_array_equal(Z, right_hand_sides())
    np.testing.assert_array_equal(W0, np.ones((N, 4)))


@pytest.mark.parametrize("name", SOLVERS)
def test_the_history_counts_every_iteration(name):
    result = solve(KernelOperator(points(), KERNEL, RIDGE), right_hand_sides(), make(name, 1e-5), random_state=0)
    assert [record["n_iter"] for record in result.history] == list(range(1, result.n_iter + 1))
    seconds = [record["seconds"] for record in result.history]
    assert seconds == sorted(seconds)
    assert all(np.isfinite(record["residual"]) for record in result.history)
    assert result.history[-1]["residual"] == result.residual


@pytest.mark.parametrize("name", SOLVERS)
def test_a_callback_stops_it(name):
    seen = []

    def stop(W, record):
        seen.append(record["n_iter"])
        record["mark"] = 7
        return True

    result = solve(
        KernelOperator(points(), KERNEL, RIDGE), right_hand_sides(), make(name, 1e-6), callback=stop, random_state=0
    )
    assert seen == [1]
    assert result.n_iter == 1
    assert result.history[0]["mark"] == 7


@pytest.mark.parametrize("name", SOLVERS)
def test_goes_on_bit_for_bit_from_a_checkpoint(name, tmp_path):
    """Interrupted right after each save: the rest is what an uninterrupted solve does."""

    class Killed(Exception):
        pass

    def run(checkpoint=None, callback=None):
        op = KernelOperator(points(), KERNEL, RIDGE)
        return solve(op, right_hand_sides(), make(name, 1e-6), random_state=9, checkpoint=checkpoint, callback=callback)

    whole = run()
    path = tmp_path / "state.npz"
    attempts = 0
    while True:
        calls = 0

        def die_after_two(W, record):
            nonlocal calls
            calls += 1
            if calls > 2:
                raise Killed

        attempts += 1
        try:
            resumed = run(Checkpoint(path, "this problem", every=1), die_after_two)
            break
        except Killed:
            assert path.exists()
        assert attempts < whole.n_iter + 2
        if attempts == 6:  # enough interruptions; the last leg runs through
            resumed = run(Checkpoint(path, "this problem", every=1))
            break
    np.testing.assert_array_equal(resumed.W, whole.W)
    assert resumed.n_iter == whole.n_iter
    assert [r["residual"] for r in resumed.history] == [r["residual"] for r in whole.history]
    assert not path.exists(), "a finished solve leaves no checkpoint behind"


@pytest.mark.parametrize("name", SOLVERS)
def test_starts_from_a_given_point(name):
    solver = make(name, 1e-5)
    op = KernelOperator(points(), KERNEL, RIDGE)
    cold = solve(op, right_hand_sides(), solver, random_state=0)
    warm = solve(op, right_hand_sides(), solver, W0=cold.W, random_state=0)
    assert warm.converged
    assert warm.n_iter <= cold.n_iter
    np.testing.assert_allclose(warm.W, exact(np.float64), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", SOLVERS)
def test_clones_and_prints(name):
    solver = make(name, 1e-5)
    assert repr(clone(solver)) == repr(solver)


@pytest.mark.parametrize("name", [name for name, cls in SOLVERS.items() if cls.needs_spd])
def test_says_when_the_operator_is_not_for_it(name):
    with pytest.raises(ValueError, match="needs a symmetric positive definite operator"):
        solve(DenseOperator(np.eye(3), spd=False), np.ones((3, 1)), make(name, 1e-3))


@pytest.mark.parametrize("name", SOLVERS)
def test_zero_right_hand_sides_have_the_zero_solution(name):
    result = solve(KernelOperator(points(), KERNEL, RIDGE), np.zeros((N, 2)), make(name, 1e-5), random_state=0)
    np.testing.assert_array_equal(result.W, 0.0)
    assert result.converged


@pytest.mark.parametrize("name", SOLVERS)
def test_dependent_and_equal_columns(name):
    """Duplicate and proportional right-hand sides must not break methods that share directions among columns."""
    z = np.random.default_rng(3).normal(size=(N, 1))
    Z = np.hstack([z, z, -2 * z, np.zeros_like(z)])
    op = KernelOperator(points(), KERNEL, RIDGE)
    result = solve(op, Z, make(name, 1e-6), random_state=0)
    np.testing.assert_allclose(result.W, np.linalg.solve(op.dense(), Z), atol=1e-4)


@pytest.mark.parametrize("cache", [False, True], ids=["streamed", "cached"])
@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("n", [1, 90, 2500])
def test_the_kernel_operator_is_the_dense_matrix(n, array, cache):
    """Products, rows and diagonal across several tiles."""
    rng = np.random.default_rng(0)
    X = points(n)
    kernel = Polynomial(degree=3, gamma=0.2, coef0=1.0)
    ridge = rng.random(n)
    dense = kernel(X, X) + np.diag(ridge)
    op = KernelOperator(ARRAYS[array](X, np.float64), kernel, ridge, cache=cache)
    V = rng.normal(size=(n, 3))
    given = torch.as_tensor(V) if array == "torch" else V
    for _ in range(2):  # the second time from the cache
        np.testing.assert_allclose(xa.to_numpy(op @ given), dense @ V, rtol=1e-9, atol=1e-9)
    idx = rng.integers(0, n, size=7)
    np.testing.assert_allclose(xa.to_numpy(op.rows(idx)), dense[idx], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(xa.to_numpy(op.diag()), np.diagonal(dense), rtol=1e-9)
    np.testing.assert_allclose(xa.to_numpy(op.dense()), dense, rtol=1e-9, atol=1e-9)
