"""Callbacks and messages of the estimators whose fits have no solver's iterations: searches, prototypes, patches."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from gramless import (
    LSSVC,
    LSSVR,
    NystromLSSVC,
    PatchClassifier,
    PrototypeLSSVC,
    RiSVOClassifier,
    SphericalKMeans,
)
from gramless.callbacks import Checkpoint, EarlyStopping


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("search", [LSSVC, LSSVR])
def test_a_search_calls_after_each_kernel_with_the_best_model_so_far(wine, search):
    X, y = wine
    gammas, seen = [0.001, 0.1, 1.0], []
    whole = search(C="loo", gamma=gammas).fit(X, y)

    def look(estimator, record):
        seen.append((estimator.kernel_.gamma, record["score"], estimator.predict(X)))
        record["extra"] = len(seen)
        return len(seen) == 2

    stopped = search(C="loo", gamma=gammas, callback=look).fit(X, y)
    assert [record["extra"] for record in stopped.history_] == [1, 2]
    np.testing.assert_allclose([score for _, score, _ in seen], whole.scores_.max(axis=1)[:2])
    best = int(whole.scores_.max(axis=1)[:2].argmax())
    assert stopped.kernel_.gamma == gammas[best]
    assert stopped.best_score_ == whole.scores_[best].max()
    np.testing.assert_array_equal(seen[-1][2], stopped.predict(X))
    np.testing.assert_array_equal(np.isnan(stopped.scores_).all(axis=1), [False, False, True])
    assert [record["n_iter"] for record in whole.history_] == [1, 2, 3]
    assert not np.isnan(whole.scores_).any()


def test_prototypes_call_after_each_class_and_a_stopped_fit_leaves_the_old_model(wine):
    X, y = wine
    seen = []
    model = PrototypeLSSVC(n_prototypes=5, random_state=0, callback=lambda _, record: seen.append(record["class"])).fit(X, y)
    assert seen == [0, 1, 2]
    before = model.predict(X)
    model.set_params(callback=lambda *_: True)
    with pytest.raises(RuntimeError, match="after 1 of 3 classes"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("callback", [Checkpoint("state.npz"), [EarlyStopping()]])
@pytest.mark.parametrize(
    "estimator", [LSSVC(C="loo"), LSSVR(C="loo"), PrototypeLSSVC(), RiSVOClassifier(), SphericalKMeans(2)]
)
def test_what_a_fit_cannot_do_is_refused(wine, estimator, callback):
    with pytest.raises(TypeError, match="takes functions as callback, not"):
        estimator.set_params(callback=callback).fit(*wine)


@pytest.mark.parametrize(("budget", "place"), [("1GB", "in memory"), ("700KB", "in a temporary file")])
def test_patches_say_where_their_windows_are(capsys, budget, place):
    X, y = load_digits(return_X_y=True)
    machine = NystromLSSVC(n_landmarks=20, batch_size=64)
    PatchClassifier(machine, patch_size=7, memory_budget=budget, verbose=1).fit(X[:200], y[:200])
    said = "".join(capsys.readouterr())
    assert "800 patches of 200 images" in said
    assert place in said
    assert ("images written" in said) == (place == "in a temporary file")
