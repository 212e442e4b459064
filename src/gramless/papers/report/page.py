"""Report of experiments as one self-contained HTML page.

Style, script, charts and images are inside the page, which has a dark color scheme and a layout for phones. The modules of
this package compute values; the templates write them, and jinja2 escapes all text.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gramless._core.files import atomic_write
from gramless._version import __version__
from gramless.papers.experiments import (
    CHAPTERS,
    FIELDS,
    PAPERS,
    Confusion,
    Curve,
    Gallery,
    History,
    Pictures,
    Spec,
    Table,
    View,
    claims,
)
from gramless.papers.report.claims import claims_section
from gramless.papers.report.confusion import confusion_matrix, gallery, pictures
from gramless.papers.report.figures import curve_figure, history_figure
from gramless.papers.report.formatting import comparison, counted, duration, mean_and_spread, memory, parameters
from gramless.papers.report.groups import Headline, Record, by_device, group_by, headlines, paper_value
from gramless.papers.report.peers import peers
from gramless.papers.report.tables import cost_bars, results_table

TemplateValues = dict[str, Any]


def write_report(
    specs: Sequence[Spec],
    records: Sequence[Record],
    path: str | os.PathLike,
    *,
    quick: bool = False,
    missing: int = 0,
    benchmarks: str | os.PathLike | None = None,
    results: str = "",
) -> Path:
    """Write the report of `records` to a file, which is replaced only when the new one is complete.

    `missing` is the number of fits that were not run yet, `benchmarks` the folder of the benchmark records, and `results`
    the address of the records for a link.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        text = page(specs, records, quick=quick, missing=missing, benchmarks=benchmarks, results=results)
        part.write_text(text, encoding="utf-8")
    return path


def page(
    specs: Sequence[Spec],
    records: Sequence[Record],
    *,
    quick: bool = False,
    missing: int = 0,
    benchmarks: str | os.PathLike | None = None,
    results: str = "",
) -> str:
    """Return the page of `write_report` as text."""
    try:
        import jinja2
    except ImportError as reason:
        raise ImportError("the report needs jinja2: pip install 'gramless[cli]'") from reason

    by_experiment = group_by(records, lambda record: (record["paper"], record["experiment"]))
    found = {(spec.paper, spec.name): by_experiment.get((spec.paper, spec.name), []) for spec in specs}
    done = [record for record in records if record["status"] == "done"]
    # The quick forms have no values of the papers, so the columns for them are left out.
    compare = any(reference.metric == "error" for spec in specs for reference in spec.references)
    loader = jinja2.PackageLoader("gramless.papers.report")
    templates = jinja2.Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    templates.filters["shortened"] = lambda name: name if len(name) <= 5 else name[:4] + "."
    here = Path(__file__).parent
    chapters = [_chapter(name, group, found, quick) for name, group in group_by(specs, lambda spec: spec.paper).items()]
    others = [] if benchmarks is None else peers(Path(benchmarks))
    return templates.get_template("page.html").render(
        style=jinja2.filters.Markup((here / "style.css").read_text(encoding="utf-8")),
        script=jinja2.filters.Markup((here / "script.js").read_text(encoding="utf-8")),
        notes=_notes(len(records) - len(done), quick, missing),
        facts=[
            ("fits", f"{len(done):,}"),
            ("time in fits", duration(sum(record["metrics"]["seconds"] for record in done))),
            ("largest peak", memory(max((record["metrics"]["peak_mb"] for record in done), default=0.0))),
        ],
        motif=_motif(),
        quick=quick,
        compare=compare,
        overview=[row for spec in specs for row in _overview_rows(spec, found[spec.paper, spec.name], compare)],
        chapters=chapters,
        claimed=_verdict_counts(chapters),
        peers=others,
        warnings=_warnings(done),
        machines=_machines(done),
        papers=[{"name": name, "citation": paper.citation, "bibtex": paper.bibtex(name)} for name, paper in PAPERS.items()],
        fields=list(FIELDS.items()),
        results=results,
        version=__version__,
    )


