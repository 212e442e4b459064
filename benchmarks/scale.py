"""Error, seconds and peak memory of landmark models for many rows and landmarks: sums and conjugate gradients.

    python benchmarks/scale.py --device cuda --cases cg:1e7x5e4 cg:1e7x1e5 sums:1e6x2e4 --out benchmarks/results/scale.json
    python benchmarks/scale.py --cases cg:2e4x500 sums:2e4x500                      # a small trial on the CPU
    python benchmarks/scale.py --device cuda --cases cg:1e8x2e4:stream --memory-budget 25GB
    python benchmarks/scale.py --device cuda --cases cg:2e5x2e3:highest cg:2e5x2e3:medium cg:1e6x2e4:medium

Rows are generated on the device: 28 standard normal features in float32, two classes by the sign of

    f = sin(2 x0) + x1 x2 + |x3| - 0.8 + 0.5 x4 tanh(x5) + 0.5 noise .

The kernel is RBF with gamma = 1 / 56, the ridge is 1e-7 of the number of rows, and the error is that of 200,000 other rows.
A case is `solver:ROWSxLANDMARKS`, with `:stream` for rows that are generated again in each pass instead of kept in memory,
and `:PRECISION` for another precision of the products on a GPU than "high".
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gramless import CUDA, NystromLSSVC
from gramless.papers.experiments.environment import environment

FEATURES = 28
BATCH = 2**18
TEST_ROWS = 200_000


def rows(n: int, seed: int, device: str) -> tuple[Any, np.ndarray]:
    """Return features, as a tensor on a CUDA device, and labels."""
    if not device.startswith("cuda"):
        rng = np.random.default_rng(seed)
        X, noise = rng.standard_normal((n, FEATURES), dtype=np.float32), rng.standard_normal(n, dtype=np.float32)
        f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - 0.8 + 0.5 * X[:, 4] * np.tanh(X[:, 5]) + 0.5 * noise
        return X, (f > 0).astype(np.int8)
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    X = torch.randn((n, FEATURES), generator=generator, device=device)
    f = torch.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3].abs() - 0.8 + 0.5 * X[:, 4] * torch.tanh(X[:, 5])
    f += 0.5 * torch.randn(n, generator=generator, device=device)
    return X, (f > 0).to(torch.int8).cpu().numpy()


def batches(n: int, device: str) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield `n` generated rows in batches; the same rows in each pass."""
    for number, start in enumerate(range(0, n, BATCH)):
        yield rows(min(BATCH, n - start), 1000 + number, device)


def run_case(case: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fit one case and return its record."""
    solver, sizes, *options = case.split(":")
    n, m = (int(float(size)) for size in sizes.split("x"))
    precision = next((option for option in options if option in ("highest", "high", "medium")), "high")
    on_gpu = args.device.startswith("cuda")
    X_test, y_test = rows(TEST_ROWS if n >= TEST_ROWS else n, 1, args.device)
    model = NystromLSSVC(
        n_landmarks=m,
        C=1e7 / n,
        gamma=1 / (2 * FEATURES),
        solver=solver,
        device=CUDA(precision=precision) if on_gpu else None,
        memory_budget=args.memory_budget,
        verbose=args.verbose,
        random_state=0,
    )
    data = (lambda: batches(n, args.device), None) if "stream" in options else rows(n, 0, args.device)
    if on_gpu:
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start = time.perf_counter()
    record: dict[str, Any] = {"case": case, "rows": n, "landmarks": m, "solver": solver, "precision": precision}
    try:
        model.fit(*data)
    except (MemoryError, FloatingPointError, RuntimeError) as error:
        return record | {"error_message": f"{type(error).__name__}: {error}"[:400], "seconds": time.perf_counter() - start}
    record["seconds"] = time.perf_counter() - start
    history = model.history_
    record |= {"solver": model.solver_, "reason": model.solver_reason_, "iterations": len(history)}
    record |= {"seconds_of_iterations": history[-1]["seconds"], "residuals": [h.get("residual") for h in history]}
    if on_gpu:
        record["peak_gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    else:
        record["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    start = time.perf_counter()
    record["test_error"] = float(np.mean(model.predict(X_test) != y_test))
    record["seconds_of_prediction"] = time.perf_counter() - start
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-budget", default=None)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verbose", type=int, default=0)
    args = parser.parse_args()
    records = []
    for case in args.cases:
        records.append(run_case(case, args))
        print(json.dumps(records[-1]), flush=True)
        if args.out:
            args.out.write_text(json.dumps({"environment": environment(), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
