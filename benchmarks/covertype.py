"""Covertype in one pass: NystromLSSVC against scikit-learn's Nystroem + RidgeClassifier, same landmarks, and bare products.

    python benchmarks/covertype.py [--landmarks 2000] [--rows 581012] [--out benchmarks/results/covertype.json]

Nine tenths of the rows train, one tenth tests (seed 0); the ten numeric columns are standardised, the 44 indicators stay.
The rows lie in an array on disk and are read in batches. Each machine runs in a process of its own, so that its peak memory
is its own. The bare rate is that of the two matrix products alone, on blocks of the same sizes and dtypes, right before and
after the fit in the same process: X L^T (float32) and the symmetric update F^T F (float64).
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


def prepare(folder: Path, rows: int) -> None:
    from gramless.datasets import find

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


def bare_rate(X: np.ndarray, points: np.ndarray, batches: int = 12) -> float:
    """Rows per second of the two products alone."""
    from scipy.linalg.blas import dsyrk

    block = np.empty((BATCH, len(points)), dtype=np.float32)
    double = np.random.default_rng(0).random((BATCH, len(points)))
    sums = np.zeros((len(points), len(points)), order="F")
    rows = np.ascontiguousarray(X[:BATCH])
    seconds = 0.0
    for i in range(batches + 1):
        started = time.perf_counter()
        np.matmul(rows, points.T, out=block)
        dsyrk(1.0, double.T, beta=1.0, c=sums, overwrite_c=1)
        if i:  # the first one warms up
            seconds += time.perf_counter() - started
    return batches * BATCH / seconds


def ours(folder: Path, landmarks: int, gamma: float, C: float) -> dict:
    from gramless import NystromLSSVC
    from gramless.experiments.memory import peak_mb, reset_peak

    X, y, X_test, y_test = load(folder)
    points = np.array(X[np.sort(np.random.RandomState(1).permutation(len(X))[:landmarks])])
    before = bare_rate(X, points)
    reset_peak()
    model = NystromLSSVC(landmarks=points, gamma=gamma, C=C, memory_budget=BUDGET, batch_size=BATCH, verbose=1)
    passed = []
    solve = NystromLSSVC._solve

    def timed(self):
        passed.append(time.perf_counter())
        solve(self)

    NystromLSSVC._solve = timed
    started = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - started
    peak = peak_mb()
    after = bare_rate(X, points)
    predicted = model.predict(X_test)
    rate = len(X) / (passed[0] - started)
    return {
        "seconds": seconds,
        "pass_seconds": passed[0] - started,
        "rows_per_second": rate,
        "bare_rows_per_second": [before, after],
        "share_of_bare": rate / ((before + after) / 2),
        "peak_mb": peak,
        "error": 100 * float(np.mean(predicted != y_test)),
        "jitter": model.jitter_,
    }


def scikit_learn(folder: Path, landmarks: int, gamma: float, C: float) -> dict:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    from gramless.experiments.memory import peak_mb, reset_peak

    X, y, X_test, y_test = (np.array(part) for part in load(folder))
    points = X[np.sort(np.random.RandomState(1).permutation(len(X))[:landmarks])]
    features = Nystroem(kernel="rbf", gamma=gamma, n_components=landmarks, random_state=0)
    reset_peak()
    started = time.perf_counter()
    features.fit(points)  # all of the given points become its components
    ridge = RidgeClassifier(alpha=1.0 / C)
    ridge.fit(features.transform(X), y)
    seconds = time.perf_counter() - started
    peak = peak_mb()
    model = make_pipeline(features, ridge)
    predicted = np.concatenate([model.predict(part) for part in np.array_split(X_test, 20)])
    return {"seconds": seconds, "peak_mb": peak, "error": 100 * float(np.mean(predicted != y_test))}


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
    from gramless.experiments.environment import environment

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
