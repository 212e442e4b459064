import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import gramless
from gramless import LSSVC, PatchClassifier, PrototypeLSSVC
from gramless.estimators import patches as module
from gramless.images import Patches
from gramless.images.tuning import TUNING


@pytest.fixture(scope="module")
def digits(digit_images):
    X, y = digit_images
    return X[:600], y[:600], X[1200:], y[1200:]


class FromFirstPixel(ClassifierMixin, BaseEstimator):
    """Predicts and scores by table from a window's first pixel, so that votes can be written down."""

    def __init__(self, labels=None, scores=None):
        self.labels = labels
        self.scores = scores

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.asarray(self.labels)[X[:, 0].astype(int)]

    def decision_function(self, X):
        if self.scores is None:
            raise AssertionError("only ties are scored")
        return np.asarray(self.scores)[X[:, 0].astype(int)]


def one_row(*pixels):
    """An image of one row, whose windows of side 1 are its pixels."""
    return np.array([[pixels]], dtype=np.uint8)[:, 0][:, None, :]


def vote_on(image, labels, scores=None):
    voter = PatchClassifier(FromFirstPixel(labels, scores), patch_size=1, normalise=False)
    training = np.zeros((3, *image.shape[1:]), np.uint8)
    return voter.fit(training, ["a", "b", "c"])


def test_most_frequent_label_is_predicted():
    image = one_row(0, 1, 1, 2)
    voter = vote_on(image, ["a", "b", "c"])
    assert voter.predict(image)[0] == "b"
    assert_allclose(voter.predict_proba(image), [[0.25, 0.5, 0.25]])


def test_ties_are_broken_by_the_sum_of_scores():
    image = one_row(0, 0, 1, 1, 2)
    # c has the largest score of all, but is not among the tied.
    scores = [[1, 0.5, 9], [0, 3, 9], [0, 0, 9]]
    assert vote_on(image, ["a", "b", "c"], scores).predict(image)[0] == "b"
    scores[0][0] = 7
    assert vote_on(image, ["a", "b", "c"], scores).predict(image)[0] == "a"


