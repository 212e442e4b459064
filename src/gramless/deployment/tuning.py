"""Tunable sizes and limits of the package: model files, compiled models, compression and the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeploymentTuning:
    """Limits and settings with their units and origins."""

    # zlib level. Level 1 shrinks one-hot columns and images to 1/6 - 1/10 of their size; higher levels gain little.
    compression_level: int = 1
    # Contents of a model file may take this many bytes, or this many times the size of the file if that is more. Models
    # shrink by less than this factor; files forged to fill the memory shrink by 1,000 and more.
    max_unpacked_bytes: int = 256 * 2**20
    max_compression_ratio: int = 50
    # Columns of a model: a loaded model predicts two rows of zeros, which take 16 bytes for each column.
    max_features: int = 10**8
    # Rows from which a compiled model uses the compiled loop, which computes strips of several rows; fewer rows cost less
    # by matrix products.
    min_loop_rows: int = 4
    # Rows whose novelty is computed at a time.
    novelty_rows: int = 512

    # compress: size in bytes of a block of kernel values, which is added to the normal equations.
    block_bytes: int = 64 * 2**20
    # compress: fraction and limits of the points that measure the loss. 5,000 rows measure a share to a fraction of a
    # percentage point; further rows are more useful for the fit.
    held_out_fraction: float = 0.2
    min_held_out: int = 20
    max_held_out: int = 5000
    # compress: relative ridge of the least-squares coefficients, and of those that gradient steps start from: large
    # coefficients of opposite sign would hinder the steps.
    least_squares_ridge: float = 1e-9
    start_ridge: float = 1e-5
    # compress: interpolated rows per point, and candidates among which the nearest neighbour of a row is searched.
    interpolated_rows: int = 4
    neighbour_candidates: int = 256
    # compress: rows for which the candidates are drawn together.
    rows_per_draw: int = 4096
    # compress: rows of a gradient step; more if a round would have more steps than `steps_per_round`.
    batch_rows: int = 250
    steps_per_round: int = 256
    # compress: sizes of the first Adam steps, as fractions of the kernel width (points), of the root mean square of the
    # coefficients, of that of the scores (bias), and of a scale. Origin not recorded.
    point_step: float = 0.2
    coef_step: float = 0.025
    bias_step: float = 0.003
    scale_step: float = 0.03
    # compress: temperature of the softmax in root mean squared errors of the scores: rows whose two largest scores differ
    # by more do not influence the divergence.
    temperature: float = 3.0
    # compress: weight of the squared error of the scores in addition to the divergence.
    score_weight: float = 0.1


TUNING = DeploymentTuning()


@dataclass(frozen=True)
class Limits:
    """Limits and thresholds of a server; a request beyond a limit is answered with a 4xx or 5xx status and a reason."""

    body_bytes: int = 16 * 2**20  # largest request body
    all_bodies_bytes: int = 256 * 2**20  # bodies of all requests that are being read or parsed
    header_bytes: int = 64 * 1024  # largest request header
    rows: int = 10_000  # rows of a request
    explained_rows: int = 20  # rows of a request with "explain": true
    waiting_rows: int = 50_000  # rows of all requests that wait for a model
    batch_rows: int = 1024  # rows of a batch that combines several requests
    seconds: float = 30.0  # from a complete request to its response
    reading_seconds: float = 10.0  # for a client to send its headers, and again for its body
    stopping_seconds: float = 20.0  # for running requests when the server stops
    connections: int = 1000  # open connections
    # Bodies up to this size are parsed in the event loop, larger ones in a thread: parsing 16 KiB takes about 0.1 ms.
    inline_parsing_bytes: int = 16 * 1024
    # Batches up to this size are scored in the event loop if the model needs less than this time for them: the transfer to
    # a thread and back takes about 0.1 ms, and other requests wait at most this long.
    inline_scoring_rows: int = 32
    inline_scoring_seconds: float = 0.004


LIMITS = Limits()
