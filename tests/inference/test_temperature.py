"""One temperature for all classes, by maximum likelihood."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

import gramless
from gramless import LSSVC
from gramless.inference.leave_one_out import leave_one_out_on_demand
from gramless.inference.probabilities import fit_temperature, probabilities
from gramless.inference.tuning import TUNING
from gramless.kernels import RBF


@pytest.mark.parametrize("truth", [0.2, 1.0, 7.0])
def test_temperature_of_simulated_labels_is_recovered(truth):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 4)) * 3
    codes = (rng.random((20_000, 1)) > np.cumsum(softmax(scores / truth, axis=1), axis=1)).sum(axis=1)
    assert fit_temperature(scores, codes) == pytest.approx(truth, rel=0.05)


def test_no_other_temperature_has_a_smaller_log_loss():
    rng = np.random.default_rng(1)
    scores, codes = rng.normal(size=500), rng.integers(0, 2, 500)
    best = fit_temperature(scores, codes)
    both, shares = np.tile(scores, 3), np.concatenate([np.ones(500), np.full(1000, 0.5 / 500)])
    labels = np.concatenate([codes, np.zeros(500, dtype=int), np.ones(500, dtype=int)])
    losses = [log_loss(labels, probabilities(both, temperature=best * f), sample_weight=shares) for f in (0.9, 1.0, 1.1)]
    assert losses[1] == min(losses)


def test_weights_equal_repetition():
    rng = np.random.default_rng(2)
    scores, codes, w = rng.normal(size=(200, 3)), rng.integers(0, 3, 200), rng.integers(1, 4, 200)
    assert fit_temperature(scores, codes, w) == pytest.approx(
        fit_temperature(scores.repeat(w, 0), codes.repeat(w)), rel=1e-4
    )


def test_scores_that_are_all_zero_or_perfect_give_finite_probabilities():
    codes = np.array([0, 1, 1, 0])
    assert np.isfinite(probabilities(np.zeros(4), temperature=fit_temperature(np.zeros(4), codes))).all()
    perfect = np.array([-1.0, 1.0, 1.0, -1.0])
    largest = probabilities(perfect, temperature=fit_temperature(perfect, codes)).max(axis=1)
    np.testing.assert_allclose(largest, 4.5 / 5)  # four correct rows and one pseudo-row, of which half is correct


def test_default_is_calibrated_at_the_first_request(tmp_path):
    """The temperature equals that of `probability="temperature"`, and is stored in a file."""
    X, y = load_digits(return_X_y=True)
    X, y, new = X[:500], y[:500], X[500:700]
    lazy, eager = LSSVC(C=10.0).fit(X, y), LSSVC(C=10.0, probability="temperature").fit(X, y)
    assert not lazy._calibration
    gramless.save(lazy, tmp_path / "before.skops")
    np.testing.assert_allclose(lazy.predict_proba(new), eager.predict_proba(new), rtol=1e-5)
    assert lazy.temperature_ == pytest.approx(eager.temperature_)
    np.testing.assert_array_equal(lazy.predict_proba(new).argmax(axis=1), lazy.predict(new))
    np.testing.assert_allclose(gramless.load(tmp_path / "before.skops").predict_proba(new), lazy.predict_proba(new))
    sets = lazy.predict_set(new, coverage=0.95, random_state=0)
    assert sets.shape == (200, 10)


def test_models_beyond_the_memory_budget_stay_uncalibrated():
    X, y = load_digits(return_X_y=True)
    model = LSSVC(C=10.0).fit(X[:200], y[:200]).set_params(memory_budget=1000)
    np.testing.assert_allclose(model.predict_proba(X), softmax(model.decision_function(X), axis=1))
    assert model.temperature_ == 1.0
    with pytest.raises(ValueError, match="10,000 points"):
        model.predict_set(X)


def test_no_leave_one_out_on_demand_for_many_points():
    X, Z = np.random.default_rng(0).normal(size=(101, 2)), np.ones((101, 1))
    model = RBF(1.0), X, Z, Z, 1.0, None, "cpu", 10**9
    tuning = replace(TUNING, calibrated_max_points=100)
    assert leave_one_out_on_demand(*model, tuning) is None
    assert leave_one_out_on_demand(*model).shape == Z.shape


def test_callback_can_read_probabilities():
    X, y = load_digits(return_X_y=True)
    seen = []
    model = LSSVC(solver="cg", callback=lambda m, record: seen.append(m.predict_proba(X[:3]).sum()) or False)
    model.fit(X[:300], y[:300])
    np.testing.assert_allclose(seen, 3.0)
    assert model.temperature_ != 1.0
