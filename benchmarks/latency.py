"""Latency of predictions in microseconds: one row and 100 rows, through `predict` and through `gramless.compiled`.

    python benchmarks/latency.py [--out benchmarks/results/latency.json]
    python benchmarks/latency.py --tables titanic california loans insteval

Models have 2,000 points and 50 features; medians over many calls on one thread, CPU time and wall-clock time. With
`--tables`, the models are those of `TableClassifier` and `TableRegressor` with default settings for tables of
`benchmarks/tables.py` (seed 0), and the rows, one and a thousand, are in a DataFrame.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gramless import LSSVC, LSSVR, TableClassifier, TableRegressor, compiled
from gramless.papers.experiments.environment import environment
from tables import split, table

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


def small_models(repeats: int) -> list[dict[str, Any]]:
    """Measure models of 2,000 points."""
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
                results.append({"model": name, "dtype": dtype, "call": what, **median_microseconds(call, repeats)})
                print(results[-1], flush=True)
    return results


def table_models(names: list[str], repeats: int) -> list[dict[str, Any]]:
    """Measure models of whole tables."""
    results = []
    for name in names:
        X, y, kind = table(name)
        X_train, _, y_train, _ = split(X, y, kind, 0)
        model = (TableClassifier if kind == "classes" else TableRegressor)(random_state=0).fit(X_train, y_train)
        for rows in (1, 1000):
            frame = X.iloc[:rows]
            found = median_microseconds(lambda model=model, frame=frame: model.predict(frame), repeats)
            about = {"table": name, "training_rows": len(X_train), "columns": X.shape[1], "model": model.summary_}
            results.append({**about, "rows": rows, **found})
            print(results[-1], flush=True)
    return results


def main() -> None:
    """Fit, measure, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--tables", nargs="+", help="models of these tables instead")
    parser.add_argument("--out", type=Path, help="latency.json or latency_tables.json in benchmarks/results by default")
    asked = parser.parse_args()
    default = "latency_tables.json" if asked.tables else "latency.json"
    out = asked.out or Path(__file__).parent / "results" / default
    if asked.tables:
        records: dict[str, Any] = {"results": table_models(asked.tables, asked.repeats), **environment()}
    else:
        records = {"points": POINTS, "features": FEATURES, "results": small_models(asked.repeats)}
    out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
