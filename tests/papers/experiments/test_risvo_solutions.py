"""Readings of RiSVO that only the experiments use: the pseudo-inverse of eq. (5), and averages over chunks of the rows."""

import numpy as np
import pytest

from gramless.estimators.risvo import RiSVOClassifier, signed_targets
from gramless.papers.experiments.risvo import AveragedRiSVO, PseudoInverseRiSVO


@pytest.fixture(scope="module")
def data(digits):
    X, y = digits
    return X[:600] / np.linalg.norm(X[:600], axis=1, keepdims=True), y[:600]


def test_pseudo_inverse_solves_the_printed_equations(data):
    """Omega [A; b] = (K_GS + E) T, with the smallest norm among all solutions."""
    X, y = data
    model = PseudoInverseRiSVO(n_landmarks=20, max_iter=1).fit(X, y)
    K_GS, K_G = (model.points_ @ X.T) ** 2, (model.points_ @ model.points_.T) ** 2
    left = K_GS + np.ones_like(K_GS)
    omega = np.column_stack([left @ K_GS.T + model.rho * K_G, K_GS.sum(axis=1) + len(X)])
    right = left @ signed_targets(y, 10)
    np.testing.assert_allclose(omega @ model.solution_, right, rtol=1e-6, atol=1e-6 * np.abs(right).max())
    expected = np.linalg.lstsq(omega, right, rcond=None)[0]
    np.testing.assert_allclose(model.solution_, expected, atol=1e-4 * np.abs(expected).max())


def test_pseudo_inverse_is_as_accurate_as_the_normal_equations(data):
    X, y = data
    settings = {"kernel": "poly", "degree": 2, "gamma": 1.0, "landmarks": X[:60], "max_iter": 1}
    accurate = RiSVOClassifier(**settings).fit(X, y).score(X, y)
    assert PseudoInverseRiSVO(n_landmarks=60, max_iter=1).fit(X, y).score(X, y) == pytest.approx(accurate, abs=0.02)


def test_average_is_the_mean_of_independent_fits(data):
    X, y = data
    model = RiSVOClassifier(n_landmarks=30, gamma=1.0, max_iter=3, random_state=0)
    averaged = AveragedRiSVO(model, n_chunks=2).fit(X, y)
    order = np.random.default_rng(0).permutation(len(X))
    fits = [
        RiSVOClassifier(landmarks=X[order[:30]], gamma=1.0, max_iter=3).fit(X[rows], y[rows])
        for rows in np.array_split(order, 2)
    ]
    scores = np.mean([fit.decision_function(X) for fit in fits], axis=0)
    np.testing.assert_allclose(averaged.model_.decision_function(X), scores, atol=1e-8)
    assert averaged.score(X, y) > 0.8
