"""Every solver of the registry, on every operator and array library, against a dense solution in float64."""

from __future__ import annotations

import numpy as np
import pytest

from gramless import _array as xa
from gramless.kernels import RBF, Precomputed
from gramless.operators import BorderedOperator, DenseOperator, KernelOperator
from gramless.solvers import SOLVERS, Averaged, Checkpoint, solve

torch = pytest.importorskip("torch")

N = 48

# How each solver is asked for an accurate solution of a small system. A solver without an entry fails the contract.
ACCURATE = {
    "cholesky": {},
    "cg": {"tol": 1e-10},
    "kaczmarz": {"block_size": 16, "tol": 1e-10, "max_iter": 2000},
    "matching_pursuit": {"block_size": 16, "tol": 1e-10, "max_iter": 2000},
    "kaczmarz_mp": {"block_size": 16, "tol": 1e-10, "max_iter": 2000},
    "sketch_project": {"block_size": 16, "tol": 1e-10, "max_iter": 5000},
    "nystrom_committee": {"block_size": N + 1, "n_members": 2},  # a member that sees every column is exact
}
LIBRARIES = {
    "numpy": np.asarray,
    "torch": lambda x: torch.as_tensor(np.asarray(x)),
    "cuda": lambda x: torch.as_tensor(np.asarray(x), device="cuda"),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
HERE = ["numpy", "torch", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]


def data():
    rng = np.random.RandomState(3)
    return rng.normal(size=(N, 4)), rng.normal(size=(N, 3))


def ridge():
    return np.linspace(0.5, 1.0, N)


def kernel_operator(cast, *, cache):
    return KernelOperator(cast(data()[0]), RBF(gamma=0.3), ridge(), cache=cache)


def precomputed(cast):
    X = data()[0]
    return KernelOperator(cast(RBF(gamma=0.3)(X, X)), Precomputed(), ridge())


OPERATORS = {
    "dense": lambda cast: DenseOperator(cast(kernel_operator(np.asarray, cache=False).dense())),
    "streamed": lambda cast: kernel_operator(cast, cache=False),
    "cached": lambda cast: kernel_operator(cast, cache=True),
    "precomputed": precomputed,
    "bordered streamed": lambda cast: BorderedOperator(kernel_operator(cast, cache=False)),
    "bordered cached": lambda cast: BorderedOperator(kernel_operator(cast, cache=True)),
    "bordered precomputed": lambda cast: BorderedOperator(precomputed(cast)),
}


def problem(operator, library):
    cast = LIBRARIES[library]
    op = OPERATORS[operator](cast)
    Z = cast(data()[1])
    return op, op.targets(Z) if isinstance(op, BorderedOperator) else Z


@pytest.mark.parametrize("library", HERE)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", SOLVERS)
def test_solution_is_the_dense_one(name, operator, library):
    solver = SOLVERS[name](**ACCURATE[name])
    op, Z = problem(operator, library)
    if solver.needs_spd and not op.spd:
        with pytest.raises(ValueError, match="positive definite"):
            solve(op, Z, solver, random_state=0)
        return
    result = solve(op, Z, solver, random_state=0)
    expected = np.linalg.solve(xa.to_numpy(op.dense()), xa.to_numpy(Z))
    assert result.converged
    assert xa.device_of(result.W) == xa.device_of(Z)
    np.testing.assert_allclose(xa.to_numpy(result.W), expected, atol=1e-7)


@pytest.mark.parametrize("name", SOLVERS)
def test_float32_is_as_good_as_float32_can_be(name):
    X, Z = data()
    op = KernelOperator(X.astype(np.float32), RBF(gamma=0.3), ridge())
    solver = SOLVERS[name](**{key: 1e-5 if key == "tol" else value for key, value in ACCURATE[name].items()})
    result = solve(op, Z.astype(np.float32), solver, random_state=0)
    assert result.W.dtype == np.float32
    expected = np.linalg.solve(op.dense(np.float64), Z)
    assert np.linalg.norm(result.W - expected) < 2e-4 * np.linalg.norm(expected)


class Killed(Exception):
    pass


RESUMED = {
    "cg": SOLVERS["cg"](tol=1e-12),
    "kaczmarz": SOLVERS["kaczmarz"](block_size=10, max_iter=23),
    "kaczmarz reusing": SOLVERS["kaczmarz"](block_size=10, reuse_blocks=True, max_iter=23),
    "kaczmarz rows": SOLVERS["kaczmarz"](block_size=1, max_iter=70),
    "kaczmarz norms": SOLVERS["kaczmarz"](block_size=1, sampling="norm", max_iter=70),
    "matching_pursuit": SOLVERS["matching_pursuit"](block_size=10, momentum=3, max_iter=23),
    "matching_pursuit reusing": SOLVERS["matching_pursuit"](block_size=10, reuse_blocks=True, max_iter=23),
    "kaczmarz_mp": SOLVERS["kaczmarz_mp"](block_size=10, max_iter=23),
    "nystrom_committee": SOLVERS["nystrom_committee"](block_size=10, n_members=23),
    "sketch_project": SOLVERS["sketch_project"](block_size=10, max_iter=23),
    "averaged": Averaged([SOLVERS["matching_pursuit"](block_size=b, momentum=1, max_iter=12) for b in (8, 12)]),
}


def test_every_iterative_solver_is_killed_and_resumed():
    assert set(SOLVERS) - {"cholesky"} <= set(RESUMED)


@pytest.mark.parametrize("library", HERE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("killed_at", [5, 13])
@pytest.mark.parametrize("case", RESUMED)
def test_killed_and_resumed_is_bit_identical(case, killed_at, dtype, library, tmp_path):
    X, Z = (LIBRARIES[library](a.astype(dtype)) for a in data())
    op = KernelOperator(X, RBF(gamma=0.3), ridge())
    solver = RESUMED[case]
    if not solver.needs_spd:
        op = BorderedOperator(op)
        Z = op.targets(Z)
    whole = solve(op, Z, solver, random_state=7)
    if whole.n_iter <= killed_at:
        killed_at = whole.n_iter - 2

    def kill(W, record):
        if record["n_iter"] == killed_at:
            raise Killed

    path = tmp_path / "state.npz"
    with pytest.raises(Killed):
        solve(op, Z, solver, random_state=7, checkpoint=Checkpoint(path, "p", every=2), callback=kill)
    assert path.exists()
    # The seed of the second run is another one: what counts is the saved state.
    resumed = solve(op, Z, solver, random_state=8, checkpoint=Checkpoint(path, "p", every=2))
    assert xa.to_numpy(resumed.W).tobytes() == xa.to_numpy(whole.W).tobytes()
    assert [r["residual"] for r in resumed.history] == [r["residual"] for r in whole.history]


@pytest.mark.parametrize("library", HERE[1:])
@pytest.mark.parametrize("name", sorted(set(SOLVERS) - {"cholesky", "cg"}))
def test_numpy_and_torch_take_the_same_blocks(name, library):
    settings = {"block_size": 10, "n_members": 7} if name == "nystrom_committee" else {"block_size": 10, "max_iter": 7}
    solutions = []
    for place in ("numpy", library):
        op, Z = problem("streamed" if SOLVERS[name].needs_spd else "bordered streamed", place)
        solutions.append(xa.to_numpy(solve(op, Z, SOLVERS[name](**settings), random_state=5).W))
    np.testing.assert_allclose(*solutions, rtol=1e-8, atol=1e-9)


def test_bias_by_border_and_by_one_more_column_agree():
    """`Theta W = Z` and `A [V, u] = [Z, 1]` have the same machine, whichever solver found it."""
    from gramless.targets import split_bias

    X, Z = data()
    op = KernelOperator(X, RBF(gamma=0.3), ridge())
    for name in ("kaczmarz", "matching_pursuit", "kaczmarz_mp"):
        solver = SOLVERS[name](**ACCURATE[name])
        bordered = BorderedOperator(op)
        coef, bias = bordered.split(solve(bordered, bordered.targets(Z), solver, random_state=0).W)
        plain = solve(op, np.column_stack([Z, np.ones(N)]), solver, random_state=0).W
        expected_coef, expected_bias = split_bias(plain)
        np.testing.assert_allclose(coef, expected_coef, atol=1e-7)
        np.testing.assert_allclose(bias, expected_bias, atol=1e-7)
        np.testing.assert_allclose(coef.sum(0), 0, atol=1e-7)
