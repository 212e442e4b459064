"""The runner on experiments of a second each."""

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
from gramless.papers.experiments.declarations import Confusion, Gallery, Spec, product
from gramless.papers.experiments.results import Results
from gramless.papers.experiments.runner import _delayed_interrupts, run


class Stepwise(ClassifierMixin, BaseEstimator):
    """Nearest class mean, fitted in steps and with the callback of an iterative estimator."""

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
    # allocates memory during the fit only
    class Greedy(RidgeClassifier):
        def fit(self, X, y):
            import numpy as np

            array = np.ones(params["megabytes"] * 125_000)
            array += 1
            return super().fit(X, y)

    return Greedy()


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "out" / "results.jsonl")


RIDGE = Spec("randomized", "ridge", "Ridge", "digits", ridge, product(alpha=[1, 10]), seeds=(0, 1))


def test_record_of_a_fit(results):
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


def test_seeds_give_different_splits(results):
    run([RIDGE], results)
    mistakes = {(r["params"]["alpha"], r["seed"]): r["confusion"]["counts"] for r in results.records()}
    assert mistakes[1, 0] != mistakes[1, 1]


def test_finished_fit_is_not_repeated(results):
    first = []
    run([RIDGE], results, on_event=lambda event: first.append(event.kind))
    before = results.path.read_bytes()
    second = []
    run([replace(RIDGE, title="Another title")], results, on_event=lambda event: second.append(event.kind))
    assert first.count("done") == 4
    assert second == ["skipped"] * 4
    assert results.path.read_bytes() == before


def test_changed_declaration_is_fitted_again(results):
    run([replace(RIDGE, seeds=(0,))], results)
    run([replace(RIDGE, seeds=(0,), data=two_digits)], results)
    assert len(results.records()) == 4
    assert results.records()[-1]["data"]["n_test"] < 150


def test_test_error_in_the_history(results):
    spec = Spec("randomized", "steps", "Steps", "digits", stepwise, [{"max_iter": 6}], evaluate_every=2)
    stages = []
    assert run([spec], results, on_event=lambda event: stages.append(event.detail.get("stage"))) == 0
    (record,) = results.records()
    assert [row["n_iter"] for row in record["history"]] == [1, 2, 3, 4, 5, 6]
    assert [("error" in row) for row in record["history"]] == [False, True] * 3
    assert record["history"][-1]["error"] == pytest.approx(record["metrics"]["error"], rel=1e-5)  # six digits
    assert "fitting" in stages


def test_evaluation_needs_a_callback_parameter(results):
    assert run([replace(RIDGE, evaluate_every=1, seeds=(0,))], results) == 2
    assert "no `callback` parameter" in results.records()[0]["reason"]


def test_failed_fit_is_recorded_and_the_run_continues(results):
    spec = replace(RIDGE, estimator=failing, grid=product(alpha=[1, 2, 3]), seeds=(0,))
    assert run([spec], results) == 1
    done, failed, other = results.records()
    assert (done["status"], failed["status"], other["status"]) == ("done", "failed", "done")
    assert failed["reason"] == "ValueError: this point of the grid cannot be fitted"
    again = []
    run([spec], results, on_event=lambda event: again.append(event.kind))
    assert again.count("skipped") == 2
    assert again.count("failed") == 1


def test_killed_fit_is_recorded(results):
    assert run([replace(RIDGE, estimator=deadly, grid=[{"alpha": 1}], seeds=(0,))], results) == 1
    assert "SIGKILL" in results.records()[0]["reason"]


def test_peak_memory_is_that_of_one_fit(results):
    spec = replace(RIDGE, estimator=greedy, grid=product(megabytes=[300, 1]), seeds=(0,))
    # A local class cannot be pickled; the record does not contain it.
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


def test_ctrl_c_stops_the_run_and_keeps_finished_fits(results):
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


def test_fit_ends_with_a_killed_run(results, tmp_path):
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


def test_incomplete_last_line_is_ignored_and_removed(results):
    run([replace(RIDGE, seeds=(0,))], results)
    whole = results.path.read_bytes()
    results.path.write_bytes(whole[:-40])
    assert len(results.records()) == 1
    run([replace(RIDGE, seeds=(0,))], results)
    assert [record["params"]["alpha"] for record in results.records()] == [1, 10]
    for line in results.path.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize("n_threads", [0, 3])
def test_interrupt_while_a_process_starts_is_delayed(n_threads):
    continued, done = [], threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(n_threads)]  # a signal may be delivered to any thread
    for other in others:
        other.start()

    def start():
        os.kill(os.getpid(), signal.SIGINT)
        continued.append(True)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    try:
        with pytest.raises(KeyboardInterrupt), _delayed_interrupts():
            start()
    finally:
        signal.signal(signal.SIGINT, usual)
        done.set()
    assert continued
    if hasattr(signal, "pthread_sigmask"):
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
