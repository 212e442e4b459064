"""Line charts of the views `History` and `Curve`, drawn by matplotlib as SVG.

A chart is drawn at about the size in pixels at which the page shows it, because text is scaled together with the chart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.papers.experiments.declarations import Curve, History, Reference, Spec
from gramless.papers.experiments.results import Record, points
from gramless.papers.report.formatting import PERCENTAGES, group_by, label, name_of, plain_number, varying_among

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (380, 270)
_MOST_MARKERS = 14  # largest number of markers on a line; more markers would hide the line
_MOST_LEVELS = 3  # largest number of values of the paper that are drawn as horizontal lines
_FEWEST_POINTS = 3  # shorter lines are easier to read in the table
_COLOURS = 8
# Margins in pixels; the left one grows with the numbers of the axis.
_RIGHT, _TOP, _BOTTOM = 14, 14, 46


@dataclass(frozen=True)
class ChartLine:
    """Line through points in order of x, with an optional half-width of its band, and the number of its colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    colour: int = 0


@dataclass(frozen=True)
class LineChart:
    """Content of a line chart: lines, values of the paper for the whole chart, and values of the paper at one x.

    The y axis of a percentage stays between 0 and 100.
    """

    view: Curve
    levels: Sequence[Reference] = ()
    lines: list[ChartLine] = field(default_factory=list)
    paper_points: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def x_label(self) -> str:
        """Return the name of the x axis."""
        return "seconds" if self.view.x == "seconds" else label(self.view.x)

    @property
    def percent(self) -> bool:
        """Return True if y is a percentage."""
        return self.view.y in PERCENTAGES

    def band(self, line: ChartLine) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and the upper border of the band around a line."""
        middle, spread = np.asarray(line.y, dtype=float), np.asarray(line.spread, dtype=float)
        limits = (0.0, 100.0) if self.percent else (-np.inf, np.inf)
        return np.clip(middle - spread, *limits), np.clip(middle + spread, *limits)


def figures(view: Curve, spec: Spec, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a figure for each value of the facet of a view; none if no line has enough points."""
    facets = {"": list(records)}
    if view.facet is not None:
        facets = group_by(records, lambda record: name_of(record["params"], (view.facet or "",)))
    x_name = None if isinstance(view, History) else view.x
    varied = varying_among([record["params"] for record in records])
    series = view.series or tuple(key for key in varied if key not in (view.facet, x_name))
    names = dict.fromkeys(name_of(record["params"], series) for record in records)
    colours = {name: number % _COLOURS for number, name in enumerate(names)}
    title = view.title or f"{_short(view.y)} against {_short(view.x)}"
    found = []
    for facet, group in facets.items():
        printed = [r for r in spec.references if r.metric == view.y and any(r.matches(one["params"]) for one in group)]
        levels = {(r.value, r.where): r for r in printed if view.x not in r.params}
        chart = LineChart(view, list(levels.values())[:_MOST_LEVELS])
        if isinstance(view, History):
            _add_fits(chart, group, series, colours)
        else:
            _add_means(chart, group, series, colours, [r for r in printed if view.x in r.params])
        if any(len(line.x) >= _FEWEST_POINTS for line in chart.lines):
            heading = f"{title[:1].upper()}{title[1:]}" + (f": {facet}" if facet else "")
            found.append({"shows": "figure", "title": heading, "chart": draw(chart, heading), "legend": legend(chart)})
    return found


def _add_fits(chart: LineChart, records: Sequence[Record], series: Sequence[str], colours: Mapping[str, int]) -> None:
    """Add one line per fit; the fits of a setting have the same colour."""
    x, y = chart.view.x, chart.view.y
    for record in records:
        rows = [row for row in record["history"] if _is_number(row.get(x)) and _is_number(row.get(y))]
        if rows:
            name = name_of(record["params"], series)
            chart.lines.append(ChartLine(name, [row[x] for row in rows], [row[y] for row in rows], (), colours[name]))


def _add_means(
    chart: LineChart,
    records: Sequence[Record],
    series: Sequence[str],
    colours: Mapping[str, int],
    printed: Sequence[Reference],
) -> None:
    """Add the mean and standard deviation over the seeds against a parameter, and the printed values."""
    x, y = chart.view.x, chart.view.y
    known = [point for point in points(records) if _is_number(point.params.get(x)) and point.values(y)]
    for name, members in group_by(known, lambda point: name_of(point.params, series)).items():
        members.sort(key=lambda point: point.params[x])
        means, spreads = zip(*((point.mean(y), point.spread(y) or 0.0) for point in members), strict=True)
        chart.lines.append(ChartLine(name, [point.params[x] for point in members], means, spreads, colours[name]))
        for point in members:
            matching = [r for r in printed if r.matches(point.params)]
            chart.paper_points.extend((point.params[x], r.value, colours[name]) for r in matching)


