"""Inputs of the fit of a support vector machine: its kernel, rows and solver, and the memory, threads and device it may use.

The memory budget is used for a copy of the rows sorted by class, one tile per thread and the state of the solver. The
remainder is divided between the cache of kernel rows and the Gram matrices of working sets, and limits the sizes of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.threads import CPU_TILE, blas_threads
from gramless.kernels.base import Kernel
from gramless.linalg.operators.blocks import workers_for
from gramless.svm.progress import SolverProgress
from gramless.svm.simple_smo import SimpleSMO
from gramless.svm.smo import SMO
from gramless.svm.tuning import TUNING, SVMTuning


@dataclass(frozen=True)
class DualFit:
    """The inputs that all dual problems of one fit share."""

    kernel: Kernel
    X: Any
    solver: SMO | SimpleSMO
    # Bytes for kernel rows and the Gram matrices of working sets; on a device, for everything but the given rows.
    budget: float
    workers: int = 1
    seed: int = 0
    device: str = "cpu"
    progress: SolverProgress = field(default_factory=SolverProgress)
    tuning: SVMTuning = TUNING

    @cached_property
    def largest_value(self) -> float:
        """Largest kernel value."""
        return float(np.max(self.kernel.diag(self.X)))


def fit_budget(memory_budget: Any, cache_size: float | None, kernel: Kernel, X: Any, workers: int, device: str) -> float:
    """Return the bytes for a fit within `memory_budget`, or within `cache_size` megabytes if no budget is given."""
    if device != "cpu":
        return parse_budget(memory_budget, device)
    if memory_budget is not None:
        return row_budget(memory_budget, kernel, X, workers)
    # Kernel values, working sets and temporaries take at most eight times the memory of the Gram matrix and the rows.
    small = 8 * X.shape[0] * (X.shape[0] + X.shape[1]) * X.dtype.itemsize < TUNING.small_fit_bytes
    budget = TUNING.small_fit_bytes if small else row_budget(None, kernel, X, workers)
    return budget if cache_size is None else min(budget, cache_size * 2**20)


def row_budget(memory_budget: Any, kernel: Kernel, X: Any, workers: int) -> int:
    """Return the bytes of the budget that remain beside the sorted copy of the rows and the smallest working sets."""
    copy = X.data.nbytes + X.indices.nbytes if xa.is_sparse(X) else X.nbytes
    memory, budget = _fixed_memory(memory_budget, kernel, X.shape[0], copy, X.dtype.itemsize, workers)
    return budget - memory.nbytes


def svm_memory(memory_budget: Any, kernel: Kernel, n: int, d: int, itemsize: int, device: str = "cpu") -> MemoryEstimate:
    """Return the peak memory of a fit to `n` rows of `d` features; raise MemoryError if it exceeds the budget."""
    many = n * n * (d + TUNING.operations_per_kernel_function) >= TUNING.operations_for_threads
    workers = blas_threads() if many and kernel.thread_safe else 1
    memory, budget = _fixed_memory(memory_budget, kernel, n, n * d * itemsize, itemsize, workers, device)
    all_rows = n * n * itemsize / (1 - TUNING.set_budget_fraction)
    memory.parts["kernel rows"] = int(min(budget - memory.nbytes, all_rows))
    return memory


def row_workers(kernel: Kernel, X: Any, min_operations: float = TUNING.operations_for_threads) -> int:
    """Return the number of threads for kernel rows: 1 if all kernel values take fewer than `min_operations`."""
    operations = X.shape[0] ** 2 * (X.shape[1] + TUNING.operations_per_kernel_function)
    return workers_for(kernel, X) if operations >= min_operations else 1


def _fixed_memory(
    memory_budget: Any, kernel: Kernel, n: int, nbytes: int, itemsize: int, workers: int, device: str = "cpu"
) -> tuple[MemoryEstimate, int]:
    """Return the memory that a fit of `n` rows of `nbytes` bytes in total needs beside kernel rows, and the budget."""
    tile, working_set, budget = min(CPU_TILE, n), min(TUNING.smallest_set, n), parse_budget(memory_budget, device)
    parts = {
        "sorted copy of the data": nbytes if kernel.uses_points else 0,
        "tiles": workers * itemsize * tile**2 * (1 + kernel.temporaries),
        "multipliers and slopes": 8 * TUNING.numbers_per_variable * n,
        "smallest working sets": itemsize * working_set * (2 * workers * working_set + n),
    }
    memory = MemoryEstimate(parts, device)
    memory.check(budget, "raise memory_budget, or fit fewer samples")
    return memory, budget
