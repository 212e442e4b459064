"""One self-contained HTML page from declared experiments and their finished fits.

Nothing is fetched: style, charts and images are inside. The page opens from disk, on a phone and in the dark.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from gramless._runtime.files import replaced
from gramless._version import __version__
from gramless.experiments import DOCUMENTS, Claims, Confusion, Curve, Gallery, History, Spec, Table, View
from gramless.report.claims import claims_list
from gramless.report.figures import curve_figure, history_figure
from gramless.report.groups import Record, best, group_by, said
from gramless.report.html import Markup, element, join
from gramless.report.mistakes import confusion_matrix, gallery
from gramless.report.tables import cost_bars, results_table
from gramless.report.words import counted, duration, memory, parameters

_QUICK = (
    "The quick form: every method on small data that comes with scikit-learn. Titles and texts are those of the full "
    "experiments and speak of their data; the tag beside a title says what was fitted here."
)


def write_report(
    specs: Sequence[Spec],
    records: Sequence[Record],
    path: str | os.PathLike,
    *,
    quick: bool = False,
    missing: int = 0,
) -> Path:
    """Write the report of `records` to `path` in one piece and return the path.

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
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as part:
        part.write_text(page(specs, records, quick=quick, missing=missing), encoding="utf-8")
    return path


def page(specs: Sequence[Spec], records: Sequence[Record], *, quick: bool = False, missing: int = 0) -> str:
    """The whole page as text."""
    by_experiment = group_by(records, lambda record: (record["document"], record["experiment"]))
    by_document = group_by(specs, lambda spec: spec.document)
    found = {(spec.document, spec.name): by_experiment.get((spec.document, spec.name), []) for spec in specs}
    style = resources.files("gramless.report").joinpath("style.css").read_text(encoding="utf-8")
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        _header(records, quick, missing),
        _navigation(list(by_document)),
        element(
            "main",
            _overview(specs, found, quick),
            *(_document(name, group, found) for name, group in by_document.items()),
            id="results",
        ),
        _footer(records),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "gramless: the documents' experiments"),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _header(records: Sequence[Record], quick: bool, missing: int) -> Markup:
    done = [record for record in records if record["status"] == "done"]
    failed = len(records) - len(done)
    facts = [
        ("fits", str(len(done))),
        ("time in fits", duration(sum(record["metrics"]["seconds"] for record in done))),
        ("largest peak", memory(max((record["metrics"]["peak_mb"] for record in done), default=0.0))),
    ]
    notes = []
    if quick:
        notes.append(element("span", "quick form, embedded digits", class_="pill"))
    if missing:
        notes.append(element("span", f"partial: {counted(missing, 'fit')} not run yet", class_="pill warn"))
    if failed:
        notes.append(element("span", f"{counted(failed, 'fit')} failed", class_="pill bad"))
    return element(
        "header",
        element(
            "div",
            element("p", "gramless", class_="brand"),
            element("h1", "Five documents, run again"),
            element(
                "p",
                "Kernel machines for data too large for a Gram matrix: what the documents report, "
                "what this library measures, and the difference.",
                class_="lead",
            ),
            element("p", *notes, class_="pills") if notes else None,
            element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in facts), class_="facts"),
        ),
        _motif(),
        class_="top",
    )


def _motif(n: int = 15, kept: Sequence[int] = (2, 7, 11)) -> Markup:
    """A kernel matrix of which only a few columns exist: the idea of the library as an ornament."""
    squares = []
    for i in range(n):
        for j in range(n):
            near = math.exp(-((i - j) ** 2) / 9) + 0.55 * math.exp(-((i + j - n) ** 2) / 5)
            opacity = min(1.0, 0.22 + 0.9 * near) if j in kept else 0.05 + 0.1 * near
            place = {"x": j * 10, "y": i * 10, "width": 8.6, "height": 8.6, "rx": 1.6}
            name = "kept" if j in kept else "left"
            squares.append(element("rect", **place, class_=name, opacity=f"{opacity:.2f}"))
    size = n * 10
    return element("svg", join(squares), viewBox=f"0 0 {size} {size}", class_="motif", aria_hidden="true")


def _navigation(documents: Sequence[str]) -> Markup:
    links = [element("a", "At a glance", href="#glance")]
    links += [element("a", DOCUMENTS[name].title, href=f"#{name}") for name in documents]
    links.append(element("a", "Machine", href="#machine"))
    return element("nav", *links, aria_label="Documents")


def _overview(specs: Sequence[Spec], found: dict[tuple[str, str], list[Record]], quick: bool) -> Markup:
    # The quick forms have no figures of the documents: then there is nothing to compare, and no empty
    # columns.
    compare = any(reference.metric == "error" for spec in specs for reference in spec.document_says)
    heads = [
        element("th", "experiment", scope="col"),
        element("th", "best error, %", scope="col", class_="number"),
    ]
    if compare:
        heads += [element("th", head, scope="col", class_="number") for head in ("document", "difference")]
    heads.append(element("th", "with", scope="col", class_="how"))
    rows = [_overview_row(spec, found[spec.document, spec.name], compare) for spec in specs]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_="glance")
    return element(
        "section",
        element("h2", "At a glance"),
        element("p", _QUICK, class_="lead") if quick else None,
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label="At a glance"),
        id="glance",
    )