def test_labels_alone_break_ties_by_the_order_of_classes():
    class Plain(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            return self.classes_[X[:, 0].astype(int)]

    image = one_row(2, 1)
    voter = PatchClassifier(Plain(), patch_size=1, normalise=False).fit(np.zeros((3, 1, 2)), ["a", "b", "c"])
    assert voter.predict(image)[0] == "b"


def test_patches_have_the_label_of_their_image(digits):
    X, y, X_test, _ = digits
    voter = PatchClassifier(LSSVC(C=10.0), patch_size=7).fit(X, y)
    windows = Patches(7)
    expected = LSSVC(C=10.0).fit(windows.transform(X), np.repeat(y, 4))
    assert_array_equal(voter.estimator_.dual_coef_, expected.dual_coef_)
    labels = expected.predict(windows.transform(X_test)).reshape(-1, 4)
    clear = [np.bincount(votes).max() > 2 for votes in labels]
    majority = np.array([np.bincount(votes).argmax() for votes in labels])
    assert_array_equal(voter.predict(X_test)[clear], majority[clear])


def test_soft_votes_are_mean_probabilities(digits):
    X, y, X_test, _ = digits
    voter = PatchClassifier(GaussianNB(var_smoothing=0.1), patch_size=7, vote="soft").fit(X, y)
    share = voter.estimator_.predict_proba(Patches(7).transform(X_test)).reshape(-1, 4, 10).mean(axis=1)
    assert_allclose(voter.predict_proba(X_test), share)
    assert_array_equal(voter.predict(X_test), share.argmax(axis=1))


@pytest.mark.parametrize(
    "estimator",
    [PrototypeLSSVC(n_prototypes=30, kernel="poly", degree=4, gamma=1.0, C=1e6, random_state=0), KNeighborsClassifier(3)],
    ids=str,
)
def test_classifiers_of_both_libraries_work(digits, estimator):
    X, y, X_test, y_test = digits
    voter = PatchClassifier(estimator, patch_size=6).fit(X, y)
    assert voter.score(X_test, y_test) > 0.9
    assert voter.n_patches_ == 9


def test_two_classes_with_one_score(digits):
    X, y, X_test, y_test = digits
    two, two_test = y < 2, y_test < 2
    voter = PatchClassifier(LSSVC(), patch_size=7).fit(X[two], y[two])
    assert voter.score(X_test[two_test], y_test[two_test]) > 0.98


def test_patches_beyond_the_budget_are_stored_in_a_file(digits, monkeypatch):
    X, y, X_test, _ = digits
    folders = []
    make = tempfile.TemporaryDirectory

    def watched(*args, **kwargs):
        folders.append(make(*args, **kwargs))
        return folders[-1]

    voter = PatchClassifier(PrototypeLSSVC(n_prototypes=5, random_state=0), patch_size=7)
    expected = clone(voter).fit(X, y).predict(X_test)
    monkeypatch.setattr(module.tempfile, "TemporaryDirectory", watched)
    windows = len(X) * 4 * 49 * 4
    budgets = (int(share * windows) for share in np.arange(4, 0.5, -0.05))
    models = (clone(voter).set_params(memory_budget=budget) for budget in budgets)
    in_a_file = next(model for model in models if gramless.estimate(model, len(X), 64, 10).parts["data"] == 0)
    assert_array_equal(in_a_file.fit(X, y).predict(X_test), expected)
    assert len(folders) == 1
    assert not Path(folders[0].name).exists()
    one_image = in_a_file._votes(X_test, break_ties=True, tuning=replace(TUNING, patch_block_bytes=1))
    assert_array_equal(in_a_file.classes_[one_image.argmax(axis=1)], expected)


def test_sample_weights_are_repeated_for_each_patch(digits):
    X, y, X_test, _ = digits
    weights = np.arange(600) % 3
    weighted = PatchClassifier(LSSVC(solver="cholesky"), patch_size=7).fit(X[:150], y[:150], weights[:150])
    repeated = PatchClassifier(LSSVC(solver="cholesky"), patch_size=7).fit(
        np.repeat(X[:150], weights[:150], axis=0), np.repeat(y[:150], weights[:150])
    )
    assert (weighted.predict(X_test) == repeated.predict(X_test)).mean() > 0.99


def test_flat_rows_colour_and_names(digits):
    X, y, X_test, _ = digits
    voter = PatchClassifier(RidgeClassifier(), patch_size=6)
    expected = clone(voter).fit(X, y).predict(X_test)
    flat = clone(voter).fit(X.reshape(-1, 64), y)
    assert_array_equal(flat.predict(X_test.reshape(-1, 64)), expected)
    assert flat.n_features_in_ == 64
    colour = np.repeat(X[..., None], 3, axis=3)
    assert clone(voter).fit(colour, y).estimator_.n_features_in_ == 108


def test_grid_search_clone_and_saving(digits, tmp_path):
    X, y, X_test, _ = digits
    search = GridSearchCV(
        PatchClassifier(LSSVC(), patch_size=7), {"patch_size": [7, 8], "estimator__C": [1.0, 10.0]}, cv=2
    ).fit(X[:200], y[:200])
    best = search.best_estimator_
    assert best.estimator.C in (1.0, 10.0)
    gramless.save(best, tmp_path / "model.skops")
    assert_array_equal(gramless.load(tmp_path / "model.skops").predict(X_test), best.predict(X_test))


def test_default_estimator_is_that_of_the_paper(digits):
    X, y, X_test, y_test = digits
    voter = PatchClassifier(patch_size=7).fit(X, y)
    assert isinstance(voter.estimator_, PrototypeLSSVC)
    assert voter.score(X_test, y_test) > 0.9


def test_blank_images_are_accepted(digits):
    X, y, X_test, y_test = digits
    spoilt = np.concatenate([np.zeros_like(X[:20]), np.full_like(X[:20], 7), X])
    labels = np.concatenate([y[:40], y])
    voter = PatchClassifier(patch_size=7).fit(spoilt, labels)
    assert voter.score(X_test, y_test) > 0.85
    assert len(voter.predict(np.zeros((2, 8, 8), np.uint8))) == 2


@pytest.mark.parametrize(
    ("settings", "X", "words"),
    [
        ({"patch_size": 9}, np.ones((4, 8, 8)), "larger than the images"),
        ({"patch_size": 3}, np.ones((4, 10)), "not square"),
        ({"patch_size": 3, "shape": (3, 4)}, np.ones((4, 10)), "stated shape"),
        ({"patch_size": 3}, np.ones((4, 2, 2, 2, 2)), "height, width"),
        ({"patch_size": 3, "vote": "loud"}, np.ones((4, 8, 8)), "a str among"),
        ({"patch_size": 3, "vote": "soft", "estimator": RidgeClassifier()}, np.ones((4, 8, 8)), "does not have"),
    ],
)
def test_invalid_images_raise(settings, X, words):
    with pytest.raises(ValueError, match=words):
        PatchClassifier(**settings).fit(X, [0, 1, 0, 1])


def test_failed_fit_does_not_change_the_model(digits):
    X, y, X_test, _ = digits
    voter = PatchClassifier(RidgeClassifier(), patch_size=7).fit(X, y)
    before = voter.predict(X_test)
    with pytest.raises(ValueError, match="inconsistent"):
        voter.fit(X, y[:-1])
    assert_array_equal(voter.predict(X_test), before)


def test_soft_votes_without_predict_proba_raise():
    assert not hasattr(PatchClassifier(RidgeClassifier(), vote="soft"), "predict_proba")
    assert hasattr(PatchClassifier(RidgeClassifier()), "predict_proba")


def test_default_patch_size(digits):
    X, y, X_test, y_test = digits
    voter = PatchClassifier(LSSVC(C=10.0)).fit(X, y)
    assert voter.n_patches_ == 4
    assert voter.score(X_test, y_test) > 0.9
    assert Patches().per_image((28, 28)) == 16


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs limits of file sizes")
def test_full_disk_raises_before_patches_are_written(monkeypatch, tmp_path):
    """Writing to a mapped file on a full disk would kill the process."""
    import resource
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    images = np.random.default_rng(0).integers(0, 255, (300, 16, 16)).astype(np.uint8)
    model = PatchClassifier(patch_size=12, memory_budget="11MB")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            model.fit(images, np.arange(300) % 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
