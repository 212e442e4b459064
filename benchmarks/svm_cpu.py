"""Support vector machines on the CPU: KernelSVC against scikit-learn's and Intel's SVC.

Each fit runs in a process of its own, so that peak memory is its own and no library warms another's caches. Compiled code
and thread pools are warmed on a few hundred rows first; what that costs is recorded apart. Dual objectives are recomputed in
float64 from the fitted coefficients of every library with the same function. Seconds of the processor, all threads together,
stand beside those of the clock: they do not depend on what else the machine is doing.

    python benchmarks/svm_cpu.py                  every case, into benchmarks/results/svm_cpu.json
    python benchmarks/svm_cpu.py --cases usps     some of them again; the others' records stay
    python benchmarks/svm_cpu.py --quick          small MNIST only, printed
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "svm_cpu.json"
TOL = 1e-3

# dataset, training rows (None: all), C, gamma, how features are scaled
CASES = {
    "mnist-2000": ("mnist", 2_000, 10.0, 0.025, "bytes"),
    "mnist-10000": ("mnist", 10_000, 10.0, 0.025, "bytes"),
    "mnist-60000": ("mnist", 60_000, 10.0, 0.025, "bytes"),
    "usps": ("usps", None, 10.0, 1 / 128, None),
    "letter": ("letter", None, 10.0, 0.1, "standard"),
    "pendigits": ("pendigits", None, 10.0, 0.1, "standard"),
    "spambase": ("spambase", None, 10.0, 1 / 57, "standard"),
}

BUDGETS = {"gramless": "4GB", "gramless-small-budget": "1GB"}
METHODS = ["scikit-learn", "scikit-learn-intelex", *BUDGETS]


def data(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.preprocessing import StandardScaler

    from gramless.datasets import load

    name, rows, _, _, scaling = CASES[case]
    dataset = load(name)
    x_train, x_test = dataset.x_train[:rows], dataset.x_test
    if scaling == "bytes":
        x_train, x_test = x_train / np.float32(255), x_test / np.float32(255)
    elif scaling == "standard":
        scaler = StandardScaler().fit(x_train)
        x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
    return x_train.astype(np.float32), dataset.y_train[:rows], x_test.astype(np.float32), dataset.y_test


def machine(method: str, case: str):
    _, _, C, gamma, _ = CASES[case]
    if method in BUDGETS:
        from gramless import KernelSVC

        return KernelSVC(C=C, gamma=gamma, tol=TOL, memory_budget=BUDGETS[method])
    if method == "scikit-learn":
        from sklearn.svm import SVC

        # KernelSVC breaks ties of the vote by confidence too.
        return SVC(C=C, gamma=gamma, tol=TOL, cache_size=2000, break_ties=True)
    from sklearnex.svm import SVC

    return SVC(C=C, gamma=gamma, tol=TOL, cache_size=2000)


def dual_objectives(model, X: np.ndarray, y: np.ndarray, gamma: float) -> np.ndarray:
    """The value of each pair's dual problem, in float64."""
    from sklearn.metrics.pairwise import rbf_kernel

    codes = np.searchsorted(model.classes_, y)[model.support_]
    values = []
    for i, j in combinations(range(len(model.classes_)), 2):
        beta = np.zeros(codes.size)
        beta[codes == i] = model.dual_coef_[min(j - 1, len(model.dual_coef_) - 1), codes == i]
        beta[codes == j] = model.dual_coef_[i, codes == j]
        carried = np.flatnonzero(beta)
        vectors = X[model.support_[carried]].astype(np.float64)
        quadratic = beta[carried] @ rbf_kernel(vectors, gamma=gamma) @ beta[carried]
        values.append(np.abs(beta).sum() - 0.5 * quadratic)
    return np.array(values)


