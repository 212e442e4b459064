"""Compiled products against BLAS: kernel values, symmetric tiles times two and eleven columns, tall float64 sums.

    python benchmarks/cpu_products.py [--rows 60000] [--out benchmarks/results/cpu_products.json]
    python benchmarks/cpu_products.py --only city_block
    python benchmarks/cpu_products.py --only bytes

City-block distances: additions per second on one core (two per column of a pair: a difference and a sum), as a fraction
of the rate that the core reaches for sums in registers; CPU seconds of one thread.

Gaussian kernel: values of 1,024 rows with 1,024 others on one core, by a matrix product followed by NumPy's
exponential, and by the compiled loop that computes product and exponential in registers.

Rows stored as bytes: inner products of 1,024 rows with 1,024 others on one core, with every row stored densely, and with the
library's choice between dense rows and lists of the values that differ from the background. The lower bound is the time of
dense bytes multiplied by the fraction of pairs of features that differ from the background.

The other cases use MNIST with centred unit-norm images. Kernel values: every tile of one triangle of the matrix,
written into a buffer in cache, so that no new memory is touched. Symmetric products: a cached matrix of a third of the
rows. Both sides of a comparison run alternately in one process; the fastest of three repetitions counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from gramless._core import arrays as xa
from gramless._core.grid import GridRows, on_grid
from gramless._core.threads import blas_threads, one_blas_thread, run_threads
from gramless.images import UnitNormalizer
from gramless.kernels import Linear, Polynomial
from gramless.linalg.operators import KernelOperator, byte_rows
from gramless.linalg.operators.tile_product import (
    BlasSums,
    CompiledSums,
    PaddedColumns,
    product,
    transposed_product,
)
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

COLUMNS, LANDMARKS = 11, 1728


def fastest(
    ways: dict[str, Callable[[], object]], turns: int = 3, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the seconds of each function, measured alternately."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            started = clock()
            way()
            seconds[name].append(clock() - started)
    return {name: min(all_turns) for name, all_turns in seconds.items()}


def shared(op: KernelOperator, work: Callable[[list], object]) -> None:
    """Call `work` on this thread's share of the tiles."""
    workers = blas_threads()
    run_threads(lambda k: work(op._tiles[k::workers]), workers)


def values(op: KernelOperator, points: object) -> None:
    def work(tiles: list) -> None:
        buffer = np.empty((op.edge, op.edge), np.float32)
        for rows, columns in tiles:
            out = buffer[: rows.stop - rows.start, : columns.stop - columns.start]
            op.kernel.block(points, rows, columns, out=out)

    shared(op, work)


def symmetric(op: KernelOperator, make_sums: Callable[[], BlasSums | CompiledSums]) -> None:
    def work(tiles: list) -> None:
        sums = make_sums()
        for rows, columns in tiles:
            sums.add(op._stored[rows.start, columns.start], rows, columns)

    shared(op, work)


