"""Run an application with uvicorn, and reject requests that must not reach the application.

A page of another site can make a browser send requests to a server on the loopback interface. Requests are rejected if their
`Host` header does not name the server (a defence against DNS rebinding), or if a page of another origin sends rows.
Clients that do not send their headers in time are disconnected. On Ctrl-C or SIGTERM, running requests complete.
"""

from __future__ import annotations

import asyncio
import hmac
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gramless.deployment.tuning import LIMITS, Limits

LOOPBACK = "127.0.0.1"
LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
PUBLIC_PATHS = ("/", "/docs", "/healthz")
_ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}, 408: {"Connection": "close"}}
_PAGE_HEADERS = {
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
    limits: Limits = LIMITS,
) -> None:
    """Serve an ASGI application until Ctrl-C or SIGTERM; port 0 is any free port.

    `on_start` is called with the address as soon as the port is bound; a port in use raises `OSError`.
    """
    import uvicorn

    class GracefulServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            """Stop after the running requests, or at once on a second Ctrl-C, without raising the signal again."""
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
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
        GracefulServer(config).run(sockets=[listening])


def protocol_with_header_timeout(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits on the time to receive headers and on the size of headers.

    The time starts with the connection and, for further requests on the connection, with the first byte of the request.
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
            if self.cycle is not None and not self.cycle.response_complete:
                self._header_bytes = 0
                self._stop_timer()
                return
            self._header_bytes += len(data)
            if self._header_bytes > limits.header_bytes:
                self.transport.close()
            elif self._timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self._timer = self.loop.call_later(limits.reading_seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return HeaderTimeoutProtocol


def page(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that responds with an HTML file of this package."""
    content = resources.files("gramless.deployment.serving").joinpath(name).read_text(encoding="utf-8")

    async def respond(_: Request) -> Response:
        return HTMLResponse(content, headers=_PAGE_HEADERS)

    return respond


def error_response(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a status and the reason as JSON."""
    return JSONResponse({"error": reason}, status, _ERROR_HEADERS.get(status) if headers is None else headers)


class AccessMiddleware:
    """ASGI middleware that rejects other host names (status 400), other origins (403) and requests without token (401)."""

    def __init__(self, app: ASGIApp, hosts: list[str] | None = None, token: str | None = None):
        self.app = app
        self._hosts = LOOPBACK_HOSTS if hosts is None else hosts
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            app = self._rejection(scope, headers) or app
        await app(scope, receive, send)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if "*" not in self._hosts and name not in self._hosts:
            return error_response(400, f"this server does not have the name {name[:80]!r}")
        if scope["method"] == "POST" and is_from_other_origin(headers):
            return error_response(403, "a page of another origin cannot send rows to this server")
        if self._token is not None and scope["path"] not in PUBLIC_PATHS:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
                return error_response(401, "this server requires a token: send the header Authorization: Bearer TOKEN")
        return None


def is_from_other_origin(headers: Headers) -> bool:
    """Return True if a browser sent the request for a page of another origin, according to Sec-Fetch-Site or Origin."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
