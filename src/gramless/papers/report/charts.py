"""Line charts of the report, drawn by matplotlib as SVG.

A chart is drawn at about the size in pixels at which the page shows it, because text is scaled together with the chart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.papers.report.formatting import plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MARKERS = 14  # largest number of markers on a line; more markers would hide the line
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
class PaperLevel:
    """Value of the paper for the whole chart: a dashed horizontal line."""

    y: float
    name: str
    spread: float | None = None


@dataclass(frozen=True)
class PaperPoint:
    """Value of the paper for one x: a diamond."""

    x: float
    y: float
    name: str
    colour: int = 0


@dataclass(frozen=True)
class LineChart:
    """Content of a line chart; the y axis of a percentage stays between 0 and 100."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[ChartLine]
    levels: Sequence[PaperLevel] = ()
    points: Sequence[PaperPoint] = ()
    log_x: bool = False
    log_y: bool = False
    x_ticks: Sequence[float] = ()
    percent: bool = False

    def extent(self) -> tuple[list[float], list[float]]:
        """Return all x and all y that the axes must contain."""
        xs = [x for line in self.lines for x in line.x] + [point.x for point in self.points]
        ys = [point.y for point in self.points] + [level.y for level in self.levels]
        for line in self.lines:
            ys += [*line.y, *(y for bound in self.band(line) for y in bound)]
        return xs, ys

    def band(self, line: ChartLine) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bound of the band of a line, empty without a spread."""
        if not any(line.spread):
            return np.empty(0), np.empty(0)
        middle, spread = np.asarray(line.y, dtype=float), np.asarray(line.spread, dtype=float)
        limits = (0.0, 100.0) if self.percent else (-np.inf, np.inf)
        return np.clip(middle - spread, *limits), np.clip(middle + spread, *limits)


def draw(chart: LineChart, width: int, height: int, css_class: str = "chart", beside: Sequence[LineChart] = ()) -> str:
    """Return the chart as an SVG element, on axes that also contain the charts `beside` it, so that they can be compared."""
    axes = new_axes(width, height)
    floor = _set_limits(axes, chart, [one.extent() for one in (chart, *beside)])
    tooltips: dict[str, list[str]] = {}
    for k, level in enumerate(chart.levels):
        if level.spread:
            low = max(level.y - level.spread, axes.get_ylim()[0])
            axes.axhspan(low, level.y + level.spread, color=COLOURS["says"], alpha=0.12, linewidth=0)
        axes.axhline(level.y, color=COLOURS["says"], linewidth=1.6, dashes=(4, 2.5), gid=f"level-{k}")
        tooltips[f"level-{k}"] = [f"{level.name} {level.y:g}"]
    for line in chart.lines:
        lower, upper = chart.band(line)
        if len(lower):
            axes.fill_between(
                line.x, np.maximum(lower, floor), upper, color=COLOURS[f"c{line.colour}"], alpha=0.14, linewidth=0
            )
    heights = {
        line.name: axes.transData.transform(np.column_stack([line.x, np.maximum(line.y, floor)]))[:, 1]
        for line in chart.lines
    }
    for k, line in enumerate(chart.lines):
        hidden = sum(_coincide(other, line, heights) for other in chart.lines[:k])
        y, colour = np.maximum(line.y, floor), COLOURS[f"c{line.colour}"]
        if len(line.x) > 2:  # a line through two points would suggest values between them
            # A line on top of other lines is dashed, with longer gaps for more lines, so that all lines are visible.
            style: dict[str, Any] = {"dashes": (2, 2 * hidden), "linewidth": 2.6} if hidden else {"linewidth": 2}
            axes.plot(line.x, y, color=colour, solid_capstyle="round", gid=f"line-{k}", **style)
            tooltips[f"line-{k}"] = [line.name or "line"]
        if len(line.x) <= _MOST_MARKERS:
            axes.plot(line.x, y, "o", ms=6.4, mfc=COLOURS["card"], mec=colour, mew=1.8, gid=f"dot-{k}")
            tooltips[f"dot-{k}"] = [
                f"{line.name} {plain_number(a)}: {b:.4g}".strip() for a, b in zip(line.x, line.y, strict=True)
            ]
    for k, point in enumerate(chart.points):
        edge = COLOURS[f"c{point.colour}"]
        axes.plot(point.x, max(point.y, floor), "D", ms=7.8, mfc=COLOURS["card"], mec=edge, mew=2, gid=f"point-{k}")
        tooltips[f"point-{k}"] = [f"{point.name} {point.y:g}"]
    _set_layout(axes, chart, width, height)
    about = f"{chart.title}: {chart.y_label} against {chart.x_label}".removeprefix(": ")
    return to_svg(axes, about, css_class, tooltips)


def legend(chart: LineChart) -> list[dict[str, str]]:
    """Return the names of the lines and signs of a chart with their CSS classes."""
    entries = [{"kind": f"swatch c{line.colour}", "sign": "", "name": line.name} for line in chart.lines if line.name]
    if chart.levels:
        entries.append({"kind": "swatch says", "sign": "", "name": chart.levels[0].name})
    if chart.points:
        entries.append({"kind": "diamond", "sign": "◇", "name": "paper"})
    return entries


def _set_limits(axes: Axes, chart: LineChart, extents: Sequence[tuple[list[float], list[float]]]) -> float:
    """Set the scales and limits of the axes; return the lowest y that can be drawn."""
    xs, ys = ([value for extent in extents for value in extent[k]] for k in (0, 1))
    positive = [y for y in ys if y > 0]
    if chart.log_x:
        axes.set_xscale("log")
    floor = -math.inf
    if chart.log_y and positive:
        axes.set_yscale("log")
        floor = min(positive)
    axes.margins(x=0.03, y=0.06)
    corners = [(x, max(y, floor)) for x in (min(xs), max(xs)) for y in (min(ys), max(ys))]
    axes.update_datalim(corners)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear" and min(ys) >= 0:
        low = max(low, 0.0)
    if chart.percent:
        high = min(high, 100.0)
    axes.set_ylim(low, high)
    axes.autoscale(False)
    return floor


def _set_layout(axes: Axes, chart: LineChart, width: int, height: int) -> None:
    """Set the ticks, the margins and the names of the axes."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_xlim()
    inside = [tick for tick in chart.x_ticks if low <= tick <= high]
    fits = 1 < len(inside) <= width // 56
    nbins = min(width // 60, 10)
    axes.xaxis.set_major_locator(FixedLocator(inside) if fits else _locator(axes.get_xscale(), low, high, nbins))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(_locator(axes.get_yscale(), low, high, 5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(float(f"{value:.12g}"))))
    longest = max((len(plain_number(float(tick))) for tick in axes.get_yticks() if low <= tick <= high), default=1)
    left = max(62, 32 + 7 * longest)
    end, base = width - _RIGHT, height - _BOTTOM
    axes.set_position((left / width, _BOTTOM / height, (end - left) / width, (base - _TOP) / height))
    named: dict[str, Any] = {"ha": "center", "size": 12, "color": COLOURS["ink"], "parse_math": False}
    axes.figure.text((left + end) / 2 / width, 8 / height, chart.x_label, **named)
    middle = (_BOTTOM + (base - _TOP) / 2) / height
    axes.figure.text(16 / width, middle, chart.y_label, rotation=90, rotation_mode="anchor", **named)


def _locator(scale: str, low: float, high: float, nbins: int) -> Any:
    """Return a locator of round ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = math.log10(high / low) if scale == "log" else 0.0
    if decades < 0.7:  # within a factor of five, equal steps give more round numbers
        return MaxNLocator(nbins, steps=[1, 2, 2.5, 5, 10])
    return LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0), numticks=7)


def _coincide(one: ChartLine, other: ChartLine, heights: dict[str, np.ndarray]) -> bool:
    """Return True if two lines are less than two pixels apart everywhere."""
    return list(one.x) == list(other.x) and bool(np.all(np.abs(heights[one.name] - heights[other.name]) < 2))