def _overview_row(spec: Spec, records: Sequence[Record], compare: bool) -> Markup:
    record = best(record for record in records if record["status"] == "done")
    link = element("a", spec.title, href=f"#{_anchor(spec)}")
    cells = [element("th", element("small", DOCUMENTS[spec.document].title), link, scope="row")]
    if record is None:
        return element("tr", *cells, element("td", "not run", colspan=4 if compare else 2, class_="number dim"))
    error = record["metrics"]["error"]
    cells.append(element("td", element("b", f"{error:.2f}"), class_="number"))
    if compare:
        reference = said(spec.document_says, record["params"], "error")
        if reference is None:
            cells += [element("td", "–", class_="number dim"), element("td", "–", class_="number dim")]
        else:
            difference = error - reference.value
            verdict = "better" if difference <= 0 else "worse"
            cells.append(element("td", f"{reference.value:.2f}", class_="number dim"))
            cells.append(element("td", f"{difference:+.2f}".replace("-", "−"), class_=f"number {verdict}"))
    return element("tr", *cells, element("td", parameters(dict(record["params"])), class_="how"))


def _document(name: str, specs: Sequence[Spec], found: dict[tuple[str, str], list[Record]]) -> Markup:
    document = DOCUMENTS[name]
    return element(
        "section",
        element("h2", document.title),
        element("p", document.summary, class_="lead"),
        element("p", element("cite", document.citation), class_="citation"),
        *(_experiment(spec, found[name, spec.name]) for spec in specs),
        id=name,
        class_="document",
    )


def _experiment(spec: Spec, records: Sequence[Record]) -> Markup:
    done = [record for record in records if record["status"] == "done"]
    failed = [record for record in records if record["status"] != "done"]
    tag = element("span", done[0]["data"]["name"].replace("_", " "), class_="tag") if done else None
    parts: list[Any] = [element("h3", spec.title, " ", tag)]
    if spec.about:
        parts.append(element("p", spec.about))
    if done:
        parts.append(_facts(done))
        parts += _views(spec, done)
        parts.append(cost_bars(done))
    elif not failed:
        parts.append(element("p", "Not run yet.", class_="empty"))
    parts += [_warnings(done)]
    parts += [
        element(
            "p",
            element("b", "Failed: "),
            parameters(record["params"]),
            ". ",
            record["reason"],
            class_="failed",
        )
        for record in failed
    ]
    return element("article", *parts, id=_anchor(spec))


def _warnings(done: Sequence[Record]) -> Markup | None:
    told = group_by([w["message"] for record in done for w in record.get("warnings", [])], lambda message: message)
    if not told:
        return None
    items = [
        element("li", f"{message} ", element("small", f"in {counted(len(fits), 'fit')}")) for message, fits in told.items()
    ]
    return element("details", element("summary", f"Warnings ({len(items)})"), element("ul", *items), class_="warnings")


def _facts(done: Sequence[Record]) -> Markup:
    data = done[0]["data"]
    seeds = len({record["seed"] for record in done})
    words = [
        f"{data['n_train']:,} rows to learn from, {data['n_test']:,} to test on",
        f"{data['n_features']:,} features",
        counted(len(done), "fit") + (f", {seeds} seeds" if seeds > 1 else ""),
    ]
    return element("p", " · ".join(words), class_="meta")


def _views(spec: Spec, done: Sequence[Record]) -> list[Markup | None]:
    """What the spec wants drawn, in its order; neighbours that can share a row do."""
    drawn: list[Markup | None] = []
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
        drawn.append(element("div", *halves, class_="pair") if any(halves) else None)
    return drawn


def _is_single_chart(view: View) -> bool:
    return isinstance(view, History | Curve) and view.facet is None


def _view(view: View, spec: Spec, done: Sequence[Record], *, alone: bool = True) -> Markup | None:
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


def _footer(records: Sequence[Record]) -> Markup:
    done = [record for record in records if record["status"] == "done"]
    kinds = group_by(done, lambda record: repr((record["hardware"], record["versions"], record["commit"])))
    machines = []
    for group in kinds.values():
        hardware, versions = group[0]["hardware"], group[0]["versions"]
        facts = [
            f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gb']} GB, {hardware['system']}",
            ", ".join(f"{name} {version}" for name, version in versions.items()),
            f"commit {group[0]['commit'] or 'unknown'}; {counted(len(group), 'fit')}, the last on {_day(group[-1])}",
        ]
        machines.append(element("li", *(element("p", fact) for fact in facts)))
    return element(
        "footer",
        element("h2", "Machine"),
        element("ul", *machines) if machines else element("p", "No fit has finished."),
        element("p", f"Written by gramless {__version__}. Every fit ran in a process of its own."),
        id="machine",
    )


def _day(record: Record) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(record["finished_at"]))


def _anchor(spec: Spec) -> str:
    return f"{spec.document}-{spec.name}"
