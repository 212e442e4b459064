"""Access rules of a server: names of the host, pages of other origins, and a token.

A page of another site can make a browser send requests to a server on the loopback interface. Requests must therefore name
the host of the server (a defence against DNS rebinding), and browsers must not send rows on behalf of other origins.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
PUBLIC_PATHS = ("/", "/docs", "/healthz")
_ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}, 408: {"Connection": "close"}}


def error_response(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a status and the reason as JSON."""
    return JSONResponse({"error": reason}, status, _ERROR_HEADERS.get(status) if headers is None else headers)


class AccessMiddleware:
    """ASGI middleware that answers 400 for other host names, 403 for other origins and 401 without the token."""

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
    """Return True if a browser sent the request for a page of another origin; other clients send neither header."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
