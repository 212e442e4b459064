"""Script that kills an operation with signal 9 at random times, repeatedly, and prints the outcomes as JSON.

Everything is imported once and each attempt is a fork, so that a moment hits the work and not the imports. Start it with one
thread for each kind of product: a fork has no threads but its own.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import gramless
import gramless.cli.predict
import gramless.cli.reproduce
import gramless.cli.train
from gramless import LSSVC, NystromLSSVC, Stream
from gramless.callbacks import Checkpoint
from gramless.cli.app import app
from gramless.papers.experiments.results import Results

ROWS = 3000


def command(*arguments):
    try:
        app([str(argument) for argument in arguments], standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"ended with {ended.code}") from ended


class Train:
    """The model file does not exist or is complete."""

    def __init__(self, folder):
        self.out = folder / "m.skops"
        self.data = write_table(folder / "t.csv", 400)

    def work(self):
        command("train", self.data, "--target", "y", "--C", 1, "--gamma", 0.5, "--out", self.out)

    def check(self):
        if self.out.exists():
            gramless.load(self.out)


class Predict:
    """The predictions do not exist or are complete."""

    def __init__(self, folder):
        self.model, self.out = folder / "m.skops", folder / "p.csv"
        self.data = write_table(folder / "t.csv", ROWS)
        small = write_table(folder / "small.csv", 100)
        fork(lambda: command("train", small, "--target", "y", "--C", 1, "--tune", "none", "--out", self.model))

    def work(self):
        command("predict", self.model, self.data, "--proba", "--out", self.out)

    def check(self):
        gramless.load(self.model)
        if self.out.exists():
            assert len(self.out.read_text().splitlines()) == ROWS + 1


class Reproduce:
    """Each written record is complete, and no fit is repeated."""

    def __init__(self, folder):
        self.out = folder / "report"

    def work(self):
        command("reproduce", "smo", "--quick", "--only", "strategies", "--out", self.out)

    def check(self):
        if (self.out / "results.jsonl").exists():
            Results(self.out / "results.jsonl").records()
        if (self.out / "report.html").exists():
            assert (self.out / "report.html").read_text().endswith("</html>\n")


class Streamed:
    """The input file is unchanged and the model file is complete."""

    def __init__(self, folder):
        self.data, self.out = write_table(folder / "t.csv", ROWS, words=False), folder / "m.skops"
        self.content = self.data.read_bytes()

    def work(self):
        model = NystromLSSVC(n_landmarks=50, batch_size=64, random_state=0).fit(Stream(self.data))
        gramless.save(model, self.out)

    def check(self):
        assert self.data.read_bytes() == self.content
        if self.out.exists():
            gramless.load(self.out)


class Checkpointed:
    """A fit that resumes from its checkpoint gives the model of an uninterrupted fit, bit for bit."""

    def __init__(self, folder):
        self.state, self.out, self.alone = folder / "fit.npz", folder / "c.npy", folder / "alone.npy"
        fork(lambda: np.save(self.alone, self.fitted(folder / "other.npz").dual_coef_))

    def fitted(self, state):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1200, 6))
        y = X[:, 0] + 0.5 * rng.normal(size=1200) > 0
        solver = gramless.linalg.solvers.Kaczmarz(block_size=60, tol=0, max_iter=60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LSSVC(C=10.0, gamma=0.2, solver=solver, callback=Checkpoint(state, every=1), random_state=0).fit(X, y)

    def work(self):
        np.save(self.out, self.fitted(self.state).dual_coef_)

    def check(self):
        if self.out.exists():
            assert np.array_equal(np.load(self.out), np.load(self.alone))
            self.out.unlink()


def write_table(path, n, words=True):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    kind = "uv" if words else "01"
    lines = [",".join(f"{v:.4f}" for v in row) + f",{kind[int(row[0] > 0)]}\n" for row in x]
    path.write_text("a,b,c,d,y\n" + "".join(lines))
    return path


def fork(work, most=None):
    """Run `work` in a child process, kill it after `most` seconds, and return its exit code, or None if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    started = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if most is not None and time.monotonic() - started > most:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


def main(kind, folder, count):
    kinds = {"train": Train, "predict": Predict, "reproduce": Reproduce, "streamed": Streamed, "checkpoint": Checkpointed}
    case = kinds[kind](folder)
    whole = 6.0
    for _ in range(0 if kind == "reproduce" else 2):  # the first run also loads compiled loops
        started = time.monotonic()
        assert fork(case.work) == 0
        case.check()
        whole = time.monotonic() - started
    random.seed(0)
    killed = 0
    for _ in range(3 * count):
        started = time.monotonic()
        if fork(case.work, most=random.uniform(0, whole)) is None:
            killed += 1
        else:  # the run was faster than the previous one
            whole = time.monotonic() - started
        case.check()
        if killed == count:
            break
    assert fork(case.work) == 0, "the run after the kills failed"
    case.check()
    left = [path.name for path in folder.rglob("*") if path.name.endswith((".partial", ".lock"))]
    sys.stdout.write(json.dumps({"killed": killed, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
