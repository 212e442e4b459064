"""Messages and tables that the commands print, and the display of the current step of a command.

If the output is not a terminal, `StepDisplay` prints at most one line every ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import monotonic

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# A table to print: title, column names and rows. In a table without column names, each column name is an empty string.
Section = tuple[str, list[str], list[list[str]]]
# Smallest time in seconds between two progress messages if the output is not a terminal.
_INTERVAL = 10.0


def messages(*, stderr: bool) -> Console:
    """Return a console that prints messages to stdout or stderr without line wrapping and syntax highlighting."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False)


def print_sections(console: Console, found: Iterable[Section]) -> None:
    """Print tables below their titles, with columns of numbers aligned to the right."""
    for title, heading, rows in found:
        console.print(f"[bold]{escape(title)}[/bold]")
        table = Table(box=SIMPLE, show_header=any(heading), header_style="bold")
        for name, *cells in zip(heading, *rows, strict=True):
            is_number = all(re.fullmatch(r"([-+\d.,e/± ]| to )*", cell) for cell in cells)
            table.add_column(escape(name), overflow="fold", justify="right" if is_number else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table, soft_wrap=False)


class TerminalProgress(Progress):
    """Progress bars that are shown only on terminals, and removed at the end."""

    def __init__(self, console: Console, *columns: ProgressColumn):
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)


class Heartbeat:
    """Printer of progress messages, at most one per `_INTERVAL`, for consoles that are not terminals."""

    def __init__(self, console: Console):
        self._console, self._last = console, monotonic()

    def __call__(self, message: str) -> None:
        """Print the message if `_INTERVAL` has passed since the last printed message."""
        if not self._console.is_terminal and (now := monotonic()) - self._last >= _INTERVAL:
            self._last = now
            self._console.print(f"[dim]{escape(message)}[/dim]")


class StepDisplay(TerminalProgress):
    """Display of the current step of a command."""

    def __init__(self, console: Console):
        super().__init__(console, SpinnerColumn(style="cyan"), TextColumn("{task.description}"), TimeElapsedColumn())
        self._step = self.add_task("reading")
        self._heartbeat = Heartbeat(console)

    def __call__(self, message: str) -> None:
        """Show a message as the current step."""
        self.update(self._step, description=escape(message))
        self._heartbeat(message)
