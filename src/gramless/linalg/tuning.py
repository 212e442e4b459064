"""Thresholds of operators, plans and solvers, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinalgTuning:
    """Tunable numbers of `gramless.linalg`; tests pass another instance with `dataclasses.replace`."""

    # Plans. "Measured" without a file means timed on the CPU of the benchmarks in docs/performance.md.
    cholesky_max_rows_cpu: int = 4096
    """Rows up to which one Cholesky factorisation is faster than preconditioned conjugate gradients (CG); measured."""
    cholesky_max_rows_small_C: int = 2560
    """`cholesky_max_rows_cpu` for `tol="auto"` and C up to `few_iterations_C`; measured with 3,450 and 4,000 rows."""
    few_iterations_C: float = 10.0
    """Largest C at which CG with `tol="auto"` needs only 2 to 20 iterations, for kernels with k(x, x) = 1; measured."""
    cholesky_max_rows_cuda: int = 16384
    """Rows up to which one Cholesky factorisation is faster than CG on a CUDA device; measured on an H200."""
    landmarks_per_root_n_cpu: float = 7.0
    """Landmarks of the preconditioner divided by sqrt(rows) on a CPU, where float64 products are costly; measured."""
    landmarks_reference_C: float = 100.0
    """C at which `landmarks_per_root_n_cpu` was measured. A smaller C needs fewer iterations and so fewer landmarks: their
    number falls with the fourth root of C to `smallest_landmark_fraction`; measured on five problems at C = 1 to 100."""
    smallest_landmark_fraction: float = 0.57
    """Factor of the number of landmarks for C of at most 10; still fewer landmarks save no more time."""
    landmarks_per_root_n_cuda: float = 12.0
    """Landmarks divided by sqrt(rows) on a CUDA device, where float64 products are as fast as float32 products."""
    landmark_multiple: int = 32
    """The number of landmarks is rounded up to this multiple, so that compiled products have full vectors."""
    free_columns: int = 6
    """Right-hand sides up to which a product with a cached matrix takes only the time of reading the matrix; measured."""
    reference_tol: float = 1e-3
    """Tolerance of CG at which the numbers of landmarks above were measured."""
    sketch_min_rows: int = 400_000
    """Rows from which the solver `sketch_project` reaches a residual of 0.1 before CG does; benchmarks/gpu.py, crossover."""
    sketch_min_tol: float = 0.05
    """Smallest tolerance for which `solver="auto"` selects `sketch_project`; benchmarks/gpu.py, crossover."""
    sketch_min_rows_times_tol: float = 40_000.0
    """Smallest product of rows and tolerance for `sketch_project`: from 800,000 rows on it reaches 0.05 before CG."""
    working_columns: int = 20
    """Arrays as large as the right-hand sides that CG, preconditioner and threads have allocated at the peak; counted."""
    exact_leave_one_out_max_rows: int = 12_000
    """Rows up to which leave-one-out uses the exact diagonal of the inverse: O(n^3), a minute on two cores for this size."""
    n_probes: int = 24
    """Random sign vectors that estimate the diagonal of the inverse. The error is 7 % for each entry, and 0.001 for the mean
    probability on MNIST, because sigmoids are fitted to the scores of all rows together."""

    # Stopping rule of tol="auto".
    error_fraction: float = 0.05
    """Ratio of residual norm to training error at which predictions have converged: squared errors then change by 0.25 %."""
    value_tol: float = 1e-3
    """Relative residual at which every solve with `tol="auto"` stops, for regression and for solvers other than CG."""
    label_tol: float = 5e-3
    """Relative residual at which CG with `tol="auto"` stops for class targets: only the sign or the largest score counts."""
    planned_tol: float = 1e-2
    """Typical residual at which predictions converge; plans choose the size of the preconditioner for this residual."""

    # Tiles and threads.
    min_operations_for_bytes: float = 5e9
    """Multiplications from which byte rows save more time than their conversion and loading of the loops (1 s) take."""
    min_values_for_registers: int = 1 << 20
    """Kernel values from which the compiled Gaussian loop, which takes 1 s to load once, is used."""
    small_tile_edge: int = 256
    """Rows of a tile of a small kernel expansion; such tiles have too few values for a kernel to load compiled loops."""
    max_register_features: int = 128
    """Features up to which products with an uncached Gaussian matrix compute its values in registers: two copies of the
    points in the layout of the compiled loop are then small beside the solution."""
    min_recomputed_bytes: int = 1 << 26
    """Bytes of a kernel matrix from which recomputing may be faster than reading; a smaller matrix fits the CPU cache."""
    instructions_per_stored_value: float = 5.0
    """Number of vector instructions, per 32-bit value of a vector, that take as long as storing a vector of kernel values
    and reading it in ten products: 80 with AVX-512, 40 with AVX2; measured with 60,000 rows of 8 to 54 features."""
    exponential_instructions: int = 14
    """Vector instructions of the exponential in float32; counted."""
    exponential_instructions_double: int = 21
    """Vector instructions of the exponential in float64; counted."""
    operations_per_exponential: int = 30
    """Multiplications in a matrix product that take as long as one exponential; measured."""
    min_operations_for_threads: float = 1e7
    """Multiplications that take as long as starting and joining threads; measured."""
    most_parts: int = 16
    """Largest number of parts into which rows are divided for threads: one for each core of a usual computer."""
    few_values: int = 250_000
    """Kernel values up to which a block is computed at once, because tiles and threads would take longer (0.70 instead of
    0.37 ms for 100 rows and 2,000 points); this is below the number from which a kernel loads compiled loops."""
    smallest_device_tile: int = 256
    """Rows of a tile below which a device that is out of memory raises an error instead of halving the tiles."""
    rows_per_part: int = 4096
    """Rows of a tall matrix that are converted to float64 at a time: 32 kB for each column."""
    sparse_rows_on_device: int = 8192
    """Sparse rows that are converted to dense rows on a device at a time."""
    max_narrow_columns: int = 6
    """Right-hand sides up to which float64 sums of products with a float32 matrix take no longer than reading the matrix."""
    max_compiled_double_columns: int = 48
    """Right-hand sides beyond which BLAS on a float64 copy is faster than compiled loops; benchmarks/cpu_products.py."""
    min_entries_to_compile: int = 1 << 22
    """Matrix entries from which the compiled loops save more time than loading them takes (1 s, once in a process)."""
    triangle_rows: int = 256
    """Rows of a triangular matrix that are multiplied at a time; the diagonal block of these rows is copied."""

    row_alignment: int = 16
    """Rows of a block of a bordered matrix start at multiples of this number of entries: 64 bytes in float32, as the matrix
    units of a GPU require."""
    largest_relative_jitter: float = 1e-2
    """Largest jitter, relative to the largest diagonal entry; a matrix that needs more is not positive semi-definite."""
    fused_columns: int = 64
    """Largest number of bfloat16 columns of the right-hand side in one launch of the GPU kernel of `operators.fused`."""
    half_strip_time: float = 0.7
    """Time of the fused GPU kernel for 64 rows of the result relative to 128 rows; in either case it reads all points."""

    # Normal equations of landmark models.
    normal_block_bytes_cpu: int = 1 << 24
    """Bytes of a block of kernel values, which a thread multiplies from both sides before it computes the next; measured."""
    normal_block_bytes_cuda: int = 1 << 29
    """Bytes of a block of kernel values on a CUDA device, where smaller blocks leave multiprocessors idle."""
    smallest_normal_block: int = 64
    """Smallest number of rows of a block of kernel values: products with fewer rows are far below the peak rate of BLAS."""
    factor_edge: int = 1024
    """Rows and columns of a tile of the Cholesky factorisation in place: 8 MB in float64."""

    # Preconditioner.
    eigenvalue_sample: int = 512
    """Sampled rows that estimate the largest eigenvalue, and the mean eigenvalue outside the span of the landmarks."""
    damping_roundings: float = 8.0
    """Smallest damping, in units of machine epsilon times the largest eigenvalue; less damping amplifies rounding errors."""

    # Solvers.
    stalled_restarts: int = 2
    """Successive restarts without halving the true residual after which a solver stops: its precision is exhausted."""
    lost_residual_factor: float = 1e3
    """Factor by which the CG residual exceeds its smallest value if rounding errors have broken the recurrence."""
    trusted_residual_factor: float = 1.5
    """Largest ratio of the true residual to that of the CG recurrence at which the test of the predictions is trusted."""
    verified_rows: int = 128
    """Sampled rows that estimate the rounding drift of the CG residual, with a relative error of sqrt(2 / 128): 13 %."""
    one_thread_rows: int = 1024
    """Largest system, in rows, that one thread computes and factors: this takes milliseconds, less than synchronising busy
    cores, and the result does not depend on the number of threads. A larger system has several tiles, each on one thread."""
    one_thread_columns: int = 16
    """Right-hand sides up to which a triangular solve on one core is as fast as on several cores; measured."""
    refinements: int = 5
    """Largest number of refinement steps of a Cholesky solution."""
    refinement_progress: float = 0.5
    """Ratio of the residuals after and before a step above which refinement ends: the factor has no correct digits left."""
    acceptable_residual: float = 1e-3
    """Relative residual of a float64 Cholesky solution above which the system counts as singular."""
    norm_rows: int = 512
    """Rows whose norms are computed at a time for `Kaczmarz(sampling="norm")`."""
    fetched_rows: int = 256
    """Rows of several blocks that are computed together if blocks are smaller: one product instead of many small ones."""
    new_direction_fraction: float = 1e-2
    """Momentum needs this part of a direction's squared norm orthogonal to earlier directions; less amplifies rounding."""
    power_iterations: int = 10
    """Power iterations for the largest eigenvalue of a preconditioned block."""
    power_safety: float = 1.2
    """Factor on the eigenvalue of the power iterations, which approach the largest eigenvalue from below."""
    residual_smoothing: float = 0.9
    """Weight of previous blocks in the running mean of block residuals."""
    residual_rise: float = 1.5
    """Factor by which the mean block residual exceeds its smallest value if `SketchProject` has to restart its sequences."""
    curvature_floor: float = 1e-3
    """Smallest curvature that `SketchProject` assumes if the operator has no ridge, relative to the damping."""
    largest_rounding: float = 0.1
    """Largest change of scores by rounding of the coefficients, relative to the size of the targets, without a warning."""


TUNING = LinalgTuning()
