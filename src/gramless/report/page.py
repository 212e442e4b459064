"""One self-contained HTML page from declared experiments and their finished fits.

Nothing is fetched: style, charts and images are inside. The page opens from disk, on a phone and in the dark. This module
and its neighbours compute the values; how they are written stands in `templates`, where jinja2 escapes every text.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gramless._runtime.files import replaced
from gramless._version import __version__
from gramless.experiments import PAPERS, Claims, Confusion, Curve, Gallery, History, Spec, Table, View
from gramless.report.claims import claims_list
from gramless.report.figures import curve_figure, history_figure
from gramless.report.groups import Record, best, group_by, said
from gramless.report.mistakes import confusion_matrix, gallery
from gramless.report.tables import cost_bars, results_table
from gramless.report.words import comparison, counted, duration, memory, parameters

Shown = dict[str, Any]
"""What a template needs to know."""


def write_report(
    specs: Sequence[Spec],
    records: Sequence[Record],
    path: str | os.PathLike,
    *,
    quick: bool = False,
    missing: int = 0,
) -> Path:
    """Write the report of `records` to `path` in one piece.

    Parameters
    ----------
    specs : sequence of Spec
        The experiments, in the form in which they were run.
    records : sequence of dict
        What `Results.records` returned for them, failed fits included.
    path : path-like
        The page to write; an older one is replaced only when the new one is complete.
    quick : bool, default=False
        Whether these are the quick forms, which the page says.
    missing : int, default=0
        Fits that were not run yet; the page says that it is partial.

    Returns
    -------
    Path
        Where the page is.

    See Also
    --------
    page : The same as text.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from gramless.experiments import specs
    >>> from gramless.report import write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(specs("smo"), [], pathlib.Path(folder) / "report.html").name
    'report.html'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as part:
        part.write_text(page(specs, records, quick=quick, missing=missing), encoding="utf-8")
    return path


def page(specs: Sequence[Spec], records: Sequence[Record], *, quick: bool = False, missing: int = 0) -> str:
    """Write the whole page as text.

    Parameters
    ----------
    specs : sequence of Spec
        As in `write_report`.
    records : sequence of dict
        As in `write_report`.
    quick : bool, default=False
        As in `write_report`.
    missing : int, default=0
        As in `write_report`.

    Returns
    -------
    str
        HTML that needs no other file.

    See Also
    --------
    write_report : The same in a file.

    Examples
    --------
    >>> from gramless.experiments import specs
    >>> from gramless.report import page
    >>> page(specs("smo"), []).splitlines()[0]
    '<!doctype html>'
    """
    try:
        import jinja2
    except ImportError as reason:
        raise ImportError("the report needs jinja2: pip install 'gramless[cli]'") from reason

    by_experiment = group_by(records, lambda record: (record["paper"], record["experiment"]))
    found = {(spec.paper, spec.name): by_experiment.get((spec.paper, spec.name), []) for spec in specs}
    done = [record for record in records if record["status"] == "done"]
    # The quick forms have no figures of the papers: then there is nothing to compare, and no empty columns.
    compare = any(reference.metric == "error" for spec in specs for reference in spec.paper_says)
    loader = jinja2.PackageLoader("gramless.report")
    templates = jinja2.Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    templates.filters["shortened"] = lambda name: name if len(name) <= 5 else name[:4] + "."
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return templates.get_template("page.html").render(
        style=jinja2.filters.Markup(style),
        notes=_notes(len(records) - len(done), quick, missing),
        facts=[
            ("fits", str(len(done))),
            ("time in fits", duration(sum(record["metrics"]["seconds"] for record in done))),
            ("largest peak", memory(max((record["metrics"]["peak_mb"] for record in done), default=0.0))),
        ],
        motif=_motif(),
        quick=quick,
        compare=compare,
        overview=[_overview_row(spec, found[spec.paper, spec.name], compare) for spec in specs],
        papers=[
            {
                "name": name,
                "title": PAPERS[name].title,
                "summary": PAPERS[name].summary,
                "citation": PAPERS[name].citation,
                "experiments": [_experiment(spec, found[name, spec.name]) for spec in group],
            }
            for name, group in group_by(specs, lambda spec: spec.paper).items()
        ],
        machines=_machines(done),
        version=__version__,
    )


def _notes(failed: int, quick: bool, missing: int) -> list[tuple[str, str]]:
    notes = [("", "quick form, embedded digits")] if quick else []
    if missing:
        notes.append(("warn", f"partial: {counted(missing, 'fit')} not run yet"))
    if failed:
        notes.append(("bad", f"{counted(failed, 'fit')} failed"))
    return notes


