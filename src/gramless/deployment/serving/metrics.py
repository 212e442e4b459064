"""Prometheus metrics of a server: requests, rows, batches, seconds, memory.

Labels are the paths of routes and the names of models, never text from a client, so the number of time series is bounded.
"""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)


class Metrics:
    """Metrics of one application, in a separate registry."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        own: dict[str, Any] = {"registry": self._registry}
        seconds, rows = {"buckets": _SECONDS, **own}, {"buckets": _ROWS, **own}
        self._requests = Counter("gramless_requests", "Requests by route and status.", ["route", "status"], **own)
        self._seconds = Histogram(
            "gramless_request_seconds", "Seconds from a request to its response.", ["route"], **seconds
        )
        self._rows = Counter("gramless_rows", "Rows scored.", ["model"], **own)
        self._batch_rows = Histogram("gramless_batch_rows", "Rows of a batch.", ["model"], **rows)
        self._batch_seconds = Histogram("gramless_batch_seconds", "Seconds of a batch.", ["model"], **seconds)
        self._reloads = Counter("gramless_reloads", "Model files loaded again.", ["model", "outcome"], **own)
        self.waiting_rows = Gauge("gramless_waiting_rows", "Rows that wait to be scored.", **own)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, model: str, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._rows.labels(model).inc(rows)
        self._batch_rows.labels(model).observe(rows)
        self._batch_seconds.labels(model).observe(seconds)

    def count_reload(self, model: str, outcome: str) -> None:
        """Count a file that was loaded again or could not be loaded."""
        self._reloads.labels(model, outcome).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """ASGI middleware that counts and times the requests of each route."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.count_request(route, status, time.perf_counter() - started)
