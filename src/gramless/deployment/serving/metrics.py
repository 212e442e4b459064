"""Figures for Prometheus: requests, rows, batches, seconds, memory.

Names of paths are those of routes and never what a client sent, so the number of series is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)


class Metrics:
    """Counters of one application, in a registry of its own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

        self.registry = CollectorRegistry()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("gramless_requests", "Requests by route and status.", ["route", "status"], **own)
        self._seconds = Histogram(
            "gramless_request_seconds", "From a request to its answer.", ["route"], buckets=_SECONDS, **own
        )
        self._rows = Counter("gramless_rows", "Rows scored.", ["model"], **own)
        self._batch = Histogram("gramless_batch_rows", "Rows scored together.", ["model"], buckets=_ROWS, **own)
        self._scoring = Histogram("gramless_batch_seconds", "Seconds of a batch.", ["model"], buckets=_SECONDS, **own)
        self._reloads = Counter("gramless_reloads", "Model files loaded again.", ["model", "outcome"], **own)
        self._waiting = Gauge("gramless_waiting_rows", "Rows that wait to be scored.", **own)

    def _child(self, figure: Any, *labels: str) -> Any:
        """One series of a figure, found once: prometheus_client checks labels whenever it is asked."""
        key = (figure, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = figure.labels(*labels)
        return child

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Ask `count` for the rows that wait whenever figures are read."""
        self._waiting.set_function(count)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._child(self._requests, route, str(status)).inc()
        self._child(self._seconds, route).observe(seconds)

    def batch(self, model: str, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._child(self._rows, model).inc(rows)
        self._child(self._batch, model).observe(rows)
        self._child(self._scoring, model).observe(seconds)

    def reloaded(self, model: str, outcome: str) -> None:
        """Count a file that was loaded again, or refused."""
        self._reloads.labels(model, outcome).inc()

    def text(self) -> tuple[bytes, str]:
        """All figures, and their media type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST
