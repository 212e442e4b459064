"""The runner end to end, on declared experiments small enough for a second each."""

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler

from gramless.papers.datasets import load
from gramless.papers.experiments import Confusion, Gallery, Results, Spec, product, run
from gramless.papers.experiments.runner import _interrupts_stay_here


class Stepwise(ClassifierMixin, BaseEstimator):
    """Predicts the nearest class mean, learnt in steps, the way an iterative estimator reports them."""

    def __init__(self, max_iter=5, callback=None):
        self.max_iter = max_iter
        self.callback = callback

    def fit(self, X, y):
        from sklearn.neighbors import NearestCentroid

        self.history_ = []
        for n_iter in range(1, self.max_iter + 1):
            self.model_ = NearestCentroid().fit(X[: 20 * n_iter], y[: 20 * n_iter])
            record = {"n_iter": n_iter, "seconds": 0.001 * n_iter, "residual": 1 / n_iter}
            self.history_.append(record)
            if self.callback is not None and self.callback(self, record):
                break
        return self

    def predict(self, X):
        return self.model_.predict(X)


def ridge(params, seed):
    return RidgeClassifier(alpha=params["alpha"])


def scaled(params, seed):
    return StandardScaler()


def stepwise(params, seed):
    return Stepwise(max_iter=params["max_iter"])


def failing(params, seed):
    if params["alpha"] == 2:
        raise ValueError("this point of the grid cannot be fitted")
    return RidgeClassifier(alpha=params["alpha"])


def deadly(params, seed):
    os.kill(os.getpid(), signal.SIGKILL)


def sleepy(params, seed):
    if params["alpha"] == 2:
        time.sleep(60)
    return RidgeClassifier(alpha=params["alpha"])


def restless(params, seed):
    while True:
        Path(params["sign_of_life"]).touch()
        time.sleep(0.02)


def share_of_zeros(estimator, dataset):
    return {"zeros": 100 * float((estimator.predict(dataset.x_test) == 0).mean())}


def two_digits(seed):
    return load("digits", seed=seed).only([3, 8])


def greedy(params, seed):
    # 200 MB held while fitting, gone afterwards.
    class Greedy(RidgeClassifier):
        def fit(self, X, y):
            import numpy as np

            held = np.ones(params["megabytes"] * 125_000)
            held += 1
            return super().fit(X, y)

    return Greedy()


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "out" / "results.jsonl")


RIDGE = Spec("randomized", "ridge", "Ridge", "digits", ridge, product(alpha=[1, 10]), seeds=(0, 1))


def test_one_line_per_fit_with_everything_measured(results):
    spec = replace(RIDGE, features=scaled, folds=3, extras=share_of_zeros, views=(Confusion(), Gallery(limit=5)))
    assert run([spec], results) == 0
    lines = results.path.read_text().splitlines()
    assert len(lines) == 4
    record = json.loads(lines[0])
    assert record["params"] == {"alpha": 1}
    metrics = record["metrics"]
    assert 0 < metrics["error"] < 15
    assert metrics["error"] + metrics["accuracy"] == pytest.approx(100)
    assert 0 < metrics["cv_error"] < 15
    assert 5 < metrics["zeros"] < 15
    assert metrics["seconds"] > 0
    assert 20 < metrics["peak_mb"] < 2000
    assert {"numpy", "python", "scikit-learn", "gramless"} <= set(record["versions"])
    assert record["hardware"]["cores"] >= 1
    assert sum(map(sum, record["confusion"]["counts"])) == 450
    images = record["misclassified"]["images"]
    assert len(images) == 5
    assert all(image["true"] != image["predicted"] for image in images)
    assert record["data"]["n_features"] == 64


def test_seeds_draw_different_splits(results):
    run([RIDGE], results)
    mistakes = {(r["params"]["alpha"], r["seed"]): r["confusion"]["counts"] for r in results.records()}
    assert mistakes[1, 0] != mistakes[1, 1]


def test_a_finished_fit_is_not_repeated(results):
    first = []
    run([RIDGE], results, on_event=lambda event: first.append(event.kind))
    before = results.path.read_bytes()
    second = []
    run([replace(RIDGE, title="Another title")], results, on_event=lambda event: second.append(event.kind))
    assert first.count("done") == 4
    assert second == ["skipped"] * 4
    assert results.path.read_bytes() == before


def test_a_changed_declaration_is_fitted_again(results):
    run([replace(RIDGE, seeds=(0,))], results)
    run([replace(RIDGE, seeds=(0,), data=two_digits)], results)
    assert len(results.records()) == 4
    assert results.records()[-1]["data"]["n_test"] < 150


