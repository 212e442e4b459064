"""LSSVC and LSSVR with the randomised block solvers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gramless import LSSVC, LSSVR, estimate
from gramless.callbacks import Checkpoint, EarlyStopping
from gramless.linalg.solvers import CG, SOLVERS, Averaged, Kaczmarz, MatchingPursuit, NystromCommittee

ITERATIVE = ["kaczmarz", "matching_pursuit", "kaczmarz_mp"]
BLOCKED = [*ITERATIVE, "nystrom_committee"]


@pytest.fixture(scope="module")
def digits(digits):
    X, y = digits
    X = X - X.mean(1, keepdims=True)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X[:240], y[:240], X[240:700], y[240:700]


def blocks(name, block_size, **settings):
    """The solver by its name."""
    if name == "nystrom_committee":
        return NystromCommittee(block_size, n_members=settings["max_iter"])
    return SOLVERS[name](block_size, **{"tol": 1e-3, **settings})


def machine(**settings):
    return LSSVC(**{"C": 1.0, "kernel": "poly", "degree": 4, "gamma": 1.0, "random_state": 0, **settings})


@pytest.mark.parametrize("solver", ITERATIVE)
def test_converges_to_the_machine_of_cholesky(digits, solver):
    X, y, X_test, _ = digits
    exact = machine(solver="cholesky").fit(X, y)
    found = machine(solver=blocks(solver, 80, tol=1e-7, max_iter=5000)).fit(X, y)
    np.testing.assert_allclose(found.decision_function(X_test), exact.decision_function(X_test), atol=1e-4)
    np.testing.assert_allclose(found.intercept_, exact.intercept_, atol=1e-4)
    assert found.n_iter_ < 5000


@pytest.mark.parametrize("solver", BLOCKED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_float32_classes_are_nearly_those_of_the_exact_machine(digits, solver):
    X, y, X_test, y_test = digits
    exact = machine(C=1e4).fit(X, y).score(X_test, y_test)
    max_iter = 6 if solver == "nystrom_committee" else 40
    found = machine(C=1e4, solver=blocks(solver, 60, max_iter=max_iter), dtype="float32").fit(X, y)
    assert found.dual_coef_.dtype == np.float32
    assert found.n_iter_ == max_iter
    assert found.score(X_test, y_test) > exact - 0.03


@pytest.mark.parametrize("solver", ITERATIVE)
def test_regression_of_two_outputs(solver):
    rng = np.random.RandomState(0)
    X = rng.uniform(-3, 3, size=(150, 1))
    Y = np.column_stack([np.sin(X[:, 0]), 2 + np.cos(X[:, 0])])
    exact = LSSVR(C=2.0, gamma=1.0).fit(X, Y)
    found = LSSVR(C=2.0, gamma=1.0, solver=blocks(solver, 60, tol=1e-6, max_iter=5000), random_state=0).fit(X, Y)
    np.testing.assert_allclose(found.predict(X), exact.predict(X), atol=5e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mean_of_runs(digits):
    X, y, *_ = digits
    found = machine(solver=Averaged(Kaczmarz(max_iter=7, tol=1e-3), n_runs=2, block_size=[40, 60])).fit(X, y)
    rng = np.random.RandomState(0)
    runs = [machine(solver=Kaczmarz(b, max_iter=7, tol=1e-3), random_state=rng).fit(X, y) for b in (40, 60)]
    np.testing.assert_allclose(found.dual_coef_, np.mean([run.dual_coef_ for run in runs], axis=0), atol=1e-10)
    np.testing.assert_allclose(found.intercept_, np.mean([run.intercept_ for run in runs], axis=0), atol=1e-10)
    assert found.n_iter_ == 14
    assert [record["n_iter"] for record in found.history_] == list(range(1, 15))


def test_wrong_numbers_of_runs_are_answered(digits):
    X, y, *_ = digits
    with pytest.raises(ValueError, match="2 entries for n_runs=3"):
        machine(solver=Averaged(Kaczmarz(), n_runs=3, block_size=[40, 60])).fit(X, y)
    with pytest.raises(ValueError, match="randomised solvers"):
        machine(solver=Averaged(CG(), n_runs=3)).fit(X, y)
    with pytest.raises(ValueError, match="n_runs"):
        machine(solver=Averaged(Kaczmarz(), n_runs=0)).fit(X, y)
    with pytest.raises(ValueError, match="block_size"):
        machine(solver=Kaczmarz(0)).fit(X, y)


def test_a_solver_instance_brings_its_settings(digits):
    X, y, *_ = digits
    solver = MatchingPursuit(80, momentum=5, reuse_blocks=True, tol=1e-7, max_iter=5000)
    found = machine(solver=solver).fit(X, y)
    exact = machine(solver="cholesky").fit(X, y)
    np.testing.assert_allclose(found.dual_coef_, exact.dual_coef_, atol=1e-4)
    assert clone(found).solver.momentum == 5


def test_says_so_when_it_did_not_converge(digits):
    X, y, *_ = digits
    with pytest.warns(ConvergenceWarning, match="limit of 3 iterations; estimated relative residual"):
        machine(solver=MatchingPursuit(40, max_iter=3)).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_early_stopping_returns_the_best(digits):
    X, y, *_ = digits
    found = machine(solver=Kaczmarz(20, max_iter=300), callback=EarlyStopping(n_iter_no_change=3)).fit(X, y)
    errors = [record["validation"] for record in found.history_]
    assert found.n_iter_ < 300
    assert len(errors) - 1 - np.argmin(errors) == 3


def test_memory_is_planned_with_the_block():
    streamed = machine(solver=MatchingPursuit(2000), memory_budget="4GB")
    need = estimate(streamed, n=60_000, d=784, n_classes=10)
    assert need.parts["block"] > 2000 * 60_001 * 4
    assert need.nbytes < 4e9
    with pytest.raises(MemoryError, match="use block_size="):
        estimate(machine(solver=MatchingPursuit(20_000), memory_budget="4GB"), n=60_000, d=784, n_classes=10)
    smaller = estimate(machine(solver="matching_pursuit", memory_budget="800MB"), n=60_000, d=784, n_classes=10)
    assert smaller.nbytes < 800e6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_killed_fit_goes_on_bit_for_bit(digits, tmp_path):
    X, y, *_ = digits
    settings = {"solver": Averaged(Kaczmarz(40, max_iter=9), n_runs=2)}
    whole = machine(**settings).fit(X, y)

    def kill(estimator, record):
        if record["n_iter"] == 12:
            raise KeyboardInterrupt

    saved = Checkpoint(tmp_path / "fit.npz", every=5)
    with pytest.raises(KeyboardInterrupt):
        machine(**settings, callback=[saved, kill]).fit(X, y)
    resumed = machine(**settings, callback=saved).fit(X, y)
    assert resumed.dual_coef_.tobytes() == whole.dual_coef_.tobytes()
    assert not saved.path.exists()
