"""Limits of a server, each with a unit: sizes of requests, queues, times and connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits and thresholds of a server; a request beyond a limit is answered with a 4xx or 5xx status and a reason."""

    body_bytes: int = 16 * 2**20  # largest request body
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
