"""Fits and products on one GPU: MNIST, the fused product, a million rows, Covertype.

    python benchmarks/gpu.py --data FOLDER --out benchmarks/results/gpu.json [--only mnist,fused,...]

FOLDER contains mnist.npz and, for `covertype`, covtype.npz. Every time is wall-clock time of a call with NumPy input
and output (transfers included), after one warm-up call, with a synchronised device; the median of the repetitions. The
peak matrix rate and memory bandwidth are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.exceptions import ConvergenceWarning

from gramless import CUDA, LSSVC
from gramless.kernels import RBF, Polynomial
from gramless.linalg.operators import KernelOperator
from gramless.linalg.operators.fused import FusedProduct
from gramless.linalg.solvers import CG

warnings.simplefilter("ignore", ConvergenceWarning)
ROWS: list[dict[str, Any]] = []
POLY4 = {"kernel": "poly", "degree": 4, "gamma": 1.0, "C": 1e4, "device": "cuda", "random_state": 0}


def clock(work: Callable[[], Any], repeat: int = 3, warm: int = 1) -> tuple[float, Any]:
    """Return the median seconds of `work` after `warm` calls, and its last result."""
    seconds = []
    for i in range(warm + repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        if i >= warm:
            seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), result


def report(name: str, **figures: Any) -> None:
    row = {"name": name, **{k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in figures.items()}}
    ROWS.append(row)
    print(f"{name:38s} " + "  ".join(f"{k} {v}" for k, v in row.items() if k != "name"), flush=True)


def unit(images: np.ndarray) -> np.ndarray:
    X = images.reshape(len(images), -1).astype(np.float32)
    X -= X.mean(axis=1, keepdims=True)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def ceilings() -> dict[str, float]:
    """Return measured matrix rates (TFLOP/s) and copy bandwidth (TB/s) of this GPU."""
    n, d = 32768, 784
    A = torch.randn(n, d, device="cuda")
    rates = {}
    for name, dtype, tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bfloat16", torch.bfloat16, True),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        B = A.to(dtype)
        out = torch.empty(n, n, device="cuda", dtype=dtype)
        seconds, _ = clock(lambda B=B, out=out: torch.matmul(B, B.T, out=out), repeat=5)
        rates[name] = 2 * n * n * d / seconds / 1e12
    torch.backends.cuda.matmul.allow_tf32 = False
    source, target = torch.randn(2**30, device="cuda"), torch.empty(2**30, device="cuda")
    seconds, _ = clock(lambda: target.copy_(source), repeat=5)
    rates["copy"] = 2 * source.numel() * 4 / seconds / 1e12
    report("ceilings", **{f"{k}_T": v for k, v in rates.items()})
    return rates


def mnist(data: Any) -> None:
    X, y, T, t = data
    for tol in (1e-1, 5e-2, 1e-2):
        seconds, model = clock(lambda tol=tol: LSSVC(solver="cg", tol=tol, **POLY4).fit(X, y))
        error = float(np.mean(model.predict(T) != t))
        report(f"MNIST 60k cg tol={tol:g}", seconds=seconds, iterations=model.n_iter_, error_percent=100 * error)
    for precision in ("highest", "high", "medium"):
        model.device = CUDA(precision=precision)
        seconds, labels = clock(lambda: model.predict(T), repeat=5)
        report(f"predict 10,000 ({precision})", seconds=seconds, error_percent=100 * float(np.mean(labels != t)))
    seconds, model = clock(lambda: LSSVC(solver="cholesky", **POLY4).fit(X, y), repeat=1)
    error = float(np.mean(model.predict(T) != t))
    report(
        "MNIST 60k cholesky",
        seconds=seconds,
        precision=model.history_[-1]["precision"],
        residual=float(model.residual_),
        error_percent=100 * error,
    )


def fused(rates: dict[str, float]) -> None:
    n, d, k = 262_144, 784, 10
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randn(n, d, device="cuda", generator=generator)
    X /= X.norm(dim=1, keepdim=True)
    V = torch.randn(n, k, device="cuda", generator=generator)
    flops = 2.0 * n * n * d
    for name, kernel in (("poly-4", Polynomial(4, 1.0)), ("rbf", RBF(1.0))):
        truth = kernel(X[:2048].double(), X.double()) @ V.double()
        for precision in ("medium", "high"):
            product = FusedProduct(kernel, X, precision)
            seconds, out = clock(lambda product=product: product(product.operand, V))
            error = float((out[:2048].double() - truth).norm() / truth.norm())
            share = flops * (1 if precision == "medium" else 3) / seconds / 1e12 / rates["bfloat16"]
            dtypes = ("float32",) if precision == "high" else ("bfloat16", "bfloat16 sums in float32")
            for how in dtypes:
                blocked, _ = clock(lambda how=how, kernel=kernel: blocked_product(kernel, X, V, how), repeat=1)
                report(
                    f"fused {name} {precision} vs {how}",
                    seconds=seconds,
                    tflops=flops / seconds / 1e12,
                    share_of_bf16_rate=share,
                    blocked_torch_seconds=blocked,
                    times_faster=blocked / seconds,
                    relative_error=error,
                )


def blocked_product(kernel: Any, X: torch.Tensor, V: torch.Tensor, how: str) -> torch.Tensor:
    """Compute the product with plain torch: blocks of the kernel matrix, in-place functions, a second product."""
    dtype = torch.float32 if how == "float32" else torch.bfloat16
    B, W = X.to(dtype), V.to(dtype)
    out = torch.empty_like(V)
    norms = (X * X).sum(1)
    for i in range(0, len(X), 8192):
        K = B[i : i + 8192] @ B.T
        if how.endswith("float32") and dtype == torch.bfloat16:
            K, W = K.float(), V
        if isinstance(kernel, Polynomial):
            K *= K
            K *= K
        else:
            K *= 2
            K -= norms[i : i + 8192, None].to(K.dtype)
            K -= norms[None, :].to(K.dtype)
            K.clamp_(max=0.0).exp_()
        out[i : i + 8192] = K @ W
    return out


def deformed(images: torch.Tensor, copies: int, seed: int) -> torch.Tensor:
    """Apply random elastic deformations: smooth displacements of about two pixels, bilinear, on the GPU."""
    generator = torch.Generator(images.device).manual_seed(seed)
    n, size = images.shape[0], images.shape[-1]
    axis = torch.linspace(-1, 1, size, device=images.device)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1)
    made = [images.reshape(n, -1)]
    for _ in range(copies - 1):
        coarse = torch.randn(n, 2, 5, 5, device=images.device, generator=generator) * (1.6 / size)
        shift = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=True)
        where = grid + shift.permute(0, 2, 3, 1)
        warped = torch.nn.functional.grid_sample(images[:, None], where, align_corners=True)
        made.append(warped.reshape(n, -1))
    return torch.cat(made)


def augmented(raw: Any, n: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return n unit vectors on the GPU (MNIST images and deformed copies of each) and their labels."""
    images, labels = torch.as_tensor(raw[0], device="cuda").float(), raw[1]
    copies = -(-n // len(images))
    parts = range(0, len(images), 10_000)
    X = torch.cat([deformed(images[i : i + 10_000], copies, seed=i) for i in parts])
    y = np.concatenate([np.tile(labels[i : i + 10_000], copies) for i in parts])
    keep = np.sort(np.random.RandomState(0).permutation(len(X))[:n])
    X = X[torch.as_tensor(keep, device="cuda")]
    X -= X.mean(1, keepdim=True)
    X /= X.norm(dim=1, keepdim=True).clamp_min(1e-12)
    torch.cuda.empty_cache()
    return X, y[keep]


def streamed_fit(name: str, X: torch.Tensor, y: np.ndarray, data: Any, **settings: Any) -> np.ndarray:
    """Fit through the fused product within 18 GB of device memory and predict the labels of the test set."""
    _, _, T, t = data
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = LSSVC(memory_budget="18GB", **{**POLY4, "device": CUDA(precision="medium")}, **settings)
    seconds, _ = clock(lambda: model.fit(X, y), repeat=1, warm=0)
    peak = torch.cuda.max_memory_allocated() / 1e9
    labels = model.predict(torch.as_tensor(T, device="cuda"))
    report(
        f"N = {len(X):,} {name}",
        solver=model.solver_,
        seconds=seconds,
        iterations=model.n_iter_,
        residual=float(model.residual_),
        peak_device_GB=peak,
        error_percent=100 * float(np.mean(labels != t)),
    )
    return labels


def compile_for(X: torch.Tensor, y: np.ndarray) -> None:
    """Let Triton compile the kernels of the fits, on enough rows for the longer strips."""
    for solver in ("cg", "sketch_project"):
        LSSVC(solver=solver, max_iter=2, memory_budget="4GB", **{**POLY4, "device": CUDA(precision="medium")}).fit(
            X[:50_000], y[:50_000]
        )


def million(data: Any, raw: Any) -> None:
    """Fit a million rows to two tolerances and count how many predicted labels differ between them."""
    X, y = augmented(raw, 1_000_000)
    compile_for(X, y)
    before = None
    for tol in (0.1, 0.05):
        labels = streamed_fit(f"auto tol={tol:g}", X, y, data, tol=tol)
        if before is not None:
            report("N = 1,000,000 labels", changed_percent=100 * float(np.mean(labels != before)))
        before = labels


def million_cg(data: Any, raw: Any) -> None:
    """Run conjugate gradients for one minute and report the residual reached."""
    X, y = augmented(raw, 1_000_000)
    compile_for(X, y)
    streamed_fit("cg 16 iterations", X, y, data, solver=CG(tol=0.1, max_iter=16, n_landmarks=20_000))


def crossover(data: Any, raw: Any) -> None:
    """Measure the seconds to reach a residual with conjugate gradients and with sketch-and-project."""
    for n in (100_000, 200_000, 400_000):
        X, y = augmented(raw, n)
        compile_for(X, y)
        for tol in (0.1, 0.05):
            for solver in ("cg", "sketch_project"):
                streamed_fit(f"{solver} tol={tol:g}", X, y, data, solver=solver, tol=tol)


def curve(data: Any) -> None:
    """Measure the seconds of ten products against N: cached, recomputed in float32, fused."""
    X, _, _, _ = data
    base = torch.as_tensor(X, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    for n in (10_000, 30_000, 100_000, 300_000):
        rows = torch.randint(len(base), (n,), device="cuda", generator=generator)
        points = base[rows] + 0.02 * torch.randn(n, base.shape[1], device="cuda", generator=generator)
        V = torch.randn(n, 11, device="cuda", generator=generator)
        figures = {}
        for name, settings in (
            ("cached", {"cache": True}),
            ("streamed", {}),
            ("fused_medium", {"precision": "medium"}),
            ("fused_high", {"precision": "high"}),
        ):
            if (name == "cached" and n > 150_000) or (name in ("streamed", "fused_high") and n > 100_000):
                continue
            op = KernelOperator(points, Polynomial(4, 1.0), 1e-4, **settings)
            first, _ = clock(lambda op=op, V=V: op @ V, repeat=1, warm=0)
            again, _ = clock(lambda op=op, V=V: op @ V, repeat=1, warm=0)
            figures[name] = first + 9 * again
            del op
            torch.cuda.empty_cache()
        report(f"ten products, N = {n:,}", **figures)


def prototypes(raw: Any) -> None:
    from gramless import PatchClassifier, PrototypeLSSVC

    images, y, test, t = raw
    machine = PrototypeLSSVC(n_prototypes=4000, kernel="poly", degree=4, gamma=1.0, C=1e6, device="cuda", random_state=0)
    model = PatchClassifier(machine, patch_size=25)
    seconds, _ = clock(lambda: model.fit(images, y), repeat=1, warm=0)
    predict, labels = clock(lambda: model.predict(test), repeat=1, warm=0)
    report(
        "prototypes Q = 4000, 25 x 25 patches",
        seconds=seconds + predict,
        fit_seconds=seconds,
        predict_seconds=predict,
        error_percent=100 * float(np.mean(labels != t)),
    )


def covertype(path: Path) -> None:
    """Fit half a million rows of Covertype; the kernel width is selected on a tenth of the training rows."""
    with np.load(path) as file:
        x, y = file["x"], file["y"]
    order = np.random.RandomState(0).permutation(len(x))
    X = x.astype(np.float32)
    cut, part = round(0.9 * len(order)), round(0.81 * len(order))
    numbers = x[order[:cut], :10]  # The other 44 columns are indicators.
    X[:, :10] = (x[:, :10] - numbers.mean(axis=0)) / numbers.std(axis=0)
    settings = {"kernel": "rbf", "C": 10.0, "solver": "cg", "tol": 0.05, "memory_budget": "18GB"}

    def fit(gamma: float, rows: np.ndarray, held_out: np.ndarray, name: str) -> float:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = LSSVC(gamma=gamma, device=CUDA(precision="medium"), random_state=0, **settings)
        seconds, _ = clock(lambda: model.fit(X[rows], y[rows]), repeat=1, warm=0)
        predict, labels = clock(lambda: model.predict(X[held_out]), repeat=1, warm=0)
        error = 100 * float(np.mean(labels != y[held_out]))
        report(
            f"covertype {name}",
            gamma=gamma,
            rows=len(rows),
            seconds=seconds,
            iterations=model.n_iter_,
            residual=float(model.residual_),
            predict_seconds=predict,
            peak_device_GB=torch.cuda.max_memory_allocated() / 1e9,
            error_percent=error,
        )
        return error

    fit(1.0, order[:50_000], order[part:cut], "warm-up")
    best = min((1.0, 2.0, 4.0), key=lambda gamma: fit(gamma, order[:part], order[part:cut], "choosing gamma"))
    fit(best, order[:cut], order[cut:], "test")


def write(path: Path) -> None:
    facts = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }
    path.write_text(json.dumps({"environment": facts, "rows": ROWS}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="mnist,prototypes,fused,curve,covertype,crossover,million,million_cg")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: this benchmark measures one")
    z = np.load(options.data / "mnist.npz")
    raw = (z["x_train"], z["y_train"], z["x_test"], z["y_test"])
    data = (unit(raw[0]), raw[1], unit(raw[2]), raw[3])
    rates = ceilings()
    for name in options.only.split(","):
        start = time.perf_counter()
        work = {
            "mnist": lambda: mnist(data),
            "fused": lambda: fused(rates),
            "curve": lambda: curve(data),
            "crossover": lambda: crossover(data, raw),
            "million": lambda: million(data, raw),
            "million_cg": lambda: million_cg(data, raw),
            "prototypes": lambda: prototypes(raw),
            "covertype": lambda: covertype(options.data / "covtype.npz"),
        }[name]
        try:
            work()
        except Exception as error:  # A failed measurement must not discard the others.
            report(f"{name} FAILED", error=f"{type(error).__name__}: {error}"[:600])
        torch.cuda.empty_cache()
        print(f"   ({name}: {time.perf_counter() - start:.0f} s)", flush=True)
        if options.out:
            write(options.out)


if __name__ == "__main__":
    main()
