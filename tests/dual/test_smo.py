"""Both dual solvers against scikit-learn's objective, the optimality conditions, and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from gramless._compiled.smo_loops import solve_working_set
from gramless.dual.box_qp import BoxQP
from gramless.dual.gram_rows import GramRows
from gramless.dual.shrinking import solve_shrinking
from gramless.dual.simple_smo import SimpleSMO
from gramless.dual.smo import SMO
from gramless.kernels import RBF, Linear, Precomputed


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
    row = np.arange(qp.size) if qp.sample is None else qp.sample
    slope = qp.linear - (K[:, row] @ beta)[row]
    return slope[beta < qp.upper].max() - slope[beta > qp.lower].min()


def objective(K, linear, beta):
    return linear @ beta - 0.5 * beta @ K @ beta


@pytest.mark.parametrize("solver", [SMO(), SMO(working_set=20), SimpleSMO()], ids=["smo", "small sets", "simple"])
@pytest.mark.parametrize("name", DATASETS)
def test_the_dual_objective_is_that_of_sklearn_and_the_conditions_hold(name, solver):
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
def test_regression_is_that_of_sklearn(solver):
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:200]), (y[:200] - 150) / 50
    C, epsilon, gamma = 5.0, 0.2, 0.1
    K = RBF(gamma)(X, X)
    peer = SVR(C=C, epsilon=epsilon, gamma=gamma, tol=1e-6).fit(X, y)
    best = np.zeros(len(y))
    best[peer.support_] = peer.dual_coef_[0]
    qp = BoxQP.regression(y, np.full(len(y), C), epsilon)

    [solution] = solver.maximise([qp], GramRows(RBF(gamma), X, [slice(0, len(y))]))

    beta = solution.beta[: len(y)] + solution.beta[len(y) :]
    value = objective(K, y, beta) - epsilon * np.abs(beta).sum()
    assert value == pytest.approx(objective(K, y, best) - epsilon * np.abs(best).sum(), rel=1e-4)
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
            np.testing.assert_allclose(rows.gram(idx), K[np.ix_(idx, idx)], atol=1e-12)

    @pytest.mark.parametrize("capacity", [1, 7, 20, 60])
    def test_any_capacity_gives_the_same_numbers(self, capacity):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)], budget=capacity * 60 * 8)
        assert rows.rows.shape == (capacity, 60)
        self.check(rows, self.K)

    def test_a_row_that_fits_is_computed_once(self):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)])
        for _ in range(3):
            rows.add([(np.arange(10), np.ones(10), np.zeros(60))])
        assert rows.n_computed == 10 * 60

    def test_the_least_recently_used_row_makes_room(self):
        rows = GramRows(RBF(0.3), self.X, [slice(0, 60)], budget=3 * 60 * 8)
        for i in (0, 1, 2, 0, 3):
            rows.add([(np.array([i]), np.ones(1), np.zeros(60))])
        assert set(np.flatnonzero(rows.slot_of >= 0)) == {0, 2, 3}

    def test_parts_and_known_blocks(self):
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


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_shrinking_changes_the_cost_and_not_the_solution(C):
    X, labels = load_digits(return_X_y=True)
    X, y = X[:900] / 16, np.where(labels[:900] % 2 == 0, 1.0, -1.0)
    K = RBF(0.3)(X, X)
    qp = BoxQP.classification(y, np.full(900, C))
    ends = []
    for solve in (solve_working_set, solve_shrinking):
        beta, slope = np.zeros(900), y.copy()
        moves = solve(K, slope, beta, qp.lower, qp.upper, 1e-6, 10**6)
        assert 0 < moves < 10**6
        np.testing.assert_allclose(slope, y - K @ beta, atol=1e-9)
        assert violation(K, qp, beta) <= 1e-6 + 1e-9
        ends.append(objective(K, y, beta))
    assert ends[1] == pytest.approx(ends[0], rel=1e-9)


def test_shrinking_keeps_to_the_cap():
    X, labels = load_digits(return_X_y=True)
    y = np.where(labels[:900] % 2 == 0, 1.0, -1.0)
    K = RBF(0.3)(X[:900] / 16, X[:900] / 16)
    qp = BoxQP.classification(y, np.full(900, 100.0))
    for cap in (1, 500, 700):
        beta, slope = np.zeros(900), y.copy()
        assert solve_shrinking(K, slope, beta, qp.lower, qp.upper, 1e-6, cap) == cap
