"""Signs of life where no progress bar can be drawn: a line every ten seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape

SECONDS = 10.0


class Heartbeat:
    """Prints what it is told, at most once in so many seconds, and only off a terminal.

    Parameters
    ----------
    console : Console
    seconds : float
    """

    def __init__(self, console: Console, seconds: float = SECONDS):
        self._console = console
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self, doing: str) -> None:
        """Say it if it is time."""
        now = time.monotonic()
        if self._console.is_terminal or now - self._last < self._seconds:
            return
        self._last = now
        self._console.print(f"[dim]{escape(doing)}[/dim]", soft_wrap=True, highlight=False)
