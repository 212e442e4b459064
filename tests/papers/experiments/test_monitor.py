"""The watch inside a fit."""

import time

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from gramless.papers.experiments.monitor import Watch


class Expansion:
    """The attributes an expansion has while it is being fitted."""

    max_iter = 10

    def __init__(self, classes, outputs):
        rng = np.random.default_rng(0)
        self.points_ = rng.normal(size=(30, 4))
        self.dual_coef_ = rng.normal(size=(30, outputs))
        self.intercept_ = rng.normal(size=outputs)
        self.classes_ = np.array(classes)
        self.blocks = 0

    def kernel_(self, X, Y):
        self.blocks += 1
        return rbf_kernel(X, Y)

    def predict(self, X):
        scores = rbf_kernel(X, self.points_) @ self.dual_coef_ + self.intercept_
        winner = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[winner]


def ignore(n_iter, max_iter, error):
    pass


@pytest.mark.parametrize(("classes", "outputs"), [(["a", "b"], 1), (["a", "b", "c"], 3)])
def test_the_kept_block_gives_the_error_of_predict(classes, outputs):
    machine = Expansion(classes, outputs)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(50, 4)), rng.choice(classes, 50)
    watch = Watch(ignore, X, y, every=1)
    for n_iter in (1, 2, 3):
        machine.dual_coef_ = machine.dual_coef_ + rng.normal(size=machine.dual_coef_.shape)
        watch(machine, {"n_iter": n_iter})
        assert watch.errors[n_iter] == pytest.approx(100 * np.mean(machine.predict(X) != y))
    assert machine.blocks == 1


def test_the_kept_block_does_not_count_as_memory_of_the_fit():
    watch = Watch(ignore, None, np.array([]), every=1)
    assert watch.without_block(500) == 500
    watch.block_mb, watch.peak_before_mb = 200.0, 250.0
    assert watch.without_block(500) == 300
    assert watch.without_block(400) == 250


def test_other_points_need_another_block():
    machine = Expansion(["a", "b"], 1)
    X, y = np.zeros((5, 4)), np.array(["a"] * 5)
    watch = Watch(ignore, X, y, every=1)
    watch(machine, {"n_iter": 1})
    machine.points_ = machine.points_ + 1
    watch(machine, {"n_iter": 2})
    assert machine.blocks == 2


def test_errors_join_the_history_at_their_iteration():
    watch = Watch(ignore, None, np.array([]), every=2)
    watch.errors = {2: 5.0, 6: 3.0}
    history = [{"n_iter": n, "residual": 1 / n} for n in range(1, 5)]
    rows = watch.merged(history)
    assert [row["n_iter"] for row in rows] == [1, 2, 3, 4, 6]
    assert rows[1] == {"n_iter": 2, "residual": 0.5, "error": 5.0}
    assert "error" not in rows[0]


def test_the_time_it_takes_is_known():
    class Slow(Expansion):
        def predict(self, X):
            time.sleep(0.05)
            return super().predict(X)

    machine = Slow(["a", "b"], 1)
    machine.points_ = machine.points_.tolist()  # not an array: no block can be kept
    watch = Watch(ignore, np.zeros((5, 4)), np.array(["a"] * 5), every=1)
    watch(machine, {"n_iter": 1})
    assert watch.seconds >= 0.05


def test_notices_are_few():
    notices = []
    watch = Watch(lambda *notice: notices.append(notice), None, np.array([]), every=0)
    machine = Expansion(["a", "b"], 1)
    for n_iter in range(1, 1000):
        watch(machine, {"n_iter": n_iter})
    assert 1 <= len(notices) < 100
    assert notices[0][:2] == (1, 10)
