"""Progress of a long computation: a live bar on a terminal, plain lines elsewhere, nothing unless asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gramless._core.compiled.compilation_events import compilation_listener

COMPILING = "compiling, once after installation"

_SECONDS_BETWEEN_LINES = 2.0


def log_progress(verbose: int, message: str) -> None:
    """One line to standard error where the user asked for words."""
    if verbose:
        sys.stderr.write(f"[gramless] {message}\n")
        sys.stderr.flush()


@contextmanager
def report_compilation(tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """A `tell` that says of anything that is done while loops are compiled what takes so long."""
    doing, compiling = "", False

    def say_it() -> None:
        tell("; ".join(filter(None, [COMPILING if compiling else "", doing])))

    def told(text: str) -> None:
        nonlocal doing
        doing = text
        say_it()

    def hear(begins: bool) -> None:
        nonlocal compiling
        compiling = begins
        say_it()

    with compilation_listener(hear):
        yield told


class Progress:
    """A bar (rich, on a terminal) or a line every few seconds with whatever numbers the records carry."""

    def __init__(self, verbose: int, total: int | None, label: str = ""):
        self.verbose = verbose
        self.total = total
        self.label = label or "fit"
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0
        self._listening = compilation_listener(self._on_compilation)

    def _on_compilation(self, begins: bool) -> None:
        if self._bar is not None:
            self._bar.update(self._task, numbers=COMPILING if begins else "")
        elif begins:
            log_progress(self.verbose, f"{self.label}: {COMPILING}")

    def __enter__(self) -> Progress:
        self._listening.__enter__()
        if self.verbose and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as RichProgress
            except ImportError:
                return self  # rich comes with an extra; plain lines say the same
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
        """Show the record of an iteration."""
        if not self.verbose:
            return
        numbers = "  ".join(
            f"{key} {value:.3g}" for key, value in record.items() if key != "n_iter" and isinstance(value, (int, float))
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=record["n_iter"], numbers=numbers)
        elif time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            of = "" if self.total is None else f"/{self.total}"
            log_progress(self.verbose, f"{self.label}: {record['n_iter']}{of}  {numbers}")

    def __exit__(self, *exception: Any) -> None:
        self._listening.__exit__(*exception)
        if self._bar is not None:
            self._bar.__exit__(*exception)


def throughput_record(rows: int, start: int, total: int | None, seconds: float) -> dict[str, Any]:
    """Rows a second since `start`, and what is left at that rate, as a record for `Progress.update`."""
    rate = (rows - start) / max(seconds, 1e-9)
    record: dict[str, Any] = {"n_iter": rows, "rows/s": rate}
    if total is not None:
        record["seconds left"] = (total - rows) / rate
    return record
