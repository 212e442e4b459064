"""Progress in the terminal: the step of a command, the fits of a run, and downloads.

If the output is not a terminal, `StepDisplay` prints one line every ten seconds, and `RunDisplay` one for each finished fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from gramless.papers.experiments.runner import Event


def messages(*, stderr: bool) -> Console:
    """Return a console for messages, which are neither wrapped nor coloured by their content."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False)


class _TerminalProgress(Progress):
    """Progress bars that are shown only on terminals, and removed at the end."""

    def __init__(self, console: Console, *columns: ProgressColumn):
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)


class Heartbeat:
    """Prints messages at most once per interval of `seconds`, unless the console is a terminal."""

    def __init__(self, console: Console, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic):
        self._console = console
        self._seconds = seconds
        self._clock = clock
        self._last = clock()

    def __call__(self, message: str) -> None:
        """Print the message if the interval has passed."""
        now = self._clock()
        if self._console.is_terminal or now - self._last < self._seconds:
            return
        self._last = now
        self._console.print(f"[dim]{escape(message)}[/dim]")


class StepDisplay(_TerminalProgress):
    """Shows the current step of a command."""

    def __init__(self, console: Console):
        super().__init__(console, SpinnerColumn(style="cyan"), TextColumn("{task.description}"), TimeElapsedColumn())
        self._step = self.add_task("reading")
        self._heartbeat = Heartbeat(console)

    def __call__(self, message: str) -> None:
        """Show a message."""
        self.update(self._step, description=escape(message))
        self._heartbeat(message)


class RunDisplay(_TerminalProgress):
    """Shows the events of a run of experiments: a bar for all fits, and a bar for the current fit."""

    def __init__(self, console: Console):
        super().__init__(
            console,
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
        )
        self._all_fits = self.add_task("all fits", total=None, note="")
        self._current = self.add_task("this fit", total=None, note="", visible=False)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        done = event.number if event.kind in ("done", "failed", "skipped") else event.number - 1
        where = f"{event.spec.paper} · {event.spec.name}" + (f" ({event.spec.data_label})" if event.spec.data_label else "")
        self.update(self._all_fits, total=event.total, completed=done, note=where)
        if event.kind == "started":
            self.reset(self._current, total=None, visible=True, note=describe(event))
        elif event.kind == "stage":
            self._show_stage(event)
        elif event.kind in ("done", "failed"):
            self._print_result(event, where)

    def _show_stage(self, event: Event) -> None:
        detail = event.detail
        note = f"{describe(event)} — {detail['stage']}"
        if detail.get("error") is not None:
            note += f", error {detail['error']:.2f} %"
        self.update(self._current, total=detail.get("max_iter"), completed=detail.get("n_iter", 0), note=note)

    def _print_result(self, event: Event, where: str) -> None:
        head = f"[dim]{event.number:>3}/{event.total}[/dim] {escape(where)}  {escape(describe(event))}"
        if event.kind == "failed":
            self.console.print(f"[red]✗[/red] {head}  [red]{escape(event.detail['reason'])}[/red]")
            return
        metrics = event.detail["metrics"]
        self.console.print(
            f"[green]✓[/green] {head}  [bold]{metrics['error']:.2f} %[/bold]"
            f"  {metrics['seconds']:.2f} s  {metrics['peak_mb']:.0f} MB",
            soft_wrap=True,
        )


class DownloadBar(_TerminalProgress):
    """Progress callback of `gramless.papers.datasets.obtain` that shows a bar for each file."""

    def __init__(self, console: Console):
        bar = BarColumn(bar_width=28, complete_style="cyan")
        super().__init__(console, TextColumn("downloading {task.description}"), bar, DownloadColumn(), TransferSpeedColumn())
        self._files: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Show the progress of one file."""
        if name not in self._files:
            self._files[name] = self.add_task(name, total=total)
        self.update(self._files[name], completed=done, total=total)


def describe(event: Event) -> str:
    """Return the grid point, and the seed if the experiment has several seeds."""
    parts = [f"{name}={value}" for name, value in event.params.items()]
    if len(event.spec.seeds) > 1:
        parts.append(f"seed={event.seed}")
    return " ".join(parts)
