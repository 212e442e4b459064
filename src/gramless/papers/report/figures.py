"""Figures of line charts for the views `History` and `Curve` of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gramless.papers.experiments import Curve, History, Reference, Spec
from gramless.papers.report.charts import ChartLine, LineChart, PaperLevel, PaperPoint, draw, legend
from gramless.papers.report.formatting import PERCENTAGES, label
from gramless.papers.report.groups import Record, group_by, name_of, points, varying

_FEWEST_POINTS = 3


def history_figure(view: History, spec: Spec, records: Sequence[Record], *, alone: bool = True) -> dict[str, Any] | None:
    """Return a figure with one line per fit, from its history; None if nothing is to be drawn."""
    series = view.series or tuple(key for key in varying(records) if key != view.facet)
    many_seeds = len({record["seed"] for record in records}) > 1
    names = _colours(records, series)
    charts = []
    for facet, group in _facets(view.facet, records):
        lines = []
        for record in group:
            rows = [row for row in record["history"] if _number(row, view.x) and _number(row, view.y)]
            if rows:
                name = name_of(record["params"], series)
                shown = f"{name}, seed {record['seed']}".strip(", ") if many_seeds else name
                xs, ys = [row[view.x] for row in rows], [row[view.y] for row in rows]
                lines.append(ChartLine(shown, xs, ys, colour=names[name]))
        if _has_course(lines):
            levels = _paper_levels(spec.references, group, view.y)
            x_label = "seconds" if view.x == "seconds" else label(view.x)
            scales: dict[str, Any] = {"log_x": view.log_x, "log_y": view.log_y, "percent": view.y in PERCENTAGES}
            charts.append(LineChart(facet, x_label, label(view.y), lines, levels, **scales))
    return _figure(view.title or f"{_short(view.y)} against {_short(view.x)}", charts, alone)


def curve_figure(view: Curve, spec: Spec, records: Sequence[Record], *, alone: bool = True) -> dict[str, Any] | None:
    """Return a figure of mean and standard deviation over the seeds against a parameter; None if nothing is to be drawn."""
    series = view.series or tuple(key for key in varying(records) if key not in (view.facet, view.x))
    names = _colours(records, series)
    charts = []
    for facet, group in _facets(view.facet, records):
        lines, paper_points = [], []
        for name, members in group_by(points(group), lambda point: name_of(point.params, series)).items():
            known = [p for p in members if _number(p.params, view.x) and p.mean(view.y) is not None]
            known.sort(key=lambda point: point.params[view.x])
            if not known:
                continue
            xs = [point.params[view.x] for point in known]
            ys = [point.mean(view.y) or 0.0 for point in known]
            lines.append(ChartLine(name, xs, ys, [p.spread(view.y) or 0.0 for p in known], names[name]))
            paper_points += [
                PaperPoint(point.params[view.x], reference.value, f"paper, {reference.where}", names[name])
                for point in known
                for reference in spec.references
                if reference.metric == view.y and view.x in reference.params and reference.matches(point.params)
            ]
        if _has_course(lines):
            levels = _paper_levels([r for r in spec.references if view.x not in r.params], group, view.y)
            ticks = sorted({x for line in lines for x in line.x})
            scales: dict[str, Any] = {"log_x": view.log_x, "log_y": view.log_y, "percent": view.y in PERCENTAGES}
            charts.append(
                LineChart(facet, label(view.x), label(view.y), lines, levels, paper_points, x_ticks=ticks, **scales)
            )
    return _figure(view.title or f"{_short(view.y)} against {_short(view.x)}", charts, alone)


def _has_course(lines: Sequence[ChartLine]) -> bool:
    """Return True if a line has enough points to be drawn; one or two points are easier to read in the table."""
    return any(len(line.x) >= _FEWEST_POINTS for line in lines)


def _figure(title: str, charts: Sequence[LineChart], alone: bool) -> dict[str, Any] | None:
    if not charts:
        return None
    shared = charts[0]
    if len(charts) > 1:
        every = {line.name: line for chart in charts for line in chart.lines}
        shared = replace(
            charts[0],
            lines=list(every.values()) if len(every) > 1 else [],
            levels=[replace(level, name="paper") for chart in charts for level in chart.levels][:1],
            points=[point for chart in charts for point in chart.points][:1],
        )
    thirds = len(charts) % 3 == 0
    if len(charts) == 1 and alone:
        # Drawn for wide and for narrow screens, so that the text has a readable size on both.
        sizes = [(860, 360, "chart wide"), (350, 270, "chart narrow")]
    else:
        sizes = [(300, 230, "chart") if thirds else (380, 260, "chart")]
    return {
        "shows": "figure",
        "title": title[:1].upper() + title[1:],
        "thirds": thirds,
        "charts": [{"title": chart.title, "drawn": [draw(chart, *size, charts) for size in sizes]} for chart in charts],
        "legend": legend(shared),
    }


def _facets(facet: str | None, records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    if facet is None:
        return [("", list(records))]
    return list(group_by(records, lambda record: name_of(record["params"], (facet,))).items())


def _colours(records: Sequence[Record], series: Sequence[str]) -> dict[str, int]:
    names = dict.fromkeys(name_of(record["params"], series) for record in records)
    return {name: number % 8 for number, name in enumerate(names)}


def _paper_levels(references: Sequence[Reference], group: Sequence[Record], metric: str) -> list[PaperLevel]:
    """Return up to three distinct values of the paper that belong to fits of the chart."""
    found = {
        (r.value, r.where): PaperLevel(r.value, f"paper, {r.where}", r.spread)
        for r in references
        if r.metric == metric and any(r.matches(record["params"]) for record in group)
    }
    return list(found.values())[:3]


def _number(row: Mapping[str, Any], key: str) -> bool:
    return isinstance(row.get(key), int | float) and not isinstance(row.get(key), bool)


def _short(key: str) -> str:
    return label(key).removesuffix(", %").removesuffix(", MB")
