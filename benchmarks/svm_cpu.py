"""Support vector machines on the CPU: KernelSVC and KernelSVR against scikit-learn and scikit-learn-intelex.

Each fit runs in its own process, so that peak memory is separate and no library warms the caches of another. A fit to a
few rows that predicts all test rows first loads compiled code and thread pools; its time is recorded separately. Before
that, another process touches as much memory as the largest fit needs and frees it, because a virtual machine is slow to
provide memory that it has not used before. Dual objectives (to be maximised) are recomputed in float64 from the fitted
coefficients of every library by the same function. CPU seconds of all threads are recorded with wall-clock seconds
because they depend less on other programs. `LSSVC` and `LSSVR` with default solver, tolerance and memory are fitted
with the same kernel and C; they solve the same task with another loss. Each record is written at once; a fit that fails
or exceeds `--time-limit` is reported and left out.

The floor of a fit is the time of its multiply-adds at the rate of a matrix product, and of its memory traffic at the rate
of a copy, both measured in the same process (see `floor`). The summary prints the operations, the bytes and the fraction of
the floor that each fit reaches.

    python benchmarks/svm_cpu.py                         all cases, into benchmarks/results/svm_cpu.json
    python benchmarks/svm_cpu.py --only usps letter      repeat some cases; the other records are kept
    python benchmarks/svm_cpu.py --quick                 small samples of every case, printed only
    python benchmarks/svm_cpu.py --summary               speed-ups of the records: each, geometric mean, worst
    python benchmarks/svm_cpu.py --curve                 seconds against rows, into benchmarks/results/svm_curve.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "svm_cpu.json"
CURVE = Path(__file__).parent / "results" / "svm_curve.json"
TOL = 1e-3
BUDGET = "4GB"
PRICES = (1.0, 100.0)
# Cases that are also fitted with the value between the two.
MORE_PRICES = ("low-dimension", "one-hot", "float64")
# Multiply-adds that take as long as the exponential of one kernel value, counted in the compiled loop.
EXPONENTIAL = 14
REFERENCE, LEAST_SQUARES = "scikit-learn-intelex", "gramless LSSVC"
METHODS = (REFERENCE, "gramless", LEAST_SQUARES, "scikit-learn")
CURVE_CASES = ("noisy", "clean")
CURVE_ROWS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
# The single-threaded reference is left out if it takes minutes.
MOST_ROWS_FOR_REFERENCE = 20_000
TEST_ROWS = 10_000
# Enough rows for every loop that a large fit uses: up to 4096 rows `LSSVC` factors the matrix instead of iterating.
WARM_UP = 4_500
# Memory of a fit beside its kernel values, and the maximum over all fits.
TOUCHED, MOST_TOUCHED = 5 * 10**8, 9 * 10**9
QUICK_ROWS = 3_000

Split = tuple[Any, np.ndarray, Any, np.ndarray]


def standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    return scaler.transform(train).astype(np.float32), scaler.transform(test).astype(np.float32)


def drawn(name: str, rows: int) -> Split:
    """Return random training and test samples of a dataset that is stored in some order."""
    from gramless.papers.datasets import load

    dataset = load(name)
    x, y = np.concatenate([dataset.x_train, dataset.x_test]), np.concatenate([dataset.y_train, dataset.y_test])
    order = np.random.default_rng(0).permutation(len(y))[: rows + TEST_ROWS]
    rows = min(rows, int(0.8 * order.size))
    train, test = order[:rows], order[rows:]
    return x[train], y[train], x[test], y[test]


def split(name: str, rows: int) -> Split:
    """Return the first rows of a dataset that has a fixed split."""
    from gramless.papers.datasets import load

    dataset = load(name)
    return dataset.x_train[:rows], dataset.y_train[:rows], dataset.x_test[:TEST_ROWS], dataset.y_test[:TEST_ROWS]


def images(name: str, rows: int) -> Split:
    x, y, x_test, y_test = split(name, rows)
    return x / np.float32(255), y, x_test / np.float32(255), y_test


def random_features(rows: int) -> Split:
    """Return MNIST through one random layer: 400 real columns of unit mean square norm."""
    x, y, x_test, y_test = images("mnist", rows)
    layer = np.random.default_rng(0).normal(size=(x.shape[1], 400)).astype(np.float32)
    train, test = np.maximum(x @ layer, 0), np.maximum(x_test @ layer, 0)
    scale = np.float32(np.mean(np.sum(train**2, axis=1)) ** -0.5)
    return train * scale, y, test * scale, y_test


def table(name: str, rows: int) -> Split:
    x, y, x_test, y_test = split(name, rows)
    x, x_test = standardised(x, x_test)
    return x, y, x_test, y_test


def covertype(rows: int, one_class: int | None = None) -> Split:
    x, y, x_test, y_test = drawn("covtype", rows)
    x, x_test = standardised(x, x_test)
    return (x, y, x_test, y_test) if one_class is None else (x, y == one_class, x_test, y_test == one_class)


def bank(rows: int) -> Split:
    """Return standardised numbers and indicator columns of categories."""
    from sklearn.preprocessing import OneHotEncoder

    x, y, x_test, y_test = drawn("bank", rows)
    numbers, numbers_test = standardised(x[:, :7], x_test[:, :7])
    encoder = OneHotEncoder(sparse_output=False, dtype=np.float32, handle_unknown="ignore").fit(x[:, 7:])
    return (
        np.hstack([numbers, encoder.transform(x[:, 7:])]),
        y,
        np.hstack([numbers_test, encoder.transform(x_test[:, 7:])]),
        y_test,
    )


def noisy(rows: int, noise: float = 0.5) -> Split:
    """Return eight columns, a curved boundary and labels so noisy that a third of the rows become support vectors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + TEST_ROWS, 8)).astype(np.float32)
    score = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] ** 2 + x[:, 4]
    y = score - np.median(score) + noise * rng.normal(size=len(x)) > 0
    return x[:rows], y[:rows], x[rows:], y[rows:]


