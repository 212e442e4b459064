"""Every solver of the registry, on every operator, array library and precision, against a dense solution in float64.

A new solver is tested by being in the registry; only its variants worth interrupting are listed here.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from gramless._core import arrays as xa
from gramless._core.checkpoint import StateFile
from gramless._core.targets.columns import split_bias
from gramless.kernels import RBF, Precomputed
from gramless.linalg.operators import BorderedOperator, DenseOperator, KernelOperator, LinearSystem
from gramless.linalg.solvers import SOLVERS, Averaged, Status, solve

N = 60
KERNEL = RBF(gamma=0.3)
# Well conditioned, so that the slowest method of the registry converges: the contract is about the solution.
RIDGE = np.linspace(2.0, 6.0, N)
ITERATIVE = sorted(set(SOLVERS) - {"cholesky"})
RANDOMISED = sorted(set(SOLVERS) - {"cholesky", "cg"})

LIBRARIES = {
    "numpy": np.asarray,
    "torch": torch.as_tensor,
    "csr": sp.csr_matrix,
    "cuda": lambda x: torch.as_tensor(x, device="cuda"),
}
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")]
TENSORS = ["torch", pytest.param("cuda", marks=GPU)]


def points(dtype="float64") -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, 4)).astype(dtype)


def right_hand_sides(dtype="float64") -> np.ndarray:
    """Return three columns of different scales and a column of ones, which is the right-hand side of a bias."""
    rng = np.random.default_rng(1)
    return np.column_stack([rng.normal(size=(N, 2)), 100 * rng.normal(size=N), np.ones(N)]).astype(dtype)


def kernel_operator(X, *, cache=False):
    return KernelOperator(X, KERNEL, RIDGE, cache=cache)


def precomputed(X):
    return KernelOperator(KERNEL(X, X), Precomputed(), RIDGE)


OPERATORS = {
    "dense": lambda X: DenseOperator(kernel_operator(X).dense()),
    "streamed": kernel_operator,
    "cached": lambda X: kernel_operator(X, cache=True),
    "precomputed": precomputed,
    "bordered streamed": lambda X: BorderedOperator(kernel_operator(X)),
    "bordered cached": lambda X: BorderedOperator(kernel_operator(X, cache=True)),
    "bordered precomputed": lambda X: BorderedOperator(precomputed(X)),
}
PLACES = [
    pytest.param(operator, library, marks=GPU if library == "cuda" else ())
    for operator in OPERATORS
    for library in LIBRARIES
    if library != "csr" or "precomputed" not in operator
]


def problem(operator, library="numpy", dtype="float64"):
    op = OPERATORS[operator](LIBRARIES[library](points(dtype)))
    return op, LIBRARIES["numpy" if library == "csr" else library](targets(op, dtype))


def targets(op, dtype="float64") -> np.ndarray:
    """Return the right-hand sides for the operator: a bordered one has a row of zeros in addition."""
    Z = right_hand_sides(dtype)
    return np.vstack([Z, np.zeros_like(Z[:1])]) if isinstance(op, BorderedOperator) else Z


def make(name: str, tol: float, **settings):
    """Return the solver with a tolerance and without a limit of iterations."""
    known = SOLVERS[name]._get_param_names()
    # A solver without a tolerance is exact only if its block is the full matrix including the border.
    defaults = {"tol": tol, "max_iter": 20_000, "block_size": N // 2 if "tol" in known else N + 1, "n_members": 2}
    return SOLVERS[name](**{key: value for key, value in (defaults | settings).items() if key in known})


def exact(operator="streamed", dtype="float64") -> np.ndarray:
    """Return the solution for points rounded to `dtype`."""
    op = OPERATORS[operator](points(dtype).astype(np.float64))
    return np.linalg.solve(op.rows(np.arange(op.shape[0])), targets(op, dtype).astype(np.float64))


@pytest.mark.parametrize(("dtype", "tol", "error"), [("float64", 1e-11, 1e-7), ("float32", 1e-6, 2e-4)])
@pytest.mark.parametrize(("operator", "library"), PLACES)
@pytest.mark.parametrize("name", SOLVERS)
def test_solution_equals_dense_solution(name, operator, library, dtype, tol, error):
    op, Z = problem(operator, library, dtype)
    solver = make(name, tol)
    if not set(solver.requires) <= op.capabilities:
        lacking = (
            rf"{type(solver).__name__} needs 'spd'.* which BorderedOperator does not have.* enough for .*MatchingPursuit"
        )
        with pytest.raises(TypeError, match=lacking):
            solve(op, Z, solver, random_state=0)
        return
    result = solve(op, Z, solver, random_state=0)
    assert result.converged, result.message
    assert type(result.W) is type(Z)
    assert xa.device_of(result.W) == xa.device_of(Z)
    assert xa.numpy_dtype(result.W) == np.dtype(dtype)
    expected = exact(operator, dtype)
    wrong = np.linalg.norm(xa.to_numpy(result.W) - expected, axis=0)
    assert (wrong <= error * np.linalg.norm(expected, axis=0)).all()


@pytest.mark.parametrize("library", TENSORS)
@pytest.mark.parametrize("name", SOLVERS)
def test_iterates_of_numpy_and_torch_agree(name, library):
    """Random blocks are equal, so iterates of the same step agree up to accumulated rounding errors."""
    answers, counts = [], []
    for place in ("numpy", library):
        result = solve(*problem("streamed", place), make(name, 1e-3), random_state=3)
        answers.append(xa.to_numpy(result.W))
        counts.append(result.n_iter)
    assert counts[0] == counts[1]
    assert np.linalg.norm(answers[1] - answers[0]) <= 1e-7 * np.linalg.norm(answers[0])


@pytest.mark.parametrize("library", TENSORS)
@pytest.mark.parametrize("name", RANDOMISED)
def test_blocks_of_numpy_and_torch_are_equal(name, library):
    """Compare long before convergence, with a bordered system if the method supports it."""
    operator = "streamed" if "spd" in SOLVERS[name].requires else "bordered streamed"
    solver = make(name, 1e-9, block_size=10, max_iter=7, n_members=7)
    ours, theirs = (xa.to_numpy(solve(*problem(operator, p), solver, random_state=5).W) for p in ("numpy", library))
    np.testing.assert_allclose(theirs, ours, rtol=1e-8, atol=1e-9 * np.abs(ours).max())


@pytest.mark.parametrize("name", SOLVERS)
def test_same_seed_gives_equal_bits(name):
    runs = [solve(*problem("streamed"), make(name, 1e-3), random_state=5).W for _ in range(2)]
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("name", SOLVERS)
def test_input_is_unchanged(name):
    Z, W0 = right_hand_sides(), np.ones((N, 4))
    solve(kernel_operator(points()), Z, make(name, 1e-3), W0=W0, random_state=0)
    np.testing.assert_array_equal(Z, right_hand_sides())
    np.testing.assert_array_equal(W0, np.ones((N, 4)))


@pytest.mark.parametrize("name", SOLVERS)
def test_history_has_every_iteration(name):
    result = solve(*problem("streamed"), make(name, 1e-5), random_state=0)
    assert [record["n_iter"] for record in result.history] == list(range(1, result.n_iter + 1))
    seconds = [record["seconds"] for record in result.history]
    assert seconds == sorted(seconds)
    assert all(np.isfinite(record["residual"]) for record in result.history)
    assert result.history[-1]["residual"] == result.residual


@pytest.mark.parametrize("name", SOLVERS)
def test_callback_stops_solver(name):
    seen = []

    def stop(W, record):
        seen.append(record["n_iter"])
        record["mark"] = 7
        return True

    result = solve(*problem("streamed"), make(name, 1e-6), callback=stop, random_state=0)
    assert seen == [1]
    assert result.n_iter == 1
    assert result.status in (Status.STOPPED, Status.CONVERGED)
    assert result.converged == (result.status is Status.CONVERGED)
    assert result.history[0]["mark"] == 7


class Killed(Exception):
    pass


INTERRUPTED = {name: make(name, 1e-12, block_size=10, max_iter=23, n_members=23) for name in SOLVERS} | {
    "kaczmarz reusing": SOLVERS["kaczmarz"](block_size=10, reuse_blocks=True, max_iter=23),
    "kaczmarz rows": SOLVERS["kaczmarz"](block_size=1, max_iter=70),
    "kaczmarz norms": SOLVERS["kaczmarz"](block_size=1, sampling="norm", max_iter=70),
    "matching_pursuit with momentum": SOLVERS["matching_pursuit"](block_size=10, momentum=3, max_iter=23),
    "matching_pursuit reusing": SOLVERS["matching_pursuit"](block_size=10, reuse_blocks=True, max_iter=23),
    "averaged": Averaged(SOLVERS["matching_pursuit"](momentum=1, max_iter=12), n_runs=2, block_size=[8, 12]),
}


@pytest.mark.parametrize("library", ["numpy", *TENSORS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("killed_at", "every"), [(5, 1), (13, 2)])
@pytest.mark.parametrize("case", INTERRUPTED)
def test_resumed_solution_equals_uninterrupted_solution(case, killed_at, every, dtype, library, tmp_path):
    """Interrupt at one iteration and at several later ones, resume each time, and run to the end."""
    solver = INTERRUPTED[case]
    op, Z = problem("streamed" if "spd" in solver.requires else "bordered streamed", library, dtype)
    whole = solve(op, Z, solver, random_state=7)
    path = tmp_path / "state.npz"

    def run(seed, last):
        def kill(W, record):
            if record["n_iter"] == last:
                raise Killed

        return solve(op, Z, solver, random_state=seed, checkpoint=StateFile(path, "p", every=every), callback=kill)

    seed = 7
    for last in range(min(killed_at, whole.n_iter - 2), whole.n_iter, every + 1)[:4]:
        if last > every:  # before that, no checkpoint exists
            with pytest.raises(Killed):
                run(seed, last)
            assert path.exists()
            seed += 1  # the result must depend on the saved state only
    resumed = run(seed, None)
    assert xa.to_numpy(resumed.W).tobytes() == xa.to_numpy(whole.W).tobytes()
    assert resumed.n_iter == whole.n_iter
    assert [r["residual"] for r in resumed.history] == [r["residual"] for r in whole.history]
    assert not path.exists(), "a finished solve leaves no checkpoint behind"


@pytest.mark.parametrize("name", ITERATIVE)
def test_runs_are_longer_than_interruptions(name):
    operator = "streamed" if "spd" in SOLVERS[name].requires else "bordered streamed"
    assert solve(*problem(operator), INTERRUPTED[name], random_state=7).n_iter > 13


@pytest.mark.parametrize("name", SOLVERS)
def test_warm_start(name):
    solver = make(name, 1e-5)
    op, Z = problem("streamed")
    cold = solve(op, Z, solver, random_state=0)
    warm = solve(op, Z, solver, W0=cold.W, random_state=0)
    assert warm.converged
    assert warm.n_iter <= cold.n_iter
    np.testing.assert_allclose(warm.W, exact(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", SOLVERS)
def test_clone_and_repr(name):
    solver = make(name, 1e-5)
    assert repr(clone(solver)) == repr(solver)


@pytest.mark.parametrize("name", SOLVERS)
def test_zero_targets_give_zero_solution(name):
    result = solve(kernel_operator(points()), np.zeros((N, 2)), make(name, 1e-5), random_state=0)
    np.testing.assert_array_equal(result.W, 0.0)
    assert result.converged


@pytest.mark.parametrize("name", SOLVERS)
def test_linearly_dependent_columns(name):
    """Duplicate and proportional targets do not break methods that share directions among columns."""
    z = np.random.default_rng(3).normal(size=(N, 1))
    Z = np.hstack([z, z, -2 * z, np.zeros_like(z)])
    op = kernel_operator(points())
    result = solve(op, Z, make(name, 1e-6), random_state=0)
    np.testing.assert_allclose(result.W, np.linalg.solve(op.dense(), Z), atol=1e-4)


@pytest.mark.parametrize("name", [name for name, cls in SOLVERS.items() if "spd" not in cls.requires])
def test_bordered_system_equals_system_with_extra_column(name):
    """`Theta W = Z` and `A [V, u] = [Z, 1]` give the same model with every solver."""
    Z = right_hand_sides()[:, :2]
    op = kernel_operator(points())
    system, solver = LinearSystem(op, Z, bordered=True), make(name, 1e-10)
    coef, bias = system.split(solve(system.op, system.rhs, solver, random_state=0).W)
    expected_coef, expected_bias = split_bias(solve(op, np.column_stack([Z, np.ones(N)]), solver, random_state=0).W)
    np.testing.assert_allclose(coef, expected_coef, atol=1e-7)
    np.testing.assert_allclose(bias, expected_bias, atol=1e-7)
    np.testing.assert_allclose(coef.sum(0), 0, atol=1e-7)