def _motif(n: int = 15, kept: Sequence[int] = (2, 7, 11)) -> Shown:
    squares = []
    for i in range(n):
        for j in range(n):
            near = math.exp(-((i - j) ** 2) / 9) + 0.55 * math.exp(-((i + j - n) ** 2) / 5)
            opacity = min(1.0, 0.22 + 0.9 * near) if j in kept else 0.05 + 0.1 * near
            kind = "kept" if j in kept else "left"
            squares.append({"x": j * 10, "y": i * 10, "kind": kind, "opacity": opacity})
    return {"size": n * 10, "squares": squares}


def _overview_row(spec: Spec, records: Sequence[Record], compare: bool) -> Shown:
    record = best(record for record in records if record["status"] == "done")
    row: Shown = {"paper": PAPERS[spec.paper].title, "title": spec.title, "anchor": _anchor(spec), "error": None}
    if record is None:
        return row
    error = record["metrics"]["error"]
    reference = said(spec.paper_says, record["params"], "error")
    compared = comparison("error", error, None if reference is None else reference.value) if compare else []
    return {**row, "error": f"{error:.2f}", "comparison": compared, "how": parameters(record["params"])}


def _experiment(spec: Spec, records: Sequence[Record]) -> Shown:
    done = [record for record in records if record["status"] == "done"]
    failed = [record for record in records if record["status"] != "done"]
    warned = group_by([w["message"] for record in done for w in record.get("warnings", [])], lambda message: message)
    return {
        "anchor": _anchor(spec),
        "title": spec.title,
        "tag": done[0]["data"]["name"].replace("_", " ") if done else None,
        "about": spec.about,
        "facts": _facts(done) if done else [],
        "views": _views(spec, done) if done else [],
        "costs": cost_bars(done) if done else None,
        "empty": not records,
        "warnings": [(message, counted(len(fits), "fit")) for message, fits in warned.items()],
        "failed": [{"params": parameters(record["params"]), "reason": record["reason"]} for record in failed],
    }


def _facts(done: Sequence[Record]) -> list[str]:
    data = done[0]["data"]
    seeds = len({record["seed"] for record in done})
    return [
        f"{data['n_train']:,} rows to learn from, {data['n_test']:,} to test on",
        f"{data['n_features']:,} features",
        counted(len(done), "fit") + (f", {seeds} seeds" if seeds > 1 else ""),
    ]


def _views(spec: Spec, done: Sequence[Record]) -> list[Shown]:
    """What the spec wants drawn, in its order; neighbours that can share a row do."""
    drawn: list[Shown | None] = []
    waiting = list(spec.views)
    while waiting:
        pair = waiting[:2]
        if len(pair) == 2 and all(_is_single_chart(view) for view in pair):
            halves = [_view(view, spec, done, alone=False) for view in pair]
        elif len(pair) == 2 and {type(view) for view in pair} == {Confusion, Gallery}:
            halves = [_view(view, spec, done) for view in pair]
        else:
            drawn.append(_view(waiting.pop(0), spec, done))
            continue
        del waiting[:2]
        present = [half for half in halves if half is not None]
        drawn.append({"shows": "pair", "halves": present} if present else None)
    return [one for one in drawn if one is not None]


def _is_single_chart(view: View) -> bool:
    return isinstance(view, History | Curve) and view.facet is None


def _view(view: View, spec: Spec, done: Sequence[Record], *, alone: bool = True) -> Shown | None:
    match view:
        case History():
            return history_figure(view, spec, done, alone=alone)
        case Curve():
            return curve_figure(view, spec, done, alone=alone)
        case Table():
            return results_table(view, spec, done)
        case Confusion():
            return confusion_matrix(view, done)
        case Gallery():
            return gallery(view, done)
        case Claims():
            return claims_list(view, done)


def _machines(done: Sequence[Record]) -> list[list[str]]:
    machines = []
    for group in group_by(done, lambda record: repr((record["hardware"], record["versions"], record["commit"]))).values():
        hardware, versions = group[0]["hardware"], group[0]["versions"]
        last = time.strftime("%Y-%m-%d", time.gmtime(group[-1]["finished_at"]))
        machines.append(
            [
                f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gb']} GB, {hardware['system']}",
                ", ".join(f"{name} {version}" for name, version in versions.items()),
                f"commit {group[0]['commit'] or 'unknown'}; {counted(len(group), 'fit')}, the last on {last}",
            ]
        )
    return machines


def _anchor(spec: Spec) -> str:
    return f"{spec.paper}-{spec.name}"
