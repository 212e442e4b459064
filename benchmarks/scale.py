"""Error, seconds and peak memory of landmark models for many rows and landmarks: sums and conjugate gradients.

    python benchmarks/scale.py --device cuda --cases cg:1e7x5e4 cg:1e7x1e5 sums:1e6x2e4 --out benchmarks/results/scale.json
    python benchmarks/scale.py --cases cg:2e4x500 sums:2e4x500                      # a small trial on the CPU
    python benchmarks/scale.py --device cuda --cases cg:1e8x2e4:memmap --memory-budget 8GB     # the rows are 11 GB
    python benchmarks/scale.py --device cuda --cases cg:1e5x1e3 sums:1e5x1e3 --one-process      # compiles once
    python benchmarks/scale.py --device cuda --cases cg:2e5x2e3:highest cg:2e5x2e3:medium cg:1e6x2e4:medium
    python benchmarks/scale.py --cases cg:1e7x5e3:parquet --memory-budget 2GB       # the rows in a file
    python benchmarks/scale.py --data covtype --cases cg:464809x1e4 cg:1e5x1e3:kmeans --memory-budget 2GB

Without `--data`, rows are generated on the device: 28 standard normal features in float32, two classes by the sign of

    f = sin(2 x0) + x1 x2 + |x3| - 0.8 + 0.5 x4 tanh(x5) + 0.5 noise .

The kernel is RBF with gamma = 1 / 56, the ridge is 1e-7 of the number of rows, and the error is that of 200,000 other rows.
`--data covtype` uses rows of Covertype in a random order: the ten numeric columns are standardised, gamma = 0.3, C = 10, and
the error is that of the last tenth of the rows. `--data clusters` has one row in ten in 400 small groups, each far from all
other rows and with one of two labels, for the rules that select landmarks; gamma = 0.05, C = 10.

A case is `solver:ROWSxLANDMARKS` with options: `stream` for rows generated again in each pass, `parquet` or `memmap`
for rows in a file or in a memory-mapped array, which are written before the fit; the name of a rule that selects the
landmarks; `highest` or `medium` for another precision of the products on a GPU than "high"; `seed=N`; `C=NUMBER`. Each case
runs alone in a process, so that its peak memory is its own, or with `--one-process` all of them in one, on a GPU after small
fits that compile the kernels. CPU seconds are summed over all threads, and depend less on other programs than seconds.

The record of memory-mapped rows has `seconds_of_host`: one pass that reads the rows and copies them to the device without
products. Compare it, and `seconds_of_pass`, with `seconds_of_pass` of rows that are kept on the device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 28
BATCH = 2**18
TEST_ROWS = 200_000
PRECISIONS = ("highest", "high", "medium")
# Fits that compile the GPU kernels for few and for many rows and landmarks.
WARM_UP = ("cg:2e4x500", "cg:3e5x2e4", "sums:2e4x500")


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


def write_parquet(path: Path, n: int) -> None:
    """Write the rows of `batches` to a file, one row group for each batch."""
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"x{j}" for j in range(FEATURES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])
    with parquet.ParquetWriter(path, schema, compression="none") as writer:
        for X, y in batches(n, "cpu"):
            columns = [*np.ascontiguousarray(X.T), y]
            writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema))


def write_memmap(folder: Path, n: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Write the rows of `batches` to an array on disk, and return the array, opened as a memory map, and the labels."""
    path, labels, start = folder / "rows.npy", np.empty(n, np.int8), 0
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, FEATURES))
    for X, y in batches(n, device):
        part = slice(start, start + len(y))
        array[part], labels[part], start = X if isinstance(X, np.ndarray) else X.cpu().numpy(), y, part.stop
    del array  # closes the file
    return np.load(path, mmap_mode="r"), labels


def seconds_of_host(X: np.ndarray, y: np.ndarray, device: str, size: int) -> float:
    """Return the seconds of one pass that reads the rows and copies them to the device."""
    from gramless import Stream
    from gramless._core import arrays as xa

    target, started = xa.resolve_device(device), time.perf_counter()
    for _ in Stream(X, y).batches(size, prepare=lambda block: xa.copied_ahead(block, target, np.float32)):
        pass
    return time.perf_counter() - started


