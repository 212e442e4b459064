"""Line charts of the views `History` and `Curve`, drawn by matplotlib as SVG.

A chart is drawn at about the size in pixels at which the page shows it, because text is scaled together with the chart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.papers.experiments.declarations import Curve, History, Reference, Spec
from gramless.papers.experiments.results import Record, contains, points
from gramless.papers.report.formatting import PERCENTAGES, group_by, label, name_of, plain_number, varying_among

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (380, 270)
_MOST_MARKERS = 14  # largest number of markers on a line; more markers would hide the line
_MOST_LEVELS = 3  # largest number of values of the paper that are drawn as horizontal lines
_FEWEST_POINTS = 3  # smallest number of points of a line in a chart; fewer values are easier to read in a table
_COLOURS = 8
PaperPoint = tuple[float, float, int]
"""Value of the paper as a point in a chart: x, y, and the index of the colour of the line to which the point belongs."""


@dataclass(frozen=True)
class ChartLine:
    """Line through points in order of x; `spread` is the half-width of the band, `colour` the index of the colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    colour: int = 0


def figures(view: Curve, spec: Spec, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a figure for each value of the facet of a view, without figures in which no line has enough points."""
    varied = varying_among([record["params"] for record in records])
    series = view.series or tuple(key for key in varied if key not in (view.facet, view.x))
    names = dict.fromkeys(name_of(record["params"], series) for record in records)
    colours = {name: number % _COLOURS for number, name in enumerate(names)}
    title = view.title or f"{_short(view.y)} against {_short(view.x)}"
    facets = group_by(records, lambda record: name_of(record["params"], (view.facet,)) if view.facet else "")
    found = []
    for facet, group in facets.items():
        rows = [(name, np.transpose(rows).tolist()) for name, rows in _named_rows(view, group, series) if rows]
        lines = [ChartLine(name, x, y, spread, colours[name]) for name, (x, y, spread) in rows]
        if all(len(line.x) < _FEWEST_POINTS for line in lines):
            continue
        printed = [
            (point.params, value)
            for point in points(group)
            for value in spec.references
            if value.metric == view.y and contains(point.params, value.params)
        ]
        levels = {(value.value, value.where): value for _, value in printed if view.x not in value.params}
        shown = list(levels.values())[:_MOST_LEVELS]
        at_x = [(p[view.x], value.value, colours[name_of(p, series)]) for p, value in printed if view.x in value.params]
        heading = f"{title[:1].upper()}{title[1:]}" + (f": {facet}" if facet else "")
        chart = draw(view, lines, shown, at_x, heading)
        found.append({"shows": "figure", "title": heading, "chart": chart, "legend": legend(lines, shown, at_x)})
    return found


def _named_rows(view: Curve, records: Sequence[Record], series: Sequence[str]) -> list[tuple[str, list[Any]]]:
    """Return name and rows (x, y, half-width of the band) of each line: a line per fit, or a line of means per series."""
    if isinstance(view, History):
        return [
            (
                name_of(record["params"], series),
                [(row[view.x], row[view.y], 0.0) for row in record["history"] if _has_numbers(row, view.x, view.y)],
            )
            for record in records
        ]
    known = [point for point in points(records) if _has_numbers(point.params, view.x) and point.values(view.y)]
    return [
        (name, sorted((point.params[view.x], point.mean(view.y), point.spread(view.y) or 0.0) for point in members))
        for name, members in group_by(known, lambda point: name_of(point.params, series)).items()
    ]


def draw(
    view: Curve,
    lines: Sequence[ChartLine],
    levels: Sequence[Reference] = (),
    at_x: Sequence[PaperPoint] = (),
    title: str = "",
) -> str:
    """Return a chart as an SVG element, with the paper's values as horizontal lines (`levels`) or as points (`at_x`)."""
    axes = new_axes(*_SIZE)
    x_label = "seconds" if view.x == "seconds" else label(view.x)
    if view.log_x:
        axes.set_xscale("log")
    floor = -math.inf
    if view.log_y:  # values of at most 0 are drawn at the smallest positive value
        values = [y for line in lines for y in (*line.y, *np.subtract(line.y, line.spread or 0.0))]
        floor = min((y for y in values if y > 0), default=-math.inf)
    if floor > 0:
        axes.set_yscale("log")
    lowest, highest = (max(0.0, floor), 100.0) if view.y in PERCENTAGES else (floor, math.inf)
    for level in levels:
        if level.spread:
            low, high = np.clip((level.value - level.spread, level.value + level.spread), lowest, highest)
            axes.axhspan(low, high, color=COLOURS["says"], alpha=0.12, linewidth=0)
        axes.axhline(level.value, color=COLOURS["says"], linewidth=1.6, dashes=(4, 2.5))
    tooltips: dict[str, list[str]] = {}
    for k, line in enumerate(lines):
        y, colour = np.maximum(line.y, floor), COLOURS[f"c{line.colour}"]
        if any(line.spread):
            lower, upper = (np.clip(np.add(line.y, sign * np.array(line.spread)), lowest, highest) for sign in (-1, 1))
            axes.fill_between(line.x, lower, upper, color=colour, alpha=0.14, linewidth=0)
        if len(line.x) > 2:  # a line through two points would suggest values between them
            axes.plot(line.x, y, color=colour, linewidth=2 if len(line.x) <= _MOST_MARKERS else 1.2, gid=f"line-{k}")
            tooltips[f"line-{k}"] = [line.name or "line"]
        if len(line.x) <= _MOST_MARKERS:
            axes.plot(line.x, y, "o", ms=6.4, mfc=COLOURS["card"], mec=colour, mew=1.8, gid=f"dot-{k}")
            tooltips[f"dot-{k}"] = [
                f"{line.name} {plain_number(a)}: {b:.4g}".strip() for a, b in zip(line.x, line.y, strict=True)
            ]
    for x, y, colour_number in at_x:
        edge = COLOURS[f"c{colour_number}"]
        axes.plot(x, max(y, floor), "D", ms=7.8, mfc=COLOURS["card"], mec=edge, mew=2)
    axes.margins(x=0.03, y=0.06)
    is_positive = axes.dataLim.y0 >= 0
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0) if is_positive else low, min(high, highest))
    _set_ticks(axes)
    named: dict[str, Any] = {"size": 12, "color": COLOURS["ink"], "parse_math": False}
    axes.set_xlabel(x_label, **named)
    axes.set_ylabel(label(view.y), **named)
    figure: Any = axes.figure
    figure.tight_layout(pad=0.8)
    about = f"{title}: {label(view.y)} against {x_label}".removeprefix(": ")
    return to_svg(axes, about, "chart", tooltips)


