"""Pages that are made from the code and from committed records each time the documentation is built.

- `reference/*.rst`: every public name, from the `__all__` of each room.
- `guide.md`: the pages beside this file, in reading order; one that is not listed comes last.
- `papers.md`: what the papers claim and whether it was reproduced, from `benchmarks/results/*/results.jsonl`; the full
  report goes to `_made/report.html`.
- `performance.md`: the tables of the benchmarks against other packages, from `benchmarks/results/*.json`.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

ROOMS = {
    "gramless": "Estimators and functions",
    "gramless.kernels": "Kernels",
    "gramless.linalg.solvers": "Solvers",
    "gramless.approximation.landmarks": "Landmarks",
    "gramless.images": "Images",
    "gramless.callbacks": "Callbacks",
    "gramless.streaming": "Streams",
    "gramless.approximation.features": "Feature maps",
    "gramless.streaming.learners": "Learners",
    "gramless.linalg.operators": "Operators",
    "gramless.linalg.preconditioner": "Preconditioners",
    "gramless.distributed": "Dask",
    "gramless.deployment.serving": "Serving",
    "gramless.papers.datasets": "Datasets",
    "gramless.papers.experiments": "Experiments",
    "gramless.papers.report": "The report",
}

# In reading order: the rest of the pages follow.
GUIDE = {
    "First steps": ["installation", "which_estimator", "kernels", "tables", "fitting", "coming_from", "command_line"],
    "Size": ["memory", "block_solvers", "landmarks", "streaming", "gpu", "distributed", "cpu"],
    "Models": ["svm", "uncertainty", "image_recognition", "risvo"],
    "Use": ["production"],
    "Background": ["architecture", "glossary"],
}
ELSEWHERE = {"index", "guide", "papers", "performance"}


def write(here: Path) -> None:
    """Write every made page below the folder of the documentation."""
    _replace(here / "guide.md", guide(here))
    _forget_old_pages(here / "reference" / "generated")
    for module, title in ROOMS.items():
        _replace(here / "reference" / f"{module}.rst", reference(module, title))
    _replace(here / "reference" / "index.rst", reference_index())
    results = here.parent / "benchmarks" / "results"
    made = here / "_made"
    made.mkdir(exist_ok=True)
    specs, records = read_records(results)
    report(specs, records, results, made / "report.html")
    _replace(here / "papers.md", papers(records))
    chart(results, made / "support-vector-machines.svg")
    _replace(here / "performance.md", performance(results))


def guide(here: Path) -> str:
    """The table of contents of the user guide."""
    there = {path.stem for path in here.glob("*.md")} - ELSEWHERE
    listed = {name for names in GUIDE.values() for name in names}
    parts = {**GUIDE, "More": sorted(there - listed)}
    lines = ["# User guide", ""]
    for heading, names in parts.items():
        shown = [name for name in names if name in there]
        if shown:
            lines += ["```{toctree}", ":maxdepth: 1", f":caption: {heading}", "", *shown, "```", ""]
    return "\n".join(lines)


def reference(module: str, title: str) -> str:
    """One room: its names in a table, each with a page of its own."""
    room = importlib.import_module(module)
    names = [name for name in room.__all__ if name != "__version__"]
    at_the_top = set() if module == "gramless" else {name for name in names if _is_also_at_the_top(room, name)}
    shown = [name for name in names if _has_page(getattr(room, name)) and name not in at_the_top]
    others = [name for name in names if name not in shown and name not in at_the_top]
    heading = f"{title}: ``{module}``"
    summary = (inspect.getdoc(room) or "").split("\n\n")[0].replace("`", "``")
    lines = [heading, "=" * len(heading), "", f".. currentmodule:: {module}", "", summary, ""]
    lines += [".. autosummary::", "   :toctree: generated", "", *(f"   {name}" for name in shown), ""]
    for name in sorted(at_the_top):
        lines += [f"Also here: :py:obj:`gramless.{name}`.", ""]
    for name in others:
        lines += [f".. py:data:: {name}", "   :no-index-entry:", "", f"   {_about(getattr(room, name))}", ""]
    return "\n".join(lines)


def reference_index() -> str:
    """The table of contents of the reference."""
    heading = "API reference"
    names = [f"   {module}" for module in ROOMS]
    return "\n".join(
        [heading, "=" * len(heading), "", "Every public name.", "", ".. toctree::", "   :maxdepth: 2", "", *names, ""]
    )


def read_records(results: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """The committed records of the full experiments, and the experiments that they belong to."""
    from gramless.papers.experiments import Results, specs

    records = [record for path in sorted(results.glob("*/results.jsonl")) for record in Results(path).records()]
    ran = {(record["paper"], record["experiment"]) for record in records}
    return [spec for spec in specs() if (spec.paper, spec.name) in ran], records


def report(specs: list[Any], records: list[dict[str, Any]], results: Path, path: Path) -> None:
    """The full page of all papers, as `gramless report` writes it."""
    from gramless.papers.report import write_report

    write_report(specs, records, path, benchmarks=results)


def papers(records: list[dict[str, Any]]) -> str:
    """What each paper claims, with the verdict and the figures."""
    from gramless.papers.experiments import PAPERS, claims
    from gramless.papers.report.claims import claims_section
    from gramless.papers.report.groups import group_by

    found = group_by(records, lambda record: (record["paper"], record["experiment"]))
    lines = [
        "# The papers",
        "",
        "What the five papers claim, and whether the experiments of this library reproduce it: yes, no, or partly, which "
        "means that some of the comparisons come out as claimed. A comparison with a figure of a paper allows one standard "
        "error of a share of the test rows unless it says otherwise, one with other fits one standard deviation over the "
        "seeds. <a href='report.html'>The full report</a> has every comparison, curve and setting, and the command that "
        "repeats it; `gramless reproduce` runs the experiments.",
        "",
    ]
    for name, paper in PAPERS.items():
        section = claims_section(claims(name), name, found)
        lines += [f"## {paper.heading}", "", paper.citation, "", paper.summary, ""]
        lines += ["| reproduced | the paper claims | where | for example |", "|---|---|---|---|"]
        for item in section["claims"] if section else ():
            verdict = item["verdict"] + (f" ({item['count']})" if item["count"] else "")
            lines.append(f"| {verdict} | {_cell(item['says'])} | {_cell(item['where'])} | {_example(item['checks'])} |")
        lines += ["", "```bibtex", paper.bibtex(f"gramless-{name}"), "```", ""]
    return "\n".join(lines)


def performance(results: Path) -> str:
    """The benchmarks against other packages, as tables."""
    from gramless.papers.report.peers import peers

    lines = [
        "# Performance",
        "",
        "Measured figures, losses included. Each table comes from the records of a script in `benchmarks/`, which repeats "
        "it; the records name versions, hardware and commit. More in the pages on [CPUs](cpu.md), [GPUs](gpu.md), "
        "[support vector machines](svm.md), [tables](tables.md) and [images](image_recognition.md).",
        "",
        '<img src="support-vector-machines.svg" alt="Seconds to fit of three packages on six problems" width="85%">',
        "",
    ]
    for peer in peers(results):
        lines += [f"## {peer['title']}", "", _cell(peer["about"]), "", "| " + " | ".join(map(_cell, peer["heads"])) + " |"]
        lines.append("|" + "---|" * peer["names"] + "---:|" * (len(peer["heads"]) - peer["names"]))
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in peer["rows"]]
        lines += ["", f"`benchmarks/{peer['name']}.py`. {_cell(peer['machine'])}.", ""]
    return "\n".join(lines)


def chart(results: Path, path: Path) -> None:
    """Seconds to fit of each package on each problem of `benchmarks/svm_cpu.py`, as bars."""
    import json

    from matplotlib.figure import Figure

    records = json.loads((results / "svm_cpu.json").read_text(encoding="utf-8"))["records"]
    for record in records:
        record["problem"] = f"{record['case']}, C = {record['C']:g}"
    cases = list(dict.fromkeys(record["problem"] for record in records))[::-1]
    colours = {"scikit-learn": "0.6", "scikit-learn-intelex": "tab:orange", "gramless": "tab:blue"}
    methods = [name for name in colours if any(r["method"] == name for r in records)]
    figure = Figure(figsize=(8, 1 + 0.4 * len(cases)), layout="constrained")
    axis = figure.subplots()
    for k, method in enumerate(methods):
        mine = {record["problem"]: record["fit_seconds"] for record in records if record["method"] == method}
        places = [row + 0.27 * (1 - k) for row, case in enumerate(cases) if case in mine]
        axis.barh(places, [mine[case] for case in cases if case in mine], height=0.25, color=colours[method], label=method)
    axis.set_yticks(range(len(cases)), cases)
    axis.margins(y=0.01)
    axis.set(xscale="log", xlabel="seconds to fit an RBF SVM, two cores; shorter is better")
    axis.legend(frameon=False)
    figure.savefig(path)


def _example(checks: list[dict[str, str]]) -> str:
    """The comparison that decides against a claim, or else the first."""
    if not checks:
        return ""
    one = next((check for check in checks if check["holds"] == "no"), checks[0])
    return _cell(
        f"{one['what']} ({one['device']}): {one['ours']}, {one['wanted']} {one['theirs']}, tolerance {one['tolerance']}"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _is_also_at_the_top(room: Any, name: str) -> bool:
    import gramless

    return getattr(gramless, name, None) is getattr(room, name)


def _has_page(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isroutine(thing)


def _about(thing: Any) -> str:
    if isinstance(thing, dict):
        return "A dictionary with the keys " + ", ".join(f"``{key}``" for key in thing) + "."
    return f"``{thing!r}``" if len(repr(thing)) < 200 else f"A {type(thing).__name__}."


def _forget_old_pages(folder: Path) -> None:
    """Pages of names that are public no more, left by an earlier build."""
    public = {f"{module}.{name}" for module in ROOMS for name in importlib.import_module(module).__all__}
    for page in folder.glob("*.rst"):
        room, _, name = page.stem.rpartition(".")
        doubled = room != "gramless" and page.stem in public and _is_also_at_the_top(importlib.import_module(room), name)
        if page.stem not in public or doubled:
            page.unlink()


def _replace(path: Path, text: str) -> None:
    """Write only what changed, or Sphinx would read everything again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
