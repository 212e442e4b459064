"""`History` and `Curve` views as figures of line charts: values for the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gramless.papers.experiments import Curve, History, Reference, Spec
from gramless.papers.report.charts import Chart, Line, Mark, Rule, draw, legend
from gramless.papers.report.groups import Record, group_by, name_of, points, varying
from gramless.papers.report.words import SHARES, label

FEWEST_POINTS = 3


def history_figure(view: History, spec: Spec, records: Sequence[Record], *, alone: bool = True) -> dict[str, Any] | None:
    """One line per fit, from its history."""
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
                lines.append(Line(shown, xs, ys, colour=names[name]))
        rules = _rules(spec.paper_says, group, view.y)
        if _worth_drawing(lines):
            names_of_axes, share = (_x_label(view), label(view.y)), view.y in SHARES
            charts.append(Chart(facet, *names_of_axes, lines, rules, log_x=view.log_x, log_y=view.log_y, share=share))
    return _figure(view.title or f"{_short(view.y)} against {_short(view.x)}", charts, alone)


def curve_figure(view: Curve, spec: Spec, records: Sequence[Record], *, alone: bool = True) -> dict[str, Any] | None:
    """Mean and standard deviation over the seeds against one parameter of the grid."""
    series = view.series or tuple(key for key in varying(records) if key not in (view.facet, view.x))
    names = _colours(records, series)
    charts = []
    for facet, group in _facets(view.facet, records):
        lines, marks = [], []
        for name, members in group_by(points(group), lambda point: name_of(point.params, series)).items():
            known = [p for p in members if _number(p.params, view.x) and p.mean(view.y) is not None]
            known.sort(key=lambda point: point.params[view.x])
            if not known:
                continue
            xs = [point.params[view.x] for point in known]
            ys = [point.mean(view.y) or 0.0 for point in known]
            lines.append(Line(name, xs, ys, [p.spread(view.y) or 0.0 for p in known], names[name]))
            marks += [
                Mark(point.params[view.x], reference.value, f"paper, {reference.where}", names[name])
                for point in known
                for reference in spec.paper_says
                if reference.metric == view.y and view.x in reference.params and reference.matches(point.params)
            ]
        rules = _rules([r for r in spec.paper_says if view.x not in r.params], group, view.y)
        ticks = sorted({x for line in lines for x in line.x})
        if _worth_drawing(lines):
            names_of_axes, share = (label(view.x), label(view.y)), view.y in SHARES
            charts.append(Chart(facet, *names_of_axes, lines, rules, marks, view.log_x, view.log_y, ticks, share))
    return _figure(view.title or f"{_short(view.y)} against {_short(view.x)}", charts, alone)


def _worth_drawing(lines: Sequence[Line]) -> bool:
    """Whether a line has a course; one or two points are better read in the table."""
    return any(len(line.x) >= FEWEST_POINTS for line in lines)


def _figure(title: str, charts: Sequence[Chart], alone: bool) -> dict[str, Any] | None:
    if not charts:
        return None
    thirds = len(charts) % 3 == 0
    if len(charts) == 1:
        size, shared = (860, 360) if alone else (460, 300), charts[0]
    else:
        size = (340, 250) if thirds else (440, 280)
        every = {line.name: line for chart in charts for line in chart.lines}
        shared = replace(
            charts[0],
            lines=list(every.values()) if len(every) > 1 else [],
            rules=[replace(rule, name="paper") for chart in charts for rule in chart.rules][:1],
            marks=[mark for chart in charts for mark in chart.marks][:1],
        )
    # Drawn for wide screens and for narrow ones, each at about the size it is shown at, so that text keeps its size.
    drawn = [[draw(chart, *size, "wide", charts), draw(chart, 350, 270, "narrow", charts)] for chart in charts]
    return {
        "shows": "figure",
        "title": title[:1].upper() + title[1:],
        "thirds": thirds,
        "charts": [{"title": chart.title, "drawn": both} for chart, both in zip(charts, drawn, strict=True)],
        "legend": legend(shared),
    }


def _x_label(view: History) -> str:
    return "seconds" if view.x == "seconds" else label(view.x)


def _facets(facet: str | None, records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    if facet is None:
        return [("", list(records))]
    return list(group_by(records, lambda record: name_of(record["params"], (facet,))).items())


def _colours(records: Sequence[Record], series: Sequence[str]) -> dict[str, int]:
    names = dict.fromkeys(name_of(record["params"], series) for record in records)
    return {name: number % 8 for number, name in enumerate(names)}


def _rules(references: Sequence[Reference], group: Sequence[Record], metric: str) -> list[Rule]:
    # A figure is drawn across a chart when it speaks of something in it; equal figures once.
    found = {
        (r.value, r.where): Rule(r.value, f"paper, {r.where}", r.spread)
        for r in references
        if r.metric == metric and any(r.matches(record["params"]) for record in group)
    }
    return list(found.values())[:3]


def _number(row: Mapping[str, Any], key: str) -> bool:
    return isinstance(row.get(key), int | float) and not isinstance(row.get(key), bool)


def _short(key: str) -> str:
    return label(key).removesuffix(", %").removesuffix(", MB")
