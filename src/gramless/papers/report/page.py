"""Report of experiments as one self-contained HTML page.

The page opens with one table of the claims of all papers. A chapter per paper with its experiments and figures follows, then
the errors of all experiments. Style, script, charts and images are inside the page, which has a dark color scheme and a
layout for phones. The modules of this package select records and draw charts; the templates write the page, and jinja2
escapes all text.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gramless._core.files import atomic_write
from gramless._version import __version__
from gramless.papers.experiments.claims import VERDICTS, check_claim
from gramless.papers.experiments.declarations import CHAPTERS, PAPERS, Spec, claims
from gramless.papers.experiments.results import Record, device_of, on_one_device
from gramless.papers.report import formatting
from gramless.papers.report.claims import claim_values
from gramless.papers.report.formatting import group_by, headline, paper_value
from gramless.papers.report.peers import peers
from gramless.papers.report.views import caption, command, data_url, shown_views

TemplateValues = dict[str, Any]


def write_report(specs: Sequence[Spec], records: Sequence[Record], path: str | os.PathLike, **options: Any) -> Path:
    """Write the report, with the options of `page`, to a file that is replaced only when the new one is complete."""
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
    """Return the report of `records` as text.

    `missing` is the number of fits that were not run yet, `benchmarks` the folder of the benchmark records, and `results`
    the address of the records for a link.
    """
    found = group_by(records, lambda record: (record["paper"], record["experiment"]))
    done = [record for record in records if record["status"] == "done"]
    chapters: list[TemplateValues] = [
        {
            "name": name,
            "about": CHAPTERS[name],
            # Claims refer to the paper's data, which the quick forms do not use.
            "claims": [] if quick else [claim_values(check_claim(claim, name, found), name) for claim in claims(name)],
            "experiments": [_experiment(spec, found.get((name, spec.name), []), quick) for spec in group],
        }
        for name, group in group_by(specs, lambda spec: spec.paper).items()
    ]
    stated = [claim for chapter in chapters for claim in chapter["claims"]]
    verdicts = Counter(claim["verdict"] for claim in stated)
    return (
        _templates()
        .get_template("page.html")
        .render(
            n_fits=len(done),
            n_failed=len(records) - len(done),
            missing=missing,
            seconds=sum(record["metrics"]["seconds"] for record in done),
            peak_mb=max((record["metrics"]["peak_mb"] for record in done), default=0.0),
            quick=quick,
            # The quick forms have no values of the papers, so the columns for them are left out.
            compare=any(reference.metric == "error" for spec in specs for reference in spec.references),
            chapters=chapters,
            n_claims=len(stated),
            verdicts=[(name, verdicts[name]) for name in VERDICTS if verdicts[name]],
            causes=Counter(claim["cause"] for claim in stated if claim["cause"] and claim["verdict"] != "yes").most_common(),
            peers=[] if benchmarks is None else peers(Path(benchmarks)),
            warnings=_warnings(done),
            machines=group_by(
                done, lambda record: repr((record["hardware"], record["versions"], record["commit"]))
            ).values(),
            papers=PAPERS,
            results=results,
            version=__version__,
        )
    )


def _templates() -> Any:
    try:
        import jinja2
    except ImportError as reason:
        raise ImportError("the report needs jinja2: pip install 'gramless[cli]'") from reason

    loader = jinja2.PackageLoader("gramless.papers.report")
    templates = jinja2.Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    functions = {name: function for name, function in vars(formatting).items() if callable(function)}
    templates.globals |= functions | {"caption": caption, "command": command, "data_url": data_url}
    return templates


def _experiment(spec: Spec, records: Sequence[Record], quick: bool) -> TemplateValues:
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
        "views": shown_views(spec, done, quick) if done else [],
    }


def _warnings(done: Sequence[Record]) -> list[Mapping[str, Any]]:
    """Return each distinct warning once, ignoring its numbers, with the number of fits and the experiments."""
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