def _chapter(name: str, group: Sequence[Spec], found: Any, quick: bool) -> TemplateValues:
    about = CHAPTERS[name]
    return {
        "name": name,
        "title": about.heading,
        "summary": about.summary,
        "citation": about.citation,
        # Claims refer to the paper's data, which the quick forms do not use.
        "claims": None if quick else claims_section(claims(name), name, found),
        "experiments": [_experiment(spec, found[name, spec.name], quick) for spec in group],
    }


def _verdict_counts(chapters: Sequence[TemplateValues]) -> list[tuple[str, int]]:
    """Return the number of claims of all papers by verdict."""
    totals: dict[str, int] = {}
    for chapter in chapters:
        for verdict, count in chapter["claims"]["counts"] if chapter["claims"] else ():
            totals[verdict] = totals.get(verdict, 0) + count
    return list(totals.items())


def _notes(failed: int, quick: bool, missing: int) -> list[tuple[str, str]]:
    notes = [("", "quick form: small data that comes with scikit-learn")] if quick else []
    if missing:
        notes.append(("warn", f"partial: {counted(missing, 'fit')} not run yet"))
    if failed:
        notes.append(("bad", f"{counted(failed, 'fit')} failed"))
    return notes


def _motif(n: int = 15, kept: Sequence[int] = (2, 7, 11)) -> TemplateValues:
    squares = []
    for i in range(n):
        for j in range(n):
            near = math.exp(-((i - j) ** 2) / 9) + 0.55 * math.exp(-((i + j - n) ** 2) / 5)
            opacity = min(1.0, 0.22 + 0.9 * near) if j in kept else 0.05 + 0.1 * near
            kind = "kept" if j in kept else "left"
            squares.append({"x": j * 10, "y": i * 10, "kind": kind, "opacity": opacity})
    return {"size": n * 10, "squares": squares}


def _overview_rows(spec: Spec, records: Sequence[Record], compare: bool) -> list[TemplateValues]:
    """Return a row of the overview for each device of an experiment."""
    row: TemplateValues = {
        "paper": CHAPTERS[spec.paper].heading,
        "title": spec.heading,
        "anchor": _anchor(spec),
        "error": None,
    }
    found = headlines(spec, [record for record in records if record["status"] == "done"])
    if not found:
        return [row]
    return [{**row, "device": one.point.device, **_headline(one, spec, compare)} for one in found]


def _headline(one: Headline, spec: Spec, compare: bool) -> TemplateValues:
    point = one.point
    mean = point.mean("error")
    reference = paper_value(spec.references, point.params, "error")
    seeds = len(point.seeds)
    return {
        "error": mean_and_spread("error", mean, point.spread("error")),
        "seeds": counted(seeds, "seed"),
        "comparison": comparison("error", mean, None if reference is None else reference.value) if compare else [],
        "how": parameters(point.params),
        "chosen": one.chosen,
    }


def _experiment(spec: Spec, records: Sequence[Record], quick: bool) -> TemplateValues:
    done = [record for record in records if record["status"] == "done"]
    failed = [record for record in records if record["status"] != "done"]
    return {
        "anchor": _anchor(spec),
        "name": spec.name,
        "title": spec.heading,
        "about": spec.about,
        "finding": spec.finding,
        "facts": _facts(done) if done else [],
        "headlines": [{"device": one.point.device, **_headline(one, spec, False)} for one in headlines(spec, done)],
        "views": _views(spec, done, quick) if done else [],
        "costs": cost_bars(done) if done else None,
        "empty": not records,
        "warned": sum(bool(record.get("warnings")) for record in done),
        "failed": [{"params": parameters(record["params"]), "reason": record["reason"]} for record in failed],
    }


def _facts(done: Sequence[Record]) -> list[str]:
    data = done[0]["data"]
    seeds = len({record["seed"] for record in done})
    return [
        f"{data['name'].replace('_', ' ')}: {data['n_train']:,} training rows, {data['n_test']:,} test rows",
        f"{data['n_features']:,} features",
        counted(len(done), "fit") + (f", {seeds} seeds" if seeds > 1 else ""),
        ", ".join(by_device(done)),
    ]


