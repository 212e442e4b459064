"""`gramless reproduce`: run the declared experiments and write their report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gramless.cli.display import Display, DownloadBar
from gramless.cli.errors import EXIT_INTERRUPTED, EXIT_PARTLY_FAILED, InputError, check_writable
from gramless.papers.datasets import DatasetError, obtain
from gramless.papers.experiments import CHAPTERS, Results, ResultsError, Spec, run, specs
from gramless.papers.report import write_report
from gramless.papers.report.formatting import counted, mean_and_spread
from gramless.papers.report.groups import headlines, said, varying_among

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
    where: Sequence[str] = (),
    seed: int | None = None,
    fresh: bool = False,
    console: Console,
) -> Outcome:
    """Run the experiments that are not finished yet, then write the report, also after Ctrl-C or SIGTERM."""
    chosen = choose(paper, quick=quick, only=only, where=where, seed=seed)
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
    missing = len(wanted) - len(records)
    report = write_report(chosen, records, Path(out) / REPORT_FILE, quick=quick, missing=missing, results=RESULTS_FILE)
    console.print(summary(chosen, records))
    failed = sum(record["status"] != "done" for record in records)
    return Outcome(results.path, report, len(records) - failed, failed, interrupted)


_OF_EVERY_RECORD = ("paper", "experiment", "params", "seed")
_OF_STATUS = {"done": ("metrics", "data", "history", "hardware", "versions", "commit"), "failed": ("reason",)}


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


def choose(
    paper: str, *, quick: bool, only: str | None = None, where: Sequence[str] = (), seed: int | None = None
) -> Sequence[Spec]:
    """The experiments a command line asks for."""
    if paper != "all" and paper not in CHAPTERS:
        raise InputError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    declared = [spec for spec in specs(paper) if not quick or spec.quick is not None]
    chosen = [spec for spec in declared if only is None or spec.name == only]
    if not chosen:
        known = ", ".join(spec.name for spec in declared) or "none yet"
        raise InputError(f"no experiment named {only!r} in {paper}; there are: {known}")
    formed = [spec.quick_form() for spec in chosen] if quick else chosen
    kept = [spec for spec in (narrowed(spec, where, seed) for spec in formed) if spec is not None]
    if not kept:
        raise InputError(f"no setting with {' and '.join(where)}; `gramless reproduce {paper} --list` shows the settings")
    return kept


def narrowed(spec: Spec, where: Sequence[str], seed: int | None) -> Spec | None:
    """The experiment at the points of its grid that `where` allows (each ``name=value``), with one seed; None at none."""
    grid = spec.grid
    for condition in where:
        name, equals, given = condition.partition("=")
        if not equals:
            raise InputError(f"--where takes name=value, not {condition!r}")
        grid = [params for params in grid if name in params and given in _spellings(params[name])]
    return replace(spec, grid=tuple(grid), seeds=spec.seeds if seed is None else (seed,)) if grid else None


def _spellings(value: Any) -> tuple[str, ...]:
    return (str(value), json.dumps(value))


def listing(chosen: Sequence[Spec]) -> Table:
    """The experiments, what they fit, and how many fits they are."""
    table = Table(header_style="bold", box=SIMPLE)
    for heading in ("paper", "experiment", "what", "settings (--where)"):
        table.add_column(heading)
    table.add_column("fits", justify="right")
    for spec in chosen:
        axes = {key: list(dict.fromkeys(str(p[key]) for p in spec.grid if key in p)) for key in varying_among(spec.grid)}
        settings = "; ".join(f"{key} {', '.join(values)}" for key, values in axes.items())
        fits = str(len(spec.grid) * len(spec.seeds))
        table.add_row(spec.paper, spec.name, escape(spec.heading), escape(settings), fits)
    return table


def summary(chosen: Sequence[Spec], records: Sequence[dict[str, Any]]) -> Table:
    """One line per experiment and device: the mean error of one setting over the seeds, and how that was chosen."""
    compare = any(reference.metric == "error" for spec in chosen for reference in spec.paper_says)
    table = Table(title="Mean ± standard deviation over the seeds, of one setting each", title_justify="left", box=SIMPLE)
    table.header_style = "bold"
    table.add_column("experiment")
    for heading in ("fits", "error %", *(["paper %"] if compare else []), "seconds", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for spec in chosen:
        mine = [r for r in records if (r["paper"], r["experiment"]) == (spec.paper, spec.name)]
        done = [r for r in mine if r["status"] == "done"]
        name = f"{spec.paper} · {spec.name}, {escape(spec.on)}" if spec.on else f"{spec.paper} · {spec.name}"
        found = headlines(spec, done)
        if not found:
            table.add_row(name, f"0/{len(spec.grid) * len(spec.seeds)}")
        for one in found:
            point = one.point
            says = said(spec.paper_says, point.params, "error")
            how = " ".join(f"{key}={value}" for key, value in point.params.items())
            on = "" if point.device == "CPU" else f" on {point.device}"
            cells = [mean_and_spread("error", point.mean("error"), point.spread("error"))]
            if compare:
                cells.append("" if says is None else f"{says.value:.2f}")
            cells += [f"{point.mean('seconds') or 0.0:.2f}", f"{point.mean('peak_mb') or 0.0:.0f}"]
            fits = f"{len(done)}/{len(spec.grid) * len(spec.seeds)}"
            table.add_row(f"{name}{on}\n[dim]{escape(how)}; {escape(one.chosen)}[/dim]", fits, *cells)
    return table


@dataclass(frozen=True)
class Drawn:
    """What `gramless report` made."""

    report: Path
    records: int
    unknown: int

    def as_json(self) -> dict[str, Any]:
        """The outcome in the types of JSON."""
        return {"report": str(self.report), "records": self.records, "unknown": self.unknown}


def redraw(files: Sequence[Path], out: Path, *, benchmarks: Path | None, console: Console) -> Drawn:
    """Write the report of records that are already there, of one run or of several."""
    records: dict[str, dict[str, Any]] = {}
    for path in files:
        if not path.is_file():
            raise InputError(f"{path} is not a file: give the results.jsonl that `gramless reproduce` wrote")
        records |= {record["key"]: _complete(record, path) for record in Results(path).records()}
    declared = specs("all")
    forms = {"full": declared, "quick": tuple(spec.quick_form() for spec in declared if spec.quick is not None)}
    known = {form: _keys(chosen, records.values()) for form, chosen in forms.items()}
    matched = {form: {key: record for key, record in records.items() if key in known[form]} for form in forms}
    if matched["full"] and matched["quick"]:
        raise InputError("these are records of quick forms and of full ones: draw a page of each")
    form = "quick" if matched["quick"] else "full"
    found = matched[form]
    unknown = len(records) - len(found)
    if unknown:
        console.print(
            f"[yellow]{counted(unknown, 'record')} of experiments that are not declared any more left out.[/yellow]"
        )
    ran = {(record["paper"], record["experiment"]) for record in found.values()}
    chosen = [spec for spec in forms[form] if (spec.paper, spec.name) in ran]
    link = os.path.relpath(files[0], out.parent) if len(files) == 1 else ""
    check_writable(out)
    report = write_report(chosen, list(found.values()), out, quick=form == "quick", benchmarks=benchmarks, results=link)
    console.print(f"Report   [bold]{escape(str(report))}[/bold]", soft_wrap=True)
    return Drawn(report, len(found), unknown)


def _keys(chosen: Sequence[Spec], records: Iterable[Mapping[str, Any]]) -> set[str]:
    """The keys that the records would have if the experiments declared now had made them."""
    by_name = {(spec.paper, spec.name): spec for spec in chosen}
    keys = set()
    for record in records:
        spec = by_name.get((record["paper"], record["experiment"]))
        if spec is not None:
            keys.add(spec.key(record["params"], record["seed"], record.get("device")))
    return keys
