"""Prometheus metrics of a server: numbers of requests, rows and batches, their durations, and memory.

Labels are routes, status codes, model names and outcomes, but no text from clients, so the number of time series is bounded.
"""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)


class Metrics:
    """Metrics of one application, in a separate Prometheus registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"registry": self.registry}
        seconds: dict[str, Any] = {"registry": self.registry, "buckets": _SECONDS}
        rows: dict[str, Any] = {"registry": self.registry, "buckets": _ROWS}
        self.requests = Counter("gramless_requests", "Requests by route and status.", ["route", "status"], **own)
        self.seconds = Histogram("gramless_request_seconds", "Seconds from a request to its response.", ["route"], **seconds)
        self.rows = Counter("gramless_rows", "Rows scored.", ["model"], **own)
        self.batch_rows = Histogram("gramless_batch_rows", "Rows of a batch.", ["model"], **rows)
        self.batch_seconds = Histogram("gramless_batch_seconds", "Seconds of a batch.", ["model"], **seconds)
        self.reloads = Counter("gramless_reloads", "Model files loaded again.", ["model", "outcome"], **own)
        self.waiting_rows = Gauge("gramless_waiting_rows", "Rows that wait to be scored.", **own)

    def count_batch(self, model: str, rows: int, seconds: float) -> None:
        """Count the rows of a batch, and record its number of rows and its duration."""
        self.rows.labels(model).inc(rows)
        self.batch_rows.labels(model).observe(rows)
        self.batch_seconds.labels(model).observe(seconds)


class MetricsMiddleware:
    """ASGI middleware that counts the requests of each route and measures their durations."""

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
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
