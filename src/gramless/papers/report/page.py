"""Report of experiments as one self-contained HTML page.

The page opens with one table of the claims of all papers. A chapter per paper with its experiments and figures follows, then
the errors of all experiments. Style, script, charts and images are inside the page, which has a dark color scheme and a
layout for phones. The modules of this package compute values; the templates write them, and jinja2 escapes all text.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
    Spec,
    Table,
    View,
    claims,
)
from gramless.papers.experiments.claims import VERDICTS, check_claim
from gramless.papers.experiments.results import Record, device_of, on_one_device
from gramless.papers.report.charts import figures
from gramless.papers.report.claims import claim_values
from gramless.papers.report.formatting import (
    comparison,
    counted,
    duration,
    group_by,
    headline,
    mean_and_spread,
    memory,
    paper_value,
    parameters,
)
from gramless.papers.report.peers import peers
from gramless.papers.report.tables import confusion_matrix, gallery, pictures, results_table

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

    found = group_by(records, lambda record: (record["paper"], record["experiment"]))
    done = [record for record in records if record["status"] == "done"]
    # The quick forms have no values of the papers, so the columns for them are left out.
    compare = any(reference.metric == "error" for spec in specs for reference in spec.references)
    loader = jinja2.PackageLoader("gramless.papers.report")
    templates = jinja2.Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    templates.filters["shortened"] = lambda name: name if len(name) <= 5 else name[:4] + "."
    here = Path(__file__).parent
    chapters = [
        _chapter(name, [_experiment(spec, found.get((name, spec.name), []), quick, compare) for spec in group], found, quick)
        for name, group in group_by(specs, lambda spec: spec.paper).items()
    ]
    stated = [claim for chapter in chapters for claim in chapter["claims"]]
    return templates.get_template("page.html").render(
        style=jinja2.filters.Markup((here / "style.css").read_text(encoding="utf-8")),
        script=jinja2.filters.Markup((here / "script.js").read_text(encoding="utf-8")),
        notes=_notes(len(records) - len(done), quick, missing),
        facts=[
            ("fits", f"{len(done):,}"),
            ("time in fits", duration(sum(record["metrics"]["seconds"] for record in done))),
            ("largest peak", memory(max((record["metrics"]["peak_mb"] for record in done), default=0.0))),
        ],
        quick=quick,
        compare=compare,
        chapters=chapters,
        n_claims=len(stated),
        verdicts=_counts((claim["verdict"] for claim in stated), VERDICTS),
        causes=Counter(claim["cause"] for claim in stated if claim["cause"] and claim["verdict"] != "yes").most_common(),
        peers=[] if benchmarks is None else peers(Path(benchmarks)),
        warnings=_warnings(done),
        machines=_machines(done),
        papers=[{"name": name, "citation": paper.citation, "bibtex": paper.bibtex(name)} for name, paper in PAPERS.items()],
        fields=list(FIELDS.items()),
        results=results,
        version=__version__,
    )


def _chapter(
    name: str, experiments: Sequence[TemplateValues], found: Mapping[tuple[str, str], Sequence[Record]], quick: bool
) -> TemplateValues:
    about = CHAPTERS[name]
    return {
        "name": name,
        "title": about.heading,
        "summary": about.summary,
        "citation": about.citation,
        # Claims refer to the paper's data, which the quick forms do not use.
        "claims": [] if quick else [claim_values(check_claim(claim, name, found), name) for claim in claims(name)],
        "experiments": experiments,
    }


def _counts(items: Any, order: Sequence[str]) -> list[tuple[str, int]]:
    counts = Counter(items)
    return [(name, counts[name]) for name in order if counts[name]]


def _notes(failed: int, quick: bool, missing: int) -> list[tuple[str, str]]:
    notes = [("", "quick form: small data that comes with scikit-learn")] if quick else []
    if missing:
        notes.append(("warn", f"partial: {counted(missing, 'fit')} not run yet"))
    if failed:
        notes.append(("bad", f"{counted(failed, 'fit')} failed"))
    return notes


def _experiment(spec: Spec, records: Sequence[Record], quick: bool, compare: bool) -> TemplateValues:
    done = on_one_device([record for record in records if record["status"] == "done"])
    failed = [record for record in records if record["status"] != "done"]
    return {
        "anchor": f"{spec.paper}-{spec.name}",
        "name": spec.name,
        "title": spec.heading,
        "about": spec.about,
        "finding": spec.finding,
        "facts": _facts(done) if done else [],
        "headline": _headline(spec, done, compare),
        "views": [shown for view in spec.views for shown in _views(view, spec, done, quick)] if done else [],
        "empty": not records,
        "warned": sum(bool(record.get("warnings")) for record in done),
        "failed": [{"params": parameters(record["params"]), "reason": record["reason"]} for record in failed],
    }


def _headline(spec: Spec, done: Sequence[Record], compare: bool) -> TemplateValues | None:
    chosen = headline(spec, done)
    if chosen is None:
        return None
    point = chosen.point
    mean = point.mean("error")
    reference = paper_value(spec.references, point.params, "error")
    return {
        "device": point.device,
        "error": mean_and_spread("error", mean, point.spread("error")),
        "seeds": counted(len(point.seeds), "seed"),
        "comparison": comparison("error", mean, None if reference is None else reference.value) if compare else [],
        "how": parameters(point.params),
        "chosen": chosen.chosen,
        "estimator": point.records[0].get("estimator", ""),
    }


def _facts(done: Sequence[Record]) -> list[str]:
    data = done[0]["data"]
    seeds = len({record["seed"] for record in done})
    return [
        f"{data['name'].replace('_', ' ')}: {data['n_train']:,} training rows, {data['n_test']:,} test rows",
        f"{data['n_features']:,} features",
        counted(len(done), "fit") + (f", {seeds} seeds" if seeds > 1 else ""),
        ", ".join(dict.fromkeys(map(device_of, done))),
    ]


def _views(view: View, spec: Spec, done: Sequence[Record], quick: bool) -> list[TemplateValues]:
    """Return what the page shows for a view: a figure for each facet, otherwise one part or none."""
    if isinstance(view, History | Curve):
        return figures(view, spec, done)
    if isinstance(view, Table):
        return [results_table(view, spec, done, quick=quick)]
    if isinstance(view, Confusion):
        part = confusion_matrix(view, spec, done)
    else:
        part = gallery(view, spec, done) if isinstance(view, Gallery) else pictures(view, spec, done)
    return [] if part is None else [part]


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
