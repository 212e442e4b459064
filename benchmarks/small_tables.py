"""What a table of a thousand rows costs, each fit in a new process with nothing loaded yet.

    python benchmarks/small_tables.py [--only vowel bank] [--repeats 3] [--rows 1000]

Tables of `benchmarks/tables.py` that have so many rows, or nearly: that many of them, drawn at random. For each, medians of
some processes: seconds by the clock and of the processor for `TableClassifier().fit` or `TableRegressor().fit` (imports are
told apart), and for the whole command `gramless train`, from the start of Python to the model on disk. Compiled code, where
any is needed, and Python's own compiled files are on disk already: the first process of each kind does not count. Other
programs on the machine make seconds by the clock longer; the load is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gramless.experiments.environment import environment
from tables import SMALL_FIRST, table

# A table that has this share of the rows asked for counts as one of that size.
_NEARLY = 0.95
_FIT = """
import json, sys, time
began, worked = time.perf_counter(), time.process_time()
import pandas as pd, gramless
made = gramless.TableClassifier if sys.argv[2] == "classes" else gramless.TableRegressor
imported, imported_cpu = time.perf_counter(), time.process_time()
X = pd.read_csv(sys.argv[1])
y = X.pop("target")
y = y.astype(str) if sys.argv[2] == "classes" else y
model = made(random_state=0)
start, start_cpu = time.perf_counter(), time.process_time()
model.fit(X, y)
end, end_cpu = time.perf_counter(), time.process_time()
print(json.dumps({"seconds": end - start, "cpu_seconds": end_cpu - start_cpu, "import_seconds": imported - began,
                  "import_cpu_seconds": imported_cpu - worked, "numba": "numba" in sys.modules, "model": model.summary_}))
"""


def fit(data: Path, kind: str) -> dict[str, Any]:
    """One fit in a process of its own."""
    found = subprocess.run([sys.executable, "-c", _FIT, str(data), kind], capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def train(data: Path, kind: str, out: Path) -> dict[str, float]:
    """The whole command in a process of its own."""
    task = "classification" if kind == "classes" else "regression"
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "gramless", "train", str(data), "--target", "target", "--task", task, "--out", str(out)]
    subprocess.run(command, capture_output=True, check=True)
    seconds, after = time.perf_counter() - began, os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    return {"train_seconds": seconds, "train_cpu_seconds": worked}


def main() -> None:
    """Draw, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=SMALL_FIRST)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "small_tables.json")
    asked = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    titles = f"{'fit s':>6s} {'cpu s':>6s}  {'import':>6s}  {'train s':>7s} {'cpu s':>6s}"
    print(f"{'table':16s} {'rows':>6s} {'columns':>7s}  {titles}")
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder, "table.csv"), Path(folder, "model.skops")
        warm = False
        for name in asked.only:
            X, y, kind = table(name)
            if len(y) < _NEARLY * asked.rows:
                continue
            kept = np.random.default_rng(0).permutation(len(y))[: asked.rows]
            X.iloc[kept].assign(target=y[kept]).to_csv(data, index=False)
            if not warm:
                fit(data, kind), train(data, kind, model)
                warm = True
            runs = [fit(data, kind) | train(data, kind, model) for _ in range(asked.repeats)]
            numbers = [key for key, value in runs[0].items() if isinstance(value, float)]
            medians = {key: round(statistics.median(run[key] for run in runs), 2) for key in numbers}
            about = {"rows": len(kept), "columns": X.shape[1], "numba": runs[0]["numba"], "model": runs[0]["model"]}
            results[name] = about | medians | {"load": round(os.getloadavg()[0], 2)}
            shown = medians["seconds"], medians["cpu_seconds"], medians["import_seconds"]
            whole = medians["train_seconds"], medians["train_cpu_seconds"]
            line = "{:6.2f} {:6.2f}  {:6.2f}".format(*shown) + "  {:7.2f} {:6.2f}".format(*whole)
            print(f"{name:16s} {len(kept):6,d} {X.shape[1]:7d}  {line}", flush=True)
    if not results:
        raise SystemExit(f"no table has {asked.rows:,} rows")
    for key in ("seconds", "cpu_seconds", "train_seconds", "train_cpu_seconds"):
        ranked = sorted((one[key], name) for name, one in results.items())
        median = statistics.median(value for value, _ in ranked)
        print(f"{key}: median {median:.2f}, worst {ranked[-1][0]:.2f} ({ranked[-1][1]})")
    written = {"results": results, "repeats": asked.repeats, **environment()}
    asked.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
