"""Generates pages of the documentation from the code and from committed records.

- `reference/*.rst`: every public name, from the `__all__` of the modules in `MODULES`.
- `guide.md`: the table of contents of the pages in this folder; pages that are not in `GUIDE` come last.
- `papers.md`: the claims of the papers with their verdicts, from `benchmarks/results/*/results.jsonl`; the full report is
  written to `_generated/report.html`.
- `performance.md`: the tables of the benchmarks against other packages, from `benchmarks/results/*.json`.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import gramless
from gramless.papers.experiments.claims import check_claim
from gramless.papers.experiments.declarations import PAPERS, claims, records_of, specs
from gramless.papers.experiments.results import Results
from gramless.papers.report import write_report
from gramless.papers.report.formatting import claim_values, group_by
from gramless.papers.report.peers import peers

MODULES = {
    "gramless": "Estimators and functions",
    "gramless.kernels": "Kernels",
    "gramless.linalg.solvers": "Solvers",
    "gramless.approximation.landmarks": "Landmarks",
    "gramless.images": "Images",
    "gramless.callbacks": "Callbacks",
}

# Headings of the guide and their pages, in reading order.
GUIDE = {
    "First steps": ["installation", "which_estimator", "kernels", "tables", "fitting", "coming_from", "command_line"],
    "Large data": ["memory", "block_solvers", "landmarks", "streaming", "gpu", "distributed", "cpu"],
    "Models": ["svm", "uncertainty", "image_recognition", "risvo"],
    "Use": ["production"],
    "Background": ["architecture", "glossary"],
}
# Groups of the reference page of `gramless`, in reading order; all other names are in the last group.
MOST_NEEDED = ["TableClassifier", "TableRegressor", "ImageClassifier", "LSSVC", "LSSVR", "NystromLSSVC", "NystromLSSVR"]
MOST_NEEDED += ["KernelSVC", "KernelSVR", "KernelOneClassSVM"]
FROM_PAPERS = ["BudgetLSSVC", "BudgetLSSVR", "PatchClassifier", "PrototypeLSSVC", "RiSVOClassifier"]
NOT_IN_GUIDE = {"index", "guide", "papers", "performance"}


def write(here: Path) -> None:
    """Write all generated pages into the folder of the documentation."""
    _replace(here / "guide.md", guide(here))
    _delete_old_pages(here / "reference" / "generated")
    for module, title in MODULES.items():
        _replace(here / "reference" / f"{module}.rst", reference(module, title))
    _replace(here / "reference" / "index.rst", reference_index())
    results = here.parent / "benchmarks" / "results"
    generated = here / "_generated"
    generated.mkdir(exist_ok=True)
    specs, records = read_records(results)
    report(specs, records, results, generated / "report.html")
    _replace(here / "papers.md", papers(records))
    chart(results, generated / "support-vector-machines.svg")
    scale_chart(results, generated / "scale.svg")
    _replace(here / "performance.md", performance(results))


def guide(here: Path) -> str:
    """Return the table of contents of the user guide."""
    existing = {path.stem for path in here.glob("*.md")} - NOT_IN_GUIDE
    listed = {name for names in GUIDE.values() for name in names}
    parts = {**GUIDE, "More": sorted(existing - listed)}
    lines = ["# User guide", ""]
    for heading, names in parts.items():
        shown = [name for name in names if name in existing]
        if shown:
            lines += ["```{toctree}", ":maxdepth: 1", f":caption: {heading}", "", *shown, "```", ""]
    return "\n".join(lines)


def reference(module: str, title: str) -> str:
    """Return the reference page of a module: a table of its names, each of which has its own page."""
    imported = importlib.import_module(module)
    names = [name for name in imported.__all__ if name != "__version__"]
    exported = set() if module == "gramless" else {name for name in names if _is_exported_by_gramless(imported, name)}
    shown = [name for name in names if _has_page(getattr(imported, name)) and name not in exported]
    others = [name for name in names if name not in shown and name not in exported]
    heading = f"{title}: ``{module}``"
    summary = (inspect.getdoc(imported) or "").split("\n\n")[0].replace("`", "``")
    lines = [heading, "=" * len(heading), "", f".. currentmodule:: {module}", "", summary, ""]
    groups = {"": shown}
    if module == "gramless":
        further = [name for name in shown if name not in MOST_NEEDED and name not in FROM_PAPERS]
        groups = {
            "Estimators that most people need": MOST_NEEDED,
            "Further estimators and functions": further,
            "Estimators from the papers": FROM_PAPERS,
        }
    for title, members in groups.items():
        lines += [title, "-" * len(title), ""] if title else []
        lines += [".. autosummary::", "   :toctree: generated", "", *(f"   {name}" for name in members), ""]
    for name in sorted(exported):
        lines += [f"See also :py:obj:`gramless.{name}`.", ""]
    for name in others:
        lines += [f".. py:data:: {name}", "   :no-index-entry:", "", f"   {_about(getattr(imported, name))}", ""]
    return "\n".join(lines)


def reference_index() -> str:
    """Return the table of contents of the reference."""
    heading = "API reference"
    modules = "\n".join(f"   {module}" for module in MODULES)
    return f"""{heading}
{"=" * len(heading)}

