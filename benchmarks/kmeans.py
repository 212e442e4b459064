"""One iteration of spherical k-means against its assignment product alone, and against scikit-learn's KMeans.

    python benchmarks/kmeans.py [--clusters 500 1000] [--iterations 8] [--out benchmarks/results/kmeans.json]

The data are the 25 x 25 patches of one class of MNIST, 96,000 unit vectors of length 625 in float32. All three are
timed in this one run, turn by turn, and of its turns each counts the fastest, which was disturbed least: the product
X @ M.T alone (the faster of one BLAS call into a ready array and of tiles on every core), an iteration of `SphericalKMeans`
(the mean of those of a fit, from its own history), and whole fits of it and of `sklearn.cluster.KMeans` (Lloyd's algorithm)
from the same centroids, both divided by their iterations.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gramless import SphericalKMeans
from gramless._parallel import CPU_TILE, blas_threads, share, slices
from gramless.datasets import load
from gramless.experiments.environment import environment
from gramless.images import Patches


def product_seconds(X: np.ndarray, centres: np.ndarray, out: np.ndarray) -> float:
    """The faster of two ways to compute X @ centres.T and nothing else."""
    start = time.perf_counter()
    np.matmul(X, centres.T, out=out)
    one_call = time.perf_counter() - start
    start = time.perf_counter()
    share(slices(len(X), CPU_TILE), lambda rows: np.matmul(X[rows], centres.T, out=out[rows]), blas_threads())
    return min(one_call, time.perf_counter() - start)


def seconds_per_iteration(kmeans: Any, X: np.ndarray) -> float:
    start = time.perf_counter()
    kmeans.fit(X)
    return (time.perf_counter() - start) / kmeans.n_iter_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    mnist = load("mnist")
    X = Patches(25).transform(mnist.x_train[mnist.y_train == 3][:6000])
    # The few iterations are not meant to converge.
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for k in arguments.clusters:
        start = X[np.random.default_rng(0).choice(len(X), k, replace=False)]
        whole = np.empty((len(X), k), np.float32)
        products, iterations, ours, theirs = [], [], [], []
        for _ in range(arguments.turns):
            products += [product_seconds(X, start, whole) for _ in range(3)]
            kmeans = SphericalKMeans(k, init=start, max_iter=arguments.iterations, tol=0)
            ours.append(seconds_per_iteration(kmeans, X))
            iterations.append(kmeans.history_[-1]["seconds"] / kmeans.n_iter_)
            peer = KMeans(k, init=start, n_init=1, max_iter=arguments.iterations, tol=0, algorithm="lloyd")
            theirs.append(seconds_per_iteration(peer, X))
        row = {
            "clusters": k,
            "product_seconds": min(products),
            "iteration_seconds": min(iterations),
            "iteration_over_product": min(iterations) / min(products),
            "fit_seconds_per_iteration": min(ours),
            "sklearn_fit_seconds_per_iteration": min(theirs),
            "sklearn_over_ours": min(theirs) / min(ours),
        }
        rows.append(row)
        print(", ".join(f"{key} {value:.3f}" for key, value in row.items()))
    if arguments.out:
        data = "MNIST, 25 x 25 patches of the first 6,000 images of the digit 3"
        result = {"data": data, "shape": list(X.shape), "rows": rows, "environment": environment()}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
