"""Support vector machines on a GPU, compared with the same model on the CPU of that computer.

    python benchmarks/svm_gpu.py [--only mnist covertype million] [--no-cpu] [--out benchmarks/results/svm_gpu.json]

Every case is fitted twice on the GPU in one process: the first fit compiles, the second is measured, from arrays in
host memory to a fitted model. `labels equal` is the fraction of test labels that equal those of the CPU model.

- mnist: 60,000 images, 10 classes, one-vs-one, C = 10, gamma = 0.025 on pixels / 255
- covertype: 50,000 standardised rows, 7 classes, one-vs-one, C = 10, gamma = 0.25
- million: 1,000,000 rows of 54 normal columns, two classes by a smooth function with noise, C = 1, gamma = 1 / 54
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gramless import KernelSVC
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

TEST_ROWS = 10_000


def mnist() -> tuple[Any, ...]:
    data = load("mnist")
    return data.x_train / np.float32(255), data.y_train, data.x_test / np.float32(255), data.y_test


def covertype() -> tuple[Any, ...]:
    data = load("covtype")
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    order = np.random.default_rng(0).permutation(len(y))[: 50_000 + TEST_ROWS]
    x, y = x[order].astype(np.float32), y[order]
    x = (x - x[:50_000].mean(0)) / np.maximum(x[:50_000].std(0), 1e-9)
    return x[:50_000], y[:50_000], x[50_000:], y[50_000:]


def million() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000_000 + TEST_ROWS, 54)).astype(np.float32)
    values = np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) - 0.8 + 0.5 * rng.normal(size=len(x))
    y = (values > 0).astype(int)
    return x[:1_000_000], y[:1_000_000], x[1_000_000:], y[1_000_000:]


CASES = {
    "mnist": (mnist, {"C": 10.0, "gamma": 0.025}),
    "covertype": (covertype, {"C": 10.0, "gamma": 0.25}),
    "million": (million, {"C": 1.0, "gamma": 1 / 54}),
}


def measure(name: str, with_cpu: bool) -> dict[str, Any]:
    make, settings = CASES[name]
    x, y, x_test, y_test = make()
    record: dict[str, Any] = {"case": name, "rows": len(x), "columns": x.shape[1]}
    for attempt in ("first", "second"):
        start = time.perf_counter()
        model = KernelSVC(**settings, device="cuda", random_state=0).fit(x, y)
        record["seconds_" + attempt] = time.perf_counter() - start
    start = time.perf_counter()
    labels = model.predict(x_test)
    record |= {
        "predict_seconds": time.perf_counter() - start,
        "error": float(np.mean(labels != y_test)),
        "support_vectors": len(model.support_),
        "pairs_moved": int(model.n_iter_.sum()),
        "converged": model.fit_status_ == 0,
    }
    if with_cpu:
        start = time.perf_counter()
        cpu = KernelSVC(**settings, random_state=0).fit(x, y)
        record["cpu_seconds"] = time.perf_counter() - start
        record["labels_equal"] = float(np.mean(cpu.predict(x_test) == labels))
        record["objective_difference"] = float(np.max(np.abs(model.dual_objective_ / cpu.dual_objective_ - 1)))
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--no-cpu", action="store_true", help="leave the CPU's machine out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "svm_gpu.json")
    options = parser.parse_args()
    records = []
    for name in options.only:
        records.append(measure(name, with_cpu=not options.no_cpu and name != "million"))
        print(json.dumps(records[-1]), flush=True)
        options.out.write_text(json.dumps({"environment": environment("cuda"), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
