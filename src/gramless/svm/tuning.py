"""Thresholds of the dual solvers; each comment gives the unit and the origin of the number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SVMTuning:
    """Sizes and accuracies of the dual solvers; they change the cost of a fit, and its solution only within `tol`."""

    # Variables. Problems up to this size are solved as one working set, because several rounds would take more time than the
    # kernel values that they avoid.
    solved_whole: int = 2048
    # Variables. The Gram matrix and slopes of a set of this size stay in the cache of one core.
    small_set: int = 1024
    # Variables. Larger working sets are solved by rounds over small sets, smaller working sets by one compiled loop.
    largest_direct: int = 1280
    # Variables. Lower bound on the size of a working set for any memory budget.
    smallest_set: int = 64
    # Columns that pad the Gram matrix of a set, because rows that are a power of two apart compete for the same cache lines.
    gram_padding: int = 16
    # Factor by which the violation of a working set falls before the next set is selected.
    set_accuracy: float = 0.1
    # Upper bound on the cost of the moves within a set, in units of the cost of the kernel rows that the set needs.
    moves_per_row_cost: float = 4.0
    # Upper bound on the size of a large working set, as a fraction of the variables of its problem.
    largest_set_fraction: float = 0.25
    # Variables examined in one call of compiled code: about 0.2 s, so that Ctrl-C takes effect.
    variables_per_call: int = 150_000_000

    # Fraction of the memory budget for the Gram matrices of working sets; the remainder stores kernel rows.
    set_budget_fraction: float = 0.25
    # Largest rounding error of slopes that are summed in registers, as a fraction of the tolerance of the optimality
    # conditions. The rounding of float32 kernel values adds a ten times larger error (measured, 20,000 rows).
    rounding_fraction: float = 0.5
    # Numbers of eight bytes for each variable, counted: multipliers, bounds, slopes, gains, costs, temporaries of selection.
    numbers_per_variable: int = 16
    # Rows of a small Gram matrix that are computed at a time; values above the diagonal are copied from below.
    strip_rows: int = 128
    # Operations (multiply-adds) from which kernel values are computed on several threads. Starting and stopping threads
    # takes as long as a few million operations. The first number is for fits that start threads several times, the second
    # for small problems that compute all kernel values in advance, with one start of the threads.
    operations_for_threads: float = 1e8
    operations_for_threads_once: float = 1e7
    # Number of multiply-adds that cost as much as applying the kernel function (an exponential or a power) to one inner
    # product.
    operations_per_kernel_function: int = 32
    # Bytes. A fit with smaller temporaries does not query the free memory.
    small_fit_bytes: int = 2**26
    # Ratio of the memory of dense rows to that of the same rows in sparse format, up to which sparse rows are converted to
    # dense rows: BLAS does about twenty times more multiplications per second than a compiled loop over sparse rows.
    dense_memory_ratio: float = 8.0

    # One-class fits find a starting point by a fit of n / start_divisor rows (with 8, 1/64 of the kernel values).
    start_divisor: int = 8
    # Points. Float32 products are summed over blocks of this size, and the sums of the blocks are added in float64.
    points_per_sum: int = 2048
    # Products with at least this number of kernel values use float32 with an error check; fewer take < 1 s in float64.
    values_for_float32: float = 1e8
    # Number of rows on which the error of a float32 product is measured, and the factor by which the largest measured error
    # is multiplied to bound the error of all rows.
    checked_rows: int = 256
    checked_error_factor: float = 4.0
    # The scores of the n / refined_divisor rows closest to the decision level are recomputed in float64.
    refined_divisor: int = 50

    # Multiple kernel learning: Gram matrices are stored up to this fraction of the memory budget; kernel rows get the rest.
    stored_kernels_fraction: float = 0.7
    # Largest number of alternations between weights and classifier; most fits need at most a few dozen.
    max_alternations: int = 200

    # Solvers on a device. Number of variables of a working set that fits the registers of one multiprocessor.
    device_set: int = 1024
    # Pairs moved in one launch: about 0.2 s, so that Ctrl-C takes effect.
    device_moves_per_call: int = 100_000
    # Largest fractions of the memory budget for the state of the problems, and for the Gram matrices of large sets.
    device_state_fraction: float = 0.25
    device_set_fraction: float = 0.25
    # Largest fraction of the variables in a large set: the Gram matrix of such a set costs little beside its kernel rows.
    device_largest_set_fraction: float = 1 / 64
    # Bytes of a tile of kernel values, enough to occupy all multiprocessors, and the smallest edge of a tile in rows.
    device_tile_bytes: int = 2**28
    device_smallest_tile: int = 256


TUNING = SVMTuning()
