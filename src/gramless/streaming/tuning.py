"""Thresholds of streams and learners, which change models only by rounding errors unless a comment says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamingTuning:
    """Thresholds of streams, training passes and learners."""

    # Number of rows in the uniform sample for the choice of landmarks and for gamma="scale", if the rows can be read twice.
    candidate_rows: int = 50_000
    # Largest and smallest number of rows per batch. With 4096 rows BLAS reaches its full speed; with fewer than 64 rows
    # most of the time per batch is overhead.
    largest_batch: int = 4096
    smallest_batch: int = 64
    # Largest number of rows per batch of conjugate gradients, which divide each batch into several blocks. With smaller
    # batches a GPU is idle at the end of each batch.
    largest_pass_batch_cpu: int = 1 << 14
    largest_pass_batch_cuda: int = 1 << 18
    # The blocks of kernel values of all threads take at most the memory budget divided by this number.
    block_share: int = 16
    # Number of passes over the rows that solver="auto" assumes for conjugate gradients: 8 to 14 passes were measured with
    # C = 1 on Covertype and on the rows of benchmarks/scale.py.
    planned_passes: int = 15
    # solver="auto" chooses conjugate gradients only if the sums need more multiplications by at least this factor, because a
    # model from sums also has prediction intervals and accepts more rows.
    smallest_saving: float = 2.0
    # Cost of a kernel value on a CPU without its inner product, in multiplications (two cores, Covertype, 10,000 landmarks).
    kernel_value_cpu: int = 10
    # Cost of the two products of a kernel value with each target column on a CPU, in multiplications (same measurement).
    products_of_value: int = 2
    # Cost of a kernel value with all its products on a GPU, in multiplications (H200, 10^7 rows with 20,000 landmarks,
    # benchmarks/scale.py).
    kernel_value_cuda: float = 140.0
    # Rows converted from float32 to float64 at a time. Each product reads and writes all sums, so more rows at a time are
    # faster; the float64 copy of 2048 rows of 500 features takes 8 MB.
    converted_rows: int = 2048
    # Rows per block of leave-one-out residuals, in `NormalEquations.solve` and in `WhitenedRidge.leave_one_out`.
    left_out_block: int = 512
    left_out_rows: int = 4096
    # Rows read at a time from CSV and Parquet files: 8192 rows of 100 float64 columns take 6.5 MB.
    file_rows: int = 8192
    # Bytes of each column of a Parquet file that are read at a time; larger buffers are not faster.
    parquet_buffer: int = 1 << 16
    # Bytes of the largest column-major array of an npz file that is read at once; a larger array raises MemoryError.
    largest_column_major: int = 1 << 30
    # Number of rows that are hashed to identify a data set.
    compared_rows: int = 256

    # Stochastic gradient descent: number of eigenvectors of the curvature whose eigenvalues are equalised. 160 is the
    # largest number that saves time on a CPU, because each eigenvector costs as much time per row as one more output.
    equalised_eigenvectors: int = 160
    # Number of steps between two snapshots of the coefficients; a diverging fit returns to the last snapshot.
    snapshot_steps: int = 20
    # A batch loss above this multiple of the loss of the zero model counts as divergence.
    divergence_factor: float = 4.0
    # The step size is halved at most this often (a factor of 1e12) before the fit fails.
    halvings: int = 40
    # First step of Adam as a fraction of the step of plain gradient descent.
    adam_fraction: float = 0.3
    # Rows whose squared norm is above this multiple of the mean squared norm get smaller weights while the step is large.
    norm_factor: float = 4.0
    # The step size decreases to this fraction of its initial value.
    last_step: float = 0.02
    # Largest number of batches between two products with the penalty matrix.
    penalty_batches: int = 50
    # The penalty matrix is cached if it takes at most the memory budget divided by this number.
    penalty_share: int = 4


TUNING = StreamingTuning()
