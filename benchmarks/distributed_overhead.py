"""Overhead of distributed fits: two local worker processes against one process with as many threads.

    python benchmarks/distributed_overhead.py --data FOLDER --out benchmarks/results/distributed_overhead.json
    python benchmarks/distributed_overhead.py --rows 4000 --landmarks 200     # a small trial

Measures for each estimator the seconds of both fits, the largest difference of coefficients relative to the largest
coefficient (float64), and the bytes that are transferred; then the rates from which the estimate for many workers is
computed: rows per second and thread of the normal equations, seconds to merge two of them, and their size in bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

from gramless import LSSVC, NystromLSSVC, RiSVOClassifier
from gramless.kernels import RBF
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment
from gramless.streaming.learners.ridge_sums import RidgeSums


def machines(m: int, n_lssvc: int) -> dict[str, tuple]:
    gamma = 0.02
    return {
        "NystromLSSVC": (NystromLSSVC(n_landmarks=m, gamma=gamma, C=10.0, random_state=0), None),
        "RiSVOClassifier": (RiSVOClassifier(m, landmarks="uniform", gamma=gamma, max_iter=3, random_state=0), None),
        "LSSVC(solver='cg')": (LSSVC(solver="cg", gamma=gamma, C=10.0, tol=1e-12, random_state=0), n_lssvc),
    }


def on_workers(client: Client, values: np.ndarray, parts: int) -> da.Array:
    """Return a Dask array whose chunks are on the workers before the measurement starts."""
    pieces = np.array_split(values, parts)
    futures = client.scatter(pieces)
    blocks = [
        da.from_delayed(dask.delayed(future), shape=piece.shape, dtype=piece.dtype)
        for future, piece in zip(futures, pieces, strict=True)
    ]
    return da.concatenate(blocks)


def timed(work) -> tuple[float, object]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def rates(X: np.ndarray, m: int) -> dict[str, float]:
    """Return rows per second of one thread, and seconds to merge two sums."""
    kernel, points = RBF(gamma=0.02), X[:m]
    rows = X[: min(len(X), 4096)]
    sums = RidgeSums(m, 10)
    spent, _ = timed(lambda: sums.add(evaluate(kernel, rows, points), np.ones((len(rows), 10))))
    other = RidgeSums(m, 10)
    merging, _ = timed(lambda: sums.merge(other))
    return {"rows_per_second": len(rows) / spent, "merge_seconds": merging, "sum_bytes": 8 * (m * m + m * 10)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with mnist.npz")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--landmarks", type=int, default=1000)
    parser.add_argument("--lssvc-rows", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    data = load("mnist", data=args.data)
    X, y = data.x_train[: args.rows].astype(np.float64) / 255, data.y_train[: args.rows]
    table = []
    with (
        LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name, (machine, rows) in machines(args.landmarks, min(args.rows, args.lssvc_rows)).items():
            n = rows or len(X)
            dX, dy = (on_workers(client, values, 4 * args.workers) for values in (X[:n], y[:n]))
            together, ours = timed(
                lambda machine=machine, dX=dX, dy=dy: machine.__class__(**machine.get_params()).fit(dX, dy)
            )
            alone, theirs = timed(lambda machine=machine, n=n: machine.__class__(**machine.get_params()).fit(X[:n], y[:n]))
            difference = np.abs(ours.dual_coef_ - theirs.dual_coef_).max() / np.abs(theirs.dual_coef_).max()
            row = {
                "machine": name,
                "n": n,
                "seconds_alone": alone,
                "seconds_on_workers": together,
                "overhead": together / alone - 1,
                "largest_relative_difference": float(difference),
            }
            table.append(row)
            print(json.dumps(row), flush=True)
        measured = client.submit(rates, client.scatter(X[:8192]), args.landmarks).result()
    print(json.dumps(measured), flush=True)
    if args.out:
        result = {"workers": args.workers, "landmarks": args.landmarks, "rows": table, "rates": measured, **environment()}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
