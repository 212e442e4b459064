"""Memory, threads and device of the fit of a support vector machine.

The budget is used for a copy of the rows sorted by class, one tile per thread and the state of the solver; the remainder is
divided between the cache of kernel rows and the Gram matrices of working sets, whose sizes follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gramless._core import arrays as xa
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.threads import CPU_TILE, blas_threads
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import workers_for
from gramless.svm.progress import SolverProgress
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO
from gramless.svm.tuning import TUNING, SVMTuning


@dataclass(frozen=True)
class FitResources:
    """Memory for kernel rows in bytes, number of threads, random seed and device of a fit."""

    budget: float
    workers: int
    seed: int
    device: str = "cpu"


@dataclass(frozen=True)
class DualFit:
    """The inputs that all dual problems of one fit share."""

    kernel: Kernel
    X: Any
    solver: SMO | SimpleSMO
    resources: FitResources
    progress: SolverProgress = field(default_factory=SolverProgress)


def fit_resources(
    kernel: Kernel,
    X: Any,
    seed: int,
    device: str,
    memory_budget: Any,
    cache_size: float | None = None,
    tuning: SVMTuning = TUNING,
) -> FitResources:
    """Return the resources within `memory_budget`, or within `cache_size` megabytes if only that is given."""
    if device != "cpu":
        return FitResources(parse_budget(memory_budget, device), 1, seed, device)
    # Kernel values, working sets and temporaries take at most the memory of eight matrices.
    small = 8 * X.shape[0] ** 2 * X.dtype.itemsize + 8 * X.shape[0] * X.shape[1] * X.dtype.itemsize < tuning.small_fit_bytes
    if memory_budget is None and small:
        resources = FitResources(tuning.small_fit_bytes, _row_workers(kernel, X, tuning), seed)
    else:
        resources = row_resources(memory_budget, kernel, X, seed, tuning)
    if cache_size is None or memory_budget is not None:
        return resources
    return replace(resources, budget=min(resources.budget, cache_size * 2**20))


def row_resources(memory_budget: Any, kernel: Kernel, X: Any, seed: int, tuning: SVMTuning = TUNING) -> FitResources:
    """Return the resources on the CPU: the budget left for kernel rows after the sorted copy and the working sets."""
    workers = _row_workers(kernel, X, tuning)
    copy = X.data.nbytes + X.indices.nbytes if xa.is_sparse(X) else X.nbytes
    fixed = sum(_fixed_memory(kernel, X.shape[0], copy, X.dtype.itemsize, workers, tuning).values())
    budget = parse_budget(memory_budget)
    if budget < fixed:
        raise MemoryError(
            f"the fit needs {format_bytes(fixed)} besides kernel rows (a sorted copy of the data and the working sets) and "
            f"memory_budget allows {format_bytes(budget)}; raise memory_budget, or fit fewer samples"
        )
    return FitResources(budget - fixed, workers, seed)


def svm_memory(
    memory_budget: Any, kernel: Kernel, n: int, d: int, itemsize: int, device: str = "cpu", tuning: SVMTuning = TUNING
) -> MemoryEstimate:
    """Return the peak memory of a fit to `n` rows of `d` features; raise MemoryError if it exceeds the budget."""
    many = n * n * (d + tuning.operations_per_kernel_function) >= tuning.operations_for_threads
    workers = blas_threads() if many and kernel.thread_safe else 1
    memory = MemoryEstimate(_fixed_memory(kernel, n, n * d * itemsize, itemsize, workers, tuning), device)
    budget = parse_budget(memory_budget, device)
    memory.check(budget, "raise memory_budget, or fit fewer samples")
    all_rows = n * n * itemsize / (1 - tuning.set_budget_fraction)
    memory.parts["kernel rows"] = int(min(budget - memory.nbytes, all_rows))
    return memory


def workers_for_values(kernel: Kernel, X: Any, tuning: SVMTuning = TUNING) -> int:
    """Return the number of threads that compute all kernel values once; 1 if there are few kernel values."""
    return workers_for(kernel, X) if _operations(X, tuning) >= tuning.operations_for_threads_once else 1


def _row_workers(kernel: Kernel, X: Any, tuning: SVMTuning) -> int:
    return workers_for(kernel, X) if _operations(X, tuning) >= tuning.operations_for_threads else 1


def _operations(X: Any, tuning: SVMTuning) -> float:
    """Return the approximate number of operations for all kernel values of the rows."""
    return X.shape[0] ** 2 * (X.shape[1] + tuning.operations_per_kernel_function)


def _fixed_memory(kernel: Kernel, n: int, nbytes: int, itemsize: int, workers: int, tuning: SVMTuning) -> dict[str, int]:
    """Return the bytes, by name, that a fit of `n` rows with `nbytes` in total allocates in addition to kernel rows."""
    tile, working_set = min(CPU_TILE, n), min(tuning.smallest_set, n)
    return {
        "sorted copy of the data": nbytes if kernel.uses_points else 0,
        "tiles": workers * itemsize * tile**2 * (1 + kernel.temporaries),
        "multipliers and slopes": 8 * tuning.numbers_per_variable * n,
        "smallest working sets": itemsize * working_set * (2 * workers * working_set + n),
    }
