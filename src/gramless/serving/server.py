"""Run an application until Ctrl-C, for this machine only.

The socket is bound to 127.0.0.1, and requests must name it or `localhost` as their host: a page of some other site cannot
have a browser send requests here under its own name.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

LOOPBACK = "127.0.0.1"
HOSTS = [LOOPBACK, "localhost"]


def serve(app: Any, port: int, announce: Callable[[str], None]) -> None:
    """Serve an application on the loopback interface until Ctrl-C.

    Parameters
    ----------
    app : callable
        An ASGI application.
    port : int
        0 takes any free one.
    announce : callable
        Called with the address when it can be opened.

    Raises
    ------
    OSError
        Where the port is taken.

    See Also
    --------
    drawing_app : A page to draw digits on.

    Examples
    --------
    >>> from gramless.serving import serve
    >>> serve(app, 0, print)  # doctest: +SKIP
    http://127.0.0.1:41234
    """
    import uvicorn

    listening = socket.socket()
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        announce(f"http://{LOOPBACK}:{listening.getsockname()[1]}")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
