"""Intervals from closed-form leave-one-out models against n refits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless.inference.intervals import jackknife_plus
from gramless.inference.posterior import ExactPosterior, LeastSquaresModel
from gramless.kernels import RBF


def dense_fit(X, y, weights, gamma, C, fit_intercept):
    K = RBF(gamma=gamma)(X, X) + np.diag(1 / (C * weights))
    n = len(y)
    if not fit_intercept:
        return np.linalg.solve(K, y), 0.0
    M = np.block([[K, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(M, np.append(y, 0.0))
    return solution[:-1], solution[-1]


def problem(seed=0, n=25):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n), rng.normal(size=(7, 2))


def posterior(X, y, weights=None, gamma=0.5, C=3.0, fit_intercept=True):
    w = np.ones(len(y)) if weights is None else weights
    coef, bias = dense_fit(X, y, w, gamma, C, fit_intercept)
    return ExactPosterior(
        LeastSquaresModel(RBF(gamma=gamma), X, coef[:, None], np.array([bias]), 1 / C, weights, fit_intercept)
    )


def intervals(process, X_new, coverage):
    (batch,) = process.batches(X_new)
    left = process.leave_one_out
    w = None if process.model.weights is None else left.weights
    return jackknife_plus(batch.means - left.changes[:, 0] * batch.weights, np.abs(left.residuals[:, 0]), coverage, w)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_intervals_equal_those_of_n_refits(fit_intercept, coverage):
    X, y, X_new = problem()
    n = len(y)
    lower, upper = intervals(posterior(X, y, fit_intercept=fit_intercept), X_new, coverage)
    ends = []
    for i in range(n):
        keep = np.arange(n) != i
        coef, bias = dense_fit(X[keep], y[keep], np.ones(n - 1), 0.5, 3.0, fit_intercept)
        f = RBF(gamma=0.5)(X_new, X[keep]) @ coef + bias
        r = abs(y[i] - (RBF(gamma=0.5)(X[i : i + 1], X[keep]) @ coef + bias)[0])
        ends.append((f - r, f + r))
    rank = int(np.ceil(coverage * (n + 1)))
    lows, highs = np.array([e[0] for e in ends]), np.array([e[1] for e in ends])
    np.testing.assert_allclose(upper, np.sort(highs, axis=0)[rank - 1], rtol=1e-9)
    np.testing.assert_allclose(lower, np.sort(lows, axis=0)[n - rank], rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_equal_repetition(fit_intercept):
    X, y, X_new = problem(1)
    weights = np.random.default_rng(2).integers(1, 4, size=len(y)).astype(float)
    whole = weights.astype(int)
    weighted = intervals(posterior(X, y, weights, fit_intercept=fit_intercept), X_new, 0.8)
    repeated = intervals(posterior(X.repeat(whole, 0), y.repeat(whole), fit_intercept=fit_intercept), X_new, 0.8)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-7)


def test_too_few_rows_for_the_coverage_make_the_interval_infinite():
    lower, upper = jackknife_plus(np.zeros((2, 5)), np.ones(5), 0.9)
    assert np.isneginf(lower).all()
    assert np.isposinf(upper).all()


@given(st.integers(0, 1000), st.floats(0.1, 0.8), st.floats(0.01, 0.15))
@settings(deadline=None, max_examples=30)
def test_a_larger_coverage_contains_a_smaller_one(seed, coverage, more):
    X, y, X_new = problem(seed)
    process = posterior(X, y)
    inner, outer = intervals(process, X_new, coverage), intervals(process, X_new, coverage + more)
    assert (outer[0] <= inner[0]).all()
    assert (outer[1] >= inner[1]).all()


@pytest.mark.parametrize("bad", [0, 1, 1.5, -0.1, "90%", 90])
def test_coverage_outside_of_zero_and_one_raises(bad):
    with pytest.raises(ValueError, match="between 0 and 1"):
        jackknife_plus(np.zeros((1, 3)), np.ones(3), bad)
