"""Run an application with uvicorn, on the loopback interface by default.

Requests must name 127.0.0.1 or localhost as host, so that a page of another site cannot make a browser send requests to
this server under the host name of that site (DNS rebinding). Clients that do not send their headers in time are
disconnected. On Ctrl-C or SIGTERM, running requests are completed.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gramless.deployment.tuning import Limits

LOOPBACK = "127.0.0.1"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def serve(
    app: Any,
    port: int,
    on_start: Callable[[str], None],
    *,
    host: str = LOOPBACK,
    limits: Limits | None = None,
) -> None:
    """Serve an ASGI application until Ctrl-C or SIGTERM; port 0 is any free port.

    `on_start` is called with the address as soon as the port is bound; a port in use raises `OSError`.
    """
    import uvicorn

    limits = Limits() if limits is None else limits
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening, _signals_ignored_after_shutdown():
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        shown = f"[{host}]" if ":" in host else host
        on_start(f"http://{shown}:{listening.getsockname()[1]}")
        config = uvicorn.Config(
            app,
            log_level="warning",
            http=protocol_with_header_timeout(limits),
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=int(limits.stopping_seconds),
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listening])


def protocol_with_header_timeout(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits on the time and the size of the headers.

    The time counts from the connection, or from the first byte of a later request on the connection.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class HeaderTimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _timer: asyncio.TimerHandle | None = None
        _header_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_between_requests():
                self._header_bytes += len(data)
                if self._header_bytes > limits.header_bytes:
                    self.transport.close()
                elif self._timer is None and self.timeout_keep_alive_task is None:
                    self._start_timer()
            else:
                self._header_bytes = 0
                self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _is_between_requests(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _start_timer(self) -> None:
            self._timer = self.loop.call_later(limits.reading_seconds, self._close_if_waiting)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close_if_waiting(self) -> None:
            self._timer = None
            if self._is_between_requests() and not self.transport.is_closing():
                self.transport.close()

    return HeaderTimeoutProtocol


@contextmanager
def _signals_ignored_after_shutdown() -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after its graceful shutdown."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
