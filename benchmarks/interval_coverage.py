"""Coverage and size of prediction intervals and prediction sets.

    python benchmarks/interval_coverage.py --out benchmarks/results/coverage.json
    python benchmarks/interval_coverage.py --only values california          # one part, or one problem of it
    python benchmarks/interval_coverage.py --only deviations --rows 50000    # 200 standard deviations, against exact ones

values      intervals at 80, 90 and 95 % on three datasets and five synthetic problems, by `LSSVR(C="loo")` (settings
            selected by leave-one-out, jackknife+ from the same fit; plain and local), and by the quantiles of
            HistGradientBoostingRegressor with split-conformal calibration on a fifth of the rows.
sets        prediction sets at 90, 95 and 99 % on samples of Letter, MNIST and Covertype, by `LSSVC` with default settings.
deviations  standard deviations of `LSSVR` by conjugate gradients: their time, and their error against many more iterations.

Every number is a mean over random splits; the worst split of each problem is recorded too. Settings are never selected
on the rows that are scored.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gramless import LSSVC, LSSVR
from gramless.papers.experiments.environment import environment

COVERAGES = (0.8, 0.9, 0.95)
SET_COVERAGES = (0.9, 0.95, 0.99)
GAMMAS = (0.25, 1.0, 4.0)
# Small problems are split more often, until the total number of scored rows reaches this value.
SCORED_ROWS, TRAIN_ROWS = 3000, 2000
Rows = tuple[np.ndarray, np.ndarray]


def data(name: str) -> Any:
    return np.load(Path(os.environ.get("GRAMLESS_DATA", "data")) / f"{name}.npz")


def california(rng: np.random.Generator) -> Rows:
    stored = data("california_housing")
    rows = rng.choice(len(stored["y"]), 4000, replace=False)
    X, y = stored["x"][rows], stored["y"][rows] / 1e5
    X[:, 3:7] = np.log(X[:, 3:7])  # Columns that count rooms and people.
    return X, y


def wine_quality(rng: np.random.Generator) -> Rows:
    stored = data("wine_quality")
    X = np.concatenate([stored["x_red"], stored["x_white"]])
    y = np.concatenate([stored["y_red"], stored["y_white"]]).astype(float)
    rows = rng.choice(len(y), 3000, replace=False)
    return X[rows], y[rows]


def diabetes(rng: np.random.Generator) -> Rows:
    return load_diabetes(return_X_y=True)


def smooth(rng: np.random.Generator, n: int = 1500, d: int = 5) -> Rows:
    """Return a smooth function of five columns with normal noise."""
    X = rng.uniform(size=(n, d))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.normal(size=n)


def heavy_tails(rng: np.random.Generator) -> Rows:
    X, y = smooth(rng)
    return X, y + rng.standard_t(2, size=len(y))


def unequal_noise(rng: np.random.Generator) -> Rows:
    X, y = smooth(rng)
    return X, y + 4 * X[:, 0] * rng.normal(size=len(y))


def tiny(rng: np.random.Generator) -> Rows:
    X, y = smooth(rng, n=1060)
    return X, y


def skewed(rng: np.random.Generator) -> Rows:
    X, y = smooth(rng)
    return X, y + 3 * rng.exponential(size=len(y))


# Problem -> generator and number of training rows (None: four fifths of the rows).
PROBLEMS: dict[str, tuple[Callable[[np.random.Generator], Rows], int | None]] = {
    "california": (california, 2000),
    "wine_quality": (wine_quality, 2000),
    "diabetes": (diabetes, None),
    "smooth": (smooth, 700),
    "heavy_tails": (heavy_tails, 700),
    "unequal_noise": (unequal_noise, 700),
    "skewed": (skewed, 700),
    "tiny": (tiny, 60),
}


def inside(ends: np.ndarray, y: np.ndarray) -> dict[str, float]:
    held = (ends[:, 0] <= y) & (y <= ends[:, 1])
    return {"coverage": float(held.mean()), "width": float(np.mean(ends[:, 1] - ends[:, 0]))}


def boosted(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, coverage: float, seed: int) -> np.ndarray:
    """Fit quantile-boosted trees and widen the intervals until a fifth of the rows is covered as often as requested."""
    fit, held, y_fit, y_held = train_test_split(X, y, test_size=0.2, random_state=seed)
    tails = (1 - coverage) / 2, (1 + coverage) / 2
    models = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=seed).fit(fit, y_fit) for q in tails]
    low, high = (model.predict(held) for model in models)
    missed = np.sort(np.maximum(low - y_held, y_held - high))
    place = min(int(np.ceil(coverage * (len(missed) + 1))), len(missed)) - 1
    low, high = (model.predict(X_new) for model in models)
    return np.column_stack([low - missed[place], high + missed[place]])


def values(name: str, splits: int) -> dict[str, Any]:
    """Measure intervals on one problem over random splits."""
    make, n_train = PROBLEMS[name]
    n = len(make(np.random.default_rng(0))[1])
    n_train = round(0.8 * n) if n_train is None else n_train
    splits = max(splits, -(-SCORED_ROWS // (n - n_train)), -(-TRAIN_ROWS // n_train))
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    seconds = {"ours": 0.0, "boosted trees": 0.0}
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        X, y = make(rng)
        X, X_new, y, y_new = train_test_split(X, y, train_size=n_train, random_state=seed)
        scaler = StandardScaler().fit(X)
        S, S_new = scaler.transform(X), scaler.transform(X_new)
        gammas = [g / X.shape[1] for g in GAMMAS]
        clock = time.process_time()
        model = LSSVR(C="loo", Cs=np.logspace(-1, 3, 9), gamma=gammas).fit(S, y)
        ends = {(c, local): model.predict_interval(S_new, c, local=local) for c in COVERAGES for local in (False, True)}
        seconds["ours"] += time.process_time() - clock
        for coverage in COVERAGES:
            at = found.setdefault(f"{coverage:.0%}", {})
            at.setdefault("jackknife+", []).append(inside(ends[coverage, False], y_new))
            at.setdefault("local", []).append(inside(ends[coverage, True], y_new))
            clock = time.process_time()
            at.setdefault("boosted trees", []).append(inside(boosted(X, y, X_new, coverage, seed), y_new))
            seconds["boosted trees"] += time.process_time() - clock
    return {
        "rows": {"train": len(y), "scored": len(y_new)},
        "splits": splits,
        "cpu_seconds": {key: round(value / splits, 2) for key, value in seconds.items()},
        **{at: {kind: summary(runs) for kind, runs in kinds.items()} for at, kinds in found.items()},
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    covered = [run["coverage"] for run in runs]
    means = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
    return {**means, "lowest": round(min(covered), 4), "highest": round(max(covered), 4)}


def letter(rng: np.random.Generator) -> Rows:
    stored = data("letter")
    X, y = np.concatenate([stored["x_train"], stored["x_test"]]), np.concatenate([stored["y_train"], stored["y_test"]])
    rows = rng.permutation(len(y))[:7000]
    return X[rows].astype(float), y[rows]


def mnist(rng: np.random.Generator) -> Rows:
    stored = data("mnist")
    X, y = stored["x_train"].reshape(60_000, -1), stored["y_train"]
    rows = rng.permutation(len(y))[:6000]
    return X[rows].astype(np.float32) / 255, y[rows]


def covertype(rng: np.random.Generator) -> Rows:
    stored = data("covtype")
    rows = rng.permutation(len(stored["y"]))[:7000]
    return stored["x"][rows].astype(float), stored["y"][rows]


SETS: dict[str, tuple[Callable[[np.random.Generator], Rows], dict[str, Any]]] = {
    "letter": (letter, {"C": 10.0, "gamma": 0.2}),
    "mnist": (mnist, {"C": 10.0, "gamma": 0.02}),
    "covertype": (covertype, {"C": 10.0, "gamma": 0.05}),
}


def sets(name: str, splits: int) -> dict[str, Any]:
    """Measure prediction sets on one dataset over random splits, with 3,000 training rows."""
    make, settings = SETS[name]
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(splits):
        X, y = make(np.random.default_rng(seed))
        X, X_new, y, y_new = train_test_split(X, y, train_size=3000, random_state=seed)
        if name != "mnist":
            scaler = StandardScaler().fit(X)
            X, X_new = scaler.transform(X), scaler.transform(X_new)
        model = LSSVC(**settings, random_state=seed).fit(X, y)
        codes = np.searchsorted(model.classes_, y_new)
        known = model.classes_[np.minimum(codes, len(model.classes_) - 1)] == y_new
        accuracy = float(np.mean(model.predict(X_new) == y_new))
        for coverage in SET_COVERAGES:
            held = model.predict_set(X_new, coverage, random_state=seed)
            right = held[np.arange(len(y_new)), np.where(known, codes, 0)] & known
            record = {"coverage": float(right.mean()), "classes": float(held.sum(axis=1).mean()), "accuracy": accuracy}
            found.setdefault(f"{coverage:.0%}", []).append(record)
    return {
        "rows": {"train": 3000, "scored": len(y_new)},
        "splits": splits,
        **{at: summary(runs) for at, runs in found.items()},
    }


def deviations(n: int) -> dict[str, Any]:
    """Measure 200 standard deviations of a model of n rows: time, and the error of ten of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    new = rng.normal(size=(200, 8)).astype(np.float32)
    model = LSSVR(C=10.0, gamma=0.1, memory_budget="3GB", random_state=0).fit(X, y)
    clock, cpu = time.perf_counter(), time.process_time()
    found = model.predict(new, return_std=True)[1]
    record = {"rows": n, "deviations": 200, "seconds": round(time.perf_counter() - clock, 1)}
    record["cpu_seconds"] = round(time.process_time() - cpu, 1)
    print(record, flush=True)
    return {**record, "relative_error": relative_error(model, new, found)}


