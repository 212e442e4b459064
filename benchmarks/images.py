"""Image classification with patch dictionaries: error and seconds on MNIST, USPS and CIFAR-10.

    python benchmarks/images.py [--only mnist,usps,cifar10] [--device cuda] [--seeds 3] [--validate] [--out FILE]

The datasets are those of `gramless.papers.datasets` (--data FOLDER, or GRAMLESS_DATA). With --validate, 10,000 training
images (2,000 of USPS) are held out and scored, for the selection of settings; otherwise the test set is scored once per
seed. Seconds are wall-clock time from the images to the labels of the test set: learning the dictionary, features of
all images, solve, predict. CPU seconds of all threads are recorded too. --rows N uses N training images and --test-rows
N that many test images. `--only symmetries` compares kernels with built-in symmetries with transformed copies of the
training images, on held-out training images: mirror images on CIFAR-10, shifts by one pixel on MNIST.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import platform
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gramless import LSSVC, ImageClassifier
from gramless.images import PatchDictionary, UnitNormalizer, shift_columns, virtual_examples
from gramless.kernels import Invariant, Polynomial, Reflected
from gramless.papers.datasets import load

# Settings that are not listed have the defaults of the classifier. Cases marked `cuda` are too large for a CPU.
ROWS: dict[str, dict[str, Any]] = {
    "mnist": {"data": "mnist", "settings": {"mirror": False}},
    "usps": {"data": "usps", "settings": {"mirror": False, "n_atoms": 512}},
    "cifar10": {"data": "cifar10", "settings": {"mirror": False}},
    "cifar10-mirror": {"data": "cifar10", "settings": {"mirror": True}},
    "cifar10-4096": {
        "data": "cifar10",
        "settings": {"mirror": False, "n_atoms": 4096, "pooling": 3, "degree": 2},
        "cuda": True,
    },
    "cifar10-4096-mirror": {
        "data": "cifar10",
        "settings": {"mirror": True, "n_atoms": 4096, "pooling": 3, "degree": 3, "C": 100.0},
        "cuda": True,
    },
}
HELD_OUT = {"usps": 2000}


def images_of(name: str, folder: Path | None, rows: int | None, validate: bool, seed: int) -> tuple[np.ndarray, ...]:
    """Return training images and labels, and the images and labels to score."""
    d = load(name, data=folder, download=False)
    X, y, T, t = (d.x_train.reshape(-1, *d.image_shape), d.y_train, d.x_test.reshape(-1, *d.image_shape), d.y_test)
    order = np.random.default_rng(seed).permutation(len(y))
    if validate:
        cut = len(y) - HELD_OUT.get(name, 10_000)
        T, t = X[order[cut:]], y[order[cut:]]
        order = order[:cut]
    order = np.sort(order[:rows])
    return X[order], y[order], T, t


class Clock:
    """Measure the seconds between calls, after the device has finished its work."""

    def __init__(self, device: str | None):
        self.cuda = device is not None and device.startswith("cuda")
        self()

    def __call__(self) -> float:
        if self.cuda:
            import torch

            torch.cuda.synchronize()
        now = time.perf_counter()
        passed = now - getattr(self, "last", now)
        self.last = now
        return passed


def run(name: str, row: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    errors, seconds = [], []
    chosen: dict[str, Any] = {}
    for seed in range(options.seeds):
        X, y, T, t = images_of(row["data"], options.data, options.rows, options.validate, seed)
        T, t = T[: options.test_rows], t[: options.test_rows]
        processor = time.process_time()
        clock = Clock(options.device)
        start = time.perf_counter()
        model = ImageClassifier(
            **row["settings"],
            device=options.device,
            memory_budget=options.memory_budget,
            verbose=options.verbose,
            random_state=seed,
        ).fit(X, y)
        fit = clock()
        labels = model.predict(T)
        predict = clock()
        solve = float(model.estimator_.history_[-1]["seconds"])
        errors.append(100 * float(np.mean(labels != t)))
        chosen = model.chosen_
        seconds.append([fit - solve, solve, predict, time.perf_counter() - start, time.process_time() - processor])
        print(
            f"  {name} seed {seed}: error {errors[-1]:.2f} %, features {fit - solve:.1f} s, solve {solve:.1f} s, "
            f"predict {predict:.1f} s, {chosen}",
            flush=True,
        )
        peak = peak_gigabytes(options.device)
        del model
    parts = dict(
        zip(("features", "solve", "predict", "total", "processor"), np.mean(seconds, axis=0).round(2).tolist(), strict=True)
    )
    return {
        "name": name,
        "train": len(X),
        "held_out" if options.validate else "test": len(T),
        "error_percent": round(float(np.mean(errors)), 3),
        "spread": round(float(np.ptp(errors)), 3),
        "errors": [round(e, 3) for e in errors],
        "seconds": parts,
        "peak_GB": peak,
        "chosen": chosen,
    }


def symmetries(options: argparse.Namespace) -> dict[str, Any]:
    """Return held-out error and seconds without a symmetry, with a symmetric kernel, and with transformed copies."""
    cosine = Polynomial(degree=4, gamma=0.5, coef0=0.5)
    machine = {"C": 10.0, "tol": 1e-2, "random_state": 0, "memory_budget": options.memory_budget}
    found: dict[str, Any] = {"name": "symmetries"}

    def fit(name: str, X: np.ndarray, y: np.ndarray, T: np.ndarray, t: np.ndarray, kernel: Any) -> None:
        start, processor = time.perf_counter(), time.process_time()
        wrong = np.mean(LSSVC(kernel=kernel, **machine).fit(X, y).predict(T) != t)
        seconds = {"wall": round(time.perf_counter() - start, 2), "processor": round(time.process_time() - processor, 2)}
        found[name] = {"rows": len(X), "error_percent": round(100 * float(wrong), 2), **seconds}
        print(f"  {name}: {found[name]}", flush=True)

    X, y, T, t = images_of("cifar10", options.data, options.rows or 4000, True, 0)
    T, t = T[: options.test_rows or 4000], t[: options.test_rows or 4000]
    dictionary = PatchDictionary(200, mirror=True, n_components=1000, n_patches=100_000, random_state=0).fit(X)
    F, G, odd = dictionary.transform(X), dictionary.transform(T), dictionary.n_odd_
    fit("mirror: without", F, y, G, t, cosine)
    fit("mirror: Reflected", F, y, G, t, Reflected(cosine, odd))
    signs = np.ones(F.shape[1], F.dtype)
    signs[len(signs) - odd :] = -1
    fit("mirror: copies", np.concatenate([F, F * signs]), np.tile(y, 2), G, t, cosine)

    X, y, T, t = images_of("mnist", options.data, (options.rows or 4000) // 4, True, 0)
    T, t = T[: options.test_rows or 4000], t[: options.test_rows or 4000]
    unit = UnitNormalizer()
    P, Q = unit.fit_transform(X), unit.fit_transform(T)
    shifts = shift_columns((28, 28))
    fit("shifts: without", P, y, Q, t, Polynomial(degree=4, gamma=1.0))
    fit("shifts: Invariant", P, y, Q, t, Invariant(Polynomial(degree=4, gamma=1.0), shifts))
    copies, labels = virtual_examples(P, y, shifts)
    fit("shifts: copies", copies, labels, Q, t, Polynomial(degree=4, gamma=1.0))
    return found


def peak_gigabytes(device: str | None) -> float:
    if device is not None and device.startswith("cuda"):
        import torch

        return round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"rows, comma-separated: {', '.join(ROWS)}")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--test-rows", type=int)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--memory-budget")
    parser.add_argument("--verbose", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # Report runs that were killed or that crashed in compiled code.
    faulthandler.enable()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    on_gpu = options.device is not None and options.device.startswith("cuda")
    names = (
        options.only.split(",") if options.only else [name for name, row in ROWS.items() if on_gpu or not row.get("cuda")]
    )
    unknown = set(names) - {*ROWS, "symmetries"}
    if unknown:
        sys.exit(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    done: list[dict[str, Any]] = []
    for name in names:
        try:
            done.append(symmetries(options) if name == "symmetries" else run(name, ROWS[name], options))
        except Exception as error:  # A failed case must not discard the others.
            done.append({"name": name, "failed": f"{type(error).__name__}: {error}"[:600]})
        print(json.dumps(done[-1]), flush=True)
        if options.out:
            facts = {"python": platform.python_version(), "numpy": np.__version__, "machine": machine(options.device)}
            options.out.write_text(json.dumps({"environment": facts, "rows": done}, indent=1) + "\n")
    if any("failed" in row for row in done):
        sys.exit(1)


def machine(device: str | None) -> str:
    if device is not None and device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name())
    import os

    return f"{os.cpu_count()} cores, {platform.machine()}"


if __name__ == "__main__":
    main()
