"""Accuracy of models compressed to a tenth of their points: `gramless.compress` on MNIST and Covertype.

    python benchmarks/compress.py [--rows 6000]
    python benchmarks/compress.py --rows 50000 --device cuda [--out benchmarks/results/compress.json]

Each model is fitted to a sample of the training rows and compressed to a tenth of its points. Both models are scored on rows
that were used for neither: the test set of MNIST and a random sample of the remaining rows of Covertype.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from gramless import LSSVC, compress
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

SETTINGS = {"mnist": {"gamma": 2.0, "C": 100.0}, "covtype": {"gamma": 0.25, "C": 10.0}}


def prepared(name: str, rows: int, test: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a sample: images centred and scaled to unit norm, or standardised columns."""
    data = load(name, download=False)
    rng = np.random.RandomState(0)
    if name == "mnist":
        kept, held = rng.permutation(len(data.y_train))[:rows], rng.permutation(len(data.y_test))[:test]
        X, X_test = (np.asarray(part, dtype=np.float32) for part in (data.x_train[kept], data.x_test[held]))
        X, X_test = (part.reshape(len(part), -1) for part in (X, X_test))
        X, X_test = (part - part.mean(axis=1, keepdims=True) for part in (X, X_test))
        X, X_test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (X, X_test))
        return X, data.y_train[kept], X_test, data.y_test[held]
    every, labels = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    chosen = rng.permutation(len(labels))[: rows + test]
    every, labels = every[chosen].astype(np.float32), labels[chosen]
    centre, spread = every[:rows].mean(axis=0), every[:rows].std(axis=0)
    every = (every - centre) / np.where(spread > 0, spread, 1.0)
    return every[:rows], labels[:rows], every[rows:], labels[rows:]


def main() -> None:
    """Fit, compress, score, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--only", choices=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "compress.json")
    asked = parser.parse_args()
    results = []
    for name in [asked.only] if asked.only else SETTINGS:
        X, y, X_test, y_test = prepared(name, asked.rows, asked.test)
        model = LSSVC(**SETTINGS[name], device=asked.device, random_state=0).fit(X, y)
        began, cpu = time.perf_counter(), time.process_time()
        small = compress(model, n_points=len(X) // 10, rounds=asked.rounds, random_state=0)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        before, after = model.score(X_test, y_test), small.score(X_test, y_test)
        results.append(
            {
                "data": name,
                "rows": len(X),
                **small.compression_,
                "accuracy_before": round(100 * before, 2),
                "accuracy_after": round(100 * after, 2),
                "seconds": round(seconds, 1),
                "cpu_seconds": round(cpu, 1),
                "rounds": asked.rounds,
            }
        )
        print(results[-1], flush=True)
    asked.out.write_text(json.dumps({"environment": environment(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
