"""`gramless reproduce` runs the experiments of the papers; `gramless report` writes the report of finished runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from gramless._core.memory import format_bytes
from gramless.cli.display import StepDisplay, TerminalProgress, print_sections
from gramless.cli.errors import InputError, check_writable, input_errors
from gramless.cli.options import ReportSettings, ReproduceSettings
from gramless.papers.datasets import DatasetError, obtain
from gramless.papers.experiments.claims import check_claim
from gramless.papers.experiments.declarations import CHAPTERS, Spec, claim_named, records_of, specs, specs_of_claim
from gramless.papers.experiments.results import Results, on_one_device
from gramless.papers.experiments.runner import Event, run
from gramless.papers.report import write_report
from gramless.papers.report.formatting import (
    claim_values,
    counted,
    group_by,
    headline,
    mean_and_spread,
    paper_value,
    parameters,
    varying_among,
)

RESULTS_FILE = "results.jsonl"
REPORT_FILE = "report.html"


def reproduce(settings: ReproduceSettings, console: Console) -> Any:
    """Run the experiments that are not finished yet and write the report, also after Ctrl-C or SIGTERM.

    With `claim`, run only the fits that this claim needs, unless they were finished on any device, and print the verdict on
    the claim. The result has the paths of the records and of the report, and the numbers of finished and failed fits.
    """
    if settings.show:
        return list_experiments(settings, console)
    selected = choose(settings)
    folder, claim, device = settings.out, settings.claim, settings.device
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give --out the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / RESULTS_FILE)
    results = Results(folder / RESULTS_FILE)
    if settings.fresh:
        results.path.unlink(missing_ok=True)
    interrupted = False
    try:
        download_data(selected, settings.data, console)
        with _sigterm_as_interrupt(), RunDisplay(console) as display:
            # The matrices of the quick experiments are so small that more than one thread would increase the time.
            threads, any_device = 1 if settings.quick else None, claim is not None
            options: dict[str, Any] = {"device": device, "data": settings.data, "threads": threads, "any_device": any_device}
            run(selected, results, **options, on_event=display)
    except KeyboardInterrupt:
        interrupted = True
    records = records_of(selected, results.records())
    fits = {(spec.paper, spec.name, repr(params), seed) for spec in selected for params, seed in spec.fits()}
    records = [r for r in records if _fit_of(r) in fits and (claim is not None or r.get("device") == device)]
    missing = len(fits - set(map(_fit_of, records)))
    report = write_report(
        selected, records, folder / REPORT_FILE, quick=settings.quick, missing=missing, results=RESULTS_FILE
    )
    print_summary(selected, records, console)
    if claim is not None:
        print_verdict(settings.paper, claim, records, console)
    failed = sum(record["status"] != "done" for record in records)
    if failed:
        console.print(f"[red]{counted(failed, 'fit')} failed[/red]; see the report. Run again to retry.")
    if interrupted:
        console.print("Interrupted. Run the same command again to continue.")
    console.print(f"Results  {escape(str(results.path))}")
    console.print(f"Report   [bold]{escape(str(report))}[/bold]")
    counts = {"finished": len(records) - failed, "failed": failed, "interrupted": interrupted}
    return {"results": str(results.path), "report": str(report), **counts}


class RunDisplay(TerminalProgress):
    """Display with a bar for all fits of a run and a bar for the current fit, and one printed line for each finished fit."""

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
        """Update the bars, and print a line if the event is the end of a fit."""
        number, detail, name = event.number, event.detail, _name(event.spec)
        seed = {"seed": event.seed} if len(event.spec.seeds) > 1 else {}
        setting = " ".join(f"{key}={value}" for key, value in {**event.params, **seed}.items())
        head = f"[dim]{number:>3}/{event.total}[/dim] {escape(name)}  {escape(setting)}"
        done = number - 1 if event.kind in ("started", "stage") else number
        self.update(self._all_fits, total=event.total, completed=done, note=name)
        if event.kind == "started":
            self.reset(self._current, total=None, visible=True, note=setting)
        elif event.kind == "stage":
            error = f", error {detail['error']:.2f} %" if detail.get("error") is not None else ""
            note = f"{setting} — {detail['stage']}{error}"
            self.update(self._current, total=detail.get("max_iter"), completed=detail.get("n_iter", 0), note=note)
        elif event.kind == "failed":
            self.console.print(f"[red]✗[/red] {head}  [red]{escape(detail['reason'])}[/red]")
        elif event.kind == "done":
            metrics = detail["metrics"]
            used = f"{metrics['seconds']:.2f} s  {metrics['peak_mb']:.0f} MB"
            self.console.print(f"[green]✓[/green] {head}  [bold]{metrics['error']:.2f} %[/bold]  {used}")


def _name(spec: Spec) -> str:
    return f"{spec.paper} · {spec.name}" + (f", {spec.data_label}" if spec.data_label else "")


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Context manager that handles SIGTERM, with which containers and batch systems stop a process, like Ctrl-C."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def download_data(selected: Sequence[Spec], data: str | os.PathLike | None, console: Console) -> None:
    """Download missing datasets before the first fit; print errors and continue, so that only fits without data fail."""
    with StepDisplay(console) as notify:

        def show(name: str, done: int, total: int | None) -> None:
            notify(f"downloading {name}: {format_bytes(done)}" + (f" of {format_bytes(total)}" if total else ""))

        for name in dict.fromkeys(spec.data for spec in selected if isinstance(spec.data, str)):
            try:
                obtain(name, data=data, progress=show)
            except DatasetError as reason:
                console.print(f"[yellow]{escape(str(reason))}[/yellow]")


def choose(settings: ReproduceSettings) -> list[Spec]:
    """Return the experiments that the command-line options select, with the selected settings and seeds."""
    paper, quick, where = settings.paper, settings.quick, settings.where or []
    if paper != "all" and paper not in CHAPTERS:
        raise InputError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    if settings.claim is None:
        declared = [spec for spec in specs(paper) if not quick or spec.quick is not None]
    else:
        declared = _experiments_of_claim(paper, settings.claim, quick)
    named = [spec for spec in declared if settings.only in (None, spec.name)]
    if not named:
        known = ", ".join(spec.name for spec in declared) or "none"
        raise InputError(f"no experiment named {settings.only!r} in {paper}; there are: {known}")
    selected = []
    for spec in named:
        form = spec.quick_form() if quick else spec
        grid = _matching(form.grid, where)
        if grid:
            selected.append(replace(form, grid=grid, seeds=form.seeds if settings.seed is None else (settings.seed,)))
    if not selected:
        raise InputError(f"no setting with {' and '.join(where)}; `gramless reproduce {paper} --list` shows the settings")
    return selected


def _experiments_of_claim(paper: str, name: str, quick: bool) -> list[Spec]:
    if quick or paper == "all":
        raise InputError("--claim takes the name of one paper and the paper's own data: leave out --quick and all")
    with input_errors():
        claim = claim_named(paper, name)
    if not claim.comparisons:
        raise InputError(f"the claim {name} is not tested: {claim.reason}")
    return specs_of_claim(paper, claim)


def print_verdict(paper: str, name: str, records: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the verdict on a claim, the cause of the verdict, and the comparisons from which the verdict follows."""
    by_experiment = group_by(records, lambda record: (record["paper"], record["experiment"]))
    result = claim_values(check_claim(claim_named(paper, name), paper, by_experiment), paper)
    verdict = result["verdict"] + (f" ({result['count']})" if result["count"] else "")
    console.print(f"[bold]{escape(result['statement'])}[/bold] {escape(result['where'])}")
    console.print(f"Paper {escape(result['printed'])}; ours {escape(result['ours'])}")
    heading = ["quantity", "ours", "expected", "reference", "tolerance", "holds"]
    keys = ("what", "ours", "expected", "theirs", "tolerance", "holds")
    rows = [[check[key] for key in keys] for check in result["checks"]]
    for row, check in zip(rows, result["checks"], strict=True):
        row[-1] += f" ({check['reading']})" if check["reading"] else ""
    print_sections(console, [("Comparisons", heading, rows)])
    cause = ". ".join(text for text in (result["cause"], result["reason"]) if text)
    console.print(f"Verdict  [bold]{verdict}[/bold]  {escape(cause)}")


