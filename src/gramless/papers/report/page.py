"""Report of experiments as one self-contained HTML page.

The page begins with a table of the claims of all papers. A chapter for each paper with experiments and figures follows, then
the errors of all experiments. Style, script, charts and images are inside the page, which has a dark color scheme and a
layout for phones. The modules of this package select records and draw charts. The templates contain the HTML, and jinja2
escapes all text.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gramless._core.files import atomic_write
from gramless._version import __version__
from gramless.papers.experiments.claims import VERDICTS, check_claim
from gramless.papers.experiments.declarations import CHAPTERS, PAPERS, Curve, Spec, Table, claims
from gramless.papers.experiments.results import Point, Record, device_of, on_one_device, points
from gramless.papers.report import formatting
from gramless.papers.report.charts import figures
from gramless.papers.report.formatting import claim_values, group_by, headline, paper_value, parameters, varying_among
from gramless.papers.report.peers import peers


def write_report(specs: Sequence[Spec], records: Sequence[Record], path: str | os.PathLike, **options: Any) -> Path:
    """Write the report to a file, which is replaced when the new report is complete; `options` are options of `page`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(page(specs, records, **options), encoding="utf-8")
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
    """Return the report of `records` as HTML text.

    `missing` is the number of fits that were not run yet, `benchmarks` is the folder of the benchmark records, and `results`
    is the address to which the page links for the records.
    """
    try:
        import jinja2
    except ImportError as reason:
        raise ImportError("the report needs jinja2: pip install 'gramless[cli]'") from reason

    loader = jinja2.PackageLoader("gramless.papers.report")
    templates = jinja2.Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    formats = {name: given for name, given in vars(formatting).items() if not name.startswith("_")}
    templates.globals |= formats | {"caption": caption, "command": command, "data_url": data_url}
    found = group_by(records, lambda record: (record["paper"], record["experiment"]))
    done = [record for record in records if record["status"] == "done"]
    chapters: list[dict[str, Any]] = [
        {
            "name": name,
            "about": CHAPTERS[name],
            # Claims refer to the paper's data, which the quick forms of the experiments do not use.
            "claims": [] if quick else [claim_values(check_claim(claim, name, found), name) for claim in claims(name)],
            "experiments": [_experiment(spec, found.get((name, spec.name), []), quick) for spec in group],
        }
        for name, group in group_by(specs, lambda spec: spec.paper).items()
    ]
    stated = [claim for chapter in chapters for claim in chapter["claims"]]
    verdicts = Counter(claim["verdict"] for claim in stated)
    return templates.get_template("page.html").render(
        done=done,
        n_failed=len(records) - len(done),
        missing=missing,
        quick=quick,
        # Quick forms of experiments have no values of the papers, so the columns for these values are left out.
        compare=any(reference.metric == "error" for spec in specs for reference in spec.references),
        chapters=chapters,
        n_claims=len(stated),
        verdicts=[(name, verdicts[name]) for name in VERDICTS if verdicts[name]],
        causes=Counter(claim["cause"] for claim in stated if claim["cause"] and claim["verdict"] != "yes").most_common(),
        peers=[] if benchmarks is None else peers(Path(benchmarks)),
        warnings=_warnings(done),
        machines=group_by(done, lambda record: repr((record["hardware"], record["versions"], record["commit"]))).values(),
        papers=PAPERS,
        results=results,
        version=__version__,
    )


def _experiment(spec: Spec, records: Sequence[Record], quick: bool) -> dict[str, Any]:
    done = on_one_device([record for record in records if record["status"] == "done"])
    chosen = headline(spec, done)
    return {
        "spec": spec,
        "anchor": f"{spec.paper}-{spec.name}",
        "records": records,
        "done": done,
        "devices": list(dict.fromkeys(map(device_of, done))),
        "headline": chosen,
        "reference": None if chosen is None else paper_value(spec.references, chosen.point.params, "error"),
        "views": _views(spec, done, quick) if done else [],
    }


def _views(spec: Spec, done: Sequence[Record], quick: bool) -> list[dict[str, Any]]:
    """Return the views of an experiment that are not empty; a chart with facets gives one figure for each facet."""
    shown: list[dict[str, Any]] = []
    for view in spec.views:
        if isinstance(view, Curve):
            shown += figures(view, spec, done)
        elif isinstance(view, Table):
            shown.append(_results_table(view, spec, done, quick))
        elif chosen := headline(spec, filter(view.content, done), view.where):
            record = min(chosen.point.records, key=lambda record: record["seed"])
            content = view.content(record)
            shown.append({"shows": type(view).__name__.lower(), "view": view, "record": record, "content": content})
    return shown


def _results_table(view: Table, spec: Spec, records: Sequence[Record], quick: bool) -> dict[str, Any]:
    """Return a table with one row per grid point: measured values, the paper's values, differences, and a command."""
    grid = list(map(repr, spec.grid))
    rows = sorted(points(records), key=lambda row: grid.index(repr(row.params)) if repr(row.params) in grid else len(grid))
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    return {
        "shows": "table",
        "view": view,
        "spec": spec,
        "quick": quick,
        "rows": rows,
        "has_devices": len({row.device for row in rows}) > 1,
        "busy": any(record.get("busy") for record in records),
        "parameters": view.rows or varying_among([row.params for row in rows]) or tuple(rows[0].params),
        "metrics": metrics,
        "compared": {m for m in metrics if any(paper_value(spec.references, row.params, m) for row in rows)},
    }


def command(spec: Spec, point: Point, *, quick: bool) -> str:
    """Return the command that repeats the first seed of a grid point."""
    words = ["gramless", "reproduce", spec.paper, "--only", spec.name]
    for key in varying_among(spec.grid):
        if key in point.params:
            given = point.params[key]
            words += ["--where", f"{key}={given if isinstance(given, str) else json.dumps(given)}"]
    words += ["--seed", str(point.seeds[0])]
    device = point.records[0].get("device")
    words += ["--device", device] if device else []
    words += ["--quick"] if quick else []
    return shlex.join(words)


def data_url(pixels: str, shape: Sequence[int]) -> str:
    """Return base64-encoded rows of 8-bit pixels, grey or RGB, as the data URL of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.frombytes("RGB" if len(shape) == 3 else "L", (shape[1], shape[0]), base64.b64decode(pixels)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def caption(record: Record) -> str:
    """Return the caption of a fit: its parameters, its seed and its error."""
    return f"{parameters(record['params'])}, seed {record['seed']}: {record['metrics']['error']:.2f} % error"


def _warnings(done: Sequence[Record]) -> list[Mapping[str, Any]]:
    """Return warnings, each with the number of fits and the experiments; warnings that differ in numbers only are one."""
    messages = [(record, warned["message"]) for record in done for warned in record.get("warnings", [])]
    groups = group_by(messages, lambda one: re.sub(r"[0-9][0-9.,e+-]*", "#", one[1]))
    return [
        {
            "message": group[0][1],
            "n_fits": len({id(record) for record, _ in group}),
            "where": ", ".join(dict.fromkeys(f"{record['paper']} {record['experiment']}" for record, _ in group)),
        }
        for group in groups.values()
    ]
