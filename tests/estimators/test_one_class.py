"""KernelOneClassSVM against scikit-learn's, and the steps that only a large fit takes."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.svm import OneClassSVM

from gramless import KernelOneClassSVM
from gramless.kernels import RBF, Kernel
from gramless.svm.one_class_dual import solve_one_class
from gramless.svm.resources import DualFit
from gramless.svm.smo import SMO
from gramless.svm.tuning import TUNING


def rows(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n - n // 10, d)), rng.normal(size=(n // 10, d)) * 3])


@pytest.mark.parametrize("nu", [0.0217, 0.111, 0.517, 0.903])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
def test_equals_scikit_learn(kernel, nu):
    """scikit-learn's kernel values are in single precision, which limits the digits compared."""
    shift = 6.0 if kernel == "linear" else 0.0  # away from the origin, from which a linear kernel separates the rows
    X, new = rows() + shift, rows(seed=1) + shift
    settings = {"nu": nu, "gamma": 0.2, "coef0": 1.0}
    theirs = OneClassSVM(kernel=laplacian_kernel_02 if kernel == "laplacian" else kernel, **settings, tol=1e-5).fit(X)
    ours = KernelOneClassSVM(kernel, **settings, tol=1e-8).fit(X)
    scale = np.abs(theirs.score_samples(X)).max()
    np.testing.assert_allclose(ours.score_samples(new), theirs.score_samples(new), atol=1e-4 * scale)
    assert ours.offset_ == pytest.approx(theirs.offset_[0], abs=1e-4 * scale)
    clear = np.abs(theirs.decision_function(new)) > 1e-3 * scale
    np.testing.assert_array_equal(ours.predict(new)[clear], theirs.predict(new)[clear])


def laplacian_kernel_02(A, B):
    return laplacian_kernel(A, B, gamma=0.2)


def test_with_nu_one_all_multipliers_are_at_their_bounds():
    """scikit-learn returns no finite offset here."""
    X = rows(50)
    model = KernelOneClassSVM(nu=1.0, gamma=0.2).fit(X)
    np.testing.assert_allclose(model.score_samples(X), rbf_kernel(X, gamma=0.2).sum(axis=1))
    assert np.isfinite(model.offset_)


def test_solves_the_quadratic_programme():
    """The objective equals that of a general solver for constrained problems."""
    X, nu = rows(40), 0.3
    K = rbf_kernel(X, gamma=0.3)
    best = minimize(
        lambda a: a @ K @ a / 2,
        np.full(40, nu),
        jac=lambda a: K @ a,
        bounds=[(0, 1)] * 40,
        constraints={"type": "eq", "fun": lambda a: a.sum() - nu * 40, "jac": lambda a: np.ones(40)},
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    model = KernelOneClassSVM(gamma=0.3, nu=nu, tol=1e-10).fit(X)
    assert model.dual_objective_ == pytest.approx(-best.fun, rel=1e-8)
    assert model.dual_coef_.sum() == pytest.approx(nu * 40)


class RecordingKernel(Kernel):
    """Gaussian kernel that records precision and number of the rows whose values with few points it computes."""

    def __init__(self):
        self.products = []

    def __call__(self, X, Y, out=None):
        if len(Y) < 450:  # Gram matrices have more points
            self.products.append((X.dtype.name, len(X)))
        return RBF(0.1)(X, Y, out=out)

    def diag(self, X):
        return RBF(0.1).diag(X)


@pytest.mark.parametrize("divisor", [2, 50, 10**6])
@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-9])
def test_scores_in_float32_do_not_change_the_solution(tol, divisor):
    """If float32 is too coarse, rows near the level are scored again, and all rows if that is not enough."""
    tuning = replace(TUNING, solved_whole=64, values_for_float32=1, refined_divisor=divisor)
    X, kernel = rows(900), RecordingKernel()
    fit = DualFit(kernel, X, SMO(tol=tol), 1e8, tuning=tuning)
    solution = solve_one_class(fit, np.ones(900), 0.2)
    assert ("float32", 900) in kernel.products
    if tol == 1e-2 or divisor == 2:
        assert ("float64", 900) not in kernel.products
    if tol < 1e-3 and divisor == 10**6:
        assert ("float64", 900) in kernel.products
    slopes, offset = rbf_kernel(X, gamma=0.1) @ solution.beta, -solution.bias
    free = (solution.beta > 0) & (solution.beta < 1)
    np.testing.assert_allclose(slopes[free], offset, atol=2 * tol)
    assert slopes[solution.beta == 1].max() <= offset + 2 * tol
    assert slopes[solution.beta == 0].min() >= offset - 2 * tol


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_start_from_a_subset_does_not_change_the_solution(dtype):
    """Large fits start from the model of an eighth of the rows, whose product is computed separately."""
    X = rows(900).astype(dtype)
    tol = 1e-8 if dtype == "float64" else 1e-4
    fit = DualFit(RBF(0.1), X, SMO(tol=tol), 1e8, tuning=replace(TUNING, solved_whole=64))
    solution = solve_one_class(fit, np.ones(900), 0.2)
    theirs = OneClassSVM(nu=0.2, gamma=0.1, tol=1e-5).fit(X.astype(np.float64))
    assert -solution.bias == pytest.approx(theirs.offset_[0], rel=1e-4)
    scores = rbf_kernel(X.astype(np.float64), gamma=0.1) @ solution.beta
    np.testing.assert_allclose(scores, theirs.score_samples(X.astype(np.float64)), rtol=1e-4)


