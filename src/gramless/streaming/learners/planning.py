"""Settings of a training pass, and its memory plan: the number of rows per batch and the peak memory by purpose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gramless._core.device import precision_of, storage_of
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.threads import blas_threads
from gramless.approximation.features.base import FeatureMap
from gramless.kernels import as_kernel
from gramless.linalg.planning.plan import ProblemSize
from gramless.linalg.tuning import TUNING as LINALG_TUNING
from gramless.streaming.learners.base import Learner, PassSize
from gramless.streaming.tuning import TUNING, StreamingTuning

_ADVICE = "use fewer landmarks or components, a smaller batch_size, or raise memory_budget"


@dataclass(frozen=True)
class PassOptions:
    """Settings that change the result only by rounding and by the order of stochastic steps."""

    name: str = "the training pass"
    """Name of the estimator in progress and error messages."""
    batch_rows: int | None = None
    """Rows per batch; None is the largest number that the memory budget allows, at most 4096."""
    dtype: Any = None
    device: str | None = None
    memory_budget: Any = None
    verbose: int = 0

    def budget(self, device: str) -> int:
        """Return the memory budget on `device` in bytes."""
        return parse_budget(self.memory_budget, device)


class PassSettings(NamedTuple):
    """The feature map, the learner and the options of a training pass."""

    feature_map: FeatureMap
    learner: Learner
    options: PassOptions


@dataclass
class BatchPlan:
    """Rows per batch and the peak memory of a training pass."""

    batch_rows: int
    memory: MemoryEstimate
    solver: str = "sums"
    """`"sums"` to add up sums or make gradient steps, `"cg"` for conjugate gradients with one pass per iteration."""
    reason: str = "the normal equations were added up in one pass"
    """Reason for the choice of the solver."""
    stored: str | None = None
    """Cache of conjugate gradients between passes: `"values"` of the kernel, the `"rows"`, or None for no cache."""
    block_bytes: int = 0
    """Bytes of kernel values that each thread computes at a time in conjugate gradients."""


def plan_pass(
    settings: PassSettings,
    size: PassSize,
    *,
    repeatable: bool = True,
    in_memory: bool = True,
    tuning: StreamingTuning = TUNING,
) -> BatchPlan:
    """Return the plan of a fit; raise MemoryError if the budget is too small, ValueError for unsupported settings of "cg".

    `repeatable` means that the rows can be read several times, and `in_memory` that reading the rows again has no cost.
    """
    learner: Any = settings.learner
    if getattr(learner, "solver", "sums") == "sums":
        return _plan_sums(settings, size, tuning)
    reason, needs = "", learner.needs_sums()
    if needs:
        reason = f"{needs} needs the sums of the normal equations"
        if learner.solver != "auto":
            raise ValueError(f"{reason}: use solver='sums' or 'auto'")
    elif not repeatable:
        reason = "the rows can be read only once, and conjugate gradients need several passes"
    elif size.n is None and learner.solver == "auto":
        reason = "the number of rows is unknown before they are read"
    if reason:
        return replace(_plan_sums(settings, size, tuning), reason=reason)
    if learner.solver != "auto":
        return replace(_plan_cg(settings, size, in_memory, tuning), reason=f"solver={learner.solver!r}")
    return _cheaper_plan(settings, size, in_memory, tuning)


def _cheaper_plan(settings: PassSettings, size: PassSize, in_memory: bool, tuning: StreamingTuning) -> BatchPlan:
    """Return the plan with fewer operations, by sums or by conjugate gradients, or the only plan that fits the budget."""
    assert size.n is not None
    m = settings.feature_map.n_features(size.n)
    # Number of float64 multiplications. On a CPU, one triangle of `Phi^T Phi` is computed, and float64 features `Phi` are
    # whitened first, which takes as many multiplications as the triangle.
    sums = float(size.n) * m**2 * (1.0 if size.on_gpu or size.dtype == np.float64 else 0.5)
    if size.on_gpu:
        value = tuning.kernel_value_cuda
    else:
        # A float64 multiplication in BLAS takes as long as four multiplications in the compiled loops of float32 kernels.
        value = (size.d + tuning.kernel_value_cpu) * size.dtype.itemsize / 16 + tuning.products_of_value * (size.k + 1)
    cg = tuning.planned_passes * float(size.n) * m * value + float(m) ** 3 / 2
    try:
        by_passes = _plan_cg(settings, size, in_memory, tuning)
    except MemoryError as error:
        return replace(_plan_sums(settings, size, tuning), reason=f"conjugate gradients exceed the memory budget: {error}")
    try:
        by_sums = _plan_sums(settings, size, tuning)
    except MemoryError as error:
        return replace(by_passes, reason=f"the sums of the normal equations exceed the memory budget: {error}")
    faster = tuning.smallest_saving * cg < sums
    reason = (
        f"sums need {sums:.1e} multiplications and {format_bytes(by_sums.memory.nbytes)}, conjugate gradients {cg:.1e} in "
        f"{tuning.planned_passes} passes and {format_bytes(by_passes.memory.nbytes)}; these are chosen if they need less "
        f"than 1/{tuning.smallest_saving:g} of the multiplications"
    )
    return replace(by_passes if faster else by_sums, reason=reason)


def _plan_sums(settings: PassSettings, size: PassSize, tuning: StreamingTuning) -> BatchPlan:
    """Return the plan of one pass that adds up sums, or of the epochs of gradient descent."""
    feature_map, learner, options = settings
    p, itemsize = feature_map.n_features(size.n), size.dtype.itemsize
    memory = MemoryEstimate({**learner.memory(p, size), "landmarks": p * size.d * (itemsize + 8)}, size.device)
    # Bytes per row: the features twice, the row as read and as converted, encoded targets, and indices of sparse rows.
    per_row = (2 * p + 4 * size.d + 4 * size.k) * itemsize + 3 * size.d * 8
    budget = options.budget(size.device)
    affordable = max((budget - memory.nbytes) // per_row, tuning.smallest_batch)
    rows = options.batch_rows or int(min(tuning.largest_batch, affordable))
    memory.parts["batches"] = rows * per_row
    memory.check(budget, _ADVICE)
    memory.parts |= learner.optional_memory(feature_map, p, size, budget, budget - memory.nbytes)
    if memory.nbytes > budget and options.batch_rows is None:
        rows = int(max(tuning.smallest_batch, rows - -(-(memory.nbytes - budget) // per_row)))
        memory.parts["batches"] = rows * per_row
    memory.check(budget, _ADVICE)
    return BatchPlan(rows, memory)


def _plan_cg(settings: PassSettings, size: PassSize, in_memory: bool, tuning: StreamingTuning) -> BatchPlan:
    """Return the plan of conjugate gradients: the number of rows per batch, and the cache between the passes."""
    feature_map, _, options = settings
    m, itemsize, budget = feature_map.n_features(size.n), size.dtype.itemsize, options.budget(size.device)
    kernel = as_kernel(feature_map.kernel)
    precision, storage = precision_of(options.device), storage_of(options.device)
    shape = ProblemSize(size.n or 1, size.d, size.k, size.dtype, size.device, kernel, storage, precision)
    block = LINALG_TUNING.normal_block_bytes_cuda if size.on_gpu else LINALG_TUNING.normal_block_bytes_cpu
    if size.n is not None:
        block = min(block, size.n * m * itemsize)
    threads = 1 if size.on_gpu else blas_threads()
    block = max(min(block, budget // (tuning.block_share * threads)), LINALG_TUNING.smallest_normal_block * m * itemsize)
    edge = min(m, LINALG_TUNING.factor_edge)
    parts = {
        "factors of the landmarks' kernel matrix": 8 * m * m,
        "tiles of the factorisation": 8 * m * edge * (4 + kernel.temporaries),
        "landmarks": m * size.d * (itemsize + 8),
        "vectors": LINALG_TUNING.working_columns * m * (size.k + 1) * 8,
    }
    if not shape.fused:
        # For each thread: kernel values, temporary arrays of the kernel, and a float64 copy of blocks that compiled loops do
        # not multiply. For all threads together: sums of groups of blocks.
        parts["blocks of kernel values"] = block * (threads * (1 + kernel.temporaries + 8 // itemsize) + 1)
    memory = MemoryEstimate(parts, size.device)
    # Bytes per row: the row as read, converted and on the device, in the current and in the next batch; targets and weights.
    fused_row = shape.fused * 2 * (size.d + 64)
    per_row = 2 * (2 * size.d * itemsize + 8 * size.d) + fused_row + 6 * (size.k + 1) * 8
    affordable = max((budget - memory.nbytes) // (2 * per_row), tuning.smallest_batch)
    largest = tuning.largest_pass_batch_cuda if size.on_gpu else tuning.largest_pass_batch_cpu
    rows = options.batch_rows or int(min(largest, affordable))
    memory.parts["batches"] = rows * per_row
    memory.check(budget, _ADVICE)
    left, stored = budget - memory.nbytes, None
    if size.n is not None:
        values = size.n * m * (itemsize if storage is None else 2)
        kept_rows = size.n * (size.d * itemsize + fused_row + 8)
        if not shape.fused and values <= left:
            stored, memory.parts["kernel values"] = "values", values
        elif kept_rows <= left and (size.on_gpu or not in_memory):
            stored, memory.parts["rows"] = "rows", kept_rows
    return BatchPlan(rows, memory, "cg", stored=stored, block_bytes=block)
