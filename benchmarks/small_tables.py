"""Fit times of tables of a thousand rows, each fit in a new process with nothing loaded.

    python benchmarks/small_tables.py [--only vowel bank] [--repeats 3] [--rows 1000] [--patience 600]

Uses random samples of the tables of `benchmarks/tables.py`. Records, for each table, medians over several processes:
wall-clock and CPU seconds of `TableClassifier().fit` or `TableRegressor().fit` (imports are listed separately) and, for
the tables of `--train`, of the whole command `gramless train`, from the start of Python to the model file. The caches
of compiled code on disk are filled before: the first process of each kind is not counted. The number of cores that
other programs used is recorded. `--patience` is the total number of seconds to wait for a quiet computer (less than a
tenth of a core used by others); disturbed runs are repeated within this time.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gramless.papers.experiments.environment import environment
from tables import SMALL_FIRST, table

# A table with at least this fraction of the requested rows counts as one of that size.
_NEARLY = 0.95
# Cores that other programs may use.
_QUIET = 0.1
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
    """Measure one fit in its own process."""
    found = subprocess.run([sys.executable, "-c", _FIT, str(data), kind], capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def train(data: Path, kind: str) -> dict[str, float]:
    """Measure the whole command in its own process."""
    task, out = "classification" if kind == "classes" else "regression", data.with_suffix(".skops")
    before, began = own_seconds(), time.perf_counter()
    command = [sys.executable, "-m", "gramless", "train", str(data), "--target", "target", "--task", task, "--out", str(out)]
    subprocess.run(command, capture_output=True, check=True)
    return {"train_seconds": time.perf_counter() - began, "train_cpu_seconds": own_seconds() - before}


def own_seconds() -> float:
    """Return the CPU seconds of this process and of its finished child processes."""
    return sum(os.times()[:4])


def all_seconds() -> float:
    """Return the CPU seconds of all processes of this computer, or zero if the system does not provide them."""
    told = Path("/proc/stat")
    if not told.exists():
        return float("nan")
    user, nice, system, _, _, interrupts, soft, stolen = map(int, told.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Runs measurements, records how many cores other programs used, and waits for a quiet computer."""

    def __init__(self, patience: float):
        self.until = time.perf_counter() + patience
        self.others: list[float] = []

    def __call__(self, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the first undisturbed run, or the last run when the waiting time is used up."""
        while True:
            while self._others(lambda: time.sleep(0.5))[1] > _QUIET and time.perf_counter() < self.until:
                pass
            found, others = self._others(do)
            if not others > _QUIET or time.perf_counter() > self.until:
                self.others.append(others)
                return found

    @staticmethod
    def _others(do: Callable[[], Any]) -> tuple[Any, float]:
        began, everything, own = time.perf_counter(), all_seconds(), own_seconds()
        found = do()
        return found, (all_seconds() - everything - own_seconds() + own) / (time.perf_counter() - began)


def main() -> None:
    """Sample, fit, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=SMALL_FIRST)
    parser.add_argument("--train", nargs="*", default=["vowel", "tic_tac_toe", "wages"])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "small_tables.json")
    asked = parser.parse_args()
    watch, results = Watch(asked.patience), dict[str, dict[str, Any]]()
    titles = f"{'fit s':>6s} {'cpu s':>6s}  {'import':>6s}  {'train s':>7s} {'cpu s':>6s}  {'others':>6s}"
    print(f"{'table':16s} {'rows':>6s} {'columns':>7s}  {titles}")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "table.csv")
        for name in asked.only:
            X, y, kind = table(name)
            if len(y) < _NEARLY * asked.rows:
                continue
            kept = np.random.default_rng(0).permutation(len(y))[: asked.rows]
            X.iloc[kept].assign(target=y[kept]).to_csv(data, index=False)
            steps = [fit, train] if name in asked.train else [fit]
            if not results:
                fit(data, kind), train(data, kind)
            watch.others.clear()
            runs = [
                {key: value for step in steps for key, value in watch(partial(step, data, kind)).items()}
                for _ in range(asked.repeats)
            ]
            numbers = [key for key, value in runs[0].items() if isinstance(value, float)]
            medians = {key: round(statistics.median(run[key] for run in runs), 2) for key in numbers}
            about = {"rows": len(kept), "columns": X.shape[1], "numba": runs[0]["numba"], "model": runs[0]["model"]}
            results[name] = about | medians | {"others": round(statistics.median(watch.others), 2)}
            keys = ["seconds", "cpu_seconds", "import_seconds", "train_seconds", "train_cpu_seconds", "others"]
            shown = (f"{medians[key]:.2f}" if key in medians else "" for key in keys[:-1])
            line = "{:>6s} {:>6s}  {:>6s}  {:>7s} {:>6s}  ".format(*shown) + f"{results[name]['others']:6.2f}"
            print(f"{name:16s} {len(kept):6,d} {X.shape[1]:7d}  {line}", flush=True)
            written = {"results": results, "repeats": asked.repeats, **environment()}
            asked.out.write_text(json.dumps(written, indent=1) + "\n")
    if not results:
        raise SystemExit(f"no table has {asked.rows:,} rows")
    for key in ("seconds", "cpu_seconds", "train_seconds", "train_cpu_seconds"):
        ranked = sorted((one[key], name) for name, one in results.items() if key in one)
        if ranked:
            median = statistics.median(value for value, _ in ranked)
            print(f"{key}: median {median:.2f}, worst {ranked[-1][0]:.2f} ({ranked[-1][1]}), {len(ranked)} tables")


if __name__ == "__main__":
    main()