def relative_error(model: LSSVR, new: np.ndarray, found: np.ndarray) -> float:
    """Return the largest error of the first ten values against conjugate gradients to a residual of 1e-5 in float64.

    The error of a variance is quadratic in the residual, so five digits of the residual give ten digits of the variance. The
    preconditioner reduces the number of iterations and does not change the limit.
    """
    from gramless.linalg.operators import evaluate
    from gramless.linalg.solvers import CG, solve

    process = model._posterior()
    op = process.model.operator(np.float64)
    some = new[:10].astype(np.float64)
    K = evaluate(model.kernel_, op.X, some)
    solver = CG(tol=1e-5, max_iter=1000, preconditioner=process.preconditioner)
    result = solve(op, np.column_stack([K, np.ones(len(K))]), solver, random_state=0)
    if not result.converged:
        raise SystemExit(f"the check did not converge: {result.message}")
    both = result.W
    u, total = both[:, -1], both[:, -1].sum()
    variances = 1 - np.sum(K * both[:, :-1], axis=0) + (1 - u @ K) ** 2 / total
    exact = np.sqrt(variances * process.scale[0])
    return float(np.max(np.abs(found[:10] / exact - 1)))


def show(part: str, name: str, record: dict[str, Any]) -> None:
    for at, kinds in record.items():
        if not at.endswith("%"):
            continue
        for kind, one in kinds.items() if part == "values" else [("sets", kinds)]:
            size = one["width"] if part == "values" else one["classes"]
            spread = f"{one['lowest']:.3f} to {one['highest']:.3f}"
            print(f"{name:14} {at:>4} {kind:14} {one['coverage']:.3f} ({spread})  {size:.3f}")


def write(result: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["values", "sets", "deviations"], help="parts, or problems of them")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=50_000, help="for the deviations")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    kept = json.loads(asked.out.read_text()) if asked.out is not None and asked.out.exists() else {}
    result: dict[str, Any] = {**kept, "environment": environment()}
    for part, problems, work in (("values", PROBLEMS, values), ("sets", SETS, sets)):
        names = [name for name in problems if part in asked.only or name in asked.only]
        for name in names:
            record = work(name, asked.splits)
            result.setdefault(part, {})[name] = record
            show(part, name, record)
            write(result, asked.out)
    if "deviations" in asked.only:
        result["deviations"] = deviations(asked.rows)
        print(result["deviations"])
    write(result, asked.out)


if __name__ == "__main__":
    main()