def covertype(n: int) -> tuple[np.ndarray, ...]:
    """Return `n` training rows of Covertype and their labels, and the last tenth of all rows for the error."""
    from gramless.papers.datasets import find

    with np.load(find("covtype")) as file:
        x, y = file["x"], file["y"]
    order = np.random.RandomState(0).permutation(len(x))
    train, test = order[:n], order[-(len(x) // 10) :]
    if len(train) + len(test) > len(x):
        raise ValueError(f"Covertype has {len(x) - len(test)} training rows, got {n}")
    mean, scale = x[train, :10].mean(axis=0), x[train, :10].std(axis=0)
    parts: list[np.ndarray] = []
    for idx in (train, test):
        X = x[idx].astype(np.float32)
        X[:, :10] = (x[idx, :10] - mean) / scale
        parts += [X, y[idx]]
    return tuple(parts)


def clusters(n: int) -> tuple[np.ndarray, ...]:
    """Return `n` training rows and their labels, and 50,000 other rows: nine of ten in one group, the others in 400."""
    rng = np.random.default_rng(0)
    centres, labels = 12 * rng.standard_normal((400, 10)), rng.integers(0, 2, 400)
    parts: list[np.ndarray] = []
    for size in (n, 50_000):
        X = rng.standard_normal((size, 10))
        y, isolated = (X[:, 0] + np.sin(2 * X[:, 1]) > 0).astype(np.int8), rng.random(size) < 0.1
        group = rng.integers(0, 400, size)
        X[isolated] = centres[group[isolated]] + 0.3 * X[isolated]
        y[isolated] = labels[group[isolated]]
        parts += [X.astype(np.float32), y]
    return tuple(parts)


def run_case(case: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fit one case and return its record."""
    from gramless import CUDA, NystromLSSVC
    from gramless.approximation.landmarks import LANDMARKS
    from gramless.papers.experiments.environment import peak_mb, reset_peak

    solver, sizes, *options = case.split(":")
    n, m = (int(float(size)) for size in sizes.split("x"))
    precision = next((option for option in options if option in PRECISIONS), "high")
    rule = next((option for option in options if option in LANDMARKS), "uniform")
    named = dict(option.split("=") for option in options if "=" in option)
    seed, on_gpu = int(named.get("seed", 0)), args.device.startswith("cuda")
    settings: dict[str, Any] = {"C": 1e7 / n, "gamma": 1 / (2 * FEATURES)}
    data: tuple[Any, Any]
    folder = tempfile.TemporaryDirectory()
    if args.data == "covtype":
        X, y, X_test, y_test = covertype(n)
        data, settings = (X, y), {"C": 10.0, "gamma": 0.3}
    elif args.data == "clusters":
        X, y, X_test, y_test = clusters(n)
        data, settings = (X, y), {"C": 10.0, "gamma": 0.05}
    else:
        X_test, y_test = rows(min(TEST_ROWS, n), 1, args.device)
        if "parquet" in options:
            data = (Path(folder.name) / "rows.parquet", None)
            write_parquet(data[0], n)
        elif "memmap" in options:
            data = write_memmap(Path(folder.name), n, args.device)
        else:
            data = ((lambda: batches(n, args.device)), None) if "stream" in options else rows(n, 0, args.device)
    if "C" in named:
        settings["C"] = float(named["C"])
    model = NystromLSSVC(
        n_landmarks=m,
        landmarks=rule,
        solver=solver,
        device=CUDA(precision=precision) if on_gpu else None,
        memory_budget=args.memory_budget,
        verbose=args.verbose,
        random_state=seed,
        **settings,
    )
    if on_gpu:
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    reset_peak()
    before, start, cpu = peak_mb(), time.perf_counter(), time.process_time()
    record: dict[str, Any] = {"data": args.data, "case": case, "rows": n, "landmarks": m, "solver": solver, "rule": rule}
    record |= {"memory_budget": args.memory_budget} | ({"precision": precision} if on_gpu else {})
    try:
        model.fit(*data)
    except (MemoryError, FloatingPointError, RuntimeError) as error:
        return record | {"error_message": f"{type(error).__name__}: {error}"[:400], "seconds": time.perf_counter() - start}
    record |= {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    history = model.history_
    record |= {"solver": model.solver_, "reason": model.solver_reason_, "iterations": len(history)}
    record |= {"seconds_of_iterations": history[-1]["seconds"], "residuals": [h.get("residual") for h in history]}
    if len(history) > 1:
        record["seconds_of_pass"] = float(np.median(np.diff([h["seconds"] for h in history])))
    if on_gpu:
        record["peak_gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    else:
        record |= {"peak_gigabytes": peak_mb() / 1e3, "gigabytes_before": before / 1e3}
    start = time.perf_counter()
    record["test_error"] = float(np.mean(model.predict(X_test) != y_test))
    record["seconds_of_prediction"] = time.perf_counter() - start
    if isinstance(data[0], np.memmap):
        record["seconds_of_host"] = seconds_of_host(*data, args.device, BATCH)
    folder.cleanup()
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", required=True)
    parser.add_argument("--data", choices=["generated", "covtype", "clusters"], default="generated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-budget", default=None)
    parser.add_argument("--out", type=Path, help="file to which the records are appended")
    parser.add_argument("--one-process", action="store_true", help="run all cases in this process")
    parser.add_argument("--verbose", type=int, default=0)
    args = parser.parse_args()
    if args.one_process:
        for case in WARM_UP if args.device.startswith("cuda") else ():
            run_case(case, args)
    elif len(args.cases) > 1:
        others = sys.argv[1:]
        at = others.index("--cases")
        del others[at : at + 1 + len(args.cases)]
        for case in args.cases:
            subprocess.run([sys.executable, __file__, *others, "--cases", case], check=True)
        return
    for case in args.cases:
        record = run_case(case, args)
        print(json.dumps(record), flush=True)
        if args.out:
            write_record(args.out, record, args.device)


def write_record(path: Path, record: dict[str, Any], device: str) -> None:
    """Append a record to the runs in a file, with the hardware and the versions of this process."""
    from gramless.papers.experiments.environment import environment

    runs = json.loads(path.read_text()) if path.exists() else []
    found = environment(device)
    if runs and runs[-1]["environment"] == found:
        runs[-1]["records"].append(record)
    else:
        runs.append({"environment": found, "records": [record]})
    path.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
