"""The callback that measures the test error during a fit."""

import time

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from gramless.kernels import RBF
from gramless.papers.experiments.fit import FitMonitor


class CountingRBF(RBF):
    """An RBF kernel that counts its blocks."""

    blocks = 0

    def __call__(self, *args, **kwargs):
        self.blocks += 1
        return super().__call__(*args, **kwargs)


class Expansion:
    """The attributes of an expansion during its fit."""

    max_iter = 10

    def __init__(self, classes, outputs):
        rng = np.random.default_rng(0)
        self.points_ = rng.normal(size=(30, 4))
        self.dual_coef_ = rng.normal(size=(30, outputs))
        self.intercept_ = rng.normal(size=outputs)
        self.classes_ = np.array(classes)
        self.kernel_ = CountingRBF(0.25)
        self.device_ = "cpu"

    def predict(self, X):
        scores = rbf_kernel(X, self.points_, 0.25) @ self.dual_coef_ + self.intercept_
        winner = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[winner]


def ignore(stage, detail):
    pass


@pytest.mark.parametrize(("classes", "outputs"), [(["a", "b"], 1), (["a", "b", "c"], 3)])
def test_block_gives_the_error_of_predict(classes, outputs):
    estimator = Expansion(classes, outputs)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 4)), rng.choice(classes, 50)
    monitor = FitMonitor(ignore, X, y, every=1)
    for n_iter in (1, 2, 3):
        estimator.dual_coef_ = estimator.dual_coef_ + rng.normal(size=estimator.dual_coef_.shape)
        monitor(estimator, {"n_iter": n_iter})
        assert monitor.errors[n_iter] == pytest.approx(100 * np.mean(estimator.predict(X) != y))
    assert estimator.kernel_.blocks == 1


def test_block_is_not_counted_as_memory_of_the_fit():
    monitor = FitMonitor(ignore, None, np.array([]), every=1)
    assert monitor.peak_without_block(500) == 500
    monitor.block_mb, monitor.peak_before_block_mb = 200.0, 250.0
    assert monitor.peak_without_block(500) == 300
    assert monitor.peak_without_block(400) == 250


def test_block_is_recomputed_for_other_points():
    estimator = Expansion(["a", "b"], 1)
    X, y = np.zeros((5, 4)), np.array(["a"] * 5)
    monitor = FitMonitor(ignore, X, y, every=1)
    monitor(estimator, {"n_iter": 1})
    estimator.points_ = estimator.points_ + 1
    monitor(estimator, {"n_iter": 2})
    assert estimator.kernel_.blocks == 2


def test_errors_are_added_to_the_history():
    monitor = FitMonitor(ignore, None, np.array([]), every=2)
    monitor.errors = {2: 5.0, 6: 3.0}
    history = [{"n_iter": n, "residual": 1 / n} for n in range(1, 5)]
    rows = monitor.with_errors(history)
    assert [row["n_iter"] for row in rows] == [1, 2, 3, 4, 6]
    assert rows[1] == {"n_iter": 2, "residual": 0.5, "error": 5.0}
    assert "error" not in rows[0]


def test_time_of_the_monitor_is_measured():
    class Slow(Expansion):
        def predict(self, X):
            time.sleep(0.05)
            return super().predict(X)

    estimator = Slow(["a", "b"], 1)
    estimator.points_ = estimator.points_.tolist()  # not an array, so no block is computed
    monitor = FitMonitor(ignore, np.zeros((5, 4)), np.array(["a"] * 5), every=1)
    monitor(estimator, {"n_iter": 1})
    assert monitor.seconds >= 0.05


def test_notifications_are_limited():
    notices = []
    monitor = FitMonitor(lambda *notice: notices.append(notice), None, np.array([]), every=0)
    estimator = Expansion(["a", "b"], 1)
    for n_iter in range(1, 1000):
        monitor(estimator, {"n_iter": n_iter})
    assert 1 <= len(notices) < 100
    stage, detail = notices[0]
    assert (stage, detail["n_iter"], detail["max_iter"]) == ("fitting", 1, 10)