def legend(lines: Sequence[ChartLine], levels: Sequence[Reference], at_x: Sequence[PaperPoint]) -> list[dict[str, str]]:
    """Return the entries of the legend of a chart, each with a CSS class, a sign and a name."""
    names = {line.name: line.colour for line in lines if line.name}
    entries = [{"kind": f"swatch c{colour}", "sign": "", "name": name} for name, colour in names.items()]
    if levels:
        where = {level.where for level in levels}
        name = f"paper, {where.pop()}" if len(where) == 1 else "paper"
        entries.append({"kind": "swatch says", "sign": "", "name": name})
    if at_x:
        entries.append({"kind": "diamond", "sign": "◇", "name": "paper"})
    return entries


def _set_ticks(axes: Axes) -> None:
    """Set ticks at round numbers on both axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for axis, most in ((axes.xaxis, 7), (axes.yaxis, 5)):
        low, high = axis.get_view_interval()
        decades = math.log10(high / low) if axis.get_scale() == "log" else 0.0
        factors = (1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0)
        # If the logarithmic axis spans less than a factor of five, equally spaced ticks have rounder numbers.
        equal_steps = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
        axis.set_major_locator(equal_steps if decades < 0.7 else LogLocator(subs=factors, numticks=7))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(float(f"{value:.12g}"))))


def _has_numbers(values: Mapping[str, Any], *keys: str) -> bool:
    return all(isinstance(values.get(key), int | float) and not isinstance(values[key], bool) for key in keys)


def _short(key: str) -> str:
    return label(key).removesuffix(", %").removesuffix(", MB")
