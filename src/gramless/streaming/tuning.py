"""Numeric settings of streams and learners that trade speed, memory and accuracy; results depend on them only by rounding
unless a comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamingTuning:
    """Thresholds of streams, training passes and learners."""

    # Rows. Size of the uniform sample from which landmarks and gamma="scale" are chosen if the rows can be read again.
    candidate_rows: int = 50_000
    # Rows per batch. 4096 rows keep BLAS at its full speed; below 64 rows most of the time per batch is overhead.
    largest_batch: int = 4096
    smallest_batch: int = 64
    # Rows per batch of conjugate gradients, which multiply several blocks of a batch. Fewer rows leave a GPU idle at the end
    # of each batch.
    largest_pass_batch_cpu: int = 1 << 14
    largest_pass_batch_cuda: int = 1 << 18
    # A block of kernel values takes at most the memory budget divided by this number.
    block_share: int = 16
    # Passes of conjugate gradients that the choice of the solver assumes: 8 to 14 were measured with C = 1 (Covertype, rows
    # of benchmarks/scale.py).
    planned_passes: int = 15
    # Conjugate gradients must save at least this factor, because sums also have prediction intervals and accept more rows.
    smallest_saving: float = 2.0
    # Costs of a kernel value, in multiplications. On a CPU: of the value without its inner product, and of its two products
    # with each target column (two cores, Covertype with 10,000 landmarks). On a GPU: of the value and all its products
    # (H200, 10^7 rows with 20,000 landmarks, benchmarks/scale.py).
    kernel_value_cpu: int = 10
    products_of_value: int = 2
    kernel_value_cuda: float = 140.0
    # Rows converted from float32 to float64 at a time. Each product reads and writes all sums, so more rows are faster;
    # 2048 rows of 500 features are 8 MB.
    converted_rows: int = 2048
    # Rows per block of leave-one-out residuals, in the learner and within one call for a prepared problem.
    left_out_block: int = 512
    left_out_rows: int = 4096
    # Rows per piece read from CSV and Parquet files: 8192 rows of 100 columns are 6.5 MB.
    file_rows: int = 8192
    # Bytes of each column of a Parquet file that are read at a time; larger buffers are not faster.
    parquet_buffer: int = 1 << 16
    # Bytes. Column-major arrays in npz files are read at once, and larger ones raise MemoryError.
    largest_column_major: int = 1 << 30
    # Rows that are hashed to compare two data sets.
    compared_rows: int = 256

    # Stochastic gradient descent. Eigenvectors of the curvature whose eigenvalues are equalised: 160 is the largest number
    # that saves time on a CPU, as each costs as much time per row as one more output.
    equalised_eigenvectors: int = 160
    # Steps between two copies of the coefficients that a diverging fit returns to.
    snapshot_steps: int = 20
    # A batch loss above this multiple of the loss of the zero model counts as divergence.
    divergence_factor: float = 4.0
    # The step size is halved at most this often (a factor of 1e12) before the fit fails.
    halvings: int = 40
    # First step of Adam as a fraction of the step of plain gradient descent.
    adam_fraction: float = 0.3
    # Rows with a squared norm above this multiple of the mean have their weights reduced while the step is large.
    norm_factor: float = 4.0
    # The step size decreases to this fraction of its initial value.
    last_step: float = 0.02
    # Batches between two products with the penalty matrix, at most.
    penalty_batches: int = 50
    # The penalty matrix is cached if it takes at most the memory budget divided by this number.
    penalty_share: int = 4


TUNING = StreamingTuning()
