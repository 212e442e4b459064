"""One-class SVM on hundreds of thousands of rows, and against scikit-learn on a smaller problem.

    python benchmarks/one_class.py --rows 278000 --nu 0.1 --out benchmarks/results/one_class.json
    python benchmarks/one_class.py --device cuda --out benchmarks/results/one_class_gpu.json

The data are three clusters in 19 standardised columns with heavy tails of unequal weight; `gamma="scale"`, `tol=1e-3`.
Records contain wall-clock and CPU seconds, support vectors, the remaining violation, the fraction of new rows that are
flagged, and the differences of offset and scores from scikit-learn on the smaller problem.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import OneClassSVM

from gramless import KernelOneClassSVM
from gramless.papers.experiments.environment import environment


def rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 19))
    X[:, :6] += 3 * rng.integers(0, 3, size=(n, 1))
    X[:, 10:] *= rng.lognormal(size=(n, 1))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def timed(model: Any, X: np.ndarray) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    return {"seconds": round(time.perf_counter() - wall, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=278_000)
    parser.add_argument("--small", type=int, default=20_000, help="rows of the problem that both solve")
    parser.add_argument("--nu", type=float, default=0.1)
    parser.add_argument("--device", help="cuda: the same on a graphics card")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    KernelOneClassSVM(nu=0.5, device=asked.device).fit(rows(3000, 9))  # Compile before the measurement.
    X, fresh = rows(asked.rows, 0), rows(20_000, 1)
    model = KernelOneClassSVM(nu=asked.nu, memory_budget="2GB", device=asked.device, random_state=0)
    large: dict[str, Any] = {"rows": asked.rows, "columns": 19, "nu": asked.nu, **timed(model, X)}
    large |= {"support": int(model.support_.size), "violation": float(model.kkt_violation_)}
    large["flagged"] = float((model.predict(fresh) == -1).mean())
    print(large, flush=True)
    X = rows(asked.small, 0)
    ours, theirs = KernelOneClassSVM(nu=asked.nu, device=asked.device, random_state=0), OneClassSVM(nu=asked.nu)
    small: dict[str, Any] = {"rows": asked.small, "ours": timed(ours, X), "scikit-learn": timed(theirs, X)}
    scores = theirs.score_samples(fresh)
    small["offset_difference"] = float(abs(ours.offset_ / theirs.offset_[0] - 1))
    small["score_difference"] = float(np.max(np.abs(ours.score_samples(fresh) - scores)) / np.abs(scores).max())
    print(small)
    if asked.out is not None:
        record = {"environment": environment(asked.device), "large": large, "small": small}
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
