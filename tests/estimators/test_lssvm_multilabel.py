"""LSSVC with an indicator matrix: every label is the machine that it would be alone, from one solve."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier

import gramless
from gramless import LSSVC


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(240, n_features=8, n_classes=4, random_state=0)
    return X / X.std(), Y


@pytest.mark.parametrize("probability", ["auto", "softmax", "sigmoid", "temperature"])
def test_each_label_is_its_own_machine(data, probability):
    X, Y = data
    model = LSSVC(C=3.0, gamma=0.1, probability=probability).fit(X[:180], Y[:180])
    scores, chances = model.decision_function(X[180:]), model.predict_proba(X[180:])
    assert model.predict(X[180:]).shape == scores.shape == chances.shape == (60, 4)
    for j in range(4):
        alone = LSSVC(C=3.0, gamma=0.1, probability=probability).fit(X[:180], Y[:180, j])
        np.testing.assert_allclose(scores[:, j], alone.decision_function(X[180:]), atol=1e-10)
        np.testing.assert_allclose(chances[:, j], alone.predict_proba(X[180:])[:, 1], atol=1e-8)
        np.testing.assert_array_equal(model.predict(X[180:])[:, j], alone.predict(X[180:]))


def test_equals_one_machine_for_each_label_in_scikit_learn_and_is_scored_there(data):
    X, Y = data
    model = LSSVC(C=3.0, gamma=0.1).fit(X, Y)
    theirs = OneVsRestClassifier(LSSVC(C=3.0, gamma=0.1)).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    assert f1_score(Y, model.predict(X), average="micro") > 0.8
    assert cross_val_score(LSSVC(C=3.0, gamma=0.1), X, Y, scoring="f1_micro", cv=3).min() > 0.6


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_sparse_indicators_lists_weights_and_files(data, solver, tmp_path):
    X, Y = data
    settings = {"solver": solver, "tol": 1e-10, "gamma": 0.1}
    truth = LSSVC(**settings).fit(X, Y).decision_function(X)
    for y in (sp.csr_matrix(Y), Y.tolist(), Y.astype(bool), Y.astype(float)):
        np.testing.assert_allclose(LSSVC(**settings).fit(X, y).decision_function(X), truth, atol=1e-7)
    counts = np.random.default_rng(0).integers(0, 3, size=len(X))
    weighted = LSSVC(**settings).fit(X, Y, sample_weight=counts)
    repeated = LSSVC(**settings).fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-6)
    gramless.save(weighted, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").predict(X), weighted.predict(X))


def test_two_labels_are_not_two_classes_and_a_label_may_be_constant(data):
    X, Y = data
    pair = np.column_stack([Y[:, 0], np.zeros(len(Y), dtype=int)])
    model = LSSVC(gamma=0.1).fit(X, pair)
    assert model.predict(X).shape == (240, 2)
    assert not model.predict(X)[:, 1].any()
    assert (model.predict_proba(X)[:, 1] < 0.5).all()
    again = model.fit(X, Y[:, 0])
    assert again.predict(X).shape == (240,)
    assert not again.multilabel_


def test_says_what_cannot_be(data):
    X, Y = data
    with pytest.raises(ValueError, match="class_weight"):
        LSSVC(class_weight="balanced").fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent"):
        LSSVC().fit(X, Y[:-1])
    with pytest.raises(ValueError, match="several labels"):
        LSSVC().fit(X, Y).predict_set(X)
    with pytest.raises(ValueError):
        LSSVC().fit(X, Y + np.arange(4))
    with pytest.raises(ValueError, match="several labels"):
        gramless.to_onnx(LSSVC().fit(X, Y))
