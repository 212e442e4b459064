"""A pass that is killed goes on from its checkpoint and counts no row twice."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gramless import NystromLSSVC, Stream
from gramless.callbacks import Checkpoint
from gramless.streaming.learners.training_pass import LearningPass

SCRIPT = """
import sys, time
import numpy as np
from gramless import NystromLSSVC
from gramless.callbacks import Checkpoint

data, checkpoint, out, pause = sys.argv[1:]
with np.load(data) as file:
    X, y = file["x"], file["y"]

def batches():
    for i in range(0, len(X), 50):
        time.sleep(float(pause))
        yield X[i : i + 50], y[i : i + 50]

settings = dict(batch_size=50, callback=Checkpoint(checkpoint, every=3), random_state=0)
model = NystromLSSVC(n_landmarks=40, gamma=0.3, C="loo", **settings)
model.fit(batches())
np.savez(out, coef=model.dual_coef_, intercept=model.intercept_, weight=model.pass_.state.weight, C=model.C_)
"""


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    path = tmp_path / "rows.npz"
    np.savez(path, x=X, y=(X[:, 0] * X[:, 1] > 0).astype(int))
    return path


def start(folder, data, out, pause):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, data, folder / "pass.npz", folder / out, str(pause)], env=os.environ
    )


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_kill_9_in_the_middle_of_a_stream_and_the_same_model(tmp_path, data):
    process = start(tmp_path, data, "killed.npz", 0.05)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pass.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "pass.npz").exists()
    assert not (tmp_path / "killed.npz").exists()

    assert start(tmp_path, data, "resumed.npz", 0).wait() == 0
    assert not (tmp_path / "pass.npz").exists()
    assert start(tmp_path, data, "whole.npz", 0).wait() == 0
    with np.load(tmp_path / "resumed.npz") as resumed, np.load(tmp_path / "whole.npz") as whole:
        assert resumed["weight"] == 3000
        for key in whole.files:
            np.testing.assert_array_equal(resumed[key], whole[key])


class Interrupted(Exception):
    pass


def interrupted(batches, after):
    for i, batch in enumerate(batches):
        if i == after:
            raise Interrupted
        yield batch


@pytest.mark.parametrize("source", ["batches", "file"])
def test_resume_reads_only_the_rest(tmp_path, data, source, monkeypatch):
    with np.load(data) as file:
        X, y = file["x"], file["y"]
    model = NystromLSSVC(landmarks=X[:20], gamma=0.3, batch_size=100, callback=Checkpoint(tmp_path / "pass.npz", every=4))
    expected = NystromLSSVC(landmarks=X[:20], gamma=0.3).fit(X, y).decision_function(X)
    batches = [(X[i : i + 100], y[i : i + 100]) for i in range(0, len(X), 100)]
    add, seen, failed = LearningPass.add, [], []

    def counted(self, block, *rest):
        seen.append(len(block))
        if len(seen) == 16 and not failed:
            failed.append(True)
            raise Interrupted
        add(self, block, *rest)

    monkeypatch.setattr(LearningPass, "add", counted)
    with pytest.raises(Interrupted):
        model.fit(data if source == "file" else batches)
    seen.clear()
    model.fit(data if source == "file" else batches)
    assert sum(seen) == 3000 - 1200  # the checkpoint after twelve batches
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-10)


def test_a_checkpoint_of_other_settings_or_data_is_refused(tmp_path, data):
    with np.load(data) as file:
        X, y = file["x"], file["y"]
    settings = {"landmarks": X[:20], "batch_size": 100, "callback": Checkpoint(tmp_path / "pass.npz", every=1)}
    batches = [(X[:100], y[:100]), (X[100:200], y[100:200])]
    with pytest.raises(Interrupted):
        NystromLSSVC(gamma=0.3, **settings).fit(interrupted(batches, 1))
    with pytest.raises(ValueError, match="belongs to another problem"):
        NystromLSSVC(gamma=0.4, **settings).fit(batches)
    with pytest.raises(ValueError, match="belongs to another problem"):
        NystromLSSVC(gamma=0.3, **settings).fit(data)


def test_progress_tells_rows_and_time_left(data, capsys):
    NystromLSSVC(n_landmarks=10, batch_size=100, verbose=1, random_state=0).fit(data)
    words = capsys.readouterr().err
    assert "rows/s" in words
    assert "seconds left" in words
    assert "/3000" in words


def test_without_a_known_end_progress_tells_the_rows(data, capsys):
    with np.load(data) as file:
        batches = [(file["x"], file["y"])]
    NystromLSSVC(n_landmarks=10, verbose=1, random_state=0).fit(batches)
    words = capsys.readouterr().err
    assert "NystromLSSVC: 3000  rows/s" in words


def test_other_data_is_another_stream():
    """The first and the last rows of two arrays, and anything of two generators, were the same to a checkpoint."""
    X = np.random.default_rng(0).normal(size=(5000, 3))
    y = np.arange(5000) % 2
    changed = X.copy()
    changed[1000:4000] += 1.0
    assert Stream(X, y).identity() == Stream(X.copy(), y.copy()).identity()
    assert Stream(X, y).identity() != Stream(changed, y).identity()
    assert Stream(X, y).identity() != Stream(X, y.astype(np.float64)).identity()
    assert Stream(X, y).identity() != Stream(X.astype(np.float32), y).identity()

    def batches(rows):
        return ((rows[at : at + 500], y[at : at + 500]) for at in range(0, len(rows), 500))

    assert Stream(batches(X)).identity() == Stream(batches(X)).identity()
    assert Stream(batches(X)).identity() != Stream(batches(X + 1.0)).identity()
    assert Stream(list(batches(X))).identity() != Stream(list(batches(changed))).identity()
    stream = Stream(batches(X))
    stream.identity()
    assert sum(len(batch) for batch in stream.batches(700)) == 5000  # what was looked at is still read


def test_an_array_on_disk_that_was_written_again_is_another_stream(tmp_path):
    X = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", shape=(4000, 2))
    X[:] = 1.0
    before = Stream(np.load(tmp_path / "x.npy", mmap_mode="r"), np.ones(4000)).identity()
    X[1001] = 7.0  # none of the rows that are compared
    X.flush()
    os.utime(tmp_path / "x.npy", ns=(0, 0))
    assert Stream(np.load(tmp_path / "x.npy", mmap_mode="r"), np.ones(4000)).identity() != before