def low_dimension(rows: int) -> Split:
    """Return eight correlated columns (a length, an energy, two compositions), a smooth boundary and 6 % wrong labels."""
    rng = np.random.default_rng(0)
    n = rows + TEST_ROWS
    length, shares = rng.gamma(6.0, 1.0, n), rng.dirichlet([6, 5, 4, 5], (n, 2))
    shares[:, 1] = 0.8 * shares[:, 0] + 0.2 * shares[:, 1]
    energy = -length * (0.5 + 2 * shares[:, 0, 1] + shares[:, 0, 2]) + rng.normal(size=n)
    x = np.column_stack([energy, length, shares[:, 0, :3], shares[:, 1, :3]])
    x, x_test = standardised(x[:rows], x[rows:])
    z = np.concatenate([x, x_test])
    score = z[:, 0] + 0.8 * np.sin(1.5 * z[:, 1]) + z[:, 2] * z[:, 5] - 0.5 * z[:, 3] ** 2
    score += 0.5 * np.tanh(2 * z[:, 6]) * z[:, 0]
    y = score - np.quantile(score, 2 / 3) + 0.25 * rng.normal(size=n) > 0
    return x, y[:rows], x_test, y[rows:]


def one_hot(rows: int) -> Split:
    """Return indicator columns of fourteen categories that depend on three common factors, and a noisy linear rule."""
    rng = np.random.default_rng(0)
    n = rows + TEST_ROWS
    factors, columns, score = rng.normal(size=(n, 3)), [], np.zeros(n)
    for levels in (5, 8, 5, 16, 16, 7, 14, 6, 5, 2, 2, 2, 5, 30):
        preference = factors @ rng.normal(size=(3, levels)) + rng.normal(size=levels)
        chosen = (preference + rng.gumbel(size=(n, levels))).argmax(axis=1)
        score += 0.6 * rng.normal(size=levels)[chosen]
        columns.append(np.eye(levels, dtype=np.float32)[chosen])
    x, y = np.hstack(columns), score + 0.5 * factors[:, 0] + 1.5 * rng.normal(size=n) > np.quantile(score, 0.75)
    return x[:rows], y[:rows], x[rows:], y[rows:]


