"""One iteration of spherical k-means against its assignment product alone, and against scikit-learn's KMeans.

    python benchmarks/kmeans.py [--clusters 500 1000] [--iterations 20] [--out benchmarks/results/kmeans.json]

The data are the 25 x 25 patches of one class of MNIST: 96,000 unit vectors of length 625 in float32. Three quantities
are timed alternately in one run: the product X @ M.T alone (the faster of one BLAS call and of tiles on all cores), an
iteration of `SphericalKMeans`, and an iteration of `sklearn.cluster.KMeans` (Lloyd's algorithm) from the same
centroids. The time of an iteration is the difference between fits with many and with few iterations, divided by the
number of additional iterations. The fastest repetition counts. CPU seconds, summed over the cores, are recorded too
because other programs affect them less.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gramless import SphericalKMeans
from gramless._core.threads import CPU_TILE, blas_threads, parallel_for, slices
from gramless.images import Patches
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment


def timed(work: Callable[..., Any], *arguments: Any) -> np.ndarray:
    """Return wall-clock seconds and CPU seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    work(*arguments)
    return np.array([time.perf_counter() - clock, time.process_time() - processor])


def product(X: np.ndarray, centres: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the faster of two computations of X @ centres.T."""

    def tiles() -> None:
        parallel_for(slices(len(X), CPU_TILE), lambda rows: np.matmul(X[rows], centres.T, out=out[rows]), blas_threads())

    return np.minimum(timed(lambda: np.matmul(X, centres.T, out=out)), timed(tiles))


def fits(kmeans: Any, X: np.ndarray, iterations: int) -> list[np.ndarray]:
    """Fit with one iteration, and with many more."""
    return [timed(kmeans.set_params(max_iter=count).fit, X) for count in (1, 1 + iterations)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    more = arguments.iterations
    mnist = load("mnist")
    X = Patches(25).transform(mnist.x_train[mnist.y_train == 3][:6000])
    # So few iterations do not converge.
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for k in arguments.clusters:
        start = X[np.random.default_rng(0).choice(len(X), k, replace=False)]
        whole = np.empty((len(X), k), np.float32)
        ours = SphericalKMeans(k, init=start, tol=0)
        theirs = KMeans(k, init=start, n_init=1, tol=0, algorithm="lloyd")
        for kmeans in (ours, theirs):  # Load and compile everything before the measurement.
            kmeans.set_params(max_iter=1).fit(X[: 2 * k])
        turns = [
            [*(product(X, start, whole) for _ in range(3)), *fits(ours, X, more), *fits(theirs, X, more)]
            for _ in range(arguments.turns)
        ]
        row: dict[str, float] = {"clusters": k, "iterations": more}
        # Take the minimum of each measurement first and differences afterwards, so that noise is not selected.
        for kind, (*products, one, many, their_one, their_many) in zip(
            ("seconds", "cpu_seconds"), np.min(turns, axis=0).T.tolist(), strict=True
        ):
            best = {
                "product": min(products),
                "iteration": (many - one) / more,
                "sklearn_iteration": (their_many - their_one) / more,
            }
            row |= {f"{name}_{kind}": value for name, value in best.items()}
            row[f"iteration_over_product_{kind}"] = best["iteration"] / best["product"]
            row[f"sklearn_over_iteration_{kind}"] = best["sklearn_iteration"] / best["iteration"]
        rows.append(row)
        print(json.dumps({key: round(value, 3) for key, value in row.items()}), flush=True)
    if arguments.out:
        data = "MNIST, 25 x 25 patches of the first 6,000 images of the digit 3"
        result = {"data": data, "shape": list(X.shape), "rows": rows, "environment": environment()}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
