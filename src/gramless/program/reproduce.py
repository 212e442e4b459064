"""`gramless reproduce`: run the declared experiments and write their report."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gramless.datasets import DatasetError, obtain
from gramless.experiments import PAPERS, Results, ResultsError, Spec, run, specs
from gramless.program.display import Display, DownloadBar
from gramless.program.errors import EXIT_INTERRUPTED, EXIT_PARTLY_FAILED, InputError, check_writable
from gramless.report import write_report
from gramless.report.words import counted

RESULTS_FILE = "results.jsonl"
REPORT_FILE = "report.html"


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    results: Path
    report: Path
    finished: int
    failed: int
    interrupted: bool

    def words(self) -> list[str]:
        """What to tell a person at the end."""
        lines = []
        if self.failed:
            lines.append(f"[red]{counted(self.failed, 'fit')} failed[/red]; the report says why. Run again to retry.")
        if self.interrupted:
            lines.append("Interrupted. Run the same command again to go on where this stopped.")
        places = [escape(str(place)) for place in (self.results, self.report)]
        return [*lines, f"Results  {places[0]}", f"Report   [bold]{places[1]}[/bold]"]

    def exit_code(self) -> int:
        """0, or why not."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_PARTLY_FAILED if self.failed else 0

    def as_json(self) -> dict[str, Any]:
        """The outcome in the types of JSON."""
        return {
            "results": str(self.results),
            "report": str(self.report),
            "finished": self.finished,
            "failed": self.failed,
            "interrupted": self.interrupted,
        }


def reproduce(
    paper: str = "all",
    *,
    quick: bool = False,
    out: str | os.PathLike = "gramless-report",
    data: str | os.PathLike | None = None,
    device: str | None = None,
    only: str | None = None,
    fresh: bool = False,
    console: Console,
) -> Outcome:
    """Run the experiments that are not finished yet, then write the report, also after Ctrl-C or SIGTERM."""
    chosen = choose(paper, quick=quick, only=only)
    _make_folder(Path(out))
    results = Results(Path(out) / RESULTS_FILE)
    if fresh:
        results.path.unlink(missing_ok=True)
    wanted = {spec.key(params, seed, device) for spec in chosen for params, seed in spec.fits()}
    interrupted = False
    try:
        fetch_data(chosen, data, console)
        with _termination_interrupts(), Display(console) as display:
            # Matrices of the quick forms are so small that a second thread costs more than it brings.
            run(chosen, results, device=device, data=data, threads=1 if quick else None, on_event=display)
    except KeyboardInterrupt:
        interrupted = True
    records = [_complete(record, results.path) for record in results.records() if record["key"] in wanted]
    report = write_report(chosen, records, Path(out) / REPORT_FILE, quick=quick, missing=len(wanted) - len(records))
    console.print(summary(chosen, records))
    failed = sum(record["status"] != "done" for record in records)
    return Outcome(results.path, report, len(records) - failed, failed, interrupted)


_OF_EVERY_RECORD = ("paper", "experiment", "params", "seed")
_OF_STATUS = {"done": ("metrics", "data", "history", "hardware", "versions", "commit", "finished_at"), "failed": ("reason",)}


def _complete(record: dict[str, Any], path: Path) -> dict[str, Any]:
    """A record that the report can show; those of another version, or edited ones, are refused."""
    needed = (*_OF_EVERY_RECORD, *_OF_STATUS.get(record["status"], ("a status that is done or failed",)))
    missing = [name for name in needed if name not in record]
    if missing:
        raise ResultsError(f"{path}: the record {record['key']} lacks {', '.join(missing)}; start anew with --fresh")
    return record


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM, which containers and batch systems send, ends a run as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where signals cannot be set
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _make_folder(out: Path) -> None:
    """A folder that cannot be written is told before the first fit and not after it."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give --out the name of a folder")
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / RESULTS_FILE)


def fetch_data(chosen: Sequence[Spec], data: str | os.PathLike | None, console: Console) -> None:
    """Download what the experiments name and no folder holds, before the first fit and with a bar of its own.

    What cannot be had is told here and fails the fits that need it; the others go on.
    """
    for name in dict.fromkeys(spec.data for spec in chosen if isinstance(spec.data, str)):
        try:
            with DownloadBar(console) as bar:
                obtain(name, data=data, progress=bar)
        except DatasetError as reason:
            console.print(f"[yellow]{escape(str(reason))}[/yellow]", soft_wrap=True)


def choose(paper: str, *, quick: bool, only: str | None) -> Sequence[Spec]:
    """The experiments a command line asks for."""
    if paper != "all" and paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}; known are {', '.join(PAPERS)} and all")
    declared = [spec for spec in specs(paper) if not quick or spec.quick is not None]
    chosen = [spec for spec in declared if only is None or spec.name == only]
    if not chosen:
        known = ", ".join(spec.name for spec in declared) or "none yet"
        raise InputError(f"no experiment named {only!r} in {paper}; there are: {known}")
    return [spec.quick_form() for spec in chosen] if quick else chosen


def summary(chosen: Sequence[Spec], records: Sequence[dict[str, Any]]) -> Table:
    """One line per experiment: the best fit, what it cost, what the paper says."""
    compare = any(reference.metric == "error" for spec in chosen for reference in spec.paper_says)
    table = Table(title="Best fit of each experiment", title_justify="left", header_style="bold", box=SIMPLE)
    table.add_column("experiment")
    for heading in ("fits", "error %", *(["paper %"] if compare else []), "seconds", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for spec in chosen:
        mine = [r for r in records if (r["paper"], r["experiment"]) == (spec.paper, spec.name)]
        done = [r for r in mine if r["status"] == "done"]
        name = f"{spec.paper} · {spec.name}"
        fits = f"{len(done)}/{len(spec.grid) * len(spec.seeds)}"
        if not done:
            table.add_row(name, fits)
            continue
        best = min(done, key=lambda record: record["metrics"]["error"])
        says = [r.value for r in spec.paper_says if r.metric == "error" and r.matches(best["params"])]
        how = escape(" ".join(f"{key}={value}" for key, value in best["params"].items()))
        cells = [f"{best['metrics']['error']:.2f}"]
        if compare:
            cells.append(f"{says[0]:.2f}" if says else "")
        cells += [f"{best['metrics']['seconds']:.2f}", f"{best['metrics']['peak_mb']:.0f}"]
        table.add_row(f"{name}\n[dim]{how}[/dim]", fits, *cells)
    return table
