"""Latency of predictions in microseconds: one row and 100 rows, through `predict` and through `gramless.compiled`.

    python benchmarks/latency.py [--out benchmarks/results/latency.json]

Models have 2,000 points and 50 features; medians over many calls on one thread, CPU time and wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gramless import LSSVC, LSSVR, compiled

POINTS, FEATURES = 2000, 50


def median_microseconds(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return wall-clock time and CPU time of a call."""
    for _ in range(20):
        call()
    wall, cpu = [], []
    for _ in range(repeats):
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(10):
            call()
        wall.append((time.perf_counter() - began) / 10)
        cpu.append((time.process_time() - began_cpu) / 10)
    return {"wall_us": round(1e6 * float(np.median(wall)), 1), "cpu_us": round(1e6 * float(np.median(cpu)), 1)}


def main() -> None:
    """Fit, measure, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "latency.json")
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(POINTS, FEATURES))
    y = X[:, 0] + np.sin(X[:, 1]) > 0
    results = []
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        models = {"LSSVC": LSSVC(C=1.0).fit(rows, y), "LSSVR": LSSVR(C=1.0).fit(rows, X[:, 0])}
        for name, model in models.items():
            quick = compiled(model)
            calls = {
                "predict, 1 row": lambda model=model, rows=rows: model.predict(rows[:1]),
                "compiled predict_one": lambda quick=quick, rows=rows: quick.predict_one(rows[0]),
                "predict, 100 rows": lambda model=model, rows=rows: model.predict(rows[:100]),
                "compiled predict, 100 rows": lambda quick=quick, rows=rows: quick.predict(rows[:100]),
            }
            for what, call in calls.items():
                results.append({"model": name, "dtype": dtype, "call": what, **median_microseconds(call, asked.repeats)})
                print(results[-1], flush=True)
    asked.out.write_text(json.dumps({"points": POINTS, "features": FEATURES, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
