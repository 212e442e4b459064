"""Run an application until it is told to stop, for this machine only unless told otherwise.

The socket is bound to 127.0.0.1, and requests must name it or `localhost` as their host: a page of some other site cannot
have a browser send requests here under its own name. Clients that do not send their headers in time are let go, connections
are counted, and a stop (Ctrl-C, SIGTERM) lets requests that are under way end.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gramless.deployment.serving.limits import Limits

LOOPBACK = "127.0.0.1"
HOSTS = [LOOPBACK, "localhost"]
_MOST_HEADER_BYTES = 64 * 1024
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def serve(
    app: Any,
    port: int,
    announce: Callable[[str], None],
    *,
    host: str = LOOPBACK,
    limits: Limits | None = None,
) -> None:
    """Serve an application until Ctrl-C or SIGTERM.

    Parameters
    ----------
    app : callable
        An ASGI application.
    port : int
        0 takes any free one.
    announce : callable
        Called with the address when it can be opened.
    host : str, default="127.0.0.1"
        The address to listen on.
    limits : Limits, optional
        Of connections and seconds.

    Raises
    ------
    OSError
        Where the port is taken.

    See Also
    --------
    drawing_app : A page to draw digits on.
    scoring_app : Models over HTTP.

    Examples
    --------
    >>> from gramless.deployment.serving import serve
    >>> serve(app, 0, print)  # doctest: +SKIP
    http://127.0.0.1:41234
    """
    import uvicorn

    limits = Limits() if limits is None else limits
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening, _quiet_stop():
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{listening.getsockname()[1]}")
        config = uvicorn.Config(
            app,
            log_level="warning",
            http=impatient(limits.reading_seconds),
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=int(limits.stopping_seconds),
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listening])


def impatient(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, which also lets go of a client that does not end its headers in time.

    Parameters
    ----------
    seconds : float
        From the connection, or from the first byte of a later request on it, to the end of the headers.

    Returns
    -------
    type
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _waiting: asyncio.TimerHandle | None = None
        _header_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._header_bytes += len(data)
                if self._header_bytes > _MOST_HEADER_BYTES:
                    self.transport.close()
                elif self._waiting is None and self.timeout_keep_alive_task is None:
                    self._wait()
            else:
                self._header_bytes = 0
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self._let_go)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _let_go(self) -> None:
            self._waiting = None
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self.transport.close()

    return Impatient


@contextmanager
def _quiet_stop() -> Iterator[None]:
    """uvicorn sends itself the signal again that ended it: here it has done its work."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
