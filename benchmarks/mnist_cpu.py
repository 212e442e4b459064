"""The exact LS-SVM on MNIST on the CPU, compared with SVC of scikit-learn and scikit-learn-intelex.

    python benchmarks/mnist_cpu.py [--rows 10000 60000] [--out benchmarks/results/mnist_cpu.json]

Each fit runs in its own process, after a small fit that loads libraries and compiled code, so that peak memory is
measured separately. Before each fit another process touches as much memory as the largest fit needs and frees it,
because a virtual machine is slow to provide memory that it has not used before. The lower bound of the cached fit is
measured in the same process: one symmetric float32 kernel matrix and fifteen products with it. CPU seconds (all
threads) depend less on other programs than wall-clock seconds. The LS-SVM has the polynomial kernel of degree 4 on
centred unit-norm images and C = 1e4, and is solved to a relative residual of 0.1, after which its error changes by at
most 0.2 points (see `benchmarks/time_to_error.py`). The SVC has an RBF kernel with C = 10 and gamma = 0.025 on pixels /
255.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ["gramless cached", "gramless streamed", "scikit-learn-intelex", "scikit-learn"]
WARM_UP = 4500
TOUCHED = 9 * 10**9
BUDGETS = {"gramless cached": "16GB", "gramless streamed": "3GB"}


def load(rows: int, unit: bool) -> tuple[np.ndarray, ...]:
    from gramless.papers.datasets import load as load_dataset

    data = load_dataset("mnist")
    X, T = (images.reshape(len(images), -1).astype(np.float32) / 255 for images in (data.x_train[:rows], data.x_test))
    if unit:
        for images in (X, T):
            images -= images.mean(axis=1, keepdims=True)
            images /= np.linalg.norm(images, axis=1, keepdims=True)
    return X, data.y_train[:rows], T, data.y_test


def machine(method: str) -> Any:
    if method.startswith("gramless"):
        from gramless import LSSVC

        settings = {"kernel": "poly", "degree": 4, "gamma": 1.0, "C": 1e4, "solver": "cg", "tol": 0.1}
        return LSSVC(**settings, memory_budget=BUDGETS[method], random_state=0)
    if method == "scikit-learn-intelex":
        from sklearnex.svm import SVC
    else:
        from sklearn.svm import SVC
    return SVC(C=10.0, gamma=0.025, cache_size=4000)


def floor(X: np.ndarray, columns: int) -> dict[str, float]:
    """Return the seconds of one symmetric kernel matrix, and of one product with it."""
    from gramless.kernels import Polynomial
    from gramless.linalg.operators import KernelOperator

    op = KernelOperator(X, Polynomial(4, 1.0), 1e-4, cache=True)
    V = np.random.default_rng(0).normal(size=(len(X), columns)).astype(np.float32)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        op @ V
        times.append(time.perf_counter() - start)
    product = float(np.median(times[1:]))
    return {"gram_seconds": times[0] - product, "product_seconds": product}


def measure(method: str, rows: int) -> dict[str, Any]:
    X, y, T, t = load(rows, unit=method.startswith("gramless"))
    model = machine(method)
    model.fit(X[:WARM_UP], y[:WARM_UP]).predict(T[:WARM_UP])
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    record: dict[str, Any] = {"method": method, "rows": rows}
    record |= {"fit_seconds": time.perf_counter() - wall, "fit_cpu_seconds": time.process_time() - cpu}
    wall, cpu = time.perf_counter(), time.process_time()
    labels = model.predict(T)
    record |= {"predict_seconds": time.perf_counter() - wall, "predict_cpu_seconds": time.process_time() - cpu}
    record |= {"error_percent": 100 * float(np.mean(labels != t))}
    record |= {"peak_rss_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}
    if method.startswith("gramless"):
        record |= {"iterations": model.n_iter_, "residual": float(model.residual_), "reason": model.solver_reason_}
    if method == "gramless cached":
        del model
        record |= floor(X, 11)
        record["floor_seconds"] = record["gram_seconds"] + 15 * record["product_seconds"]
        record["times_floor"] = record["fit_seconds"] / record["floor_seconds"]
    return record


def in_own_process(method: str, rows: int) -> dict[str, Any]:
    subprocess.run([sys.executable, "-c", f"import numpy; numpy.ones({TOUCHED}, dtype='u1')"], check=True)
    child = [sys.executable, __file__, "--one", method, str(rows)]
    run = subprocess.run(child, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{method} at {rows} failed:\n{run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the median fit time, and the times of all runs."""
    ordered = sorted(runs, key=lambda run: run["fit_seconds"])
    return {**ordered[(len(runs) - 1) // 2], "fit_seconds_of_all": [run["fit_seconds"] for run in runs]}


def table(records: list[dict[str, Any]]) -> str:
    head = f"{'rows':>6}  {'method':22} {'fit s':>8} {'cpu s':>8} {'predict s':>9} {'GB':>6} {'error %':>8}"
    lines = [f"{head}  beside gramless cached"]
    for r in records:
        ours = next((o for o in records if o["rows"] == r["rows"] and o["method"] == "gramless cached"), r)
        fit, predict = (r[key] / ours[key] for key in ("fit_seconds", "predict_seconds"))
        note = f"fit {fit:.1f} x, predict {predict:.1f} x"
        if "floor_seconds" in r:
            note = f"floor {r['floor_seconds']:.1f} s (one matrix, fifteen products): {r['times_floor']:.2f} x"
        numbers = f"{r['fit_seconds']:8.1f} {r['fit_cpu_seconds']:8.1f} {r['predict_seconds']:9.2f} {r['peak_rss_GB']:6.1f}"
        lines.append(f"{r['rows']:6d}  {r['method']:22} {numbers} {r['error_percent']:8.2f}  {note}")
    return "\n".join(lines)


def environment() -> dict[str, Any]:
    names = ("gramless", "numpy", "scipy", "scikit-learn", "scikit-learn-intelex")
    facts = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    processor = next((line.split(":")[1].strip() for line in facts if line.startswith("model name")), platform.processor())
    return {
        "versions": {name: version(name) for name in names},
        "python": platform.python_version(),
        "processor": processor,
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 60_000])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mnist_cpu.json")
    parser.add_argument("--repeats", type=int, default=1, help="fits of each, in turns; the one of median time counts")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    old = json.loads(options.out.read_text())["records"] if options.out.exists() else []
    records = {(r["rows"], r["method"]): r for r in old}
    runs: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for rows in options.rows:
        for method in options.methods * options.repeats:
            runs.setdefault((rows, method), []).append(in_own_process(method, rows))
            records[rows, method] = middle(runs[rows, method])
            print(records[rows, method], flush=True)
            ordered = sorted(records.values(), key=lambda r: (r["rows"], METHODS.index(r["method"])))
            options.out.write_text(json.dumps({"environment": environment(), "records": ordered}, indent=1) + "\n")
    print(table(ordered))


if __name__ == "__main__":
    main()
