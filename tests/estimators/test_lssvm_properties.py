"""What the mathematics says about every least-squares machine, tried on random problems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.utils.multiclass import _ovr_decision_function

from gramless import LSSVC, LSSVR
from gramless._core.targets.columns import split_bias
from gramless.inference.leave_one_out import leave_one_out_scores, path_by_eigenvectors, solve_dense
from gramless.kernels import RBF, Columns, Laplacian, Linear, Polynomial, Precomputed
from gramless.linalg.operators import KernelOperator
from gramless.linalg.planning.plan import ProblemSize, make_plan

quick = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)
regularisation = st.sampled_from([1e-2, 1.0, 1e2, 1e4])


def problem(seed, n=18, d=3, k=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, k)), rng


def test_a_matrix_that_cannot_be_factored_has_no_scores():
    assert solve_dense(-np.eye(5), np.ones((5, 1))) is None


def brute_force_scores(K, Z, ridge):
    """Refit without each row in turn, on the bordered system itself."""
    n = len(Z)
    scores = np.empty_like(Z)
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        A = K[np.ix_(rest, rest)] + np.diag(ridge[rest])
        bordered = np.block([[A, np.ones((n - 1, 1))], [np.ones((1, n - 1)), np.zeros((1, 1))]])
        solution = np.linalg.solve(bordered, np.vstack([Z[rest], np.zeros((1, Z.shape[1]))]))
        scores[i] = K[i, rest] @ solution[:-1] + solution[-1]
    return scores


@quick
@given(seeds, regularisation, st.booleans())
def test_leave_one_out_equals_refitting(seed, C, weighted):
    X, Z, rng = problem(seed)
    weights = rng.uniform(0.2, 3.0, len(X)) if weighted else np.ones(len(X))
    ridge = 1 / (C * weights)
    op = KernelOperator(X, RBF(gamma=0.4), ridge)
    coef, _ = split_bias(np.linalg.solve(op.dense(), np.column_stack([Z, np.ones(len(X))])))
    expected = brute_force_scores(RBF(gamma=0.4)(X, X), Z, ridge)
    np.testing.assert_allclose(leave_one_out_scores(op, Z, coef, None), expected, rtol=1e-8, atol=1e-8)


@quick
@given(seeds, st.booleans())
def test_the_path_equals_refitting_for_every_C(seed, weighted):
    X, Z, rng = problem(seed)
    weights = rng.uniform(0.2, 3.0, len(X)) if weighted else None
    K = RBF(gamma=0.4)(X, X)
    Cs = np.array([1e-2, 1.0, 1e2, 1e4])
    fits = path_by_eigenvectors(K, Precomputed(), Z, Cs, weights, True)
    for C, fit in zip(Cs, fits, strict=True):
        ridge = 1 / (C * (np.ones(len(X)) if weights is None else weights))
        expected = brute_force_scores(K, Z, ridge)
        np.testing.assert_allclose(fit.scores, expected, rtol=1e-8, atol=1e-8)
        if weights is None:
            np.testing.assert_allclose(solve_dense(K + np.diag(ridge), Z).scores, expected, rtol=1e-8, atol=1e-8)
        direct, bias = split_bias(np.linalg.solve(K + np.diag(ridge), np.column_stack([Z, np.ones(len(X))])))
        np.testing.assert_allclose(fit.coef, direct, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(fit.bias, bias, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("memory_budget", [None, "60kB"])
def test_indefinite_kernel_has_no_score_for_a_C_without_a_positive_definite_system(memory_budget):
    _, Z, _ = problem(4, n=40, k=1)
    Q, _ = np.linalg.qr(np.random.RandomState(0).normal(size=(40, 40)))
    K = (Q * np.r_[-0.5, np.linspace(0.1, 3.0, 39)]) @ Q.T
    K = (K + K.T) / 2
    search = LSSVR(C="loo", Cs=[1.0, 10.0], kernel="precomputed", memory_budget=memory_budget).fit(K, Z[:, 0])
    error = np.mean((brute_force_scores(K, Z, np.full(40, 1.0)) - Z) ** 2)
    np.testing.assert_allclose(search.scores_, [[-error, np.nan]], rtol=1e-8)
    np.testing.assert_allclose(search.predict(K), LSSVR(C=1.0, kernel="precomputed").fit(K, Z[:, 0]).predict(K), rtol=1e-8)
    with pytest.raises(np.linalg.LinAlgError, match="not positive semi-definite"):
        LSSVR(C="loo", Cs=[10.0, 100.0], kernel="precomputed", memory_budget=memory_budget).fit(K, Z[:, 0])


def test_search_whose_scoring_is_never_a_number_raises():
    X, Z, _ = problem(3, n=25, k=1)
    with pytest.raises(ValueError, match="scoring returned NaN"):
        LSSVR(C="loo", scoring=lambda y, predicted, sample_weight=None: np.nan).fit(X, Z[:, 0])


def test_the_search_reports_the_scores_of_refitting():
    X, Z, _ = problem(3, n=25, k=1)
    search = LSSVR(C="loo", Cs=[0.1, 10.0], kernel=RBF(gamma=0.4)).fit(X, Z[:, 0])
    K = RBF(gamma=0.4)(X, X)
    errors = [np.mean((brute_force_scores(K, Z, np.full(25, 1 / C)) - Z) ** 2) for C in (0.1, 10.0)]
    np.testing.assert_allclose(search.scores_, [np.negative(errors)], rtol=1e-8)
    assert search.best_params_["C"] == (0.1, 10.0)[int(np.argmin(errors))]
    direct = LSSVR(C=search.best_params_["C"], kernel=RBF(gamma=0.4)).fit(X, Z[:, 0])
    np.testing.assert_allclose(search.predict(X), direct.predict(X), rtol=1e-8)
    best = brute_force_scores(K, Z, np.full(25, 1 / search.C_))
    np.testing.assert_allclose(search.loo_decision_, best[:, 0], rtol=1e-8)


def test_the_search_over_kernels_and_settings():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (np.hypot(*X.T) > 1.1).astype(int)  # a ring: no hyperplane
    search = LSSVC(C="loo", kernel=["linear", RBF(gamma=1.0)]).fit(X, y)
    assert search.scores_.shape == (2, 15)
    assert repr(search.best_params_["kernel"]) == "RBF(gamma=1.0)"
    grid = LSSVC(C="loo", kernel="rbf", gamma=[1e-6, 1.0]).fit(X, y)
    assert grid.best_params_["gamma"] == 1.0
    assert grid.best_score_ == grid.scores_.max() > 0.9
    deep = LSSVC(C="loo", kernel=[RBF(gamma=g) * Linear() for g in (0.1, 1.0)]).fit(X, y)
    assert deep.best_params_["kernel"].left.gamma in (0.1, 1.0)


def test_the_estimated_diagonal_is_close_to_the_exact_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    Z = np.sign(X[:, :1] + 0.3 * rng.normal(size=(600, 1)))
    op = KernelOperator(X, RBF(gamma=0.2), 0.1)
    coef, _ = split_bias(np.linalg.solve(op.dense(), np.column_stack([Z, np.ones(600)])))
    exact = leave_one_out_scores(op, Z, coef, None)
    plan = make_plan(ProblemSize(600, 5, 25, np.float64, "cpu", op.kernel), "cg", 10**9)
    estimated = leave_one_out_scores(op, Z, coef, plan, random_state=0)
    assert np.sqrt(np.mean((estimated - exact) ** 2)) < 0.1 * exact.std()


@quick
@given(seeds, regularisation, st.sampled_from(["rbf", "linear", "poly"]))
def test_integer_weights_equal_repetitions(seed, C, kernel):
    X, Z, rng = problem(seed)
    counts = rng.integers(0, 4, len(X))
    counts[:2] = 1
    repeated = np.repeat(np.arange(len(X)), counts)
    weighted = LSSVR(C=C, kernel=kernel, gamma="weighted_scale").fit(X, Z, sample_weight=counts)
    copied = LSSVR(C=C, kernel=kernel, gamma="weighted_scale").fit(X[repeated], Z[repeated])
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-6, atol=1e-6)


@quick
@given(seeds)
def test_class_weights_equal_sample_weights(seed):
    X, _, _ = problem(seed, n=24)
    y = np.arange(24) % 3
    by_class = LSSVC(class_weight={0: 1.0, 1: 2.0, 2: 0.5}).fit(X, y)
    by_sample = LSSVC().fit(X, y, sample_weight=np.array([1.0, 2.0, 0.5])[y])
    np.testing.assert_allclose(by_class.decision_function(X), by_sample.decision_function(X), rtol=1e-9)


@quick
@given(seeds, regularisation)
def test_a_linear_kernel_is_ridge_regression_with_a_free_intercept(seed, C):
    X, Z, rng = problem(seed, n=30)
    Z = Z + 5.0
    weights = rng.uniform(0.5, 2.0, 30)
    ours = LSSVR(kernel="linear", C=C).fit(X, Z, sample_weight=weights)
    ridge = Ridge(alpha=1 / C).fit(X, Z, sample_weight=weights)
    np.testing.assert_allclose(ours.predict(X), ridge.predict(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.points_.T @ ours.dual_coef_, ridge.coef_.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, ridge.intercept_, rtol=1e-6, atol=1e-7)


@quick
@given(seeds, st.permutations(["a", "b", "c", "d"]))
def test_names_of_classes_do_not_matter(seed, names):
    X, _, _ = problem(seed, n=24)
    codes = np.arange(24) % 4
    plain = LSSVC(C=10.0).fit(X, codes)
    named = LSSVC(C=10.0).fit(X, np.array(names)[codes])
    np.testing.assert_array_equal(named.predict(X), np.array(names)[plain.predict(X)])
    order = [int(np.flatnonzero(np.array(names) == c)[0]) for c in named.classes_]
    np.testing.assert_allclose(named.decision_function(X), plain.decision_function(X)[:, order], rtol=1e-9, atol=1e-12)


@quick
@given(seeds)
def test_swapping_two_classes_changes_the_sign(seed):
    X, _, _ = problem(seed)
    y = np.arange(len(X)) % 2
    one, other = LSSVC().fit(X, y), LSSVC().fit(X, 1 - y)
    np.testing.assert_allclose(one.decision_function(X), -other.decision_function(X), rtol=1e-9, atol=1e-12)


@quick
@given(seeds)
def test_a_rotation_and_a_shift_change_nothing_for_rbf(seed):
    X, Z, rng = problem(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    moved = X @ Q + rng.normal(size=3) * 10
    here = LSSVR(kernel=RBF(gamma=0.3), C=10.0).fit(X, Z)
    there = LSSVR(kernel=RBF(gamma=0.3), C=10.0).fit(moved, Z)
    np.testing.assert_allclose(there.predict(moved), here.predict(X), rtol=1e-7, atol=1e-8)


@quick
@given(seeds)
def test_the_order_of_rows_does_not_matter(seed):
    X, Z, rng = problem(seed)
    order = rng.permutation(len(X))
    np.testing.assert_allclose(
        LSSVR(C=10.0).fit(X[order], Z[order]).predict(X), LSSVR(C=10.0).fit(X, Z).predict(X), rtol=1e-8, atol=1e-9
    )


@quick
@given(seeds, st.sampled_from([1e-6, 1e-2, 1.0, 1e6]), st.sampled_from([0.0, -3.0, 1e5]))
def test_targets_shift_and_scale_through(seed, scale, shift):
    X, Z, _ = problem(seed)
    plain = LSSVR(C=10.0).fit(X, Z).predict(X)
    np.testing.assert_allclose(
        LSSVR(C=10.0).fit(X, scale * Z + shift).predict(X), scale * plain + shift, rtol=1e-8, atol=1e-8 * scale
    )


@quick
@given(seeds)
def test_sums_and_products_equal_the_dense_formula(seed):
    X, _, rng = problem(seed, d=5)
    Y = rng.normal(size=(7, 5))
    distances = ((X[:, None, :3] - Y[None, :, :3]) ** 2).sum(-1)
    city = np.abs(X[:, None] - Y[None]).sum(-1)
    expression = Columns(RBF(gamma=0.5), slice(0, 3)) * (
        2.0 * Polynomial(degree=3, gamma=0.2, coef0=1.0) + Laplacian(gamma=0.1)
    )
    dense = np.exp(-0.5 * distances) * (2.0 * (0.2 * X @ Y.T + 1.0) ** 3 + np.exp(-0.1 * city))
    np.testing.assert_allclose(expression(X, Y), dense, rtol=1e-10)
    np.testing.assert_allclose((expression**2)(X, Y), dense**2, rtol=1e-10)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_coefficients_sum_to_zero_and_solve_the_bordered_system(solver):
    X, Z, _ = problem(0, n=200)
    machine = LSSVR(C=5.0, kernel=RBF(gamma=0.4), solver=solver, tol=1e-10).fit(X, Z)
    np.testing.assert_allclose(machine.dual_coef_.sum(0), 0.0, atol=1e-6)
    A = RBF(gamma=0.4)(X, X) + np.eye(200) / 5.0
    np.testing.assert_allclose(A @ machine.dual_coef_ + machine.intercept_, Z, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["cholesky", "cg", "matching_pursuit"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_without_a_bias_it_is_kernel_ridge(solver, weighted, outputs):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, 3)), 5.0 + rng.normal(size=(80, outputs))
    weights = rng.uniform(0.5, 2.0, size=80) if weighted else None
    expected = KernelRidge(alpha=0.2, kernel="rbf", gamma=0.3).fit(X, Y, weights)
    ours = LSSVR(C=5.0, gamma=0.3, solver=solver, tol=1e-8, max_iter=5000, fit_intercept=False, random_state=0)
    ours.fit(X, Y, weights)
    np.testing.assert_allclose(ours.dual_coef_, expected.dual_coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-5)
    np.testing.assert_array_equal(ours.intercept_, 0.0)


def test_pairs_of_classes_have_the_differences_of_their_scores():
    X, y = load_iris(return_X_y=True)
    model = LSSVC(decision_function_shape="ovo").fit(X, y)
    scores = model.set_params(decision_function_shape="ovr").decision_function(X)
    pairs = model.set_params(decision_function_shape="ovo").decision_function(X)
    np.testing.assert_allclose(pairs, np.column_stack([scores[:, a] - scores[:, b] for a, b in ((0, 1), (0, 2), (1, 2))]))
    # The signs and the order of the pairs are scikit-learn's: votes by them give its one-vs-rest form, and the same classes.
    votes = _ovr_decision_function(pairs < 0, -pairs, 3)
    np.testing.assert_array_equal(votes.argmax(axis=1), model.predict(X))
    with pytest.raises(ValueError, match="'decision_function_shape' parameter of LSSVC"):
        LSSVC(decision_function_shape="all").fit(X, y)
