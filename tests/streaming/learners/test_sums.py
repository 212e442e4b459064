"""Sums that add up to ridge regression: against the explicit solution, in any grouping, with and without weights."""

import pickle

import numpy as np
import pytest

from gramless.kernels import RBF
from gramless.streaming.learners.ridge_sums import RidgeSums


def explicit(F, Z, ridge, penalty=None, weights=None):
    """The minimiser with an unpenalised bias, from the bordered system in float64."""
    n, p = F.shape
    P = np.eye(p) if penalty is None else penalty
    w = np.ones(n) if weights is None else weights
    G = np.column_stack([F, np.ones(n)])
    H = G.T @ (w[:, None] * G)
    H[:p, :p] += ridge * P
    solution = np.linalg.solve(H, G.T @ (w[:, None] * Z))
    return solution[:p], solution[p]


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    points = X[:25]
    kernel = RBF(gamma=0.3)
    return kernel(X, points), rng.normal(size=(300, 3)), kernel(points, points), rng.uniform(0.1, 3, size=300)


def summed(F, Z, weights=None, cuts=()):
    sums = RidgeSums(F.shape[1], Z.shape[1])
    for rows in np.split(np.arange(len(F)), list(cuts)):
        sums.add(F[rows], Z[rows], None if weights is None else weights[rows])
    return sums


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_penalty", [False, True])
def test_solution_is_the_explicit_one(problem, weighted, with_penalty):
    F, Z, K, w = problem
    weights, penalty = (w if weighted else None), (K if with_penalty else None)
    found = summed(F, Z, weights, cuts=[10, 11, 200]).solve(0.2, penalty)
    expected, expected_bias = explicit(F, Z, 0.2, penalty, weights)
    np.testing.assert_allclose(F @ found.A + found.bias, F @ expected + expected_bias, atol=1e-8)


def test_merge_equals_one_accumulator_and_leaves_the_other_alone(problem):
    F, Z, K, w = problem
    left, right = summed(F[:120], Z[:120], w[:120]), summed(F[120:], Z[120:], w[120:])
    before = right.solve(0.1, K).A
    merged = left.merge(right)
    np.testing.assert_allclose(merged.solve(0.1, K).A, summed(F, Z, w).solve(0.1, K).A, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(right.solve(0.1, K).A, before)
    assert (merged.n_rows, merged.weight) == (300, pytest.approx(w.sum()))


@pytest.mark.parametrize("cut", [1, 150])
def test_large_means_of_targets_lose_no_digits(problem, cut):
    """Sums of the targets themselves would have an error of 1e8 eps sqrt(n) = 4e-7, which a small ridge magnifies."""
    F, Z, K, _ = problem
    expected = summed(F, Z).solve(1e-9, K)
    merged = summed(F[:cut], Z[:cut] + 2.0**27).merge(summed(F[cut:], Z[cut:] + 2.0**27)).solve(1e-9, K)
    np.testing.assert_allclose(F @ merged.A + merged.bias - 2.0**27, F @ expected.A + expected.bias, atol=3e-6)
    np.testing.assert_allclose(merged.A, expected.A, rtol=1e-4, atol=1e-4 * np.abs(expected.A).max())


def test_merge_refuses_other_sizes():
    with pytest.raises(ValueError, match="cannot merge sums of 3 features"):
        RidgeSums(2, 1).merge(RidgeSums(3, 1))


def test_a_batch_of_another_width_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        RidgeSums(2, 1).add(np.ones((4, 3)), np.ones((4, 1)))


def test_nothing_added_cannot_be_solved():
    with pytest.raises(ValueError, match="no rows"):
        RidgeSums(2, 1).solve(1.0)


def test_decay_is_a_smaller_weight(problem):
    F, Z, K, _ = problem
    sums = summed(F[:100], Z[:100])
    sums.decay(0.25)
    sums.add(F[100:], Z[100:])
    weights = np.r_[np.full(100, 0.25), np.ones(200)]
    np.testing.assert_allclose(sums.solve(0.1, K).A, explicit(F, Z, 0.1, K, weights)[0], rtol=1e-6, atol=1e-8)


def test_a_target_first_met_late_was_zero_before(problem):
    F, Z, K, _ = problem
    late = Z * np.array([1.0, 1.0, 0.0])
    late[200:, 2] = Z[200:, 2]
    sums = RidgeSums(25, 2)
    sums.add(F[:200], late[:200, :2])
    sums.widen(3)
    sums.add(F[200:], late[200:])
    np.testing.assert_allclose(sums.solve(0.1, K).A, summed(F, late).solve(0.1, K).A, rtol=1e-9, atol=1e-9)


def test_leave_one_out_is_a_refit_without_the_row(problem):
    F, Z, K, w = problem
    whitened = summed(F, Z, w).whiten(K)
    ridges = [0.01, 1.0]
    residuals = whitened.leave_one_out(F, Z, ridges, w)
    for i in (0, 7, 299):
        rest = np.delete(np.arange(300), i)
        for j, ridge in enumerate(ridges):
            coef, bias = explicit(F[rest], Z[rest], ridge, K, w[rest])
            np.testing.assert_allclose(residuals[j, i], Z[i] - F[i] @ coef - bias, atol=1e-7)


def test_float32_features_are_summed_in_float64(problem):
    F, Z, K, _ = problem
    single = np.tile(F.astype(np.float32), (10, 1))
    sums = summed(single, np.tile(Z, (10, 1)))
    np.testing.assert_allclose(np.triu(sums.upper), np.triu(single.T.astype(float) @ single.astype(float)), rtol=1e-12)
    assert sums.whiten(K).jitter > 1e3 * summed(F, Z).whiten(K).jitter > 0


def test_jitter_keeps_duplicate_landmarks_solvable():
    X = np.repeat(np.linspace(0, 1, 20)[:, None], 2, axis=0)
    kernel = RBF(gamma=1.0)
    sums = summed(kernel(X, X), np.sin(6 * X))
    whitened = sums.whiten(kernel(X, X))
    found = whitened.solve(1e-6)
    assert 0 < whitened.jitter < 1e-10
    np.testing.assert_allclose(kernel(X, X) @ found.A + found.bias, np.sin(6 * X), atol=0.01)


def test_pickle_carries_the_sums(problem):
    F, Z, K, w = problem
    sums = summed(F, Z, w)
    copy = pickle.loads(pickle.dumps(sums))
    copy.add(F[:5], Z[:5])
    sums.add(F[:5], Z[:5])
    np.testing.assert_array_equal(copy.solve(0.1, K).A, sums.solve(0.1, K).A)


def test_torch_gives_numpys_numbers(problem):
    torch = pytest.importorskip("torch")
    F, Z, K, w = problem
    t = torch.as_tensor
    sums = RidgeSums(25, 3, t(F))
    sums.add(t(F[:100]), t(Z[:100]), t(w[:100]))
    sums.add(t(F[100:]), t(Z[100:]), t(w[100:]))
    found = sums.solve(0.1, t(K))
    expected = summed(F, Z, w).solve(0.1, K)
    np.testing.assert_allclose(F @ found.A.numpy() + found.bias.numpy(), F @ expected.A + expected.bias, atol=1e-9)
    residuals = sums.whiten(t(K)).leave_one_out(t(F), t(Z), [0.1], t(w))
    np.testing.assert_allclose(residuals.numpy(), summed(F, Z, w).whiten(K).leave_one_out(F, Z, [0.1], w), atol=1e-7)