All public names by module.

.. toctree::
   :maxdepth: 2

{modules}
"""


def read_records(results: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the experiments that have committed full-size records, and the records."""
    stored = [record for path in sorted(results.glob("*/results.jsonl")) for record in Results(path).records()]
    records = records_of(specs(), stored)
    ran = {(record["paper"], record["experiment"]) for record in records}
    return [spec for spec in specs() if (spec.paper, spec.name) in ran], records


def report(specs: list[Any], records: list[dict[str, Any]], results: Path, path: Path) -> None:
    """Write the report of all papers, as `gramless report` does."""
    write_report(specs, records, path, benchmarks=results)


def papers(records: list[dict[str, Any]]) -> str:
    """Return the page of claims: each paper's claims with verdicts and measurements."""
    found = group_by(records, lambda record: (record["paper"], record["experiment"]))
    lines = [
        "# The papers",
        "",
        "The tables list the claims of five papers and whether the experiments of this library reproduce them: yes, no, or "
        "partly, if only some of the comparisons agree, each with its cause. Tolerances follow from the digits that a paper "
        "prints and from 95 % intervals over the seeds. <a href='report.html'>The full report</a> has all comparisons, "
        "curves and settings. `gramless reproduce PAPER --claim NAME` runs what one claim needs and prints its verdict.",
        "",
    ]
    for name, paper in PAPERS.items():
        lines += [f"## {paper.heading}", "", paper.citation, "", paper.summary, ""]
        lines += ["| claim of the paper | paper | ours | reproduced | cause |", "|---|---|---|---|---|"]
        for stated in claims(name):
            item = claim_values(check_claim(stated, name, found), name)
            verdict = item["verdict"] + (f" ({item['count']})" if item["count"] else "")
            claim = f"{item['statement']} ({item['where']}; `{item['name']}`)"
            cause = ". ".join(text for text in (item["cause"], item["reason"]) if text)
            cells = (claim, item["printed"], item["ours"], verdict, cause)
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
        lines += ["", "```bibtex", paper.bibtex(f"gramless-{name}"), "```", ""]
    return "\n".join(lines)


def performance(results: Path) -> str:
    """Return the page with the tables of the benchmarks against other packages."""
    lines = [
        "# Performance",
        "",
        "Benchmarks against other packages, including those that gramless loses. Each table is generated from the records "
        "of a script in `benchmarks/`; the records contain versions, hardware and commit. See also the pages on "
        "[CPUs](cpu.md), [GPUs](gpu.md), [support vector machines](svm.md), [tables](tables.md) and "
        "[images](image_recognition.md).",
        "",
        '<img src="support-vector-machines.svg" alt="Fit times of three packages" width="85%">',
        "",
        "## Landmark models: error, rows and seconds",
        "",
        '<img src="scale.svg" alt="Error against seconds for many rows and landmarks" width="80%">',
        "",
        "Numbers beside the points are landmarks; the number of passes is in parentheses. `memmap` rows are 11 GB on disk, "
        "read in every pass within a memory budget of 8 GB: a pass takes 8.4 seconds, of which the host costs 0.3. Reading "
        "the rows and copying them to the GPU alone takes 4.0 seconds but overlaps with the products: 0.81 seconds "
        "for each 10,000,000 rows that stay on the GPU. [Streams](streaming.md#many-landmarks) explains the solvers, and "
        "[Landmarks](landmarks.md#equal-time) compares the rules at equal time.",
        "",
        *scale_table(results),
        "",
        "`benchmarks/scale.py`.",
        "",
    ]
    for peer in peers(results):
        lines += [f"## {peer['title']}", "", _cell(peer["about"]), "", "| " + " | ".join(map(_cell, peer["heads"])) + " |"]
        lines.append("|" + "---|" * peer["names"] + "---:|" * (len(peer["heads"]) - peer["names"]))
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in peer["rows"]]
        lines += ["", f"`benchmarks/{peer['name']}.py`. {_cell(peer['machine'])}.", ""]
    return "\n".join(lines)


