"""Prediction sets: coverage on new rows, nesting, and coverage per class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from gramless import LSSVC
from gramless.inference.intervals import adaptive_scores, prediction_sets, score_thresholds


def labelled(n, seed, k=5):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.4), size=n)
    codes = np.array([rng.choice(k, p=row) for row in p])
    return p, codes, rng.random(n)


def threshold(scores, codes, coverage):
    return score_thresholds(scores[np.arange(len(codes)), codes][None], coverage)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_sets_of_new_rows_have_the_requested_coverage(coverage):
    p, codes, u = labelled(4000, 0)
    fresh, truth, v = labelled(4000, 1)
    limits = threshold(adaptive_scores(p, u), codes, coverage)
    sets = adaptive_scores(fresh, v) <= limits
    covered = sets[np.arange(len(truth)), truth].mean()
    assert abs(covered - coverage) < 3 * np.sqrt(2 * coverage * (1 - coverage) / 4000)


def test_sets_without_random_fraction_are_not_empty_and_cover_at_least_as_often():
    p, codes, _ = labelled(4000, 2)
    fresh, truth, _ = labelled(4000, 3)
    sets = adaptive_scores(fresh) <= threshold(adaptive_scores(p), codes, 0.8)
    sets |= fresh >= fresh.max(axis=1, keepdims=True)
    assert sets.any(axis=1).all()
    assert sets[np.arange(len(truth)), truth].mean() > 0.78


def test_thresholds_per_class_cover_every_class():
    p, codes, u = labelled(6000, 4)
    p[:, 0] *= 0.3  # a class that the model likes too little
    p /= p.sum(axis=1, keepdims=True)
    half = slice(0, 3000), slice(3000, 6000)
    true_scores = adaptive_scores(p, u)[np.arange(6000), codes]
    sets = prediction_sets(p[half[1]], true_scores[half[0]], codes[half[0]], 0.9, per_class=True, random_state=0)
    own = sets[np.arange(3000), codes[half[1]]]
    for c in range(5):
        assert abs(own[codes[half[1]] == c].mean() - 0.9) < 0.06


@given(st.integers(0, 10_000), st.floats(0.05, 0.9), st.floats(0.001, 0.09))
@settings(deadline=None, max_examples=50)
def test_sets_are_nested_in_coverage(seed, coverage, more):
    p, codes, u = labelled(60, seed)
    scores = adaptive_scores(p, u)
    inner = scores <= threshold(scores, codes, coverage)
    outer = scores <= threshold(scores, codes, coverage + more)
    assert (outer | ~inner).all()


def test_weights_equal_repetition():
    scores = np.random.default_rng(5).random(30)
    weights = np.random.default_rng(6).integers(1, 4, 30)
    assert score_thresholds(scores[None], 0.7, weights.astype(float)) == score_thresholds(scores.repeat(weights)[None], 0.7)


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900] / 16, y[:900], X[900:] / 16, y[900:]


@pytest.mark.parametrize("probability", ["temperature", "sigmoid"])
def test_sets_of_a_classifier_cover_new_rows(probability):
    X, y, X_new, y_new = digits()
    model = LSSVC(C=0.05, gamma=1.0, probability=probability, random_state=0).fit(X, y)
    for coverage in (0.6, 0.8):
        sets = model.predict_set(X_new, coverage, random_state=0)
        inside = sets[np.arange(len(y_new)), y_new].mean()
        assert abs(inside - coverage) < 4 * np.sqrt(coverage * (1 - coverage) * (1 / 900 + 1 / len(y_new)))
    assert (model.predict_set(X_new, 0.8, random_state=0) >= model.predict_set(X_new, 0.6, random_state=0)).all()
    assert model.predict_set(X_new, 0.8, per_class=True, random_state=0).shape == sets.shape


def test_most_probable_class_is_the_prediction():
    X, y, X_new, y_new = digits()
    model = LSSVC(C=10.0, probability="temperature").fit(X, y)
    p = model.predict_proba(X_new)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X_new))
    softmax = LSSVC(C=10.0, probability="softmax").fit(X, y).predict_proba(X_new)
    assert log_loss(y_new, p) < 0.5 * log_loss(y_new, softmax)


def test_predict_set_without_leave_one_out_scores_raises():
    X, y, X_new, _ = digits()
    with pytest.raises(ValueError, match="temperature"):
        LSSVC(probability="softmax").fit(X[:100], y[:100]).predict_set(X_new)