def child(method: str, case: str, out: str) -> None:
    from gramless.experiments.memory import peak_mb, reset_peak

    x_train, y_train, x_test, y_test = data(case)
    started = time.perf_counter()
    machine(method, case).fit(x_train[:300], y_train[:300]).predict(x_test[:50])
    warm_up = time.perf_counter() - started

    model = machine(method, case)
    reset_peak()
    before = peak_mb()
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(x_train, y_train)
    fit_seconds, fit_cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak = peak_mb()
    started, cpu_started = time.perf_counter(), time.process_time()
    predicted = model.predict(x_test)
    predict_seconds, predict_cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    record = {
        "method": method,
        "case": case,
        "n_train": len(y_train),
        "n_test": len(y_test),
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "fit_cpu_seconds": fit_cpu_seconds,
        "predict_cpu_seconds": predict_cpu_seconds,
        "warm_up_seconds": warm_up,
        "mb_before_fit": before,
        "peak_mb": peak,
        "error_percent": 100 * float(np.mean(predicted != y_test)),
        "n_support": len(model.support_),
    }
    arrays = {"labels": predicted, "objective": dual_objectives(model, x_train, y_train, CASES[case][3])}
    np.savez(out, record=json.dumps(record), **arrays)


def run_apart(method: str, case: str) -> tuple[dict, dict]:
    """One fit in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.npz")
        command = [sys.executable, "-W", "ignore", __file__, "--child", method, case, out]
        subprocess.run(command, check=True)
        with np.load(out) as archive:
            arrays = dict(archive)
    return json.loads(str(arrays.pop("record"))), arrays


def compare(case: str, methods: list[str], repeats: int) -> list[dict]:
    """Records of every method on one case, the objective and labels against scikit-learn's."""
    records, reference = [], None
    for method in methods:
        runs = [run_apart(method, case) for _ in range(1 if method == "scikit-learn" else repeats)]
        runs.sort(key=lambda run: run[0]["fit_seconds"])
        record, arrays = runs[len(runs) // 2]
        record["repeats"] = len(runs)
        record["fit_seconds_all"] = [run[0]["fit_seconds"] for run in runs]
        record["predict_seconds"] = float(np.median([run[0]["predict_seconds"] for run in runs]))
        reference = (record, arrays) if method == "scikit-learn" else reference
        if reference is not None:
            best = reference[1]["objective"]
            record["objective_relative_difference"] = float(np.max(np.abs(arrays["objective"] - best) / np.abs(best)))
            record["labels_equal_percent"] = 100 * float(np.mean(arrays["labels"] == reference[1]["labels"]))
            record["fit_speedup"] = reference[0]["fit_seconds"] / record["fit_seconds"]
            record["fit_cpu_speedup"] = reference[0]["fit_cpu_seconds"] / record["fit_cpu_seconds"]
            record["predict_speedup"] = reference[0]["predict_seconds"] / record["predict_seconds"]
        if method in BUDGETS:
            record["memory_budget"] = BUDGETS[method]
        records.append(record)
        print(json.dumps(record), flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("METHOD", "CASE", "OUT"))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=[case for case in CASES if case != "mnist-2000"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--repeats", type=int, default=3, help="of the fits at 10,000, the median is kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    if arguments.quick:
        compare("mnist-2000", ["scikit-learn", "scikit-learn-intelex", "gramless"], 1)
        return
    for case in arguments.cases:
        timed = case.startswith("mnist")
        methods = [m for m in arguments.methods if timed or m in ("scikit-learn", "gramless")]
        keep(arguments.out, case, compare(case, methods, arguments.repeats if case == "mnist-10000" else 1))


def keep(path: Path, case: str, records: list[dict]) -> None:
    """Replace the records of a case in the file of results, each with the environment it was measured in."""
    from gramless.experiments.environment import environment

    earlier = json.loads(path.read_text())["records"] if path.exists() else []
    records = [{**record, "environment": environment()} for record in records]
    path.parent.mkdir(exist_ok=True)
    others = [record for record in earlier if record["case"] != case]
    path.write_text(json.dumps({"tol": TOL, "records": others + records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
