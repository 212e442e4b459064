"""`gramless reproduce` runs the experiments of the papers; `gramless report` writes the report of finished runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gramless.cli.display import DownloadBar, RunDisplay
from gramless.cli.errors import InputError, check_writable
from gramless.cli.options import ReproduceSettings
from gramless.papers.datasets import DatasetError, obtain
from gramless.papers.experiments.claims import check_claim
from gramless.papers.experiments.declarations import CHAPTERS, Spec, claim_named, records_of, specs, specs_of_claim
from gramless.papers.experiments.results import Results, on_one_device
from gramless.papers.experiments.runner import run
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


def reproduce(settings: ReproduceSettings, console: Console) -> dict[str, Any]:
    """Run the experiments that are not finished yet and write the report, also after Ctrl-C or SIGTERM.

    With `claim`, run what this claim needs and print its verdict; fits that were finished on another device count. The
    result has the paths of the files and the numbers of finished and failed fits.
    """
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
            # One thread: matrices of the quick variants are so small that a second thread would increase the time.
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
    console.print(summary(selected, records))
    if claim is not None:
        print_verdict(settings.paper, claim, records, console)
    failed = sum(record["status"] != "done" for record in records)
    if failed:
        console.print(f"[red]{counted(failed, 'fit')} failed[/red]; see the report. Run again to retry.", highlight=False)
    if interrupted:
        console.print("Interrupted. Run the same command again to continue.", highlight=False)
    console.print(f"Results  {escape(str(results.path))}", highlight=False, soft_wrap=True)
    console.print(f"Report   [bold]{escape(str(report))}[/bold]", highlight=False, soft_wrap=True)
    counts = {"finished": len(records) - failed, "failed": failed, "interrupted": interrupted}
    return {"results": str(results.path), "report": str(report), **counts}


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM, which containers and batch systems send, as Ctrl-C."""
    try:
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # handlers can be set in the main thread only
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def download_data(selected: Sequence[Spec], data: str | os.PathLike | None, console: Console) -> None:
    """Download missing datasets before the first fit; print errors and continue, so that only fits without data fail."""
    for name in dict.fromkeys(spec.data for spec in selected if isinstance(spec.data, str)):
        try:
            with DownloadBar(console) as bar:
                obtain(name, data=data, progress=bar)
        except DatasetError as reason:
            console.print(f"[yellow]{escape(str(reason))}[/yellow]", soft_wrap=True)


def choose(settings: ReproduceSettings) -> list[Spec]:
    """Return the experiments that the options select."""
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
    try:
        claim = claim_named(paper, name)
    except ValueError as reason:
        raise InputError(str(reason)) from None
    if not claim.comparisons:
        raise InputError(f"the claim {name} is not tested: {claim.reason}")
    return specs_of_claim(paper, claim)


def print_verdict(paper: str, name: str, records: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the verdict on a claim, its cause, and the comparisons from which it follows."""
    by_experiment = group_by(records, lambda record: (record["paper"], record["experiment"]))
    result = claim_values(check_claim(claim_named(paper, name), paper, by_experiment), paper)
    verdict = result["verdict"] + (f" ({result['count']})" if result["count"] else "")
    console.print(f"[bold]{escape(result['statement'])}[/bold] {escape(result['where'])}", soft_wrap=True)
    console.print(f"Paper {escape(result['printed'])}; ours {escape(result['ours'])}", soft_wrap=True, highlight=False)
    shown = {"what": "quantity", "ours": "ours", "expected": "expected", "theirs": "reference", "tolerance": "tolerance"}
    table = Table(*shown.values(), "holds", box=SIMPLE, header_style="bold")
    for check in result["checks"]:
        reading = f" ({check['reading']})" if check["reading"] else ""
        table.add_row(*(escape(check[key]) for key in shown), check["holds"] + reading)
    console.print(table)
    cause = ". ".join(text for text in (result["cause"], result["reason"]) if text)
    console.print(f"Verdict  [bold]{verdict}[/bold]  {escape(cause)}", soft_wrap=True, highlight=False)


def _matching(grid: Sequence[Mapping[str, Any]], where: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the grid points with the values of `where`, each "name=value" with the value as text or JSON."""
    for condition in where:
        name, equals, given = condition.partition("=")
        if not equals:
            raise InputError(f"--where takes name=value, not {condition!r}")
        grid = [p for p in grid if name in p and given in (str(p[name]), json.dumps(p[name]))]
    return tuple(grid)


def list_experiments(settings: ReproduceSettings, console: Console) -> list[dict[str, Any]]:
    """Print and return the selected experiments, their settings and their numbers of fits."""
    selected = choose(settings)
    table = Table("paper", "experiment", "title", "settings (--where)", header_style="bold", box=SIMPLE)
    table.add_column("fits", justify="right")
    for spec in selected:
        axes = {key: dict.fromkeys(str(p[key]) for p in spec.grid if key in p) for key in varying_among(spec.grid)}
        varied = "; ".join(f"{key} {', '.join(values)}" for key, values in axes.items())
        fits = str(len(spec.grid) * len(spec.seeds))
        table.add_row(spec.paper, spec.name, escape(spec.heading), escape(varied), fits)
    console.print(table)
    return [{"paper": s.paper, "experiment": s.name, "grid": s.grid, "seeds": s.seeds} for s in selected]


def summary(selected: Sequence[Spec], records: Sequence[dict[str, Any]]) -> Table:
    """Return a table of the headline error of each experiment on each device, with the paper's error."""
    compare = any(reference.metric == "error" for spec in selected for reference in spec.references)
    table = Table(title="Mean ± standard deviation over the seeds, of one setting each", title_justify="left", box=SIMPLE)
    table.header_style = "bold"
    table.add_column("experiment")
    for heading in ("fits", "error %", *(["paper %"] if compare else []), "seconds", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for spec in selected:
        done = [r for r in records if (r["paper"], r["experiment"], r["status"]) == (spec.paper, spec.name, "done")]
        name = f"{spec.paper} · {spec.name}" + (f", {escape(spec.data_label)}" if spec.data_label else "")
        fits = f"{len(done)}/{len(spec.grid) * len(spec.seeds)}"
        found = headline(spec, on_one_device(done))
        if found is None:
            table.add_row(name, fits)
            continue
        point = found.point
        reference = paper_value(spec.references, point.params, "error")
        device = "" if point.device == "CPU" else f" on {point.device}"
        cells = [mean_and_spread("error", point)]
        if compare:
            cells.append("" if reference is None else f"{reference.value:.2f}")
        cells += [f"{point.mean('seconds') or 0.0:.2f}", f"{point.mean('peak_mb') or 0.0:.0f}"]
        setting = f"{escape(parameters(point.params))}; {escape(found.chosen)}"
        table.add_row(f"{name}{device}\n[dim]{setting}[/dim]", fits, *cells)
    return table


def redraw(files: Sequence[Path], out: Path, *, benchmarks: Path | None, console: Console) -> dict[str, Any]:
    """Write the report of existing records of one or more runs; return its path and the numbers of records."""
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
    report = write_report(selected, found, out, quick=bool(quick), benchmarks=benchmarks, results=link)
    console.print(f"Report   [bold]{escape(str(report))}[/bold]", soft_wrap=True)
    return {"report": str(report), "records": len(found), "unknown": unknown}


def _fit_of(record: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Return the fit of a record, independent of its device."""
    return record["paper"], record["experiment"], repr(record["params"]), record["seed"]