def chart(results: Path, path: Path) -> None:
    """Draw the fit times of each package on each problem of `benchmarks/svm_cpu.py` as points, one row for each problem."""
    records = json.loads((results / "svm_cpu.json").read_text(encoding="utf-8"))["records"]
    for record in records:
        record["problem"] = f"{record['case']}, C = {record['C']:g}"
    cases = list(dict.fromkeys(record["problem"] for record in records))[::-1]
    colors = {"scikit-learn": "0.6", "scikit-learn-intelex": "tab:orange", "gramless": "tab:blue"}
    methods = [name for name in colors if any(r["method"] == name for r in records)]
    figure = Figure(figsize=(8, 1 + 0.18 * len(cases)), layout="constrained")  # 27 problems fit on a screen
    axis = figure.subplots()
    for method in methods:
        seconds = {record["problem"]: record["fit_seconds"] for record in records if record["method"] == method}
        positions = [row for row, case in enumerate(cases) if case in seconds]
        axis.plot([seconds[cases[row]] for row in positions], positions, "o", color=colors[method], label=method)
    axis.set_yticks(range(len(cases)), cases, fontsize=8)
    axis.margins(y=0.02)
    axis.grid(axis="y", alpha=0.3)
    axis.set(xscale="log", xlabel="seconds to fit an RBF SVM, two cores; further left is better")
    axis.legend(frameon=False)
    figure.savefig(path)


def scale_runs(results: Path) -> list[dict[str, Any]]:
    """Return the records of `benchmarks/scale.py` with the name of their hardware, runs on GPUs first."""
    found = []
    for run in json.loads((results / "scale.json").read_text(encoding="utf-8")):
        hardware = run["environment"]["hardware"]
        name = hardware.get("gpu") or f"{hardware['cores']} CPU cores"
        found += [{"hardware": name, "on_gpu": "gpu" in hardware, **record} for record in run["records"]]
    return sorted(found, key=lambda record: not record["on_gpu"])


def scale_table(results: Path) -> list[str]:
    """Return the lines of a table with the fits of `benchmarks/scale.py`."""
    lines = [
        "| data | rows | landmarks | rule | solver | seconds | seconds per pass | test error | peak memory | hardware |",
        "|---|---:|---:|---|---|---:|---:|---:|---:|---|",
    ]
    shown = [r for r in scale_runs(results) if r["on_gpu"] or r["rows"] >= 10**5]  # other pages have the small fits
    for r in sorted(shown, key=lambda r: (not r["on_gpu"], r["data"], r["rows"], r["landmarks"], r["solver"])):
        options = [option for option in r["case"].split(":")[2:] if option in ("memmap", "parquet")]
        passes = f"{r['seconds_of_pass']:.3g} ({r['iterations']})" if "seconds_of_pass" in r else ""
        cells = [" ".join([r["data"], *options]), f"{r['rows']:,}", f"{r['landmarks']:,}", r["rule"], r["solver"]]
        cells += [
            f"{r['seconds']:.3g}",
            passes,
            f"{100 * r['test_error']:.2f} %",
            f"{r['peak_gigabytes']:.1f} GB",
            r["hardware"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def scale_chart(results: Path, path: Path) -> None:
    """Draw error against seconds of the generated rows of `benchmarks/scale.py`, a line for each solver."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    shown = [r for r in scale_runs(results) if r["on_gpu"] and r["data"] == "generated" and r["rule"] == "uniform"]
    for i, n in enumerate(sorted({record["rows"] for record in shown})):
        for solver, style in (("cg", "o-"), ("sums", "s--")):
            fits = sorted((r for r in shown if (r["rows"], r["solver"]) == (n, solver)), key=lambda r: r["landmarks"])
            points = [(record["seconds"], 100 * record["test_error"]) for record in fits]
            if points:
                axis.plot(*zip(*points, strict=True), style, color=f"C{i}", label=f"{n:,} rows, solver={solver!r}")
            for record, point in zip(fits, points, strict=True):
                offset = (5, 4) if solver == "cg" else (5, -10)
                axis.annotate(f"{record['landmarks']:,}", point, xytext=offset, textcoords="offset points", fontsize=7)
    axis.set(xscale="log", xlabel="seconds of the fit, one H200", ylabel="test error, % (numbers: landmarks)")
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _is_exported_by_gramless(module: Any, name: str) -> bool:
    return getattr(gramless, name, None) is getattr(module, name)


def _has_page(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isroutine(thing)


def _about(thing: Any) -> str:
    if isinstance(thing, dict):
        return "A dictionary with the keys " + ", ".join(f"``{key}``" for key in thing) + "."
    return f"``{thing!r}``" if len(repr(thing)) < 200 else f"A {type(thing).__name__}."


def _delete_old_pages(folder: Path) -> None:
    """Delete pages of names that are no longer public, left by an earlier build."""
    public = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    for page in folder.glob("*.rst"):
        module, _, name = page.stem.rpartition(".")
        duplicate = (
            module != "gramless" and page.stem in public and _is_exported_by_gramless(importlib.import_module(module), name)
        )
        if page.stem not in public or duplicate:
            page.unlink()


def _replace(path: Path, text: str) -> None:
    """Write a file only if its text changed, so that Sphinx does not read unchanged pages again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