def test_rows_beyond_one_working_set_within_a_budget():
    X = rows(3000)
    model = KernelOneClassSVM(nu=0.1, gamma=0.2, tol=1e-7, memory_budget="96MB", random_state=0).fit(X)
    theirs = OneClassSVM(nu=0.1, gamma=0.2, tol=1e-4).fit(X)
    np.testing.assert_allclose(model.score_samples(X), theirs.score_samples(X), rtol=1e-4)
    assert model.offset_ == pytest.approx(theirs.offset_[0], rel=1e-4)


def test_a_weight_equals_repeated_rows():
    X = rows(120)
    counts = np.random.default_rng(1).integers(0, 4, size=120)
    weighted = KernelOneClassSVM(nu=0.3, gamma=0.2, tol=1e-10).fit(X, sample_weight=counts)
    repeated = KernelOneClassSVM(nu=0.3, gamma=0.2, tol=1e-10).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-7)
    theirs = OneClassSVM(nu=0.3, gamma=0.2, tol=1e-6).fit(X, sample_weight=counts.astype(float))
    np.testing.assert_allclose(weighted.decision_function(X), theirs.decision_function(X), atol=1e-4)


def test_sparse_rows_functions_and_precomputed_values_agree():
    X = rows(150)
    X[X < 0.4] = 0.0
    settings = {"gamma": 0.3, "nu": 0.2, "tol": 1e-10}
    dense = KernelOneClassSVM(**settings).fit(X)
    sparse = KernelOneClassSVM(**settings).fit(sp.csr_matrix(X))
    function = KernelOneClassSVM(lambda A, B: rbf_kernel(A, B, gamma=0.3), nu=0.2, tol=1e-10).fit(X)
    K = rbf_kernel(X, gamma=0.3)
    values = KernelOneClassSVM("precomputed", nu=0.2, tol=1e-10).fit(K)
    truth = dense.decision_function(X)
    for scores in (sparse.decision_function(sp.csr_matrix(X)), function.decision_function(X), values.decision_function(K)):
        np.testing.assert_allclose(scores, truth, atol=1e-8)
    assert sp.issparse(sparse.dual_coef_)


def test_simple_smo_agrees():
    X = rows(60)
    fast = KernelOneClassSVM(nu=0.3, gamma=0.3, tol=1e-8).fit(X)
    simple = KernelOneClassSVM(nu=0.3, gamma=0.3, tol=1e-6, solver="simple_smo").fit(X)
    np.testing.assert_allclose(simple.decision_function(X), fast.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("nu", [0.05, 0.3])
def test_nu_bounds_the_outliers_and_the_support(nu):
    X = rows(1000)
    model = KernelOneClassSVM(nu=nu, tol=1e-8, random_state=0).fit(X)
    assert (model.decision_function(X) < -1e-6).mean() <= nu <= model.support_.size / 1000
    np.testing.assert_array_equal(KernelOneClassSVM(nu=nu, tol=1e-8, random_state=0).fit_predict(X), model.predict(X))


@pytest.mark.parametrize("nu", [0, 1.5, -0.1, "half"])
def test_nu_is_a_fraction(nu):
    with pytest.raises(ValueError, match="'nu' parameter of KernelOneClassSVM"):
        KernelOneClassSVM(nu=nu).fit(rows(20))


@pytest.mark.parametrize("n", [1000, 3000], ids=["one working set", "start from a subset"])
def test_two_fits_are_equal_without_a_random_state(n):
    X = np.random.default_rng(0).normal(size=(n, 5))
    first, second = (KernelOneClassSVM(nu=0.1).fit(X).score_samples(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
