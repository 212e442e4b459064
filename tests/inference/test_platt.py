"""Platt's sigmoid against a general optimiser, and in edge cases."""

import numpy as np
import pytest
from scipy.optimize import minimize

from gramless.inference.probabilities import fit_sigmoid, fit_sigmoids, sigmoid_probabilities


def reference(scores, positive, weights):
    """Return slope and offset of largest likelihood by a general optimiser."""
    n1, n0 = weights[positive].sum(), weights[~positive].sum()
    t = np.where(positive, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))

    def loss(parameters):
        f = parameters[0] * scores + parameters[1]
        return weights @ (np.logaddexp(0, f) - (1 - t) * f)

    return minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_sigmoid_maximises_the_likelihood(seed, weighted):
    rng = np.random.default_rng(seed)
    positive = rng.random(300) < 0.3
    scores = rng.normal(size=300) + 1.5 * positive
    weights = rng.uniform(0.1, 3.0, 300) if weighted else np.ones(300)
    fitted = fit_sigmoid(scores, positive, weights if weighted else None)
    np.testing.assert_allclose(fitted, reference(scores, positive, weights), rtol=1e-3, atol=1e-4)


def test_weights_equal_repetitions():
    rng = np.random.default_rng(0)
    scores, positive = rng.normal(size=50), rng.random(50) < 0.5
    counts = rng.integers(1, 4, 50)
    repeated = fit_sigmoid(np.repeat(scores, counts), np.repeat(positive, counts))
    np.testing.assert_allclose(fit_sigmoid(scores, positive, counts), repeated, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6, 1e150])
def test_sigmoids_do_not_overflow_at_any_scale(scale):
    positive = np.arange(40) % 2 == 1
    scores = scale * np.where(positive, 1.0, -1.0) * np.linspace(0.5, 1.0, 40)
    a, b = fit_sigmoid(scores, positive)
    p = sigmoid_probabilities(scores, np.array([[a, b]]))
    assert np.isfinite([a, b]).all()
    assert np.isfinite(p).all()


def test_separable_scores_keep_a_finite_slope():
    positive = np.arange(100) >= 50
    a, b = fit_sigmoid(np.where(positive, 1.0, -1.0), positive)
    p = sigmoid_probabilities(np.array([-1.0, 1.0]), np.array([[a, b]]))[:, 1]
    np.testing.assert_allclose(p, [1 / 52, 51 / 52], atol=1e-3)


@pytest.mark.parametrize("positive", [np.zeros(10, bool), np.ones(10, bool)], ids=["none", "all"])
def test_sigmoid_of_one_class_is_finite(positive):
    a, b = fit_sigmoid(np.linspace(-1, 1, 10), positive)
    assert np.isfinite([a, b]).all()


def test_constant_scores_give_the_prior():
    positive = np.arange(100) < 30
    a, b = fit_sigmoid(np.zeros(100), positive)
    assert sigmoid_probabilities(np.zeros(1), np.array([[a, b]]))[0, 1] == pytest.approx(0.3, abs=0.02)


def test_several_classes_are_normalised_and_rejected_points_are_uniform():
    codes = np.arange(90) % 3
    scores = np.eye(3)[codes] + 0.1 * np.random.default_rng(0).normal(size=(90, 3))
    sigmoids = fit_sigmoids(scores, codes, 3)
    p = sigmoid_probabilities(scores, sigmoids)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert (p.argmax(1) == codes).all()
    far = sigmoid_probabilities(np.full((1, 3), -1e9), sigmoids)
    np.testing.assert_allclose(far, 1 / 3)