def words(rows: int) -> Split:
    """Return sparse text-like rows: 60 words per row, drawn by Zipf's law from one of two vocabularies, and weighted."""
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(0)
    n, d, length = rows + rows // 4, rows, 60
    y = rng.random(n) < 0.5
    rank = np.minimum(rng.zipf(1.3, size=(n, length)), d) - 1
    # Half of the vocabulary has the same meaning in both classes; the other half is shuffled in one of them.
    shuffled = np.concatenate([np.arange(d // 2), d // 2 + rng.permutation(d - d // 2)])
    topical = rng.permutation(d)
    column = np.where(y[:, None] & (rng.random((n, length)) < 0.1), topical[rank], shuffled[rank])
    counts = csr_matrix((np.ones(n * length, np.float32), (np.repeat(np.arange(n), length), column.ravel())), shape=(n, d))
    counts.sum_duplicates()
    x = TfidfTransformer(sublinear_tf=True).fit_transform(counts).astype(np.float32)
    return x[:rows], y[:rows], x[rows:], y[rows:]


def california(rows: int) -> Split:
    x, y, x_test, y_test = drawn("california_housing", rows)
    x, x_test = standardised(x, x_test)
    return x, y / 1e5, x_test, y_test / 1e5


def double(make: Callable[[int], Split], rows: int) -> Split:
    x, y, x_test, y_test = make(rows)
    return x.astype(np.float64), y, x_test.astype(np.float64), y_test


# Generator, training rows, gamma ("scale": one over the number of features times the variance).
CASES: dict[str, tuple[Callable[[int], Split], int, Any]] = {
    "mnist": (lambda rows: images("mnist", rows), 60_000, 0.025),
    "mnist-relu": (random_features, 60_000, "scale"),
    "covertype-7": (covertype, 50_000, 0.25),
    "covertype-2": (lambda rows: covertype(rows, 2), 100_000, 0.25),
    "letter": (lambda rows: table("letter", rows), 16_000, 0.1),
    "usps": (lambda rows: split("usps", rows), 7_291, 1 / 128),
    "pendigits": (lambda rows: table("pendigits", rows), 7_494, 0.1),
    "spambase": (lambda rows: table("spambase", rows), 3_450, 1 / 57),
    "bank": (bank, 35_000, "scale"),
    "cifar10": (lambda rows: images("cifar10", rows), 10_000, "scale"),
    "noisy": (noisy, 50_000, 1 / 8),
    "words": (words, 20_000, 1.0),
    "california": (california, 16_000, 1 / 8),
    "noisy-float64": (lambda rows: double(noisy, rows), 20_000, 1 / 8),
    "low-dimension": (low_dimension, 60_000, 1 / 8),
    "one-hot": (one_hot, 32_000, 1 / 14),
    "float64": (lambda rows: double(lambda rows: images("mnist", rows), rows), 20_000, 0.025),
}
REGRESSION = {"california"}
# For the curve only: the same boundary, without wrong labels.
ALL_CASES = {**CASES, "clean": (lambda rows: noisy(rows, 0.0), 50_000, 1 / 8)}


def data(case: str, rows: int | None) -> tuple[Any, np.ndarray, Any, np.ndarray, float]:
    make, all_rows, gamma = ALL_CASES[case]
    x, y, x_test, y_test = make(rows or all_rows)
    gamma = float(1 / (x.shape[1] * x.var())) if gamma == "scale" else gamma
    y, y_test = (y, y_test) if case in REGRESSION else (y.astype(int), y_test.astype(int))
    return x, y, x_test, y_test, gamma


def machine(method: str, case: str, C: float, gamma: float) -> Any:
    regression = case in REGRESSION
    if method == "gramless":
        from gramless import KernelSVC, KernelSVR

        return (KernelSVR if regression else KernelSVC)(C=C, gamma=gamma, tol=TOL, memory_budget=BUDGET, random_state=0)
    if method == LEAST_SQUARES:
        from gramless import LSSVC, LSSVR

        return (LSSVR if regression else LSSVC)(C=C, gamma=gamma, random_state=0)
    if method == "scikit-learn":
        from sklearn.svm import SVC, SVR
    else:
        from sklearnex.svm import SVC, SVR
    return (SVR if regression else SVC)(C=C, gamma=gamma, tol=TOL, cache_size=2000)


def dual_objectives(model: Any, case: str, x: Any, y: np.ndarray, gamma: float) -> np.ndarray:
    """Return the dual objective of each problem, in float64 and computed by blocks."""
    coef = model.dual_coef_.toarray() if hasattr(model.dual_coef_, "toarray") else model.dual_coef_
    if case in REGRESSION:
        beta = coef[0]
        linear = y[model.support_] @ beta - model.epsilon * np.abs(beta).sum()
        return np.array([linear - 0.5 * energy(x[model.support_], beta, gamma)])
    codes = np.searchsorted(model.classes_, y)[model.support_]
    values = []
    for i, j in combinations(range(len(model.classes_)), 2):
        beta = np.zeros(codes.size)
        beta[codes == i] = coef[min(j - 1, len(coef) - 1), codes == i]
        beta[codes == j] = coef[i, codes == j]
        carried = np.flatnonzero(beta)
        quadratic = energy(x[model.support_[carried]], beta[carried], gamma)
        values.append(np.abs(beta).sum() - 0.5 * quadratic)
    return np.array(values)


def energy(vectors: Any, beta: np.ndarray, gamma: float) -> float:
    from sklearn.metrics.pairwise import rbf_kernel

    vectors = vectors.astype(np.float64)
    parts = [slice(i, i + 1024) for i in range(0, beta.size, 1024)]
    return float(sum(beta[part] @ (rbf_kernel(vectors[part], vectors, gamma=gamma) @ beta) for part in parts))


def rates(dtype: Any) -> tuple[float, float]:
    """Return the multiply-adds per second of a matrix product, and the bytes per second of a copy, on all cores."""
    from gramless._core.threads import blas_threads, run_threads

    square = np.ones((2048, 2048), dtype)
    source, workers = np.ones((16, 1 << 22)), blas_threads()
    target = np.empty_like(source)

    def copy(k: int) -> None:
        target[k::workers] = source[k::workers]

    def seconds(task: Callable[[], Any]) -> float:
        times = []
        for _ in range(4):
            started = time.perf_counter()
            task()
            times.append(time.perf_counter() - started)
        return min(times)

    multiply_adds = len(square) ** 3 / seconds(lambda: square @ square)
    return multiply_adds, 2 * source.nbytes / seconds(lambda: run_threads(copy, workers))


def floor(model: Any, method: str, x: Any, n_outputs: int) -> dict[str, float]:
    """Return the multiply-adds and bytes that a fit needs, and their seconds at the rates of this computer.

    A support vector machine computes the kernel rows of its support vectors. Least squares computes half of the kernel
    matrix and multiplies it with all right-hand sides in each iteration, and either reads the stored matrix or recomputes
    it, whichever takes less time.
    """
    n, width = x.shape
    d = x.nnz / n if hasattr(x, "nnz") else width
    speed, bandwidth = rates(x.dtype)
    value = d + EXPONENTIAL
    if method != LEAST_SQUARES:
        operations, nbytes = n * len(model.support_) * value, 0.0
    else:
        half, iterations, columns = n * n / 2, model.n_iter_, n_outputs + 1
        operations, nbytes = half * (value + 2 * columns * iterations), half * x.dtype.itemsize * iterations
        if half * iterations * value / speed < nbytes / bandwidth:
            operations, nbytes = operations + half * iterations * value, 0.0
    seconds = max(operations / speed, nbytes / bandwidth)
    return {"floor_operations": operations, "floor_bytes": nbytes, "floor_seconds": seconds}


def child(method: str, case: str, C: float, rows: int | None, out: str) -> None:
    from gramless.papers.experiments.environment import peak_mb, reset_peak

    x, y, x_test, y_test, gamma = data(case, rows)
    started = time.perf_counter()
    few = np.random.default_rng(0).permutation(x.shape[0])[:WARM_UP]
    machine(method, case, C, gamma).fit(x[few], y[few]).predict(x_test)
    warm_up = time.perf_counter() - started

    model = machine(method, case, C, gamma)
    reset_peak()
    before = peak_mb()
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(x, y)
    fit_seconds, fit_cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak = peak_mb()
    started, cpu_started = time.perf_counter(), time.process_time()
    predicted = model.predict(x_test)
    predict_seconds, predict_cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    regression = case in REGRESSION
    record = {
        "method": method,
        "case": case,
        "C": C,
        "n_train": x.shape[0],
        "n_features": x.shape[1],
        "n_test": x_test.shape[0],
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "fit_cpu_seconds": fit_cpu_seconds,
        "predict_cpu_seconds": predict_cpu_seconds,
        "warm_up_seconds": warm_up,
        "mb_before_fit": before,
        "peak_mb": peak,
        "error": float(np.mean(np.abs(predicted - y_test))) if regression else 100 * float(np.mean(predicted != y_test)),
        "n_support": len(model.support_),
    }
    classes = 1 if regression else len(np.unique(y))
    record |= floor(model, method, x, classes if classes > 2 else 1)
    values = {} if method == LEAST_SQUARES else {"objective": dual_objectives(model, case, x, y, gamma)}
    np.savez(out, record=json.dumps(record), labels=predicted, **values)


def run_apart(method: str, case: str, C: float, rows: int | None, limit: float) -> tuple[dict, dict] | None:
    """Run one fit in a new process; return None if it exceeds the time limit or fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.npz")
        arguments = [method, case, str(C), str(rows or 0), out]
        command = [sys.executable, "-W", "ignore", __file__, "--child", *arguments]
        touched = min(MOST_TOUCHED, TOUCHED + 6 * (rows or ALL_CASES[case][1]) ** 2)
        subprocess.run([sys.executable, "-c", f"import numpy; numpy.empty({touched}, numpy.uint8).fill(1)"], check=True)
        try:
            subprocess.run(command, check=True, timeout=limit)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            print(f"{method}, {case}, C={C:g}: {error}", file=sys.stderr, flush=True)
            return None
        with np.load(out) as archive:
            arrays = dict(archive)
    return json.loads(str(arrays.pop("record"))), arrays


def compare(
    case: str, C: float, methods: list[str], repeats: int, rows: int | None, limit: float
) -> Iterator[tuple[str, dict | None]]:
    """Yield each method with its record on one case: medians and differences from intelex's solution."""
    reference: dict | None = None
    for method in methods:
        if method == "scikit-learn" and (rows or ALL_CASES[case][1]) > MOST_ROWS_FOR_REFERENCE:
            continue
        runs = []
        for _ in range(1 if method == "scikit-learn" else repeats):
            run = run_apart(method, case, C, rows, limit)
            if run is None:
                break
            runs.append(run)
        else:
            record, arrays = runs[0]
            record["repeats"] = len(runs)
            for key in ("fit_seconds", "predict_seconds", "fit_cpu_seconds", "predict_cpu_seconds", "peak_mb"):
                record[key] = float(np.median([run[0][key] for run in runs]))
            if method == REFERENCE:
                reference = arrays
            if reference is not None and "objective" in arrays:
                best = reference["objective"]
                difference = (arrays["objective"] - best) / np.abs(best)
                record["objective_relative_difference"] = float(np.max(np.abs(difference)))
                record["objective_relative_shortfall"] = float(np.max(-difference, initial=0.0))
            if reference is not None and case not in REGRESSION:
                record["labels_equal_percent"] = 100 * float(np.mean(arrays["labels"] == reference["labels"]))
            print(json.dumps(record), flush=True)
            yield method, record
            continue
        yield method, None


def keep(path: Path, key: tuple, record: dict | None, fields: tuple[str, ...] = ("case", "C", "method")) -> None:
    """Replace the earlier record that agrees in the given fields; None deletes it."""
    from gramless.papers.experiments.environment import environment

    earlier = json.loads(path.read_text())["records"] if path.exists() else []
    path.parent.mkdir(exist_ok=True)
    records = [one for one in earlier if tuple(one.get(field) for field in fields) != key]
    if record is not None:
        records.append({**record, "environment": environment()})
    order = {name: place for place, name in enumerate((*ALL_CASES, *METHODS))}
    records.sort(key=lambda one: (order[one["case"]], one["C"], one["n_train"], order[one["method"]]))
    path.write_text(json.dumps({"tol": TOL, "records": records}, indent=1) + "\n")


def print_floors(records: list[dict]) -> None:
    """Print the operations and bytes of each fit, their time at the rates of the computer, and the fraction reached."""
    print("\nfloor of the fits: 1e9 multiply-adds, GB, seconds, and fraction of the fit time")
    for r in (r for r in records if "floor_seconds" in r and r["method"] != "scikit-learn"):
        print(
            f"  {r['case']:14s} C={r['C']:<5g} {r['method']:20s} {r['floor_operations'] / 1e9:9.1f} "
            f"{r['floor_bytes'] / 1e9:8.1f} {r['floor_seconds']:7.2f} {r['floor_seconds'] / r['fit_seconds']:6.0%}"
        )


def summary(records: list[dict]) -> None:
    """Print the floors, and the speed-ups over intelex: each case, the geometric mean and the worst."""
    print_floors(records)
    cases = {(r["case"], r["C"]) for r in records}
    found = {(r["case"], r["C"], r["method"]): r for r in records}
    for method in ("gramless", LEAST_SQUARES):
        both = [case for case in sorted(cases) if {(*case, method), (*case, REFERENCE)} <= found.keys()]
        if not both:
            continue
        for key in ("fit_seconds", "fit_cpu_seconds", "predict_seconds", "predict_cpu_seconds"):
            ratios = {case: found[(*case, REFERENCE)][key] / found[(*case, method)][key] for case in both}
            print(f"\n{key}: {REFERENCE} / {method}")
            for (case, C), ratio in ratios.items():
                print(f"  {case:14s} C={C:<5g} {ratio:6.2f}")
            worst = min(ratios, key=ratios.__getitem__)
            mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
            print(f"  geometric mean {mean:.2f}, worst {ratios[worst]:.2f} ({worst[0]}, C={worst[1]:g})")
        worse = {case: found[(*case, method)]["error"] - found[(*case, REFERENCE)]["error"] for case in both}
        worst = max(worse, key=worse.__getitem__)
        print(f"\nerror of {method} less that of {REFERENCE}: at most {worse[worst]:.3f} ({worst[0]}, C={worst[1]:g})")
        labels = [value for (case, _), value in worse.items() if case not in REGRESSION]
        higher, lower = sum(value > 0.1 for value in labels), sum(value < -0.1 for value in labels)
        print(f"by more than 0.1 points: higher in {higher}, lower in {lower} of {len(labels)} classifications")
    key = "objective_relative_shortfall"
    off = {(r["case"], r["C"]): r[key] for r in records if r["method"] == "gramless" and key in r}
    if off:
        worst = max(off, key=off.__getitem__)
        print(f"dual objective of gramless below that of {REFERENCE}: at most {off[worst]:.1e} ({worst[0]}, C={worst[1]:g})")


def curve(path: Path, limit: float) -> None:
    """Measure seconds against rows of a hard and an easy problem; a method that took too long is not run on more rows."""
    for case in CURVE_CASES:
        methods = [REFERENCE, "gramless", LEAST_SQUARES]
        for rows in CURVE_ROWS:
            for method, record in compare(case, 1.0, list(methods), 1, rows, limit):
                keep(path, (case, 1.0, rows, method), record, ("case", "C", "n_train", "method"))
                if record is None:
                    methods.remove(method)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--child", nargs=5, metavar=("METHOD", "CASE", "C", "ROWS", "OUT"))
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--C", nargs="+", type=float, default=None)
    parser.add_argument("--rows", type=int, default=None, help="training rows instead of the case's own number")
    parser.add_argument("--repeats", type=int, default=3, help="fits of each method of which the median is kept")
    parser.add_argument("--time-limit", type=float, default=900.0, help="seconds that a fit and what belongs to it may take")
    parser.add_argument("--curve", action="store_true", help="seconds against rows instead of the cases")
    parser.add_argument("--out", type=Path, default=None, help="where records go")
    arguments = parser.parse_args()
    if arguments.child:
        method, case, C, rows, out = arguments.child
        child(method, case, float(C), int(rows) or None, out)
        return
    if arguments.curve:
        curve(arguments.out or CURVE, arguments.time_limit)
        return
    out = arguments.out or RESULTS
    if arguments.summary:
        summary(json.loads(out.read_text())["records"])
        return
    records = []
    rows, repeats = (QUICK_ROWS, 1) if arguments.quick else (arguments.rows, arguments.repeats)
    for case in arguments.only:
        prices = sorted({*PRICES, 10.0}) if case in MORE_PRICES else PRICES
        for C in arguments.C or prices:
            for method, record in compare(case, C, arguments.methods, repeats, rows, arguments.time_limit):
                records += [] if record is None else [record]
                if not arguments.quick:
                    keep(out, (case, C, method), record)
    summary(records)


if __name__ == "__main__":
    main()
