"""Tables of results beside the document's figures, and bars of time and memory."""

from __future__ import annotations

from collections.abc import Sequence

from gramless.experiments import Spec, Table
from gramless.report.groups import Point, Record, name_of, points, said, varying
from gramless.report.html import Markup, element, join
from gramless.report.words import (
    LARGER_IS_BETTER,
    SHARES,
    duration,
    label,
    memory,
    parameters,
    plain_number,
    value,
)

ROWS_SHOWN = 14
BARS_SHOWN = 12


def results_table(view: Table, spec: Spec, records: Sequence[Record]) -> Markup:
    """One row per point of the grid; ours, the document's, the difference."""
    rows = points(records)
    keys = view.rows or varying(records) or tuple(rows[0].params)
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    compared = {m for m in metrics if any(said(spec.document_says, row.params, m) for row in rows)}
    heads = [element("th", label(key), scope="col") for key in keys]
    for metric in metrics:
        heads.append(element("th", label(metric), scope="col", class_="number"))
        if metric in compared:
            heads.append(element("th", "document", scope="col", class_="number"))
            heads.append(element("th", "difference", scope="col", class_="number"))
    body = [_row(row, keys, metrics, compared, spec) for row in rows]
    table = element(
        "table",
        element("caption", view.title) if view.title else None,
        element("thead", element("tr", *heads)),
        element("tbody", *body),
        class_="results",
    )
    scrolling = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=view.title or "results")
    if len(body) <= ROWS_SHOWN:
        return scrolling
    return element("details", element("summary", f"All {len(body)} rows"), scrolling, class_="long")


def _setting(row: Point, key: str) -> str:
    given = row.params.get(key)
    if isinstance(given, bool):
        return "yes" if given else "no"
    return "–" if given is None else plain_number(given)


def _row(row: Point, keys: Sequence[str], metrics: Sequence[str], compared: set[str], spec: Spec) -> Markup:
    cells = [element("th", _setting(row, key), scope="row") for key in keys]
    for metric in metrics:
        mean, spread = row.mean(metric), row.spread(metric)
        shown = [value(metric, mean)]
        if spread is not None and metric in SHARES:
            shown.append(element("small", f" ± {spread:.2f}"))
        cells.append(element("td", *shown, class_="number ours"))
        if metric in compared:
            cells += _comparison(metric, mean, row, spec)
    return element("tr", *cells)


def _comparison(metric: str, mean: float | None, row: Point, spec: Spec) -> list[Markup]:
    reference = said(spec.document_says, row.params, metric)
    if reference is None or mean is None:
        return [element("td", "–", class_="number dim"), element("td", "–", class_="number dim")]
    difference = mean - reference.value
    better = difference >= 0 if metric in LARGER_IS_BETTER else difference <= 0
    verdict = "better" if better else "worse"
    return [
        element("td", value(metric, reference.value), element("small", f" {reference.where}"), class_="number dim"),
        element("td", f"{difference:+.2f}".replace("-", "−"), class_=f"number {verdict}"),
    ]


def cost_bars(records: Sequence[Record]) -> Markup:
    """Time to fit and peak memory of each point of the grid, as bars; the slowest ones where there are
    many.
    """
    rows = sorted(points(records), key=lambda row: -(row.mean("seconds") or 0.0))
    shown = rows[:BARS_SHOWN]
    keys = varying(records)
    longest = max((row.mean("seconds") or 0.0 for row in shown), default=0.0) or 1.0
    largest = max((row.mean("peak_mb") or 0.0 for row in shown), default=0.0) or 1.0
    lines = []
    for row in shown:
        seconds, megabytes = row.mean("seconds") or 0.0, row.mean("peak_mb") or 0.0
        lines.append(
            element(
                "li",
                element("span", name_of(row.params, keys) or parameters(dict(row.params)), class_="what"),
                _bar("time", seconds / longest, duration(seconds)),
                _bar("memory", megabytes / largest, memory(megabytes)),
            )
        )
    note = f", the {len(shown)} slowest of {len(rows)}" if len(rows) > len(shown) else ""
    return element(
        "details",
        element("summary", f"Time and memory{note}"),
        element(
            "p",
            element("span", class_="key time"),
            "time to fit",
            element("span", class_="key memory"),
            "peak memory of the process",
            class_="keys",
        ),
        element("ul", join(lines), class_="bars"),
        class_="costs",
        open="",
    )


def _bar(kind: str, share: float, said_as: str) -> Markup:
    return element(
        "span",
        element("span", class_="fill", style=f"width:{max(100 * share, 0.6):.1f}%"),
        element("span", said_as, class_="amount"),
        class_=f"bar {kind}",
    )
