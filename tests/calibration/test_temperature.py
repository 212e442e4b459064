"""One temperature for all classes, by maximum likelihood."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from gramless.calibration.temperature import fit_temperature, temperature_probabilities


@pytest.mark.parametrize("truth", [0.2, 1.0, 7.0])
def test_the_temperature_that_made_the_labels_is_found(truth):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 4)) * 3
    codes = (rng.random((20_000, 1)) > np.cumsum(softmax(scores / truth, axis=1), axis=1)).sum(axis=1)
    assert fit_temperature(scores, codes) == pytest.approx(truth, rel=0.05)


def test_no_other_temperature_has_a_smaller_log_loss():
    rng = np.random.default_rng(1)
    scores, codes = rng.normal(size=500), rng.integers(0, 2, 500)
    best = fit_temperature(scores, codes)
    losses = [log_loss(codes, temperature_probabilities(scores, best * f)) for f in (0.9, 1.0, 1.1)]
    assert losses[1] == min(losses)


def test_weights_equal_repetition():
    rng = np.random.default_rng(2)
    scores, codes, w = rng.normal(size=(200, 3)), rng.integers(0, 3, 200), rng.integers(1, 4, 200)
    assert fit_temperature(scores, codes, w) == pytest.approx(
        fit_temperature(scores.repeat(w, 0), codes.repeat(w)), rel=1e-4
    )


def test_scores_that_are_all_zero_or_perfect_give_finite_probabilities():
    codes = np.array([0, 1, 1, 0])
    assert np.isfinite(temperature_probabilities(np.zeros(4), fit_temperature(np.zeros(4), codes))).all()
    perfect = np.array([-1.0, 1.0, 1.0, -1.0])
    assert (temperature_probabilities(perfect, fit_temperature(perfect, codes)).max(axis=1) > 0.99).all()