def addition_rate(kind: str, turns: int = 200) -> float:
    """Return the additions per second of one core: eight independent sums of vectors in registers."""
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from gramless._core.compiled import simd

    vectors, lanes, sums = (simd.DOUBLES, simd.LANES // 2, 12) if kind == "float64" else (simd.FLOATS, simd.LANES, 12)

    @intrinsic
    def add_up(context, steps, out):
        def generate(context, builder, signature, arguments):
            one = ir.Constant(vectors, [1.0] * lanes)
            found = simd.accumulate(
                builder, arguments[0], sums, vectors, lambda k, totals: [builder.fadd(total, one) for total in totals]
            )
            place = simd.pointer(builder, arguments[1], vectors.element)
            for i, value in enumerate(found):
                simd.store(builder, value, simd.at(builder, place, i * lanes))
            return context.get_dummy_value()

        return types.void(types.intp, types.uintp), generate

    @numba.njit
    def loop(steps, out):
        add_up(steps, out.ctypes.data)

    out, steps = np.empty(sums * lanes, kind), 100_000
    loop(10, out)
    seconds = fastest({"": lambda: loop(steps, out)}, turns, time.thread_time)[""]
    return steps * sums * lanes / seconds


def city_block_rates() -> dict[str, dict[str, float]]:
    """Return billions of additions per second of one core, and their fraction of the core's peak rate."""
    from gramless._core.compiled.register_tiles import CITY_BLOCK, fill

    rng, found = np.random.default_rng(0), {}
    for kind in ("float32", "float64"):
        peak = addition_rate(kind)
        for d in (8, 16, 54, 128):
            X, out = rng.normal(size=(1024, d)).astype(kind), np.empty((1024, 1024), kind)
            fill(CITY_BLOCK, X, X, out)
            seconds = fastest({"": lambda X=X, out=out: fill(CITY_BLOCK, X, X, out)}, 20, time.thread_time)[""]
            rate = 2 * out.size * d / seconds
            found[f"{kind}, {d} columns"] = {"additions": rate / 1e9, "share": rate / peak}
    return found


def gaussian_rates() -> dict[str, dict[str, float]]:
    """Return the nanoseconds of one core per kernel value."""
    from gramless.kernels import RBF

    rng, found = np.random.default_rng(0), {}
    for kind in ("float32", "float64"):
        for d in (8, 54, 256):
            X, out = rng.normal(size=(1024, d)).astype(kind), np.empty((1024, 1024), kind)
            scaled = X * (1 / d) ** 0.5
            half = np.einsum("ij,ij->i", scaled, scaled) / 2

            def by_blas(scaled: np.ndarray = scaled, half: np.ndarray = half, out: np.ndarray = out) -> None:
                np.matmul(scaled, scaled.T, out=out)
                np.subtract(out, half[:, None], out=out)
                np.subtract(out, half[None, :], out=out)
                np.exp(np.minimum(out, 0, out=out), out=out)

            kernel = RBF(gamma=0.5 / d)
            kernel(X, X, out=out)
            ways = {"BLAS": by_blas, "compiled": lambda kernel=kernel, X=X, out=out: kernel(X, X, out=out)}
            with one_blas_thread():
                seconds = fastest(ways, 10, time.thread_time)
            found[f"{kind}, {d} features"] = {name: 1e9 * one / out.size for name, one in seconds.items()}
    return found


def in_strips(X: GridRows, Y: GridRows, out: np.ndarray) -> None:
    """Compute the inner products without lists of differing values."""
    from gramless._core.compiled import integer_products as compiled

    n, m, rows = len(X), len(Y), np.arange(len(X))
    strips = compiled._pack(X.codes, compiled._STRIP_ROWS, np.int32(0))
    panels = compiled._pack(Y.codes, compiled._PANEL_ROWS, compiled._SIGN_BITS)
    columns = np.zeros((3, panels.shape[0] * compiled._PANEL_ROWS))
    columns[:, :m] = Y.scale, Y.offset, Y.scale * compiled.sums_of_codes(Y.codes)[0]
    sums = compiled.sums_of_codes(X.codes)[0]
    grid = np.stack([X.scale, X.scale * sums + X.shape[1] * X.offset, X.offset, float(compiled._SHIFT) * sums])
    tile, few = (
        np.empty((compiled._STRIP_ROWS, compiled._PANEL_ROWS), np.int32),
        np.empty((n, 2 * compiled._PANEL_ROWS), np.float32),
    )
    compiled._multiply_strips(rows, strips, panels, grid, columns, tile, few, m, out.reshape(-1), m)


def byte_rates(images: np.ndarray) -> dict[str, dict[str, float]]:
    """Return milliseconds of one core, and the fraction of pairs of features that differ from their row's background."""

    n = 1024
    dense = np.random.default_rng(0).integers(0, 256, (2 * n, images.shape[1])).astype(np.float32)
    half = dense.copy()
    half[:, : images.shape[1] // 2] = 128
    found = {}
    for name, X in (
        ("bytes of all values", dense),
        ("half of them equal", half),
        ("MNIST", images[: 2 * n]),
        ("MNIST, black on white", 255 - images[: 2 * n]),
    ):
        rows, out, same = on_grid(np.ascontiguousarray(X)), np.empty((n, n), np.float32), np.empty((n, n), np.float32)
        assert rows is not None
        left, right = rows[:n], rows[n:]
        ways = {
            "strips": lambda x=left, y=right, z=same: in_strips(x, y, z),
            "chosen": lambda x=left, y=right, z=out: xa.dot(x, y, z),
        }
        fastest(ways, 1)
        seconds = fastest(ways, 30, time.thread_time)
        np.testing.assert_array_equal(out, same)
        background = np.array([np.bincount(codes).argmax() for codes in left.codes[:, : X.shape[1]]])
        differ = (left.codes != background[:, None]).reshape(n, -1, 2).any(2).mean()
        found[name] = {way: 1e3 * one for way, one in seconds.items()} | {"differ": float(differ)}
    for one in found.values():
        one["floor"] = one["differ"] * found["bytes of all values"]["strips"]
    return found


def print_bytes(rates: dict[str, dict[str, float]]) -> None:
    for name, one in rates.items():
        both = f"strips {one['strips']:5.1f} ms   chosen {one['chosen']:5.1f} ms   {one['strips'] / one['chosen']:.2f} x"
        print(f"rows of bytes, {name:22s} {both}   {one['differ']:4.0%} of pairs differ, floor {one['floor']:5.1f} ms")


def instructions() -> str:
    """Return the instruction set that the loops are compiled for."""
    from gramless._core.compiled.simd import available, lanes

    if not lanes():
        return "no vectors"
    byte_products = available("avx512vnni") if lanes() == 16 else available("avxvnni")
    return ("AVX-512" if lanes() == 16 else "AVX2") + (", products of bytes" if byte_products else ", products of 16 bits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--only", choices=["city_block", "bytes"], help="just this part")
    args = parser.parse_args()

    if args.only == "bytes":
        print(f"compiled for {instructions()}")
        images = load("mnist").sample(2048).x_train
        print_bytes(of_bytes := byte_rates(images.reshape(len(images), -1).astype(np.float32)))
        if args.out:
            args.out.write_text(
                json.dumps({"bytes": of_bytes, "compiled_for": instructions(), **environment()}, indent=1) + "\n"
            )
        return
    if args.only == "city_block":
        rates = city_block_rates()
        for name, one in rates.items():
            rate, share = one["additions"], one["share"]
            print(f"city-block distances, {name:20s} {rate:6.1f} billion additions/s, {share:.0%} of the core's")
        if args.out:
            args.out.write_text(json.dumps({"city_block": rates, **environment()}, indent=1) + "\n")
        return
    images = load("mnist").sample(args.rows).x_train
    X = UnitNormalizer().fit_transform(images)
    as_bytes = byte_rows(Linear(), X, len(X))
    if not xa.is_grid(as_bytes):
        raise SystemExit("this processor has neither AVX-512 nor AVX2, or there are too few rows: nothing to compare")
    some = slice(0, 1024), slice(1024, 2048)
    truth = X[some[0]].astype(np.float64) @ X[some[1]].astype(np.float64).T
    errors = {
        "BLAS": float(np.abs(X[some[0]] @ X[some[1]].T - truth).max()),
        "compiled": float(np.abs(xa.dot(as_bytes[some[0]], as_bytes[some[1]]) - truth).max()),
    }
    op = KernelOperator(X, Polynomial(degree=4, gamma=1.0))
    found = {"kernel values": fastest({"BLAS": lambda: values(op, X), "compiled": lambda: values(op, as_bytes)})}

    rng = np.random.default_rng(0)
    third = KernelOperator(X[: len(X) // 3], Polynomial(degree=4, gamma=1.0), cache=True)
    V = rng.normal(size=(third.shape[0], COLUMNS)).astype(np.float32)
    third @ V
    for few, name in ((V, "symmetric product"), (np.ascontiguousarray(V[:, :2]), "symmetric product, 2 columns")):
        make_sums = partial(CompiledSums, PaddedColumns(few))
        ways = {"BLAS": lambda few=few: symmetric(third, lambda: BlasSums(few))}
        ways["compiled"] = lambda make_sums=make_sums: symmetric(third, make_sums)
        found[name] = fastest(ways)

    C = rng.normal(size=(len(X), LANDMARKS)).astype(np.float32)
    W, Z = rng.normal(size=(LANDMARKS, COLUMNS)), rng.normal(size=(len(X), COLUMNS))
    ways = {"BLAS": lambda: C.astype(np.float64) @ W, "compiled": lambda: product(C, W)}
    found["float64 product"] = fastest(ways)
    ways = {"BLAS": lambda: C.astype(np.float64).T @ Z, "compiled": lambda: transposed_product(C, Z)}
    found["float64 transposed product"] = fastest(ways)

    gaussian = gaussian_rates()
    of_bytes = byte_rates(images[:2048].reshape(2048, -1).astype(np.float32))
    print(f"compiled for {instructions()}")
    print_bytes(of_bytes)
    for name, rates in gaussian.items():
        ratio = rates["BLAS"] / rates["compiled"]
        both = f"BLAS {rates['BLAS']:5.2f} ns   compiled {rates['compiled']:5.2f} ns"
        print(f"Gaussian kernel, {name:22s} {both}   {ratio:.1f} x")
    for name, seconds in found.items():
        ratio = seconds["BLAS"] / seconds["compiled"]
        print(f"{name:28s} BLAS {seconds['BLAS']:7.3f} s   compiled {seconds['compiled']:7.3f} s   {ratio:.1f} x")
    print(f"largest error of an inner product: BLAS {errors['BLAS']:.1e}, compiled {errors['compiled']:.1e}")
    if args.out:
        about = {"rows": len(X), "columns": COLUMNS, "landmarks": LANDMARKS, "compiled_for": instructions()}
        measured = {"seconds": found, "nanoseconds_of_a_gaussian_value": gaussian, "bytes": of_bytes, "errors": errors}
        args.out.write_text(json.dumps({**about, **measured, **environment()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
