"""Cost of a step of a block solver compared with its two matrix products, and memory use against the budget.

    python benchmarks/solver_steps.py                 # MNIST, 60,000 rows, blocks of 2,000
    python benchmarks/solver_steps.py --n 10000 --block-size 1000 --steps 6

Measures alternately in one run: the product `X_s X^T` of the kernel block and the Gram product `A_s A_s^T` alone, and
complete steps of each solver (kernel values, power, products, factorisation, update). Then `LSSVC` is fitted in another
process, whose resident memory is sampled. Without the MNIST file (GRAMLESS_DATA) the rows are random unit vectors of
the same size; the cost does not depend on the values.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from gramless._core import arrays as xa
from gramless._core.memory import parse_budget
from gramless.images import UnitNormalizer
from gramless.kernels import Polynomial
from gramless.linalg.operators import KernelOperator, LinearSystem
from gramless.linalg.solvers import SOLVERS
from gramless.papers.datasets import DatasetError, load
from gramless.papers.experiments.environment import environment

ITERATIVE = ("matching_pursuit", "kaczmarz", "kaczmarz_mp")


def digits(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return `n` normalised images and their classes."""
    try:
        data = load("mnist").sample(n)
    except DatasetError:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 784)).astype(np.float32)
        return UnitNormalizer().fit_transform(X), rng.integers(10, size=n), "random unit vectors"
    return UnitNormalizer().fit_transform(data.x_train), data.y_train, "mnist"


def products(X: np.ndarray, idx: np.ndarray, block: np.ndarray) -> float:
    """Return the seconds of the two matrix products that every step contains."""
    started = time.perf_counter()
    np.matmul(X[idx], X.T, out=block)
    np.matmul(block, block.T)
    return time.perf_counter() - started


def steps(n: int, block_size: int, n_steps: int) -> dict:
    """Return the median seconds of the products and of a step of each solver, measured alternately."""
    X, y, source = digits(n)
    inner = KernelOperator(X, Polynomial(degree=4, gamma=1.0), 1e-4)
    system = LinearSystem(inner, np.eye(10, dtype=np.float32)[y], bordered=True)
    op, Z = system.op, system.rhs
    rng = np.random.RandomState(0)
    running = {
        name: SOLVERS[name](block_size).steps(op, Z, xa.zeros(Z.shape, Z), np.random.RandomState(1)) for name in ITERATIVE
    }
    block = np.empty((block_size, n), dtype=np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in ("products", *ITERATIVE)}
    for turn in range(n_steps + 1):
        for name in seconds:
            started = time.perf_counter()
            if name == "products":
                products(X, np.sort(rng.permutation(n)[:block_size]), block)
            else:
                next(running[name])
            if turn > 0:  # The first repetition allocates the memory that the others reuse.
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {name: [b / a for a, b in zip(seconds["products"], seconds[name], strict=True)] for name in ITERATIVE}
    return {
        "data": source,
        "n": n,
        "block_size": block_size,
        "steps": n_steps,
        "median_seconds": medians,
        "all_seconds": seconds,
        "ratio_to_products": {name: statistics.median(values) for name, values in ratios.items()},
    }


def fit(n: int, block_size: int, budget: str, solver: str) -> None:
    """Run three steps of a fit within a budget, in the process whose memory is sampled."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from gramless import LSSVC

    X, y, _ = digits(n)
    machine = LSSVC(
        C=1e4, kernel="poly", degree=4, gamma=1.0, solver=SOLVERS[solver](block_size, max_iter=3), memory_budget=budget
    )
    print("fitting", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X, y)


def peak(n: int, block_size: int, budget: str, solver: str) -> dict:
    """Return the largest resident memory of a fitting process, sampled a hundred times a second."""
    command = [sys.executable, __file__, "--fit", solver, "--n", str(n), "--block-size", str(block_size), "--budget", budget]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    watched = psutil.Process(child.pid)
    before, largest = watched.memory_info().rss, 0
    while child.poll() is None:
        try:
            largest = max(largest, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.01)
    if child.wait() != 0:
        raise RuntimeError(f"the fit with {solver} failed")
    return {"before_fit_mb": before / 1e6, "peak_mb": largest / 1e6, "budget_mb": parse_budget(budget) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--block-size", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--fit", choices=ITERATIVE, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    args = parser.parse_args()
    if args.fit:
        fit(args.n, args.block_size, args.budget, args.fit)
        return
    found = steps(args.n, args.block_size, args.steps)
    print(f"n={args.n}, block_size={args.block_size}, {found['data']}: median seconds of {args.steps}")
    for name, seconds in found["median_seconds"].items():
        ratio = found["ratio_to_products"].get(name)
        print(f"  {name:18s} {seconds:7.3f}" + (f"   {ratio:.2f} x the products" if ratio else ""))
    found["memory"] = {name: peak(args.n, args.block_size, args.budget, name) for name in ITERATIVE[:2]}
    for name, memory in found["memory"].items():
        print(f"  {name:18s} peak {memory['peak_mb']:.0f} MB of {memory['budget_mb']:.0f} MB")
    if args.out:
        args.out.write_text(json.dumps({**found, **environment()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
