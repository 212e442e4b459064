"""Times of two versions of the library, measured alternately in one run on the same cores.

    git archive --prefix=old/ 6dd2cbb src benchmarks | tar x -C /tmp
    python benchmarks/old_and_new.py /tmp/old [--repeats 3] [--lanes 1] [--cores 2] [--seconds 240] [--only latency]

Each case runs in processes of its own, once with the old and once with the new tree (source and benchmarks), then in the
opposite order, and so on. Every lane has its own cores, on which it runs the cases of one queue. The first run of each tree
fills the cache of compiled code on disk and is not counted. A line for each measure has the medians of both trees and the
ratio new to old; at the end there are the geometric means by benchmark. Cases that do not start within the time limit are
named.

    mnist_cpu      exact fit to 10,000 MNIST images, cached kernel matrix
    svm_cpu        KernelSVC on pendigits, usps and spambase, C = 1 and 100
    latency        predictions of one and 100 rows
    solver_steps   steps of block solvers on 10,000 MNIST images
    small_tables   TableClassifier and TableRegressor on tables of at most a thousand rows
    tables_N       the same on 80 % of tables of about N = 500, 2,000, 5,000, 15,000 and 50,000 rows, one core

`--out` writes the printed values to a file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gramless.papers.experiments.environment import environment

SIZES = {
    "500": ("led7digit", "wdbc", "australian"),
    "2000": ("digits", "titanic", "hdma"),
    "5000": ("wages", "texture", "computers"),
    "15000": ("pendigits", "california", "letter"),
    "50000": ("movies", "insteval", "bank"),
}
"""Tables of `benchmarks/tables.py` by the approximate number of their rows."""
TABLES = ("vowel", "wages", "wdbc", "tic_tac_toe")
NEW = Path(__file__).parents[1]
_STEPS = "import json, solver_steps; print(json.dumps(solver_steps.steps(10_000, 1_000, 6)))"
_TABLE = """
import sys, small_tables
sys.argv = ["-c", *sys.argv[1:]]
exec(small_tables._FIT)
"""
_SAMPLE = """
import sys
from tables import table
X, y, kind = table(sys.argv[1])
rows = X.sample(min(len(X), 1000), random_state=0).index
X = X.loc[rows].assign(target=y[rows])
X.to_csv(sys.argv[2], index=False)
print(kind)
"""


class Trees:
    """Runs Python with one of the two trees on given cores."""

    def __init__(self, old: Path, folder: Path):
        self.paths = {"old": old.resolve(), "new": NEW}
        self.folder = folder

    def run(self, side: str, cores: list[int], *command: str) -> str:
        """Return the standard output of a Python process in the benchmark folder of the tree."""
        tree = self.paths[side]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(len(cores)))
        environment = {**os.environ, **threads, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'benchmarks'}"}
        pinned = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-W", "ignore", *command]
        done = subprocess.run(pinned, env=environment, cwd=tree / "benchmarks", capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{side}: {' '.join(command)[:200]}\n{done.stderr[-2000:]}")
        return done.stdout


def mnist_cpu(trees: Trees, side: str, cores: list[int]) -> dict[str, float]:
    """Return the seconds of a fit and a prediction."""
    record = json.loads(trees.run(side, cores, "mnist_cpu.py", "--one", "gramless cached", "10000").splitlines()[-1])
    return {key: record[key] for key in ("fit_seconds", "fit_cpu_seconds", "predict_seconds")}


def svm_cpu(trees: Trees, side: str, cores: list[int], case: str, C: str) -> dict[str, float]:
    """Return the seconds of a fit and a prediction."""
    with tempfile.TemporaryDirectory(dir=trees.folder) as folder:
        out = str(Path(folder) / "out.npz")
        trees.run(side, cores, "svm_cpu.py", "--child", "gramless", case, C, "0", out)
        with np.load(out) as archive:
            record = json.loads(str(archive["record"]))
    return {key: record[key] for key in ("fit_seconds", "fit_cpu_seconds", "predict_seconds")}


def latency(trees: Trees, side: str, cores: list[int]) -> dict[str, float]:
    """Return the microseconds of CPU time of each call on one core."""
    lines = trees.run(side, cores[:1], "latency.py", "--repeats", "30", "--out", str(trees.folder / side)).splitlines()
    records: list[dict[str, Any]] = [ast.literal_eval(line) for line in lines]
    return {f"{one['model']} {one['dtype']} {one['call']}": one["cpu_us"] for one in records}


def solver_steps(trees: Trees, side: str, cores: list[int]) -> dict[str, float]:
    """Return the median seconds of a step."""
    record = json.loads(trees.run(side, cores, "-c", _STEPS).splitlines()[-1])
    return {name: float(value) for name, value in record["median_seconds"].items() if name != "products"}


def small_table(trees: Trees, side: str, cores: list[int], name: str) -> dict[str, float]:
    """Return the seconds of a fit."""
    kind = (trees.folder / f"{name}.kind").read_text()
    record = json.loads(trees.run(side, cores, "-c", _TABLE, str(trees.folder / f"{name}.csv"), kind).splitlines()[-1])
    return {key: record[key] for key in ("seconds", "cpu_seconds")}


def whole_table(trees: Trees, side: str, cores: list[int], name: str) -> dict[str, float]:
    """Return the CPU seconds of a fit."""
    out = trees.folder / f"{side} {name}.json"
    out.unlink(missing_ok=True)
    trees.run(side, cores[:1], "tables.py", "--learners", "gramless", "--seeds", "0", "--only", name, "--out", str(out))
    return {"cpu_seconds": json.loads(out.read_text())["results"][f"{name}/0/gramless"]["cpu_seconds"]}


CASES: dict[str, tuple[Any, ...]] = {
    "mnist_cpu 10000": (mnist_cpu,),
    **{f"svm_cpu {case} C={C}": (svm_cpu, case, C) for case in ("pendigits", "usps", "spambase") for C in ("1", "100")},
    "latency": (latency,),
    "solver_steps 10000": (solver_steps,),
    **{f"small_tables {name}": (small_table, name) for name in TABLES},
    **{f"tables_{rows} {name}": (whole_table, name) for rows, names in SIZES.items() for name in names},
}


def measure(
    trees: Trees, names: list[str], repeats: int, uncounted: int, lanes: list[list[int]], seconds: float
) -> tuple[dict, list[str]]:
    """Return the times by case, measure and side, and the names of the cases that did not start in time."""
    end = time.monotonic() + seconds
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    late: list[str] = []
    for name in names:
        waiting.put(name)

    def work(cores: list[int]) -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            if time.monotonic() > end:
                late.append(name)
                continue
            function, *arguments = CASES[name]
            times: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"old": [], "new": []})
            for turn in range(repeats + uncounted):
                if turn > uncounted and time.monotonic() > end:
                    break
                for side in ("old", "new") if turn % 2 else ("new", "old"):
                    for key, value in function(trees, side, cores, *arguments).items():
                        if turn >= uncounted:
                            times[key][side].append(value)
            found[name] = dict(times)

    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(work, lanes))  # raises the error of a lane
    return found, late


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder with the src and benchmarks of the old version")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--cached", action="store_true", help="the cache of compiled code is filled: count the first run too"
    )
    parser.add_argument("--lanes", type=int, default=1, help="cases that run at the same time, each on its own cores")
    parser.add_argument("--cores", type=int, default=2, help="cores of each lane")
    parser.add_argument("--seconds", type=float, default=240.0, help="time after which no further case or repetition starts")
    parser.add_argument("--only", nargs="+", default=[], help="beginnings of the names of cases")
    parser.add_argument("--out", type=Path, help="file for the records")
    args = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    lanes = [available[i * args.cores : (i + 1) * args.cores] for i in range(args.lanes)]
    if not all(lanes):
        raise SystemExit(f"{args.lanes} lanes of {args.cores} cores need more than the {len(available)} cores here")
    names = [name for name in CASES if not args.only or name.startswith(tuple(args.only))]
    with tempfile.TemporaryDirectory() as folder:
        trees = Trees(args.old, Path(folder))
        for name in TABLES:
            if f"small_tables {name}" in names:
                kind = trees.run("new", lanes[0], "-c", _SAMPLE, name, str(Path(folder) / f"{name}.csv")).strip()
                (Path(folder) / f"{name}.kind").write_text(kind)
        found, late = measure(trees, names, args.repeats, 0 if args.cached else 1, lanes, args.seconds)
    records = []
    print(f"{'case':28} {'measure':44} {'old':>10} {'new':>10} {'new/old':>8}  runs")
    for name in names:
        for key, sides in found.get(name, {}).items():
            if not sides["old"] or not sides["new"]:
                continue
            old, new = statistics.median(sides["old"]), statistics.median(sides["new"])
            records.append({"case": name, "measure": key, "old": old, "new": new, "runs": len(sides["new"])})
            print(f"{name:28} {key:44} {old:10.4g} {new:10.4g} {new / old:8.3f}  {len(sides['new'])}")
    for benchmark in dict.fromkeys(record["case"].split()[0] for record in records):
        group = [record for record in records if record["case"].split()[0] == benchmark]
        values = [record["new"] / record["old"] for record in group]
        mean, largest = statistics.geometric_mean(values), max(values)
        old, new = (statistics.median(record[side] for record in group) for side in ("old", "new"))
        medians = f", medians {old:.4g} and {new:.4g}" if len({record["measure"] for record in group}) == 1 else ""
        print(f"{benchmark}: geometric mean of {len(values)} ratios {mean:.3f}, largest {largest:.3f}{medians}")
    if args.out:
        args.out.write_text(json.dumps({"old": args.old.name, "records": records, **environment()}, indent=1) + "\n")
    for name in late:
        print(f"not started in time: {name}")


if __name__ == "__main__":
    main()