def draw(chart: LineChart, title: str = "") -> str:
    """Return the chart as an SVG element."""
    axes = new_axes(*_SIZE)
    floor = _set_limits(axes, chart)
    for level in chart.levels:
        if level.spread:
            low = max(level.value - level.spread, axes.get_ylim()[0])
            axes.axhspan(low, level.value + level.spread, color=COLOURS["says"], alpha=0.12, linewidth=0)
        axes.axhline(level.value, color=COLOURS["says"], linewidth=1.6, dashes=(4, 2.5))
    tooltips: dict[str, list[str]] = {}
    for k, line in enumerate(chart.lines):
        y, colour = np.maximum(line.y, floor), COLOURS[f"c{line.colour}"]
        if any(line.spread):
            lower, upper = chart.band(line)
            axes.fill_between(line.x, np.maximum(lower, floor), upper, color=colour, alpha=0.14, linewidth=0)
        if len(line.x) > 2:  # a line through two points would suggest values between them
            axes.plot(line.x, y, color=colour, linewidth=2 if len(line.x) <= _MOST_MARKERS else 1.2, gid=f"line-{k}")
            tooltips[f"line-{k}"] = [line.name or "line"]
        if len(line.x) <= _MOST_MARKERS:
            axes.plot(line.x, y, "o", ms=6.4, mfc=COLOURS["card"], mec=colour, mew=1.8, gid=f"dot-{k}")
            tooltips[f"dot-{k}"] = [
                f"{line.name} {plain_number(a)}: {b:.4g}".strip() for a, b in zip(line.x, line.y, strict=True)
            ]
    for x, y, colour_number in chart.paper_points:
        edge = COLOURS[f"c{colour_number}"]
        axes.plot(x, max(y, floor), "D", ms=7.8, mfc=COLOURS["card"], mec=edge, mew=2)
    _set_layout(axes, chart)
    about = f"{title}: {label(chart.view.y)} against {chart.x_label}".removeprefix(": ")
    return to_svg(axes, about, "chart", tooltips)


def legend(chart: LineChart) -> list[dict[str, str]]:
    """Return the names of the lines and signs of a chart with their CSS classes."""
    names = {line.name: line.colour for line in chart.lines if line.name}
    entries = [{"kind": f"swatch c{colour}", "sign": "", "name": name} for name, colour in names.items()]
    if chart.levels:
        where = {level.where for level in chart.levels}
        name = f"paper, {where.pop()}" if len(where) == 1 else "paper"
        entries.append({"kind": "swatch says", "sign": "", "name": name})
    if chart.paper_points:
        entries.append({"kind": "diamond", "sign": "◇", "name": "paper"})
    return entries


def _set_limits(axes: Axes, chart: LineChart) -> float:
    """Set the scales and limits of the axes; return the lowest y that can be drawn."""
    xs = [x for line in chart.lines for x in line.x] + [x for x, _, _ in chart.paper_points]
    ys = [level.value for level in chart.levels] + [y for _, y, _ in chart.paper_points]
    for line in chart.lines:
        ys += [*line.y, *(y for bound in chart.band(line) for y in bound)] if any(line.spread) else line.y
    positive = [y for y in ys if y > 0]
    if chart.view.log_x:
        axes.set_xscale("log")
    floor = -math.inf
    if chart.view.log_y and positive:
        axes.set_yscale("log")
        floor = min(positive)
    axes.margins(x=0.03, y=0.06)
    axes.update_datalim([(x, max(y, floor)) for x in (min(xs), max(xs)) for y in (min(ys), max(ys))])
    axes.autoscale_view()
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear" and min(ys) >= 0:
        low = max(low, 0.0)
    axes.set_ylim(low, min(high, 100.0) if chart.percent else high)
    axes.autoscale(False)
    return floor


def _set_layout(axes: Axes, chart: LineChart) -> None:
    """Set the ticks, the margins and the names of the axes."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    width, height = _SIZE
    for axis, most in ((axes.xaxis, 7), (axes.yaxis, 5)):
        axis.set_major_locator(_locator(axis.get_scale(), *axis.get_view_interval(), most))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(float(f"{value:.12g}"))))
    low, high = axes.get_ylim()
    longest = max((len(plain_number(float(tick))) for tick in axes.get_yticks() if low <= tick <= high), default=1)
    left = max(62, 32 + 7 * longest)
    end, base = width - _RIGHT, height - _BOTTOM
    axes.set_position((left / width, _BOTTOM / height, (end - left) / width, (base - _TOP) / height))
    named: dict[str, Any] = {"ha": "center", "size": 12, "color": COLOURS["ink"], "parse_math": False}
    axes.figure.text((left + end) / 2 / width, 8 / height, chart.x_label, **named)
    middle = (_BOTTOM + (base - _TOP) / 2) / height
    axes.figure.text(16 / width, middle, label(chart.view.y), rotation=90, rotation_mode="anchor", **named)


def _locator(scale: str, low: float, high: float, most: int) -> Any:
    """Return a locator of round ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = math.log10(high / low) if scale == "log" else 0.0
    if decades < 0.7:  # within a factor of five, equal steps give more round numbers
        return MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
    return LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0), numticks=7)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(key: str) -> str:
    return label(key).removesuffix(", %").removesuffix(", MB")