def _views(spec: Spec, done: Sequence[Record], quick: bool) -> list[TemplateValues]:
    """Return the views of an experiment; charts of the first device are shown, and charts of other devices are collapsed."""
    devices = list(by_device(done).items())
    shown = _in_rows(spec, spec.views, done, devices[0][1], quick)
    drawn = [view for view in spec.views if isinstance(view, History | Curve | Confusion)]
    for device, records in devices[1:]:
        again = _in_rows(spec, drawn, done, records, quick)
        if again:
            shown.append({"shows": "fold", "title": f"The same on {device}", "views": again})
    return shown


def _in_rows(
    spec: Spec, views: Sequence[View], done: Sequence[Record], records: Sequence[Record], quick: bool
) -> list[TemplateValues]:
    """Return the views in order, with adjacent charts combined into one row of the page if they fit."""
    drawn: list[TemplateValues | None] = []
    waiting = list(views)
    while waiting:
        pair = waiting[:2]
        if len(pair) == 2 and all(_is_single_chart(view) for view in pair):
            halves = [_view(view, spec, done, records, quick, alone=False) for view in pair]
        elif len(pair) == 2 and {type(view) for view in pair} == {Confusion, Gallery}:
            halves = [_view(view, spec, done, records, quick) for view in pair]
        else:
            drawn.append(_view(waiting.pop(0), spec, done, records, quick))
            continue
        del waiting[:2]
        present = [half for half in halves if half is not None]
        drawn.append({"shows": "pair", "halves": present} if present else None)
    return [one for one in drawn if one is not None]


def _is_single_chart(view: View) -> bool:
    return isinstance(view, History | Curve) and view.facet is None


def _view(
    view: View, spec: Spec, done: Sequence[Record], records: Sequence[Record], quick: bool, *, alone: bool = True
) -> TemplateValues | None:
    match view:
        case History():
            return history_figure(view, spec, records, alone=alone)
        case Curve():
            return curve_figure(view, spec, records, alone=alone)
        case Table():
            return results_table(view, spec, done, quick=quick)
        case Confusion():
            return confusion_matrix(view, spec, records)
        case Gallery():
            return gallery(view, spec, records)
        case Pictures():
            return pictures(view, spec, records)


def _warnings(done: Sequence[Record]) -> list[TemplateValues]:
    """Return each distinct warning once, ignoring its numbers, with the number of fits and the experiments."""
    messages = [(record, warned["message"]) for record in done for warned in record.get("warnings", [])]
    groups = group_by(messages, lambda one: re.sub(r"[0-9][0-9.,e+-]*", "#", one[1]))
    return [
        {
            "message": group[0][1],
            "fits": counted(len({id(record) for record, _ in group}), "fit"),
            "where": ", ".join(dict.fromkeys(f"{record['paper']} {record['experiment']}" for record, _ in group)),
        }
        for group in groups.values()
    ]


def _machines(done: Sequence[Record]) -> list[list[str]]:
    machines = []
    for group in group_by(done, lambda record: repr((record["hardware"], record["versions"], record["commit"]))).values():
        hardware, versions = group[0]["hardware"], group[0]["versions"]
        ended = [record["finished_at"] for record in group if record.get("finished_at")]
        last = f", the last on {time.strftime('%Y-%m-%d', time.gmtime(max(ended)))}" if ended else ""
        gpu = f"{hardware['gpu']}, " if hardware.get("gpu") else ""
        machines.append(
            [
                f"{gpu}{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gb']} GB, {hardware['system']}",
                ", ".join(f"{name} {version}" for name, version in versions.items()),
                f"commit {group[0]['commit'] or 'unknown'}; {counted(len(group), 'fit')}{last}",
            ]
        )
    return machines


def _anchor(spec: Spec) -> str:
    return f"{spec.paper}-{spec.name}"