def test_error_against_iteration_goes_into_the_history(results):
    spec = Spec("randomized", "steps", "Steps", "digits", stepwise, [{"max_iter": 6}], evaluate_every=2)
    stages = []
    assert run([spec], results, on_event=lambda event: stages.append(event.detail.get("stage"))) == 0
    (record,) = results.records()
    assert [row["n_iter"] for row in record["history"]] == [1, 2, 3, 4, 5, 6]
    assert [("error" in row) for row in record["history"]] == [False, True] * 3
    assert record["history"][-1]["error"] == pytest.approx(record["metrics"]["error"])
    assert "fitting" in stages


def test_evaluating_needs_an_estimator_that_reports(results):
    assert run([replace(RIDGE, evaluate_every=1, seeds=(0,))], results) == 2
    assert "no `callback` parameter" in results.records()[0]["reason"]


def test_a_failure_is_recorded_and_the_rest_goes_on(results):
    spec = replace(RIDGE, estimator=failing, grid=product(alpha=[1, 2, 3]), seeds=(0,))
    assert run([spec], results) == 1
    done, failed, other = results.records()
    assert (done["status"], failed["status"], other["status"]) == ("done", "failed", "done")
    assert failed["reason"] == "ValueError: this point of the grid cannot be fitted"
    again = []
    run([spec], results, on_event=lambda event: again.append(event.kind))
    assert again.count("skipped") == 2
    assert again.count("failed") == 1


def test_a_killed_fit_is_named_as_such(results):
    assert run([replace(RIDGE, estimator=deadly, grid=[{"alpha": 1}], seeds=(0,))], results) == 1
    assert "SIGKILL" in results.records()[0]["reason"]


def test_peak_memory_is_that_of_one_fit(results):
    spec = replace(RIDGE, estimator=greedy, grid=product(megabytes=[300, 1]), seeds=(0,))
    # A class made inside a function cannot be pickled, but the record never needs it to be.
    assert run([spec], results) == 0
    large, small = (record["metrics"]["peak_mb"] for record in results.records())
    assert 280 < large - small < 330


def _interrupted_run(path):
    spec = replace(RIDGE, estimator=sleepy, grid=product(alpha=[1, 2, 3]), seeds=(0,))

    def interrupt(event):
        if event.kind == "stage" and event.params["alpha"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run([spec], Results(path), on_event=interrupt)
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)


def test_ctrl_c_stops_and_keeps_what_is_finished(results):
    process = multiprocessing.get_context("spawn").Process(target=_interrupted_run, args=(results.path,))
    started = time.monotonic()
    process.start()
    process.join(30)
    assert process.exitcode == 130
    assert time.monotonic() - started < 30
    assert [record["params"]["alpha"] for record in results.records()] == [1]


def _wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


def test_a_run_that_is_killed_takes_its_fit_along(results, tmp_path):
    sign_of_life = tmp_path / "alive"
    spec = replace(RIDGE, estimator=restless, grid=[{"sign_of_life": str(sign_of_life)}], seeds=(0,))
    process = multiprocessing.get_context("spawn").Process(target=run, args=([spec], results))
    process.start()
    assert _wait_until(sign_of_life.exists)
    process.kill()
    process.join()

    def still():
        before = sign_of_life.stat().st_mtime_ns
        time.sleep(1)
        return sign_of_life.stat().st_mtime_ns == before

    assert _wait_until(still)


def test_a_torn_last_line_is_ignored_and_then_cut_off(results):
    run([replace(RIDGE, seeds=(0,))], results)
    whole = results.path.read_bytes()
    results.path.write_bytes(whole[:-40])
    assert len(results.records()) == 1
    run([replace(RIDGE, seeds=(0,))], results)
    assert [record["params"]["alpha"] for record in results.records()] == [1, 10]
    for line in results.path.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize("n_threads", [0, 3])
def test_an_interrupt_while_a_process_starts_waits_and_is_not_lost(n_threads):
    went_on, done = [], threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(n_threads)]  # a signal goes to any thread that takes it
    for other in others:
        other.start()

    def start():
        os.kill(os.getpid(), signal.SIGINT)
        went_on.append(True)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    try:
        with pytest.raises(KeyboardInterrupt), _interrupts_stay_here():
            start()
    finally:
        signal.signal(signal.SIGINT, usual)
        done.set()
    assert went_on
    if hasattr(signal, "pthread_sigmask"):
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
