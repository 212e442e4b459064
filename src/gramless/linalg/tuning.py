"""Thresholds of operators, plans and solvers, with the unit and the origin of each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinalgTuning:
    """Tunable numbers of `gramless.linalg`; tests pass another instance with `dataclasses.replace`."""

    # Plans. "Measured" without a file means timed on the CPU of the benchmarks in docs/performance.md.
    cholesky_max_rows_cpu: int = 4096
    """Rows up to which one factorisation is faster than a preconditioner and iterations; measured."""
    cholesky_max_rows_small_C: int = 2560
    """The same for `tol="auto"` and values of C up to `few_iterations_C`; measured with 3,450 and 4,000 rows."""
    few_iterations_C: float = 10.0
    """Largest C, for kernels with unit diagonal, at which `tol="auto"` needs 2 to 20 iterations; measured."""
    cholesky_max_rows_cuda: int = 16384
    """Rows up to which one factorisation is faster than CG on a CUDA device; measured on an H200."""
    landmarks_per_root_n_cpu: float = 7.0
    """Landmarks divided by sqrt(rows) of the preconditioner; measured. Float64 products make landmarks costly on a CPU."""
    landmarks_reference_C: float = 100.0
    """Value of C at which this count was measured. With smaller values fewer iterations have to pay for the landmarks: the
    count falls with the fourth root of C down to `smallest_landmark_fraction`; measured on five problems at C = 1 to 100."""
    smallest_landmark_fraction: float = 0.57
    """Fraction of the landmarks for C of at most 10; fewer save nothing more."""
    landmarks_per_root_n_cuda: float = 12.0
    """Landmarks divided by sqrt(rows) on a CUDA device, where float64 products are as fast as float32 ones."""
    landmark_multiple: int = 32
    """The number of landmarks is rounded up to this multiple, so that compiled products have full vectors."""
    free_columns: int = 6
    """Right-hand sides that a product with a cached matrix multiplies in the time of reading the matrix; measured."""
    reference_tol: float = 1e-3
    """Tolerance at which the landmark counts above were measured."""
    sketch_min_rows: int = 400_000
    """Rows from which `sketch_project` reaches a residual of 0.1 before CG does; benchmarks/gpu.py, crossover."""
    sketch_min_tol: float = 0.05
    """Smallest tolerance for which `"auto"` selects `sketch_project`; benchmarks/gpu.py, crossover."""
    sketch_min_rows_times_tol: float = 40_000.0
    """Smallest product of rows and tolerance for `sketch_project`: 0.05 is reached first from 800,000 rows on."""
    working_columns: int = 20
    """Matrices of the size of the right-hand side that CG, preconditioner and threads allocate at the peak; counted."""
    exact_leave_one_out_max_rows: int = 12_000
    """Rows up to which the diagonal of the inverse is computed exactly: O(n^3), a minute on two cores at this size."""
    n_probes: int = 24
    """Random sign vectors of the diagonal estimate: an error of 7 % for each entry, and of 0.001 for the mean probability
    on MNIST, where sigmoids are fitted to all rows together."""

    # Stopping rule of tol="auto".
    error_fraction: float = 0.05
    """Residual norm relative to the training error at which predictions have converged: squared errors change by 0.25 %."""
    value_tol: float = 1e-3
    """Relative residual that ends every solve of `tol="auto"` for regression and for solvers other than CG."""
    label_tol: float = 5e-3
    """Relative residual that ends every such solve for class targets, which use only the sign or the largest score."""
    planned_tol: float = 1e-2
    """Residual at which predictions usually converge, to order of magnitude; the preconditioner is sized for it."""

    # Tiles and threads.
    min_operations_for_bytes: float = 5e9
    """Multiplications from which conversion of the rows to bytes and loading of the compiled loops (1 s) pays."""
    min_values_for_registers: int = 1 << 20
    """Kernel values from which the compiled Gaussian loop, which takes 1 s to load once, is used."""
    small_tile_edge: int = 256
    """Rows of a tile of a small expansion; such tiles have too few values for a kernel to load compiled loops."""
    max_register_features: int = 128
    """Features up to which products with an uncached Gaussian matrix compute its values in registers: the two copies of the
    points in the layout of the loop stay small beside the solution."""
    min_recomputed_bytes: int = 1 << 26
    """Bytes of a stored matrix from which recomputing may be faster than reading; a smaller one stays in the cache."""
    instructions_per_stored_value: float = 5.0
    """Vector instructions, for each value of 32 bits in a vector, that take as long as storing a kernel value once and
    reading it in ten products: 80 with AVX-512 and 40 with AVX2; measured with 60,000 rows of 8 to 54 features."""
    exponential_instructions: int = 14
    """Vector instructions of the exponential in float32; counted."""
    exponential_instructions_double: int = 21
    """Vector instructions of the exponential in float64; counted."""
    operations_per_exponential: int = 30
    """Multiplications in a matrix product that take as long as one exponential; measured."""
    min_operations_for_threads: float = 1e7
    """Multiplications that take as long as starting and joining threads; measured."""
    most_parts: int = 16
    """Parts into which the rows of a small expansion are divided: one for each core of usual computers."""
    few_values: int = 250_000
    """Kernel values up to which a block is computed at once, because tiles and threads would take longer (0.37 instead of
    0.70 ms for 100 rows and 2,000 points); below the number from which a kernel loads compiled loops."""
    smallest_device_tile: int = 256
    """Rows of a tile below which a device that is out of memory raises an error instead of halving the tiles."""
    rows_per_part: int = 4096
    """Rows of a tall matrix that are converted to float64 at a time: 32 kB for each column."""
    sparse_rows_on_device: int = 8192
    """Sparse rows that are converted to dense ones on a device at a time."""
    max_narrow_columns: int = 6
    """Right-hand sides up to which products of float32 matrices are summed in float64 at the speed of reading the matrix."""
    max_compiled_double_columns: int = 48
    """Columns beyond which BLAS with a float64 copy is faster than the compiled loops; benchmarks/cpu_products.py."""
    min_entries_to_compile: int = 1 << 22
    """Matrix entries from which loading the compiled loops (1 s, once) pays."""
    triangle_rows: int = 256
    """Rows of a triangle that are multiplied together; their corner of the matrix is copied."""

    row_alignment: int = 16
    """Rows of a block of a bordered matrix start at multiples of this number of entries: 64 bytes in float32, as the matrix
    units of a GPU require."""
    largest_relative_jitter: float = 1e-2
    """Largest jitter, relative to the largest diagonal entry, of a matrix that is positive definite up to rounding."""
    fused_columns: int = 64
    """Largest number of bfloat16 columns of the right-hand side in one launch of the fused product."""
    half_strip_time: float = 0.7
    """Time of a strip of the fused product with half of the rows, relative to a full strip; both read all points."""

    # Normal equations of landmark models.
    normal_block_bytes_cpu: int = 1 << 24
    """Bytes of the kernel values that a thread multiplies from both sides before it computes the next ones; measured."""
    normal_block_bytes_cuda: int = 1 << 29
    """The same on a CUDA device, where smaller blocks leave multiprocessors idle."""
    smallest_normal_block: int = 64
    """Smallest number of rows of such a block: products with fewer rows are far from the speed of matrix products."""
    factor_edge: int = 1024
    """Rows and columns of a tile of the factorisation in place; 8 MB in float64."""

    # Preconditioner.
    eigenvalue_sample: int = 512
    """Rows from which the largest eigenvalue, and the mean one outside the span of the landmarks, are estimated."""
    damping_roundings: float = 8.0
    """Smallest damping in units of the rounding of the largest eigenvalue; smaller values amplify rounding noise."""

    # Solvers.
    stalled_restarts: int = 2
    """Restarts without halving the true residual after which CG stops, because the precision is exhausted."""
    lost_residual_factor: float = 1e3
    """Rise of the CG residual over its best value that shows a recurrence broken by rounding."""
    trusted_residual_factor: float = 1.5
    """Largest ratio of true to recurrence residual at which the stopping rule of predictions is trusted."""
    verified_rows: int = 128
    """Rows from which this ratio is estimated, with a relative error of the square root of 2 / 128: 13 %."""
    one_thread_rows: int = 1024
    """Rows of a system that is computed and factored on one thread: this takes milliseconds, less than synchronising busy
    cores, and the result does not depend on the number of threads. More rows are several tiles, each on one thread."""
    one_thread_columns: int = 16
    """Right-hand sides up to which a triangular solve on one core is as fast as on several; measured."""
    refinements: int = 5
    """Largest number of refinement steps of a Cholesky solution."""
    refinement_progress: float = 0.5
    """A refinement step that shrinks the residual by less ends the refinement: the factor has no correct digits left."""
    acceptable_residual: float = 1e-3
    """Relative residual of a float64 Cholesky solution above which the system counts as singular."""
    norm_rows: int = 512
    """Rows whose norms are computed at a time for sampling by norm."""
    fetched_rows: int = 256
    """Rows that are fetched together if blocks are smaller: one product instead of many memory-bound ones."""
    new_direction_fraction: float = 1e-2
    """Squared fraction of a direction that must be new for momentum; less would amplify the rounding of the projections."""
    power_iterations: int = 10
    """Power iterations for the largest eigenvalue of a preconditioned block."""
    power_safety: float = 1.2
    """Factor on the eigenvalue of the power iterations, which approach the largest eigenvalue from below."""
    residual_smoothing: float = 0.9
    """Weight of previous blocks in the running mean of block residuals."""
    residual_rise: float = 1.5
    """Rise of the mean block residual over its best value that restarts the accelerated sequences."""
    curvature_floor: float = 1e-3
    """Smallest curvature relative to the damping if the operator has no ridge."""
    largest_rounding: float = 0.1
    """Largest change of scores by the rounding of coefficients, relative to the targets, that is accepted silently."""


TUNING = LinalgTuning()
