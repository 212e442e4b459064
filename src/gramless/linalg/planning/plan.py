"""Which solver, cached or streamed, with how many landmarks: decided from sizes and memory before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core.device import PRECISIONS
from gramless._core.memory import MemoryEstimate, format_bytes
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads
from gramless._core.validation import check_choice
from gramless.kernels.base import Kernel
from gramless.linalg.operators import nbytes_cached
from gramless.linalg.operators.fused import fused_form, has_triton
from gramless.linalg.solvers.sketch_project import default_block_size

# Below these sizes one factorisation is faster than building a preconditioner and iterating.
_CHOLESKY_UP_TO = {"cpu": 4096, "cuda": 16384}
# Landmarks cost float64 products: as fast as float32 on a GPU; on a CPU fewer landmarks are the better bargain. With m of
# them the preconditioner costs O(n m^2) to build and leaves O(log(1 / tol) / m) iterations, each of which costs O(n^2) for
# every column of the right-hand side: the sum is smallest where m grows with the cube root of the columns and of that
# logarithm. On a CPU a product of a cached matrix with up to so many columns takes as long as reading it.
_LANDMARKS_PER_ROOT_N = {"cpu": 7, "cuda": 12}
_COLUMNS_FOR_FREE = 6
_USUAL_TOL = 1e-3
# Where the matrix is streamed through the fused product, steps on blocks reach a loose residual before conjugate gradients:
# 0.1 from 400,000 rows on, 0.05 from about twice as many, and a tight one later, if at all (`benchmarks/gpu.py`, crossover).
_SKETCH_FROM = 400_000
_SKETCH_DOWN_TO = 0.05
_SKETCH_FROM_N_TOL = 40_000
# Whole vectors, for the compiled products.
_VECTOR = 32
# Columns of the size of the right-hand side that block CG, the preconditioner and the threads' sums hold at the peak.
_WORKING_COLUMNS = 20


@dataclass
class FitPlan:
    """What a fit holds, where there is nothing else to decide."""

    memory: MemoryEstimate


@dataclass
class Plan:
    """How a least-squares system is going to be solved."""

    solver: str
    cached: bool
    n_landmarks: int
    store_landmarks: bool
    memory: MemoryEstimate
    reason: str
    block_size: int = 0
    """Rows in a block, for the solvers that work by blocks."""
    probes: Plan | None = None
    """How the diagonal of the inverse is estimated for leave-one-out scores; None where it is computed."""


@dataclass
class Sizes:
    """What memory and time depend on."""

    n: int
    d: int
    k: int
    itemsize: int
    device: str
    temporaries: int
    cached_itemsize: int
    fused: int
    """Copies of the data, in half precision, of products that run fused; 0 where they do not."""

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def edge(self) -> int:
        return min(self.n, CUDA_TILE if self.on_gpu else CPU_TILE)


def sizes(
    n: int,
    d: int,
    k: int,
    dtype: Any,
    device: str,
    kernel: Kernel,
    storage: str | None = None,
    precision: str = "highest",
) -> Sizes:
    """Collect the sizes of a fit."""
    itemsize = np.dtype(dtype).itemsize
    fuses = device.startswith("cuda") and itemsize == 4 and has_triton() and fused_form(kernel) is not None
    copies = {"highest": 0, "high": 2, "medium": 1}[check_choice("precision", precision, PRECISIONS)] if fuses else 0
    return Sizes(n, d, k, itemsize, device, kernel.temporaries, itemsize if storage is None else 2, copies)


@dataclass
class Blocks:
    """What the memory of a solver that works by blocks of rows depends on."""

    size: int
    adjustable: bool = False
    """Whether a smaller size may be taken where this one does not fit."""
    reused: bool = False
    columns: int = 0
    """Matrices of the size of the solution that are kept beside the usual ones."""


def make_plan(
    s: Sizes, solver: str, budget: int, *, n_landmarks: Any = "auto", blocks: Blocks | None = None, tol: float = 1e-3
) -> Plan:
    """Choose what `solver="auto"` leaves open and check it against the budget.

    Raises `MemoryError`, with the bytes, the memory and the setting that helps, where nothing fits.
    """
    if solver == "cholesky" or (solver == "auto" and s.n <= _CHOLESKY_UP_TO["cuda" if s.on_gpu else "cpu"]):
        memory = cholesky_memory(s)
        if solver == "cholesky" or memory.nbytes <= budget:
            memory.check(budget, "use solver='cg', which streams the kernel matrix, or raise memory_budget")
            return Plan("cholesky", False, 0, False, memory, f"n={s.n} is small enough for one factorisation")
    plan = _iterative_plan(s, "cg" if solver == "auto" else solver, budget, n_landmarks, blocks, tol)
    if solver == "auto" and not plan.cached and _sketch_is_faster(s, tol):
        plan = _iterative_plan(s, "sketch_project", budget, n_landmarks, blocks, tol)
        plan.reason += f", and steps on blocks reach tol={tol:g} first"
    return plan


def _sketch_is_faster(s: Sizes, tol: float) -> bool:
    loose = tol >= _SKETCH_DOWN_TO and s.n * tol >= _SKETCH_FROM_N_TOL
    return s.fused > 0 and s.n >= _SKETCH_FROM and loose


def _iterative_plan(s: Sizes, name: str, budget: int, n_landmarks: Any, blocks: Blocks | None, tol: float) -> Plan:
    base = _iterative_memory(s)
    base.check(budget, "raise memory_budget or fit on fewer rows")
    gram = nbytes_cached(s.n, s.cached_itemsize, s.edge)
    m, store, size = 0, False, 0
    if name == "sketch_project":
        size = _add_sketch(base, s, blocks, budget)
        gram += size * s.n * s.itemsize  # the block's rows, put together from the cached tiles
    elif blocks is not None:
        size = _add_block(base, s, blocks, budget)
    if name == "cg":
        m, store = _landmarks(s, n_landmarks, budget - base.nbytes, tol)
    base.parts["preconditioner"] = _preconditioner_bytes(s, m, store)
    cached = base.nbytes + gram <= budget
    if cached:
        base.parts["kernel matrix"] = gram
        reason = (
            f"one triangle of the kernel matrix ({format_bytes(gram)}) fits the budget of {format_bytes(budget)}: cached"
        )
    else:
        reason = f"the kernel matrix ({format_bytes(gram)}) does not fit the budget of {format_bytes(budget)}: streamed"
        if s.fused:  # fused products with the landmarks cost less than to read what would be held
            store, base.parts["preconditioner"] = False, _preconditioner_bytes(s, m, False)
    base.solver = name
    if m and n_landmarks == "auto":
        reason += f"; {m} landmarks precondition it, as many as save more in products with {s.k + 1} columns than they cost"
    return Plan(name, cached, m, store, base, reason, size)


def cholesky_memory(s: Sizes) -> MemoryEstimate:
    """What one factorisation of all rows holds."""
    copies = 2 if s.on_gpu else 1  # torch factors out of place
    doubled = 8 if s.itemsize == 4 else s.itemsize  # a float32 breakdown is repeated in float64
    matrix = copies * s.n * s.n * doubled
    columns = 6 * s.n * (s.k + 1) * 8
    return MemoryEstimate(
        {"kernel matrix": matrix, "data": s.n * s.d * s.itemsize, "solution": columns}, s.device, "cholesky"
    )


def _iterative_memory(s: Sizes) -> MemoryEstimate:
    workers = 1 if s.on_gpu else blas_threads()
    tiles = (workers + 1) * s.edge * s.edge * s.itemsize * (1 + s.temporaries)
    columns = (_WORKING_COLUMNS + 2 * workers) * s.n * (s.k + 1) * s.itemsize
    as_bytes = 1 if s.device == "cpu" and s.itemsize == 4 else 0  # pixels are kept as bytes too, see gramless._core.grid
    data = s.n * s.d * (s.itemsize + 2 * s.fused + as_bytes)
    return MemoryEstimate({"data": data, "tiles": tiles, "solution": columns}, s.device)


def _block_bytes(s: Sizes, blocks: Blocks, size: int) -> int:
    # Tiles write straight into the block on the CPU; on a device the kernel's temporaries are as large as the block.
    copies = 1 + (s.temporaries if s.device != "cpu" else 0)
    kept = -(-s.n // size) * size * size * s.itemsize if blocks.reused else 0
    return copies * size * (s.n + 1) * s.itemsize + 3 * size * size * 8 + kept


def _add_block(memory: MemoryEstimate, s: Sizes, blocks: Blocks, budget: int) -> int:
    """Count the block in, and return its size: the one asked for, or less where that is left open."""
    memory.parts["solution"] += blocks.columns * s.n * (s.k + 1) * s.itemsize
    size, left = min(blocks.size, s.n + 1), budget - memory.nbytes
    fitting = size
    while fitting > 1 and _block_bytes(s, blocks, fitting) > left:
        fitting = int(fitting * 0.9)
    if blocks.adjustable:
        size = fitting
    memory.parts["block"] = _block_bytes(s, blocks, size)
    memory.check(budget, f"use block_size={fitting} or less, or raise memory_budget")
    return size


def _add_sketch(memory: MemoryEstimate, s: Sizes, blocks: Blocks | None, budget: int) -> int:
    """Count in what a step on a block holds: three solutions, and the block's own square; return the block's size."""
    memory.parts["solution"] += 4 * s.n * (s.k + 1) * s.itemsize
    size = min(s.n, default_block_size(s.n) if blocks is None else blocks.size)
    memory.parts["block"] = 4 * size * size * s.itemsize
    fitting = int(np.sqrt(max(0, budget - memory.nbytes + memory.parts["block"]) / (4 * s.itemsize)))
    memory.check(budget, f"use block_size={max(1, fitting)} or less, or raise memory_budget")
    return size


def _preconditioner_bytes(s: Sizes, m: int, store: bool) -> int:
    # Two matrices in float64 while one is factored; some rows of K(X, landmarks), and twice in float64.
    return 2 * m * m * 8 + 4096 * m * (s.itemsize + 16) + (s.n * m * s.itemsize if store else 0)


def _landmarks(s: Sizes, asked: Any, left: int, tol: float) -> tuple[int, bool]:
    """How many landmarks, and whether `K(X, landmarks)` is held: at most half of the memory that is left."""
    if asked != "auto":
        m = min(int(asked), s.n)
        return m, _preconditioner_bytes(s, m, True) <= left
    m = _LANDMARKS_PER_ROOT_N["cuda" if s.on_gpu else "cpu"] * np.sqrt(s.n)
    if not s.on_gpu:
        columns = max(1.0, (s.k + 1) / _COLUMNS_FOR_FREE)
        iterations = np.log(2 / min(tol, 1.0)) / np.log(2 / _USUAL_TOL)
        m *= (columns * iterations) ** (1 / 3)
    m = int(m)
    m = min(-(-m // _VECTOR) * _VECTOR, s.n // 2)
    if _preconditioner_bytes(s, m, True) <= left // 2:
        return m, True
    while m > 0 and _preconditioner_bytes(s, m, False) > left // 2:
        m = int(m * 0.8)
    return m, False
