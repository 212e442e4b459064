"""Progress messages without a terminal: one line every ten seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape

SECONDS = 10.0


class Heartbeat:
    """Prints messages at most once per interval of `seconds`, unless the console is a terminal."""

    def __init__(self, console: Console, seconds: float = SECONDS):
        self._console = console
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self, message: str) -> None:
        """Print the message if the interval has passed."""
        now = time.monotonic()
        if self._console.is_terminal or now - self._last < self._seconds:
            return
        self._last = now
        self._console.print(f"[dim]{escape(message)}[/dim]", soft_wrap=True, highlight=False)
