"""Choice of the solver, the cache and the landmarks from problem sizes and memory, before anything is computed.

A preconditioner with `m` landmarks costs O(n m^2). The solver then needs O(log(1 / tol) / m) iterations, each of which costs
O(n^2) for every column of the right-hand side. The total cost is smallest if `m` grows with the cube root of the product
of log(1 / tol) and the number of columns. With a small `C` few eigenvalues exceed the ridge, and fewer landmarks suffice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gramless._core import arrays as xa
from gramless._core.device import PRECISIONS
from gramless._core.memory import COMPILED_LOOPS, MemoryEstimate, format_bytes
from gramless._core.threads import CPU_TILE, CUDA_TILE, blas_threads
from gramless._core.validation import check_choice
from gramless.kernels.base import Kernel
from gramless.linalg.operators import nbytes_cached
from gramless.linalg.operators.blocks import is_register_problem, recomputing_is_faster
from gramless.linalg.operators.fused import fused_form, has_triton
from gramless.linalg.solvers import SOLVERS, Averaged, SketchProject, Solver
from gramless.linalg.solvers.sketch_project import default_block_size
from gramless.linalg.tuning import TUNING, LinalgTuning


@dataclass
class FitPlan:
    """Plan of a fit that consists of a memory estimate alone."""

    memory: MemoryEstimate


@dataclass
class SolverPlan:
    """Plan of a least-squares solve: solver, whether the kernel matrix is cached, and landmarks of the preconditioner."""

    solver: str
    cached: bool
    n_landmarks: int
    store_landmarks: bool
    memory: MemoryEstimate
    reason: str
    block_size: int = 0
    """Number of rows in a block; 0 for solvers that do not use blocks."""
    probes: SolverPlan | None = None
    """Plan of the solve that estimates the diagonal of the inverse for leave-one-out scores; None without an estimate."""


@dataclass
class ProblemSize:
    """Sizes on which the memory and the time of a fit of `n` rows of `d` features with `k` outputs depend.

    `storage` and `precision` are options of the device, `triton=None` tests whether Triton is installed, and `dense` means
    that the operator is a `KernelOperator` of dense rows.
    """

    n: int
    d: int
    k: int
    dtype: Any
    device: str
    kernel: Kernel
    storage: str | None = None
    precision: str = "highest"
    triton: bool | None = None
    dense: bool = False
    tuning: LinalgTuning = TUNING

    def __post_init__(self) -> None:
        self.itemsize, self.temporaries = np.dtype(self.dtype).itemsize, self.kernel.temporaries
        self.cached_itemsize = self.itemsize if self.storage is None else 2
        self.on_gpu = self.device.startswith("cuda")
        self.workers = 1 if self.on_gpu else blas_threads()
        self.edge = min(self.n, CUDA_TILE if self.on_gpu else CPU_TILE)  # rows of a tile
        available = has_triton() if self.triton is None else self.triton
        fuses = self.on_gpu and self.itemsize == 4 and available and fused_form(self.kernel) is not None
        copies = {"highest": 0, "high": 2, "medium": 1}[check_choice("precision", self.precision, PRECISIONS)]
        # Number of half-precision copies of the data that fused products store; 0 if products are not fused.
        self.fused = copies if fuses else 0
        # Whether uncached products compute the kernel values in registers, from two more copies of the rows.
        self.in_registers = self.dense and self.device == "cpu" and is_register_problem(self.kernel, self.n, self.d)


def solver_name(solver: str | Solver) -> str:
    """Return the registered name of a solver, `"auto"`, or the name of the class if it is not registered."""
    if isinstance(solver, Averaged):
        return solver_name(solver.solver)
    if isinstance(solver, Solver):
        return next((name for name, cls in SOLVERS.items() if type(solver) is cls), type(solver).__name__)
    return check_choice("solver", solver, {"auto", *SOLVERS})


def _method(solver: str | Solver) -> Solver:
    """Return a solver object: with default parameters for a name, and for `Averaged` the run with the largest blocks."""
    if isinstance(solver, Averaged):
        return max(map(_method, solver.runs()), key=lambda run: getattr(run, "block_size", 0))
    return solver if isinstance(solver, Solver) else SOLVERS[solver]()


def make_plan(s: ProblemSize, solver: str | Solver, budget: int, *, tol: float = 1e-3, C: float = np.inf) -> SolverPlan:
    """Return the plan of a solve; raise a `MemoryError` that names the parameter to change if the memory is too small.

    `C` (inverse regularisation strength) predicts whether conjugate gradients need few iterations, but only for kernels with
    `k(x, x) = 1`: pass infinity for other kernels.
    """
    tuning, name = s.tuning, solver_name(solver)
    largest = tuning.cholesky_max_rows_cuda if s.on_gpu else tuning.cholesky_max_rows_cpu
    if not s.on_gpu and tol >= tuning.planned_tol and tuning.few_iterations_C >= C:
        largest = tuning.cholesky_max_rows_small_C
    if name == "cholesky" or (name == "auto" and s.n <= largest):
        memory = cholesky_memory(s)
        if name == "cholesky" or memory.nbytes <= budget:
            memory.check(budget, "use solver='cg', which streams the kernel matrix, or raise memory_budget")
            return SolverPlan("cholesky", False, 0, False, memory, f"n={s.n} is small enough for one factorisation")
    plan = _iterative_plan(s, "cg" if name == "auto" else solver, budget, tol, C)
    loose = tol >= tuning.sketch_min_tol and s.n * tol >= tuning.sketch_min_rows_times_tol
    if name == "auto" and not plan.cached and s.fused and s.n >= tuning.sketch_min_rows and loose:
        plan = _iterative_plan(s, "sketch_project", budget, tol, C)
        plan.reason += f", and steps on blocks reach tol={tol:g} first"
    return plan


def with_leave_one_out(plan: SolverPlan, s: ProblemSize, budget: int) -> SolverPlan:
    """Return the plan extended by leave-one-out scores after the solve: exact for few rows, else from random probes."""
    memory, probes = leave_one_out_memory(s), None
    if plan.solver != "cholesky":
        memory.parts["memory freed by the solver (the allocator may keep it)"] = plan.memory.nbytes
    if s.n > s.tuning.exact_leave_one_out_max_rows or memory.nbytes > budget:
        columns = s.tuning.n_probes + 1  # random signs, and a column of ones
        probes = make_plan(ProblemSize(s.n, s.d, columns, s.dtype, s.device, s.kernel), "cg", budget)
        memory = probes.memory
    return replace(plan, probes=probes, memory=max(plan.memory, memory, key=lambda estimate: estimate.nbytes))


def leave_one_out_memory(s: ProblemSize) -> MemoryEstimate:
    """Estimate the memory of the exact diagonal of the inverse: one float64 matrix, or three with torch."""
    copies = 3 if s.device != "cpu" else 1  # torch factors and inverts out of place
    parts = {
        "inverse factor": copies * s.n * s.n * 8,
        "scores": 4 * s.n * (s.k + 1) * 8,
        "points in float64": _double_points_bytes(s),
    }
    return MemoryEstimate(parts, s.device)


def leave_one_out_path_plan(s: ProblemSize, n_Cs: int, budget: int) -> SolverPlan:
    """Plan the comparison of `n_Cs` values of C by one eigendecomposition, or by a factorisation for each of them."""
    data = s.n * s.d * s.itemsize
    parts = {
        "kernel matrix and eigenvectors": 3 * s.n * s.n * 8,
        "path": 3 * n_Cs * s.n * (s.k + 1) * 8,
        "data": data,
        "points in float64": _double_points_bytes(s),
    }
    memory = MemoryEstimate(parts, s.device, "eigenvectors")
    if memory.nbytes <= budget:
        return SolverPlan("eigenvectors", False, 0, False, memory, "one eigendecomposition gives the models of all C")
    memory = leave_one_out_memory(s)
    memory.parts |= {"data": data, "best model": 4 * s.n * (s.k + 1) * 8}
    memory.check(budget, "leave-one-out needs the full kernel matrix: search on a subset, or give C a number")
    reason = "one factorisation for each C, because the eigenvectors of the kernel matrix exceed the memory budget"
    return SolverPlan("cholesky", False, 0, False, memory, reason)


def _double_points_bytes(s: ProblemSize) -> int:
    """Count the bytes that a float64 kernel matrix needs for its points: a copy of float32 rows, and two centred tiles."""
    copy = s.n * s.d * 8 if s.itemsize < 8 else 0
    return copy + 2 * min(s.n, s.workers * s.edge) * s.d * 8


def cholesky_memory(s: ProblemSize) -> MemoryEstimate:
    """Estimate the memory of a Cholesky factorisation of the kernel matrix of all rows."""
    copies = 2 if s.on_gpu else 1  # torch factors out of place
    # Eight bytes for each entry, because a float32 factorisation that fails is repeated in float64.
    parts = {
        "kernel matrix": copies * s.n * s.n * 8,
        "data": s.n * s.d * s.itemsize,
        "solution": 6 * s.n * (s.k + 1) * 8,
    }
    return MemoryEstimate(parts, s.device, "cholesky")


def _iterative_plan(s: ProblemSize, solver: str | Solver, budget: int, tol: float, C: float) -> SolverPlan:
    name, method = solver_name(solver), _method(solver)
    gram = nbytes_cached(s.n, s.cached_itemsize, s.edge)
    recomputed = name == "cg" and s.in_registers and recomputing_is_faster(s.d, s.k + 1, s.itemsize)
    base = _iterative_memory(s, recomputed)
    if recomputed and gram < s.tuning.min_recomputed_bytes:
        # A small matrix is cached if it fits half of the memory left by the tiles; the preconditioner takes at most half.
        with_tiles = _iterative_memory(s, False)
        if 2 * gram <= budget - with_tiles.nbytes:
            recomputed, base = False, with_tiles
    base.check(budget, "raise memory_budget or fit on fewer rows")
    size = _add_block(base, s, method, budget, adjustable=isinstance(solver, str))
    if isinstance(method, SketchProject):
        gram += size * s.n * s.itemsize  # the rows of a block, gathered from the cached tiles
    m, store, requested = 0, False, getattr(method, "n_landmarks", 0)
    if name == "cg":
        m, store = _landmarks(s, requested, budget - base.nbytes, tol, C)
    base.parts["preconditioner"] = _preconditioner_bytes(s, m, store)
    cached = base.nbytes + gram <= budget and not recomputed
    if recomputed:
        reason = f"recomputing kernel values of {s.d} features in each product is faster than storing and reading them"
    elif cached:
        base.parts["kernel matrix"] = gram
        reason = (
            f"one triangle of the kernel matrix ({format_bytes(gram)}) fits the budget of {format_bytes(budget)}: cached"
        )
    else:
        reason = f"the kernel matrix ({format_bytes(gram)}) does not fit the budget of {format_bytes(budget)}: streamed"
        if s.fused:  # fused products with the landmarks are faster than reading stored columns
            store, base.parts["preconditioner"] = False, _preconditioner_bytes(s, m, False)
    base.solver = name
    if m and requested == "auto":
        reason += f"; {m} landmarks precondition it, as many as save more in products with {s.k + 1} columns than they cost"
    return SolverPlan(name, cached, m, store, base, reason, size)


def _iterative_memory(s: ProblemSize, recomputed: bool) -> MemoryEstimate:
    tiles = 0 if recomputed else (s.workers + 1) * s.edge * s.edge * s.itemsize * (1 + s.temporaries)
    columns = (s.tuning.working_columns + 2 * s.workers) * s.n * (s.k + 1) * s.itemsize
    as_bytes = 1 if s.device == "cpu" and s.itemsize == 4 else 0  # a copy of pixels as bytes, see gramless._core.grid
    data = s.n * s.d * (s.itemsize * (3 if s.in_registers else 1) + 2 * s.fused + as_bytes)
    return MemoryEstimate({"data": data, "tiles": tiles, "solution": columns}, s.device)


def _add_block(memory: MemoryEstimate, s: ProblemSize, method: Solver, budget: int, *, adjustable: bool) -> int:
    """Add the block of a solver to the estimate; return its number of rows, reduced to fit the budget if `adjustable`."""
    square, size = isinstance(method, SketchProject), getattr(method, "block_size", 0)
    if square:
        size, adjustable = size or default_block_size(s.n), False
    if not size:
        return 0

    def nbytes(size: int) -> int:
        if square:  # of the block's rows, only the square diagonal block is stored
            return 4 * size * size * s.itemsize
        # On the CPU tiles are written into the block; on a device the kernel's temporaries are as large as the block.
        copies = 1 + (s.temporaries if s.device != "cpu" else 0)
        factors = -(-s.n // size) * size * size * s.itemsize if getattr(method, "reuse_blocks", False) else 0
        return copies * size * (s.n + 1) * s.itemsize + 3 * size * size * 8 + factors

    columns = 4 if square else 2 * int(getattr(method, "momentum", 0))  # arrays for past steps, as large as the solution
    memory.parts["solution"] += columns * s.n * (s.k + 1) * s.itemsize
    # The bordered matrix of solvers that read full rows has one more row.
    size, left = min(size, s.n if square else s.n + 1), budget - memory.nbytes
    fitting = size
    while fitting > 1 and nbytes(fitting) > left:
        fitting = int(fitting * 0.9)
    if adjustable:
        size = fitting
    memory.parts["block"] = nbytes(size)
    memory.check(budget, f"use block_size={fitting} or less, or raise memory_budget")
    return size


def _preconditioner_bytes(s: ProblemSize, m: int, store: bool) -> int:
    # Two float64 matrices during the factorisation, and a part of K(X, landmarks) in float64. A part that is computed, or
    # that is on a device, has temporary copies too.
    copies = 8 if store and not s.on_gpu else s.itemsize + 16
    return 2 * m * m * 8 + s.tuning.rows_per_part * m * copies + (s.n * m * s.itemsize if store else 0)


def _landmarks(s: ProblemSize, requested: int | str, left: int, tol: float, C: float) -> tuple[int, bool]:
    """Return the number of landmarks and whether `K(X, landmarks)` is stored; `"auto"` takes up to half of `left` bytes."""
    tuning = s.tuning
    if requested != "auto":
        m = min(int(requested), s.n)
        return m, _preconditioner_bytes(s, m, True) <= left
    wanted = (tuning.landmarks_per_root_n_cuda if s.on_gpu else tuning.landmarks_per_root_n_cpu) * np.sqrt(s.n)
    if not s.on_gpu:
        columns = max(1.0, (s.k + 1) / tuning.free_columns)
        iterations = np.log(2 / min(tol, 1.0)) / np.log(2 / tuning.reference_tol)
        wanted *= (columns * iterations) ** (1 / 3)
        wanted *= np.clip((C / tuning.landmarks_reference_C) ** 0.25, tuning.smallest_landmark_fraction, 1.0)
    multiple = tuning.landmark_multiple
    m = min(-(-int(wanted) // multiple) * multiple, s.n // 2)
    if _preconditioner_bytes(s, m, True) <= left // 2:
        return m, True
    while m > 0 and _preconditioner_bytes(s, m, False) > left // 2:
        m = int(m * 0.8)
    return m, False


def estimate(estimator: Any, n: int, d: int, n_classes: int = 2, *, dtype: Any = None) -> MemoryEstimate:
    """Return the peak memory of `estimator.fit` on `n` rows of `d` features, part by part.

    The estimate includes the data as the fit stores them, and excludes the memory of loaded libraries. Compiled loops are
    loaded once in a process, when a fit first needs them; the attribute `loading` is an upper bound on their memory.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package, fitted or not.
    n, d : int
        Number of rows and of features; if rows are images, `d` is the number of pixels.
    n_classes : int, default=2
        Number of classes, or of outputs of a regressor.
    dtype : dtype, default=None
        Floating-point precision of the computation; None uses the `dtype` of the estimator, or float32 if this is None too.

    Returns
    -------
    MemoryEstimate
        Peak memory, with the attributes `nbytes`, `parts`, `loading` and `device`; its `str` is a sentence.

    Raises
    ------
    MemoryError
        If no solver stays within `memory_budget`.

    See Also
    --------
    LSSVC : Plans its fit within `memory_budget` and gives the reason in `solver_reason_`.

    Examples
    --------
    >>> from gramless import LSSVC, estimate
    >>> estimate(LSSVC(solver="cg", memory_budget="12GB"), n=60_000, d=784, n_classes=10).nbytes < 12e9
    True
    """
    if isinstance(estimator, type):
        raise TypeError(f"estimate() takes an estimator with its settings: {estimator.__name__}(...), not the class itself")
    if not hasattr(estimator, "_fit_plan"):
        raise TypeError(f"estimate() takes an estimator of gramless, such as LSSVC, got {type(estimator).__name__}")
    own = getattr(estimator, "dtype", None)
    chosen = np.dtype(dtype if dtype is not None else own if own is not None else np.float32)
    outputs = 1 if n_classes <= 2 and is_classifier(estimator) else n_classes
    device = xa.resolve_device(getattr(estimator, "device", None))
    memory: MemoryEstimate = estimator._fit_plan(n, d, outputs, chosen, device).memory
    memory.loading = sum(COMPILED_LOOPS.values()) if memory.device == "cpu" else 0
    return memory
