"""Reading and parsing of request bodies within limits of size, time and memory.

The memory for the bodies of all requests is bounded, and large bodies are parsed one at a time: a body of 16 MB can become
400 MB of Python objects.
"""

from __future__ import annotations

import asyncio

from fastapi import Request

from gramless.deployment.serving.request_rows import JSON, RequestRows
from gramless.deployment.serving.scorer import RequestError, Table
from gramless.deployment.tuning import Limits


class BodyReader:
    """Reader of the bodies of all requests to a server."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._bytes = 0  # bytes of all bodies that are being read or parsed
        self._parsing = asyncio.Lock()

    async def read(self, request: Request, rows: RequestRows) -> tuple[Table, bool]:
        """Return the rows of a request as a table, and whether the effects of the columns are requested."""
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.reading_seconds):
                await self._collect(request, parts)
            media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
            body = b"".join(parts)
            if len(body) <= self._limits.inline_parsing_bytes:
                return rows.read(media_type, body)
            async with self._parsing:
                return await asyncio.to_thread(rows.read, media_type, body)
        except TimeoutError:
            raise RequestError(408, f"the body was not sent within {self._limits.reading_seconds:g} seconds") from None
        finally:
            self._bytes -= sum(map(len, parts))

    async def _collect(self, request: Request, parts: list[bytes]) -> None:
        """Append the parts of a body; RequestError if the body or all bodies together exceed their limits."""
        most, size = self._limits.body_bytes, 0
        too_large = RequestError(413, f"a body has at most {most:,} bytes, and this one has more: send it in parts")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            raise too_large
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            if self._bytes + len(part) > self._limits.all_bodies_bytes:
                raise RequestError(503, "the bodies of other requests fill the memory for bodies: try again later")
            self._bytes += len(part)
            parts.append(part)
