"""Both dual solvers against scikit-learn's objective, the optimality conditions, and each other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from gramless._core.compiled.smo_loops import solve_pairs
from gramless.kernels import RBF, Linear, Polynomial, Precomputed
from gramless.svm import smo
from gramless.svm.box_qp import BoxQP
from gramless.svm.gram_rows import GramRows, StoredGram
from gramless.svm.progress import SolverProgress
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO
from gramless.svm.tuning import TUNING


def two_classes(load, first=0, size=300):
    X, y = load(return_X_y=True)
    keep = np.random.default_rng(0).permutation(len(y))[:size]
    return StandardScaler().fit_transform(X[keep]), np.where(y[keep] == first, 1.0, -1.0)


DATASETS = {
    "iris": lambda: two_classes(load_iris, 1),
    "wine": lambda: two_classes(load_wine, 1),
    "cancer": lambda: two_classes(load_breast_cancer),
    "digits": lambda: two_classes(load_digits, 8),
    "diabetes": lambda: two_classes(lambda **kw: (load_diabetes(**kw)[0], load_diabetes(**kw)[1] > 140)),
}


def violation(K, qp, beta):
    """The optimality conditions, from their definition."""
    slope = qp.linear - K @ beta
    rising = slope + np.where(beta < 0, qp.epsilon, -qp.epsilon)
    falling = slope + np.where(beta > 0, -qp.epsilon, qp.epsilon)
    return rising[beta < qp.upper].max() - falling[beta > qp.lower].min()


def objective(K, linear, beta, epsilon=0.0):
    return linear @ beta - 0.5 * beta @ K @ beta - epsilon * np.abs(beta).sum()


@pytest.mark.parametrize("solver", [SMO(), SMO(working_set=20), SimpleSMO()], ids=["smo", "small sets", "simple"])
@pytest.mark.parametrize("name", DATASETS)
def test_the_dual_objective_equals_that_of_sklearn_and_the_conditions_hold(name, solver):
    X, y = DATASETS[name]()
    C, gamma = 3.0, 1.0 / X.shape[1]
    K = RBF(gamma)(X, X)
    peer = SVC(C=C, gamma=gamma, tol=1e-6).fit(X, y)
    best = np.zeros(len(y))
    best[peer.support_] = peer.dual_coef_[0]
    qp = BoxQP.classification(y, np.full(len(y), C))

    [solution] = solver.maximise([qp], GramRows(RBF(gamma), X, [slice(0, len(y))]))

    assert solution.converged
    assert violation(K, qp, solution.beta) <= solver.tol + 1e-9
    assert solution.violation == pytest.approx(violation(K, qp, solution.beta), abs=1e-9)
    assert objective(K, y, solution.beta) == pytest.approx(objective(K, y, best), rel=1e-4)
    assert solution.objective == pytest.approx(objective(K, y, solution.beta), rel=1e-9)
    assert solution.bias == pytest.approx(peer.intercept_[0], abs=5e-3)


@pytest.mark.parametrize("solver", [SMO(), SMO(working_set=20), SimpleSMO()], ids=["smo", "small sets", "simple"])
def test_regression_equals_sklearn(solver):
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:200]), (y[:200] - 150) / 50
    C, epsilon, gamma = 5.0, 0.2, 0.1
    K = RBF(gamma)(X, X)
    peer = SVR(C=C, epsilon=epsilon, gamma=gamma, tol=1e-6).fit(X, y)
    best = np.zeros(len(y))
    best[peer.support_] = peer.dual_coef_[0]
    qp = BoxQP.regression(y, np.full(len(y), C), epsilon)

    [solution] = solver.maximise([qp], GramRows(RBF(gamma), X, [slice(0, len(y))]))

    assert objective(K, y, solution.beta, epsilon) == pytest.approx(objective(K, y, best, epsilon), rel=1e-4)
    assert solution.objective == pytest.approx(objective(K, y, solution.beta, epsilon), rel=1e-9)
    assert violation(K, qp, solution.beta) <= solver.tol + 1e-9
    assert solution.bias == pytest.approx(peer.intercept_[0], abs=5e-3)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 40),
    d=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    C=st.floats(1e-3, 1e3),
    dtype=st.sampled_from("fd"),
)
def test_every_solution_is_feasible_and_optimal(n, d, seed, C, dtype):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[0], y[1] = 1.0, -1.0
    bounds = C * rng.choice([0.0, 0.5, 2.0], size=n)
    qp = BoxQP.classification(y, bounds)
    [solution] = SMO(working_set=8).maximise([qp], GramRows(RBF(0.5), X, [slice(0, n)]))
    beta = solution.beta
    assert np.all(beta >= qp.lower)
    assert np.all(beta <= qp.upper)
    assert abs(beta.sum()) <= 1e-9 * max(1.0, np.abs(beta).sum())
    assert solution.converged


def test_a_warm_start_at_the_optimum_moves_nothing():
    X, y = DATASETS["cancer"]()
    rows = GramRows(RBF(0.1), X, [slice(0, len(y))])
    qp = BoxQP.classification(y, np.full(len(y), 3.0))
    [cold] = SMO().maximise([qp], rows)
    [warm] = SMO().maximise([BoxQP.classification(y, np.full(len(y), 3.0), start=cold.beta)], rows)
    assert warm.n_iter == 0
    np.testing.assert_array_equal(warm.beta, cold.beta)


@pytest.mark.parametrize("solver", [SMO(max_iter=3), SimpleSMO(max_iter=3)])
def test_the_iteration_cap_is_reported(solver):
    X, y = DATASETS["cancer"]()
    qp = BoxQP.classification(y, np.full(len(y), 3.0))
    [solution] = solver.maximise([qp], GramRows(RBF(0.1), X, [slice(0, len(y))]))
    assert not solution.converged
    assert solution.violation > solver.tol


def test_problems_on_the_same_points_share_rows_and_agree_with_solving_alone():
    X, _ = load_digits(return_X_y=True)
    X, labels = X[:400] / 16, load_digits(return_X_y=True)[1][:400]
    problems = [BoxQP.classification(np.where(labels == c, 1.0, -1.0), np.full(400, 5.0)) for c in range(4)]
    shared = GramRows(RBF(0.2), X, [slice(0, 400)], workers=2)
    together = SMO(tol=1e-6, working_set=64).maximise(problems, shared)
    rows_alone = 0
    for qp, solution in zip(problems, together, strict=True):
        rows = GramRows(RBF(0.2), X, [slice(0, 400)])
        [alone] = SMO(tol=1e-6, working_set=64).maximise([qp], rows)
        rows_alone += rows.n_computed
        assert solution.objective == pytest.approx(alone.objective, rel=1e-9)
    assert shared.n_computed < rows_alone


class TestGramRows:
    X = np.random.default_rng(0).normal(size=(60, 5))
    K = RBF(0.3)(X, X)

    def check(self, rows, K):
        rng = np.random.default_rng(1)
        for _ in range(10):
            idx = np.sort(rng.choice(len(K), 17, replace=False))
            weights = rng.normal(size=17)
            total = np.zeros(len(K))
            rows.add([(idx, weights, total)])
            np.testing.assert_allclose(total, weights @ K[idx], atol=1e-10)
            gram = np.empty((17, 17))
            rows.fill(gram, idx, np.arange(17))
            np.testing.assert_allclose(gram, K[np.ix_(idx, idx)], atol=1e-12)

    @pytest.mark.parametrize("capacity", [1, 7, 20, 60])
    def test_any_capacity_gives_the_same_numbers(self, capacity):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)], budget=capacity * 60 * 8 / (1 - TUNING.set_budget_fraction))
        assert rows.rows.shape == (capacity, 60)
        self.check(rows, self.K)

    def test_a_row_that_fits_is_computed_once(self):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)])
        for _ in range(3):
            rows.add([(np.arange(10), np.ones(10), np.zeros(60))])
        assert rows.n_computed == 10 * 60

    def test_the_least_recently_used_row_is_evicted(self):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)], budget=3 * 60 * 8 / (1 - TUNING.set_budget_fraction))
        for i in (0, 1, 2, 0, 3):
            rows.add([(np.array([i]), np.ones(1), np.zeros(60))])
        assert set(np.flatnonzero(rows.slot_of >= 0)) == {0, 2, 3}

    def test_given_blocks_of_parts_are_used(self):
        first, second = slice(10, 30), slice(45, 60)
        points = np.r_[first, second]
        block = RBF(0.3)(self.X[first], self.X[first])
        rows = GramRows(RBF(0.3), self.X, [first, second], blocks=[block, None])
        self.check(rows, self.K[np.ix_(points, points)])

    def test_precomputed_values_are_looked_up_by_index(self):
        points = np.random.default_rng(2).permutation(60)[:30]
        rows = GramRows(Precomputed(), self.K, [points[:10], points[10:]])
        self.check(rows, self.K[np.ix_(points, points)])


def test_a_separable_problem_needs_two_vectors():
    X, y = np.array([[-3.0], [-1.0], [1.0], [3.0]]), np.array([-1.0, -1.0, 1.0, 1.0])
    [solution] = SMO(tol=1e-9).maximise([BoxQP.classification(y, np.full(4, 1e6))], GramRows(Linear(), X, [slice(0, 4)]))
    np.testing.assert_allclose(solution.beta, [0, -0.5, 0.5, 0], atol=1e-9)
    assert solution.bias == pytest.approx(0, abs=1e-9)


def digits(size):
    """Even against odd digits: many variables end inside their box."""
    X, labels = load_digits(return_X_y=True)
    return X[:size] / 16, np.where(labels[:size] % 2 == 0, 1.0, -1.0)


def problem(kind, y, C):
    if kind == "classes":
        return BoxQP.classification(y, np.full(y.size, C))
    values = y + np.random.default_rng(0).normal(size=y.size)
    return BoxQP.regression(values, np.full(y.size, C), 0.1)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("kind", ["classes", "values"])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_the_compiled_loop_solves_and_updates_its_slopes(C, kind, dtype):
    X, y = digits(500)
    K = RBF(0.3)(X, X).astype(dtype)
    qp = problem(kind, y, C)
    beta, slope = np.zeros(500), qp.linear.copy()
    moves, left = solve_pairs(K, slope, beta, qp.lower, qp.upper, qp.epsilon, 1e-5, 10**7)
    assert 0 < moves < 10**7
    exact = K.astype(np.float64)
    np.testing.assert_allclose(slope, qp.linear - exact @ beta, atol=1e-8)
    assert left == pytest.approx(violation(exact, qp, beta), abs=1e-8)
    assert left <= 1e-5
    assert solve_pairs(K, qp.linear.copy(), np.zeros(500), qp.lower, qp.upper, qp.epsilon, 1e-5, 7)[0] == 7


@pytest.mark.parametrize("kind", ["classes", "values"])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_nested_working_sets_reach_the_same_solution(C, kind):
    X, y = digits(900)
    qp = problem(kind, y, C)
    rows = GramRows(RBF(0.3), X, [slice(0, 400), slice(400, 900)], workers=2)
    [whole] = SMO(tol=1e-6).maximise([qp], rows)
    tuning = replace(TUNING, solved_whole=100, small_set=40, largest_direct=60, largest_set_fraction=0.5)
    sizes = []

    class Observed(BoxQP):
        def restricted(self, idx, *arguments):
            sizes.append(idx.size)
            return super().restricted(idx, *arguments)

    [nested] = SMO(tol=1e-6, tuning=tuning).maximise([Observed(**vars(qp))], rows)
    assert max(sizes) > 100
    assert min(sizes) <= 60
    assert nested.converged
    assert nested.objective == pytest.approx(whole.objective, rel=1e-8)
    assert violation(RBF(0.3)(X, X), qp, nested.beta) <= 1e-6 + 1e-9


def test_the_gram_matrix_of_a_set_belongs_to_its_current_members():
    X, y = digits(700)
    qp = BoxQP.classification(y, np.full(700, 10.0))
    for rows in (GramRows(RBF(0.3), X, [slice(0, 300), slice(300, 700)]), StoredGram(RBF(0.3)(X, X))):
        solver = SMO(tol=1e-4, working_set=64, max_iter=10**6)
        ascent = smo.WorkingSetAscent(solver, qp, rows, np.random.default_rng(0), 700, SolverProgress())
        rounds = 0
        while ascent.select():
            ascent.improve()
            rows.add([ascent.update])
            members = ascent.set
            assert len(set(members)) == members.size <= 64
            np.testing.assert_allclose(
                ascent.gram[: members.size, : members.size], RBF(0.3)(X[members], X[members]), atol=1e-12
            )
            rounds += 1
        assert rounds > 5
        np.testing.assert_allclose(ascent.K_beta, RBF(0.3)(X, X) @ ascent.beta, atol=1e-9)


def test_a_stop_takes_effect_within_a_set():
    X, y = digits(500)
    progress = SolverProgress()
    calls = []

    class Stopping(BoxQP):
        def move_pairs(self, *arguments):
            calls.append(1)
            progress.stop()
            return super().move_pairs(*arguments)

    tuning = replace(TUNING, variables_per_call=500 * 10)
    qp = Stopping.classification(y, np.full(500, 100.0))
    [solution] = SMO(tuning=tuning).maximise([qp], GramRows(RBF(0.3), X, [slice(0, 500)]), progress=progress)
    assert len(calls) == 1
    assert solution.n_iter == 10
    assert not solution.converged


HARD = {
    "large C": lambda rng: (rng.normal(size=(300, 4)), np.where(rng.random(300) < 0.5, 1.0, -1.0), 1e4),
    "duplicates with opposite labels": lambda rng: (
        np.repeat(rng.normal(size=(100, 3)), 3, axis=0),
        np.tile([1.0, -1, 1], 100),
        100.0,
    ),
    "a class of two": lambda rng: (rng.normal(size=(300, 3)), np.where(np.arange(300) < 2, 1.0, -1.0), 100.0),
    "equal points": lambda rng: (np.ones((50, 2)), np.where(np.arange(50) % 2, 1.0, -1.0), 1.0),
}


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("name", HARD)
def test_hard_problems_reach_the_objective_of_libsvm(name, kernel):
    X, y, C = HARD[name](np.random.default_rng(0))
    k = RBF(0.5) if kernel == "rbf" else Polynomial(degree=3, gamma=0.5, coef0=1.0)
    K = k(X, X)
    if kernel == "poly":
        K /= K.diagonal().max()  # the violation is in units of the decision function
        C = min(C, 100.0)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], size=len(y))
    peer = SVC(kernel="precomputed", C=C, tol=1e-4).fit(K, y, sample_weight=weights)
    best = np.zeros(len(y))
    best[peer.support_] = peer.dual_coef_[0]
    qp = BoxQP.classification(y, C * weights)
    for solver in (SMO(tol=1e-4), SMO(tol=1e-4, working_set=40)):
        [solution] = solver.maximise([qp], GramRows(Precomputed(), K, [np.arange(len(y))]))
        assert solution.converged
        assert violation(K, qp, solution.beta) <= 1e-4 + 1e-8
        assert objective(K, y, solution.beta) == pytest.approx(objective(K, y, best), rel=1e-4, abs=1e-6)
        np.testing.assert_allclose(K @ solution.beta + solution.bias, peer.decision_function(K), atol=2e-2)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 60),
    seed=st.integers(0, 10**6),
    C=st.floats(1e-3, 1e3),
    epsilon=st.sampled_from([0.0, 0.1, 1.0]),
    size=st.sampled_from([None, 8]),
)
def test_every_regression_is_feasible_and_optimal(n, seed, C, epsilon, size):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    qp = BoxQP.regression(y, C * rng.choice([0.0, 0.5, 2.0], size=n), epsilon)
    [solution] = SMO(working_set=size).maximise([qp], GramRows(RBF(0.5), X, [slice(0, n)]))
    beta = solution.beta
    assert np.all((beta >= qp.lower) & (beta <= qp.upper))
    assert abs(beta.sum()) <= 1e-9 * max(1.0, np.abs(beta).sum())
    assert solution.converged
    peer = SVR(kernel="precomputed", C=1.0, epsilon=epsilon, tol=1e-6)
    kept = np.flatnonzero(qp.upper)
    if kept.size > 1:
        K = RBF(0.5)(X, X)
        peer.fit(K[np.ix_(kept, kept)], y[kept], sample_weight=qp.upper[kept])
        best = np.zeros(n)
        best[kept[peer.support_]] = peer.dual_coef_[0]
        scale = max(1.0, np.abs(beta).sum())
        assert objective(K, y, beta, epsilon) >= objective(K, y, best, epsilon) - 1e-3 * scale
