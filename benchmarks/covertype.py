"""Covertype in one pass: NystromLSSVC against scikit-learn's Nystroem + RidgeClassifier with the same landmarks.

    python benchmarks/covertype.py [--landmarks 2000] [--rows 581012] [--out benchmarks/results/covertype.json]

Nine tenths of the rows are used for training and one tenth for testing (seed 0). The ten numeric columns are
standardised; the 44 indicator columns are unchanged. The rows are read in batches from an array on disk. Each model
runs in its own process, so that peak memory is measured separately. The lower bound of the time is that of the two
matrix products alone, X L^T (float32) and the symmetric update F^T F (float64), on blocks of the same sizes, timed
between the batches of a second pass over a part of the rows; medians of both. CPU seconds are summed over all threads
and depend less on other programs than wall-clock seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BATCH = 4096
BUDGET = "1GB"
COMPARED_BATCHES = 24


def prepare(folder: Path, rows: int) -> None:
    from gramless.papers.datasets import find

    with np.load(find("covtype")) as file:
        x, y = file["x"], file["y"]
    order = np.random.RandomState(0).permutation(len(x))[:rows]
    cut = round(0.9 * len(order))
    train, test = order[:cut], order[cut:]
    mean, scale = x[train, :10].mean(axis=0), x[train, :10].std(axis=0)
    for name, idx in (("train", train), ("test", test)):
        part = x[idx].astype(np.float32)
        part[:, :10] = (x[idx, :10] - mean) / scale
        np.save(folder / f"x_{name}.npy", part)
        np.save(folder / f"y_{name}.npy", y[idx])


def load(folder: Path) -> tuple[np.ndarray, ...]:
    return tuple(np.load(folder / f"{n}.npy", mmap_mode="r") for n in ("x_train", "y_train", "x_test", "y_test"))


class BareProducts:
    """Time the two matrix products between batches of the pass, so that both are measured under the same load."""

    def __init__(self, points: np.ndarray):
        self.points = points
        self.block = np.empty((BATCH, len(points)), dtype=np.float32)
        self.double = np.random.default_rng(0).random((BATCH, len(points)))
        self.sums = np.zeros((len(points), len(points)), order="F")
        self.seconds: list[float] = []

    def time(self, rows: np.ndarray) -> None:
        from scipy.linalg.blas import dsyrk

        started = time.perf_counter()
        np.matmul(rows, self.points.T, out=self.block[: len(rows)])
        dsyrk(1.0, self.double.T, beta=1.0, c=self.sums, overwrite_c=1)
        self.seconds.append(time.perf_counter() - started)


def ours(folder: Path, landmarks: int, gamma: float, C: float) -> dict:
    from gramless import NystromLSSVC
    from gramless.papers.experiments.environment import peak_mb, reset_peak
    from gramless.streaming.learners.training_pass import LearningPass

    X, y, X_test, y_test = load(folder)
    points = np.array(X[np.sort(np.random.RandomState(1).permutation(len(X))[:landmarks])])
    settings = {"landmarks": points, "gamma": gamma, "C": C, "memory_budget": BUDGET, "batch_size": BATCH}

    # First the fit as a user runs it: time and peak memory.
    reset_peak()
    started, processor = time.perf_counter(), time.process_time()
    model = NystromLSSVC(**settings, verbose=1).fit(X, y)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak = peak_mb()
    predicted = model.predict(X_test)

    # Then a pass over a part of the rows, with the matrix products timed between its batches.
    bare, passed = BareProducts(points), []
    add = LearningPass.add

    def timed(self, block, *rest):
        started = time.perf_counter()
        add(self, block, *rest)
        passed.append(time.perf_counter() - started)
        bare.time(block)

    LearningPass.add = timed
    part = slice(0, COMPARED_BATCHES * BATCH)
    NystromLSSVC(**settings).fit(X[part], y[part])
    rate, bare_rate = (BATCH / float(np.median(times[1:])) for times in (passed, bare.seconds))
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "rows_per_second": len(X) / seconds,
        "compared": {"batches": len(passed) - 1, "rows_per_second": rate, "bare_rows_per_second": bare_rate},
        "share_of_bare": rate / bare_rate,
        "peak_mb": peak,
        "error": 100 * float(np.mean(predicted != y_test)),
        "jitter": model.jitter_,
    }


def scikit_learn(folder: Path, landmarks: int, gamma: float, C: float) -> dict:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    from gramless.papers.experiments.environment import peak_mb, reset_peak

    X, y, X_test, y_test = (np.array(part) for part in load(folder))
    points = X[np.sort(np.random.RandomState(1).permutation(len(X))[:landmarks])]
    features = Nystroem(kernel="rbf", gamma=gamma, n_components=landmarks, random_state=0)
    reset_peak()
    started, processor = time.perf_counter(), time.process_time()
    features.fit(points)  # All given points become components.
    ridge = RidgeClassifier(alpha=1.0 / C)
    ridge.fit(features.transform(X), y)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak = peak_mb()
    model = make_pipeline(features, ridge)
    predicted = np.concatenate([model.predict(part) for part in np.array_split(X_test, 20)])
    error = 100 * float(np.mean(predicted != y_test))
    return {"seconds": seconds, "processor_seconds": processor, "peak_mb": peak, "error": error}


MACHINES = {"NystromLSSVC": ours, "Nystroem + RidgeClassifier": scikit_learn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=581_012)
    parser.add_argument("--gamma", type=float, default=0.3)
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--only", choices=list(MACHINES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        machine, folder = args.child
        print(json.dumps(MACHINES[machine](Path(folder), args.landmarks, args.gamma, args.C)))
        return
    from gramless.papers.experiments.environment import environment

    settings = {"landmarks": args.landmarks, "rows": args.rows, "gamma": args.gamma, "C": args.C, "budget": BUDGET}
    results = {"settings": settings, **environment()}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), args.rows)
        for machine in [args.only] if args.only else MACHINES:
            numbers = [f"--{key}={getattr(args, key)}" for key in ("landmarks", "gamma", "C")]
            command = [sys.executable, __file__, *numbers, "--child", machine, folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
            results[machine] = json.loads(done.stdout.splitlines()[-1])
            print(machine, json.dumps(results[machine], indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
