"""Seconds of landmark selection rules on MNIST, compared with the matrix products that they contain.

    python benchmarks/landmark_rules.py --data FOLDER --out benchmarks/results/landmark_rules.json
    python benchmarks/landmark_rules.py --rows 5000 --landmarks 500     # a small trial

The shape of every block of kernel values, every triangular solve and every product with a factor that basis
construction or randomly pivoted Cholesky computes is recorded and then repeated as a plain matrix product (a triangular
solve as a product with half of the rows, which has as many operations). The remaining time is that of elementwise
kernel functions, the sequential selection and bookkeeping. The kernel is (1 + x . y)^2 on unit vectors, in float32.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

from gramless._core import arrays as xa
from gramless.approximation.landmarks import LANDMARKS, basis_construction, pivoted_cholesky, select
from gramless.images import UnitNormalizer
from gramless.kernels import Polynomial
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

MODULES = {"basis": basis_construction, "rpcholesky": pivoted_cholesky}


class Recorder:
    """Wrapper of the functions that a rule calls, which records the shape of each product."""

    def __init__(self, name: str):
        self.module = MODULES[name]
        self.shapes: list[tuple[int, int, int]] = []
        self.originals = self.module.cross, xa.solve_triangular, xa.matmul

    def __enter__(self) -> Recorder:
        cross, solve, matmul = self.originals

        def recorded_cross(kernel, X, rows, columns, dtype=None):
            xa.matmul = matmul  # The products inside a kernel block are counted as one.
            block = cross(kernel, X, rows, columns, dtype)
            xa.matmul = recorded_matmul
            self.shapes.append((block.shape[0], X.shape[1], block.shape[1]))
            return block

        def recorded_solve(L, B, **options):
            self.shapes.append((max(1, L.shape[0] // 2), L.shape[0], B.shape[1]))
            return solve(L, B, **options)

        def recorded_matmul(A, B, out=None):
            self.shapes.append((A.shape[0], A.shape[1], B.shape[1]))
            return matmul(A, B, out=out)

        self.module.cross, xa.solve_triangular, xa.matmul = recorded_cross, recorded_solve, recorded_matmul
        return self

    def __exit__(self, *exception: object) -> None:
        self.module.cross, xa.solve_triangular, xa.matmul = self.originals


def seconds(work, device: str) -> float:
    def synchronise() -> None:
        if device.startswith("cuda"):
            xa.import_torch().cuda.synchronize()

    synchronise()
    started = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - started


def bare_products(shapes: list[tuple[int, int, int]], like) -> None:
    """Repeat products of the recorded shapes with arbitrary values."""
    largest = max(a * b for a, b, _ in shapes), max(b * c for _, b, c in shapes), max(a * c for a, _, c in shapes)
    left, right, out = (xa.zeros((size,), like) for size in largest)
    for (a, b, c), times in Counter(shapes).items():
        for _ in range(times):
            A, B, target = left[: a * b], right[: b * c], out[: a * c]
            xa.matmul(A.reshape(a, b), B.reshape(b, c), out=target.reshape(a, c))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with mnist.npz")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rules", nargs="*", default=sorted(LANDMARKS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    data = load("mnist", data=args.data)
    X = UnitNormalizer().fit_transform(data.x_train[: args.rows]).astype(np.float32)
    X = xa.to_device(X, args.device)
    kernel, m = Polynomial(degree=2, gamma=1.0, coef0=1.0), args.landmarks
    rows = []
    for name in args.rules:
        turns = args.turns if name in MODULES else 1
        times = [
            seconds(lambda name=name: select(name, X, kernel, m, np.random.RandomState(0)), args.device)
            for _ in range(turns)
        ]
        row = {"rule": name, "seconds": min(times), "turns": times}
        if name in MODULES:
            with Recorder(name) as recorder:
                chosen = select(name, X, kernel, m, np.random.RandomState(0))
            bare = [seconds(lambda r=recorder: bare_products(r.shapes, X), args.device) for _ in range(turns)]
            operations = sum(2 * a * b * c for a, b, c in recorder.shapes)
            row |= {"landmarks": len(chosen), "products_seconds": min(bare), "operations": operations}
            row["ratio"] = row["seconds"] / row["products_seconds"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    if args.out:
        result = {"n": int(X.shape[0]), "m": m, "device": args.device, "rules": rows, **environment(args.device)}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
