"""One iteration of spherical k-means against its assignment product alone, and against scikit-learn's KMeans.

    python benchmarks/kmeans.py [--clusters 500 1000] [--iterations 20] [--out benchmarks/results/kmeans.json]

The data are the 25 x 25 patches of one class of MNIST, 96,000 unit vectors of length 625 in float32. Three things are
timed in this one run, turn by turn: the product X @ M.T alone (the faster of one BLAS call into a ready array and of tiles
on every core), an iteration of `SphericalKMeans`, and one of `sklearn.cluster.KMeans` (Lloyd's algorithm) from the same
centroids. An iteration is what a fit with so many more of them takes longer, so that neither start nor end of a fit counts.
Of its turns each counts the fastest, which was disturbed least; beside the seconds are those of the processor, summed over
the cores, which other programs on the machine hardly change.
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
    """Seconds by the clock and by the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work(*arguments)
    return np.array([time.perf_counter() - clock, time.process_time() - processor])


def product(X: np.ndarray, centres: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The faster of two ways to compute X @ centres.T and nothing else."""

    def tiles() -> None:
        parallel_for(slices(len(X), CPU_TILE), lambda rows: np.matmul(X[rows], centres.T, out=out[rows]), blas_threads())

    return np.minimum(timed(lambda: np.matmul(X, centres.T, out=out)), timed(tiles))


def fits(kmeans: Any, X: np.ndarray, iterations: int) -> list[np.ndarray]:
    """A fit of one iteration, and one of so many more."""
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
    # The few iterations are not meant to converge.
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for k in arguments.clusters:
        start = X[np.random.default_rng(0).choice(len(X), k, replace=False)]
        whole = np.empty((len(X), k), np.float32)
        ours = SphericalKMeans(k, init=start, tol=0)
        theirs = KMeans(k, init=start, n_init=1, tol=0, algorithm="lloyd")
        for kmeans in (ours, theirs):  # whatever is loaded or compiled at the first call
            kmeans.set_params(max_iter=1).fit(X[: 2 * k])
        turns = [
            [*(product(X, start, whole) for _ in range(3)), *fits(ours, X, more), *fits(theirs, X, more)]
            for _ in range(arguments.turns)
        ]
        row: dict[str, float] = {"clusters": k, "iterations": more}
        # Of each measurement the least disturbed one; differences only then, or noise would be picked for them.
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
