"""Tunable sizes and limits of the package: model files, compiled models, compression and the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeploymentTuning:
    """Sizes and limits of the package, each with its unit and origin."""

    # zlib level. Level 1 compresses arrays of one-hot columns and of pixels to 1/10 to 1/6 of their size; higher levels
    # compress little more.
    compression_level: int = 1
    # Maximum size of the uncompressed contents of a model file: this number of bytes or this multiple of the file size,
    # whichever is larger. Models have compression ratios below 50, files forged to fill the memory 1,000 and more.
    max_unpacked_bytes: int = 256 * 2**20
    max_compression_ratio: int = 50
    # Maximum number of columns of a model file: `load` tests each model on two rows of zeros, 16 bytes for each column.
    max_features: int = 10**8
    # Minimum number of rows for which a compiled model uses the compiled loop, which computes several rows together; matrix
    # products are faster for fewer rows.
    min_loop_rows: int = 4
    # Batch size, in rows, of `compiled_novelty`.
    novelty_rows: int = 512

    # compress: size in bytes of the blocks of kernel values from which the normal equations are computed.
    block_bytes: int = 64 * 2**20
    # compress: fraction, minimum and maximum number of the model's points that are held out to measure the loss. With 5,000
    # points, the standard error of the loss is below one percentage point; further points are more useful for the fit.
    held_out_fraction: float = 0.2
    min_held_out: int = 20
    max_held_out: int = 5000
    # compress: ridge of least-squares coefficients, relative to the mean diagonal of the normal equations.
    least_squares_ridge: float = 1e-9
    # compress: larger ridge if gradient steps follow, because large coefficients of opposite sign would hinder the steps.
    start_ridge: float = 1e-5
    # compress: interpolated rows per point, and random candidates among which the nearest neighbour of a row is searched.
    interpolated_rows: int = 4
    neighbour_candidates: int = 256
    # compress: number of rows that are compared with the same random candidates.
    rows_per_draw: int = 4096
    # compress: rows of a gradient step, and maximum number of steps in a round (a pass over the rows). Steps use more rows
    # if a round would exceed this maximum.
    batch_rows: int = 250
    steps_per_round: int = 256
    # compress: initial step sizes of Adam. Steps of the points are fractions of the kernel width, steps of the coefficients
    # and of the bias are fractions of the root mean square of the coefficients and of the scores, and steps of the column
    # scales are relative changes. Origin not recorded.
    point_step: float = 0.2
    coef_step: float = 0.025
    bias_step: float = 0.003
    scale_step: float = 0.03
    # compress: temperature of the softmax as a multiple of the root mean square error of the scores. Rows whose two largest
    # scores differ by much more than the temperature hardly influence the divergence.
    temperature: float = 3.0
    # compress: weight of the squared error of the scores in addition to the divergence.
    score_weight: float = 0.1


TUNING = DeploymentTuning()


@dataclass(frozen=True)
class Limits:
    """Limits and thresholds of a server; a request beyond a limit is answered with a 4xx or 5xx status and a reason."""

    body_bytes: int = 16 * 2**20  # maximum size of one request body
    all_bodies_bytes: int = 256 * 2**20  # maximum total size of the request bodies that are being read or parsed
    header_bytes: int = 64 * 1024  # maximum total size of the headers of one request
    rows: int = 10_000  # maximum rows of one request
    explained_rows: int = 20  # maximum rows of one request with "explain": true
    waiting_rows: int = 50_000  # maximum rows of all requests that wait for one model
    batch_rows: int = 1024  # maximum rows of a batch that combines several requests
    seconds: float = 30.0  # maximum time from a complete request to its response
    reading_seconds: float = 10.0  # maximum time to receive the headers of a request, and the same time again for its body
    stopping_seconds: float = 20.0  # maximum time to complete running requests when the server stops
    connections: int = 1000  # maximum number of open connections
    # Request bodies up to this size are parsed in the event loop, which takes about 0.1 ms for 16 KiB, and larger bodies in
    # a thread.
    inline_parsing_bytes: int = 16 * 1024
    # Batches of at most `inline_scoring_rows` rows are scored in the event loop (a transfer to a thread and back would take
    # 0.1 ms) if the model takes less than `inline_scoring_seconds`, the longest time that other requests have to wait.
    inline_scoring_rows: int = 32
    inline_scoring_seconds: float = 0.004


LIMITS = Limits()
