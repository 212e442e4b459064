"""Accuracy of models on ten times fewer points: `gramless.compress` on samples of MNIST and Covertype.

    python benchmarks/compress.py [--rows 10000] [--out benchmarks/results/compress.json]

Each model is fitted to a sample and compressed to a tenth of its points; both are scored on test rows that neither saw.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from gramless import LSSVC, compress
from gramless.datasets import load

SETTINGS = {"mnist": {"gamma": 2.0, "C": 100.0}, "covtype": {"gamma": 0.3, "C": 30.0}}


def prepared(name: str, rows: int, test: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A sample: images of unit length without their mean, other columns standardised."""
    data = load(name, download=False)
    rng = np.random.RandomState(0)
    kept, held = rng.permutation(len(data.y_train))[:rows], rng.permutation(len(data.y_test))[:test]
    X, X_test = (np.asarray(part, dtype=np.float32) for part in (data.x_train[kept], data.x_test[held]))
    X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    if name == "mnist":
        X, X_test = (part - part.mean(axis=1, keepdims=True) for part in (X, X_test))
        X, X_test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (X, X_test))
    else:
        centre, spread = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        X, X_test = (X - centre) / spread, (X_test - centre) / spread
    return X, data.y_train[kept], X_test, data.y_test[held]


def main() -> None:
    """Fit, compress, score, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=5000)
    parser.add_argument("--only", choices=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "compress.json")
    asked = parser.parse_args()
    results = []
    for name in [asked.only] if asked.only else SETTINGS:
        X, y, X_test, y_test = prepared(name, asked.rows, asked.test)
        model = LSSVC(**SETTINGS[name]).fit(X, y)
        began = time.process_time()
        small = compress(model, n_points=len(X) // 10, random_state=0)
        seconds = time.process_time() - began
        before, after = model.score(X_test, y_test), small.score(X_test, y_test)
        results.append(
            {
                "data": name,
                "rows": len(X),
                **small.compression_,
                "accuracy_before": round(100 * before, 2),
                "accuracy_after": round(100 * after, 2),
                "cpu_seconds": round(seconds, 1),
            }
        )
        print(results[-1], flush=True)
    asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
