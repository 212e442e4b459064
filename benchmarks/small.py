"""Small data: fits of 50 to 1,000 rows and predictions of one row, compared with scikit-learn's SVC.

    python benchmarks/small.py [--repeats 30]

Each estimator runs in its own process; the table lists medians of wall-clock time in milliseconds, and the ratio to SVC.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from sklearn.datasets import make_classification

SIZES = [(50, 2), (50, 3), (200, 2), (200, 3), (1000, 2), (1000, 3)]
METHODS = ["SVC", "KernelSVC", "LSSVC"]


def estimator(name: str):
    if name == "SVC":
        from sklearn.svm import SVC

        return SVC()
    import gramless

    return getattr(gramless, name)()


def median(call, repeats: int) -> float:
    """Return milliseconds; the first call, which loads and compiles, is not counted."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return 1e3 * float(np.median(seconds))


def measure(name: str, repeats: int) -> list[tuple[float, float]]:
    """Measure, for each size, the fit and the prediction of one row."""
    found = []
    for n, k in SIZES:
        X, y = make_classification(n, 10, n_informative=6, n_classes=k, random_state=0)
        model = estimator(name).fit(X, y)
        fit = median(lambda model=model, X=X, y=y: model.fit(X, y), repeats)
        found.append((fit, median(lambda model=model, X=X: model.predict(X[:1]), 10 * repeats)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--method", choices=METHODS, help="measure one, and print JSON")
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(measure(arguments.method, arguments.repeats)))
        return
    results = {}
    for name in METHODS:
        command = [sys.executable, __file__, "--method", name, "--repeats", str(arguments.repeats)]
        results[name] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print("rows  classes | " + " | ".join(f"{name:>9}: fit ms   (x)  one row ms   (x)" for name in METHODS))
    for number, (n, k) in enumerate(SIZES):
        cells = []
        for name in METHODS:
            (fit, row), (fit_svc, row_svc) = results[name][number], results["SVC"][number]
            cells.append(f"{fit:18.2f} {fit / fit_svc:5.2f} {row:11.3f} {row / row_svc:5.2f}")
        print(f"{n:5d} {k:7d}  | " + " | ".join(cells))


if __name__ == "__main__":
    main()
