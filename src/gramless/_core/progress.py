"""Progress reports of long computations: a live bar on a terminal, else lines on standard error; none if not verbose."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from gramless._core.compiled.compilation_events import compilation_listener
from gramless._core.tuning import TUNING

COMPILING = "compiling, once after installation"


def log_progress(verbose: int, message: str) -> None:
    """Write one line to standard error if `verbose` is positive."""
    if verbose > 0:
        sys.stderr.write(f"[gramless] {message}\n")
        sys.stderr.flush()


@contextmanager
def report_compilation(report: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yield a progress callback that passes messages to `report`, prefixed with a note while numba compiles loops."""
    message, compiling = "", False

    def repeat() -> None:
        report("; ".join(filter(None, [COMPILING if compiling else "", message])))

    def callback(text: str) -> None:
        nonlocal message
        message = text
        repeat()

    def on_compilation(started: bool) -> None:
        nonlocal compiling
        compiling = started
        repeat()

    with compilation_listener(on_compilation):
        yield callback


class Progress:
    """Context manager that shows the progress of a fit: a bar of rich on a terminal, else a line every two seconds."""

    def __init__(self, verbose: int, total: int | None, label: str = ""):
        self.verbose = verbose
        self.total = total
        self.label = label or "fit"
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0
        self._listening = compilation_listener(self._on_compilation)

    def _on_compilation(self, started: bool) -> None:
        if self._bar is not None:
            self._bar.update(self._task, numbers=COMPILING if started else "")
        elif started:
            log_progress(self.verbose, f"{self.label}: {COMPILING}")

    def __enter__(self) -> Self:
        self._listening.__enter__()
        if self.verbose and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as RichProgress
            except ImportError:  # rich is an optional dependency
                return self
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.__enter__()
            self._task = self._bar.add_task(self.label, total=self.total, numbers="")
        return self

    def update(self, record: dict[str, Any]) -> None:
        """Show the numbers of an iteration, given as a record of the history."""
        if not self.verbose:
            return
        numbers = "  ".join(
            f"{key} {value:.3g}" for key, value in record.items() if key != "n_iter" and isinstance(value, (int, float))
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=record["n_iter"], numbers=numbers)
        elif time.monotonic() - self._last > TUNING.seconds_between_lines:
            self._last = time.monotonic()
            of = "" if self.total is None else f"/{self.total}"
            log_progress(self.verbose, f"{self.label}: {record['n_iter']}{of}  {numbers}")

    def __exit__(self, *exception: Any) -> None:
        self._listening.__exit__(*exception)
        if self._bar is not None:
            self._bar.__exit__(*exception)


def throughput_record(rows: int, start: int, total: int | None, seconds: float) -> dict[str, Any]:
    """Return a record for `Progress.update` with the rows per second since row `start` and the remaining seconds."""
    rate = (rows - start) / max(seconds, 1e-9)
    record: dict[str, Any] = {"n_iter": rows, "rows/s": rate}
    if total is not None:
        record["seconds left"] = (total - rows) / rate
    return record
