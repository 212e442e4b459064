"""Progress of a run in the terminal: a bar for all fits, and a bar for the current fit.

If the output is not a terminal, one line is printed for each finished fit.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from gramless.papers.experiments import Event


class Display:
    """Context manager that shows the events of a run."""

    def __init__(self, console: Console):
        self.console = console
        self._progress = Progress(
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._all_fits = self._progress.add_task("all fits", total=None, note="")
        self._current = self._progress.add_task("this fit", total=None, note="", visible=False)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        done = event.number if event.kind in ("done", "failed", "skipped") else event.number - 1
        where = f"{event.spec.paper} · {event.spec.name}" + (f" ({event.spec.data_label})" if event.spec.data_label else "")
        self._progress.update(self._all_fits, total=event.total, completed=done, note=where)
        if event.kind == "started":
            self._progress.reset(self._current, total=None, visible=True, note=describe(event))
        elif event.kind == "stage":
            self._show_stage(event)
        elif event.kind in ("done", "failed"):
            self._print_result(event, where)

    def _show_stage(self, event: Event) -> None:
        detail = event.detail
        note = f"{describe(event)} — {detail['stage']}"
        if detail.get("error") is not None:
            note += f", error {detail['error']:.2f} %"
        self._progress.update(self._current, total=detail.get("max_iter"), completed=detail.get("n_iter", 0), note=note)

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


class DownloadBar:
    """Progress callback of `gramless.papers.datasets.obtain` that shows a bar for each file."""

    def __init__(self, console: Console):
        self._progress = Progress(
            TextColumn("downloading {task.description}"),
            BarColumn(bar_width=28, complete_style="cyan"),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> DownloadBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Show the progress of one file."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


def describe(event: Event) -> str:
    """Return the grid point, and the seed if the experiment has several seeds."""
    parts = [f"{name}={value}" for name, value in event.params.items()]
    if len(event.spec.seeds) > 1:
        parts.append(f"seed={event.seed}")
    return " ".join(parts)