def _matching(grid: Sequence[Mapping[str, Any]], where: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the grid points that satisfy all conditions `where`, strings "name=value" with the value as text or JSON."""
    for condition in where:
        name, equals, given = condition.partition("=")
        if not equals:
            raise InputError(f"--where takes name=value, not {condition!r}")
        grid = [p for p in grid if name in p and given in (str(p[name]), json.dumps(p[name]))]
    return tuple(grid)


def list_experiments(settings: ReproduceSettings, console: Console) -> list[dict[str, Any]]:
    """Print and return the selected experiments, their settings and their numbers of fits."""
    selected = choose(settings)
    rows = []
    for spec in selected:
        axes = {key: dict.fromkeys(str(p[key]) for p in spec.grid if key in p) for key in varying_among(spec.grid)}
        varied = "; ".join(f"{key} {', '.join(values)}" for key, values in axes.items())
        rows.append([spec.paper, spec.name, spec.heading, varied, str(len(spec.grid) * len(spec.seeds))])
    heading = ["paper", "experiment", "title", "settings (--where)", "fits"]
    print_sections(console, [("Experiments", heading, rows)])
    return [{"paper": s.paper, "experiment": s.name, "grid": s.grid, "seeds": s.seeds} for s in selected]


def print_summary(selected: Sequence[Spec], records: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the error of the setting that represents each experiment, with the error in the paper."""
    rows = []
    for spec in selected:
        done = [r for r in records if (r["paper"], r["experiment"], r["status"]) == (spec.paper, spec.name, "done")]
        name, cells = _name(spec), [""] * 4
        found = headline(spec, on_one_device(done))
        if found is not None:
            point = found.point
            name += "" if point.device == "CPU" else f" on {point.device}"
            name += f"\n{parameters(point.params)}; {found.chosen}"
            reference = paper_value(spec.references, point.params, "error")
            used = [f"{point.mean('seconds') or 0.0:.2f}", f"{point.mean('peak_mb') or 0.0:.0f}"]
            cells = [mean_and_spread("error", point), "" if reference is None else f"{reference.value:.2f}", *used]
        rows.append([name, f"{len(done)}/{len(spec.grid) * len(spec.seeds)}", *cells])
    heading = ["experiment", "fits", "error %", "paper %", "seconds", "peak MB"]
    print_sections(console, [("Mean ± standard deviation over the seeds, of one setting each", heading, rows)])


def redraw(settings: ReportSettings, console: Console) -> dict[str, Any]:
    """Write a report of the existing records of one or more runs; return its path and the numbers of its records."""
    files, out = settings.results, settings.out
    records: dict[str, dict[str, Any]] = {}
    for path in files:
        if not path.is_file():
            raise InputError(f"{path} is not a file: give the results.jsonl that `gramless reproduce` wrote")
        records |= {record["key"]: record for record in Results(path).records()}
    declared = specs("all")
    full = records_of(declared, records.values())
    quick_forms = [spec.quick_form() for spec in declared if spec.quick is not None]
    quick = records_of(quick_forms, records.values())
    if full and quick:
        raise InputError("these are records of quick and of full experiments: write a separate report of each")
    found = quick or full
    unknown = len(records) - len(found)
    if unknown:
        console.print(f"[yellow]{counted(unknown, 'record')} of experiments that no longer exist were omitted.[/yellow]")
    names = {(record["paper"], record["experiment"]) for record in found}
    selected = [spec for spec in (quick_forms if quick else declared) if (spec.paper, spec.name) in names]
    link = os.path.relpath(files[0], out.parent) if len(files) == 1 else ""
    check_writable(out)
    report = write_report(selected, found, out, quick=bool(quick), benchmarks=settings.benchmarks, results=link)
    console.print(f"Report   [bold]{escape(str(report))}[/bold]")
    return {"report": str(report), "records": len(found), "unknown": unknown}


def _fit_of(record: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Return paper, experiment, parameters and seed of a record, which identify a fit independent of its device."""
    return record["paper"], record["experiment"], repr(record["params"]), record["seed"]
